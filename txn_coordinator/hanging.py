"""Hanging transactions: open in a partition, without an owner that will end them.

They cannot come about, because a partition is added to a transaction in the same operation as its first record. So each
one found is the trace of a defect or of damage, and it blocks the partition's last stable offset.

The auditor compares the open transactions of all partitions with the state of all transactional ids, on live state. It
looks at many of them in several turns of the loop. If one seems to hang, it compares all of them again in one step. No
change is possible in between, so its findings are true. `ProducerOwners` finds the owner of a producer id.

Source: spec log-and-runtime 3; spec transactions 2.8 (admin abort of a hanging transaction).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from typing import Final

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.limits import EPOCH_MAX
from coordinator_protocol.marker import Marker, Outcome
from coordinator_runtime.decision import Coordinator, Decision, Operation, Record, ShardKey, Turn
from coordinator_runtime.participants import MarkerPort, PendingShares, ShareKey
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import CallContext, OpenInPartition, OpenTransactions, OutcomeNumber
from coordinator_runtime.runtime import Runtime
from coordinator_runtime.stepping import AnswerSteps, in_steps
from txn_coordinator.counters import COUNTERS, CountersShard
from txn_coordinator.records import HangingTransactionAborted, UnownedMarkerWritten
from txn_coordinator.rules import administering
from txn_coordinator.shard import TransactionShard
from txn_coordinator.state import DECIDED, IDLE, Transaction

AUDIT_PAUSE_MS: Final = 10_000
JUDGED_PER_STEP: Final = 200
"""Number of open transactions that one turn of the loop compares: under a millisecond."""


class ProducerOwners:
    """Transactional ids by producer id, over all shards. Implements `coordinator_runtime.ports.MarkerGuard`.

    A producer id is reported as unowned only while all shards serve. Otherwise the question is refused, retriably.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def owner_of(self, producer_id: int) -> Transaction | None:
        """Return the id whose transactions have this producer id in live state."""
        found = self._find(producer_id)
        return None if found is None else found[1]

    def owners_of(self, producer_ids: Iterable[int]) -> dict[int, Transaction]:
        """Return the owners of many producer ids at once; those without an owner are missing."""
        wanted = set(producer_ids)
        found: dict[int, Transaction] = {}
        shards = self._all_shards() if wanted else []
        for shard in shards:
            found.update(shard.table.owners_among(wanted))
        return found

    def durable_owner_in(self, number: int, producer_id: int) -> Transaction | None:
        """Return the same as `durable_owner_of` if the shard of this number has the id, else None."""
        shard: TransactionShard | None = self._runtime.table.find(ShardKey(Coordinator.TRANSACTIONS, number))
        return None if shard is None else shard.table.durable_owner_of(producer_id)

    def durable_owner_of(self, producer_id: int) -> Transaction | None:
        """Return the id whose transactions have this producer id in durable state. It is found as long as its own shard
        serves."""
        shards: list[TransactionShard] = self._runtime.shards(Coordinator.TRANSACTIONS)
        for shard in shards:
            owner = shard.table.durable_owner_of(producer_id)
            if owner is not None:
                return owner
        # Refuses unless every shard was asked.
        self._all_shards()
        return None

    def check(self, ordinal: int, marker: Marker) -> Operation:
        """Return the operation that refuses a marker from outside if it contradicts the state here."""

        def decide(counters: CountersShard, _turn: Turn) -> Decision:
            self._check_shard(marker.coordinator_shard)
            counters.check_given(marker.producer_id, marker.csn)
            found = self._find(marker.producer_id)
            if found is None:
                counters.check_incarnation(marker.producer_id)
                number = OutcomeNumber(marker.coordinator_shard, marker.csn)
                written = UnownedMarkerWritten(number, ordinal, marker.producer_id)
                return Decision(records=(Record(COUNTERS, written, cause="foreign"),))
            key, owner = found
            return Decision(joins=(Operation(key, lambda shard, _later: _check(shard, owner, ordinal, marker)),))

        return Operation(COUNTERS, decide)

    def _check_shard(self, coordinator_shard: int) -> None:
        """Raise Refused INVALID_REQUEST for a number that no coordinator shard has."""
        count = len(self._all_shards())
        if not 0 <= coordinator_shard < count:
            raise Refused(
                ErrorCode.INVALID_REQUEST,
                f"there is no coordinator shard {coordinator_shard}, only 0 to {count - 1}: send the marker as it was "
                "decided",
            )

    def _find(self, producer_id: int) -> tuple[ShardKey, Transaction] | None:
        for shard in self._all_shards():
            owner = shard.table.owner_of(producer_id)
            if owner is not None:
                return shard.key, owner
        return None

    def _all_shards(self) -> list[TransactionShard]:
        """Return all shards. Raises Refused unless all serve: only then is a producer id certain to have no owner."""
        return self._runtime.table.all_serving(Coordinator.TRANSACTIONS)


