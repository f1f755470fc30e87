"""Measures heartbeats of consumer groups and of streams groups side by side, in a steady state: a part of
`bench.heartbeats`.

The members join by heartbeats, and go on until nothing changes any more. The measurement begins then. All groups read
one topic with a partition for each member of a group; the tasks of streams groups are stateful. The last column is the
processor time of the server's process for each heartbeat, all threads together.
"""

from __future__ import annotations

import asyncio
import gc
import tempfile
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import uvloop

from bench.processes import processor_seconds
from bench.results import LoadFailed
from bench.server import OwnServer
from coordinator_api.v1 import group_pb2 as group
from coordinator_client import Admin, Connection
from coordinator_client.calls import CONSUMER_GROUP_HEARTBEAT, STREAMS_GROUP_HEARTBEAT
from coordinator_client.loops import AsyncioLoop
from coordinator_protocol.errors import ErrorCode

_ROUNDS: Final = 3
_SETTLING_ROUNDS_MAX: Final = 20
_DEADLINE_MS: Final = 120_000
_REBALANCE_MS: Final = 300_000
_STEP_SECONDS: Final = 0.004
"""Pause between two bundles of heartbeats (s); a dozen are sent at a time."""
TOPIC: Final = "t"
_CHANGELOG: Final = "t-changelog"
_NO_DELAY: Final = ("--set", "group_streams_initial_rebalance_delay_ms=0")

Answers = Sequence[float | BaseException]
"""Latency of each heartbeat's reply (ms), or the error."""
Send = Callable[[asyncio.Future[float]], None]
"""Sends a heartbeat, and sets the latency of its reply (ms) or the error."""


async def evenly(sends: Sequence[Send], seconds: float) -> Answers:
    """Send all of these, evenly spread over so many seconds."""
    loop = asyncio.get_running_loop()
    began, steps = loop.time(), max(1, round(seconds / _STEP_SECONDS))
    answers: list[asyncio.Future[float]] = [loop.create_future() for _ in sends]
    waiting = deque(zip(sends, answers, strict=True))

    def send_some(step: int) -> None:
        while waiting and (len(answers) - len(waiting)) * steps < step * len(answers):
            send, answer = waiting.popleft()
            send(answer)
        if waiting:
            loop.call_at(began + step * _STEP_SECONDS, send_some, step + 1)

    send_some(1)
    return await asyncio.gather(*answers, return_exceptions=True)


class Member(ABC):
    """One member, with the assignment or the tasks of its last answer."""

    name: str
    rpc: Any

    def __init__(self, group_id: str, member_id: str) -> None:
        self.group_id, self._member_id = group_id, member_id
        self._epoch = 0
        self._owned: Any = None
        """Assignment or tasks to report with the next heartbeat; None = nothing to report."""
        self.is_changed = True
        """True if the last answer had something new."""

    @abstractmethod
    def request(self) -> Any:  # noqa: ANN401  of generated code
        """Return the next heartbeat."""

    def note(self, answer: Any) -> None:  # noqa: ANN401  of generated code
        has_assignment = answer.HasField("assignment")
        self.is_changed = has_assignment or answer.member_epoch != self._epoch
        self._epoch = answer.member_epoch
        self._owned = answer.assignment if has_assignment else None


class Consumer(Member):
    """Member of a consumer group that reads `TOPIC`."""

    name = "consumer"
    rpc = CONSUMER_GROUP_HEARTBEAT

    def request(self) -> group.ConsumerGroupHeartbeatRequest:
        request = group.ConsumerGroupHeartbeatRequest(
            group_id=self.group_id, member_id=self._member_id, member_epoch=self._epoch, topic_partitions=self._owned
        )
        if not self._epoch:
            request.subscribed_topic_names.names.append(TOPIC)
            request.rebalance_timeout_ms = _REBALANCE_MS
            request.topic_partitions.SetInParent()
        return request


