"""A partition's live state, and how it grows: by one operation (`PartitionDraft`), or by many at once (`Growth`).

A partition has two parts. Its head, all positions in one frozen value, is the shard's, by ordinal. What has keys of its
own, the producers and their open transactions, is in a `Partition`.
"""

from __future__ import annotations

from collections.abc import Callable
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
from coordinator_protocol.marker import Marker, Outcome, encode_tail, marker_row
from coordinator_runtime.decision import Operation
from coordinator_runtime.timeline import Journal, TimelineMap
from partition_log import rules
from partition_log.catalog.settings import FOR_EVER
from partition_log.catalog.state import PlacedPartition
from partition_log.records import PartitionGrew, RowsAppended
from partition_log.rules import AppendVerdict, MarkerVerdict
from partition_log.state import (
    NO_OFFSET,
    AbortedTransaction,
    OpenTransaction,
    PartitionConfig,
    PartitionHead,
    ProducerEntry,
)

# Module-level aliases for the lane: enum attribute lookup is slow on CPython 3.11.
_APPEND: Final = AppendVerdict.APPEND
_ADMIT: Final = AppendVerdict.ADMIT
_APPEND_MARKER: Final = MarkerVerdict.APPEND


class Append(Struct, frozen=True):
    """A client's batch on its way into a partition; its shape has been checked."""

    ordinal: int
    header: BatchHeader
    offsetless: OffsetlessBatch
    admission: Callable[[], Operation] | None = None
    """Makes the operation that refuses unless the partition is, or now becomes, part of the batch's transaction. Needed
    for transactional batches."""
    is_admitted: bool = False
    timestamp_after_max_ms: int = FOR_EVER
    """Greatest lead of its timestamps over the clock (`PlacedPartition`)."""


class Appended(Struct, frozen=True):
    """Reply to an append: the batch is in the log, durable."""

    base_offset: int
    log_start_offset: int
    is_duplicate: bool = False
    """It had been there before; nothing was written."""


class Partition:
    """The producers of a partition, and which of their transactions are open."""

    __slots__ = ("first_offsets", "ongoing", "producers")

    def __init__(self, journal: Journal) -> None:
        self.producers: TimelineMap[int, ProducerEntry] = TimelineMap(journal)
        self.ongoing: TimelineMap[int, int] = TimelineMap(journal, keys_ascend=True)
        """Producer ids of open transactions by first offset, ascending: the first one is what the last stable offset
        waits for."""
        self.first_offsets = self.ongoing.keys()
        """First offsets of the open transactions, live and ascending: a view, because every operation looks there."""

    def put(self, producer_id: int, producer: ProducerEntry) -> None:
        """Set what is known of a producer. Only `replay` calls this."""
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

    def first_unstable_without(self, opened: OpenTransaction | None) -> int | None:
        """First offset of the oldest transaction that is open, this one left out; None = there is none."""
        for first_offset in self.first_offsets:
            if opened is None or first_offset != opened.first_offset:
                return first_offset
        return None


def aborted_by(marker: Marker, first_offset: int, marker_offset: int) -> AbortedTransaction:
    """The transaction that the marker ends, which has records from the first offset on."""
    return AbortedTransaction(
        marker.producer_id, marker.txn_epoch, first_offset, marker_offset, marker.coordinator_shard, marker.csn
    )


