"""The runtime: performs operations on shards, one at a time, and answers when their outcome is durable.

How one operation goes (design 5):
1. A savepoint of all state. 2. The shard decides; its records are replayed, its joins are performed the same way, on
other shards if need be. 3. If anything was refused, the savepoint is restored: this operation fails alone. Otherwise
its records are staged into the open group, and its reply and effects wait there. 4. `seal` closes the group once per
loop turn and hands it to the commit thread. 5. `on_durable` makes the state of the group readable, answers, and starts
the effects.

An answer that rests on state of an earlier, not yet durable operation waits for that one, refusals too: "you are
fenced" may rest on an epoch bump that a crash would take back (promise 1).

Everything here runs on one thread and knows no event loop: `coordinator_runtime.driver` gives it one, tests drive it by
hand.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from operator import attrgetter
from typing import Any, TypeGuard

from coordinator_protocol.errors import ErrorCode, Refused, UnknownOutcome
from coordinator_runtime.clock import Clock
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
from coordinator_runtime.parking import ParkedCall, Parking
from coordinator_runtime.pending import Pending, failed
from coordinator_runtime.ports import CallContext
from coordinator_runtime.rows import Rows, StagedRows
from coordinator_runtime.shard_table import ShardState, ShardTable
from coordinator_runtime.store import CommitGroup
from coordinator_runtime.timeline import Journal
from coordinator_runtime.timers import Timers
from coordinator_runtime.work import Work

INTERNAL = CallContext(principal="server", client_id="", host="")
"""The context of operations that the server starts itself."""

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


@dataclass(frozen=True, slots=True)
class GroupDurable:
    """One commit group reached the disk, for whoever measures."""

    row_count: int
    size_bytes: int
    elapsed_us: int
    """From sealing, that is, with the wait for the flushes before it."""


class WaitResult(StrEnum):
    """How the wait of a parked call ended."""

    SERVED = "served"
    """What was in its way is done, and it was performed."""
    EXPIRED = "expired"
    """Its deadline came first: CONCURRENT_TRANSACTIONS."""
    LEFT = "left"
    """The caller gave up."""
    REFUSED = "refused"
    """There was no room to wait: CONCURRENT_TRANSACTIONS at once."""
    STOPPED = "stopped"
    """The server stops."""


@dataclass(frozen=True, slots=True)
class WaitEnded:
    """A parked call waits no more, for whoever measures."""

    method: str
    result: WaitResult
    elapsed_us: int


_shard_of = attrgetter("shard")

_Answer = tuple[Pending[Any], Any, Exception | None]
"""A caller, and the value or the refusal that it gets once it may be known."""


_TimedEffect = tuple[Effect, ShardKey, int, int]
"""An effect, the shard that wants it, when it was decided, and its number if it speaks for a timer (`Timers`), else
0."""


class _OpenGroup:
    """A group being built, and after `seal` the answers that wait for it."""

    __slots__ = (
        "afterwards",
        "answers",
        "effects",
        "events",
        "position",
        "row_count",
        "rows",
        "sealed_us",
        "shards",
        "size_bytes",
        "version",
    )

    def __init__(self, version: int) -> None:
        self.version = version
        self.rows = StagedRows()
        self.answers: list[_Answer] = []
        self.effects: list[_TimedEffect] = []
        self.events: list[tuple[Sequence[object], Turn]] = []
        """Of each operation."""
        self.afterwards: list[Callable[[], None]] = []
        """Called when all else that waited for the group is done."""
        self.shards: set[ShardKey] = set()
        self.position = 0
        self.size_bytes = 0
        self.row_count = 0
        self.sealed_us = 0


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
        self.journal = Journal()
        self.limits = limits if limits is not None else RuntimeLimits()
        self._hand_over = hand_over
        self.table = ShardTable()
        self._served = self.table.served
        self._rows: dict[Coordinator, Rows] = {}
        self._effect_handlers: dict[type, Callable[[Any], None]] = {}
        self._durable_listeners: list[Callable[[Iterable[ShardKey]], None]] = []
        self._timers = Timers()
        self._parking = Parking()
        self._parked = self._parking.queues
        self._durable_version = durable_version
        self._open = _OpenGroup(durable_version + 1)
        self._sealed: deque[_OpenGroup] = deque()
        self._undurable_bytes = 0
        self._failure: Exception | None = None
        self.on_work: Callable[[], None] = lambda: None
        """Called when `seal` or `next_deadline_ms` may have something new; the driver schedules it."""
        self.on_event: Callable[[object, Turn], None] = lambda _event, _turn: None
        """Told of everything that happened, once it is durable, with who asked for it and when."""
        self.on_group: Callable[[GroupDurable], None] = lambda _group: None
        """Told of every commit group that became durable."""
        self.on_wait_ended: Callable[[WaitEnded], None] = lambda _wait: None
        """Told of every call that was parked, or found no room for that."""
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
        self._timers.cancel_of(key)
        self._parking.retry_all_held_up_by(key)
        self._tell_durable_change([key])

    def shard(self, key: ShardKey) -> Any:  # noqa: ANN401  the caller knows the class by the coordinator
        """The loaded shard, for reads of durable state. Raises Refused, as `ShardTable.refusal`."""
        return self.table.shard(key)

    def shards(self, coordinator: Coordinator) -> list[Any]:
        """All shards of a coordinator that serve, in order of their number."""
        return self.table.serving(coordinator)

    def handle_effect(self, effect_type: type, handler: Callable[[Any], None]) -> None:
        self._effect_handlers[effect_type] = handler

    def on_durable_change(self, listener: Callable[[Iterable[ShardKey]], None]) -> None:
        """Be told which shards have new durable state, or are not served any more: long polls wake here."""
        self._durable_listeners.append(listener)

    # Writing

    def write(
        self,
        operation: Operation,
        context: CallContext = INTERNAL,
        *,
        park_key: Hashable | None = None,
        is_urgent: bool = False,
        is_continued: bool = False,
    ) -> Pending[Any]:
        """Perform an operation. The reply comes when everything that it rests on is durable.

        With a park key, CONCURRENT_TRANSACTIONS makes the call wait until the key is unparked, behind the calls that
        wait there already, at most until the caller's deadline. `is_urgent` work is accepted beyond the limit of
        undurable bytes, because it is what frees room (EndTxn, markers). `is_continued`: a later step of a call whose
        first one is done; it goes before those that came after that.

        Errors: Refused (nothing was written), UnknownOutcome (the store failed underneath)."""
        if self._failure is not None:
            return failed(_stopping())
        if self._undurable_bytes > self.limits.undurable_bytes_max and not is_urgent:
            return failed(
                Refused(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "too much is waiting for the disk; try again shortly")
            )
        reply: Pending[Any] = Pending()
        can_park = park_key is not None and not context.immediate_51
        held_up_by = None
        if is_continued or park_key not in self._parked:
            held_up_by = self._attempt(operation, context, reply, can_park=can_park)
            if held_up_by is None:
                return reply
        elif not can_park:
            # Who does not want to wait must not overtake those who do, although the way may be free by now.
            return failed(_in_the_way())
        self._park(park_key, operation, context, reply, is_first=is_continued, held_up_by=held_up_by)
        return reply

    def write_before_serving(self, shard: Shard, record: Record) -> Pending[None]:
        """Write a record of a shard that is loaded and does not serve yet. The reply comes when it is durable.

        Errors: as `write`."""
        reply: Pending[None] = Pending()
        if self._failure is not None:
            return failed(_stopping())
        turn = Turn(now_ms=self.clock.wall_ms())
        work = Work(self.table, self.journal, turn)
        shard.replay(record.value)
        work.records.append(record)
        self._accept(work, self._rows_of(work), (reply, None, None))
        return reply

    def _attempt(
        self, operation: Operation, context: CallContext, reply: Pending[Any], *, can_park: bool
    ) -> ShardKey | None:
        """Perform the operation once. When it met a transaction in its way and may wait: the shard that said so."""
        turn = Turn(self.clock.wall_ms(), context.client_id, context.host)
        savepoint = self.journal.position()
        work = Work(self.table, self.journal, turn, can_park=can_park)
        try:
            value = work.perform(operation)
            rows = self._rows_of(work)
        except Refused as refusal:
            self.journal.roll_back(savepoint)
            if work.must_wait(refusal):
                return work.asked
            self._answer_when_durable(work, (reply, None, refusal), (), ())
            return None
        except Exception as defect:  # noqa: BLE001  our bug: this operation fails alone, the state is as before it
            self.journal.roll_back(savepoint)
            reply.fail(defect)
            if context is INTERNAL:
                self.on_defect(defect)
            return None
        if work.records:
            self._accept(work, rows, (reply, value, None))
        else:
            self._answer_when_durable(work, (reply, value, None), work.effects, work.events)
        return None

    def _rows_of(self, work: Work) -> StagedRows:
        """What the operation stores. Apart from the open group, so that a record that cannot be encoded spoils only its
        own operation."""
        staged, rows, turn = StagedRows(), self._rows, work.turn
        for record in work.records:
            rows[record.shard.coordinator].stage(record, turn, staged)
        return staged

    def _accept(self, work: Work, rows: StagedRows, answer: _Answer) -> None:
        group = self._open
        group.rows.merge(rows)
        self._undurable_bytes += rows.size_bytes
        group.shards.update(map(_shard_of, work.records))
        group.answers.append(answer)
        if work.events:
            group.events.append((work.events, work.turn))
        if work.effects:
            group.effects += self._timed(work.effects)
        if group.rows.size_bytes > self.limits.group_bytes_max:
            self.seal()
        else:
            self.on_work()

    def _answer_when_durable(
        self, work: Work, answer: _Answer, effects: Iterable[tuple[Effect, ShardKey]], events: Sequence[object]
    ) -> None:
        """Answer, start the effects and tell the events, once everything that the shards hold is durable; at once if it
        is."""
        timed_effects = self._timed(effects)
        group = self._newest_group_of(work.shards)
        if group is not None:
            group.answers.append(answer)
            group.effects.extend(timed_effects)
            group.events.append((events, work.turn))
            return
        self._give((answer,))
        self._start_effects(timed_effects)
        for event in events:
            self.on_event(event, work.turn)

    def when_durable(self, key: ShardKey, action: Callable[[], None]) -> None:
        """Call back when everything that was written to a shard so far is durable, answered and told; at once if it
        is."""
        group = self._newest_group_of({key})
        if group is None:
            action()
        else:
            group.afterwards.append(action)

    def _newest_group_of(self, shards: set[ShardKey]) -> _OpenGroup | None:
        """The newest group that changes one of these shards; None if all that they hold is durable."""
        for group in (self._open, *reversed(self._sealed)):
            if not group.shards.isdisjoint(shards):
                return group
        return None

    # Committing

    def seal(self) -> None:
        """Close the open group, if anything was staged, and hand it over to be written."""
        group = self._open
        if not group.shards:
            return
        self._sealed.append(group)
        self._open = _OpenGroup(group.version + 1)
        rows = group.rows
        mutations = rows.mutations()
        group.position = self.journal.position()
        group.size_bytes, group.row_count = rows.size_bytes, len(mutations)
        group.sealed_us = self.clock.monotonic_us()
        self._hand_over(CommitGroup(group.version, mutations, rows.deleted_ranges, group.size_bytes))

    def on_durable(self, version: int) -> None:
        """Everything up to this version is on disk: show it, answer, and start the effects."""
        while self._sealed and self._sealed[0].version <= version:
            group = self._sealed.popleft()
            self._durable_version = group.version
            self._undurable_bytes -= group.size_bytes
            self.journal.make_durable(group.position)
            self._give(group.answers)
            self._start_effects(group.effects)
            for events, turn in group.events:
                for event in events:
                    self.on_event(event, turn)
            elapsed_us = self.clock.monotonic_us() - group.sealed_us
            self.on_group(GroupDurable(group.row_count, group.size_bytes, elapsed_us))
            self._tell_durable_change(group.shards)
            for action in group.afterwards:
                action()
        self.on_work()

    def _give(self, answers: Iterable[_Answer]) -> None:
        for reply, value, error in answers:
            try:
                if error is None:
                    reply.succeed(value)
                else:
                    reply.fail(error)
            except Exception as defect:  # noqa: BLE001  our bug, in what follows from this answer; the others need theirs
                self.on_defect(defect)

    def _tell_durable_change(self, keys: Iterable[ShardKey]) -> None:
        for listener in self._durable_listeners:
            listener(keys)

    @property
    def durable_version(self) -> int:
        return self._durable_version

    @property
    def undurable_bytes(self) -> int:
        """Keys and values that are staged or on their way to the disk."""
        return self._undurable_bytes

    @property
    def sealed_groups(self) -> int:
        """Groups that were handed over and are not durable yet."""
        return len(self._sealed)

    @property
    def is_idle(self) -> bool:
        """True when nothing is staged and nothing waits for the disk."""
        return not self._sealed and not self._open.shards

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
        for group in [*self._sealed, self._open]:
            for reply, _value, _error in group.answers:
                reply.fail(unknown)
        self._parking.give_up_all()

    def _timed(self, effects: Iterable[tuple[Effect, ShardKey]]) -> list[_TimedEffect]:
        """The effects of an operation that was accepted. What they say of timers makes void what was said before."""
        now_ms, timers = self.clock.monotonic_ms(), self._timers
        return [
            (effect, owner, now_ms, timers.supersede(effect.key) if _speaks_for_timer(effect) else 0)
            for effect, owner in effects
        ]

    def _start_effects(self, effects: list[_TimedEffect]) -> None:
        for effect, owner, decided_ms, number in effects:
            if _speaks_for_timer(effect) and not self._timers.settle(effect.key, number):
                # A later decision speaks for the timer.
                continue
            if owner not in self._served:
                # Unloaded meanwhile. The next load finds out by itself what is owed.
                continue
            if isinstance(effect, ArmTimer):
                from_ms = self.clock.monotonic_ms() if effect.since_answer else decided_ms
                self._timers.arm(effect.key, from_ms + effect.delay_ms, partial(self._expire, effect), owner=owner)
            elif isinstance(effect, CancelTimer):
                self._timers.cancel(effect.key)
            elif isinstance(effect, Unpark):
                self._parking.retry(effect.key)
            else:
                self._effect_handlers[type(effect)](effect)
        if effects:
            self.on_work()

    # Parking and timers

    def _park(
        self,
        key: Hashable,
        operation: Operation,
        context: CallContext,
        reply: Pending[Any],
        *,
        is_first: bool,
        held_up_by: ShardKey | None,
    ) -> None:
        refusal = _in_the_way()
        timer_key = ("parked", id(reply))
        began_us = self.clock.monotonic_us()

        def leave(result: WaitResult) -> None:
            self._timers.cancel(timer_key)
            reply.on_cancel(_nothing)
            self.on_wait_ended(WaitEnded(context.method, result, self.clock.monotonic_us() - began_us))

        def attempt() -> bool:
            if self._attempt(operation, context, reply, can_park=True) is None:
                leave(WaitResult.SERVED)
                return True
            return False

        def give_up(result: WaitResult) -> None:
            leave(result)
            self._parking.drop(key, call)
            reply.fail(refusal)

        call = ParkedCall(attempt, partial(give_up, WaitResult.STOPPED))
        if len(self._parking) >= self.limits.parked_calls_max:
            leave(WaitResult.REFUSED)
            reply.fail(refusal)
            return
        self._parking.park(key, call, is_first=is_first, held_up_by=held_up_by)
        reply.on_cancel(partial(give_up, WaitResult.LEFT))
        latest_ms = self.clock.monotonic_ms() + self.limits.parked_ms_max
        deadline_ms = latest_ms if context.deadline_ms is None else min(context.deadline_ms, latest_ms)
        self._timers.arm(timer_key, deadline_ms, partial(give_up, WaitResult.EXPIRED))
        self.on_work()

    def has_parked(self, key: Hashable) -> bool:
        """Whether a call under this key would wait behind others."""
        return key in self._parked

    def retry_parked(self, key: Hashable) -> None:
        """What the calls under a key wait for may be done: try them again, in order."""
        self._parking.retry(key)
        self.on_work()

    @property
    def parked_calls(self) -> int:
        return len(self._parking)

    def timers_by_kind(self) -> Mapping[str, int]:
        """How many timers are armed, by what they are for."""
        return self._timers.by_kind()

    def arm(self, key: Hashable, delay_ms: int, action: Callable[[], None]) -> None:
        """Call back after a delay: for waits that are not operations (long polls, retries of remote calls)."""
        self._timers.arm(key, self.clock.monotonic_ms() + delay_ms, action)
        self.on_work()

    def cancel(self, key: Hashable) -> None:
        self._timers.cancel(key)

    def next_deadline_ms(self) -> int | None:
        """Monotonic time at which `run_due_timers` has something to do."""
        return self._timers.next_deadline_ms()

    def run_due_timers(self) -> None:
        for action in self._timers.due(self.clock.monotonic_ms()):
            action()

    def _expire(self, timer: ArmTimer) -> None:
        """A timeout takes the same path as a request. When somebody else was quicker it does nothing and succeeds; when
        it fails, its reason still stands and it comes again, unless the shard has left: then the next load sees to
        it."""
        owner = timer.operation.shard

        def expire_again(_error: Exception) -> None:
            if self._failure is None and owner in self._served and not self._timers.is_decided(timer.key):
                deadline_ms = self.clock.monotonic_ms() + EXPIRE_AGAIN_MS
                self._timers.arm(timer.key, deadline_ms, partial(self._expire, timer), owner=owner)
                self.on_work()

        self.write(timer.operation, is_urgent=True).recover(expire_again)


def _speaks_for_timer(effect: Effect) -> TypeGuard[ArmTimer | CancelTimer]:
    return isinstance(effect, CancelTimer) or (isinstance(effect, ArmTimer) and effect.delay_ms > 0)


def _stopping() -> Refused:
    return Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the server is stopping; try again shortly")


def _in_the_way() -> Refused:
    return Refused(
        ErrorCode.CONCURRENT_TRANSACTIONS,
        "what came before is still in the way, a transaction being completed or a payload being checked; try again",
    )


def _nothing() -> None:
    """What a cancelled caller can still change once its operation is staged."""
