"""Counts of calls: every call once, every error once per call."""

from __future__ import annotations

from collections.abc import Collection

import pytest
from google.protobuf.message import Message

from coordinator_api.v1 import log_pb2, transaction_pb2
from coordinator_protocol.errors import ErrorCode, error_name
from coordinator_protocol.methods import Method
from coordinator_runtime.ports import CallContext
from coordinator_server.build import METHODS_OF, SERVICES
from coordinator_server.calls import CallStatus
from coordinator_server.grpc_front.dispatcher import endpoint_table
from coordinator_server.grpc_front.grpc_call import GrpcCall
from coordinator_server.metrics.instruments import Histogram, Values
from coordinator_server.metrics.server import CallNumbers

REQUESTS, ERRORS = "txn_rpc_requests_total", "txn_rpc_errors_total"


@pytest.fixture
def calls() -> CallNumbers:
    return CallNumbers(METHODS_OF)


def codes_of(method: Method, response: Message) -> Collection[int]:
    """The codes that gRPC's front finds in a response."""
    call = GrpcCall(endpoint_table(SERVICES, parts_max=1, answer_bytes_max=1)[method], b"", CallContext())
    return call.encode(response).codes


def non_zero(calls: CallNumbers, name: str) -> Values:
    return {labels: value for labels, value in calls.readings({})[name].items() if value}


def test_an_answer_without_an_error(calls: CallNumbers) -> None:
    calls.answered(Method.END_TXN, 1_500)
    assert non_zero(calls, REQUESTS) == {("TransactionService", "EndTxn", "OK"): 1}
    assert non_zero(calls, ERRORS) == {}
    seconds = calls.readings({})["txn_rpc_seconds"]["EndTxn",]
    assert isinstance(seconds, Histogram)
    assert (seconds.count, seconds.total) == (1, 0.0015)


def test_an_error_of_the_whole_answer(calls: CallNumbers) -> None:
    calls.answered(Method.END_TXN, 1, codes_of(Method.END_TXN, transaction_pb2.EndTxnResponse(error_code=90)))  # type: ignore[arg-type]
    assert non_zero(calls, REQUESTS) == {("TransactionService", "EndTxn", "OK"): 1}
    assert non_zero(calls, ERRORS) == {("EndTxn", "PRODUCER_FENCED"): 1}


def test_an_error_that_several_items_share_counts_once(calls: CallNumbers) -> None:
    codes = (0, 3, 47, 3, 47)
    results = [log_pb2.ProduceResult(error_code=code) for code in codes]  # type: ignore[arg-type]
    calls.answered(Method.PRODUCE, 1, codes_of(Method.PRODUCE, log_pb2.ProduceResponse(results=results)))
    assert non_zero(calls, ERRORS) == {
        ("Produce", "UNKNOWN_TOPIC_OR_PARTITION"): 1,
        ("Produce", "INVALID_PRODUCER_EPOCH"): 1,
    }
    assert calls.fenced() == {("epoch",): 0, ("zombie_produce",): 1}


def test_a_call_without_an_answer_counts_by_its_status(calls: CallNumbers) -> None:
    for status in CallStatus:
        calls.unanswered(Method.FETCH, 10, status)
    assert non_zero(calls, REQUESTS) == {("LogService", "Fetch", status.name): 1 for status in CallStatus}


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (ErrorCode.THROTTLING_QUOTA_EXCEEDED, "overload"),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "loading"),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, "stopping"),
    ],
)
def test_calls_that_were_not_taken_on(calls: CallNumbers, code: ErrorCode, reason: str) -> None:
    calls.answered(Method.FETCH, 1, [code])
    calls.answered(Method.END_TXN, 1, [code])
    assert non_zero(calls, "txn_rpc_rejected_total") == {(reason,): 2}


def test_every_method_is_there_before_it_was_called(calls: CallNumbers) -> None:
    readings = calls.readings({Method.FETCH: 3})
    methods = {method.name for service in SERVICES for method in service.methods}
    assert {method for _service, method, code in readings[REQUESTS] if code == "OK"} == methods
    assert readings["txn_rpc_in_flight"] == {**{(method,): 0 for method in methods}, ("Fetch",): 3}


def test_errors_have_kafkas_names() -> None:
    assert error_name(90) == "PRODUCER_FENCED"
    assert error_name(9_999) == "9999"


def test_refused_initialisations_are_those_without_an_identity(calls: CallNumbers) -> None:
    calls.answered(Method.INIT_PRODUCER_ID, 1)
    calls.answered(Method.INIT_PRODUCER_ID, 1, [50])
    assert calls.refused_inits() == 1
