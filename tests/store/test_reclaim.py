"""Room of deleted data comes back: its time, its size, and no waiting for it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from coordinator_runtime.rocks import RocksStore, StoreOptions, open_store
from coordinator_runtime.rocks.reclaim import GROWN_BYTES_MIN, PAUSE_FACTOR, PAUSE_MS, Reclaimer
from coordinator_runtime.store import CommitGroup, Family, KeyRange, Mutation
from partition_log.codec import log_key, ranges_below
from tests.harness.manual_clock import ManualClock

LOG = Family.LOG
A, B = (LOG, b"a", b"b"), (LOG, b"b", b"c")


class SizedStore:
    """A store whose sizes a test says."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.compacted: list[KeyRange] = []
        self.gone: list[int] = []
        self.size_bytes = 0
        self.takes_ms = 0
        self.error: Exception | None = None

    def compact(self, family: Family, start: bytes, end: bytes) -> None:
        self.clock.advance(self.takes_ms)
        if self.error is not None:
            raise self.error
        self.compacted.append((family, start, end))

    def delete_segment(self, segment: int) -> None:
        self.gone.append(segment)

    def sst_bytes(self) -> int:
        return self.size_bytes


class Stepped(Reclaimer):
    """Does on this thread what is due, and starts none."""

    def step(self) -> None:
        with self._changed:
            is_due = self._until_due_ms() == 0
        if is_due or self._segments:
            work = self._next()
            assert work is not None
            segments, ranges = work
            for segment in segments:
                self._store.delete_segment(segment)
            if ranges:
                self._compact(ranges)


@pytest.fixture
def sized() -> SizedStore:
    return SizedStore(ManualClock())


@pytest.fixture
def reclaimer(sized: SizedStore, monkeypatch: pytest.MonkeyPatch) -> Stepped:
    monkeypatch.setattr(Stepped, "_run", lambda _self: None)
    return Stepped(sized, sized.clock)


def test_a_deletion_alone_is_compacted_after_a_pause(reclaimer: Stepped, sized: SizedStore) -> None:
    reclaimer.note([A])
    reclaimer.step()
    assert sized.compacted == []
    sized.clock.advance(PAUSE_MS)
    reclaimer.step()
    assert (sized.compacted, reclaimer.count) == ([A], 1)
    reclaimer.step()
    assert sized.compacted == [A]


def test_deletions_of_the_same_beginning_are_one(reclaimer: Stepped, sized: SizedStore) -> None:
    reclaimer.note([(LOG, b"a", b"b"), (LOG, b"a", b"d"), (LOG, b"a", b"c"), B])
    sized.clock.advance(PAUSE_MS)
    reclaimer.step()
    assert sized.compacted == [(LOG, b"a", b"d"), B]


def test_a_long_compaction_is_followed_by_a_longer_pause(reclaimer: Stepped, sized: SizedStore) -> None:
    reclaimer.note([A])
    sized.clock.advance(PAUSE_MS)
    sized.takes_ms = 1_000
    reclaimer.step()
    reclaimer.note([B])
    sized.clock.advance(1_000 * PAUSE_FACTOR - 1)
    reclaimer.step()
    assert sized.compacted == [A]
    sized.clock.advance(1)
    reclaimer.step()
    assert sized.compacted == [A, B]


def test_files_that_grow_while_something_is_deleted_do_not_wait(reclaimer: Stepped, sized: SizedStore) -> None:
    reclaimer.note([A])
    sized.size_bytes = GROWN_BYTES_MIN - 1
    reclaimer.step()
    assert sized.compacted == []
    sized.size_bytes += 1
    reclaimer.step()
    assert sized.compacted == [A]
    # A large partition may grow by more: it has been as large after the last compaction.
    sized.size_bytes = 10 * GROWN_BYTES_MIN
    reclaimer.note([B])
    reclaimer.step()
    assert sized.compacted == [A, B]
    sized.size_bytes = 12 * GROWN_BYTES_MIN
    reclaimer.note([A])
    reclaimer.step()
    assert sized.compacted == [A, B]


def test_without_deletions_nothing_is_compacted_however_much_is_written(reclaimer: Stepped, sized: SizedStore) -> None:
    reclaimer.note([], [7])
    sized.size_bytes = 100 * GROWN_BYTES_MIN
    sized.clock.advance(10 * PAUSE_MS)
    reclaimer.step()
    assert (sized.compacted, sized.gone) == ([], [7])


def test_what_fails_is_remembered_and_the_next_goes_on() -> None:
    sized = SizedStore(ManualClock())
    sized.error = OSError("no")
    reclaimer = Reclaimer(sized, sized.clock)
    sized.size_bytes = 0
    reclaimer.note([A], [1])
    sized.size_bytes = GROWN_BYTES_MIN
    reclaimer.note([A], [2])
    reclaimer.close(lambda: None)
    assert sorted(sized.gone) == [1, 2]
    assert reclaimer.failure in (None, sized.error)


# On RocksDB


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RocksStore]:
    opened = open_store(tmp_path, shard_count=64, options=StoreOptions(write_buffer_bytes=1 << 20))
    yield opened
    opened.close()


def commit(store: RocksStore, *mutations: Mutation, deleted: list[KeyRange] | None = None) -> None:
    store.write([CommitGroup(store.version() + 1, mutations, deleted or [])])
    store.sync()


def fill(store: RocksStore, mebibytes: int) -> int:
    for number in range(mebibytes * 64):
        commit(store, (LOG, log_key(1, number), b"\0" + os.urandom(16_383)))
    return mebibytes * 64


def compact_now(store: RocksStore) -> None:
    """Compact as the thread does when it is time."""
    reclaimer = store._reclaimer
    reclaimer.close(lambda: None)
    for (family, start), end in reclaimer._ranges.items():
        reclaimer._store.compact(family, start, end)


def test_the_room_of_a_removed_beginning_comes_back(store: RocksStore) -> None:
    count = fill(store, 16)
    before = store.statistics()
    kept_from = count * 9 // 10
    commit(store, deleted=ranges_below(1, kept_from))
    compact_now(store)
    after = store.statistics()
    assert before.sst_bytes + before.memtable_bytes > 14 << 20
    assert after.sst_bytes + after.memtable_bytes < 4 << 20
    rows = store.scan(LOG, log_key(1, 0), log_key(2, 0))
    assert [key for key, _value in rows] == [log_key(1, number) for number in range(kept_from, count)]


def test_a_store_that_compacts_can_be_closed_and_opened_again(tmp_path: Path) -> None:
    store = open_store(tmp_path, shard_count=64, options=StoreOptions(write_buffer_bytes=1 << 20))
    count = fill(store, 24)
    commit(store, deleted=ranges_below(1, count // 2))
    reclaimer = store._reclaimer
    with reclaimer._changed:
        reclaimer._not_before_ms = 0
        reclaimer._changed.notify()
    commit(store, (LOG, log_key(1, count), b"\0last"))
    store.close()
    again = open_store(tmp_path, shard_count=64)
    try:
        rows = again.scan(LOG, log_key(1, 0), log_key(2, 0))
        assert [key for key, _value in rows] == [log_key(1, number) for number in range(count // 2, count + 1)]
    finally:
        again.close()
