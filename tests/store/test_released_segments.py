"""Room of large values comes back when rows are replaced and deleted by key, as compaction does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator_runtime.store import Family
from partition_log.codec import log_key, partition_key
from tests.store.reclaiming import finish_reclaiming
from tests.store.test_segments import LARGE, Shelf

P, Q = 1, 2


@pytest.fixture
def shelf(tmp_path: Path) -> Iterator[Shelf]:
    shelf = Shelf(tmp_path / "store")
    yield shelf
    shelf.store.close()


def search(shelf: Shelf, partition: int = P) -> None:
    """Compact as the reclaim thread does some time after rows were deleted."""
    shelf.store._reclaimed.compact(Family.LOG, partition_key(partition), partition_key(partition + 1))


def settle(shelf: Shelf) -> list[str]:
    shelf.commit((Family.META, b"x", b"1"))
    finish_reclaiming(shelf.store)
    return shelf.files()


def fill(shelf: Shelf, count: int = 8, partition: int = P) -> None:
    for offset in range(count):
        shelf.put(partition, offset)


def test_a_segment_goes_once_no_row_refers_to_it(shelf: Shelf) -> None:
    fill(shelf)
    before = shelf.files()
    assert len(before) > 2
    shelf.commit(*((Family.LOG, log_key(P, offset), None) for offset in range(5)))
    search(shelf)
    after = settle(shelf)
    assert set(after) < set(before)
    assert after[-1] == before[-1]
    assert [int.from_bytes(key[4:], "big") for key, _value in shelf.rows()] == [5, 6, 7]
    shelf.reopen()
    assert len(shelf.rows()) == 3


def test_a_segment_goes_without_another_write(shelf: Shelf) -> None:
    """A server without work has none."""
    fill(shelf)
    before = shelf.files()
    shelf.commit(*((Family.LOG, log_key(P, offset), None) for offset in range(5)))
    search(shelf)
    finish_reclaiming(shelf.store)
    assert set(shelf.files()) < set(before)
    shelf.reopen()
    assert len(shelf.rows()) == 3


def test_a_segment_stays_while_one_row_refers_to_it(shelf: Shelf) -> None:
    fill(shelf)
    before = shelf.files()
    shelf.commit(*((Family.LOG, log_key(P, offset), None) for offset in range(1, 7)))
    search(shelf)
    assert before[0] in settle(shelf)
    assert [value for _key, value in shelf.rows()] == [LARGE, LARGE]
    # The value is written again, and then the old file goes.
    shelf.put(P, 0)
    search(shelf)
    assert before[0] not in settle(shelf)
    assert [value for _key, value in shelf.rows()] == [LARGE, LARGE]


def test_values_of_another_partition_keep_the_file(shelf: Shelf) -> None:
    shelf.put(P, 0)
    shelf.put(Q, 0)
    fill(shelf, 6, Q)
    before = shelf.files()
    shelf.commit((Family.LOG, log_key(P, 0), None))
    search(shelf)
    assert before[0] in settle(shelf)
    shelf.commit((Family.LOG, log_key(Q, 0), None))
    search(shelf, Q)
    search(shelf)
    assert before[0] not in settle(shelf)


@pytest.mark.parametrize("first", [0, 2], ids=["beginning", "middle"])
def test_a_deleted_part_of_a_partition_releases_nothing_of_the_rest(shelf: Shelf, first: int) -> None:
    fill(shelf)
    start = log_key(P, first) if first else partition_key(P)
    shelf.commit(deleted=((Family.LOG, start, log_key(P, 4)),))
    shelf.store._reclaimed.compact(Family.LOG, start, log_key(P, 4))
    settle(shelf)
    kept = [offset for offset in range(8) if not first <= offset < 4]
    assert shelf.rows() == [(log_key(P, offset), LARGE) for offset in kept]


def reclaim(shelf: Shelf) -> None:
    """Free all room that can be freed now, as the reclaim thread does some time later."""
    for (family, start), end in [*shelf.store._reclaimer._ranges.items()]:
        shelf.store._reclaimed.compact(family, start, end)
    settle(shelf)


PARTITIONS = st.sampled_from([P, Q])
OFFSETS = st.integers(0, 9)
CHANGES = st.one_of(
    st.tuples(st.just("put"), PARTITIONS, OFFSETS, OFFSETS),
    st.tuples(st.just("delete rows"), PARTITIONS, OFFSETS, OFFSETS),
    st.tuples(st.just("delete range"), PARTITIONS, OFFSETS, OFFSETS),
    st.tuples(st.just("delete beginning"), PARTITIONS, OFFSETS, OFFSETS),
    st.tuples(st.just("reclaim"), PARTITIONS, OFFSETS, OFFSETS),
    st.tuples(st.just("reopen"), PARTITIONS, OFFSETS, OFFSETS),
)


@given(st.lists(CHANGES, max_size=20))
def test_no_way_to_delete_and_reclaim_takes_a_value_that_is_left(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[str, int, int, int]]
) -> None:
    shelf = Shelf(tmp_path_factory.mktemp("released") / "store")
    left: dict[bytes, bytes] = {}
    try:
        for kind, partition, one, other in changes:
            keys = [log_key(partition, offset) for offset in range(min(one, other), max(one, other) + 1)]
            end = log_key(partition, max(one, other) + 1)
            match kind:
                case "put":
                    for key in keys:  # one by one, for many segments
                        shelf.commit((Family.LOG, key, LARGE))
                    left |= dict.fromkeys(keys, LARGE)
                case "delete rows":
                    shelf.commit(*((Family.LOG, key, None) for key in keys))
                case "delete range":
                    shelf.commit(deleted=((Family.LOG, keys[0], end),))
                case "delete beginning":
                    shelf.commit(deleted=((Family.LOG, partition_key(partition), end),))
                case "reclaim":
                    reclaim(shelf)
                case "reopen":
                    shelf.reopen()
            if kind.startswith("delete"):
                first = partition_key(partition) if kind == "delete beginning" else keys[0]
                left = {key: value for key, value in left.items() if not first <= key < end}
            assert dict(shelf.rows()) == left
        reclaim(shelf)
        assert dict(shelf.rows()) == left
    finally:
        shelf.store.close()


def test_the_store_looks_for_them_after_deletions_by_key_and_in_the_middle(shelf: Shelf) -> None:
    fill(shelf, 6)
    noted = shelf.store._reclaimer._ranges
    whole = (Family.LOG, partition_key(P))
    shelf.commit((Family.LOG, log_key(P, 0), None))
    assert noted[whole] == partition_key(P + 1)
    noted.clear()
    shelf.commit(deleted=((Family.LOG, log_key(P, 2), log_key(P, 4)),))
    assert noted[whole] == partition_key(P + 1)
    noted.clear()
    shelf.commit(deleted=((Family.LOG, log_key(P, 0), log_key(P, 5)),))
    assert whole not in noted, "what lies before a log start goes without a search"


def test_a_store_that_closes_searches_no_further(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(shelf)
    shelf.commit(*((Family.LOG, log_key(P, offset), None) for offset in range(5)))
    monkeypatch.setattr("coordinator_runtime.rocks.references._ROWS_PER_STEP", 1)
    shelf.store._reclaimed.closing.set()
    before = shelf.files()
    search(shelf)
    assert settle(shelf) == before
