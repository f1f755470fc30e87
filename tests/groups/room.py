"""A server with the real group coordinator, on a manual clock and a store in memory. Everything is asked with the
messages of the wire; nothing is answered until it is flushed.

room = GroupRoom()
joined = room.call(group_pb2.JoinGroupRequest(group_id="g", ...))     # a Pending response
room.flush()
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from google.protobuf.message import Message

from coordinator_core.assembly import Dependencies, assemble
from coordinator_core.config import CoreConfig
from coordinator_runtime.decision import Coordinator, ShardRouter
from coordinator_runtime.late_answers import WAITING_MAX
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import ALLOW_ALL, Authorizer, CallContext
from coordinator_server.grpc_front.wire.servicers import group_servicers
from coordinator_server.metrics.readings import TIMER_KINDS
from group_coordinator.assignors import SERVER_ASSIGNORS, ServerAssignor
from group_coordinator.config import GroupConfig
from group_coordinator.registry import PARTS, GroupPart
from partition_log.catalog.state import MorePartitions, NewTopic
from partition_log.requests import CreatePartitions, CreateTopics
from partition_log.state import PartitionConfig
from tests.harness.group_wire import GroupWire
from tests.harness.hand_driver import HandDriver
from tests.harness.manual_clock import ManualClock
from tests.harness.memory_store import MemoryStore
from tests.harness.payloads import UNREADABLE_PAYLOADS
from tests.harness.workers import HeldWorker
from txn_coordinator.config import TwoPhase

SHARD_COUNT = 2

KAFKA = GroupConfig(initial_rebalance_delay_ms=3_000, session_timeout_ms_min=1, consumer_assignment_interval_ms=0)
"""The settings that the acceptance cases of spec/groups-cases.md use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoomOptions:
    """How the server is configured."""

    config: GroupConfig = KAFKA
    two_phase: TwoPhase = TwoPhase.FUSED
    assignors: Mapping[str, ServerAssignor] = field(default_factory=lambda: SERVER_ASSIGNORS)
    parts: tuple[GroupPart, ...] = PARTS
    authorizer: Authorizer = ALLOW_ALL
    worker: HeldWorker = field(default_factory=HeldWorker)
    """Where large targets are computed."""
    topics: dict[str, int] = field(default_factory=lambda: {"foo": 6, "bar": 3, "zar": 1})
    waiting_max: int = WAITING_MAX
    """Calls that may wait for other members."""


class Inside:
    """One life of the process."""

    def __init__(self, store: MemoryStore, clock: ManualClock, options: RoomOptions) -> None:
        self.driver = HandDriver(store, clock)
        self.runtime = self.driver.runtime
        self._topic_number = 0
        core = self.core = assemble(
            self.runtime,
            store,
            CoreConfig(
                shard_count=SHARD_COUNT,
                two_phase=options.two_phase,
                partitions=PartitionConfig(removal_interval_ms=86_400_000),
                groups=options.config,
                group_waits_max=options.waiting_max,
            ),
            Dependencies(
                worker=options.worker,
                payload_worker=options.worker,
                assignors=options.assignors,
                group_parts=options.parts,
                new_topic_id=self._new_topic_id,
            ),
            options.authorizer,
        )
        self.driver.load_core(core)
        self.catalog, self.answers, self.news = core.catalog, core.answers, core.news
        self.transactions, self.reader = core.transactions.service, core.transactions.reader
        self.log, self.topics = core.log.records, core.log.topics
        self.router = ShardRouter(Coordinator.GROUPS, SHARD_COUNT)
        self.wire = GroupWire(group_servicers(core))

    def _new_topic_id(self) -> bytes:
        self._topic_number += 1
        return self.runtime.groups.durable_version.to_bytes(8, "big") + self._topic_number.to_bytes(8, "big")


class GroupRoom:
    """The server, and what can happen to it."""

    def __init__(self, options: RoomOptions | None = None) -> None:
        self.options = options or RoomOptions()
        self.clock = ManualClock()
        self.store = MemoryStore()
        self._start()
        for name, partition_count in self.options.topics.items():
            self.create_topic(name, partition_count)

    def _start(self) -> None:
        self.inside = Inside(self.store, self.clock, self.options)
        self.settle()

    def call(self, request: Message, context: CallContext | None = None) -> Pending[Any]:
        """Ask with a request of GroupService; the Pending response has error fields, as on the wire."""
        return self.inside.wire.call(request, context)

    def told(self, request: Message) -> Any:
        """The response after one flush; the call must not wait for anything else."""
        reply = self.call(request)
        if not reply.is_settled:
            self.settle()
        assert reply.is_settled, f"{request.DESCRIPTOR.name} waits, and it should not"
        return reply.result()

    def flush(self) -> bool:
        """Make durable what is staged, answer, and stage what follows; False if nothing was."""
        return self.inside.driver.flush()

    def settle(self) -> None:
        """Flush until nothing follows. Time stands still."""
        self.inside.driver.settle()

    def tick(self, elapsed_ms: int) -> None:
        """Let time pass and timers expire, each at its time; what they stage is flushed, and before all that what was
        staged before."""
        self.settle()
        runtime = self.inside.runtime
        # "client" are those that a test arms to let its clients act.
        known = {*TIMER_KINDS, "client", *(kind for part in self.options.parts for kind in part.timers)}
        unknown = runtime.timers.by_kind().keys() - known
        assert not unknown, f"the metric of timers does not know these kinds: {unknown}"
        end_ms = self.clock.monotonic_ms() + elapsed_ms
        while (deadline_ms := runtime.timers.next_deadline_ms()) is not None and deadline_ms <= end_ms:
            self.clock.advance(max(0, deadline_ms - self.clock.monotonic_ms()))
            runtime.run_due_timers()
            self.settle()
        self.clock.advance(end_ms - self.clock.monotonic_ms())
        self.settle()

    def crash(self, *, kept_groups: int = 0) -> None:
        """Lose the process and all but the first few groups that are not durable, and start again."""
        self.inside.driver.write_unsynced(kept_groups)
        self.store = self.store.crash(kept_groups=self.store.unsynced_groups)
        self.clock = ManualClock(wall_ms=self.clock.wall_ms(), monotonic_ms=7)
        self._start()

    def unload(self, group_id: str) -> None:
        """The shard of the group leaves this server."""
        self.inside.driver.loader.unload(self.inside.router.shard_key(group_id))

    def restart(self) -> None:
        """Make everything durable, then lose the process and start again."""
        self.settle()
        self.crash()

    def create_topic(self, name: str, partition_count: int) -> None:
        self.inside.topics.create_topics(
            CreateTopics([NewTopic(name, partition_count, UNREADABLE_PAYLOADS)]), CallContext()
        )
        self.settle()

    def add_partitions(self, name: str, partition_count: int, *, is_durable: bool = True) -> None:
        command = CreatePartitions([MorePartitions(name, b"", partition_count)])
        self.inside.topics.create_partitions(command, CallContext())
        if is_durable:
            self.settle()
