"""A streams group with one member, whose tasks the test decides, and the offsets that it fetches.

It knows the rules a client depends on: epochs, what is told again, and that a revoked task is free only once it is
given up. The suite against the real server holds it to the truth.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from coordinator_api.v1 import group_pb2 as group
from coordinator_client.streams import (
    AsyncStreamsClient,
    AsyncTaskListener,
    StreamsClient,
    StreamsInternalTopic,
    StreamsSubtopology,
    StreamsTopology,
    Task,
    TaskListener,
    TaskRole,
    Tasks,
)
from coordinator_client.streams.tasks import Roles, fill_tasks, roles_of
from coordinator_client.values import TopicPartition
from coordinator_protocol.errors import ErrorCode
from coordinator_protocol.methods import Method
from tests.client.fake_server import refuse
from tests.client.world import Held, World

INTERVAL_MS = 5_000
REPORT_INTERVAL_MS = 300_000
ACCEPTABLE_LAG = 10
LINES = TopicPartition("lines", 0)
COUNTS = StreamsTopology(
    [StreamsSubtopology(subtopology_id="0", source_topics=["lines"], changelogs=[StreamsInternalTopic(name="counts")])]
)

Heartbeat = group.StreamsGroupHeartbeatRequest


def task(partition: int) -> Task:
    return Task("0", partition)


class FakeStreamsGroup:
    """A streams group of one member. `beats` has the heartbeats that came."""

    def __init__(self, world: World) -> None:
        world.server.handle(Method.STREAMS_GROUP_HEARTBEAT, self.heartbeat)
        world.server.handle(Method.OFFSET_FETCH, self.fetch)
        self.epoch = 0
        self.member_id = ""
        self.member_epoch = 0
        self.given: Roles = {}
        self.has: Roles = {}
        """Tasks that the member said it has, in its last heartbeat."""
        self.statuses: list[tuple[int, str]] = []
        self.endpoint_epoch = 0
        self.endpoints: list[group.StreamsEndpointPartitions] = []
        self.offsets: dict[TopicPartition, int] = {}
        self.fetch_refusals: list[ErrorCode] = []
        """Codes with which the next fetches are refused."""
        self._told: Roles | None = None
        self._told_statuses: list[tuple[int, str]] = []
        self._world = world
        self._held: list[tuple[Heartbeat, Held]] = []

    def give(self, active: Iterable[int] = (), standby: Iterable[int] = (), warmup: Iterable[int] = ()) -> None:
        """Let the member have these tasks, from now on."""
        parts = ((active, TaskRole.ACTIVE), (standby, TaskRole.STANDBY), (warmup, TaskRole.WARMUP))
        self.given = {task(number): role for part, role in parts for number in part}
        self.epoch += 1
        self._answer_held()

    def say(self, *statuses: tuple[int, str]) -> None:
        """Have these statuses from now on."""
        self.statuses = [*statuses]
        self._answer_held()

    def place(self, *endpoints: group.StreamsEndpointPartitions) -> None:
        """Have these endpoints from now on."""
        self.endpoints, self.endpoint_epoch = [*endpoints], self.endpoint_epoch + 1
        self._answer_held()

    def remove(self) -> None:
        """Take the member out, as the session timer does."""
        self.member_id, self.member_epoch = "", 0
        self._answer_held()

    def _answer_held(self) -> None:
        held, self._held = self._held, []
        for request, answer in held:
            answer.give(self._answer(request))

    def heartbeat(self, request: Heartbeat) -> group.StreamsGroupHeartbeatResponse | Held:
        if request.member_epoch == 0:
            self.epoch += 1
            self.member_id, self.member_epoch, self._told = request.member_id, self.epoch, None
        self._held.clear()
        reply = self._answer(request)
        is_news = reply.error_code or reply.HasField("assignment") or reply.statuses
        is_news = is_news or reply.HasField("endpoint_information")
        if is_news or request.max_wait_ms == 0:
            return reply
        held = Held()
        self._held.append((request, held))
        self._world.call_after(request.max_wait_ms, lambda: self._time_out(request, held))
        return held

    def _time_out(self, request: Heartbeat, held: Held) -> None:
        if (request, held) in self._held:
            self._held.remove((request, held))
            held.give(self._answer(request))

    def _answer(self, request: Heartbeat) -> group.StreamsGroupHeartbeatResponse:
        reply = group.StreamsGroupHeartbeatResponse(
            member_id=request.member_id,
            heartbeat_interval_ms=INTERVAL_MS,
            acceptable_recovery_lag=ACCEPTABLE_LAG,
            task_offset_interval_ms=REPORT_INTERVAL_MS,
        )
        if request.member_id != self.member_id:
            return refuse(reply, Method.STREAMS_GROUP_HEARTBEAT, ErrorCode.UNKNOWN_MEMBER_ID)
        if request.member_epoch < 0:
            self.member_id = ""
            reply.member_epoch = request.member_epoch
            return reply
        if request.HasField("owned_tasks"):
            self.has = roles_of(request.owned_tasks)
        self.member_epoch = reply.member_epoch = self.epoch
        for code, detail in self.statuses:
            reply.statuses.add(code=code, detail=detail)  # type: ignore[arg-type]  # a number of the enum
        reply.endpoint_information_epoch = self.endpoint_epoch
        if request.endpoint_information_epoch != self.endpoint_epoch:
            reply.endpoint_information.endpoints.extend(self.endpoints)
            reply.endpoint_information.SetInParent()
        is_full = request.HasField("rebalance_timeout_ms") and request.HasField("owned_tasks")
        if is_full or self._told != self.given:
            self._told = dict(self.given)
            fill_tasks(reply.assignment, self.given)
        return reply

    def fetch(self, request: group.OffsetFetchRequest) -> group.OffsetFetchResponse:
        reply = group.OffsetFetchResponse()
        (asked,) = request.groups
        assert request.require_stable
        found = reply.groups.add(group_id=asked.group_id)
        if self.fetch_refusals:
            refuse(found, Method.OFFSET_FETCH, self.fetch_refusals.pop(0))
            return reply
        if asked.member_epoch != self.member_epoch:
            refuse(found, Method.OFFSET_FETCH, ErrorCode.STALE_MEMBER_EPOCH)
            return reply
        for topic in asked.topics.topics:
            for partition in topic.partitions:
                offset = self.offsets.get(TopicPartition(topic.topic, partition), -1)
                found.offsets.add(topic=topic.topic, partition=partition, committed_offset=offset)
        return reply


class TaskDiary(TaskListener):
    """Writes down what it is told; raises what it is given for a word."""

    def __init__(self, **raises: Exception) -> None:
        self.told: list[tuple[str, list[int]]] = []
        self.raises = raises

    def on_tasks_assigned(self, tasks: Tasks) -> None:
        self._note("assigned", tasks)

    def on_tasks_revoked(self, tasks: Tasks) -> None:
        self._note("revoked", tasks)

    def on_tasks_lost(self, tasks: Tasks) -> None:
        self._note("lost", tasks)

    def _note(self, word: str, tasks: Tasks) -> None:
        self.told.append((word, [each.partition for each in tasks]))
        if word in self.raises:
            raise self.raises[word]


class AsyncTaskDiary(AsyncTaskListener):
    """The same as coroutines."""

    def __init__(self) -> None:
        self.told: list[tuple[str, list[int]]] = []

    async def on_tasks_assigned(self, tasks: Tasks) -> None:
        self.told.append(("assigned", [each.partition for each in tasks]))

    async def on_tasks_revoked(self, tasks: Tasks) -> None:
        self.told.append(("revoked", [each.partition for each in tasks]))


class StreamsCluster:
    """A streams group that the test leads, and its member."""

    def __init__(self) -> None:
        self.world = World()
        self.group = FakeStreamsGroup(self.world)
        self.diary = TaskDiary()

    def member(self, **options: Any) -> StreamsClient:
        given: dict[str, Any] = {"group_id": "g", "topology": COUNTS, "listener": self.diary}
        return StreamsClient(self.world.connection(), **(given | options))

    def async_member(self, diary: AsyncTaskDiary) -> AsyncStreamsClient:
        return AsyncStreamsClient(self.world.connection(), listener=diary, group_id="g", topology=COUNTS)

    def beats(self) -> list[Heartbeat]:
        return self.world.requests(Method.STREAMS_GROUP_HEARTBEAT)
