"""The runtime: performs operations on shards, one at a time, and answers when their outcome is durable.

How one operation goes (design 5):
1. A savepoint of all state. 2. The shard decides; its records are replayed, its joins are performed the same way, on
other shards if need be (`Work`). 3. If anything was refused, the savepoint is restored: this operation fails alone.
Otherwise its records are staged into the open commit group, and its reply and effects wait there (`commit_groups`).
4. `CommitGroups.seal` closes the group once per loop turn and hands it to the commit thread. 5. `on_durable` makes the
state of the group readable, answers, and starts the effects.

An answer that rests on state of an earlier, not yet durable operation waits for that one, refusals too: "you are
fenced" may rest on an epoch bump that a crash would take back (promise 1).

Everything here runs on one thread and knows no event loop: `coordinator_runtime.driver` gives it one, tests drive it by
hand.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from operator import attrgetter
from typing import Any

from msgspec import Struct

from coordinator_protocol.errors import ErrorCode, Refused, UnknownOutcome
from coordinator_runtime.clock import Clock, Timers
from coordinator_runtime.commit_groups import Answer, CommitGroups, DecidedEffect, StagedGroup
from coordinator_runtime.decision import (
    ArmTimer,
    CancelTimer,
    Coordinator,
    Decision,
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

EXPIRE_AGAIN_MS = 1_000
"""Pause before a timer's operation is tried again after it was refused."""


@dataclass(frozen=True, slots=True)
class RuntimeLimits:
    """Bounds of the runtime's queues. Beyond them callers are refused, retriably, and nothing is dropped silently."""

    group_bytes_max: int = 1 << 20
    """A group is sealed early beyond this size: writing 1 MiB holds the interpreter for about 2 ms."""
    undurable_bytes_max: int = 64 << 20
    """Staged but not yet durable bytes beyond which new work is refused with THROTTLING_QUOTA_EXCEEDED."""
    parked_ms_max: int = 30_000
    """Longest wait of a parked call whose caller named no deadline."""
    parked_calls_max: int = 10_000
    """Parked calls beyond which CONCURRENT_TRANSACTIONS is answered at once."""


_shard_of = attrgetter("shard")


