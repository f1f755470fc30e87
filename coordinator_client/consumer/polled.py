"""The records that `poll` returns, and where they came from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from operator import length_hint
from typing import Protocol, overload

from coordinator_client.consumer.owned import Slice
from coordinator_client.errors import CorruptBatch, TransactionError
from coordinator_client.reading.reader import ReadRecord
from coordinator_client.values import TopicPartition


class ConsumerRecords(Sequence[ReadRecord]):
    """The records of one poll: those of a partition together and in order. Falsy where there are none."""

    __slots__ = ("_records", "skipped", "slices", "taken")

    def __init__(
        self,
        records: Sequence[ReadRecord] = (),
        slices: Sequence[Slice] = (),
        *,
        taken: Sequence[Slice] = (),
        skipped: Sequence[CorruptBatch] = (),
    ) -> None:
        self._records = records
        self.slices = slices
        """The slices of the consumer's partitions that they came from; not for applications."""
        self.taken = taken
        """The same, with those between them that were left out because they cannot be read."""
        self.skipped = skipped
        """Errors of the batches left out."""

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[ReadRecord]:
        return iter(self._records)

    @overload
    def __getitem__(self, index: int) -> ReadRecord: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[ReadRecord]: ...
    def __getitem__(self, index: int | slice) -> ReadRecord | Sequence[ReadRecord]:
        return self._records[index]

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        """The partitions that have records here."""
        return frozenset(each.partition.name for each in self.slices)

    @property
    def next_offsets(self) -> dict[TopicPartition, int]:
        """The offset behind these records by partition: what to commit once they are processed."""
        return {each.partition.name: each.after for each in self.slices}

    @property
    def first_offsets(self) -> dict[TopicPartition, int]:
        """Where the records of each partition begin: at the first one, or at offsets before it that are without one."""
        return {each.partition.name: each.first_offset for each in reversed(self.slices)}


def decoded(slices: Sequence[Slice], *, skips: bool) -> tuple[ConsumerRecords, TransactionError | None]:
    """Return the records up to the first batch that cannot be read, and the reason why it cannot. With `skips` such
    batches are left out, and noted beside the records."""
    records: list[ReadRecord] = []
    good: list[Slice] = []
    skipped: list[CorruptBatch] = []
    for number, each in enumerate(slices):
        try:
            records += each.records()
        except CorruptBatch as error:
            if not skips:
                return ConsumerRecords(records, good, taken=slices[:number]), error
            error.offset, error.next_offset = each.first_offset, each.end_offset
            skipped.append(error)
        else:
            good.append(each)
    return ConsumerRecords(records, good, taken=slices, skipped=skipped), None


class Handed(Protocol):
    """Records in the application's hands."""

    @property
    def taken(self) -> Sequence[Slice]:
        """The slices that the application has got."""

    @property
    def skipped(self) -> Sequence[CorruptBatch]:
        """Batches in them that could not be read."""


class Unread:
    """The batch that an iteration over a consumer is in. Its records are returned one by one, by `next(records)`: that
    is one step, so that no interruption can come between returning a record and counting it as returned."""

    def __init__(self, batch: ConsumerRecords) -> None:
        self.batch = batch
        self.records: Iterator[ReadRecord] = iter(list(batch))
        """A list's iterator, which can be asked how much is left, and set back."""
        self._count = len(batch)
        self._number = 0
        """The slice of the record that comes next."""
        self._next = 0

    def put_back(self) -> None:
        """Return the record that `has_next` saw once more: its caller was interrupted before it had that."""
        self.records.__setstate__(self._next)  # type: ignore[attr-defined]  # a list's iterator has it

    @property
    def _returned(self) -> int:
        return self._count - length_hint(self.records)

    @property
    def has_next(self) -> bool:
        """Whether there is a record to return. Records of partitions that are gone or were moved are left out."""
        slices = self.batch.slices
        while (returned := self._returned) < self._count:
            record = self.batch[returned]
            while not slices[self._number].holds(record):
                self._number += 1
            if slices[self._number].is_current:
                self._next = returned
                return True
            next(self.records)
        return False

    @property
    def taken(self) -> Sequence[Slice]:
        returned = self._returned
        if returned == self._count:
            return self.batch.taken
        if not returned:
            return ()
        last = self.batch[returned - 1]
        number = next(n for n, each in enumerate(self.batch.taken) if each.holds(last))
        return [*self.batch.taken[:number], replace(self.batch.taken[number], end_offset=last.offset + 1)]

    @property
    def skipped(self) -> Sequence[CorruptBatch]:
        return self.batch.skipped if self._returned == self._count else ()
