"""One connection of a Kafka client.

Requests begin in the order of arrival, as many at once as the client sends. So batches in flight share a flush. Answers
leave in the same order, as the protocol wants. The connection is not read while too many requests wait for an answer.
The same applies while its messages wait for their turn, or the listener for capacity, and during a pause for a quota
(KIP-219).

The connection itself answers ApiVersions and the two calls of SASL. Before authentication nothing else is served.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol, cast

from coordinator_protocol.methods import Waits
from coordinator_protocol.names import ID_BYTES_MAX
from coordinator_runtime.clock import Clock
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import COUNTED_BYTES_MIN, AnswerLimit, CallContext, Connection
from coordinator_server.addresses import NodeAddress
from coordinator_server.calls import Unanswered
from coordinator_server.kafka_front.abuses import Abuses
from coordinator_server.kafka_front.api_versions import answer_versions
from coordinator_server.kafka_front.apis import APIS, ApiKey
from coordinator_server.kafka_front.begun_requests import BegunRequests
from coordinator_server.kafka_front.exchange import KafkaExchange
from coordinator_server.kafka_front.frame_limits import BEFORE_AUTHENTICATION, FrameLimits
from coordinator_server.kafka_front.framing import Frames
from coordinator_server.kafka_front.headers import RequestHeader, request_header, request_start, response_header
from coordinator_server.kafka_front.kafka_call import ApiEndpoint, KafkaCall, KafkaReply
from coordinator_server.kafka_front.malformed import Malformed, TooLarge
from coordinator_server.kafka_front.partial_requests import PartialRequests
from coordinator_server.kafka_front.places import NoPlace, Places
from coordinator_server.kafka_front.sasl import Authentication, NotAuthenticated
from coordinator_server.kafka_front.writing import Piece
from coordinator_server.security.authentication import Callers, Reason, Unauthenticated
from coordinator_server.traffic.metering import Keeper

IN_FLIGHT_MAX: Final = 256
"""Requests of one connection without an answer. Beyond, the connection is not read. Clients send 5 at once, or as many
as they like (librdkafka)."""
FRAME_MS_MAX: Final = 60_000
"""Time for the rest of a request whose beginning has come; at most twice as long. Clients give up after 30 s."""
_LENGTH_BYTES: Final = 4


class DueCall(Protocol):
    """A call that is due later."""

    def cancel(self) -> None: ...


@dataclass(slots=True)
class Service:
    """Everything that the connections of one listener share."""

    endpoints: Mapping[int, ApiEndpoint]
    keeper: Keeper
    clock: Clock
    node: NodeAddress
    callers: Callers
    authentication: Callable[[str], Authentication]
    """Makes the authentication of a new connection, for its host."""
    message_bytes_max: int
    frame_limits: FrameLimits
    partial_requests: PartialRequests
    begun_requests: BegunRequests
    unauthenticated_ms_max: int
    answer_limit: AnswerLimit
    abuses: Abuses
    open_connections: dict[KafkaConnection, None]
    """An ordered set, with those whose TLS handshake is not over."""
    places: Places
    later: Callable[[int, Callable[[], None]], DueCall]
    """Calls a function after so many milliseconds."""
    on_lost: Callable[[Connection], None]
    """Called with each connection that ends."""


@dataclass(slots=True, eq=False)
class _AnswerPlace:
    """The place of one answer in the order of answers."""

    header: bytes
    call: KafkaCall | None = None
    reply: KafkaReply | None = None
    pending: Pending[KafkaReply] | None = None
    held_bytes: int = 0
    request_bytes: int = 0
    is_done: bool = False


class KafkaConnection(asyncio.Protocol):
    """Implements `WatchedSession`, too: the connection ends with its credential, or when it is idle for too long."""

    def __init__(self, service: Service, number: int, host: str) -> None:
        self._service = service
        self._number = number
        self.host = host
        self._transport: asyncio.Transport | None = None
        """None before the TLS handshake is over."""
        self._give_handshake_up: Callable[[], object] = lambda: None
        self._frames = Frames(service.frame_limits)
        self._unread: deque[memoryview] = deque()
        """Frames that came and have not begun."""
        self._slots: deque[_AnswerPlace] = deque()
        self._is_writable = True
        self._is_closing = False
        self._pause_ends_ms = 0
        """End of the pause that a quota asks for."""
        self._pause: DueCall | None = None
        self._is_behind = False
        self._is_beginning = False
        self._is_paused = False
        self._held_out_bytes = 0
        """Counted bytes that the system has not taken yet."""
        self._last_request_ms = service.clock.monotonic_ms()
        self._api_versions_version: int | None = None
        self._principal: str | None = None
        """Principal for which the connection counts."""
        self._deadline: DueCall | None = None
        self._frame_deadline: DueCall | None = None
        self._held_in_bytes = 0
        """Bytes of requests that have not begun, as they were counted last."""
        self.connection: Connection = f"kafka-{number}"
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def enter(self) -> bool:
        """Take a place. Return False, counted and logged, if there is none."""
        try:
            self._service.places.enter(self)
        except NoPlace as refusal:
            self._service.abuses.count(refusal.kind, self.host, str(refusal))
            return False
        self._service.open_connections[self] = None
        return True

    def before_it_is_made(self, give_up: Callable[[], object]) -> None:
        """Set the function that ends the handshake early."""
        self._give_handshake_up = give_up

    def never_made(self, problem: str) -> None:
        """Note that the handshake failed. Counted, unless the server has given it up."""
        if not self._is_closing:
            self._service.abuses.count("handshakes", self.host, problem)
        self.connection_lost(None)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        # Bytes that the system does not take are noticed and counted. A limit of 0 does not work with TLS, whose
        # transport then reports waiting bytes where there are none.
        self._transport.set_write_buffer_limits(high=1, low=0)
        service = self._service
        self._authentication = service.authentication(self.host)
        try:
            self._authentication.connected(_certificates(transport))
            self._entered()
        except Unanswered:
            # Counted where it was found.
            self._end()

    def connection_lost(self, error: Exception | None) -> None:
        service = self._service
        self._is_closing = True
        service.places.leave(self)
        service.open_connections.pop(self, None)
        for timer in (self._deadline, self._frame_deadline, self._pause):
            if timer is not None:
                timer.cancel()
        self._unread.clear()
        service.partial_requests.release(self)
        slots, self._slots = self._slots, deque()
        for slot in slots:
            if slot.pending is not None:
                slot.pending.cancel()
            self._release(slot.held_bytes)
        self._release(self._held_out_bytes)
        self._held_out_bytes = 0
        service.callers.forget(self)
        service.callers.left(self._number)
        service.on_lost(self.connection)
        if not self.closed.done():
            self.closed.set_result(None)

    def data_received(self, data: bytes) -> None:
        if self._is_closing:
            return
        try:
            self._unread.extend(self._frames.feed(data))
        except TooLarge as error:
            self._abused("kafka_large", str(error))
            return
        except Malformed as error:
            self._abused("not_kafka", str(error))
            return
        self._begin_requests()
        self._hold_the_rest()

    def pause_writing(self) -> None:
        self._is_writable = False

    def resume_writing(self) -> None:
        self._is_writable = True
        self._release(self._held_out_bytes)
        self._held_out_bytes = 0
        self._send()

    @property
    def idle_since_ms(self) -> int | None:
        """Time of the client's last request; None while one waits for its answer."""
        return None if self._slots else self._last_request_ms

    def announce_stop(self) -> None:
        """Answer the requests that have begun, and close the connection. Clients open another one."""
        self._is_closing = True
        self._unread.clear()
        if not self._slots and not self._is_beginning:
            self._close()

    def cut(self) -> None:
        """Close the connection at once."""
        self._is_closing = True
        if self._transport is None:
            self._give_handshake_up()
        else:
            self._transport.abort()

    def make_room(self) -> None:
        """End the connection, which is not authenticated yet, for a newer one."""
        self._abused("unauthenticated", "there were too many without authentication, most of them of this host")

    def give_up(self, held_bytes: int) -> None:
        """End the connection, because all of them hold too many requests in part."""
        self._abused("requests", f"{held_bytes} bytes of requests that have not begun")

    def _hold_the_rest(self) -> None:
        """Count the bytes that wait here, and bound the time of a frame that has come in part."""
        partial_bytes = self._frames.held_bytes
        held_bytes = partial_bytes + sum(map(len, self._unread))
        if held_bytes != self._held_in_bytes and not self._is_closing:
            self._held_in_bytes = held_bytes
            self._service.partial_requests.hold(self, held_bytes)
        if partial_bytes and self._frame_deadline is None and not self._is_closing:
            self._wait_for_frame()

    def _wait_for_frame(self) -> None:
        self._frame_deadline = self._service.later(FRAME_MS_MAX, partial(self._frame_is_due, self._frames.number))

    def _frame_is_due(self, number: int) -> None:
        """End the connection if it is still at the frame of this number, and was read all the time."""
        self._frame_deadline = None
        if self._is_closing or not self._frames.held_bytes:
            return
        if self._frames.number == number and not self._is_paused:
            self._abused("kafka_stalled", f"{self._frames.held_bytes} bytes of a request came, and no more")
            return
        self._wait_for_frame()

    def _entered(self) -> None:
        """Go on as the principal of the connection, if it is known by now. Raises Unanswered."""
        service, authentication = self._service, self._authentication
        principal = authentication.principal
        if principal is None:
            if self._deadline is None:
                self._frames.limits = BEFORE_AUTHENTICATION
                self._deadline = service.later(service.unauthenticated_ms_max, self._was_silent)
            return
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        self._frames.limits = service.frame_limits
        service.places.becomes_known(self)
        if principal != self._principal:
            service.callers.left(self._number)
            self._principal = principal
        service.callers.enter(principal, self._number)
        self.connection = service.callers.connection(principal, f"kafka-{self._number}")
        service.callers.forget(self)
        # It is counted as a connection, so that it leaves the sessions of gRPC alone.
        service.callers.watch(self, authentication.shown, self.host, principal, is_session=False)

    def _enter_or_refuse(self) -> None:
        try:
            self._entered()
        except Unanswered as refusal:
            raise NotAuthenticated(refusal.message) from refusal

    def _was_silent(self) -> None:
        self._abused("kafka_silent", "no credential came in time")

    def _begin_requests(self) -> None:
        """Begin requests that came, as many as may be under way."""
        if self._is_beginning:
            return
        self._is_beginning = True
        calls: list[KafkaCall] = []
        slots: list[_AnswerPlace] = []
        try:
            while self._unread and self._may_begin() and self._has_capacity(len(self._unread[0])):
                frame = self._unread.popleft()
                slot = self._understand(frame)
                self._slots.append(slot)
                if slot.call is not None:
                    slot.request_bytes = len(frame)
                    self._service.begun_requests.begin(slot.request_bytes, is_work=_is_work(slot.call))
                    calls.append(slot.call)
                    slots.append(slot)
        except Malformed as error:
            self._unread.clear()
            self._abused("not_kafka", str(error))
        except _NotServed as error:
            self._unread.clear()
            self._abused("kafka_versions", str(error))
        except NotAuthenticated:
            # Counted where it was found. Requests before this one get their answers.
            self.announce_stop()
        finally:
            self._is_beginning = False
        self._begin_calls(calls, slots)
        self._send()
        self._read_on()
        if self._held_in_bytes:
            self._hold_the_rest()

    def _may_begin(self) -> bool:
        return not (self._is_closing or self._pause is not None or self._is_behind) and len(self._slots) < IN_FLIGHT_MAX

    def _has_capacity(self, size_bytes: int) -> bool:
        """Return True if the listener has capacity for a request. Otherwise the connection goes on later."""
        begun = self._service.begun_requests
        if begun.may_begin(size_bytes):
            return True
        begun.wait(self._go_on)
        return False

    def _go_on(self) -> None:
        if not self._is_closing:
            self._begin_requests()

    def _begin_calls(self, calls: Sequence[KafkaCall], slots: Sequence[_AnswerPlace]) -> None:
        if not calls:
            return
        self._last_request_ms = self._service.clock.monotonic_ms()
        for slot, pending in zip(slots, self._service.keeper.begin_all(calls), strict=True):
            slot.pending = pending
            pending.on_settled(partial(self._answered, slot))
        self._is_behind = self._service.keeper.is_behind(self.connection, self._caught_up)

    def _caught_up(self) -> None:
        self._is_behind = False
        self._go_on()

    def _understand(self, frame: memoryview) -> _AnswerPlace:
        """Return the place of the request's answer: answered here, or with the call to begin. Raises Malformed,
        _NotServed, NotAuthenticated."""
        if self._authentication.expects_raw:
            return self._raw_sasl(frame)
        start = request_start(frame)
        api = APIS.get(start.api_key)
        if start.api_key == ApiKey.API_VERSIONS:
            return self._versions(start.api_version, frame)
        if api is None or not api.has(start.api_version):
            raise _NotServed(f"API {start.api_key} version {start.api_version}")
        is_flexible = api.is_flexible(start.api_version)
        header, body = request_header(frame, is_flexible=is_flexible)
        response_head = response_header(header.correlation_id, is_flexible=is_flexible)
        if api.method is None:
            answer = self._authentication.answer(api.key, header.api_version, body)
            if self._authentication.has_failed:
                # As in Kafka: the client has its answer, and no second attempt on this connection.
                self.announce_stop()
            else:
                self._enter_or_refuse()
            return _answered_slot(response_head, answer)
        if self._authentication.principal is None:
            refusal = Unauthenticated(Reason.NOTHING_SHOWN, f"{api.key.name} before authentication")
            self._service.callers.refused(refusal, self.host)
            raise NotAuthenticated(refusal.message)
        endpoint = self._service.endpoints.get(api.key)
        if endpoint is None:
            raise _NotServed(f"API {api.key.name}")
        return _AnswerPlace(response_head, self._call(endpoint, header, body))

    def _raw_sasl(self, frame: memoryview) -> _AnswerPlace:
        """Return the answer to a message of SASL without headers. Raises NotAuthenticated."""
        answer = self._authentication.answer_raw(bytes(frame))
        self._enter_or_refuse()
        return _answered_slot(b"", [answer])

    def _versions(self, version: int, frame: memoryview) -> _AnswerPlace:
        self._api_versions_version = version
        api = APIS[ApiKey.API_VERSIONS]
        # A header of an unknown version may have any form. Its answer needs the correlation id alone.
        body = request_header(frame, is_flexible=api.is_flexible(version))[1] if api.has(version) else frame
        head = response_header(request_start(frame).correlation_id, is_flexible=False)
        return _answered_slot(head, answer_versions(body, version))

    def _call(self, endpoint: ApiEndpoint, header: RequestHeader, body: memoryview) -> KafkaCall:
        service, authentication = self._service, self._authentication
        assert authentication.principal is not None, "asked before"
        client_id = header.client_id or ""
        context = CallContext(
            principal=authentication.principal,
            # Quotas keep it as long as the server runs.
            client_id=client_id if len(client_id) <= ID_BYTES_MAX else "",
            host=self.host,
            client_txn_version=1,
            method=endpoint.rule.method,
            connection=self.connection,
        )
        exchange = KafkaExchange(endpoint.api, header.api_version, context, service.node, self._api_versions_version)
        return KafkaCall(endpoint, body, exchange, service.clock, service.message_bytes_max)

    def _answered(self, slot: _AnswerPlace, done: Pending[KafkaReply]) -> None:
        slot.pending = None
        call, slot.call = slot.call, None
        assert call is not None, "only calls are answered later"
        self._service.begun_requests.end(slot.request_bytes, is_work=_is_work(call))
        if self._is_closing and not self._slots:
            return
        error = done.error
        if error is None:
            slot.reply = done.result()
        else:
            slot.reply = call.failed(error) if isinstance(error, Unanswered) else None
        if slot.reply is None:
            self._abused("not_kafka", error.message if isinstance(error, Unanswered) else str(error))
            return
        slot.is_done = True
        size_bytes = len(slot.reply)
        if size_bytes >= COUNTED_BYTES_MIN:
            slot.held_bytes = size_bytes
            self._service.answer_limit.hold(self.connection, size_bytes)
        self._send()
        self._begin_requests()

    def _send(self) -> None:
        """Send the answers whose turn it is."""
        pieces: list[Piece] = []
        while self._is_writable and self._slots and self._slots[0].is_done:
            slot = self._slots.popleft()
            reply = slot.reply
            assert reply is not None, "it is done"
            self._held_out_bytes += slot.held_bytes
            if reply.closes:
                self._end()
                break
            if reply.throttle_ms:
                self._throttle(reply.throttle_ms)
            if reply.response is not None:
                size_bytes = len(slot.header) + len(reply)
                pieces += [size_bytes.to_bytes(_LENGTH_BYTES) + slot.header, *reply.body]
            if reply.is_last:
                self._is_closing = True
                self._unread.clear()
        transport = self._transport
        if pieces and transport is not None and not transport.is_closing():
            transport.writelines(pieces)
        if self._is_writable and self._held_out_bytes:
            self._release(self._held_out_bytes)
            self._held_out_bytes = 0
        if self._is_closing and not self._slots:
            self._close()

    def _throttle(self, throttle_ms: int) -> None:
        """Read nothing for this long, or for the rest of an earlier pause."""
        now_ms = self._service.clock.monotonic_ms()
        self._pause_ends_ms = max(self._pause_ends_ms, now_ms + throttle_ms)
        if self._pause is None:
            self._pause = self._service.later(self._pause_ends_ms - now_ms, self._pause_is_over)

    def _pause_is_over(self) -> None:
        left_ms = self._pause_ends_ms - self._service.clock.monotonic_ms()
        self._pause = None
        if self._is_closing:
            return
        if left_ms > 0:
            self._pause = self._service.later(left_ms, self._pause_is_over)
            return
        self._begin_requests()

    def _read_on(self) -> None:
        """Read from the connection, or not, as its state wants."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        self._is_paused = bool(self._unread) or not self._may_begin()
        if self._is_paused:
            transport.pause_reading()
        else:
            transport.resume_reading()

    def _release(self, size_bytes: int) -> None:
        if size_bytes:
            self._service.answer_limit.release(self.connection, size_bytes)

    def _abused(self, kind: str, details: str) -> None:
        """Count and log a connection that does not speak as it must, and close it."""
        self._service.abuses.count(kind, self.host, details)
        self._end()

    def _end(self) -> None:
        self._is_closing = True
        self._service.partial_requests.release(self)
        self._close()

    def _close(self) -> None:
        if self._transport is None:
            self._give_handshake_up()
        else:
            self._transport.close()


class _NotServed(Exception):
    """The request has an API or a version that is not served."""


def _is_work(call: KafkaCall) -> bool:
    """Return True unless the call may wait for records or members. Heartbeats of this protocol never wait."""
    return call.rule.waits not in (Waits.RECORDS, Waits.MEMBERS)


def _answered_slot(header: bytes, body: list[Piece]) -> _AnswerPlace:
    return _AnswerPlace(header, reply=KafkaReply(body, sum(map(len, body)), body), is_done=True)


def _certificates(transport: asyncio.BaseTransport) -> tuple[bytes, ...]:
    """Return the certificate of the peer, as DER, if the handshake verified one."""
    of_tls: Any = transport.get_extra_info("ssl_object")
    certificate = None if of_tls is None else of_tls.getpeercert(binary_form=True)
    return () if certificate is None else (certificate,)