class _Streams(Member):
    name = "streams"
    rpc = STREAMS_GROUP_HEARTBEAT

    def request(self) -> group.StreamsGroupHeartbeatRequest:
        request = group.StreamsGroupHeartbeatRequest(
            group_id=self.group_id, member_id=self._member_id, member_epoch=self._epoch, owned_tasks=self._owned
        )
        if not self._epoch:
            changelog = group.StreamsInternalTopic(name=_CHANGELOG)
            request.topology.subtopologies.add(
                subtopology_id="0", source_topics=[TOPIC], state_changelog_topics=[changelog]
            )
            request.process_id, request.rebalance_timeout_ms = self._member_id, _REBALANCE_MS
            request.owned_tasks.SetInParent()
        return request


KINDS: Final[Sequence[type[Member]]] = (Consumer, _Streams)


def print_table(groups: int, members: int, round_seconds: float) -> None:
    """Print the latencies of all rounds, and what the server spends."""
    print("| groups | round | p50 ms | p99 ms | refused | server us |")
    print("| --- | --- | --- | --- | --- | --- |")
    for kind in KINDS:
        for number, (answers, spent_us) in enumerate(measured(kind, groups, members, round_seconds), 1):
            taken_ms = sorted(answer for answer in answers if isinstance(answer, float))
            p50, p99 = (taken_ms[len(taken_ms) * share // 100] for share in (50, 99))
            refused = len(answers) - len(taken_ms)
            print(f"| {kind.name} | {number} | {p50:.1f} | {p99:.1f} | {refused} | {spent_us:.0f} |", flush=True)


def measured(
    kind: type[Member], groups: int, members: int, round_seconds: float, rounds: int = _ROUNDS
) -> list[tuple[Answers, float]]:
    """Return the answers of each round, and the processor time of the server for each heartbeat (us). Raises:
    LoadFailed."""
    beating = [
        kind(f"{kind.name}-{each}", f"member-{each}-{number}") for number in range(members) for each in range(groups)
    ]
    with tempfile.TemporaryDirectory(prefix="bench-heartbeats-") as directory:
        server = OwnServer(Path(directory), arguments=_NO_DELAY)
        server.start()
        # Otherwise the collector would scan all objects of the process while replies are timed.
        gc.disable()
        try:
            with Admin(server.endpoint, client_id="bench") as admin:
                admin.create_topic(TOPIC, members)
                admin.create_topic(_CHANGELOG, members)
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                return runner.run(_rounds(server, beating, round_seconds, rounds))
        finally:
            gc.enable()
            server.stop()


async def _rounds(
    server: OwnServer, members: Sequence[Member], round_seconds: float, rounds: int
) -> list[tuple[Answers, float]]:
    found = []
    with Connection(server.endpoint, open_loop=AsyncioLoop) as connection:
        sends = [partial(_send, connection, member) for member in members]
        for _ in range(_SETTLING_ROUNDS_MAX):
            await evenly(sends, round_seconds)
            if not any(member.is_changed for member in members):
                break
        else:
            raise LoadFailed("the groups do not settle")
        for _ in range(rounds):
            before_s = processor_seconds(server.process_id) or 0.0
            answers = await evenly(sends, round_seconds)
            spent_s = (processor_seconds(server.process_id) or 0.0) - before_s
            found.append((answers, spent_s / len(members) * 1e6))
    return found


def _send(connection: Connection, member: Member, taken_ms: asyncio.Future[float]) -> None:
    loop = asyncio.get_running_loop()
    sent = loop.time()

    def on_done(reply: Any) -> None:  # noqa: ANN401  of generated code
        if isinstance(reply, Exception) or ErrorCode(reply.error_code) is not ErrorCode.NONE:
            member.is_changed = True
            taken_ms.set_exception(AssertionError(f"the answer was {reply}"))
        else:
            member.note(reply)
            taken_ms.set_result((loop.time() - sent) * 1e3)

    connection.transport.start(member.rpc, member.request(), timeout_ms=_DEADLINE_MS, on_done=on_done)
