"""The two sides of the dispatcher: the interface that transports call, and the one to the fast path."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from google.protobuf.message import Message

from coordinator_protocol.errors import Refused
from coordinator_protocol.methods import Method
from coordinator_protocol.wire import Pieces
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import CallContext, Connection

NamedCall = tuple[str, bytes, CallContext]
"""Full method name, serialised request, caller."""


class FastMethod(Protocol):
    """Takes calls of the common shape of one method, several at once (`coordinator_core/fast_path.py`)."""

    @property
    def method(self) -> Method: ...

    def take(self, request: Any, context: CallContext) -> bytes | None:  # noqa: ANN401  as a servicer's functions
        """Return the response, to be sent once `end` is settled. None means that nothing has changed and that the
        servicer must take the call."""

    def end(self) -> Pending[None]:
        """Make everything taken since the last `end` durable. An error applies to all these calls."""

    def take_back(self) -> None:
        """Discard everything taken since the last `end`. None of it has changed any state."""

    def refused(self, request: Any, answer: bytes, error: Exception) -> Message:  # noqa: ANN401  as `take`
        """Return the response that replaces this answer to a call that was taken, if `end` fails."""


class Handler(Protocol):
    """Takes calls. Replies are serialised responses, and fail with `Unanswered` only. Cancelling a reply tells the
    inside that its caller no longer waits."""

    def __call__(self, method: str, body: bytes, call: CallContext) -> Pending[bytes]: ...

    def in_pieces(self, method: str, body: bytes, call: CallContext) -> Pending[bytes | Pieces]:
        """Serve a call like `__call__`, for a transport that sends a large reply in pieces without joining them."""

    def message(self, calls: Sequence[NamedCall]) -> Sequence[Pending[bytes]]:
        """Begin all calls of one message, in order. Those that do not fit into this turn of the loop begin in later
        turns."""

    def is_behind(self, connection: Connection, then: Callable[[], None]) -> bool:
        """Return True if calls of this connection's messages still wait for their turn. `then` is called once all have
        begun."""

    def refuse(self, method: str, refusal: Refused) -> Pending[bytes]:
        """Answer a call with a refusal. The call is not begun or parsed."""


class Switch:
    """Implements `Handler` by another one, which may be exchanged while transports serve. The first one is that of a
    server that waits for its store, the second that of the server itself."""

    def __init__(self, handler: Handler) -> None:
        self.handler = handler

    def __call__(self, method: str, body: bytes, call: CallContext) -> Pending[bytes]:
        return self.handler(method, body, call)

    def in_pieces(self, method: str, body: bytes, call: CallContext) -> Pending[bytes | Pieces]:
        return self.handler.in_pieces(method, body, call)

    def message(self, calls: Sequence[NamedCall]) -> Sequence[Pending[bytes]]:
        return self.handler.message(calls)

    def is_behind(self, connection: Connection, then: Callable[[], None]) -> bool:
        return self.handler.is_behind(connection, then)

    def refuse(self, method: str, refusal: Refused) -> Pending[bytes]:
        return self.handler.refuse(method, refusal)
