"""A partition that gets a whole transaction in one step: batches, and the marker right behind them.

It ends as if each had been appended by itself, without the states in between: the rules are the same. What comes of it
is one record, and one event.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from coordinator_protocol.batch import HEADER_BYTES_COUNTED, BatchHeader, OffsetlessBatch, pack_place
from coordinator_protocol.marker import Marker, Outcome, marker_row
from coordinator_runtime.decision import LeanDecision
from partition_log import rules
from partition_log.partition_state import Append, Partition, aborted_by
from partition_log.records import PartitionGrew, TransactionEnded, TransactionsEnded
from partition_log.rules import AppendVerdict, MarkerVerdict
from partition_log.state import (
    LogTotals,
    PartitionConfig,
    PartitionHead,
    ProducerEntry,
)

# Module-level aliases: enum attribute lookup is slow on CPython 3.11.
_ABORT: Final = Outcome.ABORT
_APPEND: Final = AppendVerdict.APPEND
_APPEND_MARKER: Final = MarkerVerdict.APPEND


def grow(
    partition: Partition,
    head: PartitionHead,
    appends: Sequence[Append],
    marker: Marker,
    config: PartitionConfig,
    now_ms: int,
) -> LeanDecision:
    """Append batches that the transaction coordinator has admitted, but for those that are there already, and the
    marker of their transaction, which raises the epoch. The reply is where the transaction begins here.

    Raises Refused as `rules.judge_append` and `rules.judge_marker`, and DUPLICATE_SEQUENCE_NUMBER where all batches are
    in the log, and not in the transaction."""
    outcome, is_aborted = marker.outcome, marker.outcome is _ABORT
    totals, leader_epoch = head.totals, head.leadership.epoch
    before = entry = partition.producers.get(marker.producer_id)
    start_offset = offset = head.log_end_offset
    size_bytes, record_count, newest_ms = 0, 0, head.index.max_timestamp_ms
    rows: list[tuple[int, bytes]] = []
    for append in appends:
        batch = append.header
        if rules.judge_append(entry, batch, is_admitted=True, log_start_offset=head.log_start_offset) is not _APPEND:
            continue
        if len(appends) > 1:
            # Only the next batch looks at it: the end leaves nothing of it.
            entry = _entry_after(entry, batch, offset, head, marker, now_ms)
        rest_of_header, payload = append.offsetless
        encoded = pack_place(offset, HEADER_BYTES_COUNTED + len(payload), leader_epoch) + rest_of_header + payload
        offset += batch.record_count + batch.hole_count
        record_count += batch.record_count
        size_bytes += len(encoded)
        rows.append((offset - 1, encoded))
        if newest_ms < batch.max_timestamp_ms:
            newest_ms = batch.max_timestamp_ms
    opened = None if before is None else before.open_transaction
    if opened is None and not rows:
        raise rules.outside_of_transaction()
    # Whatever was appended a moment ago, of the same epoch, changes nothing of how the marker is judged.
    verdict = rules.judge_marker(before, marker, forgotten=head.forgotten)
    assert verdict is _APPEND_MARKER, "the outcome of an open transaction was decided a moment ago"
    first_offset = start_offset if opened is None else opened.first_offset
    last_row = rows.pop()[1] if rows else b""
    row = marker_row(
        marker, first_offset=first_offset, offset=offset, leader_epoch=leader_epoch, now_ms=now_ms, behind=last_row
    )
    rows.append((offset, row))
    marker_bytes = len(row) - len(last_row)
    ordinal, end_offset, grown_bytes = appends[0].ordinal, offset + 1, size_bytes + marker_bytes
    records, markers = totals.record_count + record_count, totals.marker_count + 1
    totals = LogTotals(totals.size_bytes + grown_bytes, records, markers, totals.abort_count + is_aborted)
    index, stretches = rules.index_after(head, rows, totals, newest_ms, config, now_ms)
    still_open, stable_offset = head.open_transactions - (opened is not None), end_offset
    if still_open:
        first_unstable = partition.first_unstable_without(opened)
        stable_offset = end_offset if first_unstable is None else first_unstable
    extended = PartitionHead(
        head.log_start_offset,
        end_offset,
        stable_offset,
        still_open,
        offset if is_aborted else head.last_abort_offset,
        index,
        head.forgotten,
        totals,
        head.compacted_to,
        head.leadership,
    )
    producer = rules.entry_left_by(marker, first_offset, now_ms)
    aborted = aborted_by(marker, first_offset, offset) if is_aborted else None
    record = TransactionEnded(ordinal, rows, grown_bytes, extended, marker.producer_id, producer, aborted, stretches)
    return first_offset, record, PartitionGrew(ordinal, record_count, size_bytes, outcome, marker_bytes)


def _entry_after(
    entry: ProducerEntry | None, batch: BatchHeader, offset: int, head: PartitionHead, marker: Marker, now_ms: int
) -> ProducerEntry:
    return rules.entry_after_append(
        entry,
        batch,
        base_offset=offset,
        now_ms=now_ms,
        forgotten=head.forgotten,
        coordinator_shard=marker.coordinator_shard,
    )


class Growth:
    """A partition that gets whole transactions of several producers in one step, each a batch and its marker. Gathers
    them; the partition itself changes when the record is replayed."""

    __slots__ = (
        "_batch_bytes",
        "_config",
        "_head",
        "_newest_ms",
        "_ordinal",
        "_partition",
        "_producers",
        "_record_count",
        "end_offset",
        "rows",
    )

    def __init__(self, ordinal: int, partition: Partition, head: PartitionHead, config: PartitionConfig) -> None:
        self._ordinal = ordinal
        self._partition = partition
        self._head = head
        self._config = config
        self.end_offset = head.log_end_offset
        """The offset of the next batch."""
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
        offset, leader_epoch = self.end_offset, self._head.leadership.epoch
        encoded = pack_place(offset, HEADER_BYTES_COUNTED + len(payload), leader_epoch) + rest_of_header + payload
        self._batch_bytes += len(encoded)
        self._record_count += batch.record_count
        marker_offset = offset + batch.record_count
        row = marker_row(
            marker,
            first_offset=offset,
            offset=marker_offset,
            leader_epoch=leader_epoch,
            now_ms=now_ms,
            behind=encoded,
        )
        self.rows.append((marker_offset, row))
        self._producers.append((marker.producer_id, rules.entry_left_by(marker, offset, now_ms)))
        if self._newest_ms < batch.max_timestamp_ms:
            self._newest_ms = batch.max_timestamp_ms
        self.end_offset = marker_offset + 1
        return offset

    def record(self, now_ms: int) -> tuple[TransactionsEnded, PartitionGrew]:
        """The change, and the event that tells of it."""
        head, end_offset, rows = self._head, self.end_offset, self.rows
        size_bytes, markers = sum([len(row) for _, row in rows]), len(rows)
        before = head.totals
        totals = replace(
            before,
            size_bytes=before.size_bytes + size_bytes,
            record_count=before.record_count + self._record_count,
            marker_count=before.marker_count + markers,
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
        ordinal, batch_bytes = self._ordinal, self._batch_bytes
        grew = PartitionGrew(
            ordinal, self._record_count, batch_bytes, Outcome.COMMIT, size_bytes - batch_bytes, markers
        )
        return TransactionsEnded(ordinal, rows, size_bytes, extended, self._producers, stretches), grew
