"""Retention: which records go by size and by time, and what holds them back."""

from __future__ import annotations

import pytest

from coordinator_protocol.producers import PLAIN_PRODUCER_IDS_FROM
from coordinator_runtime.store import Family
from tests.log.driven_log import (
    COMMIT,
    Batch,
    DrivenLog,
    Producer,
    Retention,
    transactional,
)
from tests.log.keeping import BATCH_BYTES, TWO_ROWS, aged, driven_keeping, keys
from tests.log.test_delete_records import filled

TX = transactional()
PLAIN = Producer(PLAIN_PRODUCER_IDS_FROM)


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


# Limits to retention


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
