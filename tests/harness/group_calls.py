"""Calls of clients about the offsets of groups, and what of those offsets is on disk. The callers are no members."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from coordinator_protocol.marker import Marker
from coordinator_runtime.decision import Coordinator, ShardKey, ShardRouter
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import CallContext, Committer, Membership, NamedOffset
from coordinator_runtime.runtime import Runtime
from group_coordinator.committed.decisions import GroupMarkers
from group_coordinator.committed.offsets import Offsets
from group_coordinator.committed.requests import (
    FetchedGroup,
    OffsetCommit,
    OffsetFetch,
    Results,
    TxnOffsetCommit,
)
from group_coordinator.committed.service import OffsetService
from group_coordinator.committed.state import CommittingProducer
from group_coordinator.shard import GroupShard
from group_coordinator.state import PartitionKey
from partition_log.catalog.shard import CatalogShard
from tests.harness.calls import called, partition_name
from txn_coordinator.requests import AddOffsets
from txn_coordinator.service import TransactionService
from txn_coordinator.state import Identity

ANYBODY = CallContext()


@dataclass(frozen=True, slots=True)
class GroupView:
    """The durable offsets of a group."""

    committed: dict[str, int]
    """The committed offsets, by `topic-partition`."""
    pending: list[tuple[CommittingProducer, str, int]]
    """Offsets that wait for a transaction: producer, `topic-partition` and offset."""


@dataclass(frozen=True, slots=True)
class GroupCalls:
    """The offsets of groups, from outside. Partitions are named `topic-number`."""

    runtime: Runtime
    router: ShardRouter
    offsets: OffsetService
    transactions: TransactionService
    catalog: CatalogShard

    def commit_in_transaction(
        self, membership: Membership, group: str, offset: int, partition: str, context: CallContext
    ) -> Pending[int]:
        """TxnOffsetCommit of one offset; in version 1 after AddOffsetsToTxn."""
        commit = TxnOffsetCommit(group, Committer(), _one(partition, offset), membership)

        def hold(_added: bool = True) -> Pending[int]:
            return self.offsets.commit_in_transaction(commit, context).map(partial(_accepted, offset))

        if context.client_txn_version >= 2:
            return called(hold)
        identity = Identity(membership.producer_id, membership.producer_epoch)
        command = AddOffsets(transactional_id=membership.transactional_id, identity=identity, group_id=group)
        return called(lambda: self.transactions.add_offsets(command, context)).then(hold)

    def commit(self, group: str, offset: int, partition: str = "t-0") -> Pending[int]:
        """OffsetCommit of one offset."""
        commit = OffsetCommit(group, Committer(), _one(partition, offset))
        return called(lambda: self.offsets.commit(commit, ANYBODY)).map(partial(_accepted, offset))

    def fetch(self, group: str, partition: str = "t-0", *, require_stable: bool = False) -> Pending[int]:
        """OffsetFetch of one partition; -1 = nothing is committed."""
        fetch = OffsetFetch(group, Committer(), (partition_name(partition),))
        return called(lambda: self.offsets.fetch([fetch], ANYBODY, require_stable=require_stable)).map(_only_offset)

    def send_marker(self, group: str, marker: Marker) -> Pending[object]:
        """Send a marker that no coordinator of this server sent."""
        return self.runtime.write(GroupMarkers(self.router).group_marker(group, marker), is_urgent=True)

    def committed(self, group: str, partition: str = "t-0") -> int:
        """Return the durable offset from which a group would go on; -1 = nothing is committed."""
        return self.view(group).committed.get(partition, -1)

    def view(self, group: str) -> GroupView:
        """All offsets of a group, from durable state. Raises Refused."""
        shard: GroupShard = self.runtime.shard(self.router.shard_key(group))
        offsets = shard.part(Offsets).of(group)
        return GroupView(
            {self._named(key): each.committed_offset for key, each in offsets.committed.durable_items()},
            [
                (producer, self._named(key), each.offset.committed_offset)
                for producer, key, each in offsets.durable_pending()
            ],
        )

    def durable_state(self, is_meant: Callable[[ShardKey], bool]) -> dict[str, object]:
        """Return everything that is on disk in some shards, by group."""
        shards: list[GroupShard] = self.runtime.shards(Coordinator.GROUPS)
        meant = [shard for shard in shards if is_meant(shard.key)]
        return {group: found for shard in meant for group, found in shard.part(Offsets).durable_state().items()}

    def _named(self, key: PartitionKey) -> str:
        topic_id, number = key
        shape = self.catalog.shape_of_id(topic_id)
        return f"{topic_id.hex() if shape is None else shape.topic}-{number}"


def _one(partition: str, offset: int) -> tuple[NamedOffset, ...]:
    return (NamedOffset(partition_name(partition), offset, None, ""),)


def _accepted(offset: int, results: Results) -> int:
    (refusal,) = results
    if refusal is not None:
        raise refusal
    return offset


def _only_offset(groups: list[FetchedGroup]) -> int:
    (found,) = groups
    if found.refusal is not None:
        raise found.refusal
    (fetched,) = found.offsets
    if fetched.refusal is not None:
        raise fetched.refusal
    return -1 if fetched.offset is None else fetched.offset.committed_offset
