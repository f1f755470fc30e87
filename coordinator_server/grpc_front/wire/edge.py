"""The edge that all servicers share: between messages on the wire and values inside.

A servicer function takes a request message and a CallContext, and returns a Pending response message. It only maps. It
may raise Refused while it does, and the Pending may be refused. Its caller is the dispatcher of the server, or a test.
The caller wraps it in a function of the dispatcher and one of this module, so that no servicer repeats them:

    call = call_context(request.header, transport_call)
    answer(method, response_type, lambda: servicer.EndTxn(request, call))

Both are idempotent: a servicer that uses them itself gives the same answers.

Source: design 6 (error fields, request header, retries that name themselves).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeVar

from google.protobuf.message import Message

from coordinator_api.v1 import common_pb2, log_pb2, transaction_pb2
from coordinator_core.fast_path import FastPath
from coordinator_protocol.errors import CoordinatorError, ErrorCode, Refused, class_of
from coordinator_protocol.marker import Outcome
from coordinator_protocol.methods import Method
from coordinator_runtime.pending import Pending, failed
from coordinator_runtime.ports import PartitionName, PartitionRef

THROTTLE_MS: Final = 50
"""Pause (ms) requested by a refusal for lack of capacity: several group commits long, but short beside a client's
deadline."""

ResponseT = TypeVar("ResponseT", bound=Message)


def answer(
    method: Method, response_type: Callable[[], ResponseT], use_case: Callable[[], Pending[ResponseT]]
) -> Pending[ResponseT]:
    """Return the response of a use case, in which a refusal or an unknown outcome becomes error fields.

    A defect stays an error of the Pending: the transport answers it with INTERNAL and logs it.
    """
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
    """Return a response that has nothing but the error of the whole request."""
    response = response_type()
    set_error(response, method, error)
    if error.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED and "throttle_ms" in response.DESCRIPTOR.fields_by_name:
        response.throttle_ms = throttle_ms_of(error)  # type: ignore[attr-defined]  # asked the line above
    return response


class OnFastPath:
    """Common part of all methods on the fast path (`FastMethod` of the dispatcher)."""

    def __init__(self, fast_path: FastPath) -> None:
        self._fast_path = fast_path
        self.end, self.take_back = fast_path.end, fast_path.take_back

    def refused(self, request: Any, answer: bytes, error: Exception) -> Message:  # noqa: ANN401  as FastMethod
        """Raise the error. For most methods the whole response is that error."""
        raise error


def throttle_ms_of(error: CoordinatorError) -> int:
    """Return the pause (ms) to request from a caller that was refused for lack of capacity."""
    own = error.throttle_ms if isinstance(error, Refused) else None
    return THROTTLE_MS if own is None else own


def set_error(message: ResponseT, method: Method, error: CoordinatorError | None) -> ResponseT:
    """Return a response or one of its items with its error fields filled in, if there is an error."""
    if error is None:
        return message
    message.error_code = int(error.code)  # type: ignore[attr-defined]  # a convention of our .proto files
    message.error_class = int(class_of(method, error))  # type: ignore[attr-defined]  # the same
    message.error_message = error.message  # type: ignore[attr-defined]  # the same
    error.drop_frames()
    return message


def set_item_error(
    item: Message, method: Method, error: CoordinatorError | None, whole: CoordinatorError | None
) -> None:
    """Fill in the error fields of an item in a response with the error `whole`. The message of `whole` is not repeated
    in items: thousands of copies would be too large for many clients."""
    set_error(item, method, error)
    if error is not None and (error is whole or error.code is ErrorCode.OPERATION_NOT_ATTEMPTED):
        item.ClearField("error_message")


def outcome_of(
    message: transaction_pb2.EndTxnRequest | transaction_pb2.TransactRequest | log_pb2.ControlMarker,
) -> Outcome:
    """Return the requested outcome. Raises Refused INVALID_REQUEST if it is missing. Otherwise a client that forgets it
    would abort, and be answered with success."""
    if not message.HasField("committed"):
        raise Refused(
            ErrorCode.INVALID_REQUEST, "the request does not say whether to commit or to abort: set `committed`"
        )
    return Outcome.COMMIT if message.committed else Outcome.ABORT


def unchecked_names(topics: Iterable[common_pb2.TopicPartitions]) -> list[PartitionName]:
    """Return all partitions of a request, in the order named, for a service that checks them."""
    return [PartitionName(each.topic, each.topic_id, number) for each in topics for number in each.partitions]


def topic_partitions(partitions: Sequence[PartitionRef]) -> list[common_pb2.TopicPartitions]:
    """Return partitions grouped by topic, topics and partitions ascending."""
    by_topic: dict[tuple[str, bytes], list[int]] = {}
    for ref in partitions:
        by_topic.setdefault((ref.topic, ref.topic_id), []).append(ref.partition)
    return [
        common_pb2.TopicPartitions(topic=topic, topic_id=topic_id, partitions=sorted(numbers))
        for (topic, topic_id), numbers in sorted(by_topic.items())
    ]
