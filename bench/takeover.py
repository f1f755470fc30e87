"""Measures how soon the task of a killed member of a streams group runs on its standby: `python -m bench.takeover`.

Three members have a stateful task each, and a standby task for one of the others. One of them sends nothing more, as a
killed process does; the others are members of the SDK. The times are those from the end of its session until the member
with the standby has the task active. The end is counted from the moment before its last heartbeat is sent. So the times
contain that heartbeat, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final
from uuid import uuid4

import uvloop

from bench.load.stubs import checked, open_channel
from bench.server import OwnServer
from coordinator_api.v1 import group_pb2 as group
from coordinator_api.v1.group_pb2_grpc import GroupServiceStub
from coordinator_client import Admin
from coordinator_client.streams import (
    AsyncStreamsClient,
    StreamsInternalTopic,
    StreamsSubtopology,
    StreamsTopology,
    Task,
    Tasks,
)
from coordinator_runtime.clock import SystemClock

if TYPE_CHECKING:
    from grpc import aio

    from coordinator_api.v1.group_pb2_grpc import GroupServiceAsyncStub

ROUNDS: Final = 20
_SESSION_MS: Final = 1_000
_BEAT_MS: Final = 100
_TASKS: Final = 3
"""Number of tasks, and of members."""
_COUNTING: Final = "count"
_STEP_S_MAX: Final = 30
_SERVER: Final = (
    f"group_streams_session_timeout_ms_min={_SESSION_MS}",
    "group_streams_heartbeat_interval_ms_min=500",
    "group_streams_initial_rebalance_delay_ms=0",
    "group_streams_num_standby_replicas=1",
)
_GROUP: Final = {"streams_session_timeout_ms": _SESSION_MS, "streams_heartbeat_interval_ms": 500}


def main() -> None:
    """Print the times after the ends of sessions."""
    late_ms = measured(ROUNDS)
    words = f"median {median(late_ms):.1f} ms, longest {max(late_ms):.1f} ms of {len(late_ms)}"
    print(f"from the end of the session to the active task on its standby: {words}")


def measured(rounds: int) -> Sequence[float]:
    """Return the times of all rounds (ms), each with a group and topics of its own."""
    names = [f"words-{number}" for number in range(rounds)]

    async def live(endpoint: str) -> list[float]:
        async with open_channel(endpoint) as channel:
            return [await _round(channel, endpoint, name) for name in names]

    with tempfile.TemporaryDirectory(prefix="bench-takeover-") as directory:
        server = OwnServer(Path(directory), arguments=[part for each in _SERVER for part in ("--set", each)])
        server.start()
        try:
            with Admin(server.endpoint, client_id="bench") as admin:
                for name in names:
                    admin.create_topic(name, _TASKS)
                    admin.alter_group_configs(name, _GROUP)
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                return runner.run(live(server.endpoint))
        finally:
            server.stop()


async def _round(channel: aio.Channel, endpoint: str, name: str) -> float:
    """Return the time from the end of a session until another member has the task active (ms)."""
    topology, clock = _topology(name), SystemClock()
    killed = _Killed(channel, name, topology)
    async with contextlib.AsyncExitStack() as stack, asyncio.timeout(_STEP_S_MAX):
        survivors = [_Survivor(endpoint, name, topology) for _ in range(_TASKS - 1)]
        for each in survivors:
            stack.push_async_callback(each.end)
        while not (len(killed.active) == 1 and all(each.is_settled for each in survivors)):
            await killed.heartbeat()
            await asyncio.sleep(_BEAT_MS / 1_000)
        (task,) = killed.active
        (heir,) = (each for each in survivors if task in each.tasks.standby)
        began_us = clock.monotonic_us()
        await killed.heartbeat()
        await heir.wait_for(task)
        return (clock.monotonic_us() - began_us) / 1_000 - _SESSION_MS


def _topology(name: str) -> StreamsTopology:
    changelog = StreamsInternalTopic(name=f"{name}-changelog")
    return StreamsTopology([StreamsSubtopology(subtopology_id=_COUNTING, source_topics=[name], changelogs=[changelog])])


class _Survivor:
    """A member of the SDK that polls until its end."""

    def __init__(self, endpoint: str, group_id: str, topology: StreamsTopology) -> None:
        self.tasks = Tasks()
        self._changed = asyncio.Event()
        self._client = AsyncStreamsClient(endpoint, group_id=group_id, topology=topology, client_id="bench")
        self._polling = asyncio.ensure_future(self._poll())

    @property
    def is_settled(self) -> bool:
        """True if it has its share of both kinds of tasks."""
        return len(self.tasks.active) == len(self.tasks.standby) == 1

    async def wait_for(self, task: Task) -> None:
        """Return once the task is active here."""
        while task not in self.tasks.active:
            self._changed.clear()
            await self._changed.wait()

    async def end(self) -> None:
        self._polling.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._polling
        await self._client.close()

    async def _poll(self) -> None:
        while True:
            self.tasks = await self._client.poll(timeout_ms=_STEP_S_MAX * 1_000)
            self._changed.set()


class _Killed:
    """A member that sends nothing but the heartbeats asked of it."""

    def __init__(self, channel: aio.Channel, group_id: str, topology: StreamsTopology) -> None:
        self._groups: GroupServiceAsyncStub = GroupServiceStub(channel)
        self._group_id, self._member_id = group_id, str(uuid4())
        self._topology = topology
        self._epoch = 0
        self._tasks = group.StreamsTasks()

    @property
    def active(self) -> frozenset[Task]:
        return frozenset(
            Task(each.subtopology_id, partition) for each in self._tasks.active for partition in each.partitions
        )

    async def heartbeat(self) -> None:
        """Join, or confirm the tasks and extend the session. Raises: Refusal."""
        request = group.StreamsGroupHeartbeatRequest(
            group_id=self._group_id, member_id=self._member_id, member_epoch=self._epoch, owned_tasks=self._tasks
        )
        if not self._epoch:
            request.topology.CopyFrom(self._topology.message())
            request.process_id = self._member_id
            request.rebalance_timeout_ms = _STEP_S_MAX * 1_000
        answer = checked(await self._groups.StreamsGroupHeartbeat(request))
        self._epoch = answer.member_epoch
        if answer.HasField("assignment"):
            self._tasks = answer.assignment


if __name__ == "__main__":
    main()