def _check(shard: TransactionShard, owner: Transaction, ordinal: int, marker: Marker) -> Decision:
    administering.check_foreign_marker(
        owner,
        ordinal,
        marker,
        coordinator_shard=shard.key.number,
        coordinator_epoch=shard.coordinator_epoch,
    )
    return Decision()


class HangingReason(StrEnum):
    """Reason for which no owner will end a transaction."""

    UNKNOWN_PRODUCER = "unknown_producer"
    """No transactional id has the producer id."""
    NOT_OPEN = "not_open"
    """The owner of the producer id has no open transaction."""
    OTHER_EPOCH = "other_epoch"
    """The open transaction of the owner has another epoch."""
    NOT_A_MEMBER = "not_a_member"
    """The partition, or the share partition, is not in the open transaction of the owner."""


@dataclass(frozen=True, slots=True)
class Hanging:
    """Transaction that no owner will end."""

    opened: OpenInPartition
    reason: HangingReason
    owner: Transaction | None
    """Id that has the producer id, if any."""


def judge(opened: OpenInPartition, owner: Transaction | None) -> Hanging | None:
    """Return the finding on an open transaction; None if its owner will end it."""
    if owner is None:
        return Hanging(opened, HangingReason.UNKNOWN_PRODUCER, None)
    if owner.state in IDLE:
        return Hanging(opened, HangingReason.NOT_OPEN, owner)
    written_epoch = owner.txn_epoch if owner.state in DECIDED else owner.producer_epoch
    if opened.producer_epoch != written_epoch:
        return Hanging(opened, HangingReason.OTHER_EPOCH, owner)
    if not _is_participant(opened, owner):
        return Hanging(opened, HangingReason.NOT_A_MEMBER, owner)
    return None


def _is_participant(opened: OpenInPartition, owner: Transaction) -> bool:
    if opened.group_id:
        return ShareKey(opened.group_id, opened.ordinal) in owner.shares
    return opened.ordinal in owner.partitions


def marker_for(hanging: Hanging, number: OutcomeNumber) -> Marker:
    """Return the marker that ends a hanging transaction. It fences late batches of its epoch, unless the producer id
    has an owner that still uses this epoch."""
    opened, owner = hanging.opened, hanging.owner
    is_epoch_over = owner is None or owner.producer_epoch > opened.producer_epoch
    return Marker(
        producer_id=opened.producer_id,
        txn_epoch=opened.producer_epoch,
        next_epoch=min(opened.producer_epoch + is_epoch_over, EPOCH_MAX),
        coordinator_shard=number.coordinator_shard,
        coordinator_epoch=max(opened.coordinator_epoch, 0),
        outcome=Outcome.ABORT,
        csn=number.csn,
    )


