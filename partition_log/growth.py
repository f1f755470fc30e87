"""A partition that gets a whole transaction in one step: batches, and the marker right behind them.

It ends as if each had been appended by itself, without the states in between: the rules are the same. What comes of it
is one record.
"""

from __future__ import annotations

from functools import lru_cache

from coordinator_protocol.batch import NO_TIMESTAMP_MS, BatchHeader, Encoding, encode_batch, with_base_offset
from coordinator_protocol.marker import Marker, Outcome, encode_marker_payload
from partition_log import rules
from partition_log.records import TransactionAppended
from partition_log.rules import MarkerVerdict
from partition_log.state import (
    CachedBatch,
    EndedTransaction,
    MarkerCount,
    PartitionConfig,
    PartitionHead,
    ProducerEntry,
    TimeIndexEntry,
)


class Growth:
    """One transaction on its way into one partition. First `append` all, then `end`, then make the `record`."""

    __slots__ = (
        "_batches",
        "_config",
        "_entry",
        "_head",
        "_index",
        "_indexed",
        "_now_ms",
        "_was_open",
        "end_offset",
        "record_count",
    )

    def __init__(self, head: PartitionHead, entry: ProducerEntry | None, config: PartitionConfig, now_ms: int) -> None:
        self._head = head
        self._entry = entry
        self._config = config
        self._now_ms = now_ms
        self._was_open = entry is not None and entry.open_transaction is not None
        self._index = head.index
        self._indexed: list[tuple[TimeIndexEntry, int]] = []
        self._batches: list[tuple[int, bytes]] = []
        self.end_offset = head.log_end_offset
        self.record_count = 0

    def append(self, batch: BatchHeader, encoded: bytes) -> None:
        """Append a batch that the transaction coordinator has admitted, unless it is there already. Raises Refused as
        `rules.judge_append`."""
        head, base_offset = self._head, self.end_offset
        verdict = rules.judge_append(self._entry, batch, is_admitted=True, log_start_offset=head.log_start_offset)
        if isinstance(verdict, CachedBatch):
            return
        self._entry = rules.entry_after_append(
            self._entry, batch, base_offset=base_offset, now_ms=self._now_ms, forgotten_csn=head.forgotten.csn
        )
        stretch = self._grow(batch.record_count, with_base_offset(encoded, base_offset), batch.max_timestamp_ms)
        if stretch is not None:
            self._indexed.append((stretch, head.counted.markers))
        self.record_count += batch.record_count

    def end(self, marker: Marker) -> EndedTransaction:
        """Append the marker. Raises Refused as `rules.opened_in` and `rules.judge_marker`."""
        opened, offset = rules.opened_in(self._entry), self.end_offset
        verdict = rules.judge_marker(self._entry, marker, forgotten_csn=self._head.forgotten.csn)
        assert verdict is MarkerVerdict.APPEND, "the outcome of an open transaction was decided a moment ago"
        # A marker is no record: to search by time must not end at one.
        stretch = self._grow(1, control_batch(marker, offset, self._now_ms), NO_TIMESTAMP_MS)
        if stretch is not None:
            self._indexed.append((stretch, self._head.counted.markers + 1))
        self._entry = rules.entry_after_marker(self._entry, marker, now_ms=self._now_ms)
        return EndedTransaction(
            marker.producer_id, marker.txn_epoch, opened.first_offset, offset, marker.outcome, marker.csn
        )

    def record(self, ordinal: int, ended: EndedTransaction, last_stable_offset: int) -> TransactionAppended:
        """What became of the partition."""
        head, producer = self._head, self._entry
        assert producer is not None, "it ended a transaction"
        is_aborted = ended.outcome is Outcome.ABORT
        extended = PartitionHead(
            head.log_start_offset,
            self.end_offset,
            last_stable_offset,
            head.open_transactions - self._was_open,
            ended.marker_offset if is_aborted else head.last_abort_offset,
            self._index,
            head.aborted_transactions + is_aborted,
            head.forgotten,
            MarkerCount(head.counted.from_offset, head.counted.markers + 1),
        )
        return TransactionAppended(
            ordinal, tuple(self._batches), extended, ended.producer_id, producer, ended, tuple(self._indexed)
        )

    def _grow(self, record_count: int, encoded: bytes, max_timestamp_ms: int) -> TimeIndexEntry | None:
        self.end_offset += record_count
        last_offset = self.end_offset - 1
        self._batches.append((last_offset, encoded))
        self._index, stretch = rules.index_after(
            self._index,
            last_offset=last_offset,
            size_bytes=len(encoded),
            max_timestamp_ms=max_timestamp_ms,
            config=self._config,
        )
        return stretch


def control_batch(marker: Marker, offset: int, now_ms: int) -> bytes:
    """The stored form of a marker at an offset."""
    return with_base_offset(_control_batch(marker, now_ms), offset)


# A transaction has the same marker in every partition, one after the other.
@lru_cache(maxsize=64)
def _control_batch(marker: Marker, now_ms: int) -> bytes:
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
    return encode_batch(header, encode_marker_payload(marker))
