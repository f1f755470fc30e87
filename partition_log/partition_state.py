"""A partition's live state, and the draft of its changes (`PartitionDraft`) by one operation or several at once.

A partition has two parts. The shard keeps its head, all positions in one frozen value, by ordinal. A `Partition` holds
the parts with keys of their own: the producers and their open transactions.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain, filterfalse
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from coordinator_protocol.batch import (
    HEADER_BYTES_COUNTED,
    NO_PRODUCER_ID,
    TAIL_BYTES,
    BatchHeader,
    OffsetlessBatch,
    pack_place,
)
from coordinator_protocol.errors import Refused
from coordinator_protocol.limits import Limits
from coordinator_protocol.marker import Marker, Outcome, encode_tail, marker_row
from coordinator_runtime.decision import Operation
from coordinator_runtime.timeline import Journal, TimelineMap
from partition_log.catalog.settings import FOR_EVER
from partition_log.records import PartitionGrew, RowsAppended
from partition_log.rules import appending, indexing, marking
from partition_log.state import (
    NO_OFFSET,
    AbortedTransaction,
    LogTotals,
    PartitionConfig,
    PartitionHead,
    ProducerEntry,
)

# Module-level alias: enum attribute lookup is slow on CPython 3.11.
_ABORT: Final = Outcome.ABORT


class Append(Struct, frozen=True):
    """A client's batch to append; its shape has been checked."""

    ordinal: int
    header: BatchHeader
    offsetless: OffsetlessBatch
    admission: Callable[[], Operation] | None = None
    """Makes the operation that refuses unless the partition is, or now becomes, part of the batch's transaction. The
    one for a plain batch refuses if the producer id was ever given to a transactional id. None if the batch needs no
    admission."""
    refuse_if_open: Callable[[Refused], Operation] | None = None
    """Makes the operation that raises a refusal if the partition is in the open transaction of the batch's producer.
    None for a batch outside transactions."""
    is_admitted: bool = False
    timestamp_after_max_ms: int = FOR_EVER
    """Greatest lead of its timestamps over the clock (`PlacedPartition`)."""
    batch_bytes_max: int = Limits().batch_bytes_max
    """Largest stored size of a batch in its topic (bytes)."""


class Appended(Struct, frozen=True):
    """Reply to an append: the batch is durably in the log."""

    base_offset: int
    log_start_offset: int
    is_duplicate: bool = False
    """True if the log had it before and nothing was written."""


class Partition:
    """The producers of a partition, and their open transactions."""

    __slots__ = ("first_offsets", "ongoing", "producers")

    def __init__(self, journal: Journal) -> None:
        self.producers: TimelineMap[int, ProducerEntry] = TimelineMap(journal)
        self.ongoing: TimelineMap[int, int] = TimelineMap(journal, keys_ascend=True)
        """Producer ids of open transactions by first offset, ascending. The last stable offset waits for the first
        one."""
        self.first_offsets = self.ongoing.keys()
        """First offsets of the open transactions, live and ascending. A view, because every operation looks there."""

    def put(self, producer_id: int, producer: ProducerEntry) -> None:
        """Set the entry of a producer. Only `replay` calls this."""
        before = self.producers.get(producer_id)
        was_open = None if before is None else before.open_transaction
        is_open = producer.open_transaction
        if was_open is not is_open:
            if is_open is None:
                assert was_open is not None
                self.ongoing.remove(was_open.first_offset)
            elif was_open is None:
                self.ongoing.put(is_open.first_offset, producer_id)
        self.producers.put(producer_id, producer)


def aborted_by(marker: Marker, first_offset: int, marker_offset: int) -> AbortedTransaction:
    """Return the aborted transaction that the marker ends, with records from the first offset on."""
    return AbortedTransaction(
        marker.producer_id, marker.txn_epoch, first_offset, marker_offset, marker.coordinator_shard, marker.csn
    )


