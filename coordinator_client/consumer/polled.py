"""The records that `poll` returns, and where they came from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import overload

from coordinator_client.consumer.owned import Slice
from coordinator_client.consumer.state import TopicPartition
from coordinator_client.errors import CorruptBatch, TransactionError
from coordinator_client.reader import ReadRecord
from coordinator_client.settings import Skipped


class ConsumerRecords(Sequence[ReadRecord]):
    """The records of one poll: those of a partition together and in order. Falsy where there are none."""

    __slots__ = ("_records", "slices")

    def __init__(self, records: Sequence[ReadRecord] = (), slices: Sequence[Slice] = ()) -> None:
        self._records = records
        self.slices = slices
        """The slices of the consumer's partitions that they came from; not for applications."""

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


def decoded(
    slices: Sequence[Slice], skipped: Skipped | None
) -> tuple[ConsumerRecords, Sequence[Slice], TransactionError | None]:
    """Return the records up to the first batch that cannot be read, the slices from there on, and what is wrong with
    it. With `skipped` such batches are left out and counted there."""
    records: list[ReadRecord] = []
    good: list[Slice] = []
    for number, each in enumerate(slices):
        try:
            records += each.records()
        except CorruptBatch as error:
            if skipped is None:
                return ConsumerRecords(records, good), slices[number:], error
            error.offset, error.next_offset = each.first_offset, each.end_offset
            skipped.add(error)
        else:
            good.append(each)
    return ConsumerRecords(records, good), (), None


class Unread:
    """The batch that an iteration over a consumer is in: it returns records one by one, and knows what is left."""

    def __init__(self, batch: ConsumerRecords) -> None:
        self._slices = batch.slices
        self._records = iter(batch)
        self._number = 0
        self._next_offset = self._slices[0].first_offset if self._slices else 0

    def take(self) -> ReadRecord | None:
        """Return the next record; None at the end. Records of partitions that are gone or were moved are left out."""
        for record in self._records:
            while not self._slices[self._number].holds(record):
                self._number += 1
            self._next_offset = record.offset + 1
            if self._slices[self._number].is_current:
                return record
        self._number = len(self._slices)
        return None

    def rest(self) -> list[Slice]:
        """Return what was not taken."""
        if self._number >= len(self._slices):
            return []
        first = self._slices[self._number]
        left = [replace(first, first_offset=self._next_offset)] if self._next_offset < first.end_offset else []
        return left + list(self._slices[self._number + 1 :])
