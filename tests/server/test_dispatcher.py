"""The dispatcher and admission: bytes in, bytes out, and the calls that are let in."""

from __future__ import annotations

import sys

import pytest
import structlog

from coordinator_api.v1 import common_pb2, transaction_pb2
from coordinator_protocol.errors import ErrorClass, ErrorCode, Refused
from coordinator_protocol.methods import Method
from coordinator_runtime.clock import SystemClock
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import CallContext
from coordinator_server.calls import CallStatus, Unanswered
from coordinator_server.traffic.admission import Admission, AdmissionLimits
from tests.harness.gated import GatedDispatcher
from tests.server.fake_servicer import (
    END_TXN,
    FIND_COORDINATOR,
    INIT_PRODUCER_ID,
    LIST_TRANSACTIONS,
    SERVICE,
    FakeTransactionServicer,
)

CALL = CallContext(host="10.0.0.1")
LIMITS = AdmissionLimits(calls_in_work_max=2, reserved_calls=1, long_polls_max=1)


@pytest.fixture
def servicer() -> FakeTransactionServicer:
    return FakeTransactionServicer()


@pytest.fixture
def dispatcher(servicer: FakeTransactionServicer) -> GatedDispatcher:
    admission = Admission(LIMITS, lambda: 0)
    dispatcher = GatedDispatcher([SERVICE], admission, SystemClock(), message_bytes_max=50_000)
    dispatcher.open([servicer])
    return dispatcher


def transport_error(pending: Pending[bytes]) -> Unanswered:
    with pytest.raises(Unanswered) as error:
        pending.result()
    return error.value


def test_a_request_of_too_many_parts_is_refused_before_it_is_parsed(servicer: FakeTransactionServicer) -> None:
    dispatcher = GatedDispatcher(
        [SERVICE], Admission(LIMITS, lambda: 0), SystemClock(), message_bytes_max=50_000, parts_max=100
    )
    dispatcher.open([servicer])
    keys = transaction_pb2.FindCoordinatorRequest(keys=[""] * 101)
    pending = dispatcher(FIND_COORDINATOR, keys.SerializeToString(), CALL)
    response = transaction_pb2.FindCoordinatorResponse.FromString(pending.result())
    assert response.error_code == ErrorCode.INVALID_REQUEST
    assert "more than 100 parts" in response.error_message
    assert servicer.contexts == []
    keys.keys.pop()
    dispatcher(FIND_COORDINATOR, keys.SerializeToString(), CALL)
    assert len(servicer.contexts) == 1


def end(dispatcher: GatedDispatcher) -> Pending[bytes]:
    return dispatcher(END_TXN, b"", CALL)


def response_of(pending: Pending[bytes]) -> transaction_pb2.EndTxnResponse:
    return transaction_pb2.EndTxnResponse.FromString(pending.result())


def test_a_request_reaches_its_servicer_with_the_context_of_its_header(
    dispatcher: GatedDispatcher, servicer: FakeTransactionServicer
) -> None:
    request = transaction_pb2.FindCoordinatorRequest(
        header=common_pb2.RequestHeader(client_id="loader-1"), keys=["a", "b"]
    )
    body = dispatcher(FIND_COORDINATOR, request.SerializeToString(), CALL).result()
    found = transaction_pb2.FindCoordinatorResponse.FromString(body)
    assert [coordinator.key for coordinator in found.coordinators] == ["a", "b"]
    assert servicer.contexts == [CallContext(host="10.0.0.1", client_id="loader-1", method="FindCoordinator")]


def test_a_bad_header_is_answered_in_band(dispatcher: GatedDispatcher) -> None:
    request = transaction_pb2.FindCoordinatorRequest(header=common_pb2.RequestHeader(request_id=b"x"))
    body = dispatcher(FIND_COORDINATOR, request.SerializeToString(), CALL).result()
    found = transaction_pb2.FindCoordinatorResponse.FromString(body)
    assert (found.error_code, found.error_class) == (ErrorCode.INVALID_REQUEST, ErrorClass.REJECTED)


