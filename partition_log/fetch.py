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
for it (`reading_apart`). Changes that come meanwhile are looked at when the thread is done. If records were removed
meanwhile that it may have read, what it found is dropped, and the read begins again.

Readers get a refusal for damage. Logs and metrics get one event for each damaged place, however often it is read.

Source: spec log-and-runtime 2.1 and 2.3; KIP-98, KIP-392 (long poll of Kafka).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_runtime.decision import ShardKey
from coordinator_runtime.pending import Pending, settled
from coordinator_runtime.ports import NO_ANSWER_LIMIT, AnswerLimit, Connection
from coordinator_runtime.runtime import Runtime
from coordinator_runtime.store import Store, StoreUnreadable
from coordinator_runtime.store_readers import StoreReader
from partition_log.batches import LogDamaged
from partition_log.catalog.shard import unresolved
from partition_log.catalog.state import PlacedPartition
from partition_log.damage_watch import DamageWatch
from partition_log.fetch_conversion import Converter, converted
from partition_log.fetch_progress import FetchInProgress, FetchPosition
from partition_log.leadership import check_leader_epochs, check_range
from partition_log.reading import PartitionRead
from partition_log.reading_apart import ReadStep, note_steps, take_steps
from partition_log.records import RecordsRead
from partition_log.requests import Fetch, FetchItem, FetchResult
from partition_log.rules.compacting import check_as_taken, is_as_taken
from partition_log.shard import LogShard
from partition_log.state import Isolation, PartitionHead


@dataclass(slots=True)
class _Watch:
    """Fetches that wait for a partition, and the positions that they have seen."""

    head: PartitionHead | None
    fetches: dict[FetchInProgress, None] = field(default_factory=dict)


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
        fetch = FetchInProgress(request, self._fetch_count, connection)
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
            fetch.positions.append(FetchPosition(item, placed, read))
        if self.reader is not None:
            self._wait(fetch)
            self._read_apart(fetch, self.reader)
            return fetch.reply
        self._advance(fetch)
        if fetch.is_satisfied():
            return self._converted(fetch)
        self._wait(fetch)
        return fetch.reply

    def _advance(self, fetch: FetchInProgress) -> None:
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

    def _read_apart(self, fetch: FetchInProgress, reader: StoreReader) -> None:
        """Read on in every partition with something new, on a thread."""
        fetch.budget.renew_work()
        if self.answer_limit.is_scarce:
            fetch.budget.narrow(self.answer_limit.allowance_bytes(fetch.connection))
        fetch.is_outdated = False
        steps: list[ReadStep] = []
        for position in fetch.positions:
            if position.error is None:
                try:
                    head = self._news(position)
                except Refused as refusal:
                    position.error = refusal
                else:
                    if head is not None and not position.read.is_at_end(head):
                        steps.append(ReadStep(position, head))
        if not steps:
            self._go_on(fetch)
            return
        fetch.is_reading = True
        take_steps(reader, steps, fetch.budget).on_settled(partial(self._on_read, fetch, steps))

    def _on_read(
        self, fetch: FetchInProgress, steps: Sequence[ReadStep], outcome: Pending[Sequence[Exception | None]]
    ) -> None:
        fetch.is_reading = False
        if fetch.reply.is_settled or fetch.reply.is_cancelled:
            return
        try:
            if note_steps(steps, outcome.result(), self._runtime, self.damage):
                fetch.is_outdated = True
            fetch.found_bytes = sum(position.read.visible_bytes for position in fetch.positions)
            self.on_work(fetch.budget.work_bytes)
        except Exception as defect:  # noqa: BLE001  the caller must be answered
            self._leave(fetch)
            fetch.reply.fail(defect)
            return
        self._go_on(fetch)

    def _go_on(self, fetch: FetchInProgress) -> None:
        """Answer a fetch for which a thread has read, or read on, or let it wait."""
        is_due = fetch.is_satisfied() or fetch.is_due
        is_dropped = any(position.head is None and position.error is None for position in fetch.positions)
        if self.reader is not None and (is_dropped or (fetch.is_outdated and not is_due)):
            self._read_apart(fetch, self.reader)
        elif is_due:
            self._answer(fetch)
        else:
            self._hold(fetch)

    def _news(self, position: FetchPosition) -> PartitionHead | None:
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
        if item.shown is not None:
            check_as_taken(head.compaction, item.shown, read.next_offset)
        if not head.log_start_offset <= read.next_offset <= head.log_end_offset:
            raise _out_of_range(read.next_offset, head)
        if read.fetch_offset < head.log_start_offset:
            # Answer before the batches that it has found are removed: the answer needs the rows of their aborted
            # transactions.
            read.is_cut = True
            return None
        if item.shown is None or is_as_taken(shard.compaction_to_be(ordinal), item.shown, read.next_offset):
            return head
        return None  # as above: wait until the step of the pass is durable, too

    def _wait(self, fetch: FetchInProgress) -> None:
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
        woken: dict[FetchInProgress, None] = {}
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

    def _hold(self, fetch: FetchInProgress) -> None:
        """Count the bytes that were found since the last call."""
        if fetch.found_bytes > fetch.held_bytes:
            self.answer_limit.hold(fetch.connection, fetch.found_bytes - fetch.held_bytes)
            fetch.held_bytes = fetch.found_bytes

    def _read_on(self, fetch: FetchInProgress) -> None:
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

    def _answer(self, fetch: FetchInProgress) -> None:
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

    def _give_up(self, fetch: FetchInProgress) -> None:
        self._leave(fetch)
        fetch.reply.give_up()

    def _leave(self, fetch: FetchInProgress) -> None:
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

    def _converted(self, fetch: FetchInProgress) -> Pending[list[FetchResult]]:
        """Return the results in encodings that the reader takes. Raises Refused as `_results`."""
        results = self._results(fetch)
        if self.converter is None:
            return settled(results)
        return converted(results, fetch.request.accepted_encodings, self.converter)

    def _results(self, fetch: FetchInProgress) -> list[FetchResult]:
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
