"""The port between a transport and the dispatcher: full name of a method, bytes of the request, caller."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from coordinator_protocol.errors import Refused
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import CallContext, Connection

Call = tuple[str, bytes, CallContext]
"""Full method name, serialised request, caller."""


class Handler(Protocol):
    """Takes calls. The replies are serialised responses, and fail with `TransportError` only. Cancelling one tells the
    inside that nobody waits any more. Only where the call `takes_pieces`, a reply may be `Pieces` instead of bytes."""

    def __call__(self, method: str, body: bytes, call: CallContext) -> Pending[bytes]: ...

    def message(self, calls: Sequence[Call]) -> Sequence[Pending[bytes]]:
        """Begin all calls of one message, in their order: those for which there is no time now in turns to come."""

    def is_behind(self, connection: Connection, then: Callable[[], None]) -> bool:
        """Whether calls of this connection's messages wait for their turn; `then` is called once all have begun."""

    def refuse(self, method: str, refusal: Refused) -> Pending[bytes]:
        """Answer a call that is not begun: nothing of it is looked at."""
