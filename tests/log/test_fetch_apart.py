"""Fetches for which a thread reads: nothing waits for them, and they show what fetches on the loop show."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from coordinator_protocol.errors import ErrorCode
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import PartitionName
from coordinator_runtime.store import Family, Store, StoreReads
from coordinator_runtime.store_readers import ReaderThreads
from coordinator_server.traffic.answer_bytes import AnswerBytes, AnswerLimits
from partition_log import codec
from partition_log.requests import DeleteRecords, DeleteTopics, FetchResult, RecordsToDelete, TopicName
from tests.harness.memory_store import Damage, MemoryStore
from tests.harness.patience import DEADLINE_SECONDS
from tests.log.driven_log import (
    ABORT,
    COMMIT,
    CONTEXT,
    TOPIC,
    UNCOMMITTED,
    Batch,
    DrivenLog,
    code,
    offsets_of,
    transactional,
)

WAIT_MS = 500


class HeldReader:
    """Runs a job when the test says so."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.jobs: deque[Callable[[], None]] = deque()

    def read(self, job: Callable[[StoreReads], Any]) -> Pending[Any]:
        reply: Pending[Any] = Pending()

        def run() -> None:
            try:
                result = job(self._store)
            except Exception as error:  # noqa: BLE001
                reply.fail(error)
            else:
                reply.succeed(result)

        self.jobs.append(run)
        return reply

    def release(self) -> None:
        """Run the jobs that are there now."""
        for _ in range(len(self.jobs)):
            self.jobs.popleft()()


@pytest.fixture
def reader(driven: DrivenLog) -> HeldReader:
    driven.log.fetcher.reader = held = HeldReader(driven.store)
    return held


def pass_time(driven: DrivenLog, elapsed_ms: int) -> None:
    driven.clock.advance(elapsed_ms)
    driven.runtime.run_due_timers()


def answer(fetching: Pending[list[FetchResult]]) -> FetchResult:
    (result,) = fetching.result()
    return result


def no_call_waits(driven: DrivenLog) -> bool:
    fetcher = driven.log.fetcher
    return fetcher.waiting_fetches == 0 and not fetcher._watches and "fetch" not in driven.runtime.timers.by_kind()


def test_a_slow_read_delays_no_other_fetch(driven: DrivenLog, reader: HeldReader) -> None:
    driven.append(Batch())
    fetching = driven.fetch()
    assert not fetching.is_settled
    assert driven.append(Batch()).error is None, "the loop serves others meanwhile"
    reader.release()
    assert offsets_of(answer(fetching)) == [0]
    assert no_call_waits(driven)


def test_records_that_come_while_a_thread_reads_are_read_as_well(driven: DrivenLog, reader: HeldReader) -> None:
    fetching = driven.fetch(wait_ms_max=WAIT_MS)
    assert not reader.jobs, "there is nothing to read yet"
    driven.append(Batch())
    driven.append(Batch())
    reader.release()
    assert offsets_of(answer(fetching)) == [0], "the first one is enough"
    more = driven.fetch(wait_ms_max=WAIT_MS, bytes_min=1_000_000)
    driven.append(Batch())
    reader.release()
    assert len(reader.jobs) == 1, "it reads on"
    reader.release()
    pass_time(driven, WAIT_MS)
    assert offsets_of(answer(more)) == [0, 1, 2]


def test_a_fetch_whose_time_is_over_is_answered_once_it_was_read(driven: DrivenLog, reader: HeldReader) -> None:
    driven.append(Batch())
    fetching = driven.fetch(wait_ms_max=WAIT_MS, bytes_min=1_000_000)
    pass_time(driven, WAIT_MS)
    assert not fetching.is_settled
    reader.release()
    assert offsets_of(answer(fetching)) == [0]
    assert no_call_waits(driven)


def test_a_caller_that_leaves_while_a_thread_reads_leaves_nothing(driven: DrivenLog, reader: HeldReader) -> None:
    driven.log.fetcher.answer_limit = answers = AnswerBytes(AnswerLimits())
    driven.append(Batch())
    fetching = driven.fetch(wait_ms_max=WAIT_MS)
    fetching.cancel()
    assert no_call_waits(driven)
    reader.release()
    assert fetching.error is not None
    assert answers.held_bytes == 0


