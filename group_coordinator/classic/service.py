"""The calls of classic members: which shard is asked, and how long the answer may take."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from msgspec.structs import replace

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_runtime.decision import Decision, Operation
from coordinator_runtime.identity import new_uuid, uuid_text
from coordinator_runtime.late_answers import LateAnswers
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import CallContext
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
from group_coordinator.config import GroupConfig
from group_coordinator.loading import GroupRouter
from group_coordinator.news import News

MEMBER_NAME_LENGTH_MAX: Final = 200
"""Characters of the client id or instance id that a member id repeats, for people who read it."""


class ClassicService:
    """Use cases. Each raises Refused for what can be told without asking the group."""

    def __init__(
        self, runtime: Runtime, *, router: GroupRouter, config: GroupConfig, answers: LateAnswers, news: News
    ) -> None:
        self._runtime = runtime
        self._router = router
        self._config = config
        self._answers = answers
        self._news = news

    def join(self, request: JoinGroup, context: CallContext) -> Pending[Joined]:
        """Answered when the join phase is over: that takes up to the rebalance timeout of the most patient member.

        Errors: as spec groups 2.4; JoinRefused where the member gets another id than it asked with."""
        self._check_session_timeout(request.session_timeout_ms)
        named = replace(request, new_member_id=_new_member_id(request.instance_id or context.client_id))
        return self._park(request.group_id, partial(decisions.decide_join, request=named), context)

    def sync(self, request: SyncGroup, context: CallContext) -> Pending[Synced]:
        """Answered when the leader's assignment is durable. Errors: as spec groups 2.6."""
        return self._park(request.group_id, partial(decisions.decide_sync, request=request), context)

    def heartbeat(self, request: Heartbeat, context: CallContext, *, max_wait_ms: int) -> Pending[None]:
        """Answered at once, or when there is something to tell, at the latest after the wait. Errors: as spec groups
        2.7."""
        operation = Operation(
            self._router.shard_key(request.group_id), partial(decisions.decide_heartbeat, request=request)
        )

        def ask() -> Pending[Heard]:
            # A heartbeat stores nothing, so it is heard even when there is too much to store.
            return self._runtime.write(operation, context, is_urgent=True).recover(_heard_while_loading)

        heard = self._news.ask(
            request.group_id, ask, is_news=lambda heard: heard.refusal is not None, max_wait_ms=max_wait_ms
        )
        return heard.map(_told)

    def leave(self, request: LeaveGroup, context: CallContext) -> Pending[tuple[Left, ...]]:
        """One result per entry, in their order."""
        operation = Operation(
            self._router.shard_key(request.group_id), partial(decisions.decide_leave, request=request)
        )
        return self._runtime.write(operation, context)

    def _park(self, group_id: str, decide: Callable[..., Decision], context: CallContext) -> Pending[Any]:
        """Perform an operation whose answer may come with somebody else's."""
        shard = self._router.shard_key(group_id)

        def perform(ticket: int) -> Operation:
            return Operation(shard, partial(decide, ticket=ticket))

        def abandon(ticket: int) -> Operation:
            return Operation(shard, partial(decisions.decide_abandon, group_id=group_id, ticket=ticket))

        return self._answers.write(perform, context, abandon=abandon)

    def _check_session_timeout(self, session_timeout_ms: int) -> None:
        config = self._config
        if not config.session_timeout_ms_min <= session_timeout_ms <= config.session_timeout_ms_max:
            raise Refused(
                ErrorCode.INVALID_SESSION_TIMEOUT,
                f"session_timeout_ms is {session_timeout_ms}, and this server allows {config.session_timeout_ms_min} "
                f"to {config.session_timeout_ms_max}",
            )


def _new_member_id(name: str) -> str:
    """Nobody had it before; begins with a name that people know (spec groups 2.4.5)."""
    return f"{name[:MEMBER_NAME_LENGTH_MAX]}-{uuid_text(new_uuid())}"


def _heard_while_loading(error: Exception) -> Heard:
    """A load must not cost members their place: their sessions begin anew with it (spec groups 2.7)."""
    if isinstance(error, Refused) and error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        return Heard()
    raise error


def _told(heard: Heard) -> None:
    if heard.refusal is not None:
        raise heard.refusal
