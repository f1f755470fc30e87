"""Fetch: read now, or wait until there is something to read.

A fetch that waits keeps the batches that it has found. When the durable end of one of its partitions moves, it reads on
from there, so a wait costs only the new part. It is answered when enough is visible, when a limit or the end of a range
is reached, or when a partition is in error. At the latest, it is answered when its time is over. A caller that leaves
ends its wait.

The batches that a waiting fetch has found need memory, as an answer does that its caller has not taken yet. They count
like one. If there is no capacity for more when the fetch is woken, it is refused and does not read. The
server's gatekeeper makes the same check before a fetch begins. If capacity is scarce, the fetch reads less than was
asked for, and its reader continues with the next one.

Where reads may wait (`coordinator_runtime.store_readers`), every fetch waits from its beginning, while a thread reads
for it. Changes that come meanwhile are looked at when the thread is done. If records were removed meanwhile that it may
have read, what it found is dropped, and the read begins again.

Readers get a refusal for damage. Logs and metrics get one event for each damaged place, however often it is read.

Source: spec log-and-runtime 2.1 and 2.3; KIP-98, KIP-392 (long poll of Kafka).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_runtime.decision import ShardKey
from coordinator_runtime.pending import Pending, settled
from coordinator_runtime.ports import NO_ANSWER_LIMIT, AnswerLimit, Connection, PartitionRef
from coordinator_runtime.runtime import Runtime
from coordinator_runtime.store import Family, Store, StoreDamaged, StoreReads, StoreUnreadable
from coordinator_runtime.store_readers import StoreReader
from partition_log.batches import LogDamaged
from partition_log.catalog.shard import unresolved
from partition_log.catalog.state import PlacedPartition
from partition_log.fetch_conversion import Converter, converted
from partition_log.leadership import check_leader_epochs, check_range, epoch_at
from partition_log.reading import NotAccepted, PartitionRead, ReadBudget
from partition_log.records import DamageFound, RecordsRead
from partition_log.requests import Fetch, FetchItem, FetchResult
from partition_log.shard import LogShard
from partition_log.state import AbortedTransaction, Isolation, PartitionHead

PLACES_TOLD_MAX: Final = 10_000
"""Largest number of damaged places that are reported. With more, the disk is lost, and that has been reported."""


class DamageWatch:
    """Turns damage into the refusal for the reader, and reports every new place to `on_found`."""

    def __init__(self) -> None:
        self._told: set[tuple[int, Family, int | bytes | None]] = set()
        self.on_found: Callable[[DamageFound], None] = lambda _event: None

    def met(self, ref: PartitionRef, met: LogDamaged | StoreUnreadable) -> Refused:
        """Return the refusal for a read of a partition that failed.

        CORRUPT_MESSAGE: the stored bytes are damaged, and reading them again cannot help.
        UNSUPPORTED_FOR_MESSAGE_FORMAT: the batch is whole, and of a newer version. UNKNOWN_SERVER_ERROR: the bytes
        could not be read now, and may be whole."""
        name = f"{ref.topic}-{ref.partition}"
        match met:
            case LogDamaged(code=ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT as code, offset=offset, reason=reason):
                return Refused(
                    code,
                    f"{name} has a batch at offset {offset} whose {reason} of the server: start the one that wrote it, "
                    f"or a later one, or go on at {met.next_offset} to do without it",
                )
            case LogDamaged(family=family, offset=offset, next_offset=next_offset, reason=reason):
                self._tell(ref, family, offset, next_offset, reason)
                return Refused(
                    ErrorCode.CORRUPT_MESSAGE,
                    f"{name} is damaged at offset {offset}: {reason}. Go on at {next_offset} to do without what lies "
                    "before it, or restore a backup",
                )
            case StoreDamaged(family=family, key=key):
                self._tell(ref, family, key, None, str(met))
                return Refused(
                    ErrorCode.CORRUPT_MESSAGE,
                    f"the index {family.name} of {name} is damaged: {met}. Records can still be fetched; restore a "
                    "backup to search and count them",
                )
        return Refused(ErrorCode.UNKNOWN_SERVER_ERROR, f"{name}: {met}; try again")

    def _tell(
        self, ref: PartitionRef, family: Family, place: int | bytes | None, next_offset: int | None, reason: str
    ) -> None:
        at = (ref.ordinal, family, place)
        if at not in self._told and len(self._told) < PLACES_TOLD_MAX:
            self._told.add(at)
            offset = place if isinstance(place, int) else None
            self.on_found(DamageFound(ref.topic, ref.partition, family, offset, next_offset, reason))


class _Position:
    """State of one partition of a fetch."""

    __slots__ = ("aborted", "error", "head", "item", "next_offset", "placed", "read")

    def __init__(self, item: FetchItem, placed: PlacedPartition, read: PartitionRead) -> None:
        self.item = item
        self.placed = placed
        self.read = read
        self.head: PartitionHead | None = None
        self.error: Refused | None = None
        self.aborted: tuple[AbortedTransaction, ...] | None = None
        """Aborted transactions that a thread has read for the answer; None where the answer reads them itself."""
        self.next_offset = read.fetch_offset
        """Offset at which a reader that met the error may continue."""

    def met(self, damage: LogDamaged | StoreUnreadable, watch: DamageWatch) -> None:
        """Note an error of this partition alone."""
        self.error = watch.met(self.placed.ref, damage)
        if isinstance(damage, LogDamaged):
            self.next_offset = damage.next_offset

    def begin_again(self) -> None:
        """Drop what was found, because rows of it may be missing."""
        self.read, self.head, self.aborted = self.read.afresh(), None, None

    def failed(self, error: Exception, watch: DamageWatch) -> None:
        """Note an error that a read of this partition met. Raises it again if it is not of this partition alone."""
        match error:
            case Refused():
                self.error = error
                if isinstance(error, NotAccepted):
                    self.next_offset = error.next_offset
            case LogDamaged() | StoreUnreadable():
                self.met(error, watch)
            case _:
                raise error

    def result(self, watch: DamageWatch) -> FetchResult:
        read, head = self.read, self.head
        aborted = self.aborted or ()
        if self.error is None and head is not None and self.aborted is None:
            try:
                aborted = read.aborted_transactions(head)
            except (LogDamaged, StoreUnreadable) as damage:
                self.met(damage, watch)
        if self.error is not None or head is None:
            return FetchResult(self.placed.name, self.next_offset, head, error=self.error)
        next_offset, last_read_epoch = read.next_offset, self.item.last_read_epoch
        if next_offset != self.item.fetch_offset:
            last_read_epoch = epoch_at(head.leadership, next_offset - 1)
        return FetchResult(
            self.placed.name,
            next_offset,
            head,
            tuple(read.batches),
            read.aborted_records_hidden,
            read.control_records_hidden,
            aborted,
            last_read_epoch=last_read_epoch,
        )


class _Fetch:
    """A fetch in progress."""

    __slots__ = (
        "budget",
        "connection",
        "found_bytes",
        "held_bytes",
        "is_due",
        "is_outdated",
        "is_reading",
        "key",
        "positions",
        "refused",
        "reply",
        "request",
    )

    def __init__(self, request: Fetch, key: int, connection: Connection) -> None:
        self.request = request
        self.connection = connection
        self.found_bytes = 0
        """Size of the batches that it has found (bytes)."""
        self.held_bytes = 0
        """Bytes of `found_bytes` that are counted as a waiting answer."""
        self.is_reading = False
        """True while a thread reads for it. It is neither answered nor read on then."""
        self.is_outdated = False
        """True if something has changed since the thread began."""
        self.is_due = False
        """True if its time was over before the thread was done."""
        self.key = ("fetch", key)
        self.budget = ReadBudget(request.bytes_max)
        self.positions: list[_Position] = []
        self.refused: list[tuple[int, FetchResult]] = []
        """Results for partitions that were refused from the start, with their places in the request."""
        self.reply: Pending[list[FetchResult]] = Pending()

    def is_satisfied(self) -> bool:
        if self.refused or not self.positions or self.budget.is_spent or self.request.wait_ms_max == 0:
            return True
        visible_bytes = 0
        for position in self.positions:
            read = position.read
            if position.error is not None or read.is_cut or read.is_complete():
                return True
            visible_bytes += read.visible_bytes
        return visible_bytes >= self.request.bytes_min


@dataclass(frozen=True, slots=True)
class _PartitionStep:
    """One partition that a thread reads for a fetch."""

    position: _Position
    head: PartitionHead
    """The view to read under."""


@dataclass(slots=True)
class _Watch:
    """Fetches that wait for a partition, and the positions that they have seen."""

    head: PartitionHead | None
    fetches: dict[_Fetch, None] = field(default_factory=dict)


class Fetcher:
    """All fetches of a server, including those that wait."""

    def __init__(self, runtime: Runtime, store: Store) -> None:
        self._runtime = runtime
        self._store = store
        self._watches: dict[ShardKey, dict[int, _Watch]] = {}
        self._fetch_count = 0
        self.damage = DamageWatch()
        self.waiting_fetches = 0
        self.answer_limit: AnswerLimit = NO_ANSWER_LIMIT
        """Counts the bytes that are found while their fetch waits."""
        self.reader: StoreReader | None = None
        """Reads for fetches on threads; None = they read at once, on the loop's."""
        self.converter: Converter | None = None
        """Converts batches for readers that cannot decode them; None = they are refused."""
        self.on_read: Callable[[RecordsRead], None] = lambda _event: None
        """Receives the numbers of records that every answer showed and hid."""
        self.on_work: Callable[[int], None] = lambda _work_bytes: None
        """Receives the cost of reading, in bytes that take as long to read (`ReadBudget.work_bytes`)."""

    def fetch(
        self, request: Fetch, found: Sequence[PlacedPartition | Refused], connection: Connection = ""
    ) -> Pending[list[FetchResult]]:
        """Return one result per item, in the order asked, from the partitions that were found for them. The module
        docstring says when the answer comes.

        Raises Refused INVALID_REQUEST for negative numbers, and for an end epoch or a snapshot that does not fit the
        rest. The Pending may be refused with THROTTLING_QUOTA_EXCEEDED, if there is no capacity for more when it is
        woken."""
        _check(request)
        self._fetch_count += 1
        fetch = _Fetch(request, self._fetch_count, connection)
        accepted = request.accepted_encodings
        if self.converter is not None:
            accepted = self.converter.readable(accepted)
        for index, (item, placed) in enumerate(zip(request.items, found, strict=True)):
            if isinstance(placed, Refused):
                fetch.refused.append((index, FetchResult(item.name, item.fetch_offset, error=placed)))
                continue
            read = PartitionRead(
                self._store,
                placed.ref.ordinal,
                fetch_offset=item.fetch_offset,
                end_offset=item.end_offset,
                bytes_max=item.partition_bytes_max or request.bytes_max,
                visibility=(request.isolation, request.is_raw, item.shown),
            )
            read.accepted_encodings = accepted
            fetch.positions.append(_Position(item, placed, read))
        if self.reader is not None:
            self._wait(fetch)
            self._read_apart(fetch, self.reader)
            return fetch.reply
        self._advance(fetch)
        if fetch.is_satisfied():
            return self._converted(fetch)
        self._wait(fetch)
        return fetch.reply

    def _advance(self, fetch: _Fetch) -> None:
        """Read on in every partition with something new, within the capacity for answers."""
        fetch.budget.renew_work()
        if self.answer_limit.is_scarce:
            fetch.budget.narrow(self.answer_limit.allowance_bytes(fetch.connection))
        found_bytes = 0
        for position in fetch.positions:
            if position.error is None:
                try:
                    head = self._news(position)
                    if head is not None:
                        position.read.advance(head, fetch.budget)
                except (Refused, LogDamaged, StoreUnreadable) as error:
                    position.failed(error, self.damage)
            found_bytes += position.read.visible_bytes
        fetch.found_bytes = found_bytes
        self.on_work(fetch.budget.work_bytes)

    def _read_apart(self, fetch: _Fetch, reader: StoreReader) -> None:
        """Read on in every partition with something new, on a thread."""
        fetch.budget.renew_work()
        if self.answer_limit.is_scarce:
            fetch.budget.narrow(self.answer_limit.allowance_bytes(fetch.connection))
        fetch.is_outdated = False
        steps: list[_PartitionStep] = []
        for position in fetch.positions:
            if position.error is None:
                try:
                    head = self._news(position)
                except Refused as refusal:
                    position.error = refusal
                else:
                    if head is not None and not position.read.is_at_end(head):
                        steps.append(_PartitionStep(position, head))
        if not steps:
            self._go_on(fetch)
            return
        fetch.is_reading = True
        reader.read(partial(_advance_all, steps, fetch.budget)).on_settled(partial(self._on_read, fetch, steps))

    def _on_read(
        self, fetch: _Fetch, steps: Sequence[_PartitionStep], outcome: Pending[Sequence[Exception | None]]
    ) -> None:
        fetch.is_reading = False
        if fetch.reply.is_settled or fetch.reply.is_cancelled:
            return
        try:
            for step, error in zip(steps, outcome.result(), strict=True):
                if self._was_removed(step):
                    step.position.begin_again()
                    fetch.is_outdated = True
                elif error is not None:
                    step.position.failed(error, self.damage)
            fetch.found_bytes = sum(position.read.visible_bytes for position in fetch.positions)
            self.on_work(fetch.budget.work_bytes)
        except Exception as defect:  # noqa: BLE001  the caller must be answered
            self._leave(fetch)
            fetch.reply.fail(defect)
            return
        self._go_on(fetch)

    def _was_removed(self, step: _PartitionStep) -> bool:
        """True if records that the step may have read are being removed, so that some may have been missing."""
        placed = step.position.placed
        shard: LogShard | None = self._runtime.table.find(placed.shard)
        head = None if shard is None else shard.durable_head(placed.ref.ordinal)
        if shard is None or head is None or not shard.is_readable(placed.ref.ordinal):
            return True
        return head.log_start_offset > step.position.read.fetch_offset

    def _go_on(self, fetch: _Fetch) -> None:
        """Answer a fetch for which a thread has read, or read on, or let it wait."""
        is_due = fetch.is_satisfied() or fetch.is_due
        is_dropped = any(position.head is None and position.error is None for position in fetch.positions)
        if self.reader is not None and (is_dropped or (fetch.is_outdated and not is_due)):
            self._read_apart(fetch, self.reader)
        elif is_due:
            self._answer(fetch)
        else:
            self._hold(fetch)

    def _news(self, position: _Position) -> PartitionHead | None:
        """Return the view of a partition that a fetch has not read yet; None if there is nothing new. Raises
        Refused."""
        shard: LogShard = self._runtime.shard(position.placed.shard)
        ordinal = position.placed.ref.ordinal
        head = shard.durable_head(ordinal)
        if head is None:
            raise unresolved(position.placed.ref.topic)
        if head is position.head or not shard.is_readable(ordinal):
            # Rows may be gone that the durable head still counts. Wait until the deletion is durable, too.
            position.head = position.head or head
            return None
        read, item, position.head = position.read, position.item, head
        check_leader_epochs(
            head,
            item.fetch_offset,
            current_leader_epoch=item.current_leader_epoch,
            last_read_epoch=item.last_read_epoch,
        )
        if item.end_epoch is not None and item.end_offset is not None:
            check_range(head, item.end_offset, item.end_epoch)
        if not head.log_start_offset <= read.next_offset <= head.log_end_offset:
            raise _out_of_range(read.next_offset, head)
        if read.fetch_offset < head.log_start_offset:
            # Answer before the batches that it has found are removed: the answer needs the rows of their aborted
            # transactions.
            read.is_cut = True
            return None
        return head

    def _wait(self, fetch: _Fetch) -> None:
        if not self.waiting_fetches:
            self._runtime.on_durable_change(self._wake)
        self.waiting_fetches += 1
        self._hold(fetch)
        for position in fetch.positions:
            watches = self._watches.setdefault(position.placed.shard, {})
            watch = watches.setdefault(position.placed.ref.ordinal, _Watch(position.head))
            watch.fetches[fetch] = None
        self._runtime.arm(fetch.key, fetch.request.wait_ms_max, lambda: self._answer(fetch))
        fetch.reply.on_cancel = lambda: self._give_up(fetch)

    def _wake(self, keys: Iterable[ShardKey]) -> None:
        """Let the fetches read on whose partitions have new durable positions."""
        woken: dict[_Fetch, None] = {}
        for key in keys:
            watches = self._watches.get(key)
            if watches is None:
                continue
            shard: LogShard | None = self._runtime.table.find(key)
            for ordinal, watch in watches.items():
                head = None if shard is None else shard.durable_head(ordinal)
                # A shard that is no longer served refuses its readers.
                if head is not watch.head or shard is None:
                    watch.head = head
                    woken.update(watch.fetches)
        for fetch in woken:
            # Answering one caller may have made another one leave.
            if not fetch.reply.is_settled and not fetch.reply.is_cancelled:
                self._read_on(fetch)

    def _hold(self, fetch: _Fetch) -> None:
        """Count the bytes that were found since the last call."""
        if fetch.found_bytes > fetch.held_bytes:
            self.answer_limit.hold(fetch.connection, fetch.found_bytes - fetch.held_bytes)
            fetch.held_bytes = fetch.found_bytes

    def _read_on(self, fetch: _Fetch) -> None:
        if fetch.is_reading:
            fetch.is_outdated = True
            return
        try:
            self.answer_limit.check(fetch.connection)
            if self.reader is not None:
                self._read_apart(fetch, self.reader)
                return
            self._advance(fetch)
        except Exception as error:  # noqa: BLE001  no capacity, or a defect: other fetches must be woken too
            self._leave(fetch)
            fetch.reply.fail(error)
            return
        if fetch.is_satisfied():
            self._answer(fetch)
        else:
            self._hold(fetch)

    def _answer(self, fetch: _Fetch) -> None:
        if fetch.is_reading:
            fetch.is_due = True
            return
        self._leave(fetch)
        # It waits for nothing more, except perhaps for a conversion, which cannot be given up.
        fetch.reply.on_cancel = None
        try:
            self._converted(fetch).on_settled(fetch.reply.settle_as)
        except Exception as defect:  # noqa: BLE001  as above
            fetch.reply.fail(defect)

    def _give_up(self, fetch: _Fetch) -> None:
        self._leave(fetch)
        fetch.reply.give_up()

    def _leave(self, fetch: _Fetch) -> None:
        self.waiting_fetches -= 1
        if fetch.held_bytes:
            self.answer_limit.release(fetch.connection, fetch.held_bytes)
        self._runtime.timers.cancel(fetch.key)
        # A request may name a partition twice.
        for key, ordinal in {(position.placed.shard, position.placed.ref.ordinal) for position in fetch.positions}:
            watch = self._watches[key][ordinal]
            del watch.fetches[fetch]
            if not watch.fetches:
                del self._watches[key][ordinal]
                if not self._watches[key]:
                    del self._watches[key]
        if not self.waiting_fetches:
            self._runtime.stop_telling(self._wake)

    def _converted(self, fetch: _Fetch) -> Pending[list[FetchResult]]:
        """Return the results in encodings that the reader takes. Raises Refused as `_results`."""
        results = self._results(fetch)
        if self.converter is None:
            return settled(results)
        return converted(results, fetch.request.accepted_encodings, self.converter)

    def _results(self, fetch: _Fetch) -> list[FetchResult]:
        """Return the results. Raises Refused THROTTLING_QUOTA_EXCEEDED if there is no capacity even for the first
        batch."""
        self.answer_limit.check_answer(fetch.found_bytes)
        results: list[FetchResult] = []
        for position in fetch.positions:
            result = position.result(self.damage)
            results.append(result)
            if result.error is None:
                served = 0
                for header, _encoded in result.batches:
                    served += header.record_count
                hidden = result.aborted_records_hidden, result.control_records_hidden
                self.on_read(RecordsRead(result.name.topic, fetch.request.isolation, served, *hidden))
        for index, result in fetch.refused:
            results.insert(index, result)
        return results


