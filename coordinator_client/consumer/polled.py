"""The records that `poll` returns, and the slices they came from."""

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
    """The records of one poll; those of one partition are together and in order. Falsy if empty."""

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
        """Slices of the consumer's partitions from which the records came; not for applications."""
        self.taken = taken
        """The same slices, and those between them that were left out because they cannot be read."""
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
        """Partitions that have records here."""
        return frozenset(each.partition.name for each in self.slices)

    @property
    def next_offsets(self) -> dict[TopicPartition, int]:
        """Next offset after these records by partition: the offsets to commit once they are processed."""
        return {each.partition.name: each.after for each in self.slices}

    @property
    def first_offsets(self) -> dict[TopicPartition, int]:
        """Offset by partition at which these records begin: that of the first record, or of a hole before it."""
        return {each.partition.name: each.first_offset for each in reversed(self.slices)}


def decoded(slices: Sequence[Slice], *, skips: bool) -> tuple[ConsumerRecords, TransactionError | None]:
    """Return the records up to the first batch that cannot be read, and its error. With `skips` such batches are left
    out, and noted beside the records."""
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
    """Records that the application has got."""

    @property
    def taken(self) -> Sequence[Slice]:
        """Slices that the application has got."""

    @property
    def skipped(self) -> Sequence[CorruptBatch]:
        """Errors of batches in them that could not be read."""


class Unread:
    """The batch under iteration. Its records are returned one by one with `next(records)`. That is a single step, so no
    interruption can come between returning a record and counting it as returned."""

    def __init__(self, batch: ConsumerRecords) -> None:
        self.batch = batch
        self.records: Iterator[ReadRecord] = iter(list(batch))
        """List iterator, which reports its remaining length and can be set back."""
        self._count = len(batch)
        self._number = 0
        """Index of the slice of the next record."""
        self._next = 0

    def put_back(self) -> None:
        """Go back to the record seen by `has_next`: its caller was interrupted before it got the record."""
        self.records.__setstate__(self._next)  # type: ignore[attr-defined]  # a list's iterator has it

    @property
    def _returned(self) -> int:
        return self._count - length_hint(self.records)

    @property
    def has_next(self) -> bool:
        """True if there is a record to return. Records of partitions that are gone or were moved are left out."""
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
