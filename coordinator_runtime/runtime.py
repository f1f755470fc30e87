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
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
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


_Answer = tuple[Pending[Any], Any, Exception | None]
"""A caller, and the value or the refusal that it gets once it may be known."""


class _Work:
    """What one operation and its joins have gathered so far."""

    __slots__ = ("effects", "records", "reply", "shards")

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.effects: list[Effect] = []
        self.shards: set[ShardKey] = set()
        self.reply: Any = None


class _OpenGroup:
    """A group being built, and after `seal` the answers that wait for it."""

    __slots__ = ("answers", "effects", "position", "rows", "shards", "size_bytes", "version")

    def __init__(self, version: int) -> None:
        self.version = version
        self.rows = StagedRows()
        self.answers: list[_Answer] = []
        self.effects: list[tuple[Effect, int]] = []
        self.shards: set[ShardKey] = set()
        self.position = 0
        self.size_bytes = 0


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
    ) -> Pending[Any]:
        """Perform an operation. The reply comes when everything that it rests on is durable.

        With a park key, CONCURRENT_TRANSACTIONS makes the call wait until the key is unparked, behind the calls that
        wait there already, at most until the caller's deadline. `is_urgent` work is accepted beyond the limit of
        undurable bytes, because it is what frees room (EndTxn, markers).

        Errors: Refused (nothing was written), UnknownOutcome (the store failed underneath)."""
        reply: Pending[Any] = Pending()
        if self._failure is not None:
            return failed(Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the server is stopping; try again shortly"))
        if self._undurable_bytes > self.limits.undurable_bytes_max and not is_urgent:
            return failed(
                Refused(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "too much is waiting for the disk; try again shortly")
            )
        can_park = (
            park_key is not None and not context.immediate_51 and len(self._parking) < self.limits.parked_calls_max
        )
        is_behind_others = can_park and self._parking.is_waiting(park_key)
        if is_behind_others or not self._attempt(operation, context, reply, can_park=can_park):
            self._park(park_key, operation, context, reply)
        return reply

    def _attempt(self, operation: Operation, context: CallContext, reply: Pending[Any], *, can_park: bool) -> bool:
        """Perform the operation once; False when it met a transaction in its way and may wait."""
        turn = Turn(now_ms=self.clock.wall_ms(), client_id=context.client_id, host=context.host)
        savepoint = self.journal.position()
        work = _Work()
        try:
            self._perform(operation, turn, work)
        except Refused as refusal:
            self.journal.roll_back(savepoint)
            if can_park and refusal.code is ErrorCode.CONCURRENT_TRANSACTIONS:
                return False
            self._answer_when_durable(work.shards, (reply, None, refusal))
            return True
        except Exception as defect:  # noqa: BLE001  our bug: this operation fails alone, the state is as before it
            self.journal.roll_back(savepoint)
            reply.fail(defect)
            return True
        self._accept(work, turn, reply)
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
        if decision.reply is not None:
            work.reply = decision.reply
        for join in decision.joins:
            self._perform(join, turn, work)

    def _accept(self, work: _Work, turn: Turn, reply: Pending[Any]) -> None:
        if not work.records:
            self._answer_when_durable(work.shards, (reply, work.reply, None))
            self._start_effects([(effect, self.clock.monotonic_ms()) for effect in work.effects])
            return
        group = self._open
        before = group.rows.size_bytes
        for record in work.records:
            self._rows[record.shard.coordinator].stage(record, turn, group.rows)
            self._last_version[record.shard] = group.version
            group.shards.add(record.shard)
        self._undurable_bytes += group.rows.size_bytes - before
        group.answers.append((reply, work.reply, None))
        now_ms = self.clock.monotonic_ms()
        group.effects.extend((effect, now_ms) for effect in work.effects)
        group.position = self.journal.position()
        if group.rows.size_bytes > self.limits.group_bytes_max:
            self.seal()
        else:
            self.on_work()

    def _answer_when_durable(self, shards: Iterable[ShardKey], answer: _Answer) -> None:
        """Answer once everything that the shards hold is durable; at once if it is."""
        basis = max((self._last_version.get(key, 0) for key in shards), default=0)
        if basis <= self._durable_version:
            _give(answer)
        elif basis == self._open.version:
            self._open.answers.append(answer)
        else:
            self._sealed[basis - self._sealed[0].version].answers.append(answer)

    # Committing

    def seal(self) -> None:
        """Close the open group, if anything was staged, and hand it over to be written."""
        group = self._open
        if not group.shards:
            return
        self._sealed.append(group)
        self._open = _OpenGroup(group.version + 1)
        group.size_bytes = group.rows.size_bytes
        self._hand_over(
            CommitGroup(group.version, group.rows.mutations(), group.rows.deleted_ranges(), group.size_bytes)
        )

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
            for listener in self._durable_listeners:
                listener(group.shards)
        self.on_work()

    @property
    def durable_version(self) -> int:
        return self._durable_version

    @property
    def is_idle(self) -> bool:
        """True when nothing is staged and nothing waits for the disk."""
        return not self._sealed and not self._open.shards

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
                operation = effect.operation
                self._timers.arm(effect.key, decided_ms + effect.delay_ms, lambda op=operation: self._expire(op))  # type: ignore[misc]
            elif isinstance(effect, CancelTimer):
                self._timers.cancel(effect.key)
            elif isinstance(effect, Unpark):
                self._parking.retry(effect.key)
            else:
                self._effect_handlers[type(effect)](effect)
        if effects:
            self.on_work()

    # Parking and timers

    def _park(self, key: Hashable, operation: Operation, context: CallContext, reply: Pending[Any]) -> None:
        refusal = Refused(
            ErrorCode.CONCURRENT_TRANSACTIONS, "the previous transaction of this id is still being completed; try again"
        )
        timer_key = ("parked", id(reply))

        def leave() -> None:
            self._timers.cancel(timer_key)

        def attempt() -> bool:
            if self._attempt(operation, context, reply, can_park=True):
                leave()
                return True
            return False

        def give_up() -> None:
            leave()
            self._parking.drop(key, call)
            reply.fail(refusal)

        call = ParkedCall(attempt, give_up)
        self._parking.park(key, call)
        reply.on_cancel(give_up)
        latest_ms = self.clock.monotonic_ms() + self.limits.parked_ms_max
        deadline_ms = latest_ms if context.deadline_ms is None else min(context.deadline_ms, latest_ms)
        self._timers.arm(timer_key, deadline_ms, give_up)
        self.on_work()

    @property
    def parked_calls(self) -> int:
        return len(self._parking)

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

    def _expire(self, operation: Operation) -> None:
        """A timeout takes the same path as a request. Its refusal means that somebody else was quicker."""
        self.write(operation, is_urgent=True)


def _give(answer: _Answer) -> None:
    reply, value, error = answer
    if error is None:
        reply.succeed(value)
    else:
        reply.fail(error)
