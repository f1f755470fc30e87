"""Members of one share group, as tasks of one loop, that take records and acknowledge each by itself."""

from __future__ import annotations

import asyncio
import os
import struct
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Final

import uvloop

from bench.results import LoadFailed, Run
from bench.window import Window, with_latencies
from coordinator_client.producer.async_producer import AsyncProducer
from coordinator_client.share.acquired import ShareRecords
from coordinator_client.share.async_share_consumer import AsyncShareConsumer
from coordinator_client.transport.connection import Connection

_POLL_MS: Final = 100
_STARTED_S_MAX: Final = 30
"""Longest wait for the first record of each member."""
_TICK_S: Final = 0.001
_STAMP: Final = struct.Struct("q")
"""Time of a send (ns), at the beginning of a value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Settings of the load. Members drain a full topic, or share the records of a producer with a steady rate."""

    endpoint: str
    server_process_id: int
    topic: str
    partitions: int
    consumers: int
    poll_records: int
    records: int
    """Number of records in the full topic."""
    rate: int
    """Records a second of the producer; 0 for a full topic."""
    value_bytes: int
    warm_up_s: float
    measured_s: float


@dataclass(slots=True)
class _Tally:
    """Acknowledgements of all members together."""

    load: Load
    done: int = 0
    failed: int = 0
    is_measured: bool = False
    is_over: bool = False
    latencies_us: list[int] = field(default_factory=list)
    members: int = 0
    """Number of members that have had records."""
    started: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when each member has had records."""
    drained: asyncio.Event = field(default_factory=asyncio.Event)
    """Set with the last record of a full topic."""

    def note_member(self) -> None:
        self.members += 1
        if self.members == self.load.consumers:
            self.started.set()

    def note(self, records: ShareRecords, failed_partitions: int) -> None:
        if failed_partitions:
            self.failed += len(records)
            return
        self.done += len(records)
        if self.done == self.load.records:
            self.drained.set()
        if self.load.rate and self.is_measured:
            now_ns = time.perf_counter_ns()
            self.latencies_us += [(now_ns - _STAMP.unpack_from(each.value or b"")[0]) // 1_000 for each in records]


def measure(load: Load) -> Run:
    """Operations are records whose acknowledgement was answered without an error. Latencies are those from a send to
    the answered acknowledgement. Raises: LoadFailed."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_measure(load))


async def _measure(load: Load) -> Run:
    tally = _Tally(load)
    async with asyncio.TaskGroup() as group:
        connection = Connection(load.endpoint, client_id="bench")
        members = [group.create_task(_take(connection, tally)) for _ in range(load.consumers)]
        if not load.rate:
            with suppress(TimeoutError):
                await asyncio.wait_for(tally.started.wait(), _STARTED_S_MAX)
        wait: Callable[[float], Awaitable[None]] = _drain(tally)
        if load.rate:
            wait = _produce(load, connection)
        await wait(load.warm_up_s)
        before, window, tally.is_measured = tally.done, Window(load.server_process_id), True
        await wait(load.measured_s)
        run = window.close(tally.done - before)
        tally.is_measured, tally.is_over = False, True
        await asyncio.gather(*members)
        connection.close()
    if not run.operations:
        raise LoadFailed(f"no record was acknowledged in the measured time, {before} before")
    return with_latencies(run, tally.latencies_us)


async def _take(connection: Connection, tally: _Tally) -> None:
    """Poll, acknowledge each record, and wait for the answers, until it is over."""
    load = tally.load
    async with AsyncShareConsumer(
        connection,
        group_id=load.topic,
        explicit=True,
        max_poll_records=load.poll_records,
        share_acquire_mode="record_limit" if load.poll_records == 1 else "batch_optimized",
    ) as consumer:
        consumer.subscribe([load.topic])
        is_new = True
        while not tally.is_over:
            records = await consumer.poll(timeout_ms=_POLL_MS)
            if not records:
                continue
            if is_new:
                tally.note_member()
                is_new = False
            for record in records:
                consumer.accept(record)
            results = await consumer.commit()
            tally.note(records, sum(error is not None for error in results.values()))


def _drain(tally: _Tally) -> Callable[[float], Awaitable[None]]:
    """Return a wait for some seconds, or for the last record."""

    async def wait(seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(tally.drained.wait(), seconds)

    return wait


def _produce(load: Load, connection: Connection) -> Callable[[float], Awaitable[None]]:
    """Return a production of some seconds at the steady rate."""
    value, numbers = os.urandom(load.value_bytes - _STAMP.size), count()
    producer = AsyncProducer(connection)

    async def wait(seconds: float) -> None:
        began, sent = time.perf_counter(), 0
        while (elapsed_s := time.perf_counter() - began) < seconds:
            while sent < elapsed_s * load.rate:
                stamped = _STAMP.pack(time.perf_counter_ns()) + value
                await producer.send(load.topic, stamped, partition=next(numbers) % load.partitions)
                sent += 1
            await producer.flush()
            await asyncio.sleep(_TICK_S)

    return wait
