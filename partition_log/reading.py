"""Reads of one partition from the store, under a view of its durable positions.

The view is one `PartitionHead`, taken once. The store may already hold later rows, and never fewer. Batches at or
beyond the view's end are not looked at. A transaction whose marker is beyond the end began at or beyond the last stable
offset, which committed reads do not reach. So data, positions and aborted transactions always fit together, without a
snapshot of the store.

Source: spec log-and-runtime 2.1 and 2.3.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from operator import attrgetter
from typing import Final

from coordinator_protocol.batch import ENCODINGS_OF_OLD_READERS, BatchHeader, Encoding, payload_of
from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.marker import control_batch, decode_marker_payload
from coordinator_protocol.snapshots import SnapshotFilter
from coordinator_protocol.wire import Buffer
from coordinator_runtime.store import Family, StoreDamaged, StoreReads
from partition_log.aborted import aborted_between, next_multiple
from partition_log.batches import LogDamaged, LogReads, batches
from partition_log.state import AbortedTransaction, Isolation, PartitionHead

BATCHES_READ_MAX: Final = 2_048
BYTES_READ_MAX: Final = 4 << 20
"""Largest number of batches, and bytes, that one call may read, hidden or not: about 5 ms of the loop's time. A reader
continues at `next_offset`."""

SEEK_COST_BATCHES: Final = 4
"""Cost of beginning with a partition, or of looking for aborted transactions, in batches."""

_ROWS_PER_BATCH: Final = 8
"""Number of rows of aborted transactions that take as long to read as a batch."""

_first_offset = attrgetter("first_offset")


@dataclass(slots=True)
class ReadBudget:
    """Remaining budget of one answer, over all its partitions. `visible_bytes` is the amount that the caller asked for;
    the rest protects other callers from it."""

    visible_bytes: int
    batches: int = BATCHES_READ_MAX
    read_bytes: int = BYTES_READ_MAX
    has_batch: bool = False
    """True once the answer has a batch. The first one is returned even if it is larger than the whole answer may be."""

    @property
    def is_spent(self) -> bool:
        return self.batches <= 0 or self.read_bytes <= 0 or (self.has_batch and self.visible_bytes <= 0)

    @property
    def work_bytes(self) -> int:
        """Work since the last renewal, in bytes that take as long to read."""
        batches, read_bytes = BATCHES_READ_MAX - self.batches, BYTES_READ_MAX - self.read_bytes
        return max(read_bytes, batches * (BYTES_READ_MAX // BATCHES_READ_MAX))

    def renew_work(self) -> None:
        """Renew the budget for another turn of the loop. The caller's own limit stays as it is."""
        self.batches, self.read_bytes = BATCHES_READ_MAX, BYTES_READ_MAX

    def narrow(self, visible_bytes: int) -> None:
        """Show no more than this from now on, apart from the first batch."""
        self.visible_bytes = min(self.visible_bytes, visible_bytes)


class NotAccepted(Refused):
    """Refusal of a batch whose encoding the reader cannot decode. It may go on at `next_offset` to do without it."""

    def __init__(self, header: BatchHeader) -> None:
        self.next_offset = header.last_offset + 1
        super().__init__(
            ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
            f"the batch at offset {header.base_offset} has the encoding {header.encoding.name}, which the reader does"
            f" not name in accepted_encodings: use a newer client, or a Kafka client, or go on at {self.next_offset} to"
            " do without it",
        )


def bound_of(head: PartitionHead, isolation: Isolation) -> int:
    """Return the offset that a read of this isolation level may not reach."""
    return head.last_stable_offset if isolation is Isolation.READ_COMMITTED else head.log_end_offset


