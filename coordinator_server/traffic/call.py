"""The interface between a front and the gatekeeper: one request on its way in, and what hears of its end.

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
    """For metrics: the code of the whole, and those of its items, each once per list."""


class Call(Protocol[ReplyT]):
    """One request, begun at most once. It keeps what it has decoded: `take` and `begin` together parse once."""

    @property
    def rule(self) -> MethodRule: ...

    @property
    def size_bytes(self) -> int:
        """Size of the request as it came."""

    @property
    def context(self) -> CallContext:
        """The caller. Complete once the call `is_understood`: the request itself may say more."""

    @property
    def is_understood(self) -> bool:
        """Whether the request was decoded, so that the use case is called or was."""

    @property
    def answer_bytes_max(self) -> int:
        """Largest reply that the front can send."""

    @property
    def refuses_over_rate(self) -> bool:
        """Whether a caller that comes back before its pause is over is refused. Otherwise it is served, and asked for a
        pause again: what KIP-219 wants of a front that stops reading from such a connection by itself."""

    def client_id(self) -> str:
        """The client id; "" where it cannot be read. Asked only where a quota needs it. No side effects."""

    def take(self) -> ReplyT | None:
        """The fast path: the reply, to be sent once `FastPathEnd.end` is settled. None: nothing has happened, and
        `begin` follows in its place."""

    def taken_failed(self, reply: ReplyT, error: Exception) -> Any:  # noqa: ANN401  as of `begin`
        """The value in place of a reply that was taken and did not become durable. Raises: the error, where there is
        nothing else to say."""

    def begin(self) -> Pending[Any]:
        """Check and decode the request, and call the use case. Raises: Refused, Unanswered."""

    def encode(self, value: Any) -> EncodedAnswer[ReplyT]:  # noqa: ANN401  of any use case
        """The answer to a use case that was done."""

    def refused(self, error: CoordinatorError) -> EncodedAnswer[ReplyT]:
        """The answer that says nothing but this error. Raises: Unanswered, where the request has no answer at all."""

    def paused(self, reply: ReplyT, throttle_ms: int) -> ReplyT:
        """The reply with a pause in it that the caller should make."""

    def codes_in(self, value: Any) -> Collection[int]:  # noqa: ANN401  of any use case
        """The error codes anywhere in the result of a use case, for the audit log."""

    def shown(self) -> str:
        """The beginning of the request as text, for the audit log. Asked only where a line is written."""


class FastPathEnd(Protocol):
    """The end of what calls have taken, all of them together (`coordinator_core`)."""

    def end(self) -> Pending[None]:
        """Settled once what was taken since the last end is durable. The error is that of all these calls."""

    def take_back(self) -> None:
        """Undo what was taken since the last end."""


class Observer(Protocol):
    """Hears of the end of every call."""

    def answered(self, method: Method, elapsed_us: int, codes: Collection[int] = ()) -> None:
        """The call has its answer."""

    def unanswered(self, method: Method, elapsed_us: int, status: CallStatus) -> None:
        """The call ended without one."""

    def defect(self, defect: Exception) -> None:
        """A bug of this server failed the call."""


class NoObserver:
    """Implements `Observer` where nothing is counted."""

    def answered(self, method: Method, elapsed_us: int, codes: Collection[int] = ()) -> None: ...

    def unanswered(self, method: Method, elapsed_us: int, status: CallStatus) -> None: ...

    def defect(self, defect: Exception) -> None: ...


class Auditor(Protocol):
    """Hears of the outcome of administrative calls."""

    def acted(self, call: Call[Any], outcome: Exception | Collection[int]) -> None:
        """The call was answered: with the error, or with a result that holds these codes."""
