"""Reader of ranges of partitions, batch by batch: the layer below `read`, also used by the Spark source.

A reader is given ranges with fixed bounds. So it ends, and reading the same range twice gives the same records. Below
the last stable offset every transaction is decided. The reader verifies the batches (checksum, shape, count) and counts
the records that the server hid.

The next Fetch is sent while the last answer is being processed: server and reader work at the same time instead of in
turns. That is only an optimisation. If its answer is missing or reports a failure, it is dropped. The reader then sends
an ordinary request with all of its retries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import TypeVar

from coordinator_api.v1 import log_pb2 as log
from coordinator_client.calls import FETCH, PAUSE_MS_MAX, Deadlines
from coordinator_client.encodings import ENCODINGS_READ, FetchedBatch, checked_batch, corrupt_at, place_of
from coordinator_client.errors import (
    NOTHING_CHANGED,
    CorruptBatch,
    Loss,
    TransactionError,
    class_of,
    failure,
    misconfigured,
    wrong_argument,
)
from coordinator_client.fetch_reply import FetchReply, PartitionReply
from coordinator_client.settings import RAISE, SKIP, Skipped, check_durations, check_on_corrupt_batch, isolation_level
from coordinator_client.transport.connection import REQUEST_TIMEOUT_MS, Connection
from coordinator_client.transport.transport import Attempt
from coordinator_protocol.errors import ErrorClass, ErrorCode
from coordinator_protocol.limits import MEBI
from coordinator_protocol.methods import Method
from coordinator_protocol.snapshots import SnapshotFilter


class FetchAhead:
    """One Fetch that was sent ahead, for one thread."""

    def __init__(self, connection: Connection, *, timeout_ms: int) -> None:
        self._connection = connection
        self._timeout_ms = timeout_ms
        self._request: log.FetchRequest | None = None
        self._call: Attempt | None = None
        self._inbox: SimpleQueue[FetchReply | Loss] = SimpleQueue()

    def start(self, request: log.FetchRequest) -> None:
        """Send the next Fetch ahead, unless the server asked for a pause. The previous one must have been taken or
        cancelled."""
        assert self._request is None, "one at a time"
        if self._connection.clock.monotonic_ms() < self._connection.throttle.until_ms(Method.FETCH):
            return
        self._request, self._inbox = request, SimpleQueue()
        self._call = self._connection.transport.start(
            FETCH, request, timeout_ms=self._timeout_ms, on_done=self._inbox.put
        )

    def take(self, request: log.FetchRequest) -> FetchReply | None:
        """Return the answer to this request if it was sent ahead, waiting for it; None = send an ordinary request."""
        if self._request != request:
            self.cancel()
            return None
        self._request = self._call = None
        clock = self._connection.clock
        answer = clock.take(self._inbox, self._timeout_ms)
        if not isinstance(answer, FetchReply):
            return None
        is_refused = answer.error_code != 0
        self._connection.throttle.note(Method.FETCH, answer.throttle_ms, clock.monotonic_ms(), is_refused=is_refused)
        return None if is_refused else answer

    def cancel(self) -> None:
        """Give up the Fetch that was sent ahead."""
        self._request = None
        call, self._call = self._call, None
        if call is not None:
            call.cancel()


DecodedT = TypeVar("DecodedT")


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRange:
    """The offsets of one partition from `start_offset` up to, but not including, `end_offset`; None = no end."""

    topic: str
    partition: int
    start_offset: int
    end_offset: int | None
    topic_id: bytes = b""
    end_epoch: int | None = None
    """Leader epoch in which `end_offset` was looked up (`OffsetResult.leader_epoch`). With it, reading fails if the log
    before the end has been replaced since; without it, that goes unnoticed."""
    start_epoch: int | None = None
    """Leader epoch in which `start_offset` was learned as the end of an earlier read. With it, the range is refused,
    even an empty one, if the earlier records are no longer in the log."""
    shown: SnapshotFilter | None = None
    """View of a snapshot on the range, whose end and epoch are then given; None = the range is read as it is now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchOptions:
    """Options of a fetch. The defaults suit a scan of committed records."""

    isolation: str = "read_committed"
    """Isolation level. `read_committed`: up to the last stable offset, aborted records hidden. `read_uncommitted`: all
    durable records."""

    is_raw: bool = False
    """True to return control batches and aborted records too, for auditors."""

    max_bytes: int = 4 * MEBI
    """Maximum bytes in one answer. Smaller: more round trips. Larger: more memory, and a longer wait for the first
    record."""

    wait_ms: int = 500
    """Longest wait of one fetch at the end of an endless range (ms). Larger: fewer empty answers, slower reaction to a
    close."""

    on_corrupt_batch: str = RAISE
    """Reaction to unreadable records. `raise` (default): raise CorruptBatch. `skip`: continue after them, and count
    them in `BatchReader.skipped`."""

    patience_ms: int = 60_000
    """Time without progress, because of temporary failures, after which the reader raises Retriable (ms)."""

    def __post_init__(self) -> None:
        isolation_level(self.isolation)
        check_on_corrupt_batch(self.on_corrupt_batch)
        check_durations(self, wrong_argument)
        if self.max_bytes < 1:
            raise wrong_argument("max_bytes", self.max_bytes, "must be positive")


