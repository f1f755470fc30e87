"""Many calls on one stream: it fills the messages, and assigns the answers to their calls. Without clock or socket.

A message costs as much as a unary call, whatever is in it. So all calls started in one turn of the loop, and while the
last message was being sent, go out together. Nothing is sent before the server has greeted: its hello limits the calls
in flight, and a refused stream has lost nothing.

When a stream breaks, the calls that it carried are lost without an answer, and their callers send them again under the
same request id. Unsent calls certainly had no effect, and their `Loss` says so. The same holds for unanswered calls if
the server ended the stream in order: it answers everything that it begins.

Source: session.proto; design 6 (`ClientSession`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final

from google.protobuf.message import DecodeError

from coordinator_api.v1 import session_pb2
from coordinator_api.v1.common_pb2 import RequestHeader
from coordinator_client.calls import Reply, Request, Rpc
from coordinator_client.errors import Loss

CALL_OVERHEAD_BYTES_MAX: Final = 64
"""Upper bound of the bytes of a call in a message besides its request."""

SENT_ALONE: Final = -1
"""Correlation id of a call that no stream carries."""

_STATUS_NAMES: Final = (
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
)
"""gRPC's names of its statuses, by number."""


def status_name(number: int) -> str:
    """Return gRPC's name for the number of a status."""
    return _STATUS_NAMES[number] if 0 <= number < len(_STATUS_NAMES) else "UNKNOWN"


_ABOUT_THE_CALLER: Final = frozenset({"UNAUTHENTICATED", "PERMISSION_DENIED"})
"""Statuses with which a stream is refused because of its caller, so that another stream would be refused too."""


DRAINING: Final = Loss("UNAVAILABLE", "the server is ending the session", is_without_effect=True)
"""Loss of a call that was not sent because its session is ending."""
SESSION_ENDED: Final = Loss("UNAVAILABLE", "the server ended the session", is_without_effect=True)
"""Loss at the end of a stream that the server closed in order (status OK): it answered everything that it had begun."""


class SessionCall:
    """One attempt of a request on the session, from its start until it is reported once. On the wire it is an
    `Operation`."""

    __slots__ = ("_on_cancel", "body", "correlation_id", "ends_ms", "is_taken", "on_done", "request", "rpc")

    def __init__(
        self,
        rpc: Rpc[Any, Any],
        request: Request,
        *,
        ends_ms: int,
        on_done: Callable[[Any], None],
        on_cancel: Callable[[SessionCall], None],
    ) -> None:
        """Serialize the request. `ends_ms` is the time at which the caller counts it as lost, by the clock of the
        callers of `take` and `expire`."""
        self.rpc = rpc
        self.request = request
        self.body = request.SerializeToString()
        self.ends_ms = ends_ms
        self.is_taken = False
        """True if the loop of its session has it."""
        self.correlation_id = 0
        """Correlation id; 0 = not sent, `SENT_ALONE` = sent as a unary call."""
        self.on_done: Callable[[Any], None] | None = on_done
        """Called with the answer; None = it was reported."""
        self._on_cancel = on_cancel

    def cancel(self) -> None:
        """Give up the call; usable from any thread."""
        self._on_cancel(self)

    def report(self, answer: Reply | Loss) -> None:
        """Report the answer, or the loss; only the first report counts."""
        on_done, self.on_done = self.on_done, None
        if on_done is not None:
            on_done(answer)