def test_records_that_are_removed_while_a_thread_reads_are_never_passed_over(
    driven: DrivenLog, reader: HeldReader
) -> None:
    for _ in range(4):
        driven.append(Batch())
    fetching = driven.fetch()
    driven.log.delete_records(DeleteRecords([RecordsToDelete(PartitionName(TOPIC, b"", 0), 2)]), CONTEXT)
    driven.flush()
    driven.remove()
    reader.release()
    assert code(answer(fetching)) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert no_call_waits(driven)


def test_a_topic_that_is_deleted_while_a_thread_reads_is_unknown(driven: DrivenLog, reader: HeldReader) -> None:
    driven.append(Batch())
    fetching = driven.fetch()
    driven.topics.delete_topics(DeleteTopics([TopicName(TOPIC)]), CONTEXT)
    driven.flush()
    reader.release()
    assert code(answer(fetching)) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert no_call_waits(driven)


def test_damage_that_a_thread_meets_is_told_to_the_reader(driven: DrivenLog, reader: HeldReader) -> None:
    driven.append(Batch(count=3))
    store = driven.store
    assert isinstance(store, MemoryStore)
    store.damage(Family.LOG, codec.log_key(driven.ordinal(), 2), Damage.VALUE)
    fetching = driven.fetch()
    reader.release()
    assert (code(answer(fetching)), answer(fetching).next_offset) == (ErrorCode.CORRUPT_MESSAGE, 3)
    assert len(driven.told) == 1


def test_a_defect_of_a_read_is_the_answer(driven: DrivenLog, reader: HeldReader) -> None:
    driven.append(Batch())
    fetching = driven.fetch()
    reader._store = None  # type: ignore[assignment]
    reader.release()
    with pytest.raises(AttributeError):
        fetching.result()
    assert no_call_waits(driven)


def test_every_offset_shows_the_same_on_a_thread_as_on_the_loop(driven: DrivenLog) -> None:
    for sequence, outcome in enumerate((COMMIT, ABORT, ABORT, COMMIT)):
        driven.append(Batch(transactional(7, sequence), 0, count=2))
        driven.append(Batch())
        driven.end(transactional(7, sequence), outcome)
    driven.append(Batch(transactional(7, 4), 0))
    ways: list[dict[str, Any]] = [{}, {"isolation": UNCOMMITTED}, {"is_raw": True}, {"bytes_max": 1}, {"end_offset": 9}]
    asked = [{**way, "fetch_offset": offset} for way in ways for offset in range(driven.head().log_end_offset + 2)]
    at_once = [driven.read(**each) for each in asked]
    driven.log.fetcher.reader = reader = HeldReader(driven.store)
    apart = [driven.fetch(**each) for each in asked]
    reader.release()
    assert [shown(answer(each)) for each in apart] == [shown(each) for each in at_once]


def shown(result: FetchResult) -> object:
    error = None if result.error is None else (result.error.code, result.error.message)
    batches = [(header.base_offset, bytes(encoded)) for header, encoded in result.batches]
    return error, batches, result.next_offset, result.head, result.aborted, result.aborted_records_hidden


# The threads


@contextmanager
def opened(store: Store, open_views: list[int]) -> Iterator[StoreReads]:
    open_views.append(1)
    try:
        yield store
    finally:
        open_views.pop()


def test_jobs_run_on_threads_and_answer_on_the_loop() -> None:
    for_loop: deque[Callable[[], None]] = deque()
    come, open_views = threading.Semaphore(0), list[int]()

    def tell(settle: Callable[[], None]) -> None:
        for_loop.append(settle)
        come.release()

    readers = ReaderThreads(lambda: opened(MemoryStore(), open_views), tell, count=2)
    names = readers.read(lambda _rows: threading.current_thread().name)
    version = readers.read(lambda rows: rows.version())
    wrong = readers.read(lambda rows: rows.scan_at_will())  # type: ignore[attr-defined]
    for _ in range(3):
        assert come.acquire(timeout=DEADLINE_SECONDS)
    assert not names.is_settled, "only the loop settles"
    while for_loop:
        for_loop.popleft()()
    assert (names.result(), version.result()) == ("reader", 0)
    with pytest.raises(AttributeError):
        wrong.result()
    assert not open_views
