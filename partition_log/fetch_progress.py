"""Fetches in progress: what each has found in its partitions so far."""

from __future__ import annotations

from coordinator_protocol.errors import Refused
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import Connection
from coordinator_runtime.store import StoreUnreadable
from partition_log.batches import LogDamaged
from partition_log.catalog.state import PlacedPartition
from partition_log.damage_watch import DamageWatch
from partition_log.leadership import epoch_at
from partition_log.reading import NotAccepted, PartitionRead, ReadBudget
from partition_log.requests import Fetch, FetchItem, FetchResult
from partition_log.state import AbortedTransaction, PartitionHead


class FetchPosition:
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
        """Return the result for this partition."""
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


class FetchInProgress:
    """One fetch, with its partitions and its reply."""

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
        self.positions: list[FetchPosition] = []
        self.refused: list[tuple[int, FetchResult]] = []
        """Results for partitions that were refused from the start, with their places in the request."""
        self.reply: Pending[list[FetchResult]] = Pending()

    def is_satisfied(self) -> bool:
        """Return True if the fetch need not wait any longer."""
        if self.refused or not self.positions or self.budget.is_spent or self.request.wait_ms_max == 0:
            return True
        visible_bytes = 0
        for position in self.positions:
            read = position.read
            if position.error is not None or read.is_cut or read.is_complete():
                return True
            visible_bytes += read.visible_bytes
        return visible_bytes >= self.request.bytes_min
