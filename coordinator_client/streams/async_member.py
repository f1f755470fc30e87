"""Asyncio member of a streams group: the core of the blocking one, on the application's own loop."""

from __future__ import annotations

from functools import partial
from typing import Never, Unpack

from coordinator_client.groups.committed import Committed, Partitions
from coordinator_client.groups.shells import POLL_TIMEOUT_MS, AsyncioShell
from coordinator_client.groups.user_calls import UserCall
from coordinator_client.streams.config import StreamsClientOptions
from coordinator_client.streams.core import StreamsCore
from coordinator_client.streams.shell import StreamsShell
from coordinator_client.streams.tasks import AsyncTaskListener, Tasks
from coordinator_client.transport.connection import Connection


class AsyncStreamsClient(StreamsShell, AsyncioShell[StreamsCore]):
    """`StreamsClient` for asyncio: the calls that wait are coroutines, everything else is the same.

    Its heartbeats run on the loop of the task that uses it first: code that blocks the loop delays them. It belongs to
    one task at a time. Use it in an `async with` statement, or call `close`.
    """

    def __init__(
        self,
        endpoint: str | Connection,
        *,
        listener: AsyncTaskListener | None = None,
        **options: Unpack[StreamsClientOptions],
    ) -> None:
        """Check the settings; no request is sent yet. For the options see `StreamsClientConfig`.

        Raises: Rejected or Misconfigured for a wrong option.
        """
        super().__init__(endpoint, listener, options)

    async def poll(self, *unnamed: Never, timeout_ms: int = POLL_TIMEOUT_MS) -> Tasks:
        """Return the tasks of this member; see `StreamsClient.poll`."""
        until_ms = self._poll_until_ms(unnamed, timeout_ms)
        is_first = True
        try:
            while True:
                found = self._turn(partial(self._poll_step, is_first=is_first))
                is_first = False
                if isinstance(found, Exception):
                    raise found
                if isinstance(found, UserCall):
                    await self._make(found)
                elif found is not None:
                    return found
                elif not await self._wait(until_ms):
                    return self.tasks()
        finally:
            self._end_poll()

    async def committed(self, partitions: Partitions, *, timeout_ms: int | None = None) -> Committed:
        """Return the committed offsets of the group; see `StreamsClient.committed`."""
        return await self._finish(self._ask_committed(partitions, timeout_ms))

    async def close(self, *, timeout_ms: int | None = None) -> None:
        """Give up all tasks, and leave the group; see `StreamsClient.close`."""
        await self._close_and_raise(timeout_ms)
