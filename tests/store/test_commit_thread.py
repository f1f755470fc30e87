"""The commit thread: order, merging, nothing reported too early, nothing written after an error."""

from __future__ import annotations

import errno
import queue
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from coordinator_runtime import commit_groups
from coordinator_runtime.clock import SystemClock
from coordinator_runtime.commit_groups import BATCH_BYTES_MAX, BEGIN_SECONDS_MAX, MARK_INTERVAL_MS, CommitThread
from coordinator_runtime.rocks import open_store
from coordinator_runtime.store import CommitGroup, Family, StoreFailed
from tests.harness.manual_clock import ManualClock
from tests.harness.memory_store import MemoryStore

DISK_ERRORS = [OSError(errno.EIO, "Input/output error"), OSError(errno.ENOSPC, "No space left on device")]


class BatchRecorder(MemoryStore):
    """Remembers which groups came in one write."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[list[int]] = []

    def write(self, groups: Sequence[CommitGroup]) -> None:
        self.batches.append([group.version for group in groups])
        super().write(groups)


class Reports:
    """Reports of a commit thread, and a way to wait for them."""

    def __init__(self) -> None:
        self.durable: list[int] = []
        self.marks: list[int] = []
        self.failures: list[BaseException] = []
        self._changed = threading.Condition()

    def on_durable(self, version: int) -> None:
        with self._changed:
            self.durable.append(version)
            self._changed.notify_all()

    def mark_durable(self, version: int) -> None:
        with self._changed:
            self.marks.append(version)
            self._changed.notify_all()

    def on_failure(self, error: BaseException) -> None:
        with self._changed:
            self.failures.append(error)
            self._changed.notify_all()

    def wait_until(self, condition: Callable[[], bool]) -> None:
        with self._changed:
            self._changed.wait_for(condition)

    def wait_until_durable(self, version: int) -> None:
        self.wait_until(lambda: self.durable[-1:] == [version])


def group(version: int, size_bytes: int = 100) -> CommitGroup:
    return CommitGroup(version, [(Family.LOG, version.to_bytes(8, "big"), b"row")], size_bytes=size_bytes)


@pytest.fixture
def store() -> BatchRecorder:
    return BatchRecorder()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def reports() -> Reports:
    return Reports()


@pytest.fixture
def thread(store: BatchRecorder, clock: ManualClock, reports: Reports) -> Iterator[CommitThread]:
    made = CommitThread(
        store,
        clock,
        on_durable=reports.on_durable,
        on_failure=reports.on_failure,
        mark_durable=reports.mark_durable,
    )
    made.start()
    yield made
    made.close()


def test_nothing_is_durable_before_the_sync_returns(
    thread: CommitThread, store: BatchRecorder, reports: Reports
) -> None:
    held = store.hold_sync()
    thread.submit(group(1))
    held.wait_until_arrived()
    assert store.version() == 1
    assert reports.durable == []
    held.release()
    reports.wait_until_durable(1)
    assert store.unsynced_groups == 0


def test_groups_that_arrive_during_a_sync_share_the_next_one(
    thread: CommitThread, store: BatchRecorder, reports: Reports
) -> None:
    held = store.hold_sync()
    thread.submit(group(1))
    held.wait_until_arrived()
    for version in range(2, 6):
        thread.submit(group(version))
    assert thread.waiting_groups == 4
    held.release()
    reports.wait_until_durable(5)
    assert store.batches == [[1], [2, 3, 4, 5]]
    assert reports.durable == [1, 5]


def test_who_lets_it_begin_goes_on_when_the_thread_has_taken_the_group(
    thread: CommitThread, store: BatchRecorder, reports: Reports, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit_groups, "BEGIN_SECONDS_MAX", threading.TIMEOUT_MAX)
    for version in range(1, 100):
        held = store.hold_sync()
        thread.submit(group(version))
        thread.let_begin()
        assert thread.waiting_groups == 0
        held.release()
        reports.wait_until_durable(version)


def test_who_lets_it_begin_does_not_wait_for_a_disk_that_hangs(
    thread: CommitThread, store: BatchRecorder, reports: Reports
) -> None:
    held = store.hold_sync()
    thread.submit(group(1))
    held.wait_until_arrived()
    thread.submit(group(2))
    thread.let_begin()
    assert thread.waiting_groups == 1
    held.release()
    reports.wait_until_durable(2)


def test_a_group_without_waiting_callers_delays_no_later_one(
    thread: CommitThread, reports: Reports, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit_groups, "BEGIN_SECONDS_MAX", threading.TIMEOUT_MAX)
    for version in range(1, 100):
        thread.submit(group(version))
    reports.wait_until_durable(99)
    thread.let_begin()
    thread.submit(group(100))
    thread.let_begin()
    reports.wait_until_durable(100)


def test_a_thread_that_takes_a_group_before_its_hand_over_has_returned_delays_no_caller(
    store: BatchRecorder, clock: ManualClock, reports: Reports, monkeypatch: pytest.MonkeyPatch
) -> None:
    class SlowToReturn(queue.SimpleQueue[CommitGroup | None]):
        def put(self, item: CommitGroup | None, block: bool = True, timeout: float | None = None) -> None:
            super().put(item, block, timeout)
            if item is not None:
                reports.wait_until_durable(item.version)

    monkeypatch.setattr(commit_groups, "SimpleQueue", SlowToReturn)
    monkeypatch.setattr(commit_groups, "BEGIN_SECONDS_MAX", threading.TIMEOUT_MAX)
    thread = CommitThread(
        store, clock, on_durable=reports.on_durable, on_failure=reports.on_failure, mark_durable=reports.mark_durable
    )
    thread.start()
    thread.submit(group(1))
    thread.let_begin()
    thread.close()
    assert reports.durable == [1]


def test_the_loop_waits_for_the_thread_no_longer_than_the_thread_would_have_waited_for_it() -> None:
    assert 0 < BEGIN_SECONDS_MAX < sys.getswitchinterval()


def test_batches_are_bounded_and_groups_are_never_split(
    thread: CommitThread, store: BatchRecorder, reports: Reports
) -> None:
    held = store.hold_sync()
    thread.submit(group(1))
    held.wait_until_arrived()
    half = BATCH_BYTES_MAX // 2
    for version, size_bytes in enumerate([half, half, 1, 3 * BATCH_BYTES_MAX, 10, half, half], 2):
        thread.submit(group(version, size_bytes))
    held.release()
    reports.wait_until_durable(8)
    assert store.batches == [[1], [2, 3], [4], [5], [6, 7], [8]]
    assert reports.durable == [1, 8]


def test_order_is_kept_however_the_groups_arrive(thread: CommitThread, store: BatchRecorder, reports: Reports) -> None:
    for version in range(1, 3001):
        thread.submit(group(version))
    reports.wait_until_durable(3000)
    assert [version for batch in store.batches for version in batch] == list(range(1, 3001))
    assert reports.durable == sorted(set(reports.durable))


@pytest.mark.parametrize("error", DISK_ERRORS)
def test_after_a_failed_sync_nothing_more_is_written_or_reported(
    thread: CommitThread, store: BatchRecorder, reports: Reports, error: OSError
) -> None:
    thread.submit(group(1))
    reports.wait_until_durable(1)
    store.fail_next_sync(error)
    held = store.hold_sync()
    thread.submit(group(2))
    held.wait_until_arrived()
    thread.submit(group(3))
    held.release()
    reports.wait_until(lambda: bool(reports.failures))
    thread.submit(group(4))
    thread.close()
    [failure] = reports.failures
    assert isinstance(failure, StoreFailed)
    assert failure.__cause__ is error
    assert store.batches == [[1], [2]]
    assert reports.durable == [1]
    assert 2 not in reports.marks


@pytest.mark.parametrize("error", DISK_ERRORS)
def test_a_failed_write_is_not_followed_by_a_sync(
    thread: CommitThread, store: BatchRecorder, reports: Reports, error: OSError
) -> None:
    store.fail_next_write(error)
    never_reached = store.hold_sync()
    never_reached.release()
    thread.submit(group(1))
    reports.wait_until(lambda: bool(reports.failures))
    thread.submit(group(2))
    thread.close()
    assert [failure.__cause__ for failure in reports.failures] == [error]
    assert (store.batches, reports.durable, reports.marks) == ([[1]], [], [])


def test_a_report_that_fails_ends_the_thread(store: BatchRecorder, clock: ManualClock, reports: Reports) -> None:
    def loop_is_closed(version: int) -> None:
        raise RuntimeError("the loop is closed")

    thread = CommitThread(
        store, clock, on_durable=loop_is_closed, on_failure=reports.on_failure, mark_durable=reports.mark_durable
    )
    thread.start()
    thread.submit(group(1))
    reports.wait_until(lambda: bool(reports.failures))
    thread.submit(group(2))
    thread.close()
    assert [str(failure) for failure in reports.failures] == ["the loop is closed"]
    assert store.batches == [[1]]


def test_a_mark_that_cannot_be_written_is_a_failure(store: BatchRecorder, clock: ManualClock, reports: Reports) -> None:
    def disk_is_full(version: int) -> None:
        raise DISK_ERRORS[1]

    thread = CommitThread(
        store, clock, on_durable=reports.on_durable, on_failure=reports.on_failure, mark_durable=disk_is_full
    )
    thread.start()
    thread.submit(group(1))
    thread.close()
    assert reports.durable == [1]
    assert reports.failures == [DISK_ERRORS[1]]


def test_close_makes_durable_what_was_handed_over(store: BatchRecorder, reports: Reports, thread: CommitThread) -> None:
    held = store.hold_sync()
    thread.submit(group(1))
    held.wait_until_arrived()
    thread.submit(group(2))
    thread.submit(group(3))
    held.release()
    thread.close()
    thread.close()
    assert reports.durable == [1, 3]
    assert reports.marks == [3]
    with pytest.raises(AssertionError, match="after close"):
        thread.submit(group(4))


def test_a_thread_that_never_started_is_closed(store: BatchRecorder, clock: ManualClock, reports: Reports) -> None:
    CommitThread(
        store,
        clock,
        on_durable=reports.on_durable,
        on_failure=reports.on_failure,
        mark_durable=reports.mark_durable,
    ).close()
    assert store.batches == []


def test_the_mark_is_written_when_its_interval_is_over(
    thread: CommitThread, clock: ManualClock, reports: Reports
) -> None:
    clock.advance(MARK_INTERVAL_MS)
    thread.submit(group(1))
    reports.wait_until(lambda: reports.marks == [1])
    for version in range(2, 6):
        thread.submit(group(version))
        reports.wait_until_durable(version)
    clock.advance(MARK_INTERVAL_MS - 1)
    thread.submit(group(6))
    reports.wait_until_durable(6)
    assert reports.marks == [1]
    clock.advance(1)
    thread.submit(group(7))
    reports.wait_until(lambda: len(reports.marks) == 2)
    thread.close()
    assert reports.marks[0] == 1
    assert reports.marks[1] in {6, 7}
    assert reports.marks[-1] == 7


def test_the_mark_follows_although_nothing_more_arrives(
    thread: CommitThread, clock: ManualClock, reports: Reports
) -> None:
    thread.submit(group(1))
    reports.wait_until_durable(1)
    clock.advance(MARK_INTERVAL_MS)
    reports.wait_until(lambda: reports.marks == [1])


def test_the_thread_looks_again_for_the_mark_when_it_is_due(
    store: BatchRecorder, clock: ManualClock, reports: Reports
) -> None:
    thread = CommitThread(
        store,
        clock,
        on_durable=reports.on_durable,
        on_failure=reports.on_failure,
        mark_durable=reports.mark_durable,
    )
    assert thread._until_mark_seconds() is None, "nothing is unmarked"
    thread._synced_version += 1
    assert thread._until_mark_seconds() == MARK_INTERVAL_MS / 1000
    clock.advance(MARK_INTERVAL_MS + 1)
    assert thread._until_mark_seconds() == 0


def test_a_step_of_the_wall_clock_moves_no_mark(thread: CommitThread, clock: ManualClock, reports: Reports) -> None:
    clock.step_wall(10 * MARK_INTERVAL_MS)
    thread.submit(group(1))
    reports.wait_until_durable(1)
    thread.submit(group(2))
    reports.wait_until_durable(2)
    assert reports.marks == []


def test_groups_go_through_to_the_disk(tmp_path: Path, reports: Reports) -> None:
    store = open_store(tmp_path, shard_count=64)
    thread = CommitThread(
        store,
        SystemClock(),
        on_durable=reports.on_durable,
        on_failure=reports.on_failure,
        mark_durable=store.mark_durable,
    )
    thread.start()
    for version in range(1, 501):
        thread.submit(group(version))
    thread.close()
    assert reports.failures == []
    assert reports.durable[-1] == store.durable_mark.read().version == 500
    store.close()
    store = open_store(tmp_path, shard_count=64)
    assert [key for key, _ in store.scan(Family.LOG, b"", b"\xff")] == [n.to_bytes(8, "big") for n in range(1, 501)]
    store.close()


def test_a_group_that_stores_nothing_waits_for_no_sync_and_moves_no_mark(
    thread: CommitThread, store: BatchRecorder, clock: ManualClock, reports: Reports
) -> None:
    thread.submit(group(1))
    reports.wait_until_durable(1)
    held = store.hold_sync()
    thread.submit(CommitGroup(2, []))
    reports.wait_until_durable(2)
    assert store.unsynced_groups == 1
    held.release()
    thread.close()
    assert reports.marks == [1]
