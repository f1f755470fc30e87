"""A transaction coordinator that only knows which partitions are in which open transaction."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.marker import Marker, Outcome
from coordinator_runtime.decision import Coordinator, Decision, Operation, Record, ShardKey, Turn
from coordinator_runtime.ports import Membership
from coordinator_runtime.rows import StagedRows
from coordinator_runtime.runtime import Runtime
from coordinator_runtime.store import Store
from coordinator_runtime.timeline import Journal, TimelineMap
from partition_log.shard import PartitionMarkers

KEY = ShardKey(Coordinator.TRANSACTIONS, 0)


@dataclass(frozen=True)
class Joined:
    membership: Membership
    ordinal: int


@dataclass(frozen=True)
class Left:
    membership: Membership


class MembershipShard:
    def __init__(self, journal: Journal) -> None:
        self.members: TimelineMap[Membership, frozenset[int]] = TimelineMap(journal)

    def replay(self, value: Joined | Left) -> None:
        if isinstance(value, Joined):
            known = self.members.get(value.membership) or frozenset()
            self.members.put(value.membership, known | {value.ordinal})
        else:
            self.members.remove(value.membership)

    def on_loaded(self, turn: Turn) -> Decision:
        return Decision()


class ForgetfulRows:
    """Stores nothing: after a crash no transaction is known."""

    def stage(self, record: Record, turn: Turn, staged: StagedRows) -> None:
        return

    def load(self, store: Store, shard: ShardKey) -> Iterator[Any]:
        return iter(())


class FakeTransactions:
    """Implements TransactionVerifier. `refusal` answers the next questions when it is set."""

    def __init__(self, runtime: Runtime, csn: int = 0) -> None:
        runtime.add_rows(Coordinator.TRANSACTIONS, ForgetfulRows())
        runtime.add_shard(KEY, MembershipShard(runtime.journal))
        self._runtime = runtime
        self.refusal: Refused | None = None
        self.questions: list[tuple[str, Membership, int]] = []
        self.additions: list[frozenset[int]] = []
        """The partitions of each operation that added any."""
        self.markers: PartitionMarkers | None = None
        self.csn = csn
        self.given: frozenset[int] = frozenset()
        """Producer ids that were given to transactional ids, besides those with an open transaction."""

    def verify(self, membership: Membership, ordinal: int) -> Operation:
        def decide(shard: MembershipShard, _turn: Turn) -> Decision:
            self._ask("verify", membership, ordinal)
            if ordinal not in (shard.members.get(membership) or ()):
                raise Refused(ErrorCode.INVALID_TXN_STATE, "the partition is not in the transaction")
            return Decision()

        return Operation(KEY, decide)

    def add(self, membership: Membership, ordinals: frozenset[int]) -> Operation:
        def decide(shard: MembershipShard, _turn: Turn) -> Decision:
            joining = sorted(ordinals - (shard.members.get(membership) or frozenset()))
            if joining:
                self.additions.append(ordinals)
            for ordinal in joining:
                self._ask("add", membership, ordinal)
            return Decision(records=tuple([Record(KEY, Joined(membership, ordinal)) for ordinal in joining]))

        return Operation(KEY, decide)

    def refuse_if_open(self, membership: Membership, ordinal: int, refusal: Refused) -> Operation:
        def decide(shard: MembershipShard, _turn: Turn) -> Decision:
            if ordinal in (shard.members.get(membership) or ()):
                raise refusal
            return Decision()

        return Operation(KEY, decide)

    def check_plain(self, producer_id: int) -> Operation:
        def decide(shard: MembershipShard, _turn: Turn) -> Decision:
            if producer_id in {*self.given, *(membership.producer_id for membership, _ in shard.members.items())}:
                raise Refused(ErrorCode.INVALID_TXN_STATE, "the producer id is one of a transactional id")
            return Decision()

        return Operation(KEY, decide)

    def check(self, ordinal: int, marker: Marker) -> Operation:
        """Implements MarkerGuard: `refusal` answers."""

        def decide(_shard: MembershipShard, _turn: Turn) -> Decision:
            if self.refusal is not None:
                raise self.refusal
            return Decision()

        return Operation(KEY, decide)

    def abort_touching(self, ordinals: Sequence[int]) -> Sequence[Operation]:
        return [Operation(KEY, lambda shard, _turn: self._abort(shard, frozenset(ordinals)))]

    def forget_topic(self, topic_id: bytes) -> Sequence[Operation]:
        """Implements TopicOffsets: no group has offsets here."""
        return []

    def forget_partitions(self, ordinals: Sequence[int]) -> Sequence[Operation]:
        """Implements TopicShares: no share group reads here."""
        return []

    def leave(self, membership: Membership) -> Operation:
        """End a transaction here alone: its markers are another matter."""
        return Operation(KEY, lambda _shard, _turn: Decision(records=(Record(KEY, Left(membership)),)))

    def has_open(self, membership: Membership, ordinal: int) -> bool:
        """True if a partition is in the open transaction of a producer, in live state."""
        shard: MembershipShard = self._runtime.shard(KEY)
        return ordinal in (shard.members.get(membership) or ())

    def next_csn(self) -> int:
        self.csn += 1
        return self.csn

    def _abort(self, shard: MembershipShard, ordinals: frozenset[int]) -> Decision:
        assert self.markers is not None
        records, joins = [], []
        for membership, members in shard.members.items():
            if members & ordinals:
                epoch = membership.producer_epoch
                marker = Marker(
                    producer_id=membership.producer_id,
                    txn_epoch=epoch,
                    next_epoch=epoch + 1,
                    coordinator_shard=0,
                    coordinator_epoch=1,
                    outcome=Outcome.ABORT,
                    csn=self.next_csn(),
                )
                records.append(Record(KEY, Left(membership)))
                joins += [self.markers.partition_marker(ordinal, marker) for ordinal in sorted(members)]
        return Decision(records=tuple(records), joins=tuple(joins))

    def _ask(self, question: str, membership: Membership, ordinal: int) -> None:
        self.questions.append((question, membership, ordinal))
        if self.refusal is not None:
            raise self.refusal
