"""One request and its retries."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator_api.v1 import transaction_pb2 as txn
from coordinator_client.calls import (
    DESCRIBE_TRANSACTIONS,
    END_TXN,
    LOST_PAUSE_MS_MAX,
    PAUSE_MS_FIRST,
    PAUSE_MS_MAX,
    Deadlines,
    RetryingCall,
)
from coordinator_client.errors import Loss, OutcomeUnknown, Rejected, Retriable, TransactionError
from coordinator_client.flights import Flights
from coordinator_protocol.errors import ErrorCode
from coordinator_protocol.methods import Method
from tests.client.fake_server import refuse
from tests.client.world import World

LOST = Loss("UNAVAILABLE", "gone")


def end_txn(*, total_ms: int = 1_000, now_ms: int = 0):
    return RetryingCall(END_TXN, txn.EndTxnRequest(), deadlines=Deadlines(total_ms=total_ms), now_ms=now_ms)


def busy():
    return refuse(txn.EndTxnResponse(), Method.END_TXN, ErrorCode.CONCURRENT_TRANSACTIONS)


@given(st.lists(st.floats(0, 1, exclude_max=True), min_size=12, max_size=12), st.booleans())
def test_pauses_grow_to_100_ms_after_a_refusal_to_1_s_after_a_loss_and_keep_at_least_half_of_it(
    jitters: list[float], is_lost: bool
) -> None:
    call = end_txn(total_ms=60_000)
    now_ms = 0
    for number, jitter in enumerate(jitters):
        call.begin_attempt(now_ms)
        assert call.on_answer(LOST if is_lost else busy(), now_ms=now_ms, jitter=jitter) is None
        assert call.due_ms is not None
        longest_ms = min(LOST_PAUSE_MS_MAX if is_lost else PAUSE_MS_MAX, PAUSE_MS_FIRST * 2**number)
        assert longest_ms // 2 <= call.due_ms - now_ms <= longest_ms
        now_ms = call.due_ms


@given(
    st.integers(1, 5_000), st.lists(st.tuples(st.booleans(), st.integers(0, 400), st.floats(0, 1, exclude_max=True)))
)
def test_it_ends_by_its_deadline_and_says_whether_an_attempt_was_lost(total_ms: int, steps) -> None:
    call = end_txn(total_ms=total_ms)
    now_ms, has_lost = 0, False
    for is_lost, took_ms, jitter in steps:
        timeout_ms = call.begin_attempt(now_ms)
        assert 1 <= timeout_ms <= max(1, total_ms - now_ms)
        now_ms += min(took_ms, timeout_ms)
        has_lost = has_lost or is_lost
        end = call.on_answer(LOST if is_lost else busy(), now_ms=now_ms, jitter=jitter)
        if end is not None:
            assert type(end) is (OutcomeUnknown if has_lost else Retriable)
            assert end.lost_attempts == call.lost
            return
        assert call.due_ms is not None
        assert now_ms < call.due_ms < total_ms
        now_ms = call.due_ms


def test_a_lost_read_leaves_nothing_unknown() -> None:
    request = txn.DescribeTransactionsRequest()
    call = RetryingCall(DESCRIBE_TRANSACTIONS, request, deadlines=Deadlines(total_ms=5), now_ms=0)
    call.begin_attempt(0)
    assert isinstance(call.on_answer(LOST, now_ms=4, jitter=0.0), Retriable)


def test_a_definite_status_ends_it_at_once() -> None:
    call = end_txn()
    call.begin_attempt(0)
    end = call.on_answer(Loss("INVALID_ARGUMENT", "garbage"), now_ms=1, jitter=0.0)
    assert isinstance(end, Rejected)


@pytest.mark.parametrize(
    "answer",
    [
        Loss("PERMISSION_DENIED", "not you"),
        refuse(txn.EndTxnResponse(), Method.END_TXN, ErrorCode.INVALID_TXN_STATE),
    ],
)
def test_whatever_ends_it_says_how_many_attempts_were_lost_before(answer: Loss | txn.EndTxnResponse) -> None:
    """A commit that was refused may still have been carried out by an earlier attempt."""
    call = end_txn()
    call.begin_attempt(0)
    assert call.on_answer(LOST, now_ms=1, jitter=0.0) is None
    call.begin_attempt(100)
    end = call.on_answer(answer, now_ms=101, jitter=0.0)
    assert isinstance(end, TransactionError)
    assert end.lost_attempts == 1


def test_a_late_report_of_an_attempt_that_was_given_up_changes_nothing() -> None:
    flights = Flights(World())
    ends: list[object] = []
    flight = flights.start(end_txn(total_ms=100_000), lambda end, _: ends.append(end))
    (first,) = flights.transmissions(0)
    assert flights.transmissions(first.timeout_ms) == []
    overdue_ms = flights.wake_ms()
    assert overdue_ms is not None
    flights.lose_overdue(overdue_ms)
    assert flights.transmissions(overdue_ms) == []
    again_ms = flights.wake_ms()
    assert again_ms is not None
    (second,) = flights.transmissions(again_ms)
    assert (first.attempt, second.attempt) == (1, 2)
    assert first.request is second.request
    flights.on_answer(flight, 1, LOST, again_ms)
    assert flights.transmissions(again_ms) == []
    flights.on_answer(flight, 2, txn.EndTxnResponse(csn=7), again_ms)
    flights.on_answer(flight, 2, txn.EndTxnResponse(csn=8), again_ms)
    assert ends == [txn.EndTxnResponse(csn=7)]


def test_what_was_cancelled_is_named_once_and_never_ends() -> None:
    flights = Flights(World())
    ends: list[TransactionError] = []
    flight = flights.start(end_txn(), lambda end, _: ends.append(end))
    flights.transmissions(0)
    flights.cancel_all()
    flights.on_answer(flight, 1, txn.EndTxnResponse(), 1)
    assert ends == []
    assert flights.take_cancelled() == [flight]
    assert flights.take_cancelled() == []