class PartitionDraft:
    """Changes to one partition by one or more producers, combined into one record and one event. The partition itself
    changes when the record is replayed.

    The rules decide beforehand whether a batch or a marker may be appended, from `entry` and `head`. All markers have
    one outcome, and at most one of them aborts, because a record names one aborted transaction. Each producer begins
    one transaction at most."""

    __slots__ = (
        "_aborted",
        "_batch_bytes",
        "_closed",
        "_config",
        "_end_offset",
        "_entries",
        "_last_batch",
        "_marker_bytes",
        "_marker_count",
        "_newest_ms",
        "_now_ms",
        "_opened",
        "_outcome",
        "_partition",
        "_record_count",
        "head",
        "ordinal",
        "rows",
    )

    def __init__(
        self, ordinal: int, partition: Partition, head: PartitionHead, config: PartitionConfig, now_ms: int
    ) -> None:
        self.ordinal = ordinal
        self.head = head
        """Positions of the partition before the changes."""
        self._partition = partition
        self._config = config
        self._now_ms = now_ms
        self._end_offset = head.log_end_offset
        self._newest_ms = head.index.max_timestamp_ms
        self.rows: list[tuple[int, bytes]] = []
        """Last offset and stored form of each row."""
        self._entries: dict[int, ProducerEntry] = {}
        """Changed entries by producer id."""
        self._last_batch: tuple[int, int] | None = None
        """Producer id of the newest batch, and the offset behind it. A marker of that producer at that offset becomes
        the tail of the batch's row."""
        self._opened: list[int] = []
        """First offsets of the transactions that begin here, ascending."""
        self._closed: set[int] = set()
        """First offsets of the transactions that end, both older ones and those in `_opened`."""
        self._aborted: AbortedTransaction | None = None
        self._outcome: Outcome | None = None
        self._batch_bytes = 0
        self._record_count = 0
        self._marker_bytes = 0
        self._marker_count = 0

    def entry(self, producer_id: int) -> ProducerEntry | None:
        """Return a producer's entry after the changes so far; None if the partition does not know the producer."""
        return self._entries.get(producer_id) or self._partition.producers.get(producer_id)

    def append(self, batch: BatchHeader, offsetless: OffsetlessBatch, coordinator_shard: int) -> int:
        """Append a client's batch and return its offset. The shard is that of the producer's transactional id, -1
        without one."""
        offset, producer_id = self._end_offset, batch.producer_id
        if producer_id != NO_PRODUCER_ID:
            # Same as `entry`, without a call: batches and markers are the most frequent changes.
            entry = self._entries.get(producer_id) or self._partition.producers.get(producer_id)
            after = self._entries[producer_id] = appending.entry_after_append(
                entry,
                batch,
                base_offset=offset,
                now_ms=self._now_ms,
                forgotten=self.head.forgotten,
                coordinator_shard=coordinator_shard,
            )
            if after.open_transaction is not None and (entry is None or entry.open_transaction is None):
                self._opened.append(offset)
        rest_of_header, payload = offsetless
        place = pack_place(offset, HEADER_BYTES_COUNTED + len(payload), self.head.leadership.epoch)
        row = place + rest_of_header + payload
        self._end_offset = end_offset = offset + batch.record_count + batch.hole_count
        self.rows.append((end_offset - 1, row))
        self._last_batch = producer_id, end_offset
        self._batch_bytes += len(row)
        self._record_count += batch.record_count
        if self._newest_ms < batch.max_timestamp_ms:
            self._newest_ms = batch.max_timestamp_ms
        return offset

    def append_and_end(self, batch: BatchHeader, offsetless: OffsetlessBatch, marker: Marker) -> int:
        """Append a batch that is a whole transaction, with the marker behind it, and return the batch's offset.

        Equal to `append` and `end`, if the producer has nothing open here and the marker commits and raises the epoch.
        It is one step because two steps make a Transact 8 % more expensive (`bench.instructions`)."""
        offset = self._end_offset
        rest_of_header, payload = offsetless
        place = pack_place(offset, HEADER_BYTES_COUNTED + len(payload), self.head.leadership.epoch)
        row = b"".join((place, rest_of_header, payload, encode_tail(marker, offset, self._now_ms)))
        self._entries[marker.producer_id] = marking.entry_left_by(marker, offset, self._now_ms)
        marker_offset = offset + batch.record_count + batch.hole_count
        self._end_offset = marker_offset + 1
        self.rows.append((marker_offset, row))
        self._outcome = marker.outcome
        self._batch_bytes += len(row) - TAIL_BYTES
        self._record_count += batch.record_count
        if self._newest_ms < batch.max_timestamp_ms:
            self._newest_ms = batch.max_timestamp_ms
        self._marker_bytes += TAIL_BYTES
        self._marker_count += 1
        return offset

    def end(self, marker: Marker) -> None:
        """Append a marker, which ends the producer's open transaction, if there is one here. Right behind a batch of
        the same producer it becomes the tail of that row, otherwise a row by itself."""
        offset, producer_id, first_offset = self._end_offset, marker.producer_id, NO_OFFSET
        entry = self._entries.get(producer_id) or self._partition.producers.get(producer_id)
        if entry is not None and entry.open_transaction is not None:
            first_offset = entry.open_transaction.first_offset
            self._closed.add(first_offset)
            if marker.outcome is _ABORT:
                assert self._aborted is None, "a record names one aborted transaction"
                self._aborted = aborted_by(marker, first_offset, offset)
        last_row = self.rows.pop()[1] if self._last_batch == (producer_id, offset) else b""
        row = marker_row(
            marker,
            first_offset=first_offset,
            offset=offset,
            leader_epoch=self.head.leadership.epoch,
            now_ms=self._now_ms,
            behind=last_row,
        )
        self.rows.append((offset, row))
        self._entries[producer_id] = marking.entry_after_marker(entry, marker, now_ms=self._now_ms)
        self._outcome = marker.outcome
        self._marker_bytes += len(row) - len(last_row)
        self._marker_count += 1
        self._end_offset = offset + 1

    def record(self) -> tuple[RowsAppended, PartitionGrew]:
        """Return the changes as a record to replay and store, and the event about them. At least one row was
        appended."""
        head, opened, closed, aborted = self.head, self._opened, self._closed, self._aborted
        stable_offset = end_offset = self._end_offset
        open_transactions = head.open_transactions + len(opened) - len(closed)
        if open_transactions:
            # Committed readers wait for the oldest one. Transactions that begin here are younger than all others. A
            # damaged store may count transactions that it does not have.
            begun = chain(self._partition.first_offsets, opened)
            stable_offset = next(filterfalse(closed.__contains__, begun) if closed else begun, end_offset)
        size_bytes = self._batch_bytes + self._marker_bytes
        before = head.totals
        totals = LogTotals(
            before.size_bytes + size_bytes,
            before.record_count + self._record_count,
            before.marker_count + self._marker_count,
            before.abort_count + (aborted is not None),
        )
        index, stretches = indexing.index_after(head, self.rows, totals, self._newest_ms, self._config, self._now_ms)
        extended = replace(
            head,
            log_end_offset=end_offset,
            last_stable_offset=stable_offset,
            open_transactions=open_transactions,
            last_abort_offset=head.last_abort_offset if aborted is None else aborted.marker_offset,
            index=index,
            totals=totals,
        )
        producers = tuple(self._entries.items())
        record = RowsAppended(self.ordinal, self.rows, size_bytes, extended, producers, aborted, stretches)
        return record, PartitionGrew(
            self.ordinal,
            self._record_count,
            self._batch_bytes,
            self._outcome,
            self._marker_bytes,
            self._marker_count,
        )
