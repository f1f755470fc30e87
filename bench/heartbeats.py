"""Measures heartbeats in a steady state: 1,000 classic groups of 10 members, each with one heartbeat in 3 s.

A real server on a prepared directory, one connection, heartbeats evenly spread. In the first round the server still
replaces the deadlines that it loaded; after that the state is steady. Target: p99 below 10 ms on 2 otherwise idle cores
(spec groups, case 350). Then the same of consumer groups and of streams groups (`bench.epoch_heartbeats`).
"""

from __future__ import annotations

import asyncio
import gc
import tempfile
from functools import partial
from pathlib import Path
from typing import Final

import uvloop

from bench import epoch_heartbeats
from bench.epoch_heartbeats import Answers, evenly
from bench.server import OwnServer
from coordinator_api.v1 import group_pb2
from coordinator_client import Connection
from coordinator_client.calls import HEARTBEAT
from coordinator_client.loops import AsyncioLoop
from coordinator_protocol.errors import ErrorCode
from coordinator_runtime.clock import SystemClock
from coordinator_runtime.decision import Coordinator, Record, ShardRouter, Turn
from coordinator_runtime.rows import StagedRows, StateRows
from coordinator_runtime.store import CommitGroup
from coordinator_server.engines import open_rocks_store
from coordinator_server.settings.config import Config
from group_coordinator.classic.state import (
    ClassicGroup,
    ClassicGroupChanged,
    ClassicMember,
    ClassicProtocol,
    rebuilt_group,
)
from group_coordinator.registry import PARTS, codec_of

GROUPS: Final = 1_000
MEMBERS: Final = 10
ROUND_SECONDS: Final = 3
SESSION_MS: Final = 6_000
"""Session timeout of the members, two rounds. A member without a heartbeat in that time is removed."""
_ROUNDS: Final = 4
_GENERATION: Final = 7
_DEADLINE_MS: Final = 30_000


def main() -> None:
    """Print the latency of the heartbeats of each round."""
    with tempfile.TemporaryDirectory(prefix="bench-heartbeats-") as directory:
        server = OwnServer(Path(directory))
        fill(server.data_dir)
        server.start()
        try:
            rounds = beat(server.endpoint, _ROUNDS)
        finally:
            server.stop()
    print(f"{GROUPS:,} groups of {MEMBERS} members, a heartbeat of each in {ROUND_SECONDS} s")
    print("| round | p50 ms | p99 ms | refused |")
    print("| --- | --- | --- | --- |")
    for number, answers in enumerate(rounds, 1):
        taken_ms = sorted(answer for answer in answers if isinstance(answer, float))
        p50, p99 = (taken_ms[len(taken_ms) * share // 100] for share in (50, 99))
        print(f"| {number} | {p50:.1f} | {p99:.1f} | {len(answers) - len(taken_ms)} |")
    print()
    epoch_heartbeats.print_table(GROUPS, MEMBERS, ROUND_SECONDS)


def _member_id(group: int, number: int) -> str:
    return f"consumer-{group}-{number}"


def fill(data_dir: Path) -> None:
    """Write the groups as the coordinator would have written them, all Stable."""
    config = Config.model_validate({"data_dir": data_dir})
    opened = open_rocks_store(config)
    router = ShardRouter(Coordinator.GROUPS, config.shard_count)
    turn, rows, staged = Turn(now_ms=SystemClock().wall_ms()), StateRows(codec_of(PARTS)), StagedRows()
    for key in router.shard_keys:
        assert not list(rows.load(key)(opened.store)), "the store is new"
    for number in range(GROUPS):
        members = [
            ClassicMember(
                member_id=_member_id(number, each),
                session_timeout_ms=SESSION_MS,
                rebalance_timeout_ms=60_000,
                protocols=(ClassicProtocol("range", b"subscription"),),
                assignment=b"assignment",
            )
            for each in range(MEMBERS)
        ]
        bare = ClassicGroup(
            group_id=f"g{number}",
            state_timestamp_ms=turn.now_ms,
            generation_id=_GENERATION,
            protocol_type="consumer",
            protocol_name="range",
            leader=members[0].member_id,
        )
        key = router.shard_key(bare.group_id)
        rows.stage(Record(key, ClassicGroupChanged(rebuilt_group(bare, members), is_stored=True), "test"), turn, staged)
    opened.store.write([CommitGroup(opened.store.version() + 1, staged.mutations())])
    opened.store.sync()
    opened.mark_durable(opened.store.version())
    opened.store.close()


def beat(endpoint: str, rounds: int) -> list[Answers]:
    """Send this many rounds of heartbeats."""

    async def load() -> list[Answers]:
        with Connection(endpoint, open_loop=AsyncioLoop) as connection:
            load = _Load(connection)
            return [await load.round() for _round in range(rounds)]

    # Otherwise the collector would scan all objects of the process while replies are timed.
    gc.disable()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(load())
    finally:
        gc.enable()


class _Load:
    """Heartbeats of every member in each round, evenly spread, over one connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._requests = [
            group_pb2.HeartbeatRequest(
                group_id=f"g{group}", generation_id=_GENERATION, member_id=_member_id(group, each)
            )
            for each in range(MEMBERS)
            for group in range(GROUPS)
        ]

    async def round(self) -> Answers:
        """Send one heartbeat for every member."""
        return await evenly([partial(self._send, request) for request in self._requests], ROUND_SECONDS)

    def _send(self, request: group_pb2.HeartbeatRequest, taken_ms: asyncio.Future[float]) -> None:
        loop = asyncio.get_running_loop()
        sent = loop.time()

        def on_done(reply: object) -> None:
            if isinstance(reply, group_pb2.HeartbeatResponse) and ErrorCode(reply.error_code) is ErrorCode.NONE:
                taken_ms.set_result((loop.time() - sent) * 1e3)
            else:
                taken_ms.set_exception(AssertionError(f"the answer was {reply}"))

        self._connection.transport.start(HEARTBEAT, request, timeout_ms=_DEADLINE_MS, on_done=on_done)
