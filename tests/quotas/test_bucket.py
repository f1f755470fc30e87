"""The rule of rates: never more than rate, burst and one request, and no endless wait."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from coordinator_server.traffic.quotas.bucket import BURST_US, full, pause_us, refilled, taken, with_rate

SECOND_US = 1_000_000


def test_a_full_bucket_serves_a_burst_and_one_request_more() -> None:
    bucket = full(100, 0)
    for _request in range(11):
        assert pause_us(bucket, 0) == 0
        bucket = taken(bucket, 1, 0)
    assert pause_us(bucket, 0) == SECOND_US // 100


def test_a_large_request_is_served_at_once_and_waited_for_afterwards() -> None:
    bucket = taken(full(10, 0), 51, 0)
    assert pause_us(bucket, 0) == 5 * SECOND_US
    assert pause_us(bucket, 5 * SECOND_US - 1) == 1
    assert pause_us(bucket, 5 * SECOND_US) == 0


def test_an_unused_bucket_saves_up_no_more_than_a_burst() -> None:
    assert refilled(full(100, 0), 3_600 * SECOND_US).left == 100 * BURST_US
    assert refilled(full(1, 0), 3_600 * SECOND_US).left == SECOND_US, "one request, however low its rate"


def test_time_that_goes_back_adds_nothing() -> None:
    bucket = taken(full(10, SECOND_US), 21, SECOND_US)
    assert refilled(bucket, 0) == bucket
    assert pause_us(bucket, 0) == 2 * SECOND_US


def test_a_lower_rate_keeps_what_is_owed_and_cuts_what_was_saved() -> None:
    owing = with_rate(taken(full(100, 0), 110, 0), 10, 0)
    assert pause_us(owing, 0) == 10 * SECOND_US
    assert with_rate(full(100, 0), 10, 0) == full(10, 0)


@given(
    rate=st.integers(1, 10**9),
    steps=st.lists(st.tuples(st.integers(0, 5 * SECOND_US), st.integers(0, 10**10)), max_size=60),
)
def test_over_any_time_rate_burst_and_one_request_are_the_most_that_is_taken(
    rate: int, steps: list[tuple[int, int]]
) -> None:
    bucket, now_us = full(rate, 0), 0
    admitted: list[tuple[int, int]] = []
    for wait_us, units in steps:
        now_us += wait_us
        if pause_us(bucket, now_us) == 0:
            bucket = taken(bucket, units, now_us)
            admitted.append((now_us, units))
    for begin, (begin_us, _units) in enumerate(admitted):
        total = 0
        for at_us, units in admitted[begin:]:
            # Millionths, because the rate may add less than one in that time.
            most = rate * (at_us - begin_us) + max(rate * BURST_US, SECOND_US)
            assert total * SECOND_US <= most
            total += units


@given(rate=st.integers(1, 10**9), units=st.integers(0, 10**12), now_us=st.integers(0, 10**12))
def test_after_its_pause_a_caller_is_served_and_not_a_moment_before(rate: int, units: int, now_us: int) -> None:
    bucket = taken(full(rate, now_us), units, now_us)
    pause = pause_us(bucket, now_us)
    assert pause_us(bucket, now_us + pause) == 0
    assert pause == 0 or pause_us(bucket, now_us + pause - 1) == 1