class Work(Struct, eq=False):
    """What an operation, and all that it joins and tries, has gathered so far: records, effects and events in the order
    in which they were decided. Whoever began the work takes it back in the journal when `perform` is refused."""

    table: ShardTable
    journal: Journal
    turn: Turn
    can_park: bool = False
    """The caller may be made to wait."""
    records: list[Record] = []
    events: list[object] = []
    effects: list[tuple[Effect, ShardKey]] = []
    """Each with the shard that wants it."""
    asked: list[ShardKey] = []
    """Every shard that decided, in order: the last one decides at the moment, and refused if somebody did."""

    def perform(self, operation: Operation, *, is_joined: bool = False) -> object:
        """Decide, replay, join and try. Gives the reply. Raises Refused. `is_joined`: for somebody on another shard."""
        key, served = operation.shard, self.table.served
        shard = served.get(key)
        if shard is None:
            raise self.table.refusal(key, is_joined=is_joined)
        self.asked.append(key)
        decision = operation.decide(shard, self.turn)
        if decision.records:
            for record in decision.records:
                served[record.shard].replay(record.value)
            self.records += decision.records
        if decision.events:
            self.events += decision.events
        if decision.effects:
            self.effects += zip(decision.effects, repeat(key))
        if not decision.joins and not decision.attempts and decision.combine is None:
            return decision.reply
        replies = []
        for join in decision.joins:
            replies.append(self.perform(join, is_joined=True))  # noqa: PERF401  a function less on every way through here
        if decision.attempts:
            replies += map(self._try, decision.attempts)
        if decision.combine is not None:
            return decision.combine(replies)
        for reply in reversed(replies):
            if reply is not None:
                return reply
        return decision.reply

    @property
    def shards(self) -> set[ShardKey]:
        """The shards whose state was looked at or changed."""
        return {*self.asked, *[record.shard for record in self.records]}

    def must_wait(self, refusal: Refused) -> bool:
        """True when the call met a transaction being completed, and waits for its end."""
        return self.can_park and refusal.code is ErrorCode.CONCURRENT_TRANSACTIONS

    def _try(self, attempt: Operation) -> object:
        """The reply, or the refusal; then the attempt has left nothing behind."""
        position = self.journal.position()
        records, events, effects = len(self.records), len(self.events), len(self.effects)
        try:
            return self.perform(attempt)
        except Refused as refusal:
            if self.must_wait(refusal):
                raise
            self.journal.roll_back(position)
            self.asked += [record.shard for record in self.records[records:]]
            del self.records[records:], self.events[events:], self.effects[effects:]
            return refusal


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
        """Called when something was staged or a timer was armed; the driver looks at both when the loop's turn ends."""
        self.on_event: Callable[[object, Turn], None] = lambda _event, _turn: None
        """Told of everything that happened, once it is durable, with who asked for it and when."""
        self.on_group: Callable[[StagedGroup], None] = lambda _group: None
        """Told of every commit group that became durable."""
        self.on_defect: Callable[[Exception], None] = lambda _defect: None
        """Called with a bug of ours in an operation that the server started itself: nobody else would hear of it."""

    # Building

    def add_rows(self, coordinator: Coordinator, rows: Rows) -> None:
        self._rows[coordinator] = rows

    def rows(self, coordinator: Coordinator) -> Rows:
        return self._rows[coordinator]

    def add_shard(self, key: ShardKey, shard: Shard) -> None:
        """The shard is loaded and serves from now on."""
        self.table.serve(key, shard)

    def remove_shard(self, key: ShardKey, state: ShardState) -> None:
        """The shard takes no more operations. Those who waited for a change of its state, and readers of it, are told
        so; its timers are cancelled. What it has staged becomes durable and is answered; effects of that are left to
        the next load."""
        self.table.mark(key, state)
        self.timers.cancel_of(key)
        self.parking.retry_all_held_up_by(key)
        for shard, listener in self._durable_listeners:
            if shard is None or shard == key:
                listener([key])

    def shard(self, key: ShardKey) -> Any:  # noqa: ANN401  the caller knows the class by the coordinator
        """The loaded shard, for reads of durable state. Raises Refused, as `ShardTable.refusal`."""
        shard = self.table.served.get(key)
        if shard is None:
            raise self.table.refusal(key)
        return shard

    def shards(self, coordinator: Coordinator) -> list[Any]:
        """All shards of a coordinator that serve, in order of their number."""
        return self.table.serving(coordinator)

    def handle_effect(self, effect_type: type, handler: Callable[[Any], None]) -> None:
        self._effect_handlers[effect_type] = handler

    def on_durable_change(self, listener: Callable[[Iterable[ShardKey]], None], *, of: ShardKey | None = None) -> None:
        """Be told which shards have new durable state, or are not served any more: long polls wake here. `of`: only
        when this shard is among them."""
        self._durable_listeners = [*self._durable_listeners, (of, listener)]

    def stop_telling(self, listener: Callable[[Iterable[ShardKey]], None]) -> None:
        """Tell a listener of durable changes no more. It may be at work."""
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

        With a park key, CONCURRENT_TRANSACTIONS makes the call wait until the key is unparked, behind the calls that
        wait there already, at most until the caller's deadline. `is_urgent` work is accepted beyond the limit of
        undurable bytes, because it is what frees room (EndTxn, markers). `is_continued`: a later step of a call whose
        first one is done; it goes before those that came after that. `ask_again`: raises Refused where a call that has
        waited may not do this any more.

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
            # A call that does not want to wait must not overtake those that do, although the way may be free by now.
            return failed(in_the_way())
        attempt = partial(self._attempt, operation, context, reply, can_park=True)
        if ask_again is not None:
            attempt = partial(_attempt_if_allowed, attempt, ask_again, reply)
        self.parking.park(park_key, attempt, reply, context, is_first=is_continued, held_up_by=held_up_by)
        self.on_work()
        return reply

    def room_bytes(self) -> int:
        """How many bytes can be staged at this moment with nobody refused, and all of them in the open group."""
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
        """Replay and stage what was decided in this very moment, all or nothing. The reply comes when it is durable.
        Each effect comes with the shard that wants it.

        Errors: UnknownOutcome (the store failed underneath). Raises what is a bug of ours; then nothing was written."""
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

    def remove(self, key: ShardKey, rows: StagedRows) -> Pending[None]:
        """Delete rows on which no state of a shard rests any more. The reply comes when that is durable.

        Errors: UnknownOutcome."""
        reply: Pending[None] = Pending()
        if self._failure is not None:
            return failed(_stopping())
        self.groups.open.shards.add(key)
        self._conclude(Work(self.table, self.journal, Turn(now_ms=self.clock.wall_ms())), (reply, None, None), rows)
        return reply

    def _attempt(
        self, operation: Operation, context: CallContext, reply: Pending[Any], *, can_park: bool
    ) -> ShardKey | None:
        """Perform the operation once. When it met a transaction in its way and may wait: the shard that said so."""
        turn = Turn(self.clock.wall_ms(), context.client_id, context.host, context.principal)
        savepoint = self.journal.position()
        work = Work(self.table, self.journal, turn, can_park)
        try:
            value = work.perform(operation)
            # Not yet in the open group, so that a record that cannot be encoded spoils only its own operation.
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

    def _conclude(self, work: Work, answer: Answer, rows: StagedRows | None) -> None:
        """Let the answer, effects and events of an operation wait for what they rest on. With rows, that is the open
        group, which takes them; without, the newest group that changes a shard which the operation looked at. Where
        all of that is durable they go at once."""
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
                # What was said of a timer before is void from now on. A delay of 0 is no deadline.
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
        """Call back when everything that was written to a shard so far is durable, answered and told; at once if it
        is."""
        group = self.groups.newest_that_changes({key})
        if group is None:
            action()
        else:
            group.afterwards.append(action)

    # Committing

    def on_durable(self, version: int) -> None:
        """Everything up to this version is on disk: show it, answer, and start the effects."""
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
        answers: Iterable[Answer],
        effects: Sequence[DecidedEffect],
        events: Iterable[tuple[Sequence[object], Turn]],
    ) -> None:
        """Answer, start the effects, and tell what happened: all that they rest on is durable."""
        for reply, value, error in answers:
            try:
                if error is None:
                    reply.succeed(value)
                else:
                    reply.fail(error)
            except Exception as defect:  # noqa: BLE001  our bug, in what follows from this answer; the others need theirs
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
        """The store failed: nobody knows what became of the groups under way. The process must end (fail-stop)."""
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
        """Call back after a delay: for waits that are not operations (long polls, retries of remote calls)."""
        self.timers.arm(key, self.clock.monotonic_ms() + delay_ms, action)
        self.on_work()

    def run_due_timers(self) -> None:
        """Run every action whose deadline has passed."""
        for action in self.timers.due(self.clock.monotonic_ms()):
            action()

    def _expire(self, timer: ArmTimer) -> None:
        """A timeout takes the same path as a request. When somebody else was quicker it does nothing and succeeds; when
        it fails, its reason still stands and it comes again, unless the shard has left: then the next load sees to
        it."""
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


