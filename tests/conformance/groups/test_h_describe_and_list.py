"""H. Describe, List, Delete: DescribeGroups and ListGroups."""

from __future__ import annotations

from typing import Any

from coordinator_api.v1 import group_pb2
from coordinator_protocol.errors import ErrorCode
from tests.conformance.groups.cases import case
from tests.harness.classic_members import protocols
from tests.harness.group_world import classic_world
from tests.harness.groups import code
from tests.harness.world import World


@case(118)
def test_a_stable_group_shows_what_its_members_brought_and_got() -> None:
    world = classic_world()
    (member,) = world.classic.stable(
        world.classic.member("i1", protocols=protocols("range", metadata=b"mine")), plan={0: b"all"}
    )
    group = world.classic.describe()
    assert (group.group_state, group.protocol_type, group.protocol_name) == ("Stable", "consumer", "range")
    assert (group.leader, group.generation_id) == (member.member_id, 1)
    (shown,) = group.members
    assert (shown.member_id, shown.group_instance_id) == (member.member_id, "i1")
    assert (shown.client_id, shown.client_host) == ("client", "/127.0.0.1")
    assert (shown.metadata, shown.assignment) == (b"mine", b"all")


@case(119)
def test_a_rebalancing_group_shows_only_who_its_members_are() -> None:
    world = classic_world()
    leader, _follower = world.classic.stable(world.classic.member(), world.classic.member())
    leader.joining()
    group = world.classic.describe()
    assert (group.group_state, group.protocol_name, len(group.members)) == ("PreparingRebalance", "", 2)
    assert {(member.metadata, member.assignment) for member in group.members} == {(b"", b"")}


def listed(world: World, **filters: Any) -> list[str]:
    return [group.group_id for group in world.ask(group_pb2.ListGroupsRequest(**filters)).groups]


def a_group_of_each_kind() -> World:
    world = classic_world()
    world.classic.stable(world.classic.member(group_id="classic"))
    (left,) = world.classic.stable(world.classic.member(group_id="empty"))
    left.leaves()
    joined = world.ask(
        group_pb2.ConsumerGroupHeartbeatRequest(
            group_id="new",
            member_id="m",
            rebalance_timeout_ms=10_000,
            subscribed_topic_names=group_pb2.TopicNames(names=["foo"]),
            topic_partitions=group_pb2.PartitionSet(),
        )
    )
    assert code(joined) is ErrorCode.NONE
    return world


@case(121)
def test_groups_are_listed_by_state_and_kind() -> None:
    world = a_group_of_each_kind()
    assert listed(world, state_filters=["EMPTY"]) == ["empty"]
    assert listed(world, state_filters=[" stable "]) == ["classic", "new"]
    assert listed(world, type_filters=["Classic"]) == ["classic", "empty"]
    assert listed(world, type_filters=["consumer", "share"]) == ["new"]
    assert listed(world, state_filters=["nonsense"]) == []
    assert listed(world) == ["classic", "empty", "new"]
