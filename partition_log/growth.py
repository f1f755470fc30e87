"""A partition that gets whole transactions of several producers in one step, each a batch and its marker.

It ends as if each had come by itself: the rules are the same. What comes of it is one record, and one event.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from coordinator_protocol.batch import HEADER_BYTES_COUNTED, TAIL_BYTES, BatchHeader, OffsetlessBatch, pack_place
from coordinator_protocol.marker import Marker, Outcome, encode_tail
from partition_log import rules
from partition_log.catalog.state import PlacedPartition
from partition_log.partition_state import Partition
from partition_log.records import PartitionGrew, RowsAppended
from partition_log.rules import AppendVerdict, MarkerVerdict
from partition_log.state import PartitionConfig, PartitionHead, ProducerEntry

# Module-level aliases: enum attribute lookup is slow on CPython 3.11.
_APPEND: Final = AppendVerdict.APPEND
_APPEND_MARKER: Final = MarkerVerdict.APPEND


class Growth:
    """Gathers what a partition gets; the partition itself changes when the record is replayed."""

    __slots__ = (
        "_batch_bytes",
        "_config",
        "_end_offset",
        "_head",
        "_leader_epoch",
        "_newest_ms",
        "_partition",
        "_producers",
        "_record_count",
        "placed",
        "rows",
    )

    def __init__(
        self, placed: PlacedPartition, partition: Partition, head: PartitionHead, config: PartitionConfig
    ) -> None:
        self.placed = placed
        """Which partition it is."""
        self._partition = partition
        self._head = head
        self._config = config
        self._leader_epoch = head.leadership.epoch
        self._end_offset = head.log_end_offset
        self._newest_ms = head.index.max_timestamp_ms
        self.rows: list[tuple[int, bytes]] = []
        """Last offset and stored form of what was gathered."""
        self._producers: list[tuple[int, ProducerEntry]] = []
        self._batch_bytes = 0
        self._record_count = 0

    def takes(self, batch: BatchHeader, marker: Marker) -> bool:
        """Whether a batch that the transaction coordinator has admitted is appended, and the marker behind it, and
        nothing else happens; once for a producer. Raises Refused as `rules.judge_append` and `rules.judge_marker`."""
        entry, head = self._partition.producers.get(marker.producer_id), self._head
        return (
            (entry is None or entry.open_transaction is None)
            and rules.judge_append(entry, batch, is_admitted=True, log_start_offset=head.log_start_offset) is _APPEND
            and rules.judge_marker(entry, marker, forgotten=head.forgotten) is _APPEND_MARKER
        )

    def append_and_end(self, batch: BatchHeader, offsetless: OffsetlessBatch, marker: Marker, now_ms: int) -> int:
        """Append what `takes` has said yes to. Returns where the transaction begins."""
        rest_of_header, payload = offsetless
        offset, record_count = self._end_offset, batch.record_count
        place = pack_place(offset, HEADER_BYTES_COUNTED + len(payload), self._leader_epoch)
        marker_offset = offset + record_count
        row = b"".join((place, rest_of_header, payload, encode_tail(marker, offset, now_ms)))
        self.rows.append((marker_offset, row))
        self._producers.append((marker.producer_id, rules.entry_left_by(marker, offset, now_ms)))
        self._batch_bytes += len(row) - TAIL_BYTES
        self._record_count += record_count
        if self._newest_ms < batch.max_timestamp_ms:
            self._newest_ms = batch.max_timestamp_ms
        self._end_offset = marker_offset + 1
        return offset

    def record(self, now_ms: int) -> tuple[RowsAppended, PartitionGrew]:
        """The change, and the event that tells of it."""
        head, rows, ordinal = self._head, self.rows, self.placed.ref.ordinal
        before, end_offset, markers_bytes = head.totals, self._end_offset, TAIL_BYTES * len(rows)
        size_bytes = self._batch_bytes + markers_bytes
        totals = replace(
            before,
            size_bytes=before.size_bytes + size_bytes,
            record_count=before.record_count + self._record_count,
            marker_count=before.marker_count + len(rows),
        )
        index, stretches = rules.index_after(head, rows, totals, self._newest_ms, self._config, now_ms)
        extended = replace(
            head,
            log_end_offset=end_offset,
            # Where others have transactions open, committed readers go on waiting for the first of these.
            last_stable_offset=head.last_stable_offset if head.open_transactions else end_offset,
            index=index,
            totals=totals,
        )
        grew = PartitionGrew(
            ordinal, self._record_count, self._batch_bytes, Outcome.COMMIT, markers_bytes, marker_count=len(rows)
        )
        return RowsAppended(ordinal, rows, size_bytes, extended, self._producers, stretches=stretches), grew
