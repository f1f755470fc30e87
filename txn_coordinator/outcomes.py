"""The decision on an outcome, and its path from PREPARE to COMPLETE. No other module decides one (promise 3).

A decided outcome is carried out in one of two modes, with the same steps (design 5):
- fused: PREPARE, COMPLETE and a marker in every participant, all in this operation and this batch;
- split: PREPARE alone; once it is durable the marker sender writes the markers, and then COMPLETE.

A Transact includes its writes. It ends in the same way. In fused mode each partition that it writes to appends the
batches, followed by the marker.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from coordinator_protocol.hashing import coordinator_key
from coordinator_protocol.limits import Limits
from coordinator_protocol.marker import Marker, Outcome
from coordinator_runtime.decision import (
    ArmTimer,
    CancelTimer,
    Decision,
    Effect,
    NotCommon,
    Operation,
    Record,
    ShardKey,
    TransactionInTheWay,
    Turn,
    Unpark,
)
from coordinator_runtime.participants import MarkerPort, ShareKey
from coordinator_runtime.ports import GroupWrite, OutcomeNumber, PartitionWrite, ShareWrite
from txn_coordinator.config import TwoPhase
from txn_coordinator.counters import CountersShard
from txn_coordinator.records import TransactionChanged, TransactionForgotten, TransactionRanThrough, TransactionStepped
from txn_coordinator.rules import ending as ending_rules
from txn_coordinator.rules import transacting
from txn_coordinator.rules.ending import Ending
from txn_coordinator.state import PREPARE_STATES, Identity, Transaction

TIMEOUT: Final = "transaction_timeout"
"""First part of the key of a timeout's timer; the second is the transactional id."""


SINK_DUE: Final = "sink_due"
"""First part of the key of a sink's timer; the second is its name."""


class SendMarkers(Struct, frozen=True):
    """Effect: PREPARE is durable; every participant must get the marker, then the id its COMPLETE."""

    shard: ShardKey
    transactional_id: str
    marker: Marker
    partitions: frozenset[int]
    groups: frozenset[str]
    shares: frozenset[ShareKey] = frozenset()


class Ended(Struct, frozen=True, gc=False):
    """Reply to EndTxn: the outcome is durable."""

    next_identity: Identity
    csn: int


class Contribution(Struct, frozen=True):
    """Writes of a Transact, besides the outcome."""

    partitions: Sequence[PartitionWrite] = ()
    groups: Sequence[GroupWrite] = ()
    shares: Sequence[ShareWrite] = ()

    def operations(self, last: OutcomeNumber, marker: Marker | None) -> list[Operation]:
        """Return the operations that write it, to partitions first. If there is a marker, each also ends the
        transaction in its participant, except for shares. `last` is the number of the id's last outcome."""
        return [
            *[write.append(last.coordinator_shard, marker) for write in self.partitions],
            *[write.hold(last, marker) for write in self.groups],
            *[write.hold(last) for write in self.shares],
        ]


class Transacted(Struct, frozen=True):
    """Reply to Transact."""

    ended: Ended
    first_offsets: Sequence[int | None]
    """Offset of the transaction's first record in each partition that it wrote to, in that order. None in a repetition
    if the partition has forgotten it; only its store may know it."""


def transacted(ended: Ended, written: int, replies: Sequence[Any]) -> Transacted:
    """Build the reply to Transact. The first replies are those of the partitions that were written to."""
    return Transacted(ended, replies[:written])


_shard_of = attrgetter("shard")


