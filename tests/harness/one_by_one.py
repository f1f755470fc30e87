"""A handler made of a function that takes a single call."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from coordinator_protocol.errors import Refused
from coordinator_protocol.wire import Pieces
from coordinator_runtime.pending import Pending, settled
from coordinator_runtime.ports import CallContext, Connection
from coordinator_server.grpc_front.handler import NamedCall


class OneByOne:
    """Implements `coordinator_server.grpc_front.handler.Handler`."""

    def __init__(self, handle: Callable[[str, bytes, CallContext], Pending[bytes]]) -> None:
        self._handle = handle

    def __call__(self, method: str, body: bytes, call: CallContext) -> Pending[bytes]:
        return self._handle(method, body, call)

    def in_pieces(self, method: str, body: bytes, call: CallContext) -> Pending[bytes | Pieces]:
        return self._handle(method, body, call)  # type: ignore[return-value]  # bytes are one of the two

    def refuse(self, method: str, refusal: Refused) -> Pending[bytes]:
        """Answer with the reason, the handler unasked."""
        return settled(f"{method}: {refusal.code.name}".encode())

    def is_behind(self, _connection: Connection, _then: Callable[[], None]) -> bool:
        """Every call begins at once."""
        return False

    def message(self, calls: Sequence[NamedCall]) -> Sequence[Pending[bytes]]:
        """Each call by itself."""
        return [self._handle(*call) for call in calls]
