"""No call gets past the authorizer: every use case of groups asks it itself, whichever front calls."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.message import Message

from coordinator_api.v1 import common_pb2, group_pb2
from coordinator_protocol.errors import ErrorCode
from coordinator_runtime.ports import AllowAll, CallContext, Permission, ResourceType
from tests.harness.group_world import group_world

OFFSETS = [group_pb2.TopicOffsets(topic="t", partitions=[group_pb2.PartitionOffset(committed_offset=1)])]

REQUESTS: dict[str, Message] = {
    "JoinGroup": group_pb2.JoinGroupRequest(group_id="g"),
    "SyncGroup": group_pb2.SyncGroupRequest(group_id="g"),
    "Heartbeat": group_pb2.HeartbeatRequest(group_id="g"),
    "LeaveGroup": group_pb2.LeaveGroupRequest(group_id="g"),
    "ConsumerGroupHeartbeat": group_pb2.ConsumerGroupHeartbeatRequest(group_id="g"),
    "ConsumerGroupDescribe": group_pb2.ConsumerGroupDescribeRequest(group_ids=["g"]),
    "ShareGroupHeartbeat": group_pb2.ShareGroupHeartbeatRequest(group_id="g"),
    "ShareGroupDescribe": group_pb2.ShareGroupDescribeRequest(group_ids=["g"]),
    "StreamsGroupHeartbeat": group_pb2.StreamsGroupHeartbeatRequest(group_id="g"),
    "StreamsGroupDescribe": group_pb2.StreamsGroupDescribeRequest(group_ids=["g"]),
    "DescribeShareGroupOffsets": group_pb2.DescribeShareGroupOffsetsRequest(group_id="g"),
    "AlterShareGroupOffsets": group_pb2.AlterShareGroupOffsetsRequest(group_id="g"),
    "DeleteShareGroupOffsets": group_pb2.DeleteShareGroupOffsetsRequest(group_id="g"),
    "DescribeGroups": group_pb2.DescribeGroupsRequest(group_ids=["g"]),
    "ListGroups": group_pb2.ListGroupsRequest(),
    "DeleteGroups": group_pb2.DeleteGroupsRequest(group_ids=["g"]),
    "OffsetCommit": group_pb2.OffsetCommitRequest(group_id="g", topics=OFFSETS),
    "OffsetFetch": group_pb2.OffsetFetchRequest(groups=[group_pb2.OffsetFetchGroup(group_id="g")]),
    "OffsetDelete": group_pb2.OffsetDeleteRequest(
        group_id="g", topics=[common_pb2.TopicPartitions(topic="t", partitions=[0])]
    ),
    "TxnOffsetCommit": group_pb2.TxnOffsetCommitRequest(group_id="g", transactional_id="t", topics=OFFSETS),
    "DescribeGroupConfigs": group_pb2.DescribeGroupConfigsRequest(group_id="g"),
    "AlterGroupConfigs": group_pb2.AlterGroupConfigsRequest(group_id="g"),
}

REFUSALS = {ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}


class Closed(AllowAll):
    """Every call is refused."""

    def is_allowed(self, _context: CallContext, _permission: Permission, _resource: ResourceType, _name: str) -> bool:
        return False


def test_the_table_has_every_method_of_the_service() -> None:
    service = group_pb2.DESCRIPTOR.services_by_name["GroupService"]
    assert REQUESTS.keys() == {method.name for method in service.methods}


@pytest.mark.parametrize("method", REQUESTS)
def test_who_may_do_nothing_changes_and_learns_nothing(method: str) -> None:
    world = group_world(authorizer=Closed(), topics={})
    response: Any = world.ask(REQUESTS[method])
    assert not world.flush(), "something was staged"
    if method == "ListGroups":
        assert not response.groups
        return
    replies = [response] if response.error_code else response.groups
    assert {ErrorCode(each.error_code) for each in replies} <= REFUSALS
    assert replies, "there are answers"


READ, DESCRIBE, DELETE = Permission.READ, Permission.DESCRIBE, Permission.DELETE

PERMISSIONS = {
    "JoinGroup": READ,
    "SyncGroup": READ,
    "Heartbeat": READ,
    "LeaveGroup": READ,
    "ConsumerGroupHeartbeat": READ,
    "ConsumerGroupDescribe": DESCRIBE,
    "ShareGroupHeartbeat": READ,
    "ShareGroupDescribe": DESCRIBE,
    "DescribeGroups": DESCRIBE,
    "DeleteGroups": DELETE,
    "OffsetCommit": READ,
    "OffsetFetch": DESCRIBE,
    "OffsetDelete": DELETE,
    "TxnOffsetCommit": READ,
    "DescribeGroupConfigs": Permission.DESCRIBE_CONFIGS,
    "AlterGroupConfigs": Permission.ALTER_CONFIGS,
}


class Without(AllowAll):
    """Allows every caller everything but this permission on groups."""

    def __init__(self, missing: Permission) -> None:
        self._missing = missing

    def is_allowed(self, _context: CallContext, permission: Permission, resource: ResourceType, _name: str) -> bool:
        return (permission, resource) != (self._missing, ResourceType.GROUP)


@pytest.mark.parametrize("method", PERMISSIONS)
def test_no_other_permission_stands_in_for_that_of_a_method(method: str) -> None:
    world = group_world(authorizer=Without(PERMISSIONS[method]), topics={})
    response: Any = world.ask(REQUESTS[method])
    replies = [response] if response.error_code else response.groups
    assert [ErrorCode(each.error_code) for each in replies] == [ErrorCode.GROUP_AUTHORIZATION_FAILED]


class HidesTopics(AllowAll):
    """Every description of a topic is refused."""

    def is_allowed(self, _context: CallContext, permission: Permission, resource: ResourceType, _name: str) -> bool:
        return (permission, resource) != (DESCRIBE, ResourceType.TOPIC)


@pytest.mark.parametrize("stable", [False, True])
def test_offsets_in_topics_that_the_caller_may_not_see_are_left_out(*, stable: bool) -> None:
    world = group_world(authorizer=HidesTopics(), topics={"t": 1})
    commit = group_pb2.OffsetCommitRequest(group_id="g", topics=OFFSETS)
    committed: Any = world.ask(commit)
    assert committed.results[0].error_code == ErrorCode.NONE
    fetch = group_pb2.OffsetFetchRequest(groups=[group_pb2.OffsetFetchGroup(group_id="g")], require_stable=stable)
    fetched: Any = world.ask(fetch)
    assert not fetched.groups[0].error_code
    assert not fetched.groups[0].offsets
