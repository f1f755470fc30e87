"""The transport port: what stands between bytes from a network and the servicers.

A transport adapter knows a network and no servicer; it calls a `Handler` with the full name of a method, the bytes of
the request and what it knows of the caller, and sends what comes back. `Dispatcher` is the one handler: it holds the
codec table, the gate (loading, draining) and admission. `transports` names the adapters; nothing inside knows
which one runs (design 6).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any, Final, Protocol

import structlog
from google.protobuf.descriptor import Descriptor, ServiceDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from coordinator_api.v1 import common_pb2
from coordinator_protocol.errors import CoordinatorError, ErrorCode, Method, Refused
from coordinator_protocol.names import check_client_id
from coordinator_runtime.clock import Clock
from coordinator_runtime.pending import Pending, failed, settled
from coordinator_runtime.ports import BOUNDLESS_ROOM, AnswerRoom, CallContext, Connection
from coordinator_server.calls import CallStatus, Serve, TransportError
from coordinator_server.grpc_front.handler import Call
from coordinator_server.grpc_front.wire.edge import error_response
from coordinator_server.grpc_front.wire.parts import parts_are_too_many
from coordinator_server.traffic.admission import Admission, Room
from coordinator_server.traffic.answer_bytes import LARGE_ANSWERS
from coordinator_server.traffic.fair_messages import FairMessages, is_enough
from coordinator_server.traffic.fair_reads import FairReads

REQUEST_ID_BYTES: Final = 16
REQUEST_PARTS_MAX: Final = 30_000
"""Elements of all lists of one request together, at most. What a transaction may touch fits in: 10,000 partitions, each
of a topic of its own."""
CLIENT_TXN_VERSIONS: Final = (1, 2)
CLIENT_TXN_VERSION_DEFAULT: Final = 2


class LaneFront(Protocol):
    """Takes calls of the common shape of one method, several at once (`coordinator_core/lane.py`)."""

    @property
    def method(self) -> Method: ...

    def take(self, request: Any, context: CallContext) -> bytes | None:  # noqa: ANN401  as a servicer's functions
        """The response, for when `end` is settled. None: nothing has happened, and the call is for its servicer."""

    def end(self) -> Pending[None]:
        """What was taken since the last end becomes durable. The error is that of all these calls."""

    def take_back(self) -> None:
        """Nothing of what was taken since the last end has happened."""

    def refused(self, request: Any, answer: bytes, error: Exception) -> Message:  # noqa: ANN401  as `take`
        """The response to a call that was taken, when `end` fails, in place of this answer."""


_log = structlog.get_logger("transport")


@dataclass(frozen=True, slots=True)
class Codec:
    """One line of the codec table."""

    method: Method
    request_type: type[Message]
    response_type: type[Message]
    reads_much: bool
    """The method only reads, and its answer may be large: it begins when there is room for the answer and it is its
    turn."""
    request_kind: Descriptor


def codec_table(services: Iterable[ServiceDescriptor]) -> Mapping[str, Codec]:
    """The table of every method of the services, by full name ("/package.Service/Method"), which unary calls have, and
    by name alone, which operations of a session have."""
    table = {}
    for service in services:
        for method in service.methods:
            request_type, response_type = GetMessageClass(method.input_type), GetMessageClass(method.output_type)
            name = Method(method.name)
            codec = Codec(
                method=name,
                request_type=request_type,
                response_type=response_type,
                reads_much=name in LARGE_ANSWERS,
                request_kind=method.input_type,
            )
            table[f"/{service.full_name}/{method.name}"] = table[method.name] = codec
    return table


@dataclass(slots=True)
class _Rest:
    """Calls of a message that wait for their turn, and their replies."""

    calls: Sequence[Call]
    replies: Sequence[Pending[bytes]]
    begun: int = 0


class Gate(Enum):
    """Whether the server takes work. The value is what a caller is told, None = come in."""

    LOADING = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "the server is loading its state; try again shortly")
    SERVING = None
    DRAINING = (ErrorCode.COORDINATOR_NOT_AVAILABLE, "the server is shutting down; try again when it is back")


class Dispatcher:
    """The handler of every transport: bytes -> servicer -> bytes.

    Every call gets an answer of its own; a defect fails the call that met it and is logged here, once, with its
    traceback, while the caller reads INTERNAL and nothing of our inside."""

    def __init__(
        self,
        services: Iterable[ServiceDescriptor],
        admission: Admission,
        clock: Clock,
        *,
        message_bytes_max: int,
        room: AnswerRoom = BOUNDLESS_ROOM,
        reads: FairReads | None = None,
    ) -> None:
        self._room = room
        self._reads = reads or FairReads()
        self._table = codec_table(services)
        self._clock = clock
        self.on_answered: Callable[[Method, int, Message], None] = lambda _method, _elapsed_us, _response: None
        """Told of every response, and how many microseconds it took."""
        self.on_taken: Callable[[Method, int], None] = lambda _method, _elapsed_us: None
        """Told of every response of the lane, none of which tells of an error."""
        self.on_unanswered: Callable[[Method, int, CallStatus], None] = lambda _method, _elapsed_us, _status: None
        """Told of every call that ended without one."""
        self.on_defect: Callable[[Exception], None] = lambda _defect: None
        """Told of every bug of ours that failed a call."""
        self._serve_functions: dict[Method, Serve] = {}
        self._admission = admission
        self._places = admission.places
        self._message_bytes_max = message_bytes_max
        self.parts_max = REQUEST_PARTS_MAX
        self.messages = FairMessages(clock)
        """Decides which calls of messages begin when; all at once where this knows no loop."""
        self._unanswered: dict[Pending[Any], tuple[Method, Room, int]] = {}
        """What is not answered yet, the room that it takes, and for how many calls: one, or those that the lane took
        together."""
        self._fronts: dict[str, LaneFront] = {}
        """What offers calls to the lane, by the names of its method."""
        self._gate = Gate.LOADING

    def open(
        self,
        servicers: Iterable[object],
        lane: Iterable[LaneFront] = (),
        around: Callable[[Method, Serve], Serve] = lambda _method, serve: serve,
    ) -> None:
        """Take work from now on. A servicer has one function per method, with the method's name; what `around` makes of
        it is called. Calls of the methods of the fronts are offered to the lane first."""
        fronts = {front.method: front for front in lane}
        self._fronts = {name: fronts[codec.method] for name, codec in self._table.items() if codec.method in fronts}
        servicers = list(servicers)
        for codec in self._table.values():
            found = [
                function for servicer in servicers if (function := getattr(servicer, codec.method, None)) is not None
            ]
            assert len(found) == 1, f"{codec.method} must have one servicer and has {len(found)}"
            self._serve_functions[codec.method] = around(codec.method, found[0])
        self._gate = Gate.SERVING

    def close(self) -> None:
        """Take no new work; what is under way goes on."""
        self._gate = Gate.DRAINING

    @property
    def unanswered_calls(self) -> int:
        return self.calls_in_flight().total()

    def calls_in_flight(self) -> Counter[Method]:
        """Return the number of calls in flight by method."""
        in_flight: Counter[Method] = Counter()
        for method, _room, calls in self._unanswered.values():
            in_flight[method] += calls
        return in_flight

    def answer_unanswered(self, error: CoordinatorError | None = None) -> None:
        """Answer every call that still waits (parked, long polls), and drop it: with the error, or with what the closed
        gate says, which is that nothing was done.

        For a server that stops, at the moment when everything staged was answered."""
        if error is None:
            assert self._gate.value is not None, "only a closed gate has something to say"
            error = Refused(*self._gate.value)
        # Their gate is closed.
        self.messages.begin_all()
        self._reads.begin_all()
        for pending in list(self._unanswered):
            pending.drop(error)

    def __call__(self, method: str, body: bytes, call: CallContext) -> Pending[bytes]:
        reply: Pending[bytes] = Pending()
        if method in self._fronts:
            self._begin_some([(method, body, call)], [reply])
        else:
            self._begin_alone(method, body, call, reply)
        return reply

    def refuse(self, method: str, refusal: Refused) -> Pending[bytes]:
        codec = self._table.get(method)
        if codec is None:
            return self(method, b"", CallContext())
        reply: Pending[bytes] = Pending()
        self._reply(codec, reply, self._clock.monotonic_us(), failed(refusal))
        return reply

    def message(self, calls: Sequence[Call]) -> Sequence[Pending[bytes]]:
        """Begin all calls of one message, in their order: what the lane leaves is begun before it goes on."""
        replies: list[Pending[bytes]] = [Pending() for _ in calls]
        if calls:
            connection = calls[0][2].connection
            begun = self._begin_some(calls, replies) if self.messages.may_begin(connection) else 0
            if begun < len(calls):
                rest = _Rest([*calls[begun:]], replies[begun:])
                self.messages.wait(connection, partial(self._begin_rest, rest))
        return replies

    def is_behind(self, connection: Connection, then: Callable[[], None]) -> bool:
        return self.messages.is_behind(connection, then)

    def _begin_rest(self, rest: _Rest) -> bool:
        """Begin what there is time for; whether there is more."""
        rest.begun += self._begin_some(rest.calls, rest.replies, rest.begun)
        return rest.begun < len(rest.calls)

    def _begin_some(self, calls: Sequence[Call], replies: Sequence[Pending[bytes]], first: int = 0) -> int:
        """Begin calls from the first on, until the turn has done its work. Returns how many it were."""
        place, messages, now_us = first, self.messages, self._clock.monotonic_us
        while place < len(calls):
            method, body, call = calls[place]
            front = self._fronts.get(method)
            if front is None:
                self._begin_alone(method, body, call, replies[place])
                place += 1
            else:
                taken, left, request = self._take(front, calls, replies, place)
                place += taken
                for number in range(place, place + left):
                    method, body, call = calls[number]
                    self._begin(self._table[method], body, call, replies[number], now_us(), request)
                    request = None
                place += left
            if now_us() >= messages.until_us and is_enough(calls, first, place):
                break
        return place - first

    def _begin_alone(self, method: str, body: bytes, call: CallContext, reply: Pending[bytes]) -> None:
        """Begin a call that is not for the lane."""
        codec = self._table.get(method)
        if codec is None:
            reply.fail(TransportError(CallStatus.UNIMPLEMENTED, f"this server has no method {method!a:.200}"))
            return
        began_us = self._clock.monotonic_us()
        if not codec.reads_much:
            self._begin(codec, body, call, reply, began_us)
            return
        try:
            self._reads.begin(call.connection, len(body), partial(self._begin, codec, body, call, reply, began_us))
        except Refused as refusal:
            self._reply(codec, reply, began_us, failed(refusal))

    def _take(
        self, lane: LaneFront, calls: Sequence[Call], replies: Sequence[Pending[bytes]], first: int
    ) -> tuple[int, int, Message | None]:
        """Offer calls of one method to the lane, from this one to the first that is not for it, or until the turn has
        done its work.

        Returns how many it took; how many of the next calls are for the general path: none where some were taken, one
        where none was, and after a defect all that it took back; and the first of them as it was read, if it was. They
        are not offered again, so that a message costs no more than in proportion to its calls, whatever is wrong with
        the lane."""
        now_us = self._clock.monotonic_us
        began_us, until_us = now_us(), self.messages.until_us
        codec = self._table[lane.method]
        room, calls_max = self._places[lane.method]
        taken: list[tuple[Pending[bytes], Any, bytes]] = []
        request: Any = None
        try:
            # What the servicer refuses likewise, and says so.
            with suppress(DecodeError, Refused):
                for number in range(first, len(calls)):
                    (method, body, call), reply = calls[number], replies[number]
                    has_room = room.calls + len(taken) < calls_max and self._gate is Gate.SERVING
                    if self._fronts.get(method) is not lane or not has_room or reply.is_cancelled:
                        break
                    if len(body) > self.parts_max:
                        self._check_parts(codec, body)
                    request = codec.request_type.FromString(body)
                    answer = lane.take(request, call_context(request.header, call, codec.method))
                    if answer is None:
                        break
                    taken.append((reply, request, answer))
                    if now_us() >= until_us and is_enough(calls, first, number + 1):
                        break
            if not taken:
                return 0, 1, request
            ended = lane.end()
        except Exception as defect:  # noqa: BLE001  our bug: it costs these calls their place in the lane
            self._met_defect(codec.method, defect)
            lane.take_back()
            return 0, len(taken) or 1, None
        room.calls += len(taken)
        self._unanswered[ended] = codec.method, room, len(taken)
        ended.on_settled(partial(self._answer_taken, lane, codec, taken, began_us))
        return len(taken), 0, None

    def _answer_taken(
        self,
        lane: LaneFront,
        codec: Codec,
        taken: Sequence[tuple[Pending[bytes], Any, bytes]],
        began_us: int,
        ended: Pending[None],
    ) -> None:
        _method, room, calls = self._unanswered.pop(ended)
        room.calls -= calls
        error = ended.error
        if error is not None:
            for reply, request, answer in taken:
                response = settled(answer).map(partial(lane.refused, request, error=error))
                self._reply(codec, reply, began_us, response)
            return
        elapsed_us = self._clock.monotonic_us() - began_us
        for reply, _request, answer in taken:
            if reply.is_cancelled:
                self._end_unanswered(codec.method, reply, _gave_up(), began_us)
            else:
                self.on_taken(codec.method, elapsed_us)
                reply.succeed(answer)

    def _begin(
        self,
        codec: Codec,
        body: bytes,
        call: CallContext,
        reply: Pending[bytes],
        began_us: int,
        parsed: Message | None = None,
    ) -> None:
        """`parsed`: the request, if somebody has read it."""
        method = codec.method
        if reply.is_cancelled:
            self._end_unanswered(method, reply, _gave_up(), began_us)
            return
        try:
            if self._gate is not Gate.SERVING:
                raise Refused(*self._gate.value)
            room, calls_max = self._places[method]
            if room.calls >= calls_max:
                self._admission.check(method)
            if codec.reads_much:
                self._room.check(call.connection)
            if parsed is None and len(body) > self.parts_max:
                self._check_parts(codec, body)
            request: Any = codec.request_type.FromString(body) if parsed is None else parsed
            pending = self._serve_functions[method](request, call_context(request.header, call, method))
        except Exception as error:  # noqa: BLE001  refusals and defects are told apart in `_reply`
            refusal = _undecodable(codec, body, error) if isinstance(error, DecodeError) else error
            self._reply(codec, reply, began_us, failed(refusal))
            return
        if pending.is_settled:
            self._reply(codec, reply, began_us, pending)
            return
        reply.on_cancel = pending.cancel
        room.calls += 1
        self._unanswered[pending] = method, room, 1
        pending.on_settled(partial(self._reply, codec, reply, began_us))

    def _check_parts(self, codec: Codec, body: bytes) -> None:
        """Refuse a request of too many parts. Who has fewer bytes than that is not asked: no part takes less than one.
        Raises: Refused INVALID_REQUEST."""
        if parts_are_too_many(body, codec.request_kind, self.parts_max):
            raise Refused(
                ErrorCode.INVALID_REQUEST,
                f"the request has more than {self.parts_max} parts, all elements of its lists counted: send several",
            )

    def _reply(self, codec: Codec, reply: Pending[bytes], began_us: int, settled: Pending[Message]) -> None:
        waited = self._unanswered.pop(settled, None)
        if waited is not None:
            waited[1].calls -= waited[2]
        try:
            error = settled.error
            if isinstance(error, CoordinatorError):
                response = error_response(codec.method, codec.response_type, error)
            else:
                response = settled.result()
            if reply.is_cancelled:
                raise _gave_up()
            body = response.SerializeToString()
            if codec.reads_much:
                self._reads.spent(len(body))
                # A Fetch has asked for what it found, before it made an answer of that.
                if codec.method is not Method.FETCH:
                    response, body = self._if_there_is_room(codec, response, body)
            if len(body) > self._message_bytes_max:
                raise _too_large(codec, body, self._message_bytes_max)
            self.on_answered(codec.method, self._clock.monotonic_us() - began_us, response)
        except TransportError as failure:
            self._end_unanswered(codec.method, reply, failure.with_traceback(None), began_us)
        except Exception as defect:  # noqa: BLE001  our bug: it fails this call alone
            self._met_defect(codec.method, defect)
            text = f"{codec.method} met a defect of the server; the server's log has the details"
            self._end_unanswered(codec.method, reply, TransportError(CallStatus.INTERNAL, text), began_us)
        else:
            reply.succeed(body)

    def _if_there_is_room(self, codec: Codec, response: Message, body: bytes) -> tuple[Message, bytes]:
        """The answer, or the refusal in its place where it is larger than what is left of the room for answers."""
        try:
            self._room.check_answer(len(body))
        except Refused as refusal:
            response = error_response(codec.method, codec.response_type, refusal)
            body = response.SerializeToString()
        return response, body

    def _met_defect(self, method: Method, defect: Exception) -> None:
        _log.error("defect", method=method, exc_info=defect)
        self.on_defect(defect)

    def _end_unanswered(self, method: Method, reply: Pending[bytes], error: TransportError, began_us: int) -> None:
        self.on_unanswered(method, self._clock.monotonic_us() - began_us, error.status)
        reply.fail(error)


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
        takes_pieces=call.takes_pieces,
    )


def _gave_up() -> TransportError:
    return TransportError(CallStatus.CANCELLED, "the caller gave up")


def _undecodable(codec: Codec, body: bytes, error: DecodeError) -> TransportError:
    return TransportError(
        CallStatus.INVALID_ARGUMENT,
        f"{len(body)} bytes were sent that are no {codec.request_type.DESCRIPTOR.full_name}: {error}",
    )


def _too_large(codec: Codec, body: bytes, bytes_max: int) -> TransportError:
    return TransportError(
        CallStatus.RESOURCE_EXHAUSTED,
        f"the answer of {codec.method} takes {len(body)} bytes and at most {bytes_max} are allowed: ask for less at a "
        "time",
    )
