"""Promises of every store, on each of them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator_runtime.rocks import open_store
from coordinator_runtime.slate.retired import RetiredRanges
from coordinator_runtime.store import CommitGroup, Family, KeyRange, Mutation, Store
from tests.harness.memory_store import MemoryStore
from tests.store.conftest import Shelf

LOG, META, PARTITIONS, PRODUCERS = Family.LOG, Family.META, Family.PARTITIONS, Family.PRODUCERS
END = b"\xff" * 8


def put(store: Store, *mutations: Mutation, deleted_ranges: Sequence[KeyRange] = ()) -> None:
    store.write([CommitGroup(store.version() + 1, mutations, deleted_ranges)])


def put_keys(store: Store, *keys: bytes, family: Family = LOG) -> None:
    put(store, *((family, key, b"value of " + key) for key in keys))


def keys(store: Store, start: bytes = b"", end: bytes = END, family: Family = LOG) -> list[bytes]:
    return [key for key, _ in store.scan(family, start, end)]


def rows_of_all_families(store: Store) -> dict[Family, list[tuple[bytes, bytes]]]:
    return {family: list(store.scan(family, b"", END)) for family in Family if family is not META}


def test_a_new_store_is_empty_at_version_zero(store: Store) -> None:
    assert store.version() == 0
    assert store.get(LOG, b"a") is None
    assert keys(store) == []
    assert store.last(LOG, b"") is None


def test_a_group_is_seen_as_soon_as_it_is_written(store: Store) -> None:
    put(store, (LOG, b"a", b"1"), (PRODUCERS, b"a", b"2"))
    assert store.get(LOG, b"a") == b"1"
    assert store.get(PRODUCERS, b"a") == b"2"
    assert store.get(PARTITIONS, b"a") is None
    assert store.version() == 1


def test_an_empty_value_is_a_value(store: Store) -> None:
    put(store, (LOG, b"a", b""))
    assert store.get(LOG, b"a") == b""
    assert list(store.scan(LOG, b"", END)) == [(b"a", b"")]


def test_the_last_mutation_of_a_key_wins_inside_a_group(store: Store) -> None:
    put(store, (LOG, b"a", b"1"), (LOG, b"a", None), (LOG, b"a", b"3"), (LOG, b"b", b"1"), (LOG, b"b", None))
    assert list(store.scan(LOG, b"", END)) == [(b"a", b"3")]


def test_groups_written_together_apply_in_their_order(store: Store) -> None:
    store.write(
        [
            CommitGroup(1, [(LOG, b"a", b"1"), (LOG, b"b", b"1")]),
            CommitGroup(2, [(LOG, b"a", b"2"), (LOG, b"b", None)]),
            CommitGroup(3, [(LOG, b"c", b"3")], [(LOG, b"a", b"b")]),
            CommitGroup(4, [(LOG, b"b", b"4")]),
        ]
    )
    assert list(store.scan(LOG, b"", END)) == [(b"b", b"4"), (b"c", b"3")]
    assert store.version() == 4


def test_writing_no_groups_changes_nothing(store: Store) -> None:
    store.write([])
    store.sync()
    assert store.version() == 0


def test_deleting_what_is_not_there_is_no_error(store: Store) -> None:
    put(store, (LOG, b"a", None))
    assert keys(store) == []


def test_versions_must_follow_each_other(store: Store) -> None:
    put_keys(store, b"a")
    with pytest.raises(AssertionError, match="group 3 was handed over where 2 is next"):
        store.write([CommitGroup(3, [(LOG, b"b", b"")])])
    with pytest.raises(AssertionError, match="group 2 was handed over where 3 is next"):
        store.write([CommitGroup(2, [(LOG, b"b", b"")]), CommitGroup(2, [(LOG, b"c", b"")])])
    assert keys(store) == [b"a"]
    assert store.version() == 1


def test_a_scan_includes_its_start_and_excludes_its_end(store: Store) -> None:
    put_keys(store, b"d", b"b", b"a", b"c", b"bb")
    assert keys(store, b"b", b"d") == [b"b", b"bb", b"c"]
    assert keys(store, b"aa", b"bba") == [b"b", b"bb"]


@pytest.mark.parametrize(("start", "end"), [(b"b", b"b"), (b"c", b"a"), (b"x", END), (b"", b"")])
def test_a_scan_of_an_empty_range_ends_at_once(store: Store, start: bytes, end: bytes) -> None:
    put_keys(store, b"a", b"b", b"c")
    assert keys(store, start, end) == []


def test_keys_are_ordered_as_unsigned_bytes(store: Store) -> None:
    ordered = [b"\x00", b"\x00\x00", b"\x00\xff", b"\x01", b"\x7f", b"\x80", b"\xfe\xff", b"\xff"]
    put_keys(store, *reversed(ordered))
    assert keys(store) == ordered


def test_a_scan_shows_what_was_there_when_it_was_asked_for(store: Store) -> None:
    put_keys(store, b"a", b"b", b"c")
    not_begun = store.scan(LOG, b"", END)
    begun = store.scan(LOG, b"", END)
    assert next(begun)[0] == b"a"
    put(store, (LOG, b"b", b"changed"), (LOG, b"c", None), (LOG, b"d", b"new"), deleted_ranges=[(LOG, b"a", b"b")])
    assert list(not_begun) == [(b"a", b"value of a"), (b"b", b"value of b"), (b"c", b"value of c")]
    assert list(begun) == [(b"b", b"value of b"), (b"c", b"value of c")]
    assert list(store.scan(LOG, b"", END)) == [(b"b", b"changed"), (b"d", b"new")]


def backwards(store: Store, start: bytes = b"", end: bytes = END) -> list[bytes]:
    return [key for key, _ in store.scan_backwards(LOG, start, end)]


def test_a_scan_backwards_has_the_same_keys_the_last_one_first(store: Store) -> None:
    put_keys(store, b"d", b"b", b"a", b"c", b"bb")
    put_keys(store, b"bbb", family=PRODUCERS)
    assert backwards(store) == [b"d", b"c", b"bb", b"b", b"a"]
    assert backwards(store, b"b", b"d") == [b"c", b"bb", b"b"]
    assert backwards(store, b"aa", b"bba") == [b"bb", b"b"]
    assert list(store.scan_backwards(LOG, b"bb", b"c")) == [(b"bb", b"value of bb")]


@pytest.mark.parametrize(("start", "end"), [(b"b", b"b"), (b"c", b"a"), (b"x", END), (b"", b"")])
def test_a_scan_backwards_of_an_empty_range_ends_at_once(store: Store, start: bytes, end: bytes) -> None:
    put_keys(store, b"a", b"b", b"c")
    assert backwards(store, start, end) == []


def test_a_scan_backwards_shows_what_was_there_when_it_was_asked_for(store: Store) -> None:
    put_keys(store, b"a", b"b", b"c")
    not_begun = store.scan_backwards(LOG, b"", END)
    begun = store.scan_backwards(LOG, b"", END)
    assert next(begun)[0] == b"c"
    put(store, (LOG, b"b", b"changed"), (LOG, b"a", None), (LOG, b"d", b"new"), deleted_ranges=[(LOG, b"c", b"d")])
    assert list(not_begun) == [(b"c", b"value of c"), (b"b", b"value of b"), (b"a", b"value of a")]
    assert list(begun) == [(b"b", b"value of b"), (b"a", b"value of a")]
    assert backwards(store) == [b"d", b"b"]


def test_scans_of_several_families_made_without_a_write_between_are_one_view(store: Store) -> None:
    put(store, (LOG, b"a", b"1"), (PRODUCERS, b"a", b"1"))
    scans = [store.scan(family, b"", END) for family in (LOG, PRODUCERS)]
    put(store, (LOG, b"a", b"2"), (PRODUCERS, b"a", b"2"))
    assert [list(scan) for scan in scans] == [[(b"a", b"1")], [(b"a", b"1")]]


def test_last_finds_the_greatest_key_with_the_prefix(store: Store) -> None:
    put_keys(store, b"\x01\x00", b"\x01\x07", b"\x02", b"\x02\x05", b"\x04")
    assert store.last(LOG, b"\x01") == (b"\x01\x07", b"value of \x01\x07")
    assert store.last(LOG, b"\x02") == (b"\x02\x05", b"value of \x02\x05")
    assert store.last(LOG, b"\x03") is None
    assert store.last(LOG, b"\x00") is None
    assert store.last(LOG, b"\x05") is None
    assert store.last(LOG, b"") == (b"\x04", b"value of \x04")
    assert store.last(PRODUCERS, b"\x01") is None


def test_the_greatest_key_is_found_without_its_value(store: Store) -> None:
    put_keys(store, b"\x01\x00", b"\x01\x07", b"\x02")
    assert store.last_key(LOG, b"\x01") == b"\x01\x07"
    assert store.last_key(LOG, b"\x03") is None
    assert store.last_key(PRODUCERS, b"") is None


def test_last_is_not_led_astray_by_the_key_that_follows_the_prefix(store: Store) -> None:
    put_keys(store, b"\x01\xff", b"\x02")
    assert store.last(LOG, b"\x01") == (b"\x01\xff", b"value of \x01\xff")


def test_last_takes_a_prefix_of_greatest_bytes(store: Store) -> None:
    put_keys(store, b"\x01", b"\xff\xff", b"\xff\xff\x03")
    assert store.last(LOG, b"\xff\xff") == (b"\xff\xff\x03", b"value of \xff\xff\x03")
    put_keys(store, b"\x01\xff\xff\x09", b"\x02")
    assert store.last(LOG, b"\x01\xff\xff") == (b"\x01\xff\xff\x09", b"value of \x01\xff\xff\x09")
    assert store.last(LOG, b"\xff\xff\xff") is None


def test_last_does_not_see_what_was_deleted(store: Store) -> None:
    put_keys(store, b"a1", b"a2", b"a3", b"a4")
    put(store, (LOG, b"a4", None), deleted_ranges=[(LOG, b"a2", b"a4")])
    assert store.last(LOG, b"a") == (b"a1", b"value of a1")
    put(store, deleted_ranges=[(LOG, b"a", b"b")])
    assert store.last(LOG, b"a") is None


def test_a_range_is_deleted_after_the_mutations_of_its_group(store: Store) -> None:
    put_keys(store, b"a", b"b", b"c")
    put(store, (LOG, b"b1", b"new"), (LOG, b"c1", b"new"), deleted_ranges=[(LOG, b"b", b"c")])
    assert keys(store) == [b"a", b"c", b"c1"]


def test_a_deleted_range_is_half_open_and_of_one_family(store: Store) -> None:
    put_keys(store, b"a", b"b", b"c")
    put_keys(store, b"b", family=PRODUCERS)
    put(store, deleted_ranges=[(LOG, b"a", b"c")])
    assert keys(store) == [b"c"]
    assert keys(store, family=PRODUCERS) == [b"b"]


@pytest.mark.parametrize(("start", "end"), [(b"b", b"b"), (b"c", b"a")])
def test_deleting_an_empty_range_deletes_nothing(store: Store, start: bytes, end: bytes) -> None:
    put_keys(store, b"a", b"b", b"c")
    put(store, deleted_ranges=[(LOG, start, end)])
    assert keys(store) == [b"a", b"b", b"c"]


def test_what_was_written_is_found_after_close_and_open(shelf: Shelf) -> None:
    put(shelf.store, *((family, b"key", family.name.encode()) for family in Family))
    put(shelf.store, (LOG, b"later", b"1"), deleted_ranges=[(PRODUCERS, b"", END)])
    before = rows_of_all_families(shelf.store)
    found = shelf.reopen()
    assert rows_of_all_families(found) == before
    assert found.get(META, b"key") == b"META"
    assert found.version() == 2
    put_keys(found, b"more")
    assert shelf.reopen().version() == 3


def test_closing_twice_is_closing_once(shelf: Shelf) -> None:
    shelf.store.close()
    shelf.store.close()
    assert shelf.reopen().version() == 0


def test_a_store_is_closed_although_a_scan_was_left_open(shelf: Shelf) -> None:
    put_keys(shelf.store, b"a", b"b")
    left_open = shelf.store.scan(LOG, b"", END)
    assert next(left_open)[0] == b"a"
    assert keys(shelf.reopen()) == [b"a", b"b"]


ROOMS = count()
"""Beginnings of keys. Each history has a room of its own, because no later one may write into its retired ranges."""

a_family = st.sampled_from([LOG, PRODUCERS])
a_key = st.binary(min_size=1, max_size=3).map(lambda key: bytes(byte % 4 for byte in key))
a_value = st.binary(max_size=2).filter(lambda value: value[:1] != b"\xff")
a_mutation = st.tuples(a_family, a_key, st.none() | a_value)
a_range = st.tuples(a_family, a_key, a_key)
a_group = st.tuples(st.lists(a_mutation, max_size=6), st.lists(a_range, max_size=1))


@pytest.fixture(scope="module")
def both() -> Iterator[tuple[Store, Store]]:
    with ExitStack() as cleanup:
        directory = cleanup.enter_context(tempfile.TemporaryDirectory())
        rocks = open_store(directory, shard_count=64)
        cleanup.callback(rocks.close)
        yield rocks, MemoryStore()


def _inside(
    room: bytes, group: tuple[list[Mutation], list[KeyRange]], retired: RetiredRanges
) -> tuple[list[Mutation], list[KeyRange]]:
    """The group with its keys in this room, without rows in ranges that are retired there."""
    mutations, ranges = group
    placed = [(family, room + key, value) for family, key, value in mutations]
    placed = [each for each in placed if each[2] is None or retired.end_of(each[0], each[1]) is None]
    placed_ranges = [(family, room + start, room + end) for family, start, end in ranges]
    for each in placed_ranges:
        retired.add(*each)
    return placed, placed_ranges


@settings(max_examples=100, deadline=None)
@given(batches=st.lists(st.lists(a_group, min_size=1, max_size=3), max_size=6), prefix=a_key, bounds=a_range)
def test_the_memory_store_is_a_true_likeness(
    both: tuple[Store, Store],
    batches: list[list[tuple[list[Mutation], list[KeyRange]]]],
    prefix: bytes,
    bounds: KeyRange,
) -> None:
    room, retired = next(ROOMS).to_bytes(2, "big"), RetiredRanges()
    for batch in batches:
        first = both[0].version() + 1
        groups = [CommitGroup(first + n, *_inside(room, group, retired)) for n, group in enumerate(batch)]
        for store in both:
            store.write(groups)
    family, start, end = bounds[0], room + bounds[1], room + bounds[2]
    rocks, memory = (
        (
            [list(store.scan(each, room, room + END)) for each in (LOG, PRODUCERS)],
            store.last(family, room + prefix),
            store.last_key(family, room + prefix),
            list(store.scan(family, start, end)),
            list(store.scan_backwards(family, start, end)),
            store.version(),
        )
        for store in both
    )
    assert rocks == memory
    assert rocks[4] == list(reversed(rocks[3]))
    assert rocks[2] == (rocks[1] and rocks[1][0])
