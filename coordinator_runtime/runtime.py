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
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any

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
from coordinator_runtime.store import CommitGroup
from coordinator_runtime.timeline import Journal
from coordinator_runtime.timers import Timers

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
    """A call waits no more behind a transaction that was being completed, for whoever measures."""

    method: str
    result: WaitResult
    elapsed_us: int


_Answer = tuple[Pending[Any], Any, Exception | None]
"""A caller, and the value or the refusal that it gets once it may be known."""


class _Work:
    """What one operation and its joins have gathered so far."""

    __slots__ = ("effects", "events", "records", "reply", "shards")

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.events: list[object] = []
        self.effects: list[Effect] = []
        self.shards: set[ShardKey] = set()
        self.reply: Any = None


class _OpenGroup:
    """A group being built, and after `seal` the answers that wait for it."""

    __slots__ = (
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
        self.effects: list[tuple[Effect, int]] = []
        self.events: list[tuple[object, Turn]] = []
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
        self._shards: dict[ShardKey, Shard] = {}
        self._rows: dict[Coordinator, Rows] = {}
        self._effect_handlers: dict[type, Callable[[Any], None]] = {}
        self._durable_listeners: list[Callable[[Iterable[ShardKey]], None]] = []
        self._timers = Timers()
        self._parking = Parking()
        self._durable_version = durable_version
        self._open = _OpenGroup(durable_version + 1)
        self._sealed: deque[_OpenGroup] = deque()
        self._last_version: dict[ShardKey, int] = {}
        """Per shard: the version of the newest group that changed it."""
        self._undurable_bytes = 0
        self._failure: Exception | None = None
        self.on_work: Callable[[], None] = lambda: None
        """Called when `seal` or `next_deadline_ms` may have something new; the driver schedules it."""
        self.on_event: Callable[[object, Turn], None] = lambda _event, _turn: None
        """Told of everything that happened, once it is durable, with who asked for it and when."""
        self.on_group: Callable[[GroupDurable], None] = lambda _group: None
        """Told of every commit group that became durable."""
        self.on_wait_ended: Callable[[WaitEnded], None] = lambda _wait: None
        """Told of every call that met a transaction being completed and could wait for it."""
        self.on_defect: Callable[[Exception], None] = lambda _defect: None
        """Called with a bug of ours in an operation that the server started itself: nobody else would hear of it."""

    # Building

    def add_rows(self, coordinator: Coordinator, rows: Rows) -> None:
        self._rows[coordinator] = rows

    def rows(self, coordinator: Coordinator) -> Rows:
        return self._rows[coordinator]

    def add_shard(self, key: ShardKey, shard: Shard) -> None:
        """The shard is loaded and serves from now on."""
        self._shards[key] = shard

    def shard(self, key: ShardKey) -> Any:  # noqa: ANN401  the caller knows the class by the coordinator
        """The loaded shard, for reads of durable state. Raises Refused NOT_COORDINATOR."""
        shard = self._shards.get(key)
        if shard is None:
            raise Refused(
                ErrorCode.NOT_COORDINATOR, f"shard {key.number} is not served here; find the coordinator again"
            )
        return shard

    def shards(self, coordinator: Coordinator) -> list[Any]:
        """All loaded shards of a coordinator, in order of their number."""
        return [shard for key, shard in sorted(self._shards.items()) if key.coordinator is coordinator]

    def handle_effect(self, effect_type: type, handler: Callable[[Any], None]) -> None:
        self._effect_handlers[effect_type] = handler

    def on_durable_change(self, listener: Callable[[Iterable[ShardKey]], None]) -> None:
        """Be told which shards have new durable state: long polls wake here."""
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
        reply: Pending[Any] = Pending()
        if self._failure is not None:
            return failed(Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the server is stopping; try again shortly"))
        if self._undurable_bytes > self.limits.undurable_bytes_max and not is_urgent:
            return failed(
                Refused(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "too much is waiting for the disk; try again shortly")
            )
        can_park = park_key is not None and not context.immediate_51
        is_behind_others = park_key is not None and not is_continued and self._parking.is_waiting(park_key)
        if is_behind_others and not can_park:
            # Who does not want to wait must not overtake those who do, although the way may be free by now.
            return failed(_in_the_way())
        if is_behind_others or not self._attempt(operation, context, reply, can_park=can_park):
            self._park(park_key, operation, context, reply, is_first=is_continued)
        return reply

    def _attempt(self, operation: Operation, context: CallContext, reply: Pending[Any], *, can_park: bool) -> bool:
        """Perform the operation once; False when it met a transaction in its way and may wait."""
        turn = Turn(now_ms=self.clock.wall_ms(), client_id=context.client_id, host=context.host)
        savepoint = self.journal.position()
        work = _Work()
        try:
            self._perform(operation, turn, work)
            rows = self._rows_of(work, turn)
        except Refused as refusal:
            self.journal.roll_back(savepoint)
            if can_park and refusal.code is ErrorCode.CONCURRENT_TRANSACTIONS:
                return False
            self._answer_when_durable(work, (reply, None, refusal))
            return True
        except Exception as defect:  # noqa: BLE001  our bug: this operation fails alone, the state is as before it
            self.journal.roll_back(savepoint)
            reply.fail(defect)
            if context is INTERNAL:
                self.on_defect(defect)
            return True
        if work.records:
            self._accept(work, rows, turn, reply)
        else:
            self._answer_when_durable(work, (reply, work.reply, None), work.effects)
        return True

    def _perform(self, operation: Operation, turn: Turn, work: _Work) -> None:
        shard = self.shard(operation.shard)
        work.shards.add(operation.shard)
        decision = operation.decide(shard, turn)
        for record in decision.records:
            self._shards[record.shard].replay(record.value)
            work.shards.add(record.shard)
            work.records.append(record)
        work.effects.extend(decision.effects)
        work.events.extend(decision.events)
        if decision.reply is not None:
            work.reply = decision.reply
        for join in decision.joins:
            self._perform(join, turn, work)

    def _rows_of(self, work: _Work, turn: Turn) -> StagedRows:
        """What the operation stores. Apart from the open group, so that a record that cannot be encoded spoils only its
        own operation."""
        rows = StagedRows()
        for record in work.records:
            self._rows[record.shard.coordinator].stage(record, turn, rows)
        return rows

    def _accept(self, work: _Work, rows: StagedRows, turn: Turn, reply: Pending[Any]) -> None:
        group = self._open
        group.events.extend((event, turn) for event in work.events)
        group.rows.merge(rows)
        for record in work.records:
            self._last_version[record.shard] = group.version
            group.shards.add(record.shard)
        self._undurable_bytes += rows.size_bytes
        group.answers.append((reply, work.reply, None))
        now_ms = self.clock.monotonic_ms()
        group.effects.extend((effect, now_ms) for effect in work.effects)
        group.position = self.journal.position()
        if group.rows.size_bytes > self.limits.group_bytes_max:
            self.seal()
        else:
            self.on_work()

    def _answer_when_durable(self, work: _Work, answer: _Answer, effects: Iterable[Effect] = ()) -> None:
        """Answer, and start the effects, once everything that the shards hold is durable; at once if it is."""
        now_ms = self.clock.monotonic_ms()
        timed_effects = [(effect, now_ms) for effect in effects]
        basis = max((self._last_version.get(key, 0) for key in work.shards), default=0)
        if basis <= self._durable_version:
            _give(answer)
            self._start_effects(timed_effects)
            return
        is_open = basis == self._open.version
        group = self._open if is_open else self._sealed[basis - self._sealed[0].version]
        group.answers.append(answer)
        group.effects.extend(timed_effects)

    # Committing

    def seal(self) -> None:
        """Close the open group, if anything was staged, and hand it over to be written."""
        group = self._open
        if not group.shards:
            return
        self._sealed.append(group)
        self._open = _OpenGroup(group.version + 1)
        mutations = group.rows.mutations()
        group.size_bytes, group.row_count = group.rows.size_bytes, len(mutations)
        group.sealed_us = self.clock.monotonic_us()
        self._hand_over(CommitGroup(group.version, mutations, group.rows.deleted_ranges(), group.size_bytes))

    def on_durable(self, version: int) -> None:
        """Everything up to this version is on disk: show it, answer, and start the effects."""
        while self._sealed and self._sealed[0].version <= version:
            group = self._sealed.popleft()
            self._durable_version = group.version
            self._undurable_bytes -= group.size_bytes
            self.journal.make_durable(group.position)
            for answer in group.answers:
                _give(answer)
            self._start_effects(group.effects)
            for event, turn in group.events:
                self.on_event(event, turn)
            elapsed_us = self.clock.monotonic_us() - group.sealed_us
            self.on_group(GroupDurable(group.row_count, group.size_bytes, elapsed_us))
            for listener in self._durable_listeners:
                listener(group.shards)
        self.on_work()

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

    def _start_effects(self, effects: list[tuple[Effect, int]]) -> None:
        for effect, decided_ms in effects:
            if isinstance(effect, ArmTimer):
                self._timers.arm(effect.key, decided_ms + effect.delay_ms, partial(self._expire, effect))
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
        self, key: Hashable, operation: Operation, context: CallContext, reply: Pending[Any], *, is_first: bool
    ) -> None:
        refusal = _in_the_way()
        timer_key = ("parked", id(reply))
        began_us = self.clock.monotonic_us()

        def leave(result: WaitResult) -> None:
            self._timers.cancel(timer_key)
            reply.on_cancel(_nothing)
            self.on_wait_ended(WaitEnded(context.method, result, self.clock.monotonic_us() - began_us))

        def attempt() -> bool:
            if self._attempt(operation, context, reply, can_park=True):
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
        self._parking.park(key, call, is_first=is_first)
        reply.on_cancel(partial(give_up, WaitResult.LEFT))
        latest_ms = self.clock.monotonic_ms() + self.limits.parked_ms_max
        deadline_ms = latest_ms if context.deadline_ms is None else min(context.deadline_ms, latest_ms)
        self._timers.arm(timer_key, deadline_ms, partial(give_up, WaitResult.EXPIRED))
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
        it fails, its reason still stands and it comes again."""

        def expire_again(_error: Exception) -> None:
            if self._failure is None and not self._timers.is_armed(timer.key):
                self.arm(timer.key, EXPIRE_AGAIN_MS, partial(self._expire, timer))

        self.write(timer.operation, is_urgent=True).recover(expire_again)


def _in_the_way() -> Refused:
    return Refused(
        ErrorCode.CONCURRENT_TRANSACTIONS, "the previous transaction of this id is still being completed; try again"
    )


def _nothing() -> None:
    """What a cancelled caller can still change once its operation is staged."""


def _give(answer: _Answer) -> None:
    reply, value, error = answer
    if error is None:
        reply.succeed(value)
    else:
        reply.fail(error)
