"""Channel over the compiled transport: the same as `GrpcChannel`, with fewer changes of thread.

Arrivals are taken in batches, and outgoing messages are handed over once per turn of the loop. Answers to bulk reads
stay in their receive buffer and are not copied. All other unary calls, which are rare, use grpc.aio.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import txn_native_transport as native
from google.protobuf.message import DecodeError

from coordinator_client.calls import Rpc
from coordinator_client.errors import Loss
from coordinator_client.loops import AsyncioLoop
from coordinator_client.transport.grpc_transport import SESSION_PATH, GrpcChannel, GrpcStream, StreamUser
from coordinator_client.transport.session import SESSION_ENDED, status_name
from coordinator_client.transport.transport import KEEPALIVE_MS, KEEPALIVE_TIMEOUT_MS, MESSAGE_BYTES_MAX, Attempt

_INTERFACE: Final = 16
if native.INTERFACE != _INTERFACE:
    raise ImportError(f"txn_native_transport has interface {native.INTERFACE}, and this SDK knows {_INTERFACE}")

_CONNECT_TIMEOUT_MS: Final = 20_000

_ARRIVALS_PER_TURN: Final = 64
"""Maximum arrivals taken at once: the application must get its turn in between."""

_CREDIT_MESSAGES: Final = 16
"""Number of messages of a stream that the network may deliver before it is given new credit."""

_AHEAD_MESSAGES_MAX: Final = 8
"""Number of messages that a stream hands over before it waits until the network has taken them."""

_log = logging.getLogger("coordinator_client.native_channel")


class NativeChannel:
    """A channel to one server. Made and used on its loop only."""

    def __init__(self, endpoint: str, loop: AsyncioLoop) -> None:
        self._loop = loop.asyncio_loop
        self._open_grpc = partial(GrpcChannel, endpoint, loop)
        self._grpc: GrpcChannel | None = None
        self._client = native.Client(
            endpoint,
            message_bytes_max=MESSAGE_BYTES_MAX,
            stream_credit=_CREDIT_MESSAGES,
            keepalive_ms=KEEPALIVE_MS,
            keepalive_timeout_ms=KEEPALIVE_TIMEOUT_MS,
            connect_timeout_ms=_CONNECT_TIMEOUT_MS,
        )
        self._streams: dict[int, NativeStream] = {}
        self._calls: dict[int, NativeCall] = {}
        self._is_open = True
        self._loop.add_reader(self._client.fileno(), self._on_arrivals)

    def open_stream(self, user: StreamUser) -> NativeStream | GrpcStream:
        """Open a session stream."""
        if not self._is_open:
            return self._over_grpc().open_stream(user)
        token = self._client.open(SESSION_PATH)
        stream = self._streams[token] = NativeStream(self, token, user)
        stream.wake()
        return stream

    def call(
        self,
        rpc: Rpc[Any, Any],
        request: Any,  # noqa: ANN401  the type is that of the procedure
        *,
        timeout_ms: int,
        on_done: Callable[[Any], None],
    ) -> Attempt:
        """Make one unary call, which the returned object can cancel."""
        if self._is_open and rpc.is_bulk:
            token = self._client.call(rpc.path, request.SerializeToString(), timeout_ms)
            self._calls[token] = call = NativeCall(self, token, rpc.parse, on_done)
            return call
        return self._over_grpc().call(rpc, request, timeout_ms=timeout_ms, on_done=on_done)

    def close(self) -> None:
        """Cut the streams without notifying their users, and close the channel that carries unary calls. Calls in
        flight are reported as lost."""
        self._streams.clear()
        self._end()
        self._lose_calls(Loss("CANCELLED", "the connection was closed"))
        if self._grpc is not None:
            self._grpc.close()

    def _over_grpc(self) -> GrpcChannel:
        if self._grpc is None:
            self._grpc = self._open_grpc()
        return self._grpc

    def call_soon(self, turn: Callable[[], None]) -> None:
        """Call `turn` in the next turn of the loop."""
        self._loop.call_soon(turn)

    def give(self, *given: tuple[object, ...]) -> None:
        """Hand commands to the network thread."""
        if self._is_open:
            self._client.give(list(given))

    def cut(self, token: int) -> None:
        """End a stream from this side; its later arrivals are dropped."""
        if self._streams.pop(token, None) is not None:
            self.give((native.END, token, 0, ""))

    def _on_arrivals(self) -> None:
        for arrival in self._client.take(_ARRIVALS_PER_TURN):
            kind = arrival[0]
            if kind == native.STOPPED:
                self.on_stopped(arrival[1])
            elif (call := self._calls.pop(arrival[1], None)) is not None:
                call.on_end(arrival)
            # Arrivals that were queued when their stream was cut are dropped.
            elif (stream := self._streams.get(arrival[1])) is None:
                continue
            elif kind == native.MESSAGE:
                stream.on_message(arrival[2])
            elif kind == native.SENT:
                stream.on_sent()
            elif kind == native.ENDED:
                del self._streams[arrival[1]]
                stream.on_end(status_name(arrival[2]), arrival[3])

    def on_stopped(self, failure: str | None) -> None:
        """Handle a defect of the compiled transport: everything from here on uses grpc.aio."""
        _log.warning("the compiled transport stopped (%s); the session goes on over grpc.aio", failure)
        self._end()
        streams, self._streams = self._streams, {}
        for stream in streams.values():
            stream.on_end("UNAVAILABLE", f"the compiled transport stopped: {failure}")
        self._lose_calls(Loss("UNAVAILABLE", f"the compiled transport stopped: {failure}"))

    def give_up(self, token: int) -> bool:
        """End a call from this side; return True if it was not answered yet."""
        is_open = self._calls.pop(token, None) is not None
        if is_open:
            self.give((native.END, token, 0, ""))
        return is_open

    def _lose_calls(self, loss: Loss) -> None:
        calls, self._calls = self._calls, {}
        for call in calls.values():
            call.report(loss)

    def _end(self) -> None:
        if self._is_open:
            self._is_open = False
            self._loop.remove_reader(self._client.fileno())
            self._client.close()


class NativeStream:
    """One session stream over the compiled transport."""

    def __init__(self, channel: NativeChannel, token: int, user: StreamUser) -> None:
        self._channel = channel
        self._token = token
        self._user = user
        self._is_open = True
        self._is_turn_due = False
        self._ahead = 0
        self._taken = 0

    def wake(self) -> None:
        """Look again for something to send."""
        if not self._is_turn_due:
            self._is_turn_due = True
            self._channel.call_soon(self._turn)

    def close(self) -> None:
        """End the stream without notifying its user."""
        self._is_open = False
        self._channel.cut(self._token)

    def on_message(self, body: bytes) -> None:
        self._taken += 1
        if self._taken == _CREDIT_MESSAGES // 2:
            self._taken = 0
            self._channel.give((native.CREDIT, self._token, _CREDIT_MESSAGES // 2))
        try:
            self._user.on_message(body)
        except ValueError as error:
            self.close()
            self._user.on_end(Loss("INTERNAL", str(error)))

    def on_sent(self) -> None:
        self._ahead = 0
        self.wake()

    def on_end(self, status: str, message: str) -> None:
        self._is_open = False
        self._user.on_end(SESSION_ENDED if status == "OK" else Loss(status, message))

    def _turn(self) -> None:
        """Send the messages of the user. While the network has not taken the last messages, the next one collects
        requests."""
        self._is_turn_due = False
        while self._is_open and self._ahead < _AHEAD_MESSAGES_MAX and (body := self._user.take()) is not None:
            self._ahead += 1
            self._channel.give((native.SEND, self._token, body, self._ahead == _AHEAD_MESSAGES_MAX))


class NativeCall:
    """One bulk read over the compiled transport."""

    def __init__(
        self, channel: NativeChannel, token: int, parse: Callable[[Any], Any], on_done: Callable[[Any], None]
    ) -> None:
        """Store the callbacks. `parse` is that of a bulk read, which takes views as well as bytes."""
        self._channel = channel
        self._token = token
        self._parse = parse
        self.report = on_done
        """Reports the result to the caller; called once."""

    def cancel(self) -> None:
        """Give up the call and report it as lost, unless it has been reported."""
        if self._channel.give_up(self._token):
            self.report(Loss("CANCELLED", "cancelled by the client"))

    def on_end(self, arrival: tuple[Any, ...]) -> None:
        """Report the answer, or the reason why there is none."""
        if arrival[0] != native.ANSWERED:
            self.report(Loss(status_name(arrival[2]), arrival[3]))
            return
        try:
            answer = self._parse(memoryview(arrival[2]))
        except DecodeError as error:
            answer = Loss("INTERNAL", str(error))
        self.report(answer)
