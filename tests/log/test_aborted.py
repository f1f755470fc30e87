"""Aborted transactions are found by one scan, wherever a reader stands and however long they were open."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator_protocol.batch import BatchHeader, Encoding
from coordinator_runtime.store import CommitGroup, Family
from partition_log import index_rows
from partition_log.aborted import aborted_between
from partition_log.reading import BATCHES_READ_MAX, AbortedIndex, ReadBudget
from partition_log.state import AbortedTransaction, PartitionHead
from tests.harness.memory_store import MemoryStore

ORDINAL = 3
LOG_END = 60


@pytest.fixture(autouse=True)
def stride() -> Iterator[None]:
    before = index_rows.ABORTED_STRIDE
    yield
    setattr(index_rows, "ABORTED_STRIDE", before)  # noqa: B010  a constant of the product


@st.composite
def histories(draw: st.DrawFn) -> list[AbortedTransaction]:
    """Aborted transactions: those of one producer follow each other, and no two have a marker at one offset."""
    markers = sorted(draw(st.sets(st.integers(1, LOG_END - 1), max_size=12)))
    free_from: dict[int, int] = {}
    found: list[AbortedTransaction] = []
    for csn, marker_offset in enumerate(markers, start=1):
        producer_id = draw(st.integers(1, 4))
        start = free_from.get(producer_id, 0)
        if start < marker_offset:
            first_offset = draw(st.integers(start, marker_offset - 1))
            found.append(AbortedTransaction(producer_id, 0, first_offset, marker_offset, 0, csn))
            free_from[producer_id] = marker_offset + 1
    return found


def filled(store: MemoryStore, history: list[AbortedTransaction], ordinal: int = ORDINAL) -> MemoryStore:
    """The store, with the rows of these in a partition."""
    rows = [
        (Family.ABORTED, index_rows.aborted_key(ordinal, offset, each.producer_id), index_rows.encode_aborted(each))
        for each in history
        for offset in index_rows.aborted_offsets(each)
    ]
    store.write([CommitGroup(store.version() + 1, rows)])
    return store


def store_of(history: list[AbortedTransaction], stride: int) -> MemoryStore:
    """Neighbouring partitions have aborted transactions, too."""
    setattr(index_rows, "ABORTED_STRIDE", stride)  # noqa: B010  a constant of the product
    store = filled(MemoryStore(), history)
    for neighbour in (ORDINAL - 1, ORDINAL + 1):
        filled(store, [AbortedTransaction(1, 0, 0, LOG_END - 1, 0, 1)], neighbour)
    return store


@given(histories(), st.integers(1, 20), st.integers(0, LOG_END), st.integers(0, LOG_END), st.integers(-1, LOG_END))
@settings(deadline=None)
def test_a_scan_finds_what_meets_the_offsets_and_nothing_else(
    history: list[AbortedTransaction], stride: int, one: int, other: int, last_abort_offset: int
) -> None:
    start, end = sorted((one, other))
    store = store_of(history, stride)
    found = sorted(aborted_between(store, ORDINAL, start, end, last_abort_offset), key=lambda each: each.marker_offset)
    in_view = [each for each in history if each.marker_offset <= last_abort_offset]
    assert found == [each for each in in_view if each.first_offset < end and each.marker_offset >= start]


@given(histories(), st.integers(1, 20), st.integers(0, LOG_END), st.integers(-1, LOG_END), st.data())
@settings(deadline=None)
def test_the_index_says_of_every_batch_what_the_list_says(
    history: list[AbortedTransaction], stride: int, start: int, last_abort_offset: int, data: st.DataObject
) -> None:
    store = store_of(history, stride)
    budget = ReadBudget(0, batches=BATCHES_READ_MAX)
    index = AbortedIndex(store, ORDINAL, PartitionHead(last_abort_offset=last_abort_offset), budget)
    offsets = sorted(data.draw(st.sets(st.integers(start, LOG_END), max_size=30)))
    markers = {each.marker_offset for each in history}
    for offset in (each for each in offsets if each not in markers):
        producer_id = data.draw(st.integers(1, 4))
        expected = any(
            each.producer_id == producer_id and each.first_offset <= offset < each.marker_offset <= last_abort_offset
            for each in history
        )
        assert index.hides(batch(offset, producer_id)) is expected


def batch(offset: int, producer_id: int) -> BatchHeader:
    return BatchHeader(
        base_offset=offset,
        record_count=1,
        base_timestamp_ms=0,
        max_timestamp_ms=0,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        encoding=Encoding.RECORDS_V1,
        is_transactional=True,
    )


class CountingStore(MemoryStore):
    """Counts what is sought and read."""

    def __init__(self) -> None:
        super().__init__()
        self.seeks = self.rows = 0

    def scan(self, family: Family, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        self.seeks += 1
        for row in super().scan(family, start, end):
            self.rows += 1
            yield row


def test_one_seek_is_enough_however_long_an_abort_lasted_and_whatever_lies_behind() -> None:
    long = AbortedTransaction(1, 0, 5, 50_000_000, 0, 1)
    later = [AbortedTransaction(2, 0, offset, offset + 1, 0, offset) for offset in range(10_000_000, 10_004_000, 2)]
    store = CountingStore()
    filled(store, [long, *later])
    head = PartitionHead(last_abort_offset=50_000_000)
    for start in (6, 65_000, 9_000_000, 40_000_000):
        store.seeks = store.rows = 0
        index = AbortedIndex(store, ORDINAL, head, ReadBudget(0))
        assert [index.hides(batch(start + offset, 1)) for offset in range(100)] == [True] * 100
        assert [index.hides(batch(start + 100 + offset, 9)) for offset in range(100)] == [False] * 100
        assert (store.seeks, store.rows) == (1, 1)


def test_a_stretch_that_is_dense_with_aborts_leaves_room_to_go_on() -> None:
    history = [AbortedTransaction(1, 0, offset, offset + 1, 0, offset + 1) for offset in range(0, 60_000, 2)]
    store = store_of(history, index_rows.ABORTED_STRIDE)
    budget = ReadBudget(0, batches=BATCHES_READ_MAX)
    index = AbortedIndex(store, ORDINAL, PartitionHead(last_abort_offset=59_999), budget)
    assert index.hides(batch(0, 1))
    assert BATCHES_READ_MAX // 3 < budget.batches < BATCHES_READ_MAX