class PartitionDraft:
    """What one operation makes of a partition: batches of one producer are appended, its transaction may end, and the
    record says what came of it. The partition itself changes when the record is replayed.

    Whether a batch or a marker gets in is decided before, by the rules."""

    __slots__ = (
        "_aborted",
        "_batch_bytes",
        "_config",
        "_head",
        "_marker",
        "_marker_bytes",
        "_newest_ms",
        "_now_ms",
        "_partition",
        "_record_count",
        "_rows",
        "end_offset",
        "entry",
        "ordinal",
        "producer_id",
    )

    def __init__(
        self,
        ordinal: int,
        partition: Partition,
        head: PartitionHead,
        producer_id: int,
        config: PartitionConfig,
        now_ms: int,
    ) -> None:
        self.ordinal = ordinal
        self.producer_id = producer_id
        self._partition = partition
        self._head = head
        self._config = config
        self._now_ms = now_ms
        self.entry = partition.producers.get(producer_id)
        """What the partition knows of the producer by now; None = nothing, or the batches are of no producer."""
        self.end_offset = head.log_end_offset
        """The offset of the next batch."""
        self._newest_ms = head.index.max_timestamp_ms
        self._rows: list[tuple[int, bytes]] = []
        self._batch_bytes = 0
        self._record_count = 0
        self._marker: Marker | None = None
        self._marker_bytes = 0
        self._aborted: AbortedTransaction | None = None

    def append(self, append: Append, coordinator_shard: int) -> None:
        """Put a client's batch at the end of the log. It is of the draft's producer, and comes before the marker. The
        shard is that of its transactional id, -1 without one."""
        head, batch, base_offset = self._head, append.header, self.end_offset
        if batch.producer_id != NO_PRODUCER_ID:
            self.entry = rules.entry_after_append(
                self.entry,
                batch,
                base_offset=base_offset,
                now_ms=self._now_ms,
                forgotten=head.forgotten,
                coordinator_shard=coordinator_shard,
            )
        rest_of_header, payload = append.offsetless
        place = pack_place(base_offset, HEADER_BYTES_COUNTED + len(payload), head.leadership.epoch)
        encoded = place + rest_of_header + payload
        self.end_offset = base_offset + batch.record_count + batch.hole_count
        self._rows.append((self.end_offset - 1, encoded))
        self._batch_bytes += len(encoded)
        self._record_count += batch.record_count
        if self._newest_ms < batch.max_timestamp_ms:
            self._newest_ms = batch.max_timestamp_ms

    def end(self, marker: Marker) -> None:
        """Put the marker behind everything, which ends the producer's transaction if it has one open here. Behind
        batches of this draft it is the tail of their last row; where there are none, a row by itself."""
        offset, opened = self.end_offset, None if self.entry is None else self.entry.open_transaction
        first_offset = NO_OFFSET if opened is None else opened.first_offset
        if opened is not None and marker.outcome is Outcome.ABORT:
            self._aborted = aborted_by(marker, first_offset, offset)
        self.entry = rules.entry_after_marker(self.entry, marker, now_ms=self._now_ms)
        self.end_offset = offset + 1
        last_row = self._rows.pop()[1] if self._rows else b""
        row = marker_row(
            marker,
            first_offset=first_offset,
            offset=offset,
            leader_epoch=self._head.leadership.epoch,
            now_ms=self._now_ms,
            behind=last_row,
        )
        self._rows.append((offset, row))
        self._marker, self._marker_bytes = marker, len(row) - len(last_row)

    def record(self) -> tuple[RowsAppended, PartitionGrew]:
        """The change, to be replayed and stored, and the event that tells of it. Something was appended."""
        head, entry, end_offset = self._head, self.entry, self.end_offset
        before = self._partition.producers.get(self.producer_id)
        was_open = None if before is None else before.open_transaction
        is_open = None if entry is None else entry.open_transaction
        open_transactions = head.open_transactions - (was_open is not None) + (is_open is not None)
        if not open_transactions:
            stable_offset = end_offset
        elif was_open is None or is_open is not None:
            # Nothing older ended: the bound stands where it stood. A transaction that opens now does so exactly there.
            stable_offset = head.last_stable_offset
        else:
            first_unstable = self._partition.first_unstable_without(was_open)
            stable_offset = end_offset if first_unstable is None else first_unstable
        marker, aborted, totals = self._marker, self._aborted, head.totals
        is_aborted = aborted is not None
        grown_bytes = self._batch_bytes + self._marker_bytes
        totals = replace(
            totals,
            size_bytes=totals.size_bytes + grown_bytes,
            record_count=totals.record_count + self._record_count,
            marker_count=totals.marker_count + (marker is not None),
            abort_count=totals.abort_count + is_aborted,
        )
        index, stretches = rules.index_after(head, self._rows, totals, self._newest_ms, self._config, self._now_ms)
        extended = replace(
            head,
            log_end_offset=end_offset,
            last_stable_offset=stable_offset,
            open_transactions=open_transactions,
            last_abort_offset=end_offset - 1 if is_aborted else head.last_abort_offset,
            index=index,
            totals=totals,
        )
        producers = () if entry is None else ((self.producer_id, entry),)
        record = RowsAppended(self.ordinal, self._rows, grown_bytes, extended, producers, aborted, stretches)
        outcome = None if marker is None else marker.outcome
        return record, PartitionGrew(self.ordinal, self._record_count, self._batch_bytes, outcome, self._marker_bytes)