@dataclass(frozen=True, slots=True)
class AbortedTransaction:
    """An aborted transaction seen by a raw reader: its producer, its first record, and its marker."""

    topic: str
    partition: int
    producer_id: int
    first_offset: int
    marker_offset: int


@dataclass(slots=True)
class Hidden:
    """Number of records of the ranges that the server has hidden so far."""

    aborted: int = 0
    control: int = 0


@dataclass(slots=True)
class _Cursor:
    """A range, and the position of its reader."""

    range: PartitionRange
    next_offset: int
    epoch: int | None = None
    """Leader epoch of the last offset before the position; None = not known."""
    is_checked: bool = True
    """True if the earlier records are known to be in the log, or need not be checked."""

    @property
    def is_over(self) -> bool:
        end = self.range.end_offset
        return end is not None and self.next_offset >= end and self.is_checked


@dataclass(slots=True)
class BatchReader:
    """Iterates over the batches of some ranges; partitions take turns, each in the order of its offsets.

    Raises while iterating: Rejected if an offset does not exist, CorruptBatch if stored bytes are damaged; Retriable
    after `patience_ms` without progress.
    """

    connection: Connection
    ranges: Sequence[PartitionRange]
    options: FetchOptions = field(default_factory=FetchOptions)
    hidden: Hidden = field(default_factory=Hidden, init=False)
    skipped: Skipped = field(default_factory=Skipped, init=False)
    """Counts of skipped batches; empty unless `on_corrupt_batch` is `skip`."""
    aborted_transactions: set[AbortedTransaction] = field(default_factory=set, init=False)
    """Aborted transactions seen so far; filled by raw reads only."""
    positions: dict[tuple[str, int], int] = field(default_factory=dict, init=False)
    """Next offset of each partition, after hidden records too."""

    @property
    def skips(self) -> bool:
        """True if unreadable batches are left out."""
        return self.options.on_corrupt_batch == SKIP

    def decoded(self, decode: Callable[[FetchedBatch], DecodedT]) -> Iterator[tuple[FetchedBatch, DecodedT]]:
        """Iterate over the batches, each with the result of `decode`. If `decode` raises CorruptBatch, the error is
        raised or the batch skipped, as for batches found damaged earlier."""
        for batch in self:
            try:
                content = decode(batch)
            except CorruptBatch as error:
                self._raise_or_skip(error, batch.first_offset, batch.end_offset)
            else:
                yield batch, content

    def _raise_or_skip(self, error: CorruptBatch, first_offset: int, end_offset: int | None) -> None:
        """Raise the error, or count the skipped offsets. Only offsets inside the range count: the others belong to
        another reader."""
        if not self.skips:
            raise error
        error.offset = max(error.offset, first_offset)
        if end_offset is not None:
            error.next_offset = min(error.next_offset, end_offset)
        self.skipped.add(error)

    def __iter__(self) -> Iterator[FetchedBatch]:
        cursors = [
            _Cursor(asked, asked.start_offset, asked.start_epoch, asked.start_epoch is None) for asked in self.ranges
        ]
        self.positions = {(cursor.range.topic, cursor.range.partition): cursor.next_offset for cursor in cursors}
        stuck_since_ms: int | None = None
        ahead = FetchAhead(self.connection, timeout_ms=self._attempt_ms)
        try:
            while cursors := [cursor for cursor in cursors if not cursor.is_over]:
                before = sum(cursor.next_offset for cursor in cursors)
                reply = self._fetch(cursors, ahead)
                problem: TransactionError | None = None
                for cursor, result in zip(cursors, reply.results, strict=True):
                    problem = self._passing_failure(cursor, result) or problem
                    if not result.fields.error_code:
                        yield from self._batches(cursor, result)
                now_ms = self.connection.clock.monotonic_ms()
                if sum(cursor.next_offset for cursor in cursors) > before:
                    stuck_since_ms = None
                elif problem is not None or all(cursor.range.end_offset is not None for cursor in cursors):
                    stuck_since_ms = now_ms if stuck_since_ms is None else stuck_since_ms
                    if now_ms - stuck_since_ms >= self.options.patience_ms:
                        raise problem or _out_of_reach(cursors[0], self.options.patience_ms)
                    self.connection.clock.pause(PAUSE_MS_MAX)
                cursors = _in_turn(cursors)
        finally:
            ahead.cancel()

    @property
    def _attempt_ms(self) -> int:
        return self.options.wait_ms + REQUEST_TIMEOUT_MS

    def _fetch(self, cursors: Sequence[_Cursor], ahead: FetchAhead) -> FetchReply:
        """Return the answer to a Fetch from the positions of the cursors, and send the next Fetch ahead if more can be
        read."""
        request = self._request(cursors)
        reply = ahead.take(request)
        if reply is None:
            deadlines = Deadlines(total_ms=self.options.patience_ms, attempt_ms=self._attempt_ms)
            reply = self.connection.ask(FETCH, request, deadlines=deadlines)
        if len(reply.results) != len(cursors):
            raise misconfigured(
                ErrorCode.UNSUPPORTED_VERSION,
                f"Fetch: {len(cursors)} partitions were asked for and {len(reply.results)} answered",
            )
        following = self._behind(cursors, reply)
        if following:
            ahead.start(self._request(following))
        return reply

    def _behind(self, cursors: Sequence[_Cursor], reply: FetchReply) -> list[_Cursor]:
        """Return the cursors as they will be after this answer. Empty if the next request is not known, or there is
        nothing to read yet."""
        if any(result.fields.error_code for result in reply.results):
            return []
        found = [
            (
                _Cursor(cursor.range, max(cursor.next_offset, result.fields.next_offset), _epoch_after(cursor, result)),
                self._visible_end(cursor, result),
            )
            for cursor, result in zip(cursors, reply.results, strict=True)
        ]
        has_more = any(not cursor.is_over and cursor.next_offset < end for cursor, end in found)
        return (
            [cursor for cursor in _in_turn([cursor for cursor, _ in found]) if not cursor.is_over] if has_more else []
        )

    def _visible_end(self, cursor: _Cursor, result: PartitionReply) -> int:
        is_committed = self.options.isolation == "read_committed" and cursor.range.shown is None
        return result.fields.last_stable_offset if is_committed else result.fields.high_watermark

    def _request(self, cursors: Sequence[_Cursor]) -> log.FetchRequest:
        request = log.FetchRequest(
            header=self.connection.header(),
            isolation_level=isolation_level(self.options.isolation),
            max_wait_ms=self.options.wait_ms,
            max_bytes=self.options.max_bytes,
            raw=self.options.is_raw,
            accepted_encodings=ENCODINGS_READ,
        )
        for cursor in cursors:
            request.partitions.add(
                topic=cursor.range.topic,
                topic_id=cursor.range.topic_id,
                partition=cursor.range.partition,
                fetch_offset=cursor.next_offset,
                end_offset=cursor.range.end_offset,
                last_read_epoch=cursor.epoch,
                end_epoch=cursor.range.end_epoch,
                snapshot=filter_message(cursor.range.shown),
            )
        return request

    def _passing_failure(self, cursor: _Cursor, result: PartitionReply) -> TransactionError | None:
        fields = result.fields
        what = class_of(Method.FETCH, fields)
        if what is ErrorClass.NONE:
            return None
        topic, partition, end = cursor.range.topic, cursor.range.partition, cursor.range.end_offset
        place = place_of(topic, partition, cursor.next_offset)
        error = failure(fields.error_code, what, f"{Method.FETCH} {place}: {fields.error_message}")
        if error.code == ErrorCode.CORRUPT_MESSAGE and fields.next_offset > cursor.next_offset:
            corrupted = corrupt_at(topic, partition, cursor.next_offset, fields.next_offset, error)
            self._raise_or_skip(corrupted, cursor.next_offset, end)
            self._advance(cursor, corrupted.next_offset)
            # The leader epoch of the last corrupt record is unknown.
            cursor.epoch = None
            return None
        if fields.HasField("diverging"):
            error.action = (
                f"What was in {topic}-{partition} from offset {fields.diverging.end_offset} on is not in the log any "
                "more: undo what was made of it, and read again from there, up to an end that is asked for anew."
            )
        if what not in NOTHING_CHANGED:
            raise error
        return error

    def _batches(self, cursor: _Cursor, result: PartitionReply) -> Iterator[FetchedBatch]:
        topic, partition, end = cursor.range.topic, cursor.range.partition, cursor.range.end_offset
        self._note_aborted(cursor, result)
        self.hidden.aborted += result.fields.aborted_records_hidden
        self.hidden.control += result.fields.control_records_hidden
        for wire in result.batches:
            try:
                batch = checked_batch(topic, partition, wire, start_offset=cursor.next_offset, end_offset=end)
            except CorruptBatch as error:
                self._raise_or_skip(error, cursor.next_offset, end)
                self._advance(cursor, error.next_offset)
                continue
            if batch is not None:
                self._advance(cursor, batch.end_offset)
                yield batch
        self._advance(cursor, result.fields.next_offset)
        cursor.epoch, cursor.is_checked = _epoch_after(cursor, result), True

    def _advance(self, cursor: _Cursor, next_offset: int) -> None:
        cursor.next_offset = max(cursor.next_offset, next_offset)
        self.positions[cursor.range.topic, cursor.range.partition] = cursor.next_offset

    def _note_aborted(self, cursor: _Cursor, result: PartitionReply) -> None:
        for aborted in result.fields.aborted_transactions:
            self.aborted_transactions.add(
                AbortedTransaction(
                    cursor.range.topic,
                    cursor.range.partition,
                    aborted.producer_id,
                    aborted.first_offset,
                    aborted.marker_offset,
                )
            )