def _advance_all(steps: Sequence[_PartitionStep], budget: ReadBudget, rows: StoreReads) -> Sequence[Exception | None]:
    """Read on in each partition, on a thread. Returns the error that each met."""
    errors: list[Exception | None] = []
    for step in steps:
        read = step.position.read
        read.use(rows)
        try:
            read.advance(step.head, budget)
            step.position.aborted = read.aborted_transactions(step.head)
        except (Refused, LogDamaged, StoreUnreadable) as error:
            errors.append(error)
        else:
            errors.append(None)
    return errors


def _check(request: Fetch) -> None:
    numbers = {"max_wait_ms": request.wait_ms_max, "min_bytes": request.bytes_min, "max_bytes": request.bytes_max}
    for item in request.items:
        if item.partition_bytes_max < 0:
            numbers["partition_max_bytes"] = item.partition_bytes_max
        if item.end_epoch is not None and item.end_offset is None:
            raise Refused(ErrorCode.INVALID_REQUEST, "end_epoch is that of end_offset, which is not set: set both")
        if item.shown is not None:
            _check_snapshot(request, item)
    for name, number in numbers.items():
        if number < 0:
            raise Refused(ErrorCode.INVALID_REQUEST, f"{name} is {number} and must not be negative")


def _check_snapshot(request: Fetch, item: FetchItem) -> None:
    if item.end_offset is None or item.end_epoch is None:
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            "a snapshot ends where it says: set end_offset and end_epoch to the end_offset and leader_epoch of the"
            " partition in the snapshot",
        )
    if request.is_raw or request.isolation is not Isolation.READ_COMMITTED:
        raise Refused(
            ErrorCode.INVALID_REQUEST, "a snapshot shows committed records only: leave raw and isolation_level unset"
        )


def _out_of_range(offset: int, head: PartitionHead) -> Refused:
    return Refused(
        ErrorCode.OFFSET_OUT_OF_RANGE,
        f"offset {offset} is not in the log, which goes from {head.log_start_offset} to {head.log_end_offset}: start "
        "at one of its ends (ListOffsets), and find out why the position was lost",
    )
