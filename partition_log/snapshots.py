"""Snapshots of several partitions at one moment: taking, holding and releasing them.

A snapshot reads the end of each partition, and the transactions that are not finished in all their partitions. It reads
all of it from durable state in one turn of the loop, between two commit groups. If compaction has changed a log by then
and that is not durable yet, the answer waits for it. `rules.exclusions` finds these
transactions and the offsets from which they are hidden. `coordinator_protocol/snapshots.py` explains the effect on
readers.

Source: spec log-and-runtime 2.4, Algorithm S; decision 40.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from msgspec import Struct

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.names import check_partitions
from coordinator_protocol.snapshots import PartitionView
from coordinator_runtime.decision import CATALOG_KEY, once_durable
from coordinator_runtime.pending import Pending, all_of, settled
from coordinator_runtime.ports import (
    Authorizer,
    CallContext,
    PartitionName,
    Permission,
    ResourceType,
    UnfinishedTransaction,
    UnfinishedTransactions,
    denial,
)
from coordinator_runtime.runtime import Runtime
from partition_log.catalog.state import PlacedPartition
from partition_log.leases import Lease, Leases
from partition_log.service import LogService
from partition_log.shard import LogShard
from partition_log.state import PartitionHead


class TakeSnapshot(Struct, frozen=True):
    """Partitions that a snapshot is to show, and the time for which their records are held; 0 if they are not held."""

    names: Sequence[PartitionName]
    lease_ms: int = 0


class RenewSnapshot(Struct, frozen=True):
    """A request to hold the records of a snapshot longer."""

    snapshot_id: bytes
    lease_ms: int


class ReleaseSnapshot(Struct, frozen=True):
    """A request to release a snapshot that is no longer read, or a part of one."""

    snapshot_id: bytes
    part: int = 0
    parts: int = 0
    """Number of parts; 0 if it is not read in parts."""


class LeasedSnapshot(Struct, frozen=True):
    """A view of several partitions at one moment."""

    snapshot_id: bytes
    """Id of its lease; empty if it has none."""
    views: Sequence[tuple[PartitionName, PartitionView, PartitionHead]]
    """Views by partition, in the order asked."""


class SnapshotService:
    """Takes snapshots, and holds their records."""

    def __init__(
        self,
        runtime: Runtime,
        log: LogService,
        unfinished: UnfinishedTransactions,
        leases: Leases,
        authorizer: Authorizer,
    ) -> None:
        self._runtime = runtime
        self._log = log
        self.unfinished = unfinished
        self.leases = leases
        self._authorizer = authorizer

    def take(self, command: TakeSnapshot, context: CallContext) -> Pending[LeasedSnapshot]:
        """Take a snapshot of all of these partitions at this moment. Each transaction is in all of them or in none.
        The caller needs READ and SNAPSHOT on each topic.

        Refused as a whole, by an exception or by the Pending:

        - TOPIC_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_OR_PARTITION and its kin
        - INVALID_REQUEST: no partition, an invalid name, a partition that is named twice, or a lease that is too long
        - THROTTLING_QUOTA_EXCEEDED: too many leases
        - COORDINATOR_LOAD_IN_PROGRESS, KAFKA_STORAGE_ERROR: not all of the transaction coordinator serves
        - COORDINATOR_LOAD_IN_PROGRESS also for a forgotten producer (`rules.exclusions`)

        While a step of compaction is being written, the answer waits. The rows that go with it must be gone before the
        first read."""
        check_partitions(command.names)
        if not command.names:
            raise Refused(ErrorCode.INVALID_REQUEST, "a snapshot is of at least one partition: name them")
        found: list[tuple[PlacedPartition, PartitionHead]] = []
        for name in command.names:
            readable = self._log.find_readable(Permission.READ, context, name)
            if not isinstance(readable, Refused):
                topic = readable[0].ref.topic
                if not self._authorizer.is_allowed(context, Permission.SNAPSHOT, ResourceType.TOPIC, topic):
                    readable = denial(self._authorizer, context, Permission.SNAPSHOT, ResourceType.TOPIC, topic)
            if isinstance(readable, Refused):
                # The refusal may rest on the current catalog, which a crash would take back.
                return self._runtime.write(once_durable(CATALOG_KEY, readable), is_urgent=True)
            found.append(readable)
        self.leases.check_limits(command.lease_ms, context.principal)
        views = self._views(found, is_held=bool(command.lease_ms))
        snapshot_id = b""
        if command.lease_ms:
            starts = [view.start_offset for _, view, _ in views]
            offsets = {placed.ref.ordinal: start for (placed, _), start in zip(found, starts, strict=True)}
            lease = Lease(tuple(name for name, _, _ in views), offsets, context.principal)
            snapshot_id = self.leases.take(lease, command.lease_ms)
        return self._once_compacted(found, LeasedSnapshot(snapshot_id, views))

    def _once_compacted(
        self, found: Sequence[tuple[PlacedPartition, PartitionHead]], snapshot: LeasedSnapshot
    ) -> Pending[LeasedSnapshot]:
        """Return the reply once all changes by compaction that it shows are durable."""
        unwritten = [
            placed.shard
            for placed, head in found
            if self._shard(placed).compaction_to_be(placed.ref.ordinal) is not head.compaction
        ]
        written = [self._runtime.write(once_durable(key), is_urgent=True) for key in unwritten]
        return all_of(written).map(lambda _written: snapshot) if written else settled(snapshot)

    def _shard(self, placed: PlacedPartition) -> LogShard:
        shard: LogShard = self._runtime.shard(placed.shard)
        return shard

    def _views(
        self, found: Sequence[tuple[PlacedPartition, PartitionHead]], *, is_held: bool
    ) -> list[tuple[PartitionName, PartitionView, PartitionHead]]:
        anywhere: list[UnfinishedTransaction] = []
        by_ordinal: defaultdict[int, list[UnfinishedTransaction]] = defaultdict(list)
        for each in self.unfinished.unfinished():
            if each.partitions is None:
                anywhere.append(each)
            for ordinal in each.partitions or ():
                by_ordinal[ordinal].append(each)
        views = []
        for placed, head in found:
            ordinal = placed.ref.ordinal
            shard = self._shard(placed)
            excluded = shard.durable_exclusions(ordinal, [*anywhere, *by_ordinal.get(ordinal, ())])
            start_offset = shard.log_start_to_be(ordinal)
            if is_held:
                start_offset = self.leases.first_offset(ordinal, start_offset)
            compaction = shard.compaction_to_be(ordinal).progress
            view = PartitionView(start_offset, head.log_end_offset, head.leadership.epoch, excluded, compaction)
            views.append((placed.name, view, head))
        return views

    def renew(self, command: RenewSnapshot, context: CallContext) -> None:
        """Hold the records of a snapshot for `lease_ms` from now on. Raises Refused SNAPSHOT_NOT_FOUND,
        TOPIC_AUTHORIZATION_FAILED, INVALID_REQUEST."""
        self._check(command.snapshot_id, context)
        self.leases.renew(command.snapshot_id, command.lease_ms)

    def release(self, command: ReleaseSnapshot, context: CallContext) -> None:
        """Release the records of a snapshot, once all of its parts are done. Raises Refused SNAPSHOT_NOT_FOUND,
        TOPIC_AUTHORIZATION_FAILED, INVALID_REQUEST."""
        self._check(command.snapshot_id, context)
        if command.part or command.parts:
            self.leases.release_part(command.snapshot_id, command.part, command.parts)
        else:
            self.leases.release(command.snapshot_id)

    def _check(self, snapshot_id: bytes, context: CallContext) -> None:
        for topic in {name.topic for name in self.leases.find(snapshot_id).names}:
            asked = (context, Permission.SNAPSHOT, ResourceType.TOPIC, topic)
            if not self._authorizer.is_allowed(*asked):
                self._authorizer.on_refused(*asked)
                # No topic is named, because the caller may have no other way to learn it.
                raise Refused(
                    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                    "this needs the permission snapshot on each topic of the snapshot",
                )
