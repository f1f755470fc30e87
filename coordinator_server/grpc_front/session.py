"""The session stream: many calls in one message, and many answers in one message back.

A message of a stream costs as much as a unary call, however many calls are in it. So a session takes the calls of a
message in the order sent, through the same handler as unary calls. It gathers the answers that come while the last
message is being written. It knows no network: an adapter passes bytes in and takes bytes out.

Source: design 6 (`Session`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from google.protobuf.message import DecodeError
from msgspec.structs import replace

from coordinator_api.v1 import session_pb2
from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.limits import MEBI
from coordinator_protocol.names import ID_BYTES_MAX
from coordinator_protocol.wire import has_more_fields
from coordinator_runtime.clock import Clock
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import COUNTED_BYTES_MIN, NO_ANSWER_LIMIT, AnswerLimit, CallContext
from coordinator_server.calls import CallStatus, Unanswered
from coordinator_server.grpc_front.handler import Handler, NamedCall

SERVICE: Final = session_pb2.DESCRIPTOR.services_by_name["SessionService"]
SESSION_METHOD: Final = f"/{SERVICE.full_name}/Session"

LINGER_SECONDS: Final = 0.3
"""Time for which a stream stays open after its client heard that the session ends. Calls that the client sent before it
knew are still answered. Many libraries treat a message that meets the end of its stream as an error."""

STATUS_NUMBERS: Final = {
    CallStatus.CANCELLED: 1,
    CallStatus.INVALID_ARGUMENT: 3,
    CallStatus.RESOURCE_EXHAUSTED: 8,
    CallStatus.UNIMPLEMENTED: 12,
    CallStatus.INTERNAL: 13,
    CallStatus.UNAUTHENTICATED: 16,
}
"""gRPC's numbers of our statuses."""


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """Limits of one stream."""

    calls_in_flight_max: int = 4_096
    message_bytes_max: int = MEBI
    """Largest message in; a message out may be larger only if a single answer is."""

    @classmethod
    def within(cls, message_bytes_max: int) -> SessionLimits:
        """Return the limits for a transport that takes messages of this size."""
        return cls(message_bytes_max=min(cls().message_bytes_max, message_bytes_max))


