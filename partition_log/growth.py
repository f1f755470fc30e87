"""A partition that gets a whole transaction in one step: batches, and the marker right behind them.

It ends as if each had been appended by itself, without the states in between: the rules are the same. What comes of it
is one record, and one event.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from coordinator_protocol.batch import HEADER_BYTES_COUNTED, LENGTH_ENDS_AT, BatchHeader, pack_place
from coordinator_protocol.marker import Marker
from coordinator_runtime.decision import LeanDecision
from partition_log import rules
from partition_log.partition_state import Append, Partition, aborted_by
from partition_log.records import PartitionGrew, TransactionEnded
from partition_log.rules import AppendVerdict, MarkerVerdict, end_of
from partition_log.state import (
    LogTotals,
    PartitionConfig,
    PartitionHead,
    ProducerEntry,
)

# Module-level aliases: enum attribute lookup is slow on CPython 3.11.
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
    producer_id, outcome, is_aborted, control, marker_bytes = end_of(marker, now_ms)
    totals, leader_epoch = head.totals, head.leadership.epoch
    before = entry = partition.producers.get(producer_id)
    start_offset = offset = head.log_end_offset
    size_bytes, record_count, newest_ms = 0, 0, head.index.max_timestamp_ms
    batches: list[tuple[int, bytes]] = []
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
        batches.append((offset - 1, encoded))
        if newest_ms < batch.max_timestamp_ms:
            newest_ms = batch.max_timestamp_ms
    opened = None if before is None else before.open_transaction
    if opened is None and not batches:
        raise rules.outside_of_transaction()
    # Whatever was appended a moment ago, of the same epoch, changes nothing of how the marker is judged.
    verdict = rules.judge_marker(before, marker, forgotten=head.forgotten)
    assert verdict is _APPEND_MARKER, "the outcome of an open transaction was decided a moment ago"
    batches.append((offset, pack_place(offset, marker_bytes - LENGTH_ENDS_AT, leader_epoch) + control))
    ordinal, end_offset, grown_bytes = appends[0].ordinal, offset + 1, size_bytes + marker_bytes
    totals = LogTotals(
        totals.size_bytes + grown_bytes,
        totals.record_count + record_count,
        totals.marker_count + 1,
        totals.abort_count + is_aborted,
    )
    index, stretches = rules.index_after(head, batches, totals, newest_ms, config, now_ms)
    still_open, stable_offset, first_offset = head.open_transactions, end_offset, start_offset
    if still_open:
        first_unstable = partition.first_unstable_without(opened)
        stable_offset = end_offset if first_unstable is None else first_unstable
    if opened is not None:
        still_open, first_offset = still_open - 1, opened.first_offset
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
    record = TransactionEnded(ordinal, batches, grown_bytes, extended, producer_id, producer, aborted, stretches)
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
