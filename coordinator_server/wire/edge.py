"""The edge that all servicers share: between messages on the wire and values inside.

A servicer function takes a request message and a CallContext, and returns a Pending response message. It only maps: it
may raise Refused while it does, and the Pending may be refused. Whoever calls it (the dispatcher of the server, a test)
puts the two functions of this module around it, so that no servicer repeats them:

    call = call_context(request.header, transport_call)
    answer(method, response_type, lambda: servicer.EndTxn(request, call))

Both are idempotent: a servicer that uses them itself gives the same answers.

Source: design 6 (error fields, request header, retries that name themselves).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeVar

from google.protobuf.message import Message

from coordinator_api.v1 import common_pb2
from coordinator_protocol.errors import CoordinatorError, ErrorCode, Method, Refused, class_of
from coordinator_protocol.names import check_client_id
from coordinator_runtime.pending import Pending, failed
from coordinator_runtime.ports import CallContext, PartitionName, PartitionRef

REQUEST_ID_BYTES: Final = 16
CLIENT_TXN_VERSIONS: Final = (1, 2)
CLIENT_TXN_VERSION_DEFAULT: Final = 2

THROTTLE_MS: Final = 50
"""Pause that a refusal for want of room asks for: several group commits long, short beside a client's deadline."""

ResponseT = TypeVar("ResponseT", bound=Message)


def call_context(header: common_pb2.RequestHeader, call: CallContext, method: str = "") -> CallContext:
    """What the transport knows of the call, joined with what its request header says.

    Raises Refused: INVALID_REQUEST (request id of a wrong length, bad client id), UNSUPPORTED_VERSION."""
    request_id = header.request_id
    if request_id and len(request_id) != REQUEST_ID_BYTES:
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            f"request_id has {len(request_id)} bytes: send {REQUEST_ID_BYTES} random bytes, or none",
        )
    client_id = header.client_id or call.client_id
    if client_id:
        check_client_id(client_id)
    client_txn_version = header.client_txn_version or CLIENT_TXN_VERSION_DEFAULT
    if client_txn_version not in CLIENT_TXN_VERSIONS:
        raise Refused(
            ErrorCode.UNSUPPORTED_VERSION,
            f"client_txn_version is {client_txn_version}: this server speaks 1 and 2; leave it out for 2",
        )
    # In the order of the fields, and not with `replace`: this runs in every call, and takes a quarter of the time.
    return CallContext(
        call.principal,
        client_id,
        call.host,
        call.deadline_ms,
        request_id,
        client_txn_version,
        header.immediate_51,
        method or call.method,
        call.connection,
    )


def answer(
    method: Method, response_type: Callable[[], ResponseT], use_case: Callable[[], Pending[ResponseT]]
) -> Pending[ResponseT]:
    """The response of a use case, in which a refusal and an unknown outcome are error fields.

    A defect stays an error of the Pending: the transport answers it with INTERNAL and logs it."""
    try:
        pending = use_case()
    except Exception as error:  # noqa: BLE001  refusals are answered below, defects stay the error of the reply
        pending = failed(error)

    def as_fields(error: Exception) -> ResponseT:
        if not isinstance(error, CoordinatorError):
            raise error
        return error_response(method, response_type, error)

    return pending.recover(as_fields)


def error_response(method: Method, response_type: Callable[[], ResponseT], error: CoordinatorError) -> ResponseT:
    """A response that says nothing but why the whole request failed."""
    response = response_type()
    set_error(response, method, error)
    if error.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED and "throttle_ms" in response.DESCRIPTOR.fields_by_name:
        response.throttle_ms = THROTTLE_MS  # type: ignore[attr-defined]  # asked the line above
    return response


def set_error(message: Message, method: Method, error: CoordinatorError) -> None:
    """Fill in the error fields of a response or of one of its items."""
    fields = message.DESCRIPTOR.fields_by_name
    message.error_code = int(error.code)  # type: ignore[attr-defined]  # a convention of our .proto files
    message.error_class = int(class_of(method, error))  # type: ignore[attr-defined]  # the same
    if "error_message" in fields:
        message.error_message = error.message  # type: ignore[attr-defined]  # asked the line above


def unchecked_names(topics: Iterable[common_pb2.TopicPartitions]) -> list[PartitionName]:
    """All partitions of a request, in the order named, for a service that checks them."""
    return [PartitionName(each.topic, each.topic_id, number) for each in topics for number in each.partitions]


def topic_partitions(partitions: Sequence[PartitionRef]) -> list[common_pb2.TopicPartitions]:
    """Partitions grouped by topic, topics and partitions ascending."""
    by_topic: dict[tuple[str, bytes], list[int]] = {}
    for ref in partitions:
        by_topic.setdefault((ref.topic, ref.topic_id), []).append(ref.partition)
    return [
        common_pb2.TopicPartitions(topic=topic, topic_id=topic_id, partitions=sorted(numbers))
        for (topic, topic_id), numbers in sorted(by_topic.items())
    ]