def filter_message(shown: SnapshotFilter | None) -> log.SnapshotFilter | None:
    """Return the view of a snapshot as a message for requests."""
    if shown is None:
        return None
    producers = shown.excluded if shown.only is None else shown.only
    compaction = None if shown.compaction is None else log.CompactionProgress(**shown.compaction._asdict())
    return log.SnapshotFilter(
        producer_ids=producers,
        first_offsets=producers.values(),
        only=shown.only is not None,
        compaction=compaction,
    )


def _epoch_after(cursor: _Cursor, result: PartitionReply) -> int | None:
    """Return the leader epoch of the last offset before the end of this answer."""
    return result.fields.last_read_epoch if result.fields.HasField("last_read_epoch") else cursor.epoch


def _in_turn(cursors: Sequence[_Cursor]) -> list[_Cursor]:
    """Return the cursors in the order of the next Fetch. The first partitions may use up the bytes of an answer, so the
    first comes last next time."""
    return [*cursors[1:], *cursors[:1]]


def _out_of_reach(cursor: _Cursor, patience_ms: int) -> TransactionError:
    place = place_of(cursor.range.topic, cursor.range.partition, cursor.next_offset)
    return failure(
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorClass.RETRY,
        f"{Method.FETCH} {place}: nothing to read came within {patience_ms} ms; the range ends at "
        f"{cursor.range.end_offset}, which an open transaction may still hold back",
    )
