"""Rows of META about segment files are true after any history, and let each go when nothing needs it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator_runtime.rocks import RocksStore
from coordinator_runtime.rocks.segment_rows import (
    LENGTH_PREFIX,
    NAMED_PREFIX,
    SegmentRows,
    named_of,
    number_in,
    segment_of,
)
from coordinator_runtime.store import CommitGroup, Family, StoreDamaged
from partition_log.codec import log_key, partition_key
from tests.store.test_segments import LARGE, SMALL, Shelf


@pytest.fixture
def shelf(tmp_path: Path) -> Iterator[Shelf]:
    shelf = Shelf(tmp_path / "data")
    yield shelf
    shelf.store.close()


def named(shelf: Shelf) -> dict[tuple[int, int], int]:
    rows = shelf.store.scan(Family.META, NAMED_PREFIX, NAMED_PREFIX + b"\xff" * 9)
    return {named_of(key): number_in(value) for key, value in rows}


def lengths(shelf: Shelf) -> dict[int, int]:
    rows = shelf.store.scan(Family.META, LENGTH_PREFIX, LENGTH_PREFIX + b"\xff" * 5)
    return {segment_of(key): number_in(value) for key, value in rows}


def remove_below(shelf: Shelf, partition: int, offset: int) -> None:
    """The log start has passed everything before the offset."""
    shelf.commit(deleted=((Family.LOG, log_key(partition, 0), log_key(partition, offset)),))


def test_they_tell_the_last_offset_of_each_partition_in_each_file(shelf: Shelf) -> None:
    shelf.commit(*((Family.LOG, log_key(1, offset), LARGE) for offset in (4, 9)))
    shelf.put(2, 7)
    assert named(shelf) == {(1, 1): 9, (1, 2): 7}
    shelf.put(1, 20)
    shelf.put(1, 30, SMALL)
    assert named(shelf) == {(1, 1): 9, (1, 2): 7, (2, 1): 20}
    shelf.reopen()
    shelf.put(2, 8)
    assert named(shelf) == {(1, 1): 9, (1, 2): 7, (2, 1): 20, (3, 2): 8}


def test_they_tell_how_long_each_closed_file_is(shelf: Shelf) -> None:
    for offset in range(3):
        shelf.put(1, offset)
    shelf.put(1, 3)
    assert lengths(shelf) == {1: 3 * len(LARGE)}
    shelf.delete(1)
    assert (named(shelf), lengths(shelf)) == ({}, {})


def test_a_file_goes_once_the_log_start_has_passed_all_that_is_in_it(shelf: Shelf) -> None:
    for offset in range(0, 50, 10):
        shelf.put(1, offset)
    assert named(shelf) == {(1, 1): 20, (2, 1): 40}
    remove_below(shelf, 1, 20)
    assert len(shelf.files()) == 2, "the value at 20 is still there"
    remove_below(shelf, 1, 21)
    assert (shelf.files(), named(shelf)) == (["0000000002.segment"], {(2, 1): 40})
    assert [key for key, _ in shelf.rows()] == [log_key(1, 30), log_key(1, 40)]
    shelf.reopen()
    assert len(shelf.rows()) == 2


def test_a_file_stays_while_another_needs_it(shelf: Shelf) -> None:
    shelf.put(1, 0)
    shelf.put(2, 0)
    shelf.reopen()
    remove_below(shelf, 1, 100)
    assert (len(shelf.files()), named(shelf)) == (1, {(1, 2): 0})
    remove_below(shelf, 2, 1)
    assert shelf.files() == []


def test_a_range_that_leaves_the_beginning_of_a_partition_frees_nothing(shelf: Shelf) -> None:
    shelf.put(1, 5)
    shelf.reopen()
    shelf.commit(deleted=((Family.LOG, log_key(1, 1), log_key(1, 9)),))
    assert named(shelf) == {(1, 1): 5}


def test_a_reader_of_a_value_that_was_removed_meanwhile_gets_an_error_and_no_other_does(shelf: Shelf) -> None:
    shelf.put(1, 0)
    shelf.put(1, 1)
    shelf.reopen()
    shelf.put(1, 2, SMALL)
    scan = shelf.store.scan(Family.LOG, log_key(1, 0), log_key(1, 9))
    remove_below(shelf, 1, 2)
    assert shelf.files() == []
    with pytest.raises(Exception, match=r"0000000001\.segment"):
        list(scan)
    shelf.put(1, 3)
    assert [key for key, _ in shelf.rows()] == [log_key(1, 2), log_key(1, 3)]


class NaiveRows:
    """Every key that lies in a segment, searched each time."""

    def __init__(self) -> None:
        self.keys: set[tuple[int, bytes]] = set()

    def named(self) -> dict[tuple[int, int], int]:
        found: dict[tuple[int, int], int] = {}
        for segment, key in sorted(self.keys):
            found[segment, int.from_bytes(key[:4], "big")] = int.from_bytes(key[4:], "big")
        return found


NOTE = st.tuples(st.just("note"), st.integers(1, 3), st.integers(0, 3), st.integers(0, 9))
DELETE = st.tuples(st.just("delete"), st.integers(0, 3), st.integers(1, 2), st.just(0))
REMOVE = st.tuples(st.just("remove"), st.integers(0, 3), st.integers(0, 10), st.just(0))


@given(st.lists(st.one_of(NOTE, DELETE, REMOVE), max_size=40))
def test_what_is_stored_is_what_a_search_of_the_log_would_find(steps: list[tuple[str, int, int, int]]) -> None:
    rows, naive, stored = SegmentRows([]), NaiveRows(), dict[bytes, bytes]()
    ends: dict[int, int] = {}
    for step in steps:
        match step:
            case ("note", segment, partition, grown):
                ends[partition] = ends.get(partition, 0) + grown + 1
                key = log_key(partition, ends[partition])
                naive.keys.add((segment, key))
                _family, name, value = rows.row(rows.note(segment, key))
                stored[name] = value or b""
                continue
            case ("delete", partition, count, _):
                start, end = partition_key(partition), partition_key(partition + count)
            case (_, partition, offset, _):
                start, end = log_key(partition, 0), log_key(partition, offset)
        naive.keys = {(segment, key) for segment, key in naive.keys if not start <= key < end}
        for _family, name, _value in rows.drop(start, end):
            stored.pop(name, None)
    expected = naive.named()
    assert {named_of(name): number_in(value) for name, value in stored.items()} == expected
    again = SegmentRows((*place, offset) for place, offset in expected.items())
    assert rows.segments() == again.segments() == {segment for segment, _ in expected}


@pytest.mark.parametrize("lost", ["segment/", "segment_length/"])
def test_a_row_that_is_not_written_is_noticed_by_these_tests(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    """The file would go at the next start, or could be cut off unnoticed."""
    batch = RocksStore._batch

    def without(store: RocksStore, groups: Sequence[CommitGroup]) -> object:
        kept = [
            replace(group, mutations=[each for each in group.mutations if not each[1].startswith(lost.encode())])
            for group in groups
        ]
        return batch(store, kept)

    monkeypatch.setattr(RocksStore, "_batch", without)
    test = test_they_tell_how_long_each_closed_file_is if "length" in lost else test_a_file_stays_while_another_needs_it
    with pytest.raises((AssertionError, StoreDamaged)):
        test(shelf)
