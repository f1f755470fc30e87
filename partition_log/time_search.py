"""Search by time: the first record in the order of offsets whose timestamp is at least the one asked for.

This is Kafka's rule, for timestamps in any order. A record counts if it is visible to a reader of the asked isolation
level. Markers never are. For `read_committed`, records of aborted transactions do not count either, nor records at or
behind the last stable offset. (Kafka also answers with records of aborted transactions; its readers then begin with an
older record.)

Headers lead to the batch. Index entries show the section of the log that may hold such a record. The largest timestamp
in each header shows whether its batch may. That batch is opened. The loop opens a small one without
compression. The worker, another process, opens compressed and large ones, one at a time. A search that waits for its
turn holds no payload. A batch may be impossible to open: it is damaged, or no reader can decode its payload (topics
with `validate_payload=header` take such batches). It is then the answer as a whole, with its first offset and its
largest timestamp, so that no record is skipped.

A long search continues in later turns of the loop, side by side with others. It looks at the partition anew each time,
but never behind the end that it began with.

Where reads may wait, threads look. A search that met a batch for the worker while that is busy gives the batch back,
and reads it again when its turn comes. If the log start has moved while a thread read, the search begins again, because
rows may have been missing.

Source: KIP-79; spec log-and-runtime 2.1.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import Final

from msgspec import Struct

from coordinator_protocol.batch import (
    NO_TIMESTAMP_MS,
    BatchHeader,
    Compression,
    Encoding,
    TimestampType,
    payload_of,
    stored_bytes,
)
from coordinator_protocol.limits import KIBI
from coordinator_protocol.wire import Buffer
from coordinator_runtime.pending import Pending
from coordinator_runtime.runtime import Runtime
from coordinator_runtime.store import StoreReads
from coordinator_runtime.store_readers import StoreReader
from coordinator_runtime.worker import Worker
from partition_log.batch_checks import RECORDS_HERE_MAX, UNPACKED_HERE_BYTES_MAX
from partition_log.batches import LogDamaged, batches
from partition_log.reading import AbortedIndex, ReadBudget
from partition_log.record_times import NotOpened, Sought, first_since, sought
from partition_log.state import NO_OFFSET, Isolation, PartitionHead
from partition_log.stretches import first_that

Place = tuple[int, int]
"""Offset and timestamp of a record."""

Look = Callable[[Sought], tuple[int, int] | None]
"""Finds a record in a payload: `first_since` or `newest_since`, for another process."""

NOWHERE: Final = (NO_OFFSET, NO_TIMESTAMP_MS)
"""Reply if no record is that new."""

_TURN_PAUSE_MS: Final = 1
"""Least pause between two turns of searches, which leaves the loop to others."""

HALVING_COST_BATCHES: Final = 64
"""Cost of finding the first index entry, in batches."""

_OPENING_COST: Final = 16
"""Cost of parsing a byte of a payload, in bytes read."""


KAFKA_HERE_BYTES_MAX: Final = 16 * KIBI
"""Largest batch of Kafka's that is opened on the loop. Its records are read one by one, in Python. This many bytes are
at most 2,300 records, and take 1.6 ms."""


class Pause(Enum):
    """Reason for the pause of a search."""

    SPENT = "spent"
    """The search has used up the turn."""
    WAITS = "waits"
    """The search has met a batch that the worker must open, while the worker opens another one."""


class Opening(Struct, frozen=True):
    """A batch to be opened by the worker."""

    header: BatchHeader
    first_offset: int
    """First offset of the batch that counts."""
    look: Look
    asked: Sought


class Search(ABC):
    """Base class of searches in one partition. A search continues where it stopped."""

    __slots__ = ("_bound", "_isolation", "_look", "_ordinal", "_store", "_timestamp_ms")

    def __init__(self, ordinal: int, timestamp_ms: int, *, bound: int, isolation: Isolation, look: Look) -> None:
        """Prepare a search. `bound`: the offset behind the last one that may be the answer."""
        self._ordinal = ordinal
        self._timestamp_ms = timestamp_ms
        self._bound = bound
        self._isolation = isolation
        self._look = look

    def advance(
        self, rows: StoreReads, head: PartitionHead, budget: ReadBudget, *, is_worker_free: bool
    ) -> Place | Opening | Pause:
        """Continue the search, on any thread. Raises LogDamaged, StoreUnreadable, UnknownRow."""
        self._store = rows
        return self._advance(head, budget, is_worker_free=is_worker_free)

    @abstractmethod
    def _advance(self, head: PartitionHead, budget: ReadBudget, *, is_worker_free: bool) -> Place | Opening | Pause:
        """Continue the search in the rows of `advance`."""

    @abstractmethod
    def resume(self, opening: Opening, found: Place | None, head: PartitionHead) -> Place | None:
        """Return the place that the worker found; None if the search must continue."""

    @abstractmethod
    def put_back(self, opening: Opening) -> None:
        """Meet the batch once more, because the worker cannot open it now."""

    @abstractmethod
    def restart(self) -> None:
        """Begin again: what was found does not count."""

    def _aborted(self, head: PartitionHead, start: int, budget: ReadBudget) -> AbortedIndex | None:
        """Return the index of aborted transactions from an offset on; None if none of them is hidden there."""
        if self._isolation is Isolation.READ_COMMITTED and head.last_abort_offset >= start:
            return AbortedIndex(self._store, self._ordinal, head, budget)
        return None

    def _opened(
        self, header: BatchHeader, encoded: Buffer, head: PartitionHead, budget: ReadBudget
    ) -> Place | Opening | None:
        """Return the record in a batch that is looked for, or None if there is none. Return the batch if the worker
        must open it."""
        first_offset = max(header.base_offset, head.log_start_offset)
        if header.timestamp_type is not TimestampType.CREATE_TIME:
            return first_offset, header.max_timestamp_ms
        try:
            payload = self._payload(header, encoded)
        except LogDamaged:
            # The damage is reported to the reader that fetches the batch.
            return first_offset, header.max_timestamp_ms
        asked = sought(header, payload, first_offset - header.base_offset, self._timestamp_ms)
        opening = Opening(header, first_offset, self._look, asked)
        if is_for_worker(header, encoded):
            return opening
        budget.read_bytes -= _OPENING_COST * len(payload)
        try:
            return place_of(opening, self._look(asked))
        except NotOpened:
            return first_offset, header.max_timestamp_ms

    def _payload(self, header: BatchHeader, encoded: Buffer) -> Buffer:
        """Return the payload of a batch. Raises LogDamaged, StoreUnreadable."""
        if len(encoded) == stored_bytes(encoded):
            return payload_of(encoded)
        # Only the header was read, because the payload lies in a segment.
        for _header, whole in batches(self._store, self._ordinal, header.base_offset, self._bound):
            return payload_of(whole)
        raise AssertionError("a batch is there as long as its view of the store")


class TimeSearch(Search):
    """A search for the first record from a time on."""

    __slots__ = ("_next_offset",)

    def __init__(self, ordinal: int, timestamp_ms: int, *, bound: int, isolation: Isolation) -> None:
        super().__init__(ordinal, timestamp_ms, bound=bound, isolation=isolation, look=first_since)
        self._next_offset: int | None = None
        """Offset to continue at; None before the beginning."""

    def _advance(self, head: PartitionHead, budget: ReadBudget, *, is_worker_free: bool) -> Place | Opening | Pause:
        start = self._start(head, budget) if self._next_offset is None else self._next_offset
        start = max(start, head.log_start_offset)
        if start >= self._bound:
            return NOWHERE
        aborted = self._aborted(head, start, budget)
        for header, encoded in batches(self._store, self._ordinal, start, self._bound, headers_only=True):
            self._next_offset = header.last_offset + 1
            budget.batches -= 1
            budget.read_bytes -= len(encoded)
            if self._may_hold_it(header, aborted):
                if not is_worker_free and is_for_worker(header, encoded):
                    self._next_offset = header.base_offset
                    return Pause.WAITS
                found = self._opened(header, encoded, head, budget)
                if found is not None:
                    return found
            if budget.is_spent:
                return Pause.SPENT
        return NOWHERE

    def resume(self, opening: Opening, found: Place | None, head: PartitionHead) -> Place | None:
        # If the records there were deleted meanwhile, it continues from the log start, which may be in the same batch.
        if found is None:
            return None
        if found[0] >= head.log_start_offset:
            return found
        self._next_offset = min(head.log_start_offset, opening.header.last_offset + 1)
        return None

    def put_back(self, opening: Opening) -> None:
        self._next_offset = opening.header.base_offset

    def restart(self) -> None:
        self._next_offset = None

    def _start(self, head: PartitionHead, budget: ReadBudget) -> int:
        """Return the first offset of the first index entry that reaches the time; the bound if none does."""
        index, timestamp_ms = head.index, self._timestamp_ms
        if index.max_timestamp_ms < timestamp_ms:
            return self._bound
        budget.batches -= HALVING_COST_BATCHES
        # Timestamps of index entries are running maxima, so the first entry that reaches the time holds the first such
        # batch.
        finished = (head.log_start_offset, index.first_offset)
        stretch = first_that(self._store, self._ordinal, finished, lambda found: found.max_timestamp_ms >= timestamp_ms)
        return index.first_offset if stretch is None else stretch.first_offset

    def _may_hold_it(self, header: BatchHeader, aborted: AbortedIndex | None) -> bool:
        return header.max_timestamp_ms >= self._timestamp_ms and is_shown(header, aborted)


def is_shown(header: BatchHeader, aborted: AbortedIndex | None) -> bool:
    """True if readers are shown the records of a batch. `aborted` has the aborted transactions that are hidden."""
    if header.is_control:
        return False
    return aborted is None or not header.is_transactional or not aborted.hides(header)


def is_for_worker(header: BatchHeader, encoded: Buffer) -> bool:
    """True if opening a batch may take longer than the loop can spare. At least its header was read."""
    bytes_max = KAFKA_HERE_BYTES_MAX if header.encoding is Encoding.KAFKA_V2 else UNPACKED_HERE_BYTES_MAX
    return (
        header.compression is not Compression.NONE
        or stored_bytes(encoded) > bytes_max
        or header.record_count > RECORDS_HERE_MAX
    )


def place_of(opening: Opening, found: tuple[int, int] | None) -> Place | None:
    """Return offset and timestamp of a record that was found in a batch."""
    return None if found is None else (opening.header.base_offset + found[0], found[1])


class _AskedTime:
    """A search whose caller waits."""

    __slots__ = ("look", "reply", "search")

    def __init__(self, search: Search, look: Callable[[], PartitionHead]) -> None:
        self.search = search
        self.look = look
        self.reply: Pending[Place] = Pending()
        self.reply.on_cancel = self.reply.give_up


class TimeSearches:
    """All searches of a server that are not finished."""

    def __init__(self, runtime: Runtime, reader: StoreReader, worker: Worker) -> None:
        self._runtime = runtime
        self._reader = reader
        self._worker = worker
        self._ready: deque[_AskedTime] = deque()
        """Searches that continue in the next turn, in this order."""
        self._waiting: deque[_AskedTime] = deque()
        """Searches that continue once the worker is free."""
        self._user: _AskedTime | None = None
        """The search for which the worker opens a batch, or to which it is kept; None if the worker is free."""
        self._is_turn_due = False
        self.on_work: Callable[[int], None] = lambda _work_bytes: None
        """Receives the cost of a later turn, as `Fetcher.on_work` does."""

    def find(
        self, search: Search, head: PartitionHead, look: Callable[[], PartitionHead], budget: ReadBudget
    ) -> Pending[Place]:
        """Search, at once as far as the budget allows. `look` returns the later state of the partition, and raises
        Refused once the caller may not look there any more.

        The reply is NOWHERE if no record is that new. Errors: those that `look` raises; LogDamaged, StoreUnreadable;
        WorkerLost."""
        asked = _AskedTime(search, look)
        if budget.is_spent:
            self._later(asked)
        else:
            self._step(asked, budget, head)
        return asked.reply

    def _step(self, asked: _AskedTime, budget: ReadBudget, head: PartitionHead | None = None) -> None:
        try:
            head = asked.look() if head is None else head
        except Exception as refusal:  # noqa: BLE001  the error is the reply
            if self._user is asked:
                self._user = None
            asked.reply.fail(refusal)
            return
        if self._reader.is_apart:
            # Threads cannot share a budget, and the turn of the loop spends nothing.
            budget = ReadBudget(visible_bytes=0)
        is_worker_free = self._user is None or self._user is asked
        advance = partial(_advance, asked.search, head, budget, is_worker_free)
        self._reader.read(advance).on_settled(partial(self._on_step, asked, head, budget))

    def _on_step(
        self, asked: _AskedTime, head: PartitionHead, budget: ReadBudget, outcome: Pending[Place | Opening | Pause]
    ) -> None:
        has_worker, is_apart = self._user is asked, self._reader.is_apart
        if has_worker:
            self._user = None
        if is_apart:
            self.on_work(budget.work_bytes)
        if not asked.reply.is_settled and not (is_apart and self._has_moved(asked, head, budget)):
            self._take(asked, budget, outcome)
        if has_worker or is_apart:
            self._use_worker(ReadBudget(visible_bytes=0))

    def _has_moved(self, asked: _AskedTime, head: PartitionHead, budget: ReadBudget) -> bool:
        """Return True if the caller may look no more, or the search must begin again; that is then done."""
        try:
            present = asked.look()
        except Exception as refusal:  # noqa: BLE001  as above
            asked.reply.fail(refusal)
            return True
        if present.log_start_offset <= head.log_start_offset:
            return False
        asked.search.restart()
        self._step(asked, budget, present)
        return True

    def _take(self, asked: _AskedTime, budget: ReadBudget, outcome: Pending[Place | Opening | Pause]) -> None:
        """Take what a step has found."""
        if outcome.error is not None:
            asked.reply.fail(outcome.error)
            return
        found = outcome.result()
        if isinstance(found, Opening):
            if self._user is None:
                self._user = asked
                self._worker.run(found.look, found.asked).on_settled(partial(self._on_opened, asked, found))
            else:
                # Another search was first, while a thread read for this one.
                asked.search.put_back(found)
                self._waiting.append(asked)
        elif found is Pause.SPENT:
            self._later(asked)
        elif found is Pause.WAITS:
            self._waiting.append(asked)
        else:
            asked.reply.succeed(found)

    def _on_opened(self, asked: _AskedTime, opening: Opening, opened: Pending[tuple[int, int] | None]) -> None:
        self._user = None
        budget = ReadBudget(visible_bytes=0)
        if not asked.reply.is_settled:
            self._go_on(asked, opening, opened, budget)
        self._use_worker(budget)
        if not self._reader.is_apart:
            self.on_work(budget.work_bytes)

    def _use_worker(self, budget: ReadBudget) -> None:
        """Let waiting searches continue, until one of them has the worker."""
        while self._waiting and self._user is None:
            following = self._waiting.popleft()
            if following.reply.is_settled:
                continue
            if budget.is_spent:
                self._later(following)
                continue
            if self._reader.is_apart:
                self._user = following
            self._step(following, budget)

    def _go_on(
        self, asked: _AskedTime, opening: Opening, opened: Pending[tuple[int, int] | None], budget: ReadBudget
    ) -> None:
        error, found = opened.error, None
        if isinstance(error, NotOpened):
            found = opening.first_offset, opening.header.max_timestamp_ms
        elif error is not None:
            asked.reply.fail(error)
            return
        else:
            found = place_of(opening, opened.result())
        try:
            head = asked.look()
        except Exception as refusal:  # noqa: BLE001  as above
            asked.reply.fail(refusal)
            return
        found = asked.search.resume(opening, found, head)
        if found is None:
            self._step(asked, budget, head)
        else:
            asked.reply.succeed(found)

    def _later(self, asked: _AskedTime) -> None:
        self._ready.append(asked)
        self._arm()

    def _arm(self) -> None:
        if self._ready and not self._is_turn_due:
            self._is_turn_due = True
            self._runtime.arm(("time_search",), _TURN_PAUSE_MS, self._turn)

    def _turn(self) -> None:
        self._is_turn_due = False
        budget = ReadBudget(visible_bytes=0)
        for _each in range(len(self._ready)):
            if budget.is_spent:
                break
            asked = self._ready.popleft()
            if not asked.reply.is_settled:
                self._step(asked, budget)
        self.on_work(budget.work_bytes)
        self._arm()


def _advance(
    search: Search, head: PartitionHead, budget: ReadBudget, is_worker_free: bool, rows: StoreReads
) -> Place | Opening | Pause:
    return search.advance(rows, head, budget, is_worker_free=is_worker_free)