class Outcomes:
    """Decisions on outcomes of the transactions of one shard."""

    def __init__(
        self, key: ShardKey, *, counters: CountersShard, markers: MarkerPort, limits: Limits, two_phase: TwoPhase
    ) -> None:
        self._key = key
        self._counters = counters
        self._markers = markers
        self._limits = limits
        self._fused_participants_max = limits.fused_participants_max if two_phase is TwoPhase.FUSED else -1
        """Limit of participants up to which a transaction ends in fused mode. -1 means that even one without
        participants ends in split mode."""
        self.coordinator_epoch = 0
        self.is_served: Callable[[ShardKey], bool] = lambda _key: True
        """True for a shard that serves here at this moment, so that an operation on it can be joined."""

    def decide(
        self,
        current: Transaction,
        ending: Ending,
        turn: Turn,
        *,
        brings: Contribution | None = None,
        reply: object | None = None,
        then: tuple[Operation, ...] = (),
    ) -> Decision:
        """Decide the outcome: PREPARE, and in fused mode also all markers and COMPLETE.

        One effect cancels the timer of the timeout. `brings` has the writes of a Transact, to participants of the
        transaction. The reply is `reply`, or Ended without one. In fused mode `then` is joined last, and its reply
        replaces that one. In split mode `then` is left out: the service that gets `reply` performs that step by
        another operation, which waits for COMPLETE (`TransactionService._init`, `TransactionAdministration`).

        All shards of a runtime share its commit groups, so those that serve here are one atomic domain. A participant
        that does not serve gets its marker when it is back (design 5).
        """
        given: list[Record] = []
        csn, csn_given = (ending.csn, None) if ending.csn else self._counters.next_csn()
        decided = ending_rules.decide(
            current,
            ending,
            csn=csn,
            now_ms=turn.now_ms,
            limits=self._limits,
            allocate=partial(self._counters.next_producer_id, given),
        )
        if csn_given is not None:
            given.append(csn_given)
        fused = decide_complete(decided, self._key, turn, before=current)
        # The reply has the client's next identity from COMPLETE, which is certain now. It is never the fencing epoch
        # (KAFKA-18660).
        reply = fused.reply if reply is None else reply
        last = OutcomeNumber(self._key.number, current.csn)
        joins = self._finishing(decided, last, brings)
        if joins is None:
            writes = () if brings is None else brings.operations(last, None)
            prepared = Record(self._key, TransactionChanged(decided), cause=decided.cause)
            effects = (CancelTimer((TIMEOUT, current.transactional_id)), self.send_markers(decided))
            step = TransactionStepped(current, decided)
            return Decision(reply, (*given, prepared), tuple(writes), effects=effects, events=(step,))
        return Decision(reply, (*given, *fused.records), (*joins, *then), effects=fused.effects, events=fused.events)

    def end_at_once(self, current: Transaction, ending: Ending, turn: Turn) -> tuple[Decision, Marker]:
        """Return the decision of `decide` in fused mode without its joins, and the marker.

        The outcome must have its number already. The caller writes the marker to the participants. Raises NotCommon if
        `decide` does anything else.
        """
        if current.member is not None or current.participant_count > self._fused_participants_max:
            raise NotCommon
        decided = ending_rules.decide(
            current, ending, csn=ending.csn, now_ms=turn.now_ms, limits=self._limits, allocate=_not_common
        )
        marker = ending_rules.marker_of(decided, self._key.number, self.coordinator_epoch)
        return decide_complete(decided, self._key, turn, before=current), marker

    def can_finish_at_once(self, transactions: Sequence[Transaction]) -> bool:
        """Return True if `decide` ends all of these together in fused mode."""
        if sum(each.participant_count for each in transactions) > self._fused_participants_max:
            return False
        decided = [replace(each, state=PREPARE_STATES[Outcome.COMMIT]) for each in transactions]
        last = OutcomeNumber(self._key.number, 0)
        return all(self._finishing(each, last) is not None for each in decided)

    def commit_in_one_step(
        self,
        current: Transaction,
        identity: tuple[int, int],
        request_id: bytes,
        participants: tuple[tuple[int, ...], tuple[str, ...]],
        *,
        csn: int,
        now_ms: int,
    ) -> tuple[TransactionRanThrough, Marker]:
        """Return a fused commit by Transact, of the common shape that `transacting.commit_in_one_step` takes.

        That is the change of the id, and the marker for its participants: partitions and groups. Raises NotCommon.
        """
        limits, count = self._limits, len(participants[0]) + len(participants[1])
        after = transacting.commit_in_one_step(current, identity, request_id, csn=csn, now_ms=now_ms, limits=limits)
        if after is None or count > self._fused_participants_max or count > limits.partitions_per_transaction_max:
            raise NotCommon
        marker = Marker(
            producer_id=after.producer_id,
            txn_epoch=after.last_producer_epoch,
            next_epoch=after.producer_epoch,
            coordinator_shard=self._key.number,
            coordinator_epoch=self.coordinator_epoch,
            outcome=Outcome.COMMIT,
            csn=csn,
        )
        return TransactionRanThrough(current, after, *participants), marker

    def _finishing(
        self, decided: Transaction, last: OutcomeNumber, brings: Contribution | None = None
    ) -> list[Operation] | None:
        """Return the operations that finish a transaction in the operation that decides it; None if it must be finished
        later.

        They are the writes that it brings, which also end it in their participants, and a marker for each other
        participant.
        """
        partitions, groups = decided.partitions, decided.groups
        if decided.participant_count > self._fused_participants_max:
            return None
        marker = ending_rules.marker_of(decided, self._key.number, self.coordinator_epoch)
        joins: list[Operation] = []
        if brings is not None:
            joins = brings.operations(last, marker)
            partitions = partitions.difference([write.ordinal for write in brings.partitions])
            groups = groups.difference([write.group_id for write in brings.groups])
        joins += map(partial(self._markers.partition_marker, marker=marker), sorted(partitions))
        joins += map(partial(self._markers.group_marker, marker=marker), sorted(groups))
        joins += map(partial(self._markers.share_marker, marker=marker), sorted(decided.shares))
        return joins if all(map(self.is_served, map(_shard_of, joins))) else None

    def send_markers(self, decided: Transaction) -> SendMarkers:
        """Return the effect that sends the markers of a decided transaction."""
        marker = ending_rules.marker_of(decided, self._key.number, self.coordinator_epoch)
        name, partitions, groups, shares = decided.transactional_id, decided.partitions, decided.groups, decided.shares
        return SendMarkers(self._key, name, marker, partitions, groups, shares)


