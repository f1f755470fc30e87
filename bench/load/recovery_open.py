"""Leaves a server with many transactional ids, some with an open transaction, and notes those."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import uvloop
from grpc import aio

from bench.load.sdk import PARTITIONS
from bench.load.stubs import StubProducer, open_channel
from bench.results import Run
from bench.window import Window

_AT_A_TIME: Final = 32
_VALUE_BYTES: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Settings of the load."""

    endpoint: str
    server_process_id: int
    topic: str
    ids: int
    open: int
    notes: str
    """File with a line for each open transaction: id, producer id, epoch."""


def measure(load: Load) -> Run:
    """Prepare the transactions."""
    window = Window(load.server_process_id)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        lines = runner.run(_prepare(load))
    Path(load.notes).write_text("\n".join(lines))
    return window.close(load.ids)


async def _prepare(load: Load) -> list[str]:
    channel, numbers, lines = open_channel(load.endpoint), iter(range(load.ids)), list[str]()
    async with asyncio.TaskGroup() as group:
        for _ in range(_AT_A_TIME):
            group.create_task(_initialise(channel, load, numbers, lines))
    return lines


async def _initialise(channel: aio.Channel, load: Load, numbers: Iterator[int], lines: list[str]) -> None:
    for number in numbers:
        transactional_id = f"recovery-{number}"
        producer = StubProducer(channel, transactional_id, topic=load.topic, partition_count=PARTITIONS)
        producer.set_transaction(_VALUE_BYTES, committed=True)
        producer_id, epoch = await producer.init()
        if number < load.open:
            await producer.produce()
            lines.append(f"{transactional_id} {producer_id} {epoch}")
