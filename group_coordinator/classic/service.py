"""Calls of classic members: authorization, choice of the shard, and the wait for the answer."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

from msgspec.structs import replace

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.names import check_group_id
from coordinator_runtime.decision import Operation, ShardRouter
from coordinator_runtime.identity import new_uuid, uuid_text
from coordinator_runtime.late_answers import LateAnswers
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import Authorizer, CallContext, Permission, ResourceType, require
from coordinator_runtime.runtime import Runtime
from group_coordinator.classic import decisions
from group_coordinator.classic.requests import (
    Heard,
    Heartbeat,
    Joined,
    JoinGroup,
    LeaveGroup,
    Left,
    Synced,
    SyncGroup,
)
from group_coordinator.classic.state import check_instance_id
from group_coordinator.config import GroupConfig
from group_coordinator.news import News

AnswerT = TypeVar("AnswerT")

REASON_LENGTH_MAX: Final = 255
"""Number of characters kept of a client's reason, as in Kafka."""

MEMBER_NAME_LENGTH_MAX: Final = 200
"""Number of characters of the client id or instance id that a member id repeats, for people who read it."""


class ClassicService:
    """Use cases of classic groups. Each checks the caller's permission and the command before it asks the group.

    Raises Refused GROUP_AUTHORIZATION_FAILED, INVALID_GROUP_ID, INVALID_REQUEST.
    """

    def __init__(
        self,
        runtime: Runtime,
        *,
        router: ShardRouter,
        config: GroupConfig,
        authorizer: Authorizer,
        answers: LateAnswers,
        news: News,
    ) -> None:
        self._runtime = runtime
        self._router = router
        self._config = config
        self._authorizer = authorizer
        self._answers = answers
        self._news = news

    def join(self, request: JoinGroup, context: CallContext) -> Pending[Joined]:
        """Join the group. The answer comes when the join phase is over, after at most the longest rebalance timeout of
        a member.

        Errors: INVALID_SESSION_TIMEOUT, and as spec groups 2.4; JoinRefused if the answer carries another member id
        than the request.
        """
        ask = self._check(request.group_id, request.instance_id, context)
        _check_join(request, self._config)
        name = request.instance_id or context.client_id
        named = replace(
            request,
            # Begins with a name that people know, and is unique (spec groups 2.4.5).
            new_member_id=f"{name[:MEMBER_NAME_LENGTH_MAX]}-{uuid_text(new_uuid())}",
            reason=request.reason[:REASON_LENGTH_MAX],
        )
        joined = self._answers.write(
            self._router.shard_key(request.group_id),
            partial(decisions.decide_join, request=named),
            context,
            abandon=partial(decisions.decide_abandon, group_id=request.group_id),
        )
        return joined.map(partial(_still_allowed, ask))

    def sync(self, request: SyncGroup, context: CallContext) -> Pending[Synced]:
        """Return the member's part once the leader's assignment is durable. Errors: as spec groups 2.6."""
        ask = self._check(request.group_id, request.instance_id, context)
        synced = self._answers.write(
            self._router.shard_key(request.group_id),
            partial(decisions.decide_sync, request=request),
            context,
            abandon=partial(decisions.decide_abandon, group_id=request.group_id),
        )
        return synced.map(partial(_still_allowed, ask))

    def heartbeat(self, request: Heartbeat, context: CallContext) -> Pending[None]:
        """Answer a heartbeat, at once or when there is news, and at the latest after the wait. Errors: as spec groups
        2.7."""
        ask_again = self._check(request.group_id, request.instance_id, context)
        operation = Operation(
            self._router.shard_key(request.group_id), partial(decisions.decide_heartbeat, request=request)
        )

        def ask() -> Pending[Heard]:
            # A heartbeat stores nothing, so it is accepted even while writes are refused for overload.
            return self._runtime.write(operation, context, is_urgent=True).recover(_heard_while_loading)

        heard = self._news.ask(
            request.group_id, ask, is_news=lambda heard: heard.refusal is not None, max_wait_ms=request.max_wait_ms
        )
        return heard.map(partial(_still_allowed, ask_again)).map(_told)

    def leave(self, request: LeaveGroup, context: CallContext) -> Pending[tuple[Left, ...]]:
        """Remove the members. Returns one result per entry, in the order of the entries."""
        self._check(request.group_id, None, context)
        for leaving in request.members:
            if leaving.instance_id is not None:
                check_instance_id(leaving.instance_id)
        operation = Operation(
            self._router.shard_key(request.group_id), partial(decisions.decide_leave, request=request)
        )
        return self._runtime.write(operation, context)

    def _check(self, group_id: str, instance_id: str | None, context: CallContext) -> Callable[[], None]:
        """Check permission, group id and instance id. Returns the permission check, to repeat it for a call that has
        waited."""
        ask = partial(require, self._authorizer, context, Permission.READ, ResourceType.GROUP, group_id)
        ask()
        check_group_id(group_id)
        if instance_id is not None:
            check_instance_id(instance_id)
        return ask


def _still_allowed(ask: Callable[[], None], answer: AnswerT) -> AnswerT:
    ask()
    return answer


def _check_join(request: JoinGroup, config: GroupConfig) -> None:
    """Raise Refused unless a group can process the request.

    Raises Refused: INVALID_SESSION_TIMEOUT, INVALID_REQUEST.
    """
    least_ms, most_ms = config.session_timeout_ms_min, config.session_timeout_ms_max
    if not least_ms <= request.session_timeout_ms <= most_ms:
        raise Refused(
            ErrorCode.INVALID_SESSION_TIMEOUT,
            f"session_timeout_ms is {request.session_timeout_ms}, and this server allows {least_ms} to {most_ms}",
        )
    if request.rebalance_timeout_ms < 0:
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            f"rebalance_timeout_ms is {request.rebalance_timeout_ms}; leave it out, or say how long the others should "
            "wait",
        )
    if len(dict(request.protocols)) < len(request.protocols):
        raise Refused(ErrorCode.INVALID_REQUEST, "a protocol is named twice; name each of them once")


def _heard_while_loading(error: Exception) -> Heard:
    """Accept heartbeats while the shard loads, so that members keep their place. Their sessions restart after the load
    (spec groups 2.7)."""
    if isinstance(error, Refused) and error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        return Heard()
    raise error


def _told(heard: Heard) -> None:
    if heard.refusal is not None:
        raise heard.refusal
