"""The runtime: performs operations on shards, one at a time, and answers when their outcome is durable.

Steps of one operation (design 5):
1. Take a savepoint of all state.
2. Let the shard decide. Its records are replayed, and its joins are performed the same way, on other shards if need be
   (`work`).
3. If anything was refused, restore the savepoint: this operation fails alone. Otherwise stage its records into the open
   commit group, where its reply and effects wait (`commit_groups`).
4. `CommitGroups.seal` closes the group and hands it to the commit thread. While nothing is being written, that is at
   the end of the loop turn. Otherwise it is once the write under way is durable, or the group is large (`driver`).
5. `on_durable` makes the state of the group readable, answers, and starts the effects.

An answer that rests on state of an earlier, not yet durable operation waits for that operation. This holds for refusals
too: "you are fenced" may rest on an epoch bump that a crash would take back (promise 1).

Everything here runs on one thread and knows no event loop. `coordinator_runtime.driver` runs it on one; tests drive it
by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Any

from coordinator_protocol.errors import ErrorCode, Refused, UnknownOutcome
from coordinator_runtime.clock import Clock, Timers
from coordinator_runtime.commit_groups import CommitGroups, DecidedEffect, HeldReply, StagedGroup
from coordinator_runtime.decision import (
    ArmTimer,
    CancelTimer,
    Coordinator,
    Effect,
    Operation,
    Record,
    Shard,
    ShardKey,
    Turn,
    Unpark,
)
from coordinator_runtime.parking import Parking, in_the_way
from coordinator_runtime.pending import Pending, failed
from coordinator_runtime.ports import INTERNAL, CallContext
from coordinator_runtime.rows import Rows, StagedRows
from coordinator_runtime.shard_table import ShardState, ShardTable
from coordinator_runtime.store import CommitGroup
from coordinator_runtime.timeline import Journal
from coordinator_runtime.work import Work

EXPIRE_AGAIN_MS = 1_000
"""Pause before a refused operation of a timer is tried again (ms)."""

TIMERS_US_MAX = 1_000
"""Time after which no further timer is run in the same turn of the loop (us). Thousands of locks may end at once."""


@dataclass(frozen=True, slots=True)
class RuntimeLimits:
    """Bounds of the runtime's queues. Beyond them callers get a retriable refusal; nothing is dropped silently."""

    group_bytes_max: int = 1 << 20
    """Size beyond which the open group is sealed early. Writing 1 MiB holds the interpreter for about 2 ms."""
    undurable_bytes_max: int = 64 << 20
    """Limit of bytes staged and not yet durable. Beyond it new work is refused with THROTTLING_QUOTA_EXCEEDED."""
    parked_ms_max: int = 30_000
    """Longest wait of a parked call whose caller named no deadline (ms)."""
    parked_calls_max: int = 10_000
    """Limit of parked calls. Beyond it CONCURRENT_TRANSACTIONS is answered at once."""


_shard_of = attrgetter("shard")