class PartitionRead:
    """One read of one partition, which may continue when there is more to see."""

    __slots__ = (
        "_bytes_left",
        "_end_offset",
        "_is_raw",
        "_isolation",
        "_ordinal",
        "_shown",
        "_store",
        "aborted_records_hidden",
        "accepted_encodings",
        "batches",
        "control_records_hidden",
        "fetch_offset",
        "is_cut",
        "next_offset",
        "visible_bytes",
    )

    def __init__(
        self,
        store: StoreReads,
        ordinal: int,
        *,
        fetch_offset: int,
        end_offset: int | None,
        bytes_max: int,
        visibility: tuple[Isolation, bool, SnapshotFilter | None],
    ) -> None:
        self._store = store
        self._ordinal = ordinal
        self._end_offset = end_offset
        self._bytes_left = bytes_max
        # The last one is the snapshot filter of the range, which may end beyond the last stable offset.
        self._isolation, self._is_raw, self._shown = visibility
        self.accepted_encodings: frozenset[Encoding] = ENCODINGS_OF_OLD_READERS
        """Encodings of batches that may be shown."""
        self.fetch_offset = fetch_offset
        self.next_offset = fetch_offset
        self.batches: list[tuple[BatchHeader, Buffer]] = []
        self.visible_bytes = 0
        self.aborted_records_hidden = 0
        self.control_records_hidden = 0
        self.is_cut = False
        """True if a limit ended the read, not the end of the visible records."""

    def use(self, store: StoreReads) -> None:
        """Read from this view of the store from now on."""
        self._store = store

    def afresh(self) -> PartitionRead:
        """Return the same read at its beginning, with nothing found."""
        again = PartitionRead(
            self._store,
            self._ordinal,
            fetch_offset=self.fetch_offset,
            end_offset=self._end_offset,
            bytes_max=self._bytes_left + self.visible_bytes,
            visibility=(self._isolation, self._is_raw, self._shown),
        )
        again.accepted_encodings = self.accepted_encodings
        return again

    def is_complete(self) -> bool:
        """True if the reader named an end, and the read has reached it."""
        return self._end_offset is not None and self.next_offset >= self._end_offset

    def is_at_end(self, head: PartitionHead) -> bool:
        """True if `advance` would look at no batch."""
        bound = bound_of(head, self._isolation) if self._shown is None else head.log_end_offset
        return self.next_offset >= bound or self.is_complete()

    def advance(self, head: PartitionHead, budget: ReadBudget) -> None:
        """Read on from `next_offset`, as far as view and budget allow. A read ends before damage, and before a batch
        that the reader cannot decode. One that begins there raises LogDamaged, StoreUnreadable or NotAccepted: then
        there is nothing to show."""
        bound = bound_of(head, self._isolation) if self._shown is None else head.log_end_offset
        if self.next_offset >= bound or self.is_complete():
            return
        if budget.is_spent or (self.batches and self._bytes_left <= 0):
            self.is_cut = True
            return
        budget.batches -= SEEK_COST_BATCHES
        try:
            self._read_to(bound, head, budget)
        except LogDamaged:
            if self.next_offset == self.fetch_offset:
                raise
            self.is_cut = True

    def _read_to(self, bound: int, head: PartitionHead, budget: ReadBudget) -> None:
        aborted = None
        hides_aborted = self._isolation is Isolation.READ_COMMITTED and not self._is_raw
        if hides_aborted and head.last_abort_offset >= self.next_offset:
            aborted = AbortedIndex(self._store, self._ordinal, head, budget)
        for header, encoded in batches(self._store, self._ordinal, self.next_offset, bound):
            if self._end_offset is not None and header.base_offset >= self._end_offset:
                self.next_offset = self._end_offset
                return
            took = self._take(header, encoded, aborted, budget)
            if not took or budget.batches <= 0 or budget.read_bytes <= 0:
                self.is_cut = True
                return
            if self.is_complete():
                return
        # Everything below the bound was seen, even where offsets are missing.
        self.next_offset = bound if self._end_offset is None else min(bound, self._end_offset)

    def aborted_transactions(self, head: PartitionHead) -> tuple[AbortedTransaction, ...]:
        """Return the aborted transactions, under the view, with records among those that a raw read was shown, by first
        offset. Raises LogDamaged, StoreUnreadable."""
        if not self._is_raw:
            return ()
        producers = {
            header.producer_id for header, _encoded in self.batches if header.is_transactional and not header.is_control
        }
        if not producers or head.last_abort_offset < self.fetch_offset:
            return ()
        shown = (self.fetch_offset, self.next_offset)
        try:
            rows = aborted_between(self._store, self._ordinal, *shown, head.last_abort_offset)
            found = [aborted for aborted in rows if aborted.producer_id in producers]
        except StoreDamaged as damage:
            raise _outcome_unknown(self.batches[0][0], damage) from damage
        return tuple(sorted(found, key=_first_offset))

    def _take(self, header: BatchHeader, encoded: Buffer, aborted: AbortedIndex | None, budget: ReadBudget) -> bool:
        """Show or hide one batch and move behind it. Return False if it exceeds a limit."""
        size = len(encoded)
        if self._shown is not None and self._shown.hides(
            header.producer_id, header.base_offset, is_transactional=header.is_transactional
        ):
            self._pass(header, size, budget)
            return True
        # The cheapest test comes first, because most batches are neither.
        if header.is_control and self._is_raw:
            encoded = _whole_marker(header, encoded)
            size = len(encoded)
        elif header.is_transactional and not self._is_raw:
            if header.is_control:
                self.control_records_hidden += self._hide(header, size, budget)
                return True
            if aborted is not None and aborted.hides(header):
                self.aborted_records_hidden += self._hide(header, size, budget)
                return True
        if (budget.has_batch and size > budget.visible_bytes) or (self.batches and size > self._bytes_left):
            return False
        if header.encoding not in self.accepted_encodings:
            if self.batches:
                return False
            raise NotAccepted(header)
        budget.has_batch = True
        budget.visible_bytes -= size
        self._bytes_left -= size
        self.batches.append((header, encoded))
        self.visible_bytes += size
        self._pass(header, size, budget)
        return True

    def _hide(self, header: BatchHeader, size: int, budget: ReadBudget) -> int:
        """Continue behind a batch that is not shown. Return the number of its records in the range. This is an upper
        bound if only a part of a batch with holes lies in it."""
        start = self.next_offset
        self._pass(header, size, budget)
        return header.records_between(start, self.next_offset)

    def _pass(self, header: BatchHeader, size: int, budget: ReadBudget) -> None:
        """Continue behind the batch, or at the end of the range."""
        end = header.last_offset + 1
        if self._end_offset is not None and end > self._end_offset:
            end = self._end_offset
        self.next_offset = end
        budget.batches -= 1
        budget.read_bytes -= size


