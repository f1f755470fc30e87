"""A connection of a Kafka client without a network: a transport by hand, on a manual clock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, cast

from coordinator_protocol.methods import METHODS, Method
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import Connection, Levels
from coordinator_server.addresses import NodeAddress
from coordinator_server.kafka_front.abuses import Abuses
from coordinator_server.kafka_front.apis import APIS, ApiKey
from coordinator_server.kafka_front.begun_requests import BegunRequests
from coordinator_server.kafka_front.connection import KafkaConnection, Service
from coordinator_server.kafka_front.endpoints import codec_of
from coordinator_server.kafka_front.exchange import ApiHandler, KafkaExchange
from coordinator_server.kafka_front.frame_limits import frame_limits
from coordinator_server.kafka_front.kafka_call import ApiEndpoint
from coordinator_server.kafka_front.messages.heartbeat_response import HeartbeatResponse
from coordinator_server.kafka_front.partial_requests import PARTIAL_BYTES_MAX, PartialRequests
from coordinator_server.kafka_front.places import Places
from coordinator_server.kafka_front.sasl import Authentication
from coordinator_server.security.authentication import AuthenticationMethod, Authenticator, Callers
from coordinator_server.traffic.admission import Admission, AdmissionLimits
from coordinator_server.traffic.answer_bytes import AnswerBytes, AnswerLimits
from coordinator_server.traffic.gatekeeper import Gatekeeper
from coordinator_server.traffic.metering import Keeper
from tests.harness.manual_clock import ManualClock

VERSION = 0
"""Version of every request here: no tagged fields, so that a frame is easy to write."""


class HandTimer:
    """A call that a test makes due."""

    def __init__(self, due_ms: int, act: Callable[[], None]) -> None:
        self.due_ms, self.act = due_ms, act
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class HandTransport:
    """Implements the part of `asyncio.Transport` that a connection uses."""

    def __init__(self) -> None:
        self.written = bytearray()
        self.is_closed = False
        self.is_aborted = False
        self.is_reading = True

    def get_extra_info(self, name: str) -> object:
        assert name == "ssl_object"
        return None

    def set_write_buffer_limits(self, high: int, low: int) -> None:
        assert (high, low) == (1, 0), "so that bytes that wait are noticed, and their end"

    def writelines(self, pieces: Iterable[bytes | memoryview]) -> None:
        assert not self.is_closed, "written to a closed connection"
        for piece in pieces:
            self.written += piece

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_closed = self.is_aborted = True

    def pause_reading(self) -> None:
        self.is_reading = False

    def resume_reading(self) -> None:
        self.is_reading = True


class Line:
    """One listener, whose calls of Heartbeat wait until a test answers them, and one connection to it."""

    def __init__(
        self,
        *,
        methods: frozenset[AuthenticationMethod] = frozenset(),
        authenticator: Authenticator | None = None,
        keeper: Callable[[Gatekeeper, ManualClock], Keeper] | None = None,
        message_bytes_max: int = 1 << 20,
        partial_bytes_max: int = PARTIAL_BYTES_MAX,
        connections_max: int = 10,
        handlers: Mapping[ApiKey, ApiHandler] | None = None,
        clock: ManualClock | None = None,
        levels: Levels | None = None,
        begun_bytes_max: int = 1 << 25,
        begun_calls_max: int = 2_048,
    ) -> None:
        self.clock = ManualClock() if clock is None else clock
        self.authenticator = authenticator
        self.answers = AnswerBytes(AnswerLimits())
        self.gatekeeper = Gatekeeper(Admission(AdmissionLimits(), lambda: 0), self.clock, answer_limit=self.answers)
        self.abuses = Abuses(self.clock)
        self.callers = Callers(authenticator, levels=levels)
        self.timers: list[HandTimer] = []
        self.lost: list[Connection] = []
        self.begun: list[tuple[Any, KafkaExchange, Pending[Any]]] = []
        served = {ApiKey.HEARTBEAT: ApiHandler(self._serve, _refused)} if handlers is None else handlers
        self.service = Service(
            endpoints={
                key: ApiEndpoint(APIS[key], METHODS[cast(Method, APIS[key].method)], *codec_of(APIS[key]), handler)
                for key, handler in served.items()
            },
            keeper=self.gatekeeper if keeper is None else keeper(self.gatekeeper, self.clock),
            clock=self.clock,
            node=NodeAddress(1, "kafka.test", 9092),
            callers=self.callers,
            authentication=partial(Authentication, methods, self.callers),
            message_bytes_max=message_bytes_max,
            frame_limits=frame_limits(message_bytes_max),
            partial_requests=PartialRequests(partial_bytes_max),
            begun_requests=BegunRequests(begun_bytes_max, begun_calls_max, self._later),
            unauthenticated_ms_max=10_000,
            answer_limit=self.answers,
            abuses=self.abuses,
            open_connections={},
            places=Places(self.clock, connections_max, knows_all=authenticator is None),
            later=self._later,
            on_lost=self.lost.append,
        )
        self._connections = 0
        self.gatekeeper.open()
        self.connection, self.transport = self.connect()

    def connect(self, host: str = "10.0.0.7") -> tuple[KafkaConnection, HandTransport]:
        self._connections += 1
        connection, transport = KafkaConnection(self.service, self._connections, host), HandTransport()
        if connection.enter():
            connection.connection_made(cast(asyncio.BaseTransport, transport))
        else:
            transport.close()
        return connection, transport

    def send(self, *frames: bytes) -> None:
        """Send frames in one piece."""
        self.connection.data_received(b"".join(frames))

    def answer(self, number: int, code: int = 0) -> None:
        """Answer the call that began as this one."""
        self.begun[number][2].succeed(HeartbeatResponse(error_code=code))

    def answered(self) -> list[int]:
        """Return the correlation ids of the answers so far, in order."""
        return [int.from_bytes(body[:4], "big") for body in self.bodies()]

    def bodies(self) -> list[bytes]:
        """Return the answers so far, each with its header."""
        written, found = bytes(self.transport.written), []
        while written:
            size = int.from_bytes(written[:4], "big")
            found.append(written[4 : 4 + size])
            written = written[4 + size :]
        return found

    def advance(self, elapsed_ms: int) -> None:
        self.clock.advance(elapsed_ms)
        for timer in self.timers[:]:
            if timer.due_ms <= self.clock.monotonic_ms() and not timer.is_cancelled:
                self.timers.remove(timer)
                timer.act()

    @property
    def refusals(self) -> dict[str, int]:
        """Callers that were refused, by reason."""
        assert self.authenticator is not None
        return dict(self.authenticator.refusals)

    def check_credentials(self) -> None:
        """Let the server look at the credentials of its open connections."""
        assert self.authenticator is not None
        self.authenticator.sessions.check_again()

    def _serve(self, request: Any, exchange: KafkaExchange) -> Pending[Any]:
        reply: Pending[Any] = Pending()
        reply.on_cancel = reply.give_up
        self.begun.append((request, exchange, reply))
        return reply

    def _later(self, delay_ms: int, act: Callable[[], None]) -> HandTimer:
        timer = HandTimer(self.clock.monotonic_ms() + delay_ms, act)
        self.timers.append(timer)
        return timer


def _refused(_request: Any, exchange: KafkaExchange, error: Any) -> HeartbeatResponse:
    return HeartbeatResponse(error_code=exchange.code(error))


def frame(key: int, version: int, correlation_id: int, body: bytes = b"", client_id: str = "client") -> bytes:
    """Return a request with a header of version 1, and its length before it."""
    name = client_id.encode()
    content = b"".join(
        (
            key.to_bytes(2, "big"),
            version.to_bytes(2, "big"),
            correlation_id.to_bytes(4, "big"),
            len(name).to_bytes(2, "big"),
            name,
            body,
        )
    )
    return len(content).to_bytes(4, "big") + content


def heartbeat(correlation_id: int, group: str = "g", version: int = VERSION) -> bytes:
    """Return a Heartbeat of version 0, or of 1 or 2, which have the same fields."""
    return frame(ApiKey.HEARTBEAT, version, correlation_id, _text(group) + b"\0\0\0\1" + _text("member"))


def _text(text: str) -> bytes:
    encoded = text.encode()
    return len(encoded).to_bytes(2, "big") + encoded
