"""A partition that gets a whole transaction in one step: batches, and the marker right behind them.

It ends as if each had been appended by itself, without the states in between: the rules are the same. What comes of it
is one record, and one event.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from msgspec import Struct

from coordinator_protocol.batch import NO_TIMESTAMP_MS, BatchHeader, Encoding, encode_batch, with_base_offset
from coordinator_protocol.marker import Marker, Outcome, encode_marker_payload
from partition_log import rules
from partition_log.events import PartitionGrew
from partition_log.records import TransactionAppended
from partition_log.requests import Append
from partition_log.rules import MarkerVerdict
from partition_log.state import (
    NO_OFFSET,
    CachedBatch,
    EndedTransaction,
    MarkerCount,
    PartitionConfig,
    PartitionHead,
    ProducerEntry,
)


class Target(Struct, frozen=True):
    """A partition as the transaction finds it."""

    ordinal: int
    head: PartitionHead
    before: ProducerEntry | None
    """Of the producer."""
    first_unstable: int | None
    """Where the oldest other transaction begins that is open; None = there is none."""


def grow(
    target: Target, appends: Sequence[Append], marker: Marker, config: PartitionConfig, now_ms: int
) -> tuple[TransactionAppended, PartitionGrew]:
    """Append batches that the transaction coordinator has admitted, but for those that are there already, and the
    marker of their transaction, which raises the epoch.

    Raises Refused as `rules.judge_append` and `rules.judge_marker`, and DUPLICATE_SEQUENCE_NUMBER where all batches are
    in the log, and not in the transaction."""
    head, before = target.head, target.before
    opened = None if before is None else before.open_transaction
    first_offset = NO_OFFSET if opened is None else opened.first_offset
    entry, offset, size_bytes = before, head.log_end_offset, 0
    batches: list[tuple[int, bytes]] = []
    timestamps: list[int] = []
    for append in appends:
        batch = append.header
        verdict = rules.judge_append(entry, batch, is_admitted=True, log_start_offset=head.log_start_offset)
        if isinstance(verdict, CachedBatch):
            continue
        if first_offset == NO_OFFSET:
            first_offset = offset
        if len(appends) > 1:
            # Only the next batch looks at it: the end leaves nothing of it.
            entry = rules.entry_after_append(
                entry, batch, base_offset=offset, now_ms=now_ms, forgotten_csn=head.forgotten.csn
            )
        encoded = with_base_offset(append.encoded, offset)
        offset += batch.record_count
        size_bytes += len(encoded)
        batches.append((offset - 1, encoded))
        timestamps.append(batch.max_timestamp_ms)
    if first_offset == NO_OFFSET:
        raise rules.outside_of_transaction()
    # Whatever was appended a moment ago, of the same epoch, changes nothing of how the marker is judged.
    verdict_on_end = rules.judge_marker(before, marker, forgotten_csn=head.forgotten.csn)
    assert verdict_on_end is MarkerVerdict.APPEND, "the outcome of an open transaction was decided a moment ago"
    assert marker.next_epoch > marker.txn_epoch, "nothing is left of an epoch that is over"
    control, producer = _end(marker, now_ms)
    marker_bytes = len(control)
    batches.append((offset, with_base_offset(control, offset)))
    # A marker is no record: to search by time must not end at one.
    timestamps.append(NO_TIMESTAMP_MS)
    index, stretches = rules.index_after_all(head.index, batches, timestamps, size_bytes + marker_bytes, config)
    outcome = marker.outcome
    is_aborted = outcome is Outcome.ABORT
    markers = head.counted.markers
    extended = PartitionHead(
        head.log_start_offset,
        offset + 1,
        offset + 1 if target.first_unstable is None else target.first_unstable,
        head.open_transactions if opened is None else head.open_transactions - 1,
        offset if is_aborted else head.last_abort_offset,
        index,
        head.aborted_transactions + is_aborted,
        head.forgotten,
        MarkerCount(head.counted.from_offset, markers + 1),
    )
    record = TransactionAppended(
        target.ordinal,
        tuple(batches),
        extended,
        marker.producer_id,
        producer,
        EndedTransaction(marker.producer_id, marker.txn_epoch, first_offset, offset, outcome, marker.csn),
        tuple([(each, markers + (each.last_offset == offset)) for each in stretches]) if stretches else (),
    )
    record_count = offset - head.log_end_offset
    return record, PartitionGrew(target.ordinal, record_count, size_bytes, outcome, marker_bytes)


def control_batch(marker: Marker, offset: int, now_ms: int) -> bytes:
    """The stored form of a marker at an offset."""
    return with_base_offset(_end(marker, now_ms)[0], offset)


# A transaction ends alike in all of its partitions, one after the other.
@lru_cache(maxsize=64)
def _end(marker: Marker, now_ms: int) -> tuple[bytes, ProducerEntry]:
    """The stored form of a marker at offset 0, and what is left of a producer whose epoch it raises."""
    header = BatchHeader(
        base_offset=0,
        record_count=1,
        base_timestamp_ms=now_ms,
        max_timestamp_ms=now_ms,
        producer_id=marker.producer_id,
        producer_epoch=marker.txn_epoch,
        encoding=Encoding.CONTROL,
        is_transactional=True,
        is_control=True,
    )
    return encode_batch(header, encode_marker_payload(marker)), rules.entry_after_marker(None, marker, now_ms=now_ms)
