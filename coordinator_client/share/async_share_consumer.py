"""Asyncio share consumer: the core of the blocking one, on the application's own loop."""

from __future__ import annotations

from functools import partial
from typing import Never, Unpack

from coordinator_client.errors import TransactionError
from coordinator_client.groups.shells import POLL_TIMEOUT_MS, AsyncioShell
from coordinator_client.groups.user_calls import UserCall
from coordinator_client.share.acknowledgements import Results
from coordinator_client.share.acquired import ShareRecords
from coordinator_client.share.config import ShareConsumerOptions
from coordinator_client.share.core import ShareCore
from coordinator_client.share.shell import ShareShell, note_repeating
from coordinator_client.transport.connection import Connection


class AsyncShareConsumer(ShareShell, AsyncioShell[ShareCore]):
    """`ShareConsumer` for asyncio: the calls that wait are coroutines, everything else is the same.

    Its heartbeats and requests run on the loop of the task that uses it first: code that blocks the loop delays them.
    It belongs to one task at a time. Use it in an `async with` statement, or call `close`.
    """

    def __init__(self, endpoint: str | Connection, **options: Unpack[ShareConsumerOptions]) -> None:
        """Check the settings; no request is sent yet. For the options see `ShareConsumerConfig`.

        Raises: Rejected or Misconfigured for a wrong option.
        """
        super().__init__(endpoint, **options)

    async def poll(
        self, *unnamed: Never, timeout_ms: int = POLL_TIMEOUT_MS, max_records: int | None = None
    ) -> ShareRecords:
        """Return the next records; see `ShareConsumer.poll`. A poll that was cancelled has taken nothing: the next one
        returns the same records."""
        return self._hand_out(await self._found(unnamed, timeout_ms, max_records))

    async def _found(self, unnamed: tuple[object, ...], timeout_ms: int, max_records: int | None) -> ShareRecords:
        """Do all of a poll except noting that the application has the records."""
        until_ms, records_max = self._begin_poll(unnamed, timeout_ms, max_records)
        is_first = True
        try:
            while True:
                found = self._do(partial(self._poll_step, records_max, until_ms, is_first=is_first))
                is_first = False
                if isinstance(found, Exception):
                    raise found
                if isinstance(found, UserCall):
                    await self._make(found)
                elif found:
                    records = self._decode(found)
                    if records:
                        return records
                elif not await self._wait(until_ms):
                    self._end_poll()
                    return ShareRecords()
        except BaseException:
            self._end_poll()
            raise

    async def commit(self, *, timeout_ms: int | None = None) -> Results:
        """Send the acknowledgements; see `ShareConsumer.commit`."""
        try:
            return await self._finish(self._begin_commit(timeout_ms))
        except TransactionError:
            raise
        except BaseException as interruption:
            note_repeating(interruption)
            raise

    async def unsubscribe(self, *, timeout_ms: int | None = None) -> None:
        """Leave the group; see `ShareConsumer.unsubscribe`."""
        await self._finish(self._begin_leave(self._patience(timeout_ms), commits=True))
        self._raise_failure()

    async def close(self, *, timeout_ms: int | None = None) -> None:
        """Send the acknowledgements, leave the group, and close the connection if it was made here; see
        `ShareConsumer.close`."""
        await self._close_and_raise(timeout_ms)