def test_bytes_that_are_no_message_are_an_invalid_argument(dispatcher: GatedDispatcher) -> None:
    error = transport_error(dispatcher(END_TXN, b"\xff\xff\xff", CALL))
    assert error.status is CallStatus.INVALID_ARGUMENT
    assert "3 bytes were sent that are no coordinator_api.v1.EndTxnRequest" in error.message


def test_text_that_is_no_utf_8_is_an_invalid_argument(dispatcher: GatedDispatcher) -> None:
    error = transport_error(dispatcher(END_TXN, b"\x12\x01\xff", CALL))
    assert error.status is CallStatus.INVALID_ARGUMENT


def test_an_answer_after_the_end_of_the_ownership_is_an_unknown_outcome(
    dispatcher: GatedDispatcher, servicer: FakeTransactionServicer
) -> None:
    """The call came while the server was the owner of its store; the answer is made after that."""
    is_owner = True
    dispatcher.gatekeeper.is_owner = lambda: is_owner
    early, late_call = end(dispatcher), end(dispatcher)
    servicer.waiting[0].succeed(transaction_pb2.EndTxnResponse())
    assert response_of(early).error_code == ErrorCode.NONE
    is_owner = False
    servicer.waiting[1].succeed(transaction_pb2.EndTxnResponse())
    late = response_of(late_call)
    assert late.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert "is over: ask the new owner" in late.error_message


def test_an_unknown_method_is_named(dispatcher: GatedDispatcher) -> None:
    error = transport_error(dispatcher("/coordinator_api.v1.TransactionService/Commit", b"", CALL))
    assert error.status is CallStatus.UNIMPLEMENTED
    assert "no method '/coordinator_api.v1.TransactionService/Commit'" in error.message


def test_a_defect_is_logged_once_and_not_shown_to_the_caller(dispatcher: GatedDispatcher) -> None:
    with structlog.testing.capture_logs() as lines:
        error = transport_error(dispatcher(f"/{SERVICE.full_name}/DescribeTransactions", b"", CALL))
    assert error.status is CallStatus.INTERNAL
    assert "secret" not in error.message
    assert [line["event"] for line in lines] == ["defect"]
    assert isinstance(lines[0]["exc_info"], KeyError)


def test_an_answer_that_is_too_large_says_so(dispatcher: GatedDispatcher) -> None:
    error = transport_error(dispatcher(LIST_TRANSACTIONS, b"", CALL))
    assert error.status is CallStatus.RESOURCE_EXHAUSTED
    assert "at most 50000 are allowed" in error.message


def test_a_method_without_a_servicer_is_found_before_the_server_takes_work() -> None:
    dispatcher = GatedDispatcher([SERVICE], Admission(LIMITS, lambda: 0), SystemClock(), message_bytes_max=50_000)
    with pytest.raises(AssertionError, match="FindCoordinator must have one servicer and has 0"):
        dispatcher.open([object()])


def test_a_server_that_loads_says_so_in_band() -> None:
    dispatcher = GatedDispatcher([SERVICE], Admission(LIMITS, lambda: 0), SystemClock(), message_bytes_max=50_000)
    response = response_of(end(dispatcher))
    assert (response.error_code, response.error_class) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorClass.RETRY)


def test_a_server_that_stops_says_so_in_band(dispatcher: GatedDispatcher) -> None:
    dispatcher.close()
    response = response_of(end(dispatcher))
    assert (response.error_code, response.error_class) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorClass.REFRESH)


def test_waiting_calls_are_answered_when_the_server_stops(
    dispatcher: GatedDispatcher, servicer: FakeTransactionServicer
) -> None:
    waiting = end(dispatcher)
    dispatcher.close()
    dispatcher.answer_unanswered()
    assert response_of(waiting).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert dispatcher.unanswered_calls == 0
    assert servicer.cancelled.is_set(), "nothing of it is done later"
    servicer.waiting[0].succeed(transaction_pb2.EndTxnResponse(csn=1))
    assert response_of(waiting).csn == 0


