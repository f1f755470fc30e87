"""ShareFetch: acquires records now, or waits for some.

A fetch looks at the live share partitions of its session. It reads the offsets that may be acquired from the log, and
each share partition then decides on them. Others may have been faster; then the fetch looks again. A fetch that waits
holds no records and no batches. It looks again where the log has grown, or where records have become available
(`ShareNews`). It is answered as soon as it has acquired something, or when a partition is in error. At the latest, it
is answered when its time is over. A caller that leaves ends its wait.

Source: spec groups 6.2, 6.3; KIP-932.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

from msgspec import Struct

from coordinator_protocol.errors import CoordinatorError, ErrorCode, Refused
from coordinator_runtime.decision import Decision, Operation, Turn
from coordinator_runtime.pending import Pending, all_of, settled
from coordinator_runtime.ports import CallContext, PartitionName, PartitionRef
from coordinator_runtime.record_log import LogBatches, LogReadLimits, LogSpan, LogView, RecordLog
from coordinator_runtime.runtime import Runtime
from coordinator_runtime.share_ports import PartitionHomes
from group_coordinator.administration.settings import ShareSettings
from group_coordinator.share_partitions.acquiring import AcquiredRange, LogPosition
from group_coordinator.share_partitions.decisions import decide_acquire, decide_move_log_start
from group_coordinator.share_partitions.members import ShareMembers, ShareMembership, terms_of
from group_coordinator.share_partitions.news import ShareNews
from group_coordinator.share_partitions.places import shard_beside, share_shard
from group_coordinator.share_partitions.reads import Batches, batches_with, read_of
from group_coordinator.share_partitions.records import ShareKey
from group_coordinator.share_partitions.requests import Acquire, AcquireReply, ShareFetch
from group_coordinator.share_partitions.sessions import ShareSession, ShareSessions
from group_coordinator.share_partitions.shard import ShareShard
from group_coordinator.share_partitions.starting import StartOffsets
from group_coordinator.share_partitions.state import SharePartition

LOOKS_MAX: Final = 256
"""Maximum number of looks of one fetch that read something and acquired nothing. Its records were of aborted
transactions, or others acquired them first."""

LOOKS_AT_ONCE_MAX: Final = 2
"""Number of those that may be made in one turn of the loop."""

_DOUBLINGS_MAX: Final = 40

_GONE: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    }
)
"""Errors with which a partition leaves its session. So the member meets each of them once."""

PLANS_PER_LOOK: Final = 32
"""Number of partitions that one look considers. The loop serves others before the next ones."""

_PAUSE_MS: Final = 1
"""Pause between two such looks, which leaves the loop to others."""


class TakenRecords(Struct, frozen=True):
    """Records that a fetch acquired in one partition."""

    ref: PartitionRef
    ranges: tuple[AcquiredRange, ...]
    batches: Batches


PartitionErrors = dict[int, tuple[PartitionRef, CoordinatorError]]
"""Partitions with their errors, by ordinal."""


class FetchOutcome(Struct, frozen=True):
    """The outcome of a fetch."""

    taken: tuple[TakenRecords, ...]
    errors: PartitionErrors
    lock_duration_ms: int


class _PlannedRead(Struct, frozen=True):
    """A read of one partition."""

    span: LogSpan
    end_offset: int
    """The offset after as many available ones as are wanted. The read may go on behind it."""
    state_epoch: int


class _OneFetch:
    """A fetch in progress."""

    __slots__ = (
        "after",
        "ask_again",
        "context",
        "errors",
        "fresh",
        "is_busy",
        "is_last",
        "is_waiting",
        "key",
        "listeners",
        "looks",
        "membership",
        "reply",
        "request",
        "session",
    )

    def __init__(self, number: int, request: ShareFetch, session: ShareSession, context: CallContext) -> None:
        self.key = ("share_fetch", number)
        self.request = request
        self.session = session
        self.context = context
        self.membership: ShareMembership | None = None
        """The member at the last look."""
        self.fresh: dict[int, None] = dict.fromkeys(session.partitions)
        """Ordinals of the partitions to look at, because they may have something new."""
        self.errors: PartitionErrors = {}
        self.listeners: list[tuple[PartitionRef, Callable[[], None]]] = []
        self.ask_again: Callable[[], None] = lambda: None
        self.after: Pending[Any] = settled(None)
        """Acknowledgements of the same request, for which the answer waits."""
        self.looks = 0
        self.is_busy = False
        """True while a read or an acquisition is on its way."""
        self.is_last = request.wait_ms_max <= 0
        """True once the fetch waits no longer."""
        self.is_waiting = False
        """True while it listens for news."""
        self.reply: Pending[FetchOutcome] = Pending()

    @property
    def is_over(self) -> bool:
        return self.reply.is_settled or self.reply.is_cancelled


class ShareParts(Struct, frozen=True, kw_only=True):
    """Parts that the services of share partitions have in common."""

    log: RecordLog
    homes: PartitionHomes
    members: ShareMembers
    sessions: ShareSessions
    news: ShareNews


class ShareFetches:
    """All fetches of share groups, including those that wait."""

    def __init__(self, runtime: Runtime, parts: ShareParts) -> None:
        self._runtime = runtime
        self._log = parts.log
        self._homes = parts.homes
        self._members = parts.members
        self._sessions = parts.sessions
        self._news = parts.news
        self._starts = StartOffsets(runtime, parts.log)
        self._fetch_count = 0
        self.waiting_fetches = 0

    def fetch(
        self,
        request: ShareFetch,
        session: ShareSession,
        context: CallContext,
        errors: PartitionErrors,
        ask_again: Callable[[], None],
        *,
        after: Pending[Any],
    ) -> Pending[FetchOutcome]:
        """Acquire records for a member in the partitions of its session. The module docstring says when the answer
        comes; it waits for `after` besides. `errors` of partitions are part of it, and it does not wait for records
        then. `ask_again` raises Refused if a call that has waited lost its permission.

        The Pending may be refused by `ask_again`."""
        self._fetch_count += 1
        fetch = _OneFetch(self._fetch_count, request, session, context)
        fetch.errors.update(errors)
        fetch.ask_again, fetch.after = ask_again, after
        self._look(fetch)
        return fetch.reply

    # Looking

    def _look(self, fetch: _OneFetch) -> None:
        """Acquire what there is in the partitions with something new."""
        fetch.is_busy = True
        try:
            fetch.membership = membership = self._members.membership(fetch.session.key)
        except Refused:
            # The next request is refused as it deserves, once that is on disk.
            self._answer(fetch, [])
            return
        plans: list[_PlannedRead] = []
        if self._sessions.is_current(fetch.session):
            plans, is_cut = self._plans(fetch, membership)
            if is_cut and not plans:
                self._runtime.arm((*fetch.key, "again"), 0, partial(self._look_again, fetch))
                return
        if fetch.errors:
            fetch.is_last = True
        if not plans:
            self._go_on(fetch)
            return
        limits = LogReadLimits(
            membership.settings.is_read_committed,
            fetch.request.bytes_max,
            fetch.request.accepted_encodings,
            fetch.context.connection,
        )
        read = self._log.read([plan.span for plan in plans], limits)
        read.on_settled(partial(self._read, fetch, plans))

    def _go_on(self, fetch: _OneFetch) -> None:
        """Wait, unless the time of the fetch is over or there is something new already."""
        if not self._sessions.is_current(fetch.session) or (fetch.is_last and not fetch.fresh):
            self._answer(fetch, [])
        elif fetch.fresh:
            self._look_soon(fetch)
        else:
            self._wait(fetch)

    def _look_soon(self, fetch: _OneFetch) -> None:
        """Look again: the first times at once, then in another turn of the loop."""
        fetch.looks += 1
        if fetch.looks <= LOOKS_AT_ONCE_MAX:
            self._look(fetch)
        elif fetch.looks > LOOKS_MAX:
            self._answer(fetch, [])
        else:
            self._runtime.arm((*fetch.key, "again"), _PAUSE_MS, partial(self._look_again, fetch))

    def _plans(self, fetch: _OneFetch, membership: ShareMembership) -> tuple[list[_PlannedRead], bool]:
        """Return what to read, in fair order, until there are as many records as are wanted. True: partitions are left
        for the next look, because this one has considered enough."""
        plans: list[_PlannedRead] = []
        gone: list[int] = []
        considered = 0
        records_left = fetch.request.records_max
        if records_left <= 0:
            # A request for no records only acknowledges, or waits.
            fetch.fresh.clear()
        for ordinal, ref in fetch.session.partitions.items():
            if records_left <= 0 or considered == PLANS_PER_LOOK:
                break
            if ordinal not in fetch.fresh:
                continue
            del fetch.fresh[ordinal]
            considered += 1
            try:
                plan = self._plan(fetch, ref, membership, records_left)
            except Refused as error:
                fetch.errors[ordinal] = ref, error
                if error.code in _GONE:
                    gone.append(ordinal)
                continue
            if plan is not None:
                plans.append(plan)
                records_left -= plan.end_offset - plan.span.first_offset
        for ordinal in gone:
            self._sessions.remove(fetch.session, ordinal)
        return plans, considered == PLANS_PER_LOOK and bool(fetch.fresh)

    def _plan(
        self, fetch: _OneFetch, ref: PartitionRef, membership: ShareMembership, records_max: int
    ) -> _PlannedRead | None:
        """Return what to read of a partition; None if there is nothing to acquire. Raises Refused, also if the caller
        may not read it any more."""
        found = self._log.find(PartitionName(ref.topic, ref.topic_id, ref.partition), fetch.context)
        if isinstance(found, Refused):
            raise found
        if not membership.has(ref):
            return None
        settings = membership.settings
        view = self._log.view(ref, is_committed=settings.is_read_committed)
        share = self._share(fetch, ref, view, settings)
        if share is None:
            return None
        available = share.first_available(settings.partition_max_record_locks)
        if available is None:
            return None
        first_offset = max(available, view.log_start_offset)
        # Others may hold records in between. So the read goes on behind them, where more may be available.
        end_offset = min(view.bound_offset, share.end_of_available(first_offset, records_max))
        if end_offset <= first_offset:
            if share.start_offset < view.log_start_offset:
                self._move_log_start(fetch, ref, view)
            return None
        # Each look without a record reads twice as far, since compaction may have left a hole of millions of offsets.
        farther = first_offset + (end_offset - first_offset << min(fetch.looks, _DOUBLINGS_MAX))
        span = LogSpan(ref, first_offset, min(view.bound_offset, farther))
        return _PlannedRead(span, end_offset, share.state_epoch)

    def _share(
        self, fetch: _OneFetch, ref: PartitionRef, view: LogView, settings: ShareSettings
    ) -> SharePartition | None:
        """Return the share partition, live; None if it is not there, or its start offset is still being looked for."""
        key = ShareKey(fetch.session.key.group_id, ref.ordinal)
        shard: ShareShard = self._runtime.shard(shard_beside(ref, self._homes))
        share = shard.find(key)
        if share is None or share.is_resolved:
            return share
        self._starts.find(shard.key, key, ref, view, settings, fetch.context)
        share = shard.find(key)
        if share is None or not share.is_resolved:
            refusal = self._starts.refusal(key)
            if refusal is not None:
                raise refusal
            return None
        return share

    def _move_log_start(self, fetch: _OneFetch, ref: PartitionRef, view: LogView) -> None:
        """Let the share partition follow the log start, though nothing is to be acquired."""
        key = ShareKey(fetch.session.key.group_id, ref.ordinal)
        decide = partial(decide_move_log_start, key=key, log_start_offset=view.log_start_offset)
        self._runtime.write(Operation(shard_beside(ref, self._homes), decide))

    # Acquiring

    def _read(self, fetch: _OneFetch, plans: list[_PlannedRead], read: Pending[list[LogBatches]]) -> None:
        """Acquire what was read."""
        if fetch.is_over:
            return
        if isinstance(read.error, Refused):
            # There is no capacity for the answer. Its epoch is used up, so the member gets an empty one.
            self._answer(fetch, [])
            return
        if read.error is not None:
            self._fail(fetch, read.error)
            return
        found = read.result()
        for plan, each in zip(plans, found, strict=True):
            if each.error is not None:
                fetch.errors[plan.span.ref.ordinal] = plan.span.ref, each.error
        size = sum(len(encoded) for each in found for _header, encoded in each.batches)
        has_hole = not all(each.batches for each in found)
        if size < fetch.request.bytes_min and not has_hole and not fetch.is_last and not fetch.errors:
            # Nothing is acquired until there is enough, or the time is over.
            self._wait(fetch)
            fetch.fresh.update(dict.fromkeys(plan.span.ref.ordinal for plan in plans))
            return
        try:
            self._acquire(fetch, plans, found)
        except Exception as defect:  # noqa: BLE001  a bug of ours ends this fetch alone
            self._fail(fetch, defect)

    def _acquire(self, fetch: _OneFetch, plans: list[_PlannedRead], found: list[LogBatches]) -> None:
        """Acquire what was read, and answer; or look again if others were faster."""
        taken: list[TakenRecords] = []
        acquired: list[Pending[Any]] = []
        records_left, bytes_left, has_changed = fetch.request.records_max, fetch.request.bytes_max, False
        for plan, each in zip(plans, found, strict=True):
            size = sum(len(encoded) for _header, encoded in each.batches)
            if records_left <= 0 or (taken and size > bytes_left) or each.error is not None:
                continue
            before = self._live(fetch, plan.span.ref)
            written, reply = self._acquire_one(fetch, plan, each, records_left)
            has_changed |= self._live(fetch, plan.span.ref) is not before
            acquired.append(written)
            if reply is None or not reply.ranges:
                continue
            batches = batches_with(reply.ranges, each.batches)
            taken.append(TakenRecords(plan.span.ref, reply.ranges, batches))
            records_left -= sum(one.last_offset - one.first_offset + 1 for one in reply.ranges)
            bytes_left -= sum(len(encoded) for _header, encoded in batches)
            fetch.session.give_way(plan.span.ref.ordinal)
        if taken or fetch.errors:
            self._answer(fetch, taken, acquired)
        elif has_changed:
            fetch.fresh.update(dict.fromkeys(plan.span.ref.ordinal for plan in plans))
            self._look_soon(fetch)
        else:
            self._go_on(fetch)

    def _live(self, fetch: _OneFetch, ref: PartitionRef) -> SharePartition | None:
        number = self._homes.shard_number(ref.ordinal)
        shard: ShareShard | None = None if number is None else self._runtime.table.find(share_shard(number))
        return None if shard is None else shard.find(ShareKey(fetch.session.key.group_id, ref.ordinal))

    def _acquire_one(
        self, fetch: _OneFetch, plan: _PlannedRead, found: LogBatches, records_left: int
    ) -> tuple[Pending[Any], AcquireReply | None]:
        """Acquire records of one partition. The reply is known at once, and may be sent with the Pending. None if the
        share partition has changed too much meanwhile."""
        assert fetch.membership is not None, "a fetch looks at its member first"
        group_id, member_id = fetch.session.key
        span = plan.span
        command = Acquire(
            member_id=member_id,
            state_epoch=plan.state_epoch,
            read=read_of(found, span.first_offset, end_offset=plan.end_offset if fetch.request.is_strict else None),
            log=LogPosition(found.log_start_offset, found.leader_epoch),
            terms=terms_of(fetch.membership.settings),
            max_records=records_left,
        )
        replies: list[AcquireReply] = []

        def decide(shard: ShareShard, turn: Turn) -> Decision:
            decision = decide_acquire(shard, turn, key=ShareKey(group_id, span.ref.ordinal), command=command)
            replies.append(decision.reply)
            return decision

        written = self._runtime.write(Operation(shard_beside(span.ref, self._homes), decide))
        if isinstance(written.error, Refused):
            if written.error.code is not ErrorCode.FENCED_STATE_EPOCH:
                fetch.errors[span.ref.ordinal] = span.ref, written.error
            return written.answer_error(lambda _error: None), None
        reply = replies[0] if replies else None
        is_known = written.error is None and reply is not None and not reply.waits_for_disk
        return (settled(reply) if is_known else written), reply

    def _look_again(self, fetch: _OneFetch) -> None:
        if fetch.is_over:
            return
        try:
            fetch.ask_again()
            self._log.answer_limit.check(fetch.context.connection)
        except Refused as refusal:
            if refusal.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED:
                self._answer(fetch, [])
            else:
                self._fail(fetch, refusal)
            return
        self._look(fetch)

    # Waiting

    def _wait(self, fetch: _OneFetch) -> None:
        fetch.is_busy = False
        if fetch.is_waiting:
            return
        fetch.is_waiting = True
        self.waiting_fetches += 1
        group_id = fetch.session.key.group_id
        for ordinal, ref in fetch.session.partitions.items():
            woken = partial(self._wake, fetch, ordinal)
            fetch.listeners.append((ref, woken))
            self._log.listen(ref, woken)
            self._news.listen(ShareKey(group_id, ordinal), woken)
        fetch.session.on_end[fetch.key] = partial(self._end_of_session, fetch)
        self._runtime.arm(fetch.key, fetch.request.wait_ms_max, partial(self._time_is_over, fetch))
        fetch.reply.on_cancel = partial(self._give_up, fetch)

    def _wake(self, fetch: _OneFetch, ordinal: int) -> None:
        if fetch.is_over or ordinal not in fetch.session.partitions:
            # Another listener has answered it meanwhile.
            return
        fetch.fresh[ordinal] = None
        if not fetch.is_busy:
            self._look_again(fetch)

    def _time_is_over(self, fetch: _OneFetch) -> None:
        fetch.is_last = True
        if not fetch.is_busy:
            self._look_again(fetch)

    def _end_of_session(self, fetch: _OneFetch) -> None:
        if not fetch.is_busy and not fetch.is_over:
            self._answer(fetch, [])

    def _give_up(self, fetch: _OneFetch) -> None:
        self._leave(fetch)
        fetch.reply.give_up()

    def _leave(self, fetch: _OneFetch) -> None:
        if not fetch.is_waiting:
            return
        fetch.is_waiting = False
        fetch.reply.on_cancel = None
        self.waiting_fetches -= 1
        group_id = fetch.session.key.group_id
        for ref, woken in fetch.listeners:
            self._log.stop_listening(ref, woken)
            self._news.stop_listening(ShareKey(group_id, ref.ordinal), woken)
        fetch.session.on_end.pop(fetch.key, None)
        self._runtime.timers.cancel(fetch.key)

    # Answering

    def _answer(self, fetch: _OneFetch, taken: Iterable[TakenRecords], acquired: Iterable[Pending[Any]] = ()) -> None:
        """Answer once everything that the acquisitions rest on is durable. What a member holds is in memory only, so
        most of them wait for no disk. The batches count as an answer until then."""
        self._leave(fetch)
        fetch.is_busy = True
        settings = None if fetch.membership is None else fetch.membership.settings
        lock_duration_ms = 0 if settings is None else settings.record_lock_duration_ms
        found = FetchOutcome(tuple(taken), dict(fetch.errors), lock_duration_ms)
        size = sum(len(encoded) for each in found.taken for _header, encoded in each.batches)
        limit, connection = self._log.answer_limit, fetch.context.connection
        limit.hold(connection, size)

        def end(written: Pending[list[Any]]) -> None:
            limit.release(connection, size)
            if written.error is not None:
                fetch.reply.fail(written.error)
            else:
                fetch.reply.succeed(found)

        all_of([*acquired, fetch.after]).on_settled(end)

    def _fail(self, fetch: _OneFetch, error: Exception) -> None:
        self._leave(fetch)
        fetch.reply.fail(error)
