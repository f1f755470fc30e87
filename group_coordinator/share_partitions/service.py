"""Use cases of the members of share groups: ShareFetch and ShareAcknowledge.

A request is checked as a whole, then takes its epoch of the session. After that each partition succeeds or is refused
by itself (`naming`). The answer has no error of its own then, because member and server must agree on the epoch. A
fetch acknowledges before it acquires. Acknowledgements are durable before the answer.

Source: spec groups 6.2; KIP-932.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, TypeVar

from msgspec.structs import replace

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.names import check_group_id, check_partitions
from coordinator_runtime.decision import CATALOG_KEY, Operation, once_durable
from coordinator_runtime.pending import Pending, settled
from coordinator_runtime.ports import (
    Authorizer,
    CallContext,
    Connection,
    PartitionName,
    Permission,
    ResourceType,
    require,
)
from coordinator_runtime.runtime import Runtime
from coordinator_runtime.stepping import in_steps
from group_coordinator.administration.settings import ShareSettings
from group_coordinator.share_partitions.acquiring import AcquiredRange, Terms
from group_coordinator.share_partitions.answers import fetch_reply
from group_coordinator.share_partitions.decisions import decide_acknowledge
from group_coordinator.share_partitions.fetching import FetchOutcome, ShareFetches, ShareParts
from group_coordinator.share_partitions.naming import NamingRequest, PartitionNaming, RequestedPartitions
from group_coordinator.share_partitions.places import release, share_shard
from group_coordinator.share_partitions.records import ShareKey
from group_coordinator.share_partitions.requests import (
    Acknowledge,
    ShareAcknowledge,
    ShareAcknowledgeReply,
    ShareFetch,
    ShareFetchReply,
)
from group_coordinator.share_partitions.rules import AckBatch, AckType
from group_coordinator.share_partitions.sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    MemberKey,
    ShareSession,
)

_NO_MEMBER: Final = frozenset({ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNKNOWN_MEMBER_ID})

T = TypeVar("T")
ReplyT = TypeVar("ReplyT", ShareFetchReply, ShareAcknowledgeReply)


class SharePartitionService:
    """Fetches and acknowledges records for members of share groups."""

    def __init__(self, runtime: Runtime, parts: ShareParts, authorizer: Authorizer) -> None:
        self._runtime = runtime
        self._homes = parts.homes
        self._members = parts.members
        self._authorizer = authorizer
        self.sessions = parts.sessions
        self._naming = PartitionNaming(runtime, parts)
        self.fetches = ShareFetches(runtime, parts)

    # Use cases

    def fetch(self, request: ShareFetch, context: CallContext) -> Pending[ShareFetchReply]:
        """Acknowledge records, then acquire some of the session's partitions; waits as the request says, unless it has
        acknowledgements.

        Errors of the whole request: GROUP_AUTHORIZATION_FAILED, INVALID_GROUP_ID, INVALID_REQUEST,
        SHARE_SESSION_NOT_FOUND, INVALID_SHARE_SESSION_EPOCH, SHARE_SESSION_LIMIT_REACHED, GROUP_ID_NOT_FOUND,
        UNKNOWN_MEMBER_ID; and if the shard of the group is not served."""
        ask = partial(require, self._authorizer, context, Permission.READ, ResourceType.GROUP, request.group_id)
        ask()
        _check_fetch(request)
        key = MemberKey(request.group_id, request.member_id)

        def go_on(session: ShareSession, settings: ShareSettings) -> Pending[ShareFetchReply]:
            naming = NamingRequest(
                session=session,
                partitions=request.partitions,
                forgotten=request.forgotten,
                joins=request.session_epoch != FINAL_EPOCH,
                settings=settings,
                context=context,
            )
            if naming.joins:
                fetched = self._take_in(naming).then(partial(self._fetched, request, session, context, ask))
            else:
                nothing = FetchOutcome((), {}, settings.record_lock_duration_ms)
                fetched = self._close(naming).then(
                    lambda named: named.results().map(lambda results: fetch_reply(named.named, results, nothing))
                )
            return fetched.then(self._when_catalog_durable)

        connection = context.connection if request.ends_with_connection else None
        return self._in_session(key, request.session_epoch, go_on, connection)

    def acknowledge(self, request: ShareAcknowledge, context: CallContext) -> Pending[ShareAcknowledgeReply]:
        """Acknowledge records. Errors of the whole request: as `fetch`."""
        require(self._authorizer, context, Permission.READ, ResourceType.GROUP, request.group_id)
        check_group_id(request.group_id)
        check_partitions([each.name for each in request.partitions])
        if request.session_epoch == INITIAL_EPOCH:
            raise Refused(
                ErrorCode.INVALID_SHARE_SESSION_EPOCH,
                "ShareAcknowledge cannot begin a share session: begin one with ShareFetch, and name the next epoch",
            )
        key = MemberKey(request.group_id, request.member_id)

        def go_on(session: ShareSession, settings: ShareSettings) -> Pending[ShareAcknowledgeReply]:
            naming = NamingRequest(session=session, partitions=request.partitions, settings=settings, context=context)
            is_last = request.session_epoch == FINAL_EPOCH
            taken_in = self._close(naming) if is_last else self._take_in(naming)
            duration_ms = settings.record_lock_duration_ms
            answered = taken_in.then(RequestedPartitions.results).map(
                lambda results: ShareAcknowledgeReply(duration_ms, tuple(results))
            )
            return answered.then(self._when_catalog_durable)

        return self._in_session(key, request.session_epoch, go_on)

    def connection_lost(self, connection: Connection) -> None:
        """End the sessions that end with a connection, and release what their members hold, after their requests that
        have begun."""
        for session in self.sessions.of_connection(connection):
            session.in_turn(partial(self._end, session))

    def release_unsent(self, key: MemberKey, name: PartitionName, ranges: Iterable[AcquiredRange]) -> None:
        """Release records of an answer that cannot be sent as a whole."""
        home = self._homes.home(name.topic_id, name.partition)
        batches = tuple(AckBatch(each.first_offset, each.last_offset, (AckType.RELEASE,)) for each in ranges)
        if home is None or not batches:
            return
        command = Acknowledge(key.member_id, batches, Terms())
        decide = partial(decide_acknowledge, key=ShareKey(key.group_id, home.ordinal), command=command)
        self._runtime.write(Operation(share_shard(home.shard_number), decide), is_urgent=True)

    # Sessions

    def _in_session(
        self,
        key: MemberKey,
        epoch: int,
        go_on: Callable[[ShareSession, ShareSettings], Pending[T]],
        connection: Connection | None = None,
    ) -> Pending[T]:
        """Go on in the session of a request. A refusal that rests on the state of the group waits until that is on
        disk. A session may outlive the membership: then its acknowledgements count, and it acquires nothing.

        Raises Refused as `ShareSessions.take` and `ShareSessions.open`."""
        session = None if epoch == INITIAL_EPOCH else self.sessions.take(key, epoch)
        try:
            settings = self._members.membership(key).settings
        except Refused as refusal:
            if session is None or refusal.code not in _NO_MEMBER:
                self.sessions.end(key)
                return self._runtime.write(once_durable(self._members.shard_key(key.group_id), refusal))
            settings = self._members.settings(key.group_id)
        if session is None:
            session = self.sessions.open(key, connection)
        return go_on(session, settings)

    # Partitions of a request

    def _take_in(self, naming: NamingRequest) -> Pending[RequestedPartitions]:
        """Take in the partitions of a request, after those of earlier ones."""
        return naming.session.in_turn(lambda: in_steps(self._runtime, self._naming.steps(naming)))

    def _close(self, naming: NamingRequest) -> Pending[RequestedPartitions]:
        """Take in the partitions of the last request of a session. Then end the session, and release what the member
        still holds; durable with the reply."""
        session = naming.session

        def end(named: RequestedPartitions) -> tuple[RequestedPartitions, Pending[None]]:
            return named, self._end(session)

        ended = session.in_turn(lambda: in_steps(self._runtime, self._naming.steps(naming)).map(end))
        return ended.then(lambda found: found[1].map(lambda _released: found[0]))

    def _end(self, session: ShareSession) -> Pending[None]:
        """End a session, and release what the member holds. If a new session has begun meanwhile, that keeps the
        records."""
        if not self.sessions.is_current(session):
            return settled(None)
        self.sessions.end(session.key)
        return release(self._runtime, *session.key)

    def _fetched(
        self,
        request: ShareFetch,
        session: ShareSession,
        context: CallContext,
        ask_again: Callable[[], None],
        found: RequestedPartitions,
    ) -> Pending[ShareFetchReply]:
        """Fetch from the partitions of the session, and answer once the acknowledgements are durable. Does not wait for
        records if there is something to answer already."""
        named, errors = found
        if named or errors:
            request = replace(request, wait_ms_max=0)
        acknowledged = found.results()
        fetched = self.fetches.fetch(request, session, context, errors, ask_again, after=acknowledged)
        return fetched.map(lambda outcome: fetch_reply(named, acknowledged.result(), outcome))

    def _when_catalog_durable(self, reply: ReplyT) -> Pending[ReplyT]:
        """Return a reply. With an error, which may rest on the live catalog, it waits until that is on disk."""
        if not any(each.error is not None for each in reply.results):
            return settled(reply)
        return self._runtime.write(once_durable(CATALOG_KEY, reply), is_urgent=True)


def _check_fetch(request: ShareFetch) -> None:
    """Raise Refused for a request that no session allows: INVALID_GROUP_ID, INVALID_REQUEST."""
    check_group_id(request.group_id)
    check_partitions([each.name for each in request.partitions])
    check_partitions(request.forgotten)
    numbers = {
        "max_wait_ms": request.wait_ms_max,
        "min_bytes": request.bytes_min,
        "max_bytes": request.bytes_max,
        "max_records": request.records_max,
    }
    for name, number in numbers.items():
        if number < 0:
            raise Refused(ErrorCode.INVALID_REQUEST, f"{name} is {number} and must not be negative")
    if request.session_epoch == INITIAL_EPOCH and any(each.has_batches for each in request.partitions):
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            "acknowledgements need a share session, and epoch 0 begins one: send them with the next epoch",
        )
    if request.session_epoch == FINAL_EPOCH and any(not each.has_batches for each in request.partitions):
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            "epoch -1 ends the share session, and nothing is fetched: name only partitions with acknowledgements",
        )