def write_checked(
    runtime: Runtime,
    operation: Operation,
    context: CallContext,
    *,
    check: Pending[Any] | None,
    park_key: Hashable,
    ask_again: Callable[[], object] | None = None,
) -> Pending[Any]:
    """Perform an operation as `Runtime.write` does, once its check, which is computed elsewhere, is settled; an error
    of the check is the answer, and nothing is written. None: it was checked before.

    Who sends several requests without waiting for answers relies on their order. So an operation whose check is under
    way waits in the queue of its key (`parking.py`), and whatever comes under the same key waits behind it: the end of
    a transaction cannot overtake its records.

    A caller that must not be kept waiting (`refuse_concurrent`) waits for the check all the same, because every
    repetition would begin it anew; only then is its operation looked at."""
    if check is None:
        return runtime.write(operation, context, park_key=park_key, ask_again=ask_again)
    if context.refuse_concurrent and not check.is_settled:

        def write_now(_checked: object) -> Pending[Any]:
            if ask_again is not None:
                ask_again()
            return runtime.write(operation, context, park_key=park_key)

        return check.then(write_now)

    def decide(shard: Any, turn: Turn) -> Decision:  # noqa: ANN401  as `Operation.decide`
        if not check.is_settled:
            # Nobody reads this: it makes the call wait.
            raise Refused(ErrorCode.CONCURRENT_TRANSACTIONS, "the payload is still being checked; try again")
        check.result()
        return operation.decide(shard, turn)

    written = runtime.write(Operation(operation.shard, decide), context, park_key=park_key, ask_again=ask_again)
    if not check.is_settled:
        check.on_settled(lambda _checked: runtime.parking.retry(park_key))
    return written
