"""The edge: request headers become contexts, refusals become error fields."""

from __future__ import annotations

import pytest

from coordinator_api.v1 import common_pb2, log_pb2, transaction_pb2
from coordinator_protocol.errors import ErrorClass, ErrorCode, Refused, UnknownOutcome
from coordinator_protocol.methods import Method
from coordinator_runtime.pending import Pending, failed, settled
from coordinator_runtime.ports import CallContext, PartitionRef
from coordinator_server.grpc_front.grpc_call import call_context
from coordinator_server.grpc_front.wire.edge import (
    THROTTLE_MS,
    answer,
    error_response,
    set_error,
    topic_partitions,
    unchecked_names,
)

CALL = CallContext(principal="alice", host="10.0.0.1", deadline_ms=12_345)
TOPIC_ID = bytes(range(16))


def test_a_header_is_joined_with_what_the_transport_knows() -> None:
    header = common_pb2.RequestHeader(
        client_id="loader-1", request_id=b"r" * 16, client_txn_version=1, refuse_concurrent=True
    )
    assert call_context(header, CALL) == CallContext(
        principal="alice",
        client_id="loader-1",
        host="10.0.0.1",
        deadline_ms=12_345,
        request_id=b"r" * 16,
        client_txn_version=1,
        refuse_concurrent=True,
    )


def test_an_empty_header_means_version_2_and_no_request_id() -> None:
    context = call_context(common_pb2.RequestHeader(), CALL)
    assert (context.client_txn_version, context.request_id, context.refuse_concurrent) == (2, b"", False)


def test_joining_a_header_twice_changes_nothing() -> None:
    header = common_pb2.RequestHeader(client_id="loader-1", request_id=b"r" * 16)
    assert call_context(header, call_context(header, CALL)) == call_context(header, CALL)


@pytest.mark.parametrize(
    ("header", "code", "said"),
    [
        (common_pb2.RequestHeader(request_id=b"short"), ErrorCode.INVALID_REQUEST, "request_id has 5 bytes"),
        (common_pb2.RequestHeader(request_id=b"r" * 17), ErrorCode.INVALID_REQUEST, "request_id has 17 bytes"),
        (common_pb2.RequestHeader(client_id="c" * 1001), ErrorCode.INVALID_REQUEST, "1001 bytes"),
        (common_pb2.RequestHeader(client_id="a\0b"), ErrorCode.INVALID_REQUEST, "NUL"),
        (common_pb2.RequestHeader(client_txn_version=3), ErrorCode.UNSUPPORTED_VERSION, "client_txn_version is 3"),
    ],
)
def test_a_header_that_makes_no_sense_is_refused(header: common_pb2.RequestHeader, code: ErrorCode, said: str) -> None:
    with pytest.raises(Refused, match=said) as refusal:
        call_context(header, CALL)
    assert refusal.value.code is code


def end_txn(pending: Pending[transaction_pb2.EndTxnResponse]) -> transaction_pb2.EndTxnResponse:
    return answer(Method.END_TXN, transaction_pb2.EndTxnResponse, lambda: pending).result()


def test_a_response_passes_through() -> None:
    assert end_txn(settled(transaction_pb2.EndTxnResponse(csn=7))) == transaction_pb2.EndTxnResponse(csn=7)


def test_a_refusal_becomes_error_fields_with_the_class_of_the_method() -> None:
    response = end_txn(failed(Refused(ErrorCode.PRODUCER_FENCED, "a newer instance runs")))
    assert response == transaction_pb2.EndTxnResponse(
        error_code=common_pb2.ERROR_CODE_PRODUCER_FENCED,
        error_class=common_pb2.ERROR_CLASS_FENCED,
        error_message="a newer instance runs",
    )


def test_a_refusal_that_is_raised_before_there_is_a_pending_is_answered_alike() -> None:
    def use_case() -> Pending[transaction_pb2.EndTxnResponse]:
        raise Refused(ErrorCode.INVALID_REQUEST, "the id is empty")

    response = answer(Method.END_TXN, transaction_pb2.EndTxnResponse, use_case).result()
    assert response.error_class == ErrorClass.REJECTED


def test_an_unknown_outcome_is_said_to_be_one() -> None:
    response = end_txn(failed(UnknownOutcome("the store failed")))
    assert response.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert response.error_class == ErrorClass.UNKNOWN_OUTCOME


def test_a_defect_stays_an_error_of_the_call() -> None:
    with pytest.raises(ZeroDivisionError):
        end_txn(failed(ZeroDivisionError("ours")))


def test_a_refusal_for_want_of_room_asks_for_a_pause() -> None:
    refusal = Refused(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "full")
    response = error_response(Method.PRODUCE, log_pb2.ProduceResponse, refusal)
    assert (response.throttle_ms, response.error_class) == (THROTTLE_MS, ErrorClass.RETRY)


def test_an_item_without_a_message_field_gets_code_and_class() -> None:
    result = transaction_pb2.AddPartitionsToTxnResult(topic="t")
    set_error(result, Method.ADD_PARTITIONS_TO_TXN, Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no such topic"))
    assert (result.error_code, result.error_class) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorClass.ABORT)


def test_partitions_of_a_request_are_named_in_its_order() -> None:
    topics = [
        common_pb2.TopicPartitions(topic="b", partitions=[2, 0]),
        common_pb2.TopicPartitions(topic_id=TOPIC_ID, partitions=[1]),
    ]
    assert unchecked_names(topics) == [("b", b"", 2), ("b", b"", 0), ("", TOPIC_ID, 1)]


def test_partitions_of_an_answer_are_grouped_by_topic() -> None:
    refs = [PartitionRef("b", b"B" * 16, 1, 5), PartitionRef("a", b"A" * 16, 3, 9), PartitionRef("b", b"B" * 16, 0, 4)]
    assert topic_partitions(refs) == [
        common_pb2.TopicPartitions(topic="a", topic_id=b"A" * 16, partitions=[3]),
        common_pb2.TopicPartitions(topic="b", topic_id=b"B" * 16, partitions=[0, 1]),
    ]
