"""Snapshots on the wire: their RPCs, and the filter that ranges of a snapshot carry."""

from __future__ import annotations

from coordinator_api.v1 import log_pb2
from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.snapshots import CompactionProgress, SnapshotFilter
from coordinator_runtime.pending import Pending, settled
from coordinator_runtime.ports import CallContext, PartitionName
from partition_log.snapshots import LeasedSnapshot, ReleaseSnapshot, RenewSnapshot, SnapshotService, TakeSnapshot


class SnapshotServicer:
    """The methods of LogService that are about snapshots."""

    def __init__(self, snapshots: SnapshotService) -> None:
        self._snapshots = snapshots

    def TakeSnapshot(
        self, request: log_pb2.TakeSnapshotRequest, context: CallContext
    ) -> Pending[log_pb2.TakeSnapshotResponse]:
        names = [
            PartitionName(topic.topic, topic.topic_id, partition)
            for topic in request.topics
            for partition in topic.partitions
        ]
        return self._snapshots.take(TakeSnapshot(names, request.lease_ms), context).map(take_snapshot_response)

    def RenewSnapshot(
        self, request: log_pb2.RenewSnapshotRequest, context: CallContext
    ) -> Pending[log_pb2.RenewSnapshotResponse]:
        self._snapshots.renew(RenewSnapshot(request.snapshot_id, request.lease_ms), context)
        return settled(log_pb2.RenewSnapshotResponse())

    def ReleaseSnapshot(
        self, request: log_pb2.ReleaseSnapshotRequest, context: CallContext
    ) -> Pending[log_pb2.ReleaseSnapshotResponse]:
        self._snapshots.release(ReleaseSnapshot(request.snapshot_id, request.part, request.part_count), context)
        return settled(log_pb2.ReleaseSnapshotResponse())


def filter_of(message: log_pb2.SnapshotFilter) -> SnapshotFilter:
    """Decode the filter. Raises Refused INVALID_REQUEST if the lists differ in length, or a producer is named twice."""
    producer_ids, first_offsets = message.producer_ids, message.first_offsets
    if len(producer_ids) != len(first_offsets):
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            f"the snapshot filter has {len(producer_ids)} producer_ids and {len(first_offsets)} first_offsets: send it"
            " as TakeSnapshot answered it",
        )
    first_of = dict(zip(producer_ids, first_offsets, strict=True))
    if len(first_of) != len(producer_ids):
        raise Refused(ErrorCode.INVALID_REQUEST, "the snapshot filter names a producer id twice")
    compaction = None
    if message.HasField("compaction"):
        compaction = CompactionProgress(message.compaction.end_offset, message.compaction.position)
    if message.only:
        return SnapshotFilter(only=first_of, compaction=compaction)
    return SnapshotFilter(first_of, compaction=compaction)


def take_snapshot_response(snapshot: LeasedSnapshot) -> log_pb2.TakeSnapshotResponse:
    """Encode all partitions of a snapshot."""
    response = log_pb2.TakeSnapshotResponse(snapshot_id=snapshot.snapshot_id)
    for name, view, head in snapshot.views:
        partition = response.partitions.add(
            topic=name.topic,
            topic_id=name.topic_id,
            partition=name.partition,
            start_offset=view.start_offset,
            end_offset=view.end_offset,
            last_stable_offset=head.last_stable_offset,
            leader_epoch=view.leader_epoch,
        )
        # As lists, because protobuf then knows the length in advance. That halves the time of the longest part of this
        # turn.
        partition.shown.producer_ids.extend(list(view.excluded))
        partition.shown.first_offsets.extend(list(view.excluded.values()))
        if view.compaction is not None:
            partition.shown.compaction.CopyFrom(log_pb2.CompactionProgress(**view.compaction._asdict()))
    return response
