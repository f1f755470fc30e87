"""One transaction shard with one id in a given state, to ask it one question."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from coordinator_protocol.errors import Refused
from coordinator_protocol.limits import Limits
from coordinator_protocol.marker import Marker, Outcome
from coordinator_runtime.decision import Coordinator, Decision, Operation, ShardKey, Turn
from coordinator_runtime.participants import ShareKey
from coordinator_runtime.timeline import Journal
from txn_coordinator.config import TwoPhase
from txn_coordinator.counters import COUNTERS, CountersShard
from txn_coordinator.records import ProducerIdBlockTaken, TransactionChanged, TransactionStepped
from txn_coordinator.shard import TransactionShard
from txn_coordinator.state import DECIDED, NO_EPOCH, NO_PRODUCER_ID, Identity, Transaction, TransactionState

KEY = ShardKey(Coordinator.TRANSACTIONS, 0)
ID = "orders"
OTHER_PRODUCER_ID = 99
PREV_PRODUCER_ID = 6
PRODUCER_ID = 7
FRESH_PRODUCER_ID = 1_000
"""The next one that the counters give away."""
NOW_MS = 50_000
TURN = Turn(now_ms=NOW_MS)
LIMITS = Limits(producer_epoch_max=20)
EXHAUSTED = LIMITS.producer_epoch_max - 1


class NoMarkers:
    """A marker port whose participants agree to everything."""

    def partition_marker(self, ordinal: int, marker: Marker) -> Operation:
        return Operation(COUNTERS, lambda _shard, _turn: Decision())

    def partition_seal(self, ordinal: int, producer_id: int, producer_epoch: int) -> Operation:
        return Operation(COUNTERS, lambda _shard, _turn: Decision())

    def group_marker(self, group: str, marker: Marker) -> Operation:
        return Operation(COUNTERS, lambda _shard, _turn: Decision())

    def share_marker(self, share: ShareKey, marker: Marker) -> Operation:
        return Operation(COUNTERS, lambda _shard, _turn: Decision())


def transaction(state: TransactionState, *, epoch: int = 5, last: int = 4) -> Transaction:
    """Producer 7 in a state that can come about; `last` is the epoch before its last bump."""
    is_open = state not in (
        TransactionState.EMPTY,
        TransactionState.COMPLETE_COMMIT,
        TransactionState.COMPLETE_ABORT,
    )
    is_prepared = state in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)
    return Transaction(
        transactional_id=ID,
        producer_id=PRODUCER_ID,
        producer_epoch=epoch,
        last_producer_epoch=last,
        txn_timeout_ms=10_000,
        state=state,
        partitions=frozenset({1, 2}) if is_open else frozenset(),
        start_ms=-1 if state is TransactionState.EMPTY else NOW_MS - 1_000,
        last_update_ms=NOW_MS - 500,
        txn_epoch=max(epoch - 1, 0) if is_prepared else NO_EPOCH,
        csn=0 if state is TransactionState.EMPTY else 3,
    )


def rotated(state: TransactionState) -> Transaction:
    """The same right after its producer id was exhausted: epoch 0 of a new one."""
    return replace(transaction(state, epoch=0, last=EXHAUSTED), prev_producer_id=PREV_PRODUCER_ID)


def shard_with(
    *transactions: Transaction, two_phase: TwoPhase = TwoPhase.SPLIT, limits: Limits = LIMITS
) -> TransactionShard:
    journal = Journal()
    counters = CountersShard(journal)
    counters.replay(ProducerIdBlockTaken(FRESH_PRODUCER_ID))
    shard = TransactionShard(KEY, journal, counters=counters, markers=NoMarkers(), limits=limits, two_phase=two_phase)
    for each in transactions:
        shard.replay(TransactionChanged(each))
    return shard


def ask(question: Callable[[], Decision]) -> Decision | int:
    """The decision, or the number of the error code."""
    try:
        return question()
    except Refused as refusal:
        return int(refusal.code)


def changed(decision: Decision) -> Transaction | None:
    """Return the id's transaction after the decision. A fused one writes two snapshots: decided, and completed."""
    values = [record.value for record in decision.records]
    snapshots = [value.transaction for value in values if isinstance(value, TransactionChanged)]
    assert len(snapshots) <= 1 or snapshots[0].state in DECIDED
    assert len(snapshots) <= 2
    return snapshots[-1] if snapshots else None


def told_identity(decision: Decision) -> Identity:
    """The identity that the reply to an InitProducerId tells."""
    identity = getattr(decision.reply, "identity", decision.reply)
    assert isinstance(identity, Identity)
    return identity


def shown(relation: str, current: Transaction) -> Identity:
    """The identity that a request shows, by its relation to the stored one."""
    epochs = {
        "current": current.producer_epoch,
        "previous": current.producer_epoch - 1,
        "old": current.producer_epoch - 3,
        "higher": current.producer_epoch + 1,
    }
    if relation == "other id":
        return Identity(OTHER_PRODUCER_ID, max(current.producer_epoch, 0))
    if relation == "rotated":
        assert current.prev_producer_id != NO_PRODUCER_ID
        return Identity(current.prev_producer_id, EXHAUSTED)
    return Identity(current.producer_id, epochs[relation])


def opposite(outcome: Outcome) -> Outcome:
    return Outcome.ABORT if outcome is Outcome.COMMIT else Outcome.COMMIT


def steps_in(decision: Decision) -> list[TransactionStepped]:
    """The steps that a decision tells of."""
    return [event for event in decision.events if isinstance(event, TransactionStepped)]
