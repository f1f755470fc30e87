"""A partition that gets a whole transaction in one step: batches, and the marker right behind them.

It ends as if each had been appended by itself, without the states in between: the rules are the same. What comes of it
is one record.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from coordinator_protocol.batch import NO_TIMESTAMP_MS, BatchHeader, Encoding, encode_batch, with_base_offset
from coordinator_protocol.marker import Marker, Outcome, encode_marker_payload
from partition_log import rules
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
    TimeIndexEntry,
)


class Growth:
    """One transaction on its way into one partition. First `append` all, then `end` makes the record."""

    __slots__ = (
        "_batches",
        "_before",
        "_config",
        "_end_offset",
        "_head",
        "_index",
        "_indexed",
        "_now_ms",
        "first_offset",
        "record_count",
        "size_bytes",
    )

    def __init__(self, head: PartitionHead, before: ProducerEntry | None, config: PartitionConfig, now_ms: int) -> None:
        self._head = head
        self._before = before
        self._config = config
        self._now_ms = now_ms
        opened = None if before is None else before.open_transaction
        self.first_offset = NO_OFFSET if opened is None else opened.first_offset
        """Of the transaction here; -1 = nothing of it is here."""
        self._index = head.index
        self._indexed: list[tuple[TimeIndexEntry, int]] = []
        self._batches: list[tuple[int, bytes]] = []
        self._end_offset = head.log_end_offset
        self.record_count = 0
        """Of clients' batches."""
        self.size_bytes = 0
        """The same."""

    def append_all(self, appends: Sequence[Append]) -> None:
        """Append batches that the transaction coordinator has admitted, but for those that are there already. Raises
        Refused as `rules.judge_append`."""
        head, entry = self._head, self._before
        for append in appends:
            batch = append.header
            verdict = rules.judge_append(entry, batch, is_admitted=True, log_start_offset=head.log_start_offset)
            if isinstance(verdict, CachedBatch):
                continue
            base_offset = self._end_offset
            if self.first_offset == NO_OFFSET:
                self.first_offset = base_offset
            if len(appends) > 1:
                # Only the next batch looks at it: the end leaves nothing of it.
                entry = rules.entry_after_append(
                    entry, batch, base_offset=base_offset, now_ms=self._now_ms, forgotten_csn=head.forgotten.csn
                )
            self._grow(
                batch.record_count, with_base_offset(append.encoded, base_offset), batch.max_timestamp_ms, markers=0
            )
            self.record_count += batch.record_count
            self.size_bytes += len(append.encoded)

    def end(self, ordinal: int, marker: Marker, first_unstable: int | None) -> TransactionAppended:
        """Append the marker of the transaction, which raises the epoch. `first_unstable`: where the oldest other one
        begins that is open; None = there is none. Raises Refused: DUPLICATE_SEQUENCE_NUMBER where all batches are in
        the log, and not in the transaction; and as `rules.judge_marker`."""
        head, first_offset, offset = self._head, self.first_offset, self._end_offset
        if first_offset == NO_OFFSET:
            raise rules.outside_of_transaction()
        # Whatever was appended a moment ago, of the same epoch, changes nothing of how the marker is judged.
        verdict = rules.judge_marker(self._before, marker, forgotten_csn=head.forgotten.csn)
        assert verdict is MarkerVerdict.APPEND, "the outcome of an open transaction was decided a moment ago"
        assert marker.next_epoch > marker.txn_epoch, "nothing is left of an epoch that is over"
        # A marker is no record: to search by time must not end at one.
        self._grow(1, control_batch(marker, offset, self._now_ms), NO_TIMESTAMP_MS, markers=1)
        end_offset = offset + 1
        was_open = self._before is not None and self._before.open_transaction is not None
        is_aborted = marker.outcome is Outcome.ABORT
        extended = PartitionHead(
            head.log_start_offset,
            end_offset,
            end_offset if first_unstable is None else first_unstable,
            head.open_transactions - was_open,
            offset if is_aborted else head.last_abort_offset,
            self._index,
            head.aborted_transactions + is_aborted,
            head.forgotten,
            MarkerCount(head.counted.from_offset, head.counted.markers + 1),
        )
        return TransactionAppended(
            ordinal,
            tuple(self._batches),
            extended,
            marker.producer_id,
            rules.entry_after_marker(None, marker, now_ms=self._now_ms),
            EndedTransaction(marker.producer_id, marker.txn_epoch, first_offset, offset, marker.outcome, marker.csn),
            tuple(self._indexed),
        )

    def _grow(self, record_count: int, encoded: bytes, max_timestamp_ms: int, *, markers: int) -> None:
        self._end_offset += record_count
        last_offset = self._end_offset - 1
        self._batches.append((last_offset, encoded))
        self._index, stretch = rules.index_after(
            self._index,
            last_offset=last_offset,
            size_bytes=len(encoded),
            max_timestamp_ms=max_timestamp_ms,
            config=self._config,
        )
        if stretch is not None:
            self._indexed.append((stretch, self._head.counted.markers + markers))


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
