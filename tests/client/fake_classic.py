"""A classic group with one real member, and others that the test makes up."""

from __future__ import annotations

from coordinator_api.v1 import group_pb2 as group
from coordinator_client.consumer.joining import as_share
from coordinator_client.values import TopicPartition
from coordinator_protocol.consumer_protocol import Assignment, decode_assignment, encode_assignment
from coordinator_protocol.errors import ErrorCode
from coordinator_protocol.methods import Method
from tests.client.fake_group import FakeGroup
from tests.client.fake_server import refuse
from tests.client.world import Held, World


class FakeClassicGroup(FakeGroup):
    """The member leads, unless `leader` says who does. `plan` overrides what the leader sends: partitions of "t"."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        for method, handler in (
            (Method.JOIN_GROUP, self.join),
            (Method.SYNC_GROUP, self.sync),
            (Method.HEARTBEAT, self.beat),
            (Method.LEAVE_GROUP, self.leave),
            (Method.DESCRIBE_GROUPS, self.describe),
        ):
            world.server.handle(method, handler)
        self.generation = 0
        self.leader: str | None = None
        self.others: list[group.JoinGroupMember] = []
        self.skip_assignment = False
        self.plan: list[int] | None = None
        self.is_rebalancing = False
        self.sent_plan: dict[str, list[TopicPartition]] = {}
        self._beats: list[Held] = []

    def rebalance(self) -> None:
        """Something changed: members must join again."""
        self.is_rebalancing = True
        beats, self._beats = self._beats, []
        for beat in beats:
            beat.give(self._rebalancing())

    def join(self, request: group.JoinGroupRequest) -> group.JoinGroupResponse:
        reply = group.JoinGroupResponse(generation_id=-1, member_id=request.member_id)
        if not request.member_id and not request.HasField("group_instance_id"):
            reply.member_id = "m-1"
            return refuse(reply, Method.JOIN_GROUP, ErrorCode.MEMBER_ID_REQUIRED)
        self.member_id = reply.member_id = request.member_id or "m-static"
        self.generation += 1
        self.is_rebalancing = False
        reply.generation_id = self.member_epoch = self.generation
        reply.protocol_type, reply.protocol_name = "consumer", request.protocols[0].name
        reply.leader = self.leader or self.member_id
        if reply.leader == self.member_id:
            reply.skip_assignment = self.skip_assignment
            reply.members.add(member_id=self.member_id, metadata=request.protocols[0].metadata)
            reply.members.extend(self.others)
        return reply

    def sync(self, request: group.SyncGroupRequest) -> group.SyncGroupResponse:
        reply = group.SyncGroupResponse(protocol_type="consumer", protocol_name=request.protocol_name)
        for part in request.assignments:
            share = decode_assignment(part.assignment).partitions
            self.sent_plan[part.member_id] = [TopicPartition(topic, n) for topic in share for n in share[topic]]
            if part.member_id == self.member_id:
                reply.assignment = part.assignment
        if self.plan is not None:
            mine = as_share(TopicPartition("t", number) for number in self.plan)
            reply.assignment = encode_assignment(Assignment(partitions=mine))
        return reply

    def describe(self, request: group.DescribeGroupsRequest) -> group.DescribeGroupsResponse:
        """The member has what `plan` says."""
        found = group.GroupDescription(group_id=request.group_ids[0], protocol_type="consumer", group_state="Stable")
        mine = as_share(TopicPartition("t", number) for number in self.plan or ())
        found.members.add(member_id=self.member_id, assignment=encode_assignment(Assignment(partitions=mine)))
        return group.DescribeGroupsResponse(groups=[found])

    def beat(self, request: group.HeartbeatRequest) -> group.HeartbeatResponse | Held:
        reply = group.HeartbeatResponse()
        if request.member_id != self.member_id:
            return refuse(reply, Method.HEARTBEAT, ErrorCode.UNKNOWN_MEMBER_ID)
        if request.generation_id != self.generation:
            return refuse(reply, Method.HEARTBEAT, ErrorCode.ILLEGAL_GENERATION)
        if self.is_rebalancing:
            return self._rebalancing()
        if request.max_wait_ms == 0:
            return reply
        held = Held()
        self._beats.append(held)
        self._world.call_after(request.max_wait_ms, lambda: held.give(reply))
        return held

    def leave(self, request: group.LeaveGroupRequest) -> group.LeaveGroupResponse:
        reply = group.LeaveGroupResponse()
        for member in request.members:
            reply.members.add(member_id=member.member_id)
            if member.member_id == self.member_id:
                self.member_id = ""
        return reply

    @staticmethod
    def _rebalancing() -> group.HeartbeatResponse:
        return refuse(group.HeartbeatResponse(), Method.HEARTBEAT, ErrorCode.REBALANCE_IN_PROGRESS)
