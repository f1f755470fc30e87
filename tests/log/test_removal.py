"""Retention and removal: which records go and when, what goes with them, and that readers of others notice nothing."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import pytest

from coordinator_protocol.errors import ErrorCode
from coordinator_protocol.producers import PLAIN_PRODUCER_IDS_FROM
from coordinator_runtime.ports import PartitionName
from coordinator_runtime.store import Family
from partition_log import codec, forgotten_rows, index_rows
from partition_log.requests import DeleteRecords, DeleteTopics, Fetch, FetchItem, RecordsToDelete, TopicName
from partition_log.state import HIGH_WATERMARK, PartitionConfig
from tests.harness.memory_store import Damage, MemoryStore
from tests.log.driven_log import (
    ABORT,
    COMMIT,
    CONTEXT,
    TOPIC,
    UNCOMMITTED,
    Batch,
    DrivenLog,
    Producer,
    Retention,
    code,
    offsets_of,
    transactional,
)
from tests.log.test_cleanup_policy import alter
from tests.log.test_delete_records import delete, filled

TX = transactional()
PLAIN = Producer(PLAIN_PRODUCER_IDS_FROM)
TWO_ROWS = PartitionConfig(index_interval_batches=2)
"""Every second row ends a stretch."""
BATCH_BYTES = 64 + len(Batch().payload)


def driven_keeping(retention_ms: int = -1, retention_bytes: int = -1) -> DrivenLog:
    driven = DrivenLog(config=TWO_ROWS, default_retention=Retention(retention_ms, retention_bytes))
    driven.create(partition_count=2)
    return driven


def keys(driven: DrivenLog, family: Family, partition: int = 0) -> list[int]:
    """The offsets under which a partition has rows."""
    ordinal = driven.ordinal(partition)
    rows = driven.store.scan(family, codec.partition_key(ordinal), codec.partition_key(ordinal + 1))
    return [int.from_bytes(key[4:12], "big") for key, _value in rows]


# Removal


def test_what_lies_before_the_log_start_is_removed_and_what_holds_it_stays() -> None:
    driven = driven_keeping()
    for _ in range(5):
        driven.append(Batch(count=2))
    delete(driven, 5)
    assert keys(driven, Family.LOG) == [1, 3, 5, 7, 9]
    driven.remove()
    assert (keys(driven, Family.LOG), keys(driven, Family.STRETCHES)) == ([5, 7, 9], [7])
    assert driven.read_all(fetch_offset=5) == [4, 5, 6, 7, 8, 9], "the batch that holds the offset comes whole"
    assert [event.size_bytes for event in driven.removed] == [2 * BATCH_BYTES]


def test_nothing_is_removed_before_the_log_start_is_durable() -> None:
    driven = driven_keeping()
    filled(driven)
    driven.log.delete_records(DeleteRecords([RecordsToDelete(PartitionName(TOPIC, b"", 0), 4)]), CONTEXT)
    for _step in driven.removal.round():
        driven.runtime.groups.seal()
    assert driven.crash().read_all() == [0, 1, 2, 3, 4]


def test_other_partitions_lose_nothing() -> None:
    driven = driven_keeping()
    for partition in (0, 1):
        for _ in range(4):
            driven.append(Batch(), partition=partition)
    delete(driven, HIGH_WATERMARK, partition=0)
    driven.remove()
    assert (keys(driven, Family.LOG, 0), keys(driven, Family.LOG, 1)) == ([], [0, 1, 2, 3])


def test_a_crash_between_the_steps_leaves_the_rest_to_the_next_start() -> None:
    driven = driven_keeping()
    filled(driven)
    delete(driven, 4)
    after = driven.crash()
    assert keys(after, Family.LOG) == [0, 1, 2, 3, 4]
    after.remove()
    assert (keys(after, Family.LOG), keys(after, Family.STRETCHES)) == ([4], [])
    assert after.crash().read_all(fetch_offset=4) == [4]


def test_a_start_after_all_was_removed_writes_nothing() -> None:
    driven = driven_keeping()
    filled(driven)
    delete(driven, 4)
    driven.remove()
    after = driven.crash()
    version = after.store.version()
    after.remove()
    assert after.store.version() == version


def test_a_log_that_was_emptied_is_loaded_again_and_goes_on() -> None:
    driven = driven_keeping()
    filled(driven, 6)
    delete(driven, HIGH_WATERMARK)
    driven.remove()
    after = driven.crash()
    assert keys(after, Family.LOG) == []
    assert after.append(Batch(PLAIN, 6)).base_offset == 6
    again = after.crash()
    assert again.read_all(fetch_offset=6) == [6]
    assert again.count(6) == (1, 1)


def test_counts_and_searches_go_on_from_what_is_left() -> None:
    driven = driven_keeping()
    for number in range(9):
        driven.append(Batch(timestamp_ms=1_000 + number))
    delete(driven, 5)
    driven.remove()
    assert driven.count(0) == (4, 4)
    assert driven.count(7) == (2, 2)
    assert [found.offset for found in (*driven.offsets(0), *driven.offsets(1_007))] == [5, 7]


# Aborted transactions


def test_an_aborted_transaction_across_the_log_start_stays_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_rows, "ABORTED_STRIDE", 4)
    driven = driven_keeping()
    driven.append(Batch(TX, 0))
    for number in range(10):
        driven.append(Batch(PLAIN, number))
    driven.append(Batch(TX, 1))
    driven.end(TX, ABORT)
    driven.append(Batch(PLAIN, 10))
    for start in (3, 4, 5, 8, 11, 12, 13):
        delete(driven, start)
        driven.remove()
        plain = [*range(max(start, 1), 11), 13]
        assert driven.read_all(fetch_offset=start) == plain
        raw = driven.read(fetch_offset=start, is_raw=True, isolation=UNCOMMITTED)
        assert [found.marker_offset for found in raw.aborted] == ([12] if start <= 11 else [])


def test_a_batch_across_a_multiple_of_the_stride_and_the_log_start_stays_hidden(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Its first offset lies before the row that tells that it was aborted, and that before the log start.
    monkeypatch.setattr(index_rows, "ABORTED_STRIDE", 4)
    driven = driven_keeping()
    driven.append(Batch(count=2))
    driven.append(Batch(TX, 0, count=5))
    driven.append(Batch(TX, 5, count=4))
    driven.end(TX, ABORT)
    delete(driven, 5)
    driven.remove()
    assert keys(driven, Family.ABORTED) == [8, 11]
    assert driven.read_all(fetch_offset=5) == []
    assert driven.count(5) == (6, 0)


def test_a_raw_fetch_that_waits_is_answered_before_what_it_found_is_removed() -> None:
    driven = driven_keeping()
    driven.append(Batch(TX, 0))
    driven.end(TX, ABORT)
    waiting = driven.fetch(is_raw=True, isolation=UNCOMMITTED, wait_ms_max=60_000, bytes_min=10_000)
    assert not waiting.is_settled
    delete(driven, 2)
    (found,) = waiting.result()
    assert [aborted.marker_offset for aborted in found.aborted] == [1]
    driven.remove()
    assert keys(driven, Family.ABORTED) == []


def test_a_fetch_that_waits_below_a_log_start_is_told(driven: DrivenLog) -> None:
    filled(driven)
    item = FetchItem(driven.catalog.place(TOPIC, b"", 0).name, 2)
    waiting = driven.fetch(Fetch((item,), bytes_min=1 << 20, wait_ms_max=60_000, bytes_max=1 << 21))
    assert not waiting.is_settled
    delete(driven, 4)
    (found,) = waiting.result()
    assert offsets_of(found) == [2, 3, 4], "what it had found is its own"
    assert code(driven.read(fetch_offset=2)) is ErrorCode.OFFSET_OUT_OF_RANGE


# Retention by size


def test_the_oldest_stretches_go_that_the_size_does_not_need() -> None:
    driven = driven_keeping(retention_bytes=3 * BATCH_BYTES)
    for _ in range(9):
        driven.append(Batch())
    driven.remove()
    # Stretches end at 1, 3, 5 and 7. Behind the second one lie five batches, behind the third three.
    assert driven.head().log_start_offset == 6
    assert driven.read_all(fetch_offset=6) == [6, 7, 8]


def test_as_much_as_the_size_stays() -> None:
    driven = driven_keeping(retention_bytes=3 * BATCH_BYTES + 1)
    for _ in range(9):
        driven.append(Batch())
    driven.remove()
    assert driven.head().log_start_offset == 4


def test_a_round_that_finds_nothing_writes_nothing() -> None:
    driven = driven_keeping(retention_bytes=100 * BATCH_BYTES, retention_ms=1_000)
    aged(driven, *[driven.clock.wall_ms()] * 9)
    version = driven.store.version()
    driven.remove()
    assert driven.store.version() == version


@pytest.mark.parametrize("count", range(1, 24))
def test_any_size_leaves_what_was_asked_for_and_no_stretch_more(count: int) -> None:
    driven = driven_keeping(retention_bytes=7 * BATCH_BYTES)
    for _ in range(count):
        driven.append(Batch())
    driven.remove()
    head = driven.head()
    left = head.log_end_offset - head.log_start_offset
    assert left >= min(count, 7)
    assert left < 7 + 2 or head.log_start_offset == 0


# Retention by time


def aged(driven: DrivenLog, *timestamps_ms: int) -> None:
    for timestamp_ms in timestamps_ms:
        driven.append(Batch(timestamp_ms=timestamp_ms))


def test_stretches_go_by_their_newest_record() -> None:
    driven = driven_keeping(retention_ms=1_000)
    now = driven.clock.wall_ms()
    aged(driven, now, now)
    driven.clock.advance(500)
    aged(driven, now + 500, now + 100, now + 500)
    driven.clock.advance(500)
    driven.remove()
    assert driven.head().log_start_offset == 2
    driven.clock.advance(499)
    driven.remove()
    assert driven.head().log_start_offset == 2
    driven.clock.advance(1)
    driven.remove()
    assert driven.head().log_start_offset == 5


def test_the_end_of_the_log_goes_too_once_all_of_it_is_old() -> None:
    driven = driven_keeping(retention_ms=1_000)
    now = driven.clock.wall_ms()
    aged(driven, now, now, now)
    driven.clock.advance(999)
    driven.remove()
    assert driven.head().log_start_offset == 0
    driven.clock.advance(1)
    driven.remove()
    driven.remove()
    assert driven.head().log_start_offset == 3
    assert keys(driven, Family.LOG) == []


def test_a_record_from_the_future_keeps_nothing_for_ever() -> None:
    driven = driven_keeping(retention_ms=1_000)
    now = driven.clock.wall_ms()
    aged(driven, now + 10**12, now, now, now)
    driven.clock.advance(1_000)
    driven.remove()
    assert driven.head().log_start_offset == 4


@pytest.mark.parametrize("ahead_ms", [1, 10**12])
def test_the_end_of_the_log_goes_by_the_clock_where_its_time_lies_ahead(ahead_ms: int) -> None:
    """From the look on that retention takes at it."""
    driven = driven_keeping(retention_ms=1_000)
    aged(driven, driven.clock.wall_ms() + ahead_ms)
    driven.remove()
    driven.clock.advance(999)
    driven.remove()
    assert driven.head().log_start_offset == 0
    driven.clock.advance(1)
    driven.remove()
    driven.remove()
    assert (driven.head().log_start_offset, keys(driven, Family.LOG)) == (1, [])


def test_what_follows_a_record_from_the_future_goes_by_the_clock_too() -> None:
    """The newest timestamp of the log stays what it is, whatever follows."""
    driven = driven_keeping(retention_ms=1_000)
    aged(driven, driven.clock.wall_ms() + 10**12)
    for age_ms in (0, 400, 800):
        driven.clock.advance(400)
        aged(driven, driven.clock.wall_ms() - age_ms)
        driven.remove()
    starts = []
    for _ in range(3):
        driven.clock.advance(400)
        driven.remove()
        starts.append(driven.head().log_start_offset)
    assert starts == [2, 3, 4]


def test_the_end_of_the_log_goes_by_the_clock_where_its_records_have_no_time() -> None:
    driven = driven_keeping(retention_ms=1_000)
    aged(driven, -1)
    driven.remove()
    driven.clock.advance(1_000)
    driven.remove()
    assert driven.head().log_start_offset == 1


def test_the_clock_is_remembered_by_a_crash() -> None:
    driven = driven_keeping(retention_ms=1_000)
    aged(driven, driven.clock.wall_ms() + 10**12)
    driven.remove()
    driven.clock.advance(500)
    after = driven.crash()
    after.remove()
    after.clock.advance(500)
    after.remove()
    assert after.head().log_start_offset == 1
    assert after.append(Batch()).base_offset == 1
    assert after.crash().read_all(fetch_offset=1) == [1]


def test_what_a_server_before_left_at_the_end_goes_by_the_clock_of_the_first_look() -> None:
    """It noted no time there."""
    driven = driven_keeping(retention_ms=1_000)
    aged(driven, driven.clock.wall_ms() + 10**12)
    driven.clock.advance(10**6)
    after = driven.crash()
    after.remove()
    assert after.head().log_start_offset == 0
    after.clock.advance(1_000)
    after.remove()
    assert after.head().log_start_offset == 1


def test_the_clock_is_noted_once_and_only_where_it_matters() -> None:
    driven = driven_keeping(retention_ms=1_000)
    now = driven.clock.wall_ms()
    aged(driven, now)
    driven.append(Batch(timestamp_ms=now + 5_000), partition=1)
    driven.remove()
    assert (keys(driven, Family.STRETCHES, 0), keys(driven, Family.STRETCHES, 1)) == ([], [0])
    version = driven.store.version()
    driven.remove()
    assert driven.store.version() == version
    without_limit = driven_keeping(retention_bytes=10**6)
    aged(without_limit, now + 5_000)
    without_limit.remove()
    assert keys(without_limit, Family.STRETCHES) == []


def test_searches_and_counts_do_not_notice_where_stretches_end() -> None:
    driven = driven_keeping(retention_ms=10**15)
    now = driven.clock.wall_ms()
    for number in range(5):
        aged(driven, now + 10**12 + number)
        driven.remove()
    assert keys(driven, Family.STRETCHES) == [0, 1, 2, 3, 4]
    assert driven.count(1) == (4, 4)
    assert [found.offset for found in driven.offsets(now + 10**12 + 3)] == [3]
    assert driven.crash().head() == driven.head()


def test_records_without_a_time_go_by_when_they_came() -> None:
    driven = driven_keeping(retention_ms=1_000)
    aged(driven, -1, -1)
    driven.clock.advance(999)
    driven.remove()
    assert driven.head().log_start_offset == 0
    aged(driven, 1, 1)
    driven.remove()
    assert driven.head().log_start_offset == 0, "what is younger does not draw the older with it"
    driven.clock.advance(1)
    driven.remove()
    assert driven.head().log_start_offset == 4


def test_the_first_limit_that_is_passed_counts() -> None:
    driven = driven_keeping(retention_ms=1_000, retention_bytes=5 * BATCH_BYTES)
    now = driven.clock.wall_ms()
    aged(driven, *[now] * 4)
    driven.clock.advance(600)
    aged(driven, *[now + 600] * 4)
    driven.remove()
    assert driven.head().log_start_offset == 2
    driven.clock.advance(400)
    driven.remove()
    assert driven.head().log_start_offset == 4


# What holds it back


def test_retention_waits_for_open_transactions_and_leases() -> None:
    driven = driven_keeping(retention_bytes=1)
    filled(driven, 4)
    driven.append(Batch(TX, 0))
    for _ in range(5):
        driven.append(Batch())
    driven.leases[driven.ordinal()] = 2
    driven.remove()
    assert (driven.head().log_start_offset, driven.removal.held_back) == (2, 1)
    del driven.leases[driven.ordinal()]
    driven.remove()
    assert (driven.head().log_start_offset, driven.removal.held_back) == (4, 1)
    driven.end(TX, COMMIT)
    driven.remove()
    assert (driven.head().log_start_offset, driven.removal.held_back) == (10, 0)


def test_a_topics_own_limit_counts_before_that_of_the_server() -> None:
    driven = DrivenLog(config=TWO_ROWS, default_retention=Retention(retention_bytes=1))
    driven.create(config={"retention_bytes": "-1", "validate_payload": "header"})
    filled(driven, 6)
    driven.remove()
    assert driven.head().log_start_offset == 0


def test_producers_stay_whose_records_went() -> None:
    driven = driven_keeping(retention_bytes=1)
    filled(driven, 6)
    driven.remove()
    driven.remove()
    assert driven.entry(PLAIN.producer_id) is not None
    assert driven.append(Batch(PLAIN, 5)).is_duplicate


# Forgotten producers


def test_what_is_remembered_of_a_forgotten_producer_goes_with_its_records() -> None:
    driven = DrivenLog(config=PartitionConfig(index_interval_batches=2, producer_id_expiration_ms=1_000))
    driven.create()
    for producer_id in (7, 8):
        producer = transactional(producer_id)
        driven.append(Batch(producer, 0))
        driven.end(producer, COMMIT)
    driven.clock.advance(5_000)
    driven.runtime.run_due_timers()
    driven.flush()
    ordinal = driven.ordinal()

    def remembered() -> list[int]:
        rows = driven.store.scan(
            Family.PRODUCERS, forgotten_rows.remembered_from(ordinal), forgotten_rows.remembered_end(ordinal)
        )
        return [forgotten_rows.decode_remembered(key, value).first_offset for key, value in rows]

    assert remembered() == [0, 2]
    delete(driven, 2)
    driven.remove()
    assert remembered() == [2]
    delete(driven, HIGH_WATERMARK)
    driven.remove()
    assert remembered() == []


# Damage, and partitions that are away


def test_damage_keeps_one_partition_and_no_other() -> None:
    driven = driven_keeping(retention_bytes=1)
    for partition in (0, 1):
        for _ in range(6):
            driven.append(Batch(), partition=partition)
    store = driven.store
    assert isinstance(store, MemoryStore)
    store.damage(Family.STRETCHES, index_rows.stretch_key(driven.ordinal(0), 1), Damage.BLOCK)
    driven.remove()
    assert (driven.head(0).log_start_offset, driven.head(1).log_start_offset) == (0, 4)
    assert [found.family for found in driven.told] == [Family.STRETCHES]


def test_a_topic_that_is_deleted_meanwhile_is_passed_over() -> None:
    driven = driven_keeping(retention_bytes=1)
    filled(driven, 6)
    delete(driven, 2)
    steps = driven.removal.round()
    driven.topics.delete_topics(DeleteTopics([TopicName(TOPIC)]), CONTEXT)
    for _step in steps:
        pass
    driven.flush()
    assert [*driven.store.scan(Family.LOG, b"", b"\xff" * 12)] == []


# Crashes


def _story(driven: DrivenLog) -> Iterator[None]:
    """Every step of a removal, and nothing flushed but by the steps themselves."""
    driven.log.delete_records(DeleteRecords([RecordsToDelete(PartitionName(TOPIC, b"", 0), 5)]), CONTEXT)
    yield
    driven.flush()
    for _step in driven.removal.round():
        yield
        driven.flush()
    driven.send(Batch(PLAIN, 6))
    yield
    driven.log.delete_records(DeleteRecords([RecordsToDelete(PartitionName(TOPIC, b"", 0), HIGH_WATERMARK)]), CONTEXT)
    yield
    driven.flush()
    for _step in driven.removal.round():
        yield


def test_a_crash_at_any_step_loses_nothing_that_is_kept_and_all_goes_in_the_end() -> None:
    crashes = [(steps, kept) for steps in range(1, 7) for kept in range(4)]
    for step_count, kept_groups in crashes:
        driven = driven_keeping()
        driven.append(Batch(TX, 0))
        for number in range(6):
            driven.append(Batch(PLAIN, number))
        driven.append(Batch(TX, 1))
        driven.end(TX, ABORT)
        for _step in islice(_story(driven), step_count):
            driven.runtime.groups.seal()
        start = driven.head().log_start_offset
        after = driven.crash(min(kept_groups, driven.driver.undurable_groups))
        head = after.head()
        assert start <= head.log_start_offset <= head.last_stable_offset
        shown, left = (
            after.read_all(fetch_offset=head.log_start_offset),
            range(head.log_start_offset, head.log_end_offset),
        )
        assert shown == [offset for offset in (*range(1, 7), 9) if offset in left]
        after.remove()
        assert [offset for offset in keys(after, Family.LOG) if offset < head.log_start_offset] == []
        assert after.read_all(fetch_offset=head.log_start_offset) == shown


def test_no_stretch_is_finished_before_the_log_start() -> None:
    driven = DrivenLog()
    driven.create()
    for _ in range(3):
        driven.append(Batch(timestamp_ms=-1))
    delete(driven, 3)
    driven.remove()
    alter(driven, {"retention_ms": "1000"})
    driven.remove()
    assert not list(driven.store.scan(Family.STRETCHES, b"", b"\xff" * 12))
    driven.append(Batch(timestamp_ms=-1))
    driven.remove()
    after = driven.crash()
    assert (after.head().log_start_offset, after.head().index.first_offset, after.read_all(fetch_offset=3)) == (
        3,
        4,
        [3],
    )