class Runtime:
    """Shards, staging, answers, timers and parking of one server."""

    def __init__(
        self,
        *,
        clock: Clock,
        durable_version: int,
        hand_over: Callable[[CommitGroup], None],
        limits: RuntimeLimits | None = None,
    ) -> None:
        self.clock = clock
        self.limits = limits if limits is not None else RuntimeLimits()
        self.journal = Journal()
        self.groups = CommitGroups(
            clock=clock, journal=self.journal, durable_version=durable_version, hand_over=hand_over
        )
        self.table = ShardTable()
        self.timers = Timers()
        self.parking = Parking(
            clock,
            self.timers,
            calls_max=self.limits.parked_calls_max,
            wait_ms_max=self.limits.parked_ms_max,
        )
        self._rows: dict[Coordinator, Rows] = {}
        self._effect_handlers: dict[type, Callable[[Any], None]] = {}
        self._durable_listeners: list[tuple[ShardKey | None, Callable[[Iterable[ShardKey]], None]]] = []
        self._failure: Exception | None = None
        self.on_work: Callable[[], None] = lambda: None
        """Called when something was staged or a timer was armed. The driver looks at both when the loop's turn ends."""
        self.on_event: Callable[[object, Turn], None] = lambda _event, _turn: None
        """Called with each event once it is durable, and with the turn in which it was decided."""
        self.on_group: Callable[[StagedGroup], None] = lambda _group: None
        """Called with every commit group that became durable."""
        self.on_defect: Callable[[Exception], None] = lambda _defect: None
        """Called with a bug of ours in an operation that the server itself started: no caller would see the error. Also
        called with a bug in a callback of an answer."""

    # Building

    def add_rows(self, coordinator: Coordinator, rows: Rows) -> None:
        self._rows[coordinator] = rows

    def rows(self, coordinator: Coordinator) -> Rows:
        return self._rows[coordinator]

    def add_shard(self, key: ShardKey, shard: Shard) -> None:
        """Let a loaded shard serve from now on."""
        self.table.serve(key, shard)

    def remove_shard(self, key: ShardKey, state: ShardState) -> None:
        """Stop serving a shard.

        Its timers are cancelled. Calls parked behind a change of its state are tried again, and listeners are called,
        so that its readers hear of it. What it has staged still becomes durable and is answered; the effects of that
        are left to the next load."""
        self.table.mark(key, state)
        self.timers.cancel_of(key)
        self.parking.retry_all_held_up_by(key)
        for shard, listener in self._durable_listeners:
            if shard is None or shard == key:
                listener([key])

    def shard(self, key: ShardKey) -> Any:  # noqa: ANN401  the caller knows the class by the coordinator
        """Return the loaded shard, for reads of durable state. Raises Refused, as `ShardTable.refusal`."""
        shard = self.table.served.get(key)
        if shard is None:
            raise self.table.refusal(key)
        return shard

    def shards(self, coordinator: Coordinator) -> list[Any]:
        """Return all shards of a coordinator that serve, in order of their number."""
        return self.table.serving(coordinator)

    def handle_effect(self, effect_type: type, handler: Callable[[Any], None]) -> None:
        self._effect_handlers[effect_type] = handler

    def on_durable_change(self, listener: Callable[[Iterable[ShardKey]], None], *, of: ShardKey | None = None) -> None:
        """Call the listener with the shards that have new durable state, or are no longer served. Long polls wake here.

        `of`: call only when this shard is among them."""
        self._durable_listeners = [*self._durable_listeners, (of, listener)]

    def stop_telling(self, listener: Callable[[Iterable[ShardKey]], None]) -> None:
        """Remove a listener of durable changes. Safe while the listener runs."""
        self._durable_listeners = [told for told in self._durable_listeners if told[1] != listener]

    # Writing

    def write(
        self,
        operation: Operation,
        context: CallContext = INTERNAL,
        *,
        park_key: Hashable | None = None,
        is_urgent: bool = False,
        is_continued: bool = False,
        ask_again: Callable[[], object] | None = None,
    ) -> Pending[Any]:
        """Perform an operation. The reply comes when everything that it rests on is durable.

        With a park key, CONCURRENT_TRANSACTIONS makes the call wait until the key is unparked, at most until the
        caller's deadline. It queues behind the calls that wait there already. `is_urgent`: accept the work beyond the
        limit of undurable bytes, because it frees memory (EndTxn, markers). `is_continued`: a later step of a call
        whose first step is done; it goes before calls that came after that step. `ask_again`: raises Refused if a call
        that has waited lost its permission.

        Errors: Refused (nothing was written), UnknownOutcome (the store failed underneath)."""
        if self._failure is not None:
            return failed(_stopping())
        if self.groups.undurable_bytes > self.limits.undurable_bytes_max and not is_urgent:
            return failed(
                Refused(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "too much is waiting for the disk; try again shortly")
            )
        reply: Pending[Any] = Pending()
        can_park = park_key is not None and not context.refuse_concurrent
        held_up_by = None
        if is_continued or park_key not in self.parking.queues:
            held_up_by = self._attempt(operation, context, reply, can_park=can_park)
            if held_up_by is None:
                return reply
        elif not can_park:
            # A call that does not want to wait must not overtake those that do, even if it would no longer be blocked.
            return failed(in_the_way())
        attempt = partial(self._attempt, operation, context, reply, can_park=True)
        if ask_again is not None:
            attempt = partial(_attempt_if_allowed, attempt, ask_again, reply)
        self.parking.park(park_key, attempt, reply, context, is_first=is_continued, held_up_by=held_up_by)
        self.on_work()
        return reply

    def bytes_left(self) -> int:
        """Return the number of bytes that can be staged now without a refusal, all of them in the open group."""
        groups, limits = self.groups, self.limits
        if self._failure is not None:
            return 0
        undurable_bytes = limits.undurable_bytes_max - groups.undurable_bytes
        return min(undurable_bytes, limits.group_bytes_max - groups.open.rows.size_bytes)

    def write_decided(
        self,
        records: Sequence[Record],
        events: Sequence[object],
        turn: Turn,
        effects: Sequence[tuple[Effect, ShardKey]] = (),
    ) -> Pending[None]:
        """Replay and stage records that were decided on the current state, all or nothing. The reply comes when they
        are durable.

        Each effect comes with the shard that wants it. Unlike `write`, this checks no limit. The caller has asked
        `bytes_left` in the same step of the loop, which returns 0 once the store has failed, and stages no more.

        Errors: UnknownOutcome (the store failed underneath). Raises a bug of ours; then nothing was written."""
        savepoint, rows = self.journal.position(), StagedRows()
        work = Work(self.table, self.journal, turn, records=[*records], events=[*events], effects=[*effects])
        try:
            for record in records:
                self.table.served[record.shard].replay(record.value)
                self._rows[record.shard.coordinator].stage(record, turn, rows)
        except Exception:
            self.journal.roll_back(savepoint)
            raise
        reply: Pending[None] = Pending()
        self._conclude(work, (reply, None, None), rows)
        return reply

    def write_before_serving(self, shard: Shard, records: Iterable[Record]) -> Pending[None]:
        """Write records of a shard that is loaded and does not serve yet. The reply comes when they are durable.

        Errors: as `write`."""
        reply: Pending[None] = Pending()
        if self._failure is not None:
            return failed(_stopping())
        work = Work(self.table, self.journal, Turn(now_ms=self.clock.wall_ms()))
        rows = StagedRows()
        for record in records:
            shard.replay(record.value)
            work.records.append(record)
            self._rows[record.shard.coordinator].stage(record, work.turn, rows)
        self._conclude(work, (reply, None, None), rows)
        return reply

    def write_rows(self, key: ShardKey, rows: StagedRows) -> Pending[None]:
        """Write or delete rows that no state of a shard rests on. The reply comes when that is durable.

        Errors: UnknownOutcome; Refused if the store has failed already."""
        reply: Pending[None] = Pending()
        if self._failure is not None:
            return failed(_stopping())
        self.groups.open.shards.add(key)
        self._conclude(Work(self.table, self.journal, Turn(now_ms=self.clock.wall_ms())), (reply, None, None), rows)
        return reply

    def _attempt(
        self, operation: Operation, context: CallContext, reply: Pending[Any], *, can_park: bool
    ) -> ShardKey | None:
        """Perform the operation once. Return None, or the shard that refused if the call is blocked and may wait."""
        turn = Turn(self.clock.wall_ms(), context.client_id, context.host, context.principal)
        savepoint = self.journal.position()
        work = Work(self.table, self.journal, turn, can_park)
        try:
            value = work.perform(operation)
            # Staged apart from the open group, so that a record that cannot be encoded fails only its own operation.
            rows = StagedRows()
            for record in work.records:
                self._rows[record.shard.coordinator].stage(record, turn, rows)
        except Refused as refusal:
            self.journal.roll_back(savepoint)
            if work.must_wait(refusal):
                return work.asked[-1]
            work.effects, work.events = [], []
            self._conclude(work, (reply, None, refusal), None)
        except Exception as defect:  # noqa: BLE001  our bug: this operation fails alone, the state is as before it
            self.journal.roll_back(savepoint)
            reply.fail(defect)
            if context is INTERNAL:
                self.on_defect(defect)
        else:
            self._conclude(work, (reply, value, None), rows if work.records else None)
        return None

    def _conclude(self, work: Work, answer: HeldReply, rows: StagedRows | None) -> None:
        """Hold the answer, effects and events of an operation back until everything that they rest on is durable.

        With rows, that is the open group, which takes them. Without, it is the newest group that changes a shard which
        the operation asked. If all of that is durable already, they are released at once."""
        groups = self.groups
        if rows is not None:
            group: StagedGroup | None = groups.open
            groups.open.rows.merge(rows)
            groups.open.shards.update(map(_shard_of, work.records))
            groups.undurable_bytes += rows.size_bytes
        else:
            group = groups.newest_that_changes(work.shards)
        effects: list[DecidedEffect] = []
        if work.effects:
            now_ms = self.clock.monotonic_ms()
            for effect, owner in work.effects:
                number = 0
                # The earlier deadline of the timer is void from now on. A delay of 0 is no deadline and leaves it
                # standing.
                if isinstance(effect, CancelTimer) or (isinstance(effect, ArmTimer) and effect.delay_ms > 0):
                    number = self.timers.supersede(effect.key)
                effects.append((effect, owner, now_ms, number))
        if group is None:
            self._release((answer,), effects, ((work.events, work.turn),))
            return
        group.answers.append(answer)
        group.effects += effects
        if work.events:
            group.events.append((work.events, work.turn))
        if rows is not None:
            if group.rows.size_bytes > self.limits.group_bytes_max:
                groups.seal()
            else:
                self.on_work()

    def when_durable(self, key: ShardKey, action: Callable[[], None]) -> None:
        """Call back once everything written to a shard so far is durable and answered, and its events are reported.
        Call at once if that is so already."""
        group = self.groups.newest_that_changes({key})
        if group is None:
            action()
        else:
            group.afterwards.append(action)

    # Committing

    def on_durable(self, version: int) -> None:
        """Make everything up to this version, which is on disk, readable; then answer, and start the effects."""
        for group in self.groups.become_durable(version):
            self._release(group.answers, group.effects, group.events)
            self.on_group(group)
            for shard, listener in self._durable_listeners:
                if shard is None or shard in group.shards:
                    listener(group.shards)
            for action in group.afterwards:
                action()
        self.on_work()

    def _release(
        self,
        answers: Iterable[HeldReply],
        effects: Sequence[DecidedEffect],
        events: Iterable[tuple[Sequence[object], Turn]],
    ) -> None:
        """Answer, start the effects, and report the events. Everything that they rest on is durable."""
        for reply, value, error in answers:
            try:
                if error is None:
                    reply.succeed(value)
                else:
                    reply.fail(error)
            except Exception as defect:  # noqa: BLE001  our bug, in a callback of this answer; the others must go out
                self.on_defect(defect)
        if effects:
            self._start(effects)
        for happened, turn in events:
            for event in happened:
                self.on_event(event, turn)

    def _start(self, effects: Iterable[DecidedEffect]) -> None:
        timers, served = self.timers, self.table.served
        for effect, owner, decided_ms, number in effects:
            if number and isinstance(effect, ArmTimer | CancelTimer) and not timers.settle(effect.key, number):
                # A later decision speaks for the timer.
                continue
            if owner not in served:
                # Unloaded meanwhile. The next load finds out by itself what is owed.
                continue
            if isinstance(effect, ArmTimer):
                from_ms = self.clock.monotonic_ms() if effect.since_answer else decided_ms
                timers.arm(effect.key, from_ms + effect.delay_ms, partial(self._expire, effect), owner=owner)
            elif isinstance(effect, CancelTimer):
                timers.cancel(effect.key)
            elif isinstance(effect, Unpark):
                if effect.key in self.parking.queues:
                    self.parking.retry(effect.key)
            else:
                self._effect_handlers[type(effect)](effect)
        self.on_work()

    @property
    def has_failed(self) -> bool:
        """True once the store failed."""
        return self._failure is not None

    def fail(self, failure: Exception) -> None:
        """Answer all callers after a failure of the store: the outcome of the groups under way is unknown.

        The process must end (fail-stop)."""
        if self._failure is not None:
            return
        self._failure = failure
        unknown = UnknownOutcome(f"the store failed ({failure}); whether the request took effect is unknown, ask again")
        for group in [*self.groups.sealed, self.groups.open]:
            for reply, _value, _error in group.answers:
                reply.fail(unknown)
        self.parking.give_up_all()

    # Timers

    def arm(self, key: Hashable, delay_ms: int, action: Callable[[], None]) -> None:
        """Call back after a delay. For waits that are not operations (long polls, retries of remote calls)."""
        self.timers.arm(key, self.clock.monotonic_ms() + delay_ms, action)
        self.on_work()

    def run_due_timers(self) -> None:
        """Run the actions whose deadline has passed, earliest first, for about `TIMERS_US_MAX`. Those that are left are
        still due, before all that become due later."""
        until_us = self.clock.monotonic_us() + TIMERS_US_MAX
        for action in self.timers.due(self.clock.monotonic_ms()):
            action()
            if self.clock.monotonic_us() >= until_us:
                return

    def _expire(self, timer: ArmTimer) -> None:
        """Perform the operation of an expired timer, by the same path as a request.

        If its reason is gone, the operation does nothing and succeeds. If it fails, its reason still stands and it is
        tried again, unless the shard was unloaded: then the next load arms the timer."""
        owner = timer.operation.shard

        def expire_again(_error: Exception) -> None:
            if self._failure is None and owner in self.table.served and not self.timers.is_decided(timer.key):
                deadline_ms = self.clock.monotonic_ms() + EXPIRE_AGAIN_MS
                self.timers.arm(timer.key, deadline_ms, partial(self._expire, timer), owner=owner)
                self.on_work()

        self.write(timer.operation, is_urgent=True).recover(expire_again)


def _attempt_if_allowed(
    attempt: Callable[[], ShardKey | None], ask_again: Callable[[], object], reply: Pending[Any]
) -> ShardKey | None:
    try:
        ask_again()
    except Refused as refusal:
        reply.fail(refusal)
        return None
    return attempt()


def _stopping() -> Refused:
    return Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the server is stopping; try again shortly")
