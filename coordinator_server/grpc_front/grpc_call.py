"""A request of gRPC as the gatekeeper sees it, and the method that it asks for."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from google.protobuf.descriptor import Descriptor, MethodDescriptor
from google.protobuf.json_format import MessageToJson
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from coordinator_api.v1 import admin_pb2, common_pb2, transaction_pb2
from coordinator_protocol.errors import CoordinatorError, ErrorCode, Refused
from coordinator_protocol.methods import METHODS, Method, MethodRule
from coordinator_protocol.names import ID_BYTES_MAX, check_client_id
from coordinator_protocol.wire import Pieces, varint
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import CallContext
from coordinator_server.calls import CallStatus, Serve, Unanswered
from coordinator_server.grpc_front.handler import FastMethod
from coordinator_server.grpc_front.wire.edge import error_response
from coordinator_server.grpc_front.wire.log.fetch_edge import RecordsAnswer
from coordinator_server.grpc_front.wire.parts import parts_are_too_many
from coordinator_server.traffic.call import EncodedAnswer

REQUEST_ID_BYTES: Final = 16
CLIENT_TXN_VERSIONS: Final = (1, 2)
CLIENT_TXN_VERSION_DEFAULT: Final = 2
REQUEST_CHARACTERS_MAX: Final = 2_000
"""Length of the text of a request in the audit log; the rest is cut off."""
LISTED_MAX: Final = 100
"""Maximum number of elements of each list in that text."""

THROTTLE_FIELD: Final = 4
"""Field number of `throttle_ms` in every response."""
_THROTTLE_TAG: Final = bytes([THROTTLE_FIELD << 3])
"""Tag by which a pause is appended to an encoded answer. If a field occurs twice in a message, the last one counts."""

Reply = bytes | Pieces


@dataclass(slots=True)
class Endpoint:
    """One method as gRPC serves it. `serve` and `fast` are set once the server is loaded."""

    rule: MethodRule
    request_type: type[Message]
    response_type: type[Message]
    request_kind: Descriptor
    item_fields: tuple[str, ...]
    """Repeated fields of a response whose items carry an error code of their own."""
    parts_max: int
    answer_bytes_max: int
    serve: Serve | None = None
    fast: FastMethod | None = None
    """Offers calls to the fast path; None if the method has no fast path."""


def endpoint_of(method: MethodDescriptor, parts_max: int, answer_bytes_max: int) -> Endpoint:
    """Return the endpoint of a method, not served yet."""
    return Endpoint(
        rule=METHODS[Method(method.name)],
        request_type=GetMessageClass(method.input_type),
        response_type=GetMessageClass(method.output_type),
        request_kind=method.input_type,
        item_fields=_item_fields(method.output_type),
        parts_max=parts_max,
        answer_bytes_max=answer_bytes_max,
    )


def _item_fields(response: Descriptor) -> tuple[str, ...]:
    return tuple(
        field.name
        for field in response.fields
        if field.message_type is not None and "error_code" in field.message_type.fields_by_name
    )


class GrpcCall:
    """Implements `coordinator_server.traffic.call.Call`."""

    __slots__ = (
        "_body",
        "_endpoint",
        "_request",
        "answer_bytes_max",
        "context",
        "rule",
        "size_bytes",
    )

    refuses_over_rate: Final = True
    _takes_pieces: ClassVar[bool] = False

    def __init__(self, endpoint: Endpoint, body: bytes, context: CallContext) -> None:
        self.rule = endpoint.rule
        self.answer_bytes_max = endpoint.answer_bytes_max
        self.size_bytes = len(body)
        self.context = context
        self._endpoint = endpoint
        self._body: bytes | None = body
        """The request as it came; None once it is decoded."""
        self._request: Any = None

    @property
    def is_understood(self) -> bool:
        return self._body is None

    def client_id(self) -> str:
        return client_id_in(self._body or b"", self.context)

    def trace(self) -> tuple[str, str]:
        return trace_in(self._body or b"")

    def take(self) -> Reply | None:
        endpoint = self._endpoint
        assert endpoint.fast is not None, "only fast methods are offered"
        body = self._body
        if body is not None:
            try:
                self._understand(body)
            except (DecodeError, Refused):
                # `begin` refuses the call with the same error, which then reaches the caller.
                return None
        return endpoint.fast.take(self._request, self.context)

    def taken_failed(self, reply: Reply, error: Exception) -> Message:
        fast = self._endpoint.fast
        assert fast is not None, "it was taken by one"
        assert isinstance(reply, bytes), "as `take` gave it"
        return fast.refused(self._request, reply, error)

    def begin(self) -> Pending[Any]:
        serve = self._endpoint.serve
        assert serve is not None, "calls begin once the server is loaded"
        body = self._body
        if body is not None:
            try:
                self._understand(body)
            except DecodeError as error:
                raise _undecodable(self._endpoint, body, error) from error
        request = self._request
        if not self.rule.is_administrative:
            # The call may wait for long, and only the audit log shows its request.
            self._request = None
        return serve(request, self.context)

    def encode(self, value: Any) -> EncodedAnswer[Reply]:  # noqa: ANN401  a response of any method
        fields = self._endpoint.item_fields
        codes = _counted_codes(value, fields) if fields or value.error_code else ()
        if self._takes_pieces and isinstance(value, RecordsAnswer):
            return EncodedAnswer(value.in_pieces(), codes)
        return EncodedAnswer(value.SerializeToString(), codes)

    def refused(self, error: CoordinatorError) -> EncodedAnswer[Reply]:
        return self.encode(error_response(self.rule.method, self._endpoint.response_type, error))

    def paused(self, reply: Reply, throttle_ms: int) -> Reply:
        return reply + _THROTTLE_TAG + varint(throttle_ms)

    def codes_in(self, value: Message) -> Collection[int]:
        return set(_codes_in(value))

    def shown(self) -> str:
        return _shown(self._request)

    def _understand(self, body: bytes) -> None:
        """Decode the request and complete the context. Raises: DecodeError, Refused."""
        endpoint = self._endpoint
        if len(body) > endpoint.parts_max:
            # Each part takes at least one byte, so a shorter body is not counted.
            _check_parts(endpoint, body)
        request: Any = endpoint.request_type.FromString(body)
        self.context = call_context(request.header, self.context, self.rule.method)
        self._request, self._body = request, None


class CallInPieces(GrpcCall):
    """A call whose large reply is sent in pieces, without joining them."""

    __slots__ = ()

    _takes_pieces = True


class UnknownCall(GrpcCall):
    """A call of a method that this server does not have. It counts for its principal like any small call."""

    __slots__ = ("_name",)

    def __init__(self, name: str, body: bytes, context: CallContext) -> None:
        super().__init__(_UNKNOWN, body, context)
        self._name = name

    def begin(self) -> Pending[Any]:
        raise self._unimplemented()

    def refused(self, error: CoordinatorError) -> EncodedAnswer[Reply]:
        raise self._unimplemented()

    def _unimplemented(self) -> Unanswered:
        return Unanswered(CallStatus.UNIMPLEMENTED, f"this server has no method {self._name!a:.200}")


_UNKNOWN: Final = Endpoint(
    rule=METHODS[Method.SESSION],
    request_type=admin_pb2.DescribeLimitsRequest,
    response_type=admin_pb2.DescribeLimitsResponse,
    request_kind=admin_pb2.DescribeLimitsRequest.DESCRIPTOR,
    item_fields=(),
    parts_max=0,
    answer_bytes_max=0,
)
"""For calls that are never decoded: a small call, with a method that no front serves alone."""


def _check_parts(endpoint: Endpoint, body: bytes) -> None:
    """Check the number of parts. Raises Refused INVALID_REQUEST for too many."""
    if parts_are_too_many(body, endpoint.request_kind, endpoint.parts_max):
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            f"the request has more than {endpoint.parts_max} parts, all elements of its lists counted: send several",
        )


def call_context(header: common_pb2.RequestHeader, call: CallContext, method: str = "") -> CallContext:
    """Return the transport's context of a call, completed from its request header.

    Raises Refused: INVALID_REQUEST (request id of a wrong length, bad client id), UNSUPPORTED_VERSION.
    """
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
    return CallContext(
        principal=call.principal,
        client_id=client_id,
        host=call.host,
        deadline_ms=call.deadline_ms,
        request_id=request_id,
        client_txn_version=client_txn_version,
        refuse_concurrent=header.refuse_concurrent,
        method=method or call.method,
        connection=call.connection,
    )


def client_id_in(body: bytes, context: CallContext) -> str:
    """Return the client id that a request names; "" if it cannot be read, or is too long."""
    client_id = context.client_id
    with suppress(DecodeError):
        # Every request begins with the same header.
        client_id = admin_pb2.DescribeLimitsRequest.FromString(body).header.client_id or client_id
    # Quotas keep it as long as the server runs.
    return client_id if len(client_id) <= ID_BYTES_MAX else ""


def trace_in(body: bytes) -> tuple[str, str]:
    """Return the context of the trace that a request names, and its transactional id; "" for each that it has not."""
    with suppress(DecodeError):
        # Every request begins with the same header. Requests of transactions go on with the id.
        found = transaction_pb2.EndTxnRequest.FromString(body)
        return found.header.traceparent, found.transactional_id
    return "", ""


def _undecodable(endpoint: Endpoint, body: bytes, error: DecodeError) -> Unanswered:
    return Unanswered(
        CallStatus.INVALID_ARGUMENT,
        f"{len(body)} bytes were sent that are no {endpoint.request_type.DESCRIPTOR.full_name}: {error}",
    )


def _counted_codes(response: Any, item_fields: tuple[str, ...]) -> Collection[int]:  # noqa: ANN401  of any method
    """Return the code of a response, and those of its items. Items of one list that share an error count once."""
    codes = [response.error_code] if response.error_code else []
    for field in item_fields:
        items = getattr(response, field)
        for item in items:
            if item.error_code:
                codes += {each.error_code for each in items} - {0}
                break
    return codes


def _codes_in(message: Message) -> Iterator[int]:
    for field, value in message.ListFields():
        if field.name == "error_code":
            yield value
        elif field.message_type is not None and field.is_repeated and not field.message_type.GetOptions().map_entry:
            for item in value:
                yield from _codes_in(item)


def _shown(request: Message) -> str:
    """Return the beginning of a request, as JSON. The lists of a long one are cut first, because writing them takes
    seconds."""
    if request.ByteSize() > REQUEST_CHARACTERS_MAX:
        short = type(request)()
        short.CopyFrom(request)
        for field, _value in request.ListFields():
            if field.is_repeated and (field.message_type is None or not field.message_type.GetOptions().map_entry):
                del getattr(short, field.name)[LISTED_MAX:]
        request = short
    return MessageToJson(request, indent=None, preserving_proto_field_name=True, ensure_ascii=True)[
        :REQUEST_CHARACTERS_MAX
    ]
