"""Fetches that wait."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_runtime.ports import Connection, NoAnswerLimit, PartitionName
from coordinator_runtime.store import StoreFailed
from coordinator_server.traffic.answer_bytes import AnswerBytes, AnswerLimits
from partition_log.reading import BYTES_READ_MAX, ReadBudget
from partition_log.requests import DeleteTopics, Fetch, FetchItem, TopicName
from tests.harness.garbage import nothing_left_to_the_collector
from tests.harness.memory_store import MemoryStore
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

TX = transactional()
WAIT_MS = 500


def pass_time(driven: DrivenLog, elapsed_ms: int) -> None:
    driven.clock.advance(elapsed_ms)
    driven.runtime.run_due_timers()


def no_call_waits(driven: DrivenLog) -> bool:
    fetcher = driven.log.fetcher
    return fetcher.waiting_fetches == 0 and not fetcher._watches and "fetch" not in driven.runtime.timers.by_kind()


def test_a_fetch_waits_for_the_first_record(driven: DrivenLog) -> None:
    waiting = driven.fetch(wait_ms_max=WAIT_MS)
    driven.send(Batch())
    assert not waiting.is_settled
    driven.flush()
    assert offsets_of(waiting.result()[0]) == [0]
    assert no_call_waits(driven)


def test_all_that_a_waiting_fetch_has_found_counts_and_nothing_of_it_once_it_is_answered(driven: DrivenLog) -> None:
    driven.log.fetcher.answer_limit = answers = AnswerBytes(AnswerLimits())
    driven.append(Batch())
    waiting = driven.fetch(wait_ms_max=WAIT_MS, bytes_min=1_000_000)
    first = answers.held_bytes
    assert first > 0
    for found in (2, 3):
        driven.append(Batch())
        assert answers.held_bytes == found * first
    pass_time(driven, WAIT_MS)
    assert offsets_of(waiting.result()[0]) == [0, 1, 2]
    assert answers.held_bytes == 0


def test_a_fetch_that_is_woken_by_more_than_it_held_gives_back_what_it_held(driven: DrivenLog) -> None:
    driven.log.fetcher.answer_limit = answers = AnswerBytes(AnswerLimits())
    answers.hold("another", 1_000_000)
    driven.append(Batch())
    waiting = driven.fetch(wait_ms_max=WAIT_MS, bytes_min=1_000)
    assert not waiting.is_settled
    driven.append(Batch(payload=bytes(2_000)))
    assert offsets_of(waiting.result()[0]) == [0, 1]
    assert answers.held_bytes == 1_000_000


class Scarce(NoAnswerLimit):
    """Room for answers of so many bytes."""

    is_scarce = True

    def __init__(self, allowed_bytes: int) -> None:
        self.allowed_bytes = allowed_bytes
        self.left_bytes = allowed_bytes

    def allowance_bytes(self, connection: Connection) -> int:
        return self.allowed_bytes

    def check_answer(self, size_bytes: int) -> None:
        if size_bytes > self.left_bytes:
            raise Refused(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "no room")


def test_a_fetch_shows_less_where_room_is_scarce_and_is_gone_on_with(driven: DrivenLog) -> None:
    for _ in range(4):
        driven.append(Batch(payload=b"x" * 1_000))
    driven.log.fetcher.answer_limit = Scarce(2_500)
    assert offsets_of(driven.read()) == [0, 1]
    assert offsets_of(driven.read(fetch_offset=2)) == [2, 3]
    driven.log.fetcher.answer_limit = Scarce(0)
    with pytest.raises(Refused, match="no room"):
        driven.fetch()


def test_a_waiting_fetch_ends_early_where_room_becomes_scarce(driven: DrivenLog) -> None:
    waiting = driven.fetch(wait_ms_max=WAIT_MS, bytes_min=10_000)
    driven.append(Batch(payload=b"x" * 1_000))
    driven.log.fetcher.answer_limit = scarce = Scarce(500)
    scarce.left_bytes = 10_000
    driven.append(Batch(payload=b"x" * 1_000))
    assert offsets_of(waiting.result()[0]) == [0]
    assert no_call_waits(driven)


def test_the_first_batch_is_shown_however_scarce_room_is_if_there_is_some(driven: DrivenLog) -> None:
    for _ in range(2):
        driven.append(Batch(payload=b"x" * 1_000))
    driven.log.fetcher.answer_limit = scarce = Scarce(0)
    scarce.left_bytes = 1_500
    assert offsets_of(driven.read()) == [0]


def test_a_fetch_that_finds_something_does_not_wait(driven: DrivenLog) -> None:
    driven.append(Batch())
    assert driven.fetch(wait_ms_max=WAIT_MS).is_settled


def test_a_fetch_that_does_not_want_to_wait_is_answered_at_once(driven: DrivenLog) -> None:
    assert driven.fetch(wait_ms_max=0).is_settled
    assert no_call_waits(driven)


def test_a_fetch_is_answered_with_what_there_is_when_its_time_is_over(driven: DrivenLog) -> None:
    waiting = driven.fetch(wait_ms_max=WAIT_MS, bytes_min=10_000)
    driven.append(Batch())
    pass_time(driven, WAIT_MS - 1)
    assert not waiting.is_settled
    pass_time(driven, 1)
    assert offsets_of(waiting.result()[0]) == [0]
    assert no_call_waits(driven)


def test_a_fetch_waits_until_enough_is_visible(driven: DrivenLog) -> None:
    waiting = driven.fetch(wait_ms_max=WAIT_MS, bytes_min=2_000)
    driven.append(Batch(payload=b"x" * 1_000))
    assert not waiting.is_settled
    driven.append(Batch(payload=b"x" * 1_000))
    assert offsets_of(waiting.result()[0]) == [0, 1]


def test_a_committed_reader_wakes_when_the_transaction_ends(driven: DrivenLog) -> None:
    waiting = driven.fetch(wait_ms_max=WAIT_MS)
    uncommitted = driven.fetch(wait_ms_max=WAIT_MS, isolation=UNCOMMITTED)
    driven.append(Batch(TX, 0))
    assert (waiting.is_settled, uncommitted.is_settled) == (False, True)
    driven.end(TX, COMMIT)
    assert offsets_of(waiting.result()[0]) == [0]


def test_an_abort_wakes_no_fetch_and_moves_the_position(driven: DrivenLog) -> None:
    waiting = driven.fetch(wait_ms_max=WAIT_MS)
    driven.append(Batch(TX, 0))
    driven.end(TX, ABORT)
    assert not waiting.is_settled
    pass_time(driven, WAIT_MS)
    (result,) = waiting.result()
    assert (result.next_offset, result.batches, result.aborted_records_hidden) == (2, (), 1)


def test_a_range_that_was_passed_completely_is_reported_although_nothing_in_it_is_visible(driven: DrivenLog) -> None:
    waiting = driven.fetch(wait_ms_max=WAIT_MS, end_offset=2)
    driven.append(Batch(TX, 0))
    driven.end(TX, ABORT)
    assert waiting.result()[0].next_offset == 2


def test_a_reader_of_several_partitions_wakes_for_any(driven: DrivenLog) -> None:
    items = tuple(FetchItem(PartitionName(TOPIC, b"", partition), 0) for partition in (0, 1))
    waiting = driven.fetch(Fetch(items, wait_ms_max=WAIT_MS))
    driven.append(Batch(), partition=1)
    first, second = waiting.result()
    assert (offsets_of(first), offsets_of(second)) == ([], [0])
    assert no_call_waits(driven)


def test_a_partition_named_twice_is_waited_for_once(driven: DrivenLog) -> None:
    items = (FetchItem(PartitionName(TOPIC, b"", 0), 0),) * 2
    waiting = driven.fetch(Fetch(items, wait_ms_max=WAIT_MS))
    driven.append(Batch())
    assert [offsets_of(result) for result in waiting.result()] == [[0], [0]]
    assert no_call_waits(driven)


def test_a_caller_that_leaves_takes_its_wait_away(driven: DrivenLog) -> None:
    waiting = driven.fetch(wait_ms_max=WAIT_MS)
    other = driven.fetch(wait_ms_max=WAIT_MS)
    waiting.cancel()
    assert driven.log.fetcher.waiting_fetches == 1
    with pytest.raises(Refused, match="gave up"):
        waiting.result()
    driven.append(Batch())
    assert other.is_settled
    assert no_call_waits(driven)


def test_a_wait_leaves_nothing_of_its_answer_to_the_collector(driven: DrivenLog) -> None:
    """However it ends: with records, with the wait, without its caller."""
    with nothing_left_to_the_collector():
        waiting = driven.fetch(wait_ms_max=WAIT_MS)
        driven.append(Batch())
        assert offsets_of(waiting.result()[0]) == [0]
        waiting = driven.fetch(fetch_offset=1, wait_ms_max=WAIT_MS)
        pass_time(driven, WAIT_MS)
        assert offsets_of(waiting.result()[0]) == []
        waiting = driven.fetch(fetch_offset=1, wait_ms_max=WAIT_MS)
        waiting.cancel()
        assert waiting.is_settled
        del waiting


def test_answering_one_reader_may_make_another_one_leave(driven: DrivenLog) -> None:
    first = driven.fetch(wait_ms_max=WAIT_MS)
    second = driven.fetch(wait_ms_max=WAIT_MS)
    first.on_settled(lambda _reply: second.cancel())
    driven.append(Batch())
    with pytest.raises(Refused, match="gave up"):
        second.result()
    assert no_call_waits(driven)


def test_answering_a_reader_may_bring_its_next_fetch(driven: DrivenLog) -> None:
    following = []
    waiting = driven.fetch(wait_ms_max=WAIT_MS)
    waiting.on_settled(lambda reply: following.append(driven.fetch(fetch_offset=1, wait_ms_max=WAIT_MS)))
    driven.append(Batch())
    assert not following[0].is_settled
    driven.append(Batch())
    assert offsets_of(following[0].result()[0]) == [1]


def test_the_deletion_of_its_topic_ends_a_wait(driven: DrivenLog) -> None:
    waiting = driven.fetch(wait_ms_max=WAIT_MS)
    driven.topics.delete_topics(DeleteTopics([TopicName(TOPIC)]), CONTEXT)
    assert not waiting.is_settled
    driven.flush()
    assert code(waiting.result()[0]) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert no_call_waits(driven)


def test_a_deletion_under_way_is_not_read_as_a_gap(driven: DrivenLog) -> None:
    waiting = driven.fetch(wait_ms_max=WAIT_MS, bytes_min=1_000_000)
    driven.append(Batch())
    driven.send(Batch())
    driven.runtime.groups.seal()
    (with_data,) = driven.driver.handed_over
    driven.topics.delete_topics(DeleteTopics([TopicName(TOPIC)]), CONTEXT)
    driven.runtime.groups.seal()
    # Both groups are in the store, and only the first one is known to be durable.
    driven.store.write(driven.driver.handed_over)
    driven.runtime.on_durable(with_data.version)
    pass_time(driven, WAIT_MS)
    (result,) = waiting.result()
    assert (offsets_of(result), result.next_offset) == ([0], 1)


def test_a_store_that_fails_one_reader_does_not_keep_the_news_from_others(driven: DrivenLog) -> None:
    waiting = [driven.fetch(wait_ms_max=WAIT_MS), driven.fetch(wait_ms_max=WAIT_MS)]
    told: list[object] = []
    driven.runtime.on_durable_change(told.append)
    for read in (position.read for fetch in fetches_of(driven)[:1] for position in fetch.positions):
        read._store = MemoryStore()
        read._store.fail_next_sync(OSError("damaged block"))
        with pytest.raises(StoreFailed):
            read._store.sync()
    driven.append(Batch())
    with pytest.raises(StoreFailed):
        waiting[0].result()
    assert offsets_of(waiting[1].result()[0]) == [0]
    assert told
    assert no_call_waits(driven)


def fetches_of(driven: DrivenLog) -> list[Any]:
    watches = [watch for by_ordinal in driven.log.fetcher._watches.values() for watch in by_ordinal.values()]
    return [fetch for watch in watches for fetch in watch.fetches]


def test_a_wait_costs_only_what_is_new(driven: DrivenLog) -> None:
    waiting = driven.fetch(wait_ms_max=WAIT_MS, bytes_min=300)
    for _ in range(4):
        driven.append(Batch(payload=b"x" * 36))
    assert offsets_of(waiting.result()[0]) == [0, 1, 2]


def test_another_turn_renews_all_of_the_work_and_nothing_of_what_the_caller_asked_for() -> None:
    budget = ReadBudget(visible_bytes=7, batches=0, read_bytes=-1, has_batch=True)
    assert (budget.is_spent, budget.work_bytes) == (True, BYTES_READ_MAX + 1)
    budget.renew_work()
    assert budget == ReadBudget(visible_bytes=7, has_batch=True)
    assert (budget.is_spent, budget.work_bytes) == (False, 0)
