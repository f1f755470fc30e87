"""A partition that gets a whole transaction in one step: batches, and the marker right behind them.

It ends as if each had been appended by itself, without the states in between: the rules are the same. What comes of it
is one record, and one event.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from coordinator_protocol.batch import pack_base_offset
from coordinator_protocol.marker import Marker
from coordinator_runtime.decision import LeanDecision
from partition_log import rules
from partition_log.partition_state import Append, Partition
from partition_log.records import PartitionGrew, TransactionEnded
from partition_log.rules import AppendVerdict, MarkerVerdict, end_of
from partition_log.state import (
    EndedTransaction,
    IndexProgress,
    MarkerCount,
    PartitionConfig,
    PartitionHead,
    TimeIndexEntry,
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
    producer_id, txn_epoch, outcome, is_aborted, csn, control, marker_bytes, producer = end_of(marker, now_ms)
    forgotten_csn, index = head.forgotten.csn, head.index
    before = entry = partition.producers.get(producer_id)
    start_offset = offset = head.log_end_offset
    size_bytes, newest_ms = 0, index.max_timestamp_ms
    batches: list[tuple[int, bytes]] = []
    for append in appends:
        batch = append.header
        if rules.judge_append(entry, batch, is_admitted=True, log_start_offset=head.log_start_offset) is not _APPEND:
            continue
        if len(appends) > 1:
            # Only the next batch looks at it: the end leaves nothing of it.
            entry = rules.entry_after_append(
                entry, batch, base_offset=offset, now_ms=now_ms, forgotten_csn=forgotten_csn
            )
        rest_of_header, payload = append.offsetless
        encoded = pack_base_offset(offset) + rest_of_header + payload
        offset += batch.record_count
        size_bytes += len(encoded)
        batches.append((offset - 1, encoded))
        if newest_ms < batch.max_timestamp_ms:
            newest_ms = batch.max_timestamp_ms
    opened = None if before is None else before.open_transaction
    if opened is None and not batches:
        raise rules.outside_of_transaction()
    # Whatever was appended a moment ago, of the same epoch, changes nothing of how the marker is judged.
    verdict = rules.judge_marker(before, marker, forgotten_csn=forgotten_csn)
    assert verdict is _APPEND_MARKER, "the outcome of an open transaction was decided a moment ago"
    batches.append((offset, pack_base_offset(offset) + control))
    ordinal, end_offset, counted = appends[0].ordinal, offset + 1, head.counted
    counted = MarkerCount(counted.from_offset, counted.markers + 1)
    grown_bytes, unindexed_batches = size_bytes + marker_bytes, index.batch_count + len(batches)
    unindexed_bytes = index.size_bytes + grown_bytes
    indexed: Sequence[tuple[TimeIndexEntry, int]] = ()
    if unindexed_bytes < config.index_interval_bytes and unindexed_batches < config.index_interval_batches:
        index = IndexProgress(index.first_offset, unindexed_bytes, unindexed_batches, newest_ms)
    else:
        index, stretches = rules.index_after_all(index, batches, config)
        indexed = [(each, counted.markers - (each.last_offset < offset)) for each in stretches]
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
        head.aborted_transactions + is_aborted,
        head.forgotten,
        counted,
    )
    ended = EndedTransaction(producer_id, txn_epoch, first_offset, offset, outcome, csn)
    record = TransactionEnded(ordinal, batches, grown_bytes, extended, producer_id, producer, ended, indexed)
    return first_offset, record, PartitionGrew(ordinal, offset - start_offset, size_bytes, outcome, marker_bytes)
