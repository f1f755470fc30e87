"""Snapshots: taken once, read any number of times, compared with later ones."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from coordinator_api.v1 import common_pb2 as common
from coordinator_api.v1 import log_pb2 as log
from coordinator_client.asking import BlockingAsker, finished
from coordinator_client.calls import DESCRIBE_TOPICS, RELEASE_SNAPSHOT, RENEW_SNAPSHOT, TAKE_SNAPSHOT, Deadlines
from coordinator_client.errors import check_here, rejected
from coordinator_client.reading.batch_reader import PartitionRange
from coordinator_client.settings import duration_ms
from coordinator_client.transport.connection import Connection
from coordinator_protocol.errors import ErrorCode
from coordinator_protocol.methods import Method
from coordinator_protocol.names import check_topic_name
from coordinator_protocol.snapshots import CompactionProgress, PartitionView, Scan, scan_of, scans_between

LEASE_MS = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A view of topics at one moment: every transaction is in all of their partitions, or in none. A snapshot can be
    read repeatedly, also by other processes (it can be pickled). It shows the same records as long as all of them are
    stored. After that, reading is refused (OFFSET_OUT_OF_RANGE)."""

    snapshot_id: bytes
    """Id of the lease that holds the records; empty = no lease holds them."""
    topic_ids: Mapping[str, bytes]
    views: Mapping[tuple[str, int], PartitionView]
    """View of each partition, by topic and partition."""

    def ranges(
        self, topic: str, partitions: Collection[int] | None = None, *, since: Snapshot | None = None
    ) -> list[list[PartitionRange]]:
        """Return the ranges to read of a topic, as lists to be read one after the other. `since`: only the records that
        this earlier snapshot did not show.

        Raises: Rejected for a topic or partition that is not in the snapshot. OFFSET_OUT_OF_RANGE if `since` is the
        later one. UNKNOWN_TOPIC_ID if the topic was recreated between the two.
        """
        wanted = self._chosen(topic, partitions)
        if since is None:
            return [[self._range(topic, each, scan_of(self.views[topic, each])) for each in wanted]]
        before = since.topic_ids.get(topic)
        if before is not None and before != self.topic_ids[topic]:
            raise rejected(
                ErrorCode.UNKNOWN_TOPIC_ID,
                f"{topic} was deleted and created again between the two snapshots: read the later one as a whole",
            )
        finished, grown = list[PartitionRange](), list[PartitionRange]()
        for each in wanted:
            for scan in self._scans(topic, each, since.views.get((topic, each))):
                (grown if scan.shown.only is None else finished).append(self._range(topic, each, scan))
        return [finished, grown]

    def _scans(self, topic: str, partition: int, before: PartitionView | None) -> Iterator[Scan]:
        view = self.views[topic, partition]
        try:
            yield from (scan_of(view),) if before is None else scans_between(before, view)
        except ValueError as error:
            raise rejected(ErrorCode.OFFSET_OUT_OF_RANGE, f"{topic}-{partition}: {error}") from None

    def _range(self, topic: str, partition: int, scan: Scan) -> PartitionRange:
        return PartitionRange(
            topic=topic,
            topic_id=self.topic_ids[topic],
            partition=partition,
            start_offset=scan.start_offset,
            end_offset=scan.end_offset,
            end_epoch=scan.end_epoch,
            start_epoch=scan.start_epoch,
            shown=scan.shown,
        )

    def _chosen(self, topic: str, partitions: Collection[int] | None) -> list[int]:
        has = sorted(number for name, number in self.views if name == topic)
        missing = [topic] if not has else sorted(set(partitions or ()) - set(has))
        if missing:
            raise rejected(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"the snapshot has partitions {has} of {topic}, and not {missing}: take one of what you read",
            )
        return has if partitions is None else sorted(set(partitions))


async def snapshot_taken(asker: BlockingAsker, topics: Collection[str], *, lease_ms: int) -> Snapshot:
    """Take a snapshot of all partitions of some topics; see `Admin.take_snapshot`."""
    lease_ms = duration_ms("lease_ms", lease_ms)
    if not topics:
        raise rejected(ErrorCode.INVALID_REQUEST, "a snapshot is of at least one topic: name it")
    for name in topics:
        check_here(check_topic_name, name, Method.TAKE_SNAPSHOT)
    named = [log.TopicName(name=name) for name in dict.fromkeys(topics)]
    described = await asker.ask(
        DESCRIBE_TOPICS,
        log.DescribeTopicsRequest(header=asker.header(), topics=named),
        items=lambda reply: reply.topics,
    )
    places = [
        common.TopicPartitions(topic=topic.name, topic_id=topic.topic_id, partitions=range(len(topic.partitions)))
        for topic in described.topics
    ]
    return await _snapshot_of(asker, places, lease_ms=lease_ms)


async def _snapshot_of(asker: BlockingAsker, places: Collection[common.TopicPartitions], *, lease_ms: int) -> Snapshot:
    request = log.TakeSnapshotRequest(header=asker.header(), topics=places, lease_ms=lease_ms)
    reply = await asker.ask(TAKE_SNAPSHOT, request)
    views = {
        (each.topic, each.partition): PartitionView(
            each.start_offset,
            each.end_offset,
            each.leader_epoch,
            dict(zip(each.shown.producer_ids, each.shown.first_offsets, strict=True)),
            CompactionProgress(each.shown.compaction.end_offset, each.shown.compaction.position),
        )
        for each in reply.partitions
    }
    return Snapshot(
        snapshot_id=reply.snapshot_id,
        topic_ids={each.topic: each.topic_id for each in reply.partitions},
        views=views,
    )


async def lease_renewed(asker: BlockingAsker, snapshot_id: bytes, *, lease_ms: int) -> None:
    """Keep the records of the snapshot with this id for `lease_ms` from now on; see `Admin.renew_snapshot`."""
    lease_ms = duration_ms("lease_ms", lease_ms)
    request = log.RenewSnapshotRequest(header=asker.header(), snapshot_id=snapshot_id, lease_ms=lease_ms)
    await asker.ask(RENEW_SNAPSHOT, request)


async def lease_released(asker: BlockingAsker, snapshot_id: bytes, *, part: int = 0, parts: int = 0) -> None:
    """Release the records of the snapshot with this id: at once, or, with `parts`, once each part was named."""
    request = log.ReleaseSnapshotRequest(header=asker.header(), snapshot_id=snapshot_id, part=part, part_count=parts)
    await asker.ask(RELEASE_SNAPSHOT, request)


def take_snapshot_of(
    connection: Connection, places: Collection[common.TopicPartitions], *, lease_ms: int, deadlines: Deadlines
) -> Snapshot:
    """Take a snapshot of these partitions. Raises: as `Admin.take_snapshot`."""
    return finished(_snapshot_of, BlockingAsker(connection, deadlines), places, lease_ms=lease_ms)


def renew_lease(connection: Connection, snapshot_id: bytes, *, lease_ms: int, deadlines: Deadlines) -> None:
    """Keep the records of the snapshot with this id, as `Admin.renew_snapshot` does."""
    finished(lease_renewed, BlockingAsker(connection, deadlines), snapshot_id, lease_ms=lease_ms)


def release_lease(
    connection: Connection, snapshot_id: bytes, *, part: int = 0, parts: int = 0, deadlines: Deadlines
) -> None:
    """Release the records of the snapshot with this id: at once, or, with `parts`, once each part was named."""
    finished(lease_released, BlockingAsker(connection, deadlines), snapshot_id, part=part, parts=parts)
