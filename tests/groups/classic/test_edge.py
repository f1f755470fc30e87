"""Requests that the edge refuses before any group is asked, and the view of administrators."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator_api.v1 import common_pb2, group_pb2
from coordinator_protocol.errors import ErrorClass, ErrorCode
from coordinator_protocol.methods import Method
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import AllowAll, CallContext, Permission, ResourceType
from coordinator_server.grpc_front.wire.edge import answer
from coordinator_server.grpc_front.wire.groups.administration import AdministrationServicer
from coordinator_server.grpc_front.wire.groups.classic import ClassicServicer
from group_coordinator.administration.service import AdministrationService
from group_coordinator.classic.service import ClassicService
from tests.harness.classic_members import protocols
from tests.harness.group_world import classic_world
from tests.harness.groups import GROUP, OK, code

CALL = CallContext(principal="mallory")
INVALID = ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    "settings",
    [
        {"instance_id": ""},
        {"instance_id": "a\0b"},
        {"instance_id": "x" * 250},
        {"rebalance_timeout_ms": -1},
        {"protocols": [*protocols("range"), *protocols("range")]},
    ],
)
def test_what_no_group_could_make_sense_of_is_refused(settings: dict[str, Any]) -> None:
    world = classic_world()
    refused = world.classic.member(member_id="m", **settings).joins()
    assert (code(refused), refused.member_id, refused.generation_id) == (INVALID, "m", -1)
    assert code(world.classic.describe()) is ErrorCode.GROUP_ID_NOT_FOUND


def test_an_instance_id_that_is_no_name_is_refused_everywhere() -> None:
    world = classic_world()
    member = world.classic.member("")
    left = world.ask(group_pb2.LeaveGroupRequest(group_id=GROUP, members=[member.leaving]))
    assert [code(member.syncs()), member.beats(), code(left)] == [INVALID] * 3


def test_without_a_rebalance_timeout_the_session_timeout_counts() -> None:
    world = classic_world()
    request = group_pb2.JoinGroupRequest(
        group_id=GROUP,
        session_timeout_ms=7_000,
        protocol_type="consumer",
        protocols=[group_pb2.JoinGroupProtocol(name="range")],
        skip_member_id_required=True,
    )
    world.call(request)
    world.settle()
    assert world.classic.group().rebalance_timeout_ms == 7_000


def test_an_id_that_was_given_to_a_dynamic_member_does_not_become_static() -> None:
    world = classic_world()
    member = world.classic.member()
    member.asked_for_id()
    static = world.classic.member("i1", member_id=member.member_id)
    refused = static.joins()
    assert (code(refused), refused.error_class) == (ErrorCode.UNKNOWN_SERVER_ERROR, ErrorClass.RETRY)
    assert world.classic.size() == 0


class Closed(AllowAll):
    """Every call is refused but those on one group."""

    def is_allowed(self, _context: CallContext, _permission: Permission, resource: ResourceType, name: str) -> bool:
        return resource is not ResourceType.CLUSTER and (resource is not ResourceType.GROUP or name == "open")


def test_members_need_permission_to_read_the_group() -> None:
    world = classic_world()
    inside = world.inside
    service = ClassicService(
        inside.runtime,
        router=inside.groups.router,
        config=world.options.group_config,
        authorizer=Closed(),
        answers=inside.core.answers,
        news=inside.core.news,
    )
    servicer = ClassicServicer(service)
    replies: list[Pending[Any]] = [
        servicer.JoinGroup(group_pb2.JoinGroupRequest(group_id=GROUP, member_id="m"), CALL),
        answer(
            Method.SYNC_GROUP,
            group_pb2.SyncGroupResponse,
            lambda: servicer.SyncGroup(group_pb2.SyncGroupRequest(group_id=GROUP), CALL),
        ),
        answer(
            Method.HEARTBEAT,
            group_pb2.HeartbeatResponse,
            lambda: servicer.Heartbeat(group_pb2.HeartbeatRequest(group_id=GROUP), CALL),
        ),
        answer(
            Method.LEAVE_GROUP,
            group_pb2.LeaveGroupResponse,
            lambda: servicer.LeaveGroup(group_pb2.LeaveGroupRequest(group_id=GROUP), CALL),
        ),
    ]
    answers: list[Any] = [reply.result() for reply in replies]
    assert [code(each) for each in answers] == [ErrorCode.GROUP_AUTHORIZATION_FAILED] * 4
    assert answers[0].member_id == "m"


def test_administrators_see_what_they_may_describe() -> None:
    world = classic_world()
    for group_id in ("open", "secret"):
        world.classic.stable(world.classic.member(group_id=group_id))
    servicer = AdministrationServicer(AdministrationService(world.inside.runtime, world.inside.groups.router, Closed()))
    listed = servicer.ListGroups(group_pb2.ListGroupsRequest(), CALL).result()
    assert [group.group_id for group in listed.groups] == ["open"]
    request = group_pb2.DescribeGroupsRequest(group_ids=["open", "secret"])
    shown = servicer.DescribeGroups(request, CALL).result().groups
    assert [code(group) for group in shown] == [OK, ErrorCode.GROUP_AUTHORIZATION_FAILED]
    assert [(group.group_state, len(group.members)) for group in shown] == [("Stable", 1), ("Dead", 0)]


def test_a_group_that_only_has_offsets_is_an_empty_one() -> None:
    world = classic_world()
    world.create_topic("foo", 1)
    offsets = group_pb2.TopicOffsets(
        topic="foo", partitions=[group_pb2.PartitionOffset(partition=0, committed_offset=5)]
    )
    commit = group_pb2.OffsetCommitRequest(
        header=common_pb2.RequestHeader(client_id="tool"), group_id="simple", topics=[offsets]
    )
    reply = world.call(commit)
    assert list(world.ask(group_pb2.ListGroupsRequest()).groups) == []
    world.settle()
    assert code(reply.result()) is OK
    (listed,) = world.ask(group_pb2.ListGroupsRequest()).groups
    assert (listed.group_id, listed.protocol_type, listed.group_state, listed.group_type) == (
        "simple",
        "",
        "Empty",
        "classic",
    )
    described = world.classic.describe("simple")
    assert (code(described), described.group_state, described.protocol_type) == (OK, "Empty", "")
