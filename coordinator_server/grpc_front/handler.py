"""The two sides of the dispatcher: what a transport calls, and what feeds the fast path."""

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
        """The response, for when `end` is settled. None: nothing has happened, and the call is for its servicer."""

    def end(self) -> Pending[None]:
        """What was taken since the last end becomes durable. The error is that of all these calls."""

    def take_back(self) -> None:
        """Nothing of what was taken since the last end has happened."""

    def refused(self, request: Any, answer: bytes, error: Exception) -> Message:  # noqa: ANN401  as `take`
        """The response to a call that was taken, when `end` fails, in place of this answer."""


class Handler(Protocol):
    """Takes calls. The replies are serialised responses, and fail with `Unanswered` only. Cancelling one tells the
    inside that nobody waits any more."""

    def __call__(self, method: str, body: bytes, call: CallContext) -> Pending[bytes]: ...

    def in_pieces(self, method: str, body: bytes, call: CallContext) -> Pending[bytes | Pieces]:
        """The same, for a transport that sends a large reply in pieces, without joining them."""

    def message(self, calls: Sequence[NamedCall]) -> Sequence[Pending[bytes]]:
        """Begin all calls of one message, in their order: those for which there is no time now in turns to come."""

    def is_behind(self, connection: Connection, then: Callable[[], None]) -> bool:
        """Whether calls of this connection's messages wait for their turn; `then` is called once all have begun."""

    def refuse(self, method: str, refusal: Refused) -> Pending[bytes]:
        """Answer a call that is not begun: nothing of it is looked at."""