def _not_common() -> int:
    raise NotCommon


def decide_complete(decided: Transaction, key: ShardKey, turn: Turn, *, before: Transaction | None = None) -> Decision:
    """Decide COMPLETE, for a transaction whose participants all have their marker, or get it in this operation.

    Calls that wait for it may go on. The id of a member, which existed for this one transaction, is forgotten.

    `before` is the transaction before PREPARE, if this operation decides it too (fused). Then the decision has both
    steps, an effect cancels the timer of the timeout, and the reply is Ended.
    """
    completed = ending_rules.complete(decided, now_ms=turn.now_ms)
    transactional_id, cause = completed.transactional_id, completed.cause
    changed = TransactionChanged(completed, None if before is None else decided)
    records: tuple[Record, ...] = (Record(key, changed, cause=cause),)
    effects: tuple[Effect, ...] = (Unpark(TransactionInTheWay(transactional_id)),)
    if completed.member is not None:
        records += (Record(key, TransactionForgotten(transactional_id), cause=cause),)
        effects += (look_after(key, coordinator_key(transactional_id)),)
    step = TransactionStepped(decided, completed)
    if before is None:
        return Decision(records=records, effects=effects, events=(step,))
    return Decision(
        Ended(completed.client_identity, completed.csn),
        records,
        effects=(CancelTimer((TIMEOUT, transactional_id)), *effects),
        events=(TransactionStepped(before, decided), step),
    )


def look_after(key: ShardKey, sink: str, delay_ms: int = 0) -> ArmTimer:
    """Return the timer that performs the due work of a sink and its members, at once or later."""
    operation = Operation(key, lambda shard, turn: shard.sinks.decide_due(sink, turn))
    return ArmTimer((SINK_DUE, sink), delay_ms, operation)


def complete_operation(key: ShardKey, transactional_id: str, csn: int) -> Operation:
    """Return the operation for COMPLETE of the outcome `csn`, once every marker is written."""
    return Operation(key, lambda shard, turn: shard.decide_complete(transactional_id, csn, turn))