class HangingTransactions:
    """Auditor of hanging transactions: at start, every ten seconds and on request. An administrator can have them
    ended."""

    def __init__(
        self,
        runtime: Runtime,
        owners: ProducerOwners,
        open_transactions: OpenTransactions,
        pending_shares: PendingShares,
        markers: MarkerPort,
        shard_key: Callable[[str], ShardKey],
    ) -> None:
        self._runtime = runtime
        self._shard_key = shard_key
        self._owners = owners
        self._open_transactions = open_transactions
        self._pending_shares = pending_shares
        self._markers = markers
        self._known: frozenset[OpenInPartition] = frozenset()
        self.on_found: Callable[[Hanging], None] = lambda _hanging: None
        """Called once for each new one that an audit finds."""

    @property
    def count(self) -> int:
        """Number of hanging transactions that the last audit found."""
        return len(self._known)

    def audit(self) -> None:
        """Audit now, and again after every pause."""
        self._runtime.arm("audit", AUDIT_PAUSE_MS, self.audit)
        self.find().on_settled(self._audited)

    def _audited(self, audit: Pending[list[Hanging]]) -> None:
        try:
            found = audit.result()
        except Refused:
            # A shard does not serve, so the owners of the open transactions are unknown. The next audit may succeed.
            return
        for hanging in found:
            if hanging.opened not in self._known:
                self.on_found(hanging)
        self._known = frozenset(hanging.opened for hanging in found)

    def find(self) -> Pending[list[Hanging]]:
        """Return all hanging transactions. Refuses while a shard of transactional ids does not serve."""
        return in_steps(self._runtime, self._finding())

    def _finding(self) -> AnswerSteps[list[Hanging]]:
        opened = self._opened()
        while some := list(islice(opened, JUDGED_PER_STEP)):
            if self._judged(some):
                # Those of several steps may not have been open at the same time.
                return self._judged(list(self._opened()))
            if len(some) == JUDGED_PER_STEP:
                yield None
        return []

    def _opened(self) -> Iterator[OpenInPartition]:
        yield from self._open_transactions.all_open()
        yield from self._pending_shares.all_pending()

    def abort(
        self,
        ordinal: int,
        producer_id: int | None,
        context: CallContext,
        *,
        dry_run: bool,
        producer_epoch: int | None = None,
    ) -> Pending[list[Hanging]]:
        """End the hanging transactions of a partition, or those of one producer in it, in all or one of its epochs.

        Returns them, or with `dry_run` those that it would end. Raises Refused INVALID_TXN_STATE if there are none.
        """

        def decide(opened: Sequence[OpenInPartition]) -> Decision:
            wanted = [
                each
                for each in (*opened, *(each for each in self._pending_shares.all_pending() if each.ordinal == ordinal))
                if producer_id in (None, each.producer_id) and producer_epoch in (None, each.producer_epoch)
            ]
            found = self._judged(wanted)
            if not found:
                raise self._nothing_hangs(wanted)
            ends = () if dry_run else tuple(self._end(hanging) for hanging in found)
            return Decision(reply=found, joins=ends)

        return self._runtime.write(self._open_transactions.ask_open(ordinal, decide), context)

    def _judged(self, opened: Sequence[OpenInPartition]) -> list[Hanging]:
        owners = self._owners.owners_of(each.producer_id for each in opened)
        judged = (judge(each, owners.get(each.producer_id)) for each in opened)
        return [hanging for hanging in judged if hanging is not None]

    def _end(self, hanging: Hanging) -> Operation:
        def decide(counters: CountersShard, _turn: Turn) -> Decision:
            csn, given = counters.next_csn()
            opened, number = hanging.opened, OutcomeNumber(self._shard_of(hanging), csn)
            marker = self._marker_of(opened, marker_for(hanging, number))
            event = HangingTransactionAborted(opened.ordinal, opened.producer_id, opened.producer_epoch)
            written = UnownedMarkerWritten(number, opened.ordinal, opened.producer_id)
            records = (given, Record(COUNTERS, written, cause="admin"))
            return Decision(records=records, joins=(marker,), events=(event,))

        return Operation(COUNTERS, decide)

    def _marker_of(self, opened: OpenInPartition, marker: Marker) -> Operation:
        if opened.group_id:
            return self._markers.share_marker(ShareKey(opened.group_id, opened.ordinal), marker)
        return self._markers.partition_marker(opened.ordinal, marker)

    def _shard_of(self, hanging: Hanging) -> int:
        """Return the coordinator shard of the abort's number: the one that the partition has for the producer.

        The partition refuses any other, because csns of two shards have no order. If it has none, it is that of the
        owner; without an owner, that of the empty transactional id.
        """
        owner, known = hanging.owner, hanging.opened.coordinator_shard
        if known >= 0:
            return known
        return self._shard_key("" if owner is None else owner.transactional_id).number

    def _nothing_hangs(self, wanted: Sequence[OpenInPartition]) -> Refused:
        if not wanted:
            return Refused(ErrorCode.INVALID_TXN_STATE, "no such transaction is open in the partition")
        ids = sorted(
            owner.transactional_id for each in wanted if (owner := self._owners.owner_of(each.producer_id)) is not None
        )
        return Refused(
            ErrorCode.INVALID_TXN_STATE,
            f"what is open there belongs to {', '.join(f'{each!a:.100}' for each in ids[:3])} and will be ended by its "
            "coordinator; to abort it now, use AbortTransactions with the transactional id",
        )
