"""A partition that gets batches of several producers in one step, one of each: all of them with their markers, or none.

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
_ADMIT: Final = AppendVerdict.ADMIT
_APPEND_MARKER: Final = MarkerVerdict.APPEND


class Growth:
    """Gathers what a partition gets; the partition itself changes when the record is replayed."""

    __slots__ = (
        "_batch_bytes",
        "_config",
        "_end_offset",
        "_head",
        "_leader_epoch",
        "_marker_count",
        "_newest_ms",
        "_opened_count",
        "_partition",
        "_producers",
        "_record_count",
        "log_start_offset",
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
        self.log_start_offset = head.log_start_offset
        self._config = config
        self._leader_epoch = head.leadership.epoch
        self._end_offset = head.log_end_offset
        self._newest_ms = head.index.max_timestamp_ms
        self.rows: list[tuple[int, bytes]] = []
        """Last offset and stored form of what was gathered."""
        self._producers: list[tuple[int, ProducerEntry]] = []
        self._batch_bytes = 0
        self._record_count = 0
        self._marker_count = 0
        self._opened_count = 0

    def takes(self, batch: BatchHeader, marker: Marker) -> bool:
        """Whether a batch that the transaction coordinator has admitted is appended, and the marker behind it, and
        nothing else happens; once for a producer. Raises Refused as `rules.judge_append` and `rules.judge_marker`."""
        entry, head = self._partition.producers.get(marker.producer_id), self._head
        return (
            (entry is None or entry.open_transaction is None)
            and rules.judge_append(entry, batch, is_admitted=True, log_start_offset=head.log_start_offset) is _APPEND
            and rules.judge_marker(entry, marker, forgotten=head.forgotten) is _APPEND_MARKER
        )

    def admits(self, batch: BatchHeader) -> bool | None:
        """Whether a batch of an open transaction is appended at once, and once for a producer; False: the transaction
        coordinator must admit it first. None: something else happens. Raises Refused as `rules.judge_append`."""
        entry, log_start_offset = self._partition.producers.get(batch.producer_id), self.log_start_offset
        verdict = rules.judge_append(entry, batch, is_admitted=False, log_start_offset=log_start_offset)
        if verdict is not _ADMIT:
            return True if verdict is _APPEND else None
        verdict = rules.judge_append(entry, batch, is_admitted=True, log_start_offset=log_start_offset)
        return False if verdict is _APPEND else None

    def append(self, batch: BatchHeader, offsetless: OffsetlessBatch, coordinator_shard: int, now_ms: int) -> int:
        """Append what `admits` has not said None to, the transaction still open behind it. Returns its offset."""
        entry, offset = self._partition.producers.get(batch.producer_id), self._end_offset
        self._opened_count += entry is None or entry.open_transaction is None
        after = rules.entry_after_append(
            entry,
            batch,
            base_offset=offset,
            now_ms=now_ms,
            forgotten=self._head.forgotten,
            coordinator_shard=coordinator_shard,
        )
        rest_of_header, payload = offsetless
        row = pack_place(offset, HEADER_BYTES_COUNTED + len(payload), self._leader_epoch) + rest_of_header + payload
        self._grow(offset + batch.record_count - 1, row, batch, after)
        self._batch_bytes += len(row)
        return offset

    def append_and_end(self, batch: BatchHeader, offsetless: OffsetlessBatch, marker: Marker, now_ms: int) -> int:
        """Append what `takes` has said yes to. Returns where the transaction begins."""
        rest_of_header, payload = offsetless
        offset = self._end_offset
        place = pack_place(offset, HEADER_BYTES_COUNTED + len(payload), self._leader_epoch)
        marker_offset = offset + batch.record_count
        row = b"".join((place, rest_of_header, payload, encode_tail(marker, offset, now_ms)))
        self._grow(marker_offset, row, batch, rules.entry_left_by(marker, offset, now_ms))
        self._batch_bytes += len(row) - TAIL_BYTES
        self._marker_count += 1
        return offset

    def _grow(self, last_offset: int, row: bytes, batch: BatchHeader, after: ProducerEntry) -> None:
        self.rows.append((last_offset, row))
        self._producers.append((batch.producer_id, after))
        self._record_count += batch.record_count
        if self._newest_ms < batch.max_timestamp_ms:
            self._newest_ms = batch.max_timestamp_ms
        self._end_offset = last_offset + 1

    def record(self, now_ms: int) -> tuple[RowsAppended, PartitionGrew]:
        """The change, and the event that tells of it."""
        head, rows, ordinal = self._head, self.rows, self.placed.ref.ordinal
        before, end_offset, marker_count = head.totals, self._end_offset, self._marker_count
        markers_bytes, open_transactions = TAIL_BYTES * marker_count, head.open_transactions + self._opened_count
        size_bytes = self._batch_bytes + markers_bytes
        totals = replace(
            before,
            size_bytes=before.size_bytes + size_bytes,
            record_count=before.record_count + self._record_count,
            marker_count=before.marker_count + marker_count,
        )
        index, stretches = rules.index_after(head, rows, totals, self._newest_ms, self._config, now_ms)
        extended = replace(
            head,
            log_end_offset=end_offset,
            # Committed readers wait for the first open transaction: where there was none, it begins where they are.
            last_stable_offset=head.last_stable_offset if open_transactions else end_offset,
            open_transactions=open_transactions,
            index=index,
            totals=totals,
        )
        outcome = Outcome.COMMIT if marker_count else None
        grew = PartitionGrew(ordinal, self._record_count, self._batch_bytes, outcome, markers_bytes, marker_count)
        return RowsAppended(ordinal, rows, size_bytes, extended, self._producers, stretches=stretches), grew
