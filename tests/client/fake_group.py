"""A group of the consumer protocol with one member, whose assignment the test decides; and the offsets it commits."""

from __future__ import annotations

from coordinator_api.v1 import group_pb2 as group
from coordinator_client.values import TopicPartition
from coordinator_protocol.errors import ErrorCode
from coordinator_protocol.methods import Method
from tests.client.fake_server import refuse
from tests.client.world import Held, World

INTERVAL_MS = 5_000


class FakeGroup:
    """Group whose heartbeats are kept in `beats`, and its offsets in `offsets`."""

    def __init__(self, world: World) -> None:
        world.server.handle(Method.CONSUMER_GROUP_HEARTBEAT, self.heartbeat)
        world.server.handle(Method.OFFSET_COMMIT, self.commit)
        world.server.handle(Method.OFFSET_FETCH, self.fetch)
        self.epoch = 0
        self.member_id = ""
        self.member_epoch = 0
        self.given: set[int] = set()
        self.owned: set[int] = set()
        """Partitions that the member last named as its own."""
        self.offsets: dict[TopicPartition, int] = {}
        self.leader_epochs: dict[TopicPartition, int] = {}
        self.unstable: set[TopicPartition] = set()
        """Partitions with an offset that waits for its transaction."""
        self._told: tuple[bytes, set[int]] | None = None
        self._world = world
        self._held: list[tuple[group.ConsumerGroupHeartbeatRequest, Held]] = []

    def give(self, *partitions: int) -> None:
        """Let the member have these partitions of "t", from now on."""
        self.given = set(partitions)
        self.epoch += 1
        held, self._held = self._held, []
        for request, answer in held:
            answer.give(self._answer(request))

    def remove(self) -> None:
        """Take the member out, as the session timer does."""
        self.member_id, self.member_epoch = "", 0
        self.give(*self.given)

    def heartbeat(self, request: group.ConsumerGroupHeartbeatRequest) -> group.ConsumerGroupHeartbeatResponse | Held:
        if request.member_epoch == 0:
            self.epoch += 1
            self.member_id, self.member_epoch, self._told = request.member_id, self.epoch, None
        # A newer heartbeat takes the place of one that still waits.
        self._held.clear()
        reply = self._answer(request)
        if reply.error_code or reply.HasField("assignment") or request.max_wait_ms == 0:
            return reply
        held = Held()
        self._held.append((request, held))
        self._world.call_after(request.max_wait_ms, lambda: self._time_out(request, held))
        return held

    def _time_out(self, request: group.ConsumerGroupHeartbeatRequest, held: Held) -> None:
        if (request, held) in self._held:
            self._held.remove((request, held))
            held.give(self._answer(request))

    def _answer(self, request: group.ConsumerGroupHeartbeatRequest) -> group.ConsumerGroupHeartbeatResponse:
        reply = group.ConsumerGroupHeartbeatResponse(member_id=request.member_id, heartbeat_interval_ms=INTERVAL_MS)
        if request.member_id != self.member_id:
            return refuse(reply, Method.CONSUMER_GROUP_HEARTBEAT, ErrorCode.UNKNOWN_MEMBER_ID)
        if request.member_epoch < 0:
            self.member_id = ""
            reply.member_epoch = request.member_epoch
            return reply
        if request.HasField("topic_partitions"):
            self.owned = {number for topic in request.topic_partitions.topics for number in topic.partitions}
        self.member_epoch = reply.member_epoch = self.epoch
        is_full = request.HasField("rebalance_timeout_ms") and request.HasField("topic_partitions")
        topic_id = self._world.server.id_of("t")
        if is_full or self._told != (topic_id, self.given):
            self._told = (topic_id, set(self.given))
            reply.assignment.SetInParent()
            if self.given:
                reply.assignment.topics.add(topic="t", topic_id=topic_id, partitions=sorted(self.given))
        return reply

    def commit(self, request: group.OffsetCommitRequest) -> group.OffsetCommitResponse:
        reply = group.OffsetCommitResponse()
        is_member = request.HasField("generation_id_or_member_epoch")
        code = ErrorCode.NONE
        if is_member and request.member_id != self.member_id:
            code = ErrorCode.UNKNOWN_MEMBER_ID
        elif is_member and request.generation_id_or_member_epoch != self.member_epoch:
            code = ErrorCode.STALE_MEMBER_EPOCH
        for topic in request.topics:
            for item in topic.partitions:
                result = reply.results.add(topic=topic.topic, partition=item.partition)
                why = code or self._world.server.why_gone(topic.topic, topic.topic_id, item.partition)
                if why:
                    refuse(result, Method.OFFSET_COMMIT, why)
                else:
                    name = TopicPartition(topic.topic, item.partition)
                    self.offsets[name] = item.committed_offset
                    if item.HasField("committed_leader_epoch"):
                        self.leader_epochs[name] = item.committed_leader_epoch
        return reply if not code else refuse(reply, Method.OFFSET_COMMIT, code)

    def fetch(self, request: group.OffsetFetchRequest) -> group.OffsetFetchResponse:
        reply = group.OffsetFetchResponse()
        for asked in request.groups:
            found = reply.groups.add(group_id=asked.group_id)
            for topic in asked.topics.topics:
                for partition in topic.partitions:
                    name = TopicPartition(topic.topic, partition)
                    topic_id = self._world.server.id_of(topic.topic)
                    offset = found.offsets.add(topic=topic.topic, topic_id=topic_id, partition=partition)
                    why = self._world.server.why_gone(topic.topic, topic.topic_id, partition)
                    if why:
                        refuse(offset, Method.OFFSET_FETCH, why)
                        continue
                    offset.committed_offset = self.offsets.get(name, -1)
                    if name in self.leader_epochs:
                        offset.committed_leader_epoch = self.leader_epochs[name]
                    if request.require_stable and name in self.unstable:
                        refuse(offset, Method.OFFSET_FETCH, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        return reply
