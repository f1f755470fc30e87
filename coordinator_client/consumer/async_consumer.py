"""Asyncio consumer: the core of the blocking one, on the application's own loop."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping
from functools import partial
from typing import Never, Unpack

from coordinator_client.consumer.config import ConsumerOptions
from coordinator_client.consumer.core import ConsumerCore
from coordinator_client.consumer.handover import AsyncRebalanceListener
from coordinator_client.consumer.iterators import AsyncBatchIterator, AsyncRecordIterator
from coordinator_client.consumer.polled import ConsumerRecords
from coordinator_client.consumer.shell import ConsumerShell, note_repeating
from coordinator_client.groups.committed import Offsets, Partitions
from coordinator_client.groups.shells import POLL_TIMEOUT_MS, RECORDS, AsyncioShell
from coordinator_client.groups.user_calls import UserCall
from coordinator_client.reading.reader import ReadRecord
from coordinator_client.settings import EARLIEST_MS, LATEST_MS
from coordinator_client.transport.connection import Connection
from coordinator_client.values import OffsetAndMetadata, TopicPartition


class AsyncConsumer(ConsumerShell, AsyncioShell[ConsumerCore]):
    """`Consumer` for asyncio: the calls that wait are coroutines, everything else is the same.

    Its heartbeats, fetches and commits run on the loop of the task that uses it first: code that blocks the loop delays
    them. It belongs to one task at a time. Use it in an `async with` statement, or call `close`.
    """

    def __init__(self, endpoint: str | Connection, **options: Unpack[ConsumerOptions]) -> None:
        """Check the settings; no request is sent yet. For the options see `ConsumerConfig`.

        Raises: Rejected or Misconfigured for a wrong option.
        """
        super().__init__(endpoint, **options)

    def __aiter__(self) -> AsyncIterator[ReadRecord]:
        """Return an endless iterator over single records; it ends when the consumer is closed.

        With automatic commits each record is processed at least once: after a crash those since the last commit come
        again. With transactions use `poll` or `batches`, because `AsyncTransaction.commit_offsets` and `rewind` take a
        batch.

        Every other call in between (`commit`, `seek`, ...) treats exactly the records returned so far as processed.
        After an exception, including cancellation, the iterator continues with the record that was not returned.
        Raises: as `poll`.
        """
        return AsyncRecordIterator(self)

    def subscribe(
        self,
        topics: Collection[str] = (),
        *,
        pattern: str | None = None,
        listener: AsyncRebalanceListener | None = None,
    ) -> None:
        """Subscribe to these topics as a member of the group, joining with the next `poll`; replaces the previous
        subscription.

        `pattern` is a regular expression that must match the whole name of a topic: RE2's in the protocol `consumer`,
        Python's in `classic`. A topic need not exist yet: for a named topic that does not exist, the logger
        `coordinator_client` writes one warning. Raises: Rejected.
        """
        self._subscribe(topics, pattern, listener)

    async def unsubscribe(self, *, timeout_ms: int | None = None) -> None:
        """Leave the group, or drop the partitions assigned by hand, and call the listener. `subscribe` may follow.

        Commits first if commits are automatic. Raises: Retriable at the deadline; any exception of the listener.
        """
        await self._finish(self._begin_leave(self._patience(timeout_ms), commits=True))
        self._raise_failure()

    async def poll(
        self,
        *unnamed: Never,
        timeout_ms: int = POLL_TIMEOUT_MS,
        max_records: int | None = None,
        until: Mapping[TopicPartition, int] | None = None,
    ) -> ConsumerRecords:
        """Return the next records, at most `max_records` (default: `max_poll_records`); no records once `timeout_ms` is
        over.

        `until` (see `next_cut`): return only records before these offsets, and none of other partitions. Once all
        offsets are reached, the call returns at once, without records.

        A poll confirms that all earlier records were processed, and automatic commits cover them. After an aborted
        transaction call `rewind` first: otherwise its batch is not returned again.

        Partitions are revoked only during a poll (or `unsubscribe`, `close`). Between two polls they can only be lost:
        if the group hears nothing from the member for the session timeout, or `max_poll_interval_ms` passes without a
        poll. The listener is called during a poll.

        While a server that was reached once does not answer, the consumer tries again without limit. A poll returns
        what was fetched before, and then no records at its timeout.

        Raises: Fenced (a newer process has its `group_instance_id`); Misconfigured; Unreachable (no server was ever
        reached within `wait_ms`; the next poll goes on trying). CorruptBatch (damaged bytes; see `on_corrupt_batch`).
        Rejected (an offset that does not exist, if `auto_offset_reset` is none; a topic of `assign` that is gone). Any
        exception of the listener.
        """
        records = await self._found(unnamed, timeout_ms, max_records, until)
        return self._hand_out(records)

    async def _found(
        self,
        unnamed: tuple[object, ...] = (),
        timeout_ms: int = POLL_TIMEOUT_MS,
        max_records: int | None = None,
        until: Mapping[TopicPartition, int] | None = None,
    ) -> ConsumerRecords:
        """Do all of a poll except noting that the application has the records."""
        until_ms, records_max = self._begin_poll(unnamed, timeout_ms, max_records)
        is_first = True
        try:
            while True:
                found = self._do(partial(self._poll_step, records_max, until, is_first=is_first))
                is_first = False
                if isinstance(found, Exception):
                    raise found
                if isinstance(found, UserCall):
                    await self._make(found)
                elif found:
                    records = self._decode(found)
                    if records:
                        return records
                    # All that was taken is offsets without a record, or skipped: the records after it are fetched
                    # already.
                    self._handed = {RECORDS: records}
                elif found is not None or not await self._wait(until_ms):
                    self._end_poll()
                    return ConsumerRecords()
        except BaseException:
            self._end_poll()
            raise

    async def next_cut(self, *, timeout_ms: int | None = None) -> dict[TopicPartition, int]:
        """Return the next cut; see `Consumer.next_cut`."""
        steps = self._cutting(timeout_ms)
        begun = next(steps)
        while True:
            reply = await self._finish(begun)
            try:
                begun = steps.send(reply)
            except StopIteration as done:
                return dict(done.value)

    def batches(self, *, max_records: int | None = None) -> AsyncIterator[ConsumerRecords]:
        """Return an endless iterator over the non-empty results of `poll`; it ends when the consumer is closed."""
        return AsyncBatchIterator(self, max_records)

    async def commit(self, offsets: Offsets | None = None, *, timeout_ms: int | None = None) -> None:
        """Commit these offsets, by default the positions; returns when they are durable.

        An offset is that of the next record to read. Callbacks of earlier `commit_async` calls run before it returns. A
        cancelled commit may take effect; committing again does no harm.

        Raises: CommitFailed, RebalanceInProgress; Retriable or OutcomeUnknown at the deadline; Rejected, Misconfigured,
        Fenced.
        """
        try:
            await self._finish(self._begin_commit(offsets, timeout_ms))
        except BaseException as error:
            note_repeating(error)
            raise

    async def committed(
        self, partitions: Partitions, *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the committed offsets of the group by partition; None if nothing is committed.

        Waits for offsets whose transaction is still open. Raises: Retriable at the deadline; Rejected without a group,
        or for partitions that do not exist.
        """
        return await self._finish(self._ask_committed(partitions, timeout_ms))

    async def position(self, partition: tuple[str, int], *, timeout_ms: int | None = None) -> int:
        """Return the offset of the next record of a partition that this consumer returns.

        Raises: Rejected if the partition is not assigned; Retriable if the position is not known by the deadline.
        """
        return await self._finish(self._ask_position(partition, timeout_ms))

    async def beginning_offsets(
        self, partitions: Partitions, *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """Return the offset of the first record of each partition. Raises: Rejected, Retriable at the deadline."""
        return await self._finish(self._ask_ends(partitions, EARLIEST_MS, timeout_ms))

    async def end_offsets(self, partitions: Partitions, *, timeout_ms: int | None = None) -> dict[TopicPartition, int]:
        """Return the next offset after the last record of each partition; the last stable offset in `read_committed`.

        Raises: Rejected, Retriable at the deadline.
        """
        return await self._finish(self._ask_ends(partitions, LATEST_MS, timeout_ms))

    async def offsets_for_times(
        self, times_ms: dict[tuple[str, int], int], *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, int | None]:
        """Return, by partition, the offset of the first visible record with this timestamp (Unix ms) or later; None if
        no record is that new.

        First means lowest offset; visible means shown by the isolation level. For a record in a batch that the server
        cannot open, the offset is that of the batch. A server of version 1.0.0 answers so for every record. Raises:
        Rejected, Retriable at the deadline.
        """
        found = await self._finish(self._ask_times(times_ms, timeout_ms))
        return {name: offset if offset >= 0 else None for name, offset in found.items()}

    async def close(self, *, timeout_ms: int | None = None) -> None:
        """Commit if commits are automatic, leave the group, call the listener, and close the connection if it was made
        here.

        A static member keeps its partitions: they wait for its return. Takes at most `timeout_ms` (default: the setting
        `close_timeout_ms`). Once the server does not answer it takes a second at most; the server then notices the
        silence itself. A second call does nothing. Raises: any exception of the listener.
        """
        await self._close_and_raise(timeout_ms)