class Growth:
    """What several producers make of a partition in one step, each by a batch, by a marker that commits, or by both.

    It comes to the same as a draft for each, in one record and one event. The partition itself changes when the record
    is replayed."""

    __slots__ = (
        "_batch_bytes",
        "_closed",
        "_config",
        "_end_offset",
        "_head",
        "_leader_epoch",
        "_marker_bytes",
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
        self._marker_bytes = 0
        self._opened_count = 0
        self._closed: set[int] = set()
        """First offsets of transactions that end."""

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
        self._marker_bytes += TAIL_BYTES
        self._marker_count += 1
        return offset

    def check_last_sequence(self, identity: tuple[int, int], last_sequence: int) -> None:
        """Raises Refused as `rules.check_last_sequence`."""
        producer_id, epoch = identity
        entry = self._partition.producers.get(producer_id)
        rules.check_last_sequence(entry, producer_id=producer_id, producer_epoch=epoch, last_sequence=last_sequence)

    def ends(self, marker: Marker) -> bool:
        """Whether a marker is appended that commits; once for a producer. Raises Refused as `rules.judge_marker`."""
        entry = self._partition.producers.get(marker.producer_id)
        return rules.judge_marker(entry, marker, forgotten=self._head.forgotten) is _APPEND_MARKER

    def end(self, marker: Marker, now_ms: int) -> None:
        """Append what `ends` has said yes to."""
        entry, offset = self._partition.producers.get(marker.producer_id), self._end_offset
        first_offset = NO_OFFSET
        if entry is not None and entry.open_transaction is not None:
            first_offset = entry.open_transaction.first_offset
            self._closed.add(first_offset)
        row = marker_row(
            marker, first_offset=first_offset, offset=offset, leader_epoch=self._leader_epoch, now_ms=now_ms
        )
        self.rows.append((offset, row))
        self._producers.append((marker.producer_id, rules.entry_after_marker(entry, marker, now_ms=now_ms)))
        self._marker_bytes += len(row)
        self._marker_count += 1
        self._end_offset = offset + 1

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
        open_transactions = head.open_transactions + self._opened_count - len(self._closed)
        size_bytes = self._batch_bytes + self._marker_bytes
        if not open_transactions:
            stable_offset = end_offset
        elif not self._closed:
            # The first open transaction stays where it was, and where there was none, it begins where readers wait.
            stable_offset = head.last_stable_offset
        else:
            stable_offset = next(each for each in self._partition.first_offsets if each not in self._closed)
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
            last_stable_offset=stable_offset,
            open_transactions=open_transactions,
            index=index,
            totals=totals,
        )
        outcome = Outcome.COMMIT if marker_count else None
        grew = PartitionGrew(ordinal, self._record_count, self._batch_bytes, outcome, self._marker_bytes, marker_count)
        return RowsAppended(ordinal, rows, size_bytes, extended, self._producers, stretches=stretches), grew
