"""The interface between a front and the gatekeeper: one request on its way in, and the observers of its end.

A front (gRPC is the first) makes a `Call` of each request. Nothing of the request is decoded before `take` or `begin`,
so a refusal costs no parsing. Nothing here knows a wire format.
"""

from __future__ import annotations

from collections.abc import Collection, Sized
from typing import Any, Generic, Protocol, TypeVar

from msgspec import Struct

from coordinator_protocol.errors import CoordinatorError
from coordinator_protocol.methods import Method, MethodRule
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import CallContext
from coordinator_server.calls import CallStatus

ReplyT = TypeVar("ReplyT", bound=Sized)
"""A reply as a front sends it. Its length is its size in bytes."""


class EncodedAnswer(Struct, Generic[ReplyT], frozen=True, gc=False):
    """A reply, and the error codes in it."""

    reply: ReplyT
    codes: Collection[int] = ()
    """Error codes for metrics: that of the whole reply, and those of its items, each once per list."""


class Call(Protocol[ReplyT]):
    """One request, begun at most once. It keeps what it has decoded: `take` and `begin` together parse once."""

    @property
    def rule(self) -> MethodRule: ...

    @property
    def size_bytes(self) -> int:
        """Size of the request as it came."""

    @property
    def context(self) -> CallContext:
        """Context of the call. Complete once the call `is_understood`, because the request itself may add to it."""

    @property
    def is_understood(self) -> bool:
        """True if the request was decoded, so that the use case is or was called."""

    @property
    def answer_bytes_max(self) -> int:
        """Largest reply that the front can send."""

    @property
    def refuses_over_rate(self) -> bool:
        """True if a caller that comes back before its pause is over is refused. Otherwise it is served and gets another
        pause, as KIP-219 wants of a front that stops reading from such a connection by itself."""

    def trace(self) -> tuple[str, str]:
        """Return the context of the caller's trace, and the transactional id, each "" if there is none. Called only if
        the server traces. No side effects."""

    def client_id(self) -> str:
        """Return the client id; "" if it cannot be read. Called only if a quota needs it. No side effects."""

    def take(self) -> ReplyT | None:
        """Return the reply of the fast path, to be sent once `FastPathEnd.end` is settled. None means that nothing has
        changed, and that `begin` follows in its place."""

    def taken_failed(self, reply: ReplyT, error: Exception) -> Any:  # noqa: ANN401  as of `begin`
        """Return the replacement for a reply that was taken and did not become durable. Raises the error if it is the
        whole answer."""

    def begin(self) -> Pending[Any]:
        """Check and decode the request, and call the use case. Raises Refused, Unanswered."""

    def encode(self, value: Any) -> EncodedAnswer[ReplyT]:  # noqa: ANN401  of any use case
        """Return the answer to a use case that succeeded."""

    def refused(self, error: CoordinatorError) -> EncodedAnswer[ReplyT]:
        """Return an answer that has nothing but this error. Raises Unanswered if the request has no answer at all."""

    def paused(self, reply: ReplyT, throttle_ms: int) -> ReplyT:
        """Return the reply with a requested pause in it."""

    def codes_in(self, value: Any) -> Collection[int]:  # noqa: ANN401  of any use case
        """Return the error codes anywhere in the result of a use case, for the audit log."""

    def shown(self) -> str:
        """Return the beginning of the request as text, for the audit log. Called only if a line is written."""


class FastPathEnd(Protocol):
    """End of the calls that the fast path has taken, all of them together (`coordinator_core`)."""

    def end(self) -> Pending[None]:
        """Make everything taken since the last `end` durable. The reply is settled then; an error applies to all these
        calls."""

    def take_back(self) -> None:
        """Discard everything taken since the last `end`."""


class Observer(Protocol):
    """Observes the end of every call."""

    def answered(self, method: Method, elapsed_us: int, codes: Collection[int] = (), *, calls: int = 1) -> None:
        """Record one or several calls with an answer, which took this long and have these error codes."""

    def unanswered(self, method: Method, elapsed_us: int, status: CallStatus) -> None:
        """Record a call that ended without an answer."""

    def defect(self, defect: Exception) -> None:
        """Record a bug of this server that failed the call."""


class NoObserver:
    """An `Observer` that counts nothing."""

    def answered(self, method: Method, elapsed_us: int, codes: Collection[int] = (), *, calls: int = 1) -> None: ...

    def unanswered(self, method: Method, elapsed_us: int, status: CallStatus) -> None: ...

    def defect(self, defect: Exception) -> None: ...


class Auditor(Protocol):
    """Observes the outcome of administrative calls."""

    def acted(self, call: Call[Any], outcome: Exception | Collection[int]) -> None:
        """Record the answer to a call: this error, or a result with these codes."""