def test_a_call_that_waits_keeps_nothing_of_its_request(
    dispatcher: GatedDispatcher, servicer: FakeTransactionServicer
) -> None:
    body = transaction_pb2.EndTxnRequest(transactional_id="waits", committed=True).SerializeToString()
    references = sys.getrefcount(body)
    waiting = dispatcher(END_TXN, body, CALL)
    assert not waiting.is_settled
    assert servicer.waiting
    assert sys.getrefcount(body) == references


def test_a_cancelled_call_is_passed_on_to_the_inside(
    dispatcher: GatedDispatcher, servicer: FakeTransactionServicer
) -> None:
    end(dispatcher).cancel()
    assert servicer.waiting[0].is_cancelled
    assert servicer.cancelled.is_set()


def test_beyond_the_bound_calls_are_told_to_come_again(
    dispatcher: GatedDispatcher, servicer: FakeTransactionServicer
) -> None:
    waiting = [dispatcher(INIT_PRODUCER_ID, b"", CALL) for _ in range(3)]
    refused = transaction_pb2.InitProducerIdResponse.FromString(waiting[2].result())
    assert refused.error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert refused.throttle_ms > 0
    assert "2 calls are in work" in refused.error_message
    assert len(servicer.initialising) == 2


def test_ending_a_transaction_finds_room_that_others_do_not(
    dispatcher: GatedDispatcher, servicer: FakeTransactionServicer
) -> None:
    for _ in range(2):
        dispatcher(INIT_PRODUCER_ID, b"", CALL)
    ending = [end(dispatcher) for _ in range(2)]
    assert not ending[0].is_settled
    assert response_of(ending[1]).error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    servicer.waiting[0].succeed(transaction_pb2.EndTxnResponse(csn=1))
    assert response_of(ending[0]).csn == 1
    assert not end(dispatcher).is_settled


def test_reads_that_are_answered_at_once_need_no_room(dispatcher: GatedDispatcher) -> None:
    for _ in range(10):
        found = dispatcher(FIND_COORDINATOR, b"", CALL)
        assert found.is_settled


def test_parked_calls_are_not_in_work() -> None:
    parked = 0
    admission = Admission(LIMITS, lambda: parked)
    for _ in range(2):
        admission.places[Method.INIT_PRODUCER_ID][0].calls += 1
    with pytest.raises(Refused):
        admission.check(Method.INIT_PRODUCER_ID)
    parked = 1
    admission.check(Method.INIT_PRODUCER_ID)
    assert admission.calls_in_work == 1


def test_long_polls_have_a_bound_of_their_own() -> None:
    admission = Admission(LIMITS, lambda: 0)
    room, _calls_max = admission.places[Method.FETCH]
    room.calls += 1
    with pytest.raises(Refused, match="1 readers wait for records"):
        admission.check(Method.FETCH)
    assert admission.calls_in_work == 0
    room.calls -= 1
    admission.check(Method.FETCH)


@pytest.mark.parametrize("method", [Method.HEARTBEAT, Method.CONSUMER_GROUP_HEARTBEAT])
def test_heartbeats_that_wait_for_news_have_a_bound_of_their_own(method: Method) -> None:
    admission = Admission(AdmissionLimits(group_waits_max=1), lambda: 0)
    room, _calls_max = admission.places[Method.HEARTBEAT]
    room.calls += 1
    with pytest.raises(Refused, match="1 members of groups wait for news"):
        admission.check(method)
    admission.check(Method.JOIN_GROUP)
    room.calls -= 1
    admission.check(method)
    assert admission.calls_in_work == 0


@pytest.mark.parametrize("method", [Method.JOIN_GROUP, Method.SYNC_GROUP])
def test_members_come_in_where_no_more_of_them_may_wait(method: Method) -> None:
    admission = Admission(AdmissionLimits(group_waits_max=2, reserved_calls=1), lambda: 0)
    room, _calls_max = admission.places[Method.JOIN_GROUP]
    room.calls += 2
    admission.check(method)
    admission.check(Method.HEARTBEAT)
    room.calls += 1
    with pytest.raises(Refused, match="3 members of groups wait for each other"):
        admission.check(method)
    room.calls -= 1
    admission.check(method)
