"""Metrics of partitions: appends and reads, counted as they happen, and the positions of each partition, read on
demand. On the loop thread only.

There may be many partitions. Beyond a configured number they are left out, and `txn_partitions_omitted` counts those.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Final

from coordinator_protocol.marker import Outcome
from coordinator_runtime.ports import PartitionRef
from coordinator_runtime.runtime import Runtime
from coordinator_server.metrics.instruments import MS, Labels, Readings, Sample, single
from partition_log.catalog.settings import CleanupPolicy
from partition_log.catalog.shard import CatalogShard
from partition_log.catalog.state import Topic
from partition_log.records import (
    DamageFound,
    PartitionGrew,
    ProducersExpired,
    RecordsDeleted,
    RecordsRead,
    RowsCompacted,
    RowsRemoved,
)
from partition_log.shard import LogShard
from partition_log.state import Isolation, OpenTransaction, PartitionHead

_ISOLATIONS: Final = {isolation: isolation.name.lower() for isolation in Isolation}
_OUTCOMES: Final = {Outcome.COMMIT: "commit", Outcome.ABORT: "abort"}


class _Appended:
    """Appended records, markers and bytes of one topic."""

    __slots__ = ("bytes", "marker_bytes", "markers", "records")

    def __init__(self) -> None:
        self.records = self.bytes = self.markers = self.marker_bytes = 0


class LogNumbers:
    """Records appended to topics and read from them since the process started. A deleted topic is forgotten, so that
    the numbers do not grow with every topic that ever existed."""

    def __init__(self) -> None:
        self.partition: Callable[[int], PartitionRef | None] = lambda _ordinal: None
        """Finds a partition by its ordinal; set once there is a catalog (`TopicCatalog.by_ordinal`)."""
        self._appended: dict[str, _Appended] = {}
        """Appended records by topic."""
        self._appended_to: dict[int, _Appended] = {}
        """The same values by ordinal of the partition, for quick access."""
        self._read: dict[tuple[str, Isolation], list[int]] = {}
        """Records read by topic and isolation: served, aborted, control."""
        self._markers = dict.fromkeys(Outcome, 0)
        self._expired_producers = 0
        self._deleted: dict[Labels, int] = {}
        """Offsets by topic and cause."""
        self._removed: dict[Labels, int] = {}
        """Bytes by topic."""
        self._compacted_bytes: dict[Labels, int] = {}
        """Bytes by topic that compaction removed."""
        self._compacted_records: dict[Labels, int] = {}
        self._damaged: dict[Labels, int] = {}
        """Places by topic and family."""

    def grew(self, event: PartitionGrew, _turn: object = None) -> None:
        """Count a batch, a marker, or both that are durable in a partition."""
        appended = self._appended_to.get(event.ordinal) or self._appended_first(event.ordinal)
        if appended is None:
            return
        appended.records += event.record_count
        appended.bytes += event.size_bytes
        outcome = event.outcome
        if outcome is not None:
            appended.markers += event.marker_count
            appended.marker_bytes += event.marker_bytes
            self._markers[outcome] += event.marker_count

    def _appended_first(self, ordinal: int) -> _Appended | None:
        ref = self.partition(ordinal)
        if ref is None:
            return None  # The topic was deleted a moment later, and is about to be forgotten.
        appended = self._appended_to[ordinal] = self._appended.setdefault(ref.topic, _Appended())
        return appended

    def expired(self, event: ProducersExpired) -> None:
        """Count producers that a partition forgot because they did not write."""
        self._expired_producers += event.count

    def deleted(self, event: RecordsDeleted) -> None:
        """Count offsets that the log start of a partition has passed."""
        ref = self.partition(event.ordinal)
        if ref is not None:
            labels = (ref.topic, event.cause.value)
            self._deleted[labels] = self._deleted.get(labels, 0) + event.offsets

    def removed(self, event: RowsRemoved) -> None:
        """Count the bytes of rows before a log start that are being removed from the store."""
        ref = self.partition(event.ordinal)
        if ref is not None:
            self._removed[ref.topic,] = self._removed.get((ref.topic,), 0) + event.size_bytes

    def compacted(self, event: RowsCompacted) -> None:
        """Count the bytes and records that a pass of compaction removed."""
        ref = self.partition(event.ordinal)
        if ref is not None:
            labels = (ref.topic,)
            self._compacted_bytes[labels] = self._compacted_bytes.get(labels, 0) + max(0, event.size_bytes)
            self._compacted_records[labels] = self._compacted_records.get(labels, 0) + event.record_count

    def read(self, event: RecordsRead) -> None:
        """Count the records of an answered fetch."""
        read = self._read.get((event.topic, event.isolation))
        if read is None:
            read = self._read[event.topic, event.isolation] = [0, 0, 0]
        read[0] += event.served
        read[1] += event.aborted_hidden
        read[2] += event.control_hidden

    def damaged(self, event: DamageFound) -> None:
        """Count a new place at which a reader met damage."""
        labels = (event.topic, event.family.name.lower())
        self._damaged[labels] = self._damaged.get(labels, 0) + 1

    def forget(self, topic: str) -> None:
        """Forget a deleted topic."""
        gone = self._appended.pop(topic, None)
        self._appended_to = {ordinal: each for ordinal, each in self._appended_to.items() if each is not gone}
        for isolation in Isolation:
            self._read.pop((topic, isolation), None)
        of_topics = (self._deleted, self._removed, self._damaged, self._compacted_bytes, self._compacted_records)
        for counted in of_topics:
            for labels in [labels for labels in counted if labels[0] == topic]:
                del counted[labels]

    def counters(self) -> dict[str, float]:
        """Return the numbers of all topics together."""
        appended = self._appended.values()
        return {
            "appended_records": sum(each.records for each in appended),
            "appended_bytes": sum(each.bytes for each in appended),
            "served_records": sum(served for served, _aborted, _control in self._read.values()),
        }

    def readings(self) -> Readings:
        """Return all counts."""
        records: dict[Labels, Sample] = {}
        size: dict[Labels, Sample] = {}
        for topic, appended in self._appended.items():
            if appended.records:
                records[topic, "data"], size[topic, "data"] = appended.records, appended.bytes
            if appended.markers:
                records[topic, "control"], size[topic, "control"] = appended.markers, appended.marker_bytes
        read: dict[Labels, Sample] = {}
        for (topic, isolation), numbers in self._read.items():
            for result, number in zip(("served", "aborted_skipped", "control_skipped"), numbers, strict=True):
                read[topic, _ISOLATIONS[isolation], result] = number
        return {
            "txn_partition_appended_records_total": records,
            "txn_partition_appended_bytes_total": size,
            "txn_partition_expired_producers_total": single(self._expired_producers),
            "txn_partition_deleted_offsets_total": dict(self._deleted),
            "txn_partition_removed_bytes_total": dict(self._removed),
            "txn_compaction_removed_bytes_total": dict(self._compacted_bytes),
            "txn_compaction_removed_records_total": dict(self._compacted_records),
            "txn_partition_damaged_places_total": dict(self._damaged),
            "txn_read_records_total": read,
            "txn_coordinator_markers_total": {
                (_OUTCOMES[outcome], "log"): number for outcome, number in self._markers.items()
            },
        }


@dataclass(frozen=True, slots=True)
class PartitionReading:
    """Durable state of one partition."""

    topic: str
    partition: int
    ordinal: int
    head: PartitionHead
    opened: tuple[OpenTransaction, ...]
    """Transactions that are open here, by first offset."""


@dataclass(frozen=True, slots=True)
class Survey:
    """Numbers of topics, and readings of the partitions that were included."""

    topics: Mapping[CleanupPolicy, int]
    """Number of topics by their cleanup policy."""
    standings: tuple[PartitionReading, ...]
    omitted: int

    def readings(self, now_ms: int) -> Readings:
        """Return the numbers of topics, and the positions of every partition."""
        values: dict[str, dict[Labels, Sample]] = {name: {} for name in _POSITIONS}
        for standing in self.standings:
            head = standing.head
            labels = (standing.topic, str(standing.partition))
            oldest_ms = min((opened.started_ms for opened in standing.opened), default=now_ms)
            positions = (
                head.log_end_offset,
                head.log_start_offset,
                head.last_stable_offset,
                head.log_end_offset - head.last_stable_offset,
                head.open_transactions,
                max(0, now_ms - oldest_ms) / MS,
                head.totals.abort_count,
            )
            for name, value in zip(_POSITIONS, positions, strict=True):
                values[name][labels] = value
        topics: dict[Labels, Sample] = {(policy.value,): self.topics.get(policy, 0) for policy in CleanupPolicy}
        return {**values, "txn_topics": topics, "txn_partitions_omitted": single(self.omitted)}


_POSITIONS: Final = (
    "txn_partition_high_watermark",
    "txn_partition_log_start_offset",
    "txn_partition_last_stable_offset",
    "txn_partition_lso_lag_records",
    "txn_partition_open_transactions",
    "txn_partition_oldest_open_age_seconds",
    "txn_partition_aborted_index_entries",
)


def survey(runtime: Runtime, catalog: CatalogShard, partitions_max: int) -> Survey:
    """Read the first partitions, in the order of topic names and numbers."""
    topics = catalog.durable_topics()
    standings = []
    for topic, partition, ordinal in islice(_partitions(topics), partitions_max):
        placed = catalog.placed(ordinal)
        if placed is None:
            continue  # Its deletion is under way.
        shard: LogShard | None = runtime.table.find(placed.shard)
        if shard is None:
            continue  # Its shard does not serve here.
        head = shard.durable_head(ordinal)
        assert head is not None, "a topic and its partitions are on disk together"
        opened = shard.durable_open_transactions(ordinal) if head.open_transactions else ()
        standings.append(PartitionReading(topic, partition, ordinal, head, tuple(opened)))
    total = sum(len(topic.partition_ordinals) for topic in topics)
    policies = Counter(topic.cleanup_policy for topic in topics)
    return Survey(policies, tuple(standings), max(0, total - partitions_max))


def _partitions(topics: Iterable[Topic]) -> Iterator[tuple[str, int, int]]:
    for topic in topics:
        for partition, ordinal in enumerate(topic.partition_ordinals):
            yield topic.name, partition, ordinal
