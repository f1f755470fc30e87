"""Questions of administrators to the server: in the caller's thread, or on the loop of the application.

Calls of administrators are coroutines that await their questions and nothing else, so both shells share them. A
`BlockingAsker` never suspends: its coroutines end in one step, which `finished` takes.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from typing import Any, ParamSpec, TypeVar

from coordinator_api.v1.common_pb2 import RequestHeader
from coordinator_client.calls import Deadlines, ReplyT, RequestT, Rpc
from coordinator_client.errors import ReplyFields
from coordinator_client.transport.connection import Connection

P = ParamSpec("P")
T = TypeVar("T")


class BlockingAsker:
    """Asks in the caller's thread, which waits for the answer."""

    def __init__(self, connection: Connection, deadlines: Deadlines) -> None:
        self._connection = connection
        self._deadlines = deadlines

    def header(self) -> RequestHeader:
        """Return the header of a request that only reads."""
        return self._connection.header()

    def mutation(self) -> RequestHeader:
        """Return the header of a request that changes something, with an id."""
        return self._connection.header(self._connection.random_source.request_id())

    async def ask(
        self,
        rpc: Rpc[RequestT, ReplyT],
        request: RequestT,
        *,
        items: Callable[[ReplyT], Iterable[ReplyFields]] | None = None,
    ) -> ReplyT:
        """Send a request until it has a final answer, and return the successful reply; see `Connection.ask`."""
        return self._connection.ask(rpc, request, deadlines=self._deadlines, items=items)


class LoopAsker(BlockingAsker):
    """Asks on the loop of the task that waits for the answer."""

    async def ask(
        self,
        rpc: Rpc[RequestT, ReplyT],
        request: RequestT,
        *,
        items: Callable[[ReplyT], Iterable[ReplyFields]] | None = None,
    ) -> ReplyT:
        return await self._connection.ask_on_loop(rpc, request, deadlines=self._deadlines, items=items)


def finished(call: Callable[P, Coroutine[Any, Any, T]], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Make a call whose asker blocks, and return its result."""
    try:
        # A single expression: an interruption before the first step leaves no coroutine that was never awaited.
        call(*args, **kwargs).send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    raise AssertionError("a blocking asker never suspends")
