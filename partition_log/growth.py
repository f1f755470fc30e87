"""A partition that gets a whole transaction in one step: batches, and the marker right behind them.

It ends as if each had been appended by itself, without the states in between: the rules are the same. What comes of it
is one record, and one event.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from coordinator_protocol.batch import BASE_OFFSET_BYTES, BatchHeader, Encoding, encode_offsetless, pack_base_offset
from coordinator_protocol.marker import Marker, Outcome, encode_marker_payload
from coordinator_runtime.decision import Shared
from partition_log import rules
from partition_log.events import PartitionGrew
from partition_log.partition_state import Partition
from partition_log.records import TransactionEnded
from partition_log.requests import Append
from partition_log.rules import AppendVerdict, MarkerVerdict
from partition_log.state import (
    EndedTransaction,
    IndexProgress,
    MarkerCount,
    PartitionConfig,
    PartitionHead,
    ProducerEntry,
    TimeIndexEntry,
)

# By names of their own: to find a member in its class takes 0.1 us.
_ABORT: Final = Outcome.ABORT
_APPEND: Final = AppendVerdict.APPEND
_APPEND_MARKER: Final = MarkerVerdict.APPEND
_CONTROL: Final = Encoding.CONTROL


def grow(
    partition: Partition,
    head: PartitionHead,
    appends: Sequence[Append],
    marker: Marker,
    config: PartitionConfig,
    now_ms: int,
) -> Shared:
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


# A transaction ends alike in all of its partitions, one after the other.
@lru_cache(maxsize=64)
def end_of(marker: Marker, now_ms: int) -> tuple[int, int, Outcome, bool, int, bytes, int, ProducerEntry]:
    """What each of them asks of a marker that raises the epoch: producer id, epoch, outcome, whether that is an abort,
    csn; its control batch but for the base offset, and the size of all of it; what is left of the producer."""
    producer_id, txn_epoch, outcome = marker.producer_id, marker.txn_epoch, marker.outcome
    assert marker.next_epoch > txn_epoch, "nothing is left of an epoch that is over"
    control, producer = marked(marker, now_ms)
    marker_bytes = BASE_OFFSET_BYTES + len(control)
    return producer_id, txn_epoch, outcome, outcome is _ABORT, marker.csn, control, marker_bytes, producer


@lru_cache(maxsize=64)
def marked(marker: Marker, now_ms: int) -> tuple[bytes, ProducerEntry]:
    """The control batch of a marker but for its base offset, and what is left of a producer whose epoch it raises."""
    header = BatchHeader(
        0,
        1,
        now_ms,
        now_ms,
        _CONTROL,
        marker.producer_id,
        marker.txn_epoch,
        is_transactional=True,
        is_control=True,
    )
    control = b"".join(encode_offsetless(header, encode_marker_payload(marker)))
    return control, rules.entry_after_marker(None, marker, now_ms=now_ms)