class ClientSession:
    """Calls of one process to one server over one stream, from before it is opened until it has ended."""

    def __init__(self) -> None:
        self._unsent: deque[SessionCall] = deque()
        self._unanswered: dict[int, SessionCall] = {}
        self._oversized: list[SessionCall] = []
        self._answers: deque[tuple[SessionCall, session_pb2.SessionAnswer]] = deque()
        self._cancelled: list[int] = []
        self._last_id = 0
        self._has_begun = False
        self._calls_max = 0
        self._message_bytes_max = 0
        self.is_draining = False
        """True if the server is ending the session: it answers the calls that it has, and takes no more."""

    @property
    def is_greeted(self) -> bool:
        """True if the server has answered on this stream."""
        return self._calls_max > 0

    @property
    def under_way(self) -> int:
        """Number of calls that were sent and are not reported."""
        return len(self._unanswered) + len(self._answers)

    @property
    def is_idle(self) -> bool:
        """True if no call waits to be sent or answered."""
        return not self._unsent and not self._unanswered

    def add(self, call: SessionCall) -> None:
        """Send the call with the next message."""
        self._unsent.append(call)

    def carries(self, call: SessionCall) -> bool:
        """Return True if the call was sent here and is not answered."""
        return self._unanswered.get(call.correlation_id) is call

    def cancel(self, call: SessionCall) -> None:
        """Give up a call: drop it, or ask the server to drop it."""
        if call.on_done is None:
            return
        if self.carries(call):
            del self._unanswered[call.correlation_id]
            self._cancelled.append(call.correlation_id)
        call.report(Loss("CANCELLED", "cancelled by the client", is_without_effect=not call.correlation_id))

    def take(self, now_ms: int) -> bytes | None:
        """Return the next message; None if there is nothing to send, or the server's limit is reached."""
        if not self._has_begun:
            self._has_begun = True
            # The header is empty: every request names its own client.
            return session_pb2.SessionRequest(header=RequestHeader()).SerializeToString()
        free_calls = self._calls_max - len(self._unanswered)
        if not self._cancelled and (not self._unsent or free_calls <= 0):
            return None
        request = session_pb2.SessionRequest(cancels=self._cancelled)
        self._cancelled.clear()
        add, unsent, size = request.calls.add, self._unsent, request.ByteSize()
        while unsent and free_calls > 0:
            call = unsent[0]
            if call.on_done is None:
                unsent.popleft()
                continue
            call_bytes = len(call.body) + CALL_OVERHEAD_BYTES_MAX
            if call_bytes > self._message_bytes_max:
                self._oversized.append(unsent.popleft())
                continue
            size += call_bytes
            if size > self._message_bytes_max:
                break
            unsent.popleft()
            self._last_id += 1
            free_calls -= 1
            call.correlation_id = self._last_id
            self._unanswered[self._last_id] = call
            # Fields are set one by one: keyword arguments take nearly twice as long.
            sent = add()
            sent.correlation_id = self._last_id
            sent.method = call.rpc.method
            sent.timeout_ms = max(1, call.ends_ms - now_ms)
            sent.body = call.body
        return request.SerializeToString() or None

    def take_oversized(self) -> list[SessionCall]:
        """Return the calls that `take` found too large for any message; they are sent as unary calls."""
        oversized, self._oversized = self._oversized, []
        return oversized

    def receive(self, body: bytes) -> None:
        """Process a message of the server; the answers in it wait for `report`.

        Raises: ValueError for bytes that are not a message; the stream is then unusable.
        """
        try:
            response = session_pb2.SessionResponse.FromString(body)
        except DecodeError as error:
            raise ValueError(f"{len(body)} bytes came that are no SessionResponse: {error}") from error
        if response.HasField("hello"):
            self._calls_max = max(1, response.hello.calls_in_flight_max)
            self._message_bytes_max = response.hello.message_bytes_max
        if response.is_draining:
            self.is_draining = True
        for result in response.answers:
            call = self._unanswered.pop(result.correlation_id, None)
            if call is not None:
                self._answers.append((call, result))

    def report(self, answers_max: int) -> bool:
        """Report at most this many answers; return True if more wait."""
        answers = self._answers
        while answers and answers_max:
            answers_max -= 1
            call, result = answers.popleft()
            call.report(_answer_in(call, result))
        return bool(answers)

    def lose(self, loss: Loss) -> None:
        """Note that the stream is gone: report every call as lost, sent or not."""
        is_about_caller = not self.is_greeted and loss.status in _ABOUT_THE_CALLER
        self.report(len(self._answers))
        sent, self._unanswered = self._unanswered, {}
        self.lose_unsent(Loss(loss.status if is_about_caller else "UNAVAILABLE", str(loss), is_without_effect=True))
        for call in sent.values():
            # The reason for the end of the stream says nothing about the calls that it carried.
            call.report(Loss("UNAVAILABLE", f"the session ended: {loss}", is_without_effect=loss.is_without_effect))

    def take_unsent(self) -> list[SessionCall]:
        """Return the unsent calls, and forget them: they are sent another way."""
        unsent = [call for call in self._unsent if call.on_done is not None]
        self._unsent.clear()
        return unsent

    def expire(self, now_ms: int) -> None:
        """Report overdue calls as lost; the server is asked to drop them."""
        late = [call for call in self._unanswered.values() if call.ends_ms <= now_ms]
        for call in late:
            del self._unanswered[call.correlation_id]
            self._cancelled.append(call.correlation_id)
            call.report(Loss("DEADLINE_EXCEEDED", "no answer came in time"))
        for call in [call for call in self._unsent if call.ends_ms <= now_ms]:
            call.report(Loss("DEADLINE_EXCEEDED", "there was no room to send it in time", is_without_effect=True))

    def lose_unsent(self, loss: Loss) -> None:
        """Report unsent calls as lost."""
        for call in self.take_unsent():
            call.report(loss)


def _answer_in(call: SessionCall, result: session_pb2.SessionAnswer) -> Reply | Loss:
    if result.status:
        return Loss(status_name(result.status), result.status_message)
    try:
        reply: Reply = call.rpc.parse(result.body)
    except DecodeError as error:
        return Loss("INTERNAL", f"the answer is no reply to {call.rpc.method}: {error}")
    return reply
