"""Iterators over the records and the batches of a consumer.

Each continues after an exception, unlike a generator, which ends with it. So neither a signal handler that raises nor
`asyncio.wait_for(anext(records), 1)` ends an iteration.
"""

from __future__ import annotations

from typing import Protocol, Self

from coordinator_client.consumer.polled import ConsumerRecords, Unread
from coordinator_client.reading.reader import ReadRecord


class _Reading(Protocol):
    """The part of a consumer, blocking or not, that an iterator needs."""

    @property
    def is_closed(self) -> bool: ...
    def _unread(self) -> Unread | None: ...
    def _begin_unread(self, records: ConsumerRecords) -> None: ...
    def _hand_out(self, records: ConsumerRecords) -> ConsumerRecords: ...


class _Polling(_Reading, Protocol):
    def _found(self, *, max_records: int | None = None) -> ConsumerRecords: ...


class _AsyncPolling(_Reading, Protocol):
    async def _found(self, *, max_records: int | None = None) -> ConsumerRecords: ...


class RecordIterator:
    """The records of a consumer, one by one."""

    def __init__(self, consumer: _Polling) -> None:
        self._consumer = consumer

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ReadRecord:
        consumer = self._consumer
        while (unread := consumer._unread()) is None:
            if consumer.is_closed:
                raise StopIteration
            consumer._begin_unread(consumer._found())
        try:
            return next(unread.records)
        except BaseException:
            unread.put_back()
            raise


class AsyncRecordIterator:
    """The records of an asyncio consumer, one by one."""

    def __init__(self, consumer: _AsyncPolling) -> None:
        self._consumer = consumer

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ReadRecord:
        consumer = self._consumer
        while (unread := consumer._unread()) is None:
            if consumer.is_closed:
                raise StopAsyncIteration
            consumer._begin_unread(await consumer._found())
        try:
            return next(unread.records)
        except BaseException:
            unread.put_back()
            raise


class BatchIterator:
    """The batches of a consumer that have records."""

    def __init__(self, consumer: _Polling, max_records: int | None) -> None:
        self._consumer = consumer
        self._max_records = max_records

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ConsumerRecords:
        consumer = self._consumer
        while not consumer.is_closed:
            records = consumer._found(max_records=self._max_records)
            if records:
                return consumer._hand_out(records)
        raise StopIteration


class AsyncBatchIterator:
    """The batches of an asyncio consumer that have records."""

    def __init__(self, consumer: _AsyncPolling, max_records: int | None) -> None:
        self._consumer = consumer
        self._max_records = max_records

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ConsumerRecords:
        consumer = self._consumer
        while not consumer.is_closed:
            records = await consumer._found(max_records=self._max_records)
            if records:
                return consumer._hand_out(records)
        raise StopAsyncIteration
