"""Measures how soon the records of a share consumer that was killed come to another one: `python -m bench.redelivery`.

A member takes a record and sends nothing more, as a killed process does. Another member polls. The times are those from
the end of the first member's lock, or of its session, until the second has the record. Both ends are counted from the
moment before the request that sets them is sent. So the times contain that request, too.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final

import uvloop

from bench.load.stubs import checked, open_channel
from bench.server import OwnServer
from coordinator_api.v1 import group_pb2 as group
from coordinator_api.v1 import share_pb2 as share
from coordinator_api.v1.group_pb2_grpc import GroupServiceStub
from coordinator_api.v1.share_pb2_grpc import ShareServiceStub
from coordinator_client import Admin, AsyncProducer, AsyncShareConsumer
from coordinator_runtime.clock import SystemClock

if TYPE_CHECKING:
    from grpc import aio

    from coordinator_api.v1.group_pb2_grpc import GroupServiceAsyncStub
    from coordinator_api.v1.share_pb2_grpc import ShareServiceAsyncStub

ROUNDS: Final = 20
_SHORT_MS: Final = 2_000
_LONG_MS: Final = 60_000
_STEP_S_MAX: Final = 30
_SETTINGS: Final = (
    "group_share_record_lock_duration_ms_min=1000",
    "group_share_session_timeout_ms_min=1000",
    "group_share_heartbeat_interval_ms_min=500",
)
_EARLIEST: Final[dict[str, int | str]] = {"share_auto_offset_reset": "earliest", "share_heartbeat_interval_ms": 500}
_LOCK: Final = {"share_record_lock_duration_ms": _SHORT_MS, "share_session_timeout_ms": _LONG_MS}
_SESSION: Final = {"share_record_lock_duration_ms": _LONG_MS, "share_session_timeout_ms": _SHORT_MS}

Round = Callable[["aio.Channel", str, str], Awaitable[float]]


def main() -> None:
    """Print the times after the ends of locks and of sessions."""
    with tempfile.TemporaryDirectory(prefix="bench-redelivery-") as directory:
        arguments = [part for setting in _SETTINGS for part in ("--set", setting)]
        server = OwnServer(Path(directory), arguments=arguments)
        server.start()
        try:
            for name, settings, measure in (("lock", _LOCK, _after_lock), ("session", _SESSION, _after_session)):
                _print(name, _measured(server.endpoint, name, settings, measure))
        finally:
            server.stop()


def _print(name: str, late_ms: Sequence[float]) -> None:
    words = f"median {median(late_ms):.1f} ms, longest {max(late_ms):.1f} ms of {len(late_ms)}"
    print(f"from the end of the {name} to the next delivery: {words}", flush=True)


def _measured(endpoint: str, name: str, settings: dict[str, int], measure: Round) -> list[float]:
    """Return the times of all rounds (ms), each with a group and a topic of its own."""

    async def rounds() -> list[float]:
        channel = open_channel(endpoint)
        return [await measure(channel, endpoint, names[number]) for number in range(ROUNDS)]

    names = [f"{name}-{number}" for number in range(ROUNDS)]
    with Admin(endpoint, client_id="bench") as admin:
        for each in names:
            admin.create_topic(each, 1)
            admin.alter_group_configs(each, {**_EARLIEST, **settings})
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(rounds())


class _Killed:
    """A member that sends nothing but the requests of these methods."""

    def __init__(self, channel: aio.Channel, group_id: str) -> None:
        self._groups: GroupServiceAsyncStub = GroupServiceStub(channel)
        self._shares: ShareServiceAsyncStub = ShareServiceStub(channel)
        self._group_id = group_id
        self._member_id, self._epoch = "", 0

    async def heartbeat(self) -> None:
        """Join, or extend the session."""
        topics = None if self._epoch else group.TopicNames(names=[self._group_id])
        request = group.ShareGroupHeartbeatRequest(
            group_id=self._group_id,
            member_id=self._member_id,
            member_epoch=self._epoch,
            subscribed_topic_names=topics,
        )
        answer = checked(await self._groups.ShareGroupHeartbeat(request))
        self._member_id, self._epoch = answer.member_id, answer.member_epoch

    async def take(self) -> None:
        """Wait for a record and hold it. Raises: Refusal."""
        partition = share.SharePartition(topic=self._group_id, partition=0)
        request = share.ShareFetchRequest(
            group_id=self._group_id, member_id=self._member_id, max_wait_ms=_SHORT_MS, partitions=[partition]
        )
        answer = checked(await self._shares.ShareFetch(request))
        if not any(each.acquired for each in answer.results):
            raise RuntimeError("the member got no record")


async def _after_lock(channel: aio.Channel, endpoint: str, group_id: str) -> float:
    """Let the lock of a record end while the session of its member lasts."""
    killed, clock = _Killed(channel, group_id), SystemClock()
    await killed.heartbeat()
    taking = asyncio.ensure_future(killed.take())
    began_us = clock.monotonic_us()
    await _send(endpoint, group_id)
    await taking
    return await _polled_us(endpoint, group_id, clock) / 1_000 - began_us / 1_000 - _SHORT_MS


async def _after_session(channel: aio.Channel, endpoint: str, group_id: str) -> float:
    """Let the session of a member end while its lock lasts."""
    killed, clock = _Killed(channel, group_id), SystemClock()
    await killed.heartbeat()
    await _send(endpoint, group_id)
    await killed.take()
    began_us = clock.monotonic_us()
    await killed.heartbeat()
    return await _polled_us(endpoint, group_id, clock) / 1_000 - began_us / 1_000 - _SHORT_MS


async def _send(endpoint: str, topic: str) -> None:
    async with AsyncProducer(endpoint, client_id="bench") as producer:
        await producer.send(topic, b"work")


async def _polled_us(endpoint: str, group_id: str, clock: SystemClock) -> int:
    """Return the time at which another member has the record (us). Raises: TimeoutError."""
    async with AsyncShareConsumer(endpoint, group_id=group_id, client_id="bench") as consumer:
        consumer.subscribe([group_id])
        async with asyncio.timeout(_STEP_S_MAX):
            while not await consumer.poll(timeout_ms=1_000):
                pass
        return clock.monotonic_us()


if __name__ == "__main__":
    main()
