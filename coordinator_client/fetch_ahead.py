"""Sends the next Fetch while the answer to the last one is being worked on, so that server and reader work at the same
time instead of in turns.

It is a shortcut and nothing else. An answer that did not come, or that says that something failed, is dropped, and the
reader asks in the ordinary way, with all of its retries.
"""

from __future__ import annotations

from queue import SimpleQueue

from coordinator_api.v1 import log_pb2 as log
from coordinator_client.connection import Connection
from coordinator_client.errors import Loss
from coordinator_client.fetch_reply import FetchReply
from coordinator_client.methods import FETCH
from coordinator_client.transport import Call


class FetchAhead:
    """One Fetch that was sent ahead, for one thread."""

    def __init__(self, connection: Connection, *, timeout_ms: int) -> None:
        self._connection = connection
        self._timeout_ms = timeout_ms
        self._request: log.FetchRequest | None = None
        self._call: Call | None = None
        self._inbox: SimpleQueue[FetchReply | Loss] = SimpleQueue()

    def start(self, request: log.FetchRequest) -> None:
        """Send the Fetch that will be asked for next. The one before must have been taken or cancelled."""
        assert self._request is None, "one at a time"
        self._request, self._inbox = request, SimpleQueue()
        self._call = self._connection.transport.start(
            FETCH, request, timeout_ms=self._timeout_ms, on_done=self._inbox.put
        )

    def take(self, request: log.FetchRequest) -> FetchReply | None:
        """Return the answer to this request if it was sent ahead, waiting for it; None: ask for it."""
        if self._request != request:
            self.cancel()
            return None
        self._request = self._call = None
        answer = self._connection.clock.take(self._inbox, self._timeout_ms)
        return answer if isinstance(answer, FetchReply) and not answer.error_code else None

    def cancel(self) -> None:
        """Give up the Fetch that was sent ahead."""
        self._request = None
        call, self._call = self._call, None
        if call is not None:
            call.cancel()
