"""The smallest shard there is: numbers by name. Operations on it are built from steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_runtime.decision import Coordinator, Decision, Effect, Operation, Record, ShardEpoch, ShardKey, Turn
from coordinator_runtime.loader import ShardKind
from coordinator_runtime.rows import EncodedRecord, StateRows
from coordinator_runtime.runtime import Runtime, RuntimeLimits
from coordinator_runtime.timeline import Journal, TimelineMap
from tests.harness.hand_driver import HandDriver
from tests.harness.manual_clock import ManualClock
from tests.harness.memory_store import MemoryStore

FIRST = ShardKey(Coordinator.CATALOG, 0)
SECOND = ShardKey(Coordinator.CATALOG, 1)


@dataclass(frozen=True, slots=True)
class Put:
    name: str
    number: int


@dataclass(frozen=True, slots=True)
class Removed:
    name: str


@dataclass(frozen=True, slots=True)
class Unencodable:
    """A record whose bytes cannot be made: a bug of ours that shows late."""

    name: str = "unencodable"


class LedgerShard:
    def __init__(self, journal: Journal) -> None:
        self.numbers: TimelineMap[str, int] = TimelineMap(journal)
        self.coordinator_epoch = 0

    def replay(self, value: Put | Removed | Unencodable | ShardEpoch) -> None:
        match value:
            case ShardEpoch(coordinator_epoch=coordinator_epoch):
                self.coordinator_epoch = coordinator_epoch
            case Put(name=name, number=number):
                self.numbers.put(name, number)
            case Removed(name=name):
                self.numbers.remove(name)
            case Unencodable(name=name):
                self.numbers.put(name, 0)

    def on_loaded(self, turn: Turn) -> Decision:
        return Decision()

    def live(self) -> dict[str, int]:
        return dict(self.numbers.items())

    def durable(self) -> dict[str, int]:
        return dict(self.numbers.durable_items())


class LedgerCodec:
    def encode(self, value: Put | Removed | Unencodable) -> EncodedRecord:
        match value:
            case Put(name=name, number=number):
                return EncodedRecord(1, name.encode(), str(number).encode())
            case Removed(name=name):
                return EncodedRecord(1, name.encode(), None)
            case Unencodable():
                raise ValueError("this record has no bytes")

    def decode(self, record_type: int, key: bytes, value: bytes) -> Put | None:
        return Put(key.decode(), int(value)) if record_type == 1 else None


def ledger_kind(runtime: Runtime) -> ShardKind:
    return ShardKind(
        coordinator=Coordinator.CATALOG,
        shard_count=2,
        rows=StateRows(LedgerCodec()),
        make=lambda _key: LedgerShard(runtime.journal),
    )


class Ledger:
    """Two ledger shards in a runtime that is driven by hand."""

    def __init__(
        self, store: MemoryStore | None = None, limits: RuntimeLimits | None = None, *, has_epoch: bool = False
    ) -> None:
        self.store = store if store is not None else MemoryStore()
        self.clock = ManualClock()
        self.driver = HandDriver(self.store, self.clock, limits)
        self.runtime = self.driver.runtime
        self.driver.load(replace(ledger_kind(self.runtime), has_epoch=has_epoch))
        if has_epoch:
            self.driver.flush()
        self.first: LedgerShard = self.runtime.shard(FIRST)
        self.second: LedgerShard = self.runtime.shard(SECOND)

    def tick(self, elapsed_ms: int) -> None:
        self.clock.advance(elapsed_ms)
        self.runtime.run_due_timers()


def put(
    name: str,
    number: int,
    *,
    shard: ShardKey = FIRST,
    joins: tuple[Operation, ...] = (),
    effects: tuple[Effect, ...] = (),
    reply: object | None = None,
) -> Operation:
    """Sets a number; replies with it by default."""
    decision = Decision(
        reply=number if reply is None else reply,
        records=(Record(shard, Put(name, number)),),
        joins=joins,
        effects=effects,
    )
    return Operation(shard, lambda _shard, _turn: decision)


def look(name: str, *, shard: ShardKey = FIRST, effects: tuple[Effect, ...] = ()) -> Operation:
    """Replies with the live number and writes nothing."""
    return Operation(shard, lambda ledger, _turn: Decision(reply=ledger.numbers.get(name), effects=effects))


def refuse(code: ErrorCode = ErrorCode.INVALID_REQUEST, *, shard: ShardKey = FIRST) -> Operation:
    def decide(_shard: LedgerShard, _turn: Turn) -> Decision:
        raise Refused(code, "refused by the test")

    return Operation(shard, decide)


def put_unless(name: str, number: int, *, busy: str, effects: tuple[Effect, ...] = ()) -> Operation:
    """Sets a number; meets CONCURRENT_TRANSACTIONS while the name `busy` is there."""

    def decide(ledger: LedgerShard, _turn: Turn) -> Decision:
        if busy in ledger.numbers:
            raise Refused(ErrorCode.CONCURRENT_TRANSACTIONS, "busy")
        return Decision(reply=number, records=(Record(FIRST, Put(name, number)),), effects=effects)

    return Operation(FIRST, decide)


def remove(name: str, effects: tuple[Effect, ...] = ()) -> Operation:
    decision = Decision(reply=True, records=(Record(FIRST, Removed(name)),), effects=effects)
    return Operation(FIRST, lambda _shard, _turn: decision)


def fail_with(defect: Callable[[], Exception]) -> Operation:
    def decide(_shard: LedgerShard, _turn: Turn) -> Decision:
        raise defect()

    return Operation(FIRST, decide)
