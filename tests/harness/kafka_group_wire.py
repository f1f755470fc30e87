"""Members of groups by Kafka's protocol, for programs that are written against GroupService.

Requests of GroupService become Kafka's messages, and the answers become responses of GroupService. So one program is a
member by either front.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from google.protobuf.message import Message

from coordinator_api.v1 import common_pb2, group_pb2
from coordinator_protocol.errors import ErrorCode
from coordinator_runtime.pending import Pending
from coordinator_server.kafka_front.apis import ApiKey
from coordinator_server.kafka_front.messages.consumer_group_heartbeat_request import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from coordinator_server.kafka_front.messages.heartbeat_request import HeartbeatRequest
from coordinator_server.kafka_front.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from coordinator_server.kafka_front.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from coordinator_server.kafka_front.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from coordinator_server.kafka_front.messages.sync_group_request import SyncGroupRequest, SyncGroupRequestAssignment
from tests.harness.kafka_caller import KafkaCaller
from tests.harness.world import World

Asked = tuple[ApiKey, int, Any]
"""API, version and request."""
_UNCHANGED = -1


class KafkaGroupWire:
    """The calls of members. Waiting heartbeats are answered at once, as Kafka has none."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._caller = KafkaCaller(world)
        self._topic_ids: dict[str, bytes] = {}
        self._kinds: dict[str, tuple[Callable[[Any], Asked], Callable[[Any], Message]]] = {
            "JoinGroupRequest": (_join, _joined),
            "SyncGroupRequest": (_sync, _synced),
            "HeartbeatRequest": (_beat, partial(_told, group_pb2.HeartbeatResponse)),
            "LeaveGroupRequest": (_leave, partial(_told, group_pb2.LeaveGroupResponse)),
            "OffsetCommitRequest": (_commit, _committed),
            "ConsumerGroupHeartbeatRequest": (self._consumer_beat, self._heard),
        }

    def knows(self, topic: str) -> None:
        """Learn the id of a topic, as from its metadata."""
        self._topic_ids[topic] = self._world.inside.catalog.resolve(topic, b"", 0).topic_id

    def call(self, request: Message) -> Pending[Any]:
        """Call as `GroupWire.call` does."""
        asked, answered = self._kinds[request.DESCRIPTOR.name]
        return self._caller.begin(*asked(request)).map(answered)

    def _consumer_beat(self, request: Any) -> Asked:
        owned = None
        if request.HasField("topic_partitions"):
            shares = request.topic_partitions.topics
            owned = tuple(TopicPartitions(self._topic_ids[each.topic], tuple(each.partitions)) for each in shares)
        named = request.HasField("subscribed_topic_names")
        asked = ConsumerGroupHeartbeatRequest(
            group_id=request.group_id,
            member_id=request.member_id,
            member_epoch=request.member_epoch,
            instance_id=_text(request, "instance_id"),
            rebalance_timeout_ms=request.rebalance_timeout_ms if named else _UNCHANGED,
            subscribed_topic_names=tuple(request.subscribed_topic_names.names) if named else None,
            topic_partitions=owned,
        )
        return ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, asked

    def _heard(self, response: Any) -> Message:
        heard = group_pb2.ConsumerGroupHeartbeatResponse(
            error_code=response.error_code, member_id=response.member_id or "", member_epoch=response.member_epoch
        )
        if response.assignment is not None:
            shares = response.assignment.topic_partitions
            heard.assignment.topics.extend(self._shares((each.topic_id, each.partitions) for each in shares))
        return heard

    def _shares(self, shares: Iterable[tuple[bytes, Iterable[int]]]) -> list[common_pb2.TopicPartitions]:
        names = {topic_id: topic for topic, topic_id in self._topic_ids.items()}
        return [common_pb2.TopicPartitions(topic=names[each], partitions=partitions) for each, partitions in shares]


def _text(request: Any, name: str) -> str | None:
    text: str | None = getattr(request, name) if request.HasField(name) else None
    return text


def _join(request: Any) -> Asked:
    asked = JoinGroupRequest(
        group_id=request.group_id,
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        member_id=request.member_id,
        group_instance_id=_text(request, "group_instance_id"),
        protocol_type=request.protocol_type,
        protocols=tuple(JoinGroupRequestProtocol(each.name, each.metadata) for each in request.protocols),
    )
    return ApiKey.JOIN_GROUP, 9, asked


def _joined(response: Any) -> Message:
    return group_pb2.JoinGroupResponse(
        error_code=response.error_code,
        generation_id=response.generation_id,
        member_id=response.member_id,
        leader=response.leader,
        skip_assignment=response.skip_assignment,
        members=[
            group_pb2.JoinGroupMember(member_id=each.member_id, metadata=each.metadata) for each in response.members
        ],
    )


def _sync(request: Any) -> Asked:
    asked = SyncGroupRequest(
        group_id=request.group_id,
        generation_id=request.generation_id,
        member_id=request.member_id,
        group_instance_id=_text(request, "group_instance_id"),
        assignments=tuple(SyncGroupRequestAssignment(each.member_id, each.assignment) for each in request.assignments),
    )
    return ApiKey.SYNC_GROUP, 4, asked


def _synced(response: Any) -> Message:
    return group_pb2.SyncGroupResponse(error_code=response.error_code, assignment=bytes(response.assignment))


def _beat(request: Any) -> Asked:
    instance_id = _text(request, "group_instance_id")
    return (
        ApiKey.HEARTBEAT,
        4,
        HeartbeatRequest(request.group_id, request.generation_id, request.member_id, instance_id),
    )


def _leave(request: Any) -> Asked:
    leaving = tuple(MemberIdentity(each.member_id, _text(each, "group_instance_id")) for each in request.members)
    return ApiKey.LEAVE_GROUP, 5, LeaveGroupRequest(request.group_id, members=leaving)


def _commit(request: Any) -> Asked:
    topics = [
        OffsetCommitRequestTopic(
            topic.topic,
            partitions=tuple(
                OffsetCommitRequestPartition(each.partition, each.committed_offset) for each in topic.partitions
            ),
        )
        for topic in request.topics
    ]
    asked = OffsetCommitRequest(
        request.group_id,
        request.generation_id_or_member_epoch,
        request.member_id,
        _text(request, "group_instance_id"),
        topics=tuple(topics),
    )
    return ApiKey.OFFSET_COMMIT, 9, asked


def _committed(response: Any) -> Message:
    results = []
    for topic in response.topics:
        for each in topic.partitions:
            # Kafka's coordinators say so, too, if they do not know what became of a commit.
            is_unknown = each.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
            error_class = common_pb2.ERROR_CLASS_UNKNOWN_OUTCOME if is_unknown else common_pb2.ERROR_CLASS_NONE
            results.append(group_pb2.OffsetCommitResult(error_code=each.error_code, error_class=error_class))
    return group_pb2.OffsetCommitResponse(results=results)


def _told(response_type: Callable[..., Message], response: Any) -> Message:
    return response_type(error_code=response.error_code)