class AbortedIndex:
    """Index that finds out whether batches belong to aborted transactions. Batches must come in ascending order of
    their offsets. It reads the rows of one stride at a time."""

    __slots__ = ("_ahead", "_budget", "_head", "_known_to", "_ordinal", "_store")

    def __init__(self, store: LogReads | None, ordinal: int, head: PartitionHead, budget: ReadBudget) -> None:
        """`store`: the view to read; None if `use` names it first."""
        self._store = store
        self._ordinal = ordinal
        self._head = head
        self._budget = budget
        self._known_to = 0
        """End of the offsets whose aborted transactions are known. They begin with the last batch that was asked
        for."""
        self._ahead: dict[int, list[AbortedTransaction]] = {}
        """Aborted transactions by producer that end after the last batch asked for; the next one is last in its
        list."""

    def use(self, store: LogReads) -> None:
        """Read from this view of the store from now on."""
        self._store = store

    def hides(self, batch: BatchHeader) -> bool:
        """True if the batch belongs to an aborted transaction. Raises LogDamaged if that cannot be read: a guess might
        show an aborted record, or hide a committed one."""
        # Rows before the log start may be removed, including those of aborted transactions. So a batch that begins
        # before it counts from there.
        offset = max(batch.base_offset, self._head.log_start_offset)
        if offset > self._head.last_abort_offset:
            return False
        if offset >= self._known_to:
            self._look(batch, offset)
        ahead = self._ahead.get(batch.producer_id)
        if ahead is None:
            return False
        while ahead and ahead[-1].marker_offset < offset:
            ahead.pop()
        return bool(ahead) and ahead[-1].first_offset <= offset

    def _look(self, batch: BatchHeader, offset: int) -> None:
        assert self._store is not None, "the view was named before the first question"
        budget = self._budget
        known_to, rows, ahead = next_multiple(offset), 0, defaultdict(list)
        try:
            for found in aborted_between(self._store, self._ordinal, offset, known_to, self._head.last_abort_offset):
                ahead[found.producer_id].append(found)
                rows += 1
        except StoreDamaged as damage:
            raise _outcome_unknown(batch, damage) from damage
        for of_producer in ahead.values():
            of_producer.reverse()
        self._known_to, self._ahead = known_to, dict(ahead)
        # However many rows there are, half of the budget remains. Otherwise a reader would come back to the same rows
        # for every batch.
        budget.batches -= SEEK_COST_BATCHES + min(rows // _ROWS_PER_BATCH, budget.batches // 2)


def _outcome_unknown(batch: BatchHeader, damage: StoreDamaged) -> LogDamaged:
    reason = f"whether its transaction was aborted cannot be read: {damage}"
    return LogDamaged(Family.ABORTED, batch.base_offset, batch.last_offset + 1, reason)


def _whole_marker(header: BatchHeader, stored: Buffer) -> Buffer:
    """Return a marker as a batch, whichever form it is stored in. Raises LogDamaged for one that cannot be read."""
    try:
        encoded = control_batch(header, stored)
        decode_marker_payload(payload_of(encoded))
        return encoded
    except Refused as damage:
        raise LogDamaged(Family.LOG, header.base_offset, header.last_offset + 1, damage.message) from damage


def oldest_unread_ms(
    store: StoreReads, ordinal: int, head: PartitionHead, offset: int, isolation: Isolation, budget: ReadBudget
) -> int | None:
    """Return the timestamp of the first batch that a reader at the offset would be shown under the view; None if there
    is none.

    If many hidden batches spend the budget, it is the timestamp of the last one looked at. Later batches were written
    later, so the true age is not greater. Raises LogDamaged, StoreUnreadable."""
    start, end = max(offset, head.log_start_offset), bound_of(head, isolation)
    if start >= end:
        return None
    budget.batches -= SEEK_COST_BATCHES
    aborted = AbortedIndex(store, ordinal, head, budget)
    is_committed = isolation is Isolation.READ_COMMITTED
    for header, encoded in batches(store, ordinal, start, end, headers_only=True):
        is_hidden = header.is_control or (is_committed and header.is_transactional and aborted.hides(header))
        budget.batches -= 1
        budget.read_bytes -= len(encoded)
        if not is_hidden or budget.is_spent:
            return header.max_timestamp_ms
    return None
