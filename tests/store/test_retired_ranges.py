"""Retired ranges: nothing is ever put into them again, and they merge."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator_runtime.slate.retired import RetiredRanges
from coordinator_runtime.store import CommitGroup, Family
from tests.harness.memory_store import MemoryStore

KEYS = st.binary(max_size=2)


@given(st.lists(st.tuples(KEYS, KEYS), max_size=8), KEYS)
def test_merged_ranges_hold_the_keys_of_all(ranges: list[tuple[bytes, bytes]], key: bytes) -> None:
    retired = RetiredRanges()
    for start, end in ranges:
        retired.add(Family.LOG, start, end)
    holding = [(start, end) for _family, start, end in retired.all() if start <= key < end]
    assert bool(holding) == any(start <= key < end for start, end in ranges)
    assert retired.end_of(Family.LOG, key) == (holding[0][1] if holding else None)
    ends = [end for _family, _start, end in retired.all()]
    starts = [start for _family, start, _end in retired.all()]
    assert all(end < start for end, start in zip(ends, starts[1:], strict=False)), "touching ranges are one"


def test_the_memory_store_notices_a_row_in_a_retired_range() -> None:
    store = MemoryStore()
    store.write([CommitGroup(1, [(Family.LOG, b"a", b"")], [(Family.LOG, b"a", b"c")])])
    store.write([CommitGroup(2, [(Family.LOG, b"b", None), (Family.LOG, b"c", b"")])])
    with pytest.raises(AssertionError, match="lies in a retired range"):
        store.write([CommitGroup(3, [(Family.LOG, b"b", b"")])])


def test_a_crash_takes_back_a_range_that_was_not_durable() -> None:
    store = MemoryStore()
    store.write([CommitGroup(1, [], [(Family.LOG, b"a", b"c")])])
    found = store.crash()
    found.write([CommitGroup(1, [(Family.LOG, b"b", b"")])])
    assert found.get(Family.LOG, b"b") == b""
