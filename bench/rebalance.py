"""Measures the rebalances of a group of ten members: sharing out a topic, and then the partitions of a leaving member.

A real server process and ten consumers of the SDK with a connection each, in one asyncio program, all with default
settings. The times are measured at the members: from the first `poll` of all of them together, and from the `close` of
one, until every partition is with exactly one member. Five times per protocol.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

import uvloop

from bench.server import OwnServer
from coordinator_client import Admin, AsyncConsumer, AsyncRebalanceListener, TopicPartition
from coordinator_runtime.clock import SystemClock

MEMBERS: Final = 10
PARTITIONS: Final = 30
RUNS: Final = 5
PROTOCOLS: Final = ("classic", "consumer")
TOPIC: Final = "t"
STEP_SECONDS_MAX: Final = 300


def main() -> None:
    """Print the times of the start and of the leave for both protocols."""
    print(f"{MEMBERS} members, {PARTITIONS} partitions, default settings")
    with tempfile.TemporaryDirectory(prefix="bench-rebalance-") as directory:
        server = OwnServer(Path(directory))
        server.start()
        try:
            _print_all(server.endpoint)
        finally:
            server.stop()


def _print_all(endpoint: str) -> None:
    with Admin(endpoint) as admin:
        admin.create_topic(TOPIC, PARTITIONS)
    for protocol in PROTOCOLS:
        runs = [_measure(endpoint, protocol, f"{protocol}-{number}") for number in range(RUNS)]
        print(f"{protocol}: all assigned {_in_words([run.started_ms for run in runs])}")
        print(f"{protocol}: one left, its part moved {_in_words([run.left_ms for run in runs])}")


@dataclass(frozen=True, slots=True)
class _Run:
    started_ms: float
    left_ms: float


def _in_words(figures_ms: Sequence[float]) -> str:
    return f"median {median(figures_ms):,.0f} ms of {', '.join(f'{each:,.0f}' for each in figures_ms)}"


def _measure(endpoint: str, protocol: str, group_id: str) -> _Run:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_start_and_leave(endpoint, protocol, group_id))


async def _start_and_leave(endpoint: str, protocol: str, group_id: str) -> _Run:
    clock, owners = SystemClock(), _Owners()
    members = [
        AsyncConsumer(endpoint, group_id=group_id, group_protocol=protocol, client_id=f"member-{number}")
        for number in range(MEMBERS)
    ]
    async with contextlib.AsyncExitStack() as stack, asyncio.TaskGroup() as polls:
        for member in members:
            stack.push_async_callback(member.close)
            member.subscribe([TOPIC], listener=_Told(owners, member))
        began_us = clock.monotonic_us()
        polling = [polls.create_task(_poll(member)) for member in members]
        await owners.wait_for(set(members))
        started_us = clock.monotonic_us()
        leaver, task = members.pop(), polling.pop()
        task.cancel()
        leave_us = clock.monotonic_us()
        leaving = polls.create_task(leaver.close())
        await owners.wait_for(set(members))
        left_us = clock.monotonic_us()
        await leaving
        for each in polling:
            each.cancel()
    return _Run((started_us - began_us) / 1e3, (left_us - leave_us) / 1e3)


async def _poll(member: AsyncConsumer) -> None:
    while True:
        await member.poll()


class _Owners:
    """Owners of partitions, as reported to the members."""

    def __init__(self) -> None:
        self.partitions: dict[AsyncConsumer, set[TopicPartition]] = {}
        self._changed = asyncio.Condition()

    async def tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def wait_for(self, members: set[AsyncConsumer]) -> None:
        """Return once every partition has exactly one owner, and the owners are exactly these members."""
        async with asyncio.timeout(STEP_SECONDS_MAX), self._changed:
            await self._changed.wait_for(lambda: self._is_shared_out(members))

    def _is_shared_out(self, members: set[AsyncConsumer]) -> bool:
        owned = [partition for partitions in self.partitions.values() for partition in partitions]
        having = {member for member, partitions in self.partitions.items() if partitions}
        return having == members and len(owned) == len(set(owned)) == PARTITIONS


class _Told(AsyncRebalanceListener):
    """Notes the assignments reported to one member."""

    def __init__(self, owners: _Owners, member: AsyncConsumer) -> None:
        self._owners = owners
        self._mine = owners.partitions.setdefault(member, set())

    async def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        self._mine.update(partitions)
        await self._owners.tell()

    async def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        self._mine.difference_update(partitions)
        await self._owners.tell()
