"""Requests of every procedure, sent to a server with something of everything in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from coordinator_api.v1 import session_pb2
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import CallContext
from coordinator_server.calls import Unanswered
from coordinator_server.grpc_front.session import Session, SessionLimits
from tests.fuzz.choices import Choices
from tests.permissions.cases import CASES
from tests.permissions.guarded_front import METHODS, ROOT, STRANGER, GuardedFront

CALLS_MAX: Final = 6
"""Calls out of one input."""
DEPTH_MAX: Final = 6
REPEATED_MAX: Final = 3
PROTOCOL: Final = bytes.fromhex("0001000000010007") + b"secrets" + bytes(8)
"""Subscription of a member of a classic consumer group: version, topics, user data, owned partitions."""
_NUMBERS: Final = (0, 1, 2, -1, 7, 127, 128, 60_000, 2**15 - 1, 2**15, 2**31 - 1, 2**31, 2**53, 2**63 - 1, -(2**63))
_F: Final = FieldDescriptor
_RANGES: Final = {
    _F.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    _F.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
    _F.CPPTYPE_UINT32: (0, 2**32 - 1),
    _F.CPPTYPE_UINT64: (0, 2**64 - 1),
}


class Found(AssertionError):
    """Behaviour that the product must never show."""


class Requests:
    """Makes messages out of choices: a field is left out, names what is there, is at a limit, or is anything."""

    def __init__(self, front: GuardedFront) -> None:
        named = front.names
        self._front = front
        self._texts = [*named.all(), "", "*", "nothing", "__consumer_offsets", "a" * 250, "\0", "é́", "User:root"]
        self._ids = [front.identity(name)["producer_id"] for name in (named.id, named.prepared)]
        self._known = [(case.method, case.make(front, named).SerializeToString()) for case in CASES]
        """Requests that make sense, one for each way to call a procedure."""
        self._bodies = [b"", named.topic_id, b"x", PROTOCOL]

    def request(self, choices: Choices) -> tuple[str, bytes]:
        """A method and the bytes of a request."""
        match choices.number(4):
            case 0:
                method, body = choices.one_of(self._known)
                return method, choices.changed(body)
            case 1:
                return choices.text(), choices.short()
            case 2:
                return choices.one_of(list(METHODS)), choices.short()
            case _:
                method = choices.one_of(list(METHODS))
                return method, self.message(METHODS[method].input_type, choices).SerializeToString()

    def message(self, descriptor: Descriptor, choices: Choices, depth: int = 0) -> Message:
        made: Message = GetMessageClass(descriptor)()
        for field in descriptor.fields:
            if choices.is_spent:
                break
            if choices.number(4) and depth < DEPTH_MAX:
                self._fill(made, field, choices, depth)
        return made

    def _fill(self, made: Message, field: FieldDescriptor, choices: Choices, depth: int) -> None:
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            entries: Any = getattr(made, field.name)
            of_value = field.message_type.fields_by_name["value"]
            for _each in range(choices.number(REPEATED_MAX)):
                key = choices.one_of(self._texts)
                if of_value.message_type is None:
                    entries[key] = self._scalar(of_value, choices)
                else:
                    entries[key].CopyFrom(self.message(of_value.message_type, choices, depth + 1))
            return
        if field.is_repeated:
            getattr(made, field.name).extend(
                self._value(field, choices, depth) for _each in range(choices.number(REPEATED_MAX + 1))
            )
        elif field.message_type is not None:
            getattr(made, field.name).CopyFrom(self.message(field.message_type, choices, depth + 1))
        else:
            setattr(made, field.name, self._scalar(field, choices))

    def _value(self, field: FieldDescriptor, choices: Choices, depth: int) -> Any:
        if field.message_type is not None:
            return self.message(field.message_type, choices, depth + 1)
        return self._scalar(field, choices)

    def _scalar(self, field: FieldDescriptor, choices: Choices) -> Any:
        match field.cpp_type:
            case _F.CPPTYPE_STRING if field.type == _F.TYPE_BYTES:
                return choices.changed(choices.one_of(self._bodies)) if choices.number(2) else choices.short()
            case _F.CPPTYPE_STRING:
                return choices.one_of(self._texts) if choices.number(4) else choices.text()
            case _F.CPPTYPE_BOOL:
                return choices.number(2) == 1
            case _F.CPPTYPE_ENUM:
                return choices.number(20)
            case _F.CPPTYPE_DOUBLE | _F.CPPTYPE_FLOAT:
                return choices.one_of((0.0, 1.5, -1.0, float("inf"), float("nan")))
            case _:
                lowest, highest = _RANGES[field.cpp_type]
                number = choices.one_of((*self._ids, *_NUMBERS))
                return number if lowest <= number <= highest else 0


class Server:
    """A server, and its caller."""

    def __init__(self, by: CallContext, *, lane: bool = True) -> None:
        self._by = by
        self._front = GuardedFront(lane=lane)
        self._front.dispatcher.watching.on_defect = _met
        self._requests = Requests(self._front)
        self._session = Session(self._front.dispatcher, self._front.world.clock, by, SessionLimits())

    def calls(self, data: bytes) -> None:
        """Some calls, one after the other."""
        choices = Choices(data)
        for _call in range(CALLS_MAX):
            if choices.is_spent:
                break
            method, body = self._requests.request(choices)
            self._watched(lambda method=method, body=body: _read(self._front.dispatcher(method, body, self._by)))

    def session(self, data: bytes) -> None:
        """One message of a session, which lives on, unless it is refused."""
        choices = Choices(data)
        if not choices.number(8):
            message = choices.rest()
        else:
            made = session_pb2.SessionRequest(cancels=[choices.number(8)], header={"client_id": choices.text()})
            for _call in range(CALLS_MAX):
                method, body = self._requests.request(choices)
                made.calls.add(
                    correlation_id=choices.number(64),
                    method=method,
                    body=body,
                    timeout_ms=choices.one_of(tuple(number for number in _NUMBERS if abs(number) < 2**31)),
                )
            message = made.SerializeToString()
        self._watched(lambda: self._receive(message))

    def _receive(self, message: bytes) -> None:
        world = self._front.world
        try:
            self._session.receive(message)
        except Unanswered:
            self._session.close()
            self._session = Session(self._front.dispatcher, world.clock, self._by, SessionLimits())
        while (body := self._session.take()) is not None:
            session_pb2.SessionResponse.FromString(body)

    def _watched(self, ask: Callable[[], None]) -> None:
        """Ask; a caller without rights may change nothing."""
        world = self._front.world
        if self._by is STRANGER:
            ask()
            if world.flush():
                raise Found("a caller without rights changed something")
            return
        ask()
        world.settle()
        world.tick(100)
        world.settle()

    def check(self) -> None:
        """Assert the rules that hold after any requests: the stored rows rebuild the live state, and break no
        promise."""
        self._front.world.settle()
        self._front.world.check_replay()
        self._front.world.check_stored()


def _read(reply: Pending[bytes]) -> None:
    if reply.is_settled:
        try:
            reply.result()
        except Unanswered:
            return


def _met(defect: Exception) -> None:
    raise Found("a request met a defect of the server") from defect


def seeds() -> Iterator[bytes]:
    """One input for each way to call a procedure, unchanged."""
    for place in range(len(CASES)):
        yield bytes([0, place, 0])


def by_root() -> Server:
    return Server(ROOT)


def by_root_without_lane() -> Server:
    return Server(ROOT, lane=False)


def by_stranger() -> Server:
    return Server(STRANGER)