class Session:
    """One stream. The adapter calls `receive` and `take` on the loop. `on_outgoing` tells it that `take` has a message,
    and `on_capacity` that it may read the stream again."""

    def __init__(
        self,
        handler: Handler,
        clock: Clock,
        context: CallContext,
        limits: SessionLimits,
        answer_limit: AnswerLimit = NO_ANSWER_LIMIT,
    ) -> None:
        self._handler = handler
        self._answer_limit = answer_limit
        self._clock = clock
        self._context = context
        self._limits = limits
        self._unanswered: dict[int, Pending[bytes]] = {}
        self._answers: deque[tuple[int, bytes, Unanswered | None]] = deque()
        """Answers for the next message: correlation id, answer, and the reason if there is no answer."""
        self._held_bytes = 0
        """Bytes counted in `answer_limit`: answers that wait here, or that the adapter has not reported as taken."""
        self.leaving_bytes = 0
        """Bytes of the counted answers in the last message from `take`."""
        self._heard_ms = clock.monotonic_ms()
        """Time of the last message (monotonic ms)."""
        self._has_begun = False
        self._is_greeted = False
        self._says_draining = False
        self._is_ending = False
        self._lingers = False
        self._is_closed = False
        self._is_behind = False
        """True if received calls wait for their turn of the loop."""
        self.on_outgoing: Callable[[], None] = lambda: None
        self.on_capacity: Callable[[], None] = lambda: None

    @property
    def has_capacity(self) -> bool:
        """True if more may be read. It is False while too many calls wait for their answers, or answers for the
        network. It is also False while calls wait to begin. Then the transport's flow control holds the client back."""
        return not self._is_behind and len(self._unanswered) + len(self._answers) < self._limits.calls_in_flight_max

    def receive(self, body: bytes) -> None:
        """Begin the calls of one message, or refuse all of them once the session is ending.

        Raises Unanswered for a malformed or too large message, and for a correlation id that is in use. The stream must
        end then, because two answers could not be distinguished.
        """
        bytes_max, calls_max = self._limits.message_bytes_max, self._limits.calls_in_flight_max
        if len(body) > bytes_max:
            raise Unanswered(
                CallStatus.RESOURCE_EXHAUSTED,
                f"a message of {len(body)} bytes was sent and SessionHello.message_bytes_max is {bytes_max}: no call in"
                " it was begun; send several messages, and a call that alone is larger as a unary call",
            )
        # Checked before parsing: an empty call takes two bytes here, and fifty once it is parsed.
        if len(body) > 2 * calls_max and has_more_fields(body, 0, len(body), 2 * calls_max):
            raise _too_many_calls(calls_max)
        try:
            request = session_pb2.SessionRequest.FromString(body)
        except DecodeError as error:
            raise Unanswered(
                CallStatus.INVALID_ARGUMENT, f"{len(body)} bytes were sent that are no SessionRequest: {error}"
            ) from error
        if max(len(request.calls), len(request.cancels)) > calls_max:
            raise _too_many_calls(calls_max)
        if not self._has_begun:
            self._has_begun = True
            client_id = request.header.client_id
            if len(client_id) > ID_BYTES_MAX:
                # The id is kept as long as the stream. Its other faults are reported in the answer to each call.
                raise Unanswered(CallStatus.INVALID_ARGUMENT, f"the client id is longer than {ID_BYTES_MAX} bytes")
            self._context = replace(self._context, client_id=client_id)
        self._heard_ms = now_ms = self._clock.monotonic_ms()
        self._begin(request.calls, now_ms)
        for correlation_id in request.cancels:
            pending = self._unanswered.get(correlation_id)
            if pending is not None:
                pending.cancel()
        self._is_behind = self._handler.is_behind(self._context.connection, self._catch_up)

    def _catch_up(self) -> None:
        """Read on, because all received calls have begun."""
        self._is_behind = False
        if not self._is_closed and self.has_capacity:
            self.on_capacity()

    def _begin(self, calls: Iterable[session_pb2.SessionCall], now_ms: int) -> None:
        contexts = {0: self._context}
        begun: dict[int, NamedCall] = {}
        for call in calls:
            correlation_id, timeout_ms = call.correlation_id, max(call.timeout_ms, 0)
            if correlation_id in begun:
                # If the first call is answered at once, its id is free again.
                self._hand_over(begun)
                begun = {}
            if correlation_id in self._unanswered:
                self._hand_over(begun)
                raise Unanswered(
                    CallStatus.INVALID_ARGUMENT,
                    f"correlation id {correlation_id} belongs to a call that is not answered yet; choose another",
                )
            context = contexts.get(timeout_ms)
            if context is None:
                context = contexts[timeout_ms] = replace(self._context, deadline_ms=now_ms + timeout_ms)
            begun[correlation_id] = (call.method, call.body, context)
        self._hand_over(begun)

    def _hand_over(self, calls: Mapping[int, NamedCall]) -> None:
        handle = self._refuse if self._is_ending else self._handler.message
        for correlation_id, pending in zip(calls, handle([*calls.values()]), strict=True):
            if pending.is_settled:
                self._answer(correlation_id, pending)
            else:
                self._unanswered[correlation_id] = pending
                pending.on_settled(partial(self._answer, correlation_id))

    def _refuse(self, calls: Sequence[NamedCall]) -> Sequence[Pending[bytes]]:
        """Refuse calls that the client sent before it knew that the session is ending."""
        why = "the session is ending and the call was not begun; make it in another session"
        return [
            self._handler.refuse(method, Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, why)) for method, _, _ in calls
        ]

    def _answer(self, correlation_id: int, settled: Pending[bytes]) -> None:
        self._unanswered.pop(correlation_id, None)
        if self._is_closed:
            return
        error = settled.error
        if isinstance(error, Unanswered):
            self._answers.append((correlation_id, b"", error))
        else:
            body = settled.result()
            self._answers.append((correlation_id, body, None))
            if len(body) >= COUNTED_BYTES_MIN:
                self._held_bytes += len(body)
                self._answer_limit.hold(self._context.connection, len(body))
        self.on_outgoing()

    def half_close(self) -> None:
        """Note that the client sends no more. Its calls are answered, and then the stream ends."""
        self._is_ending = True
        self.stop_lingering()

    def announce_stop(self) -> None:
        """Tell the client to go on in another session. Calls that have begun are answered, later ones are refused,
        until the client half-closes or `stop_lingering`. Then the stream ends with status OK: calls without an answer
        were not begun."""
        if not self._is_ending:
            self._is_ending = self._lingers = self._says_draining = True
            self.on_outgoing()

    def stop_lingering(self) -> None:
        """Stop waiting for further calls; the client was informed LINGER_SECONDS ago."""
        self._lingers = False
        self.on_outgoing()

    @property
    def idle_since_ms(self) -> int | None:
        """See `idle_sessions.IdleSession`. Answers that wait for the client do not count: a session may be idle with
        them."""
        return None if self._unanswered else self._heard_ms

    @property
    def is_finished(self) -> bool:
        """True if everything has been sent, and nothing will follow."""
        is_silent = not self._says_draining and not self._unanswered and not self._answers
        return self._is_ending and is_silent and not self._lingers

    def take(self) -> bytes | None:
        """Return the next message for the client, or None. Report its `leaving_bytes` to `taken` once it needs no
        memory any more."""
        response = session_pb2.SessionResponse(is_draining=self._says_draining)
        self._says_draining = False
        if not self._is_greeted:
            self._is_greeted = True
            response.hello.calls_in_flight_max = self._limits.calls_in_flight_max
            response.hello.message_bytes_max = self._limits.message_bytes_max
        had_capacity, size, size_max = self.has_capacity, 0, self._limits.message_bytes_max
        self.leaving_bytes = 0
        answers, add = self._answers, response.answers.add
        while answers and (size == 0 or size + len(answers[0][1]) <= size_max):
            correlation_id, body, error = answers.popleft()
            size += len(body)
            if len(body) >= COUNTED_BYTES_MIN:
                self.leaving_bytes += len(body)
            answer = add()
            answer.correlation_id = correlation_id
            if error is None:
                answer.body = body
            else:
                answer.status, answer.status_message = STATUS_NUMBERS[error.status], error.message
        if not had_capacity and self.has_capacity:
            self.on_capacity()
        body = response.SerializeToString()
        return body or None

    def taken(self, size_bytes: int) -> None:
        """Report that this many of the bytes that left need no memory any more."""
        if size_bytes and not self._is_closed:
            self._held_bytes -= size_bytes
            self._answer_limit.release(self._context.connection, size_bytes)

    def close(self) -> None:
        """Drop all waiting calls, because the stream is gone. Staged work goes on. Idempotent."""
        self.taken(self._held_bytes)
        self._is_closed = True
        for pending in list(self._unanswered.values()):
            pending.cancel()
        self._unanswered.clear()
        self._answers.clear()


def _too_many_calls(calls_max: int) -> Unanswered:
    return Unanswered(
        CallStatus.INVALID_ARGUMENT, f"a message has more than {calls_max} calls or cancellations: send several"
    )
