"""Removal: what goes with the records before the log start, and that readers of others notice nothing."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import pytest

from coordinator_protocol.errors import ErrorCode
from coordinator_protocol.producers import PLAIN_PRODUCER_IDS_FROM
from coordinator_runtime.ports import PartitionName
from coordinator_runtime.store import Family
from partition_log import forgotten_rows, index_rows
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
    code,
    offsets_of,
    transactional,
)
from tests.log.keeping import BATCH_BYTES, driven_keeping, keys
from tests.log.test_cleanup_policy import alter
from tests.log.test_delete_records import delete, filled

TX = transactional()
PLAIN = Producer(PLAIN_PRODUCER_IDS_FROM)


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
