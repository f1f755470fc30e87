"""Administration of groups over Kafka's protocol."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator_protocol.errors import ErrorCode
from coordinator_runtime.ports import CallContext, Permission, ResourceType
from coordinator_server.kafka_front.access_bits import NOT_ASKED
from coordinator_server.kafka_front.apis import ApiKey
from coordinator_server.kafka_front.messages.delete_groups_request import DeleteGroupsRequest
from coordinator_server.kafka_front.messages.describe_groups_request import DescribeGroupsRequest
from coordinator_server.kafka_front.messages.describe_groups_response import DescribedGroup
from coordinator_server.kafka_front.messages.list_groups_request import ListGroupsRequest
from tests.harness.group_world import group_world
from tests.harness.kafka_caller import KafkaCaller
from tests.harness.world import World

OK = ErrorCode.NONE


@pytest.fixture
def world() -> World:
    """A group of each kind, and one that only has offsets."""
    world = group_world()
    world.classic.stable(world.classic.member("i", group_id="classic"))
    world.consumers.stable(world.consumers.member(group_id="consumer"))
    world.offsets.commits({"foo-0": 1}, group_id="offsets")
    return world


def described(world: World, group_id: str, version: int = 6, **fields: Any) -> DescribedGroup:
    request = DescribeGroupsRequest(groups=(group_id,), **fields)
    (group,) = KafkaCaller(world).call(ApiKey.DESCRIBE_GROUPS, version, request).groups
    found: DescribedGroup = group
    return found


@pytest.mark.parametrize("version", range(7))
def test_a_classic_group_is_described_in_every_version(world: World, version: int) -> None:
    group = described(world, "classic", version)
    assert (group.error_code, group.error_message, group.group_id) == (OK, None, "classic")
    assert (group.group_state, group.protocol_type, group.protocol_data) == ("Stable", "consumer", "range")
    (member,) = group.members
    assert (member.group_instance_id, member.client_id, member.member_assignment) == ("i", "client", b"part-0")
    assert member.client_host.startswith("/")
    assert group.authorized_operations == NOT_ASKED


def test_a_group_with_nothing_but_offsets_is_empty(world: World) -> None:
    group = described(world, "offsets")
    assert (group.error_code, group.group_state, group.members) == (OK, "Empty", [])


@pytest.mark.parametrize("group_id", ["unknown", "consumer"])
@pytest.mark.parametrize("version", range(7))
def test_a_group_that_is_not_there_is_dead(world: World, version: int, group_id: str) -> None:
    group = described(world, group_id, version)
    assert group.group_state == "Dead"
    assert group.error_code == (ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else OK)
    assert (group.error_message is None) is (version < 6)


@pytest.mark.parametrize("version", [3, 6])
def test_the_operations_on_a_group_are_told_on_request(world: World, version: int) -> None:
    group = described(world, "classic", version, include_authorized_operations=True)
    assert group.authorized_operations == sum(1 << bit for bit in (3, 6, 8, 10, 11))


class WithoutGroups:
    """A caller without rights on groups and the cluster."""

    def is_allowed(self, _context: CallContext, _permission: Permission, resource: ResourceType, _name: str) -> bool:
        return resource not in (ResourceType.GROUP, ResourceType.CLUSTER)

    def on_refused(self, context: CallContext, permission: Permission, resource: ResourceType, name: str) -> None:
        """Nothing is counted."""


@pytest.mark.parametrize("version", [0, 5, 6])
def test_a_group_that_may_not_be_seen_is_refused(version: int) -> None:
    world = group_world(authorizer=WithoutGroups())
    group = described(world, "g", version)
    assert (group.error_code, group.group_state) == (ErrorCode.GROUP_AUTHORIZATION_FAILED, "")
    assert (group.error_message is None) is (version < 6)


@pytest.mark.parametrize("version", range(6))
def test_groups_are_listed_in_every_version(world: World, version: int) -> None:
    response = KafkaCaller(world).call(ApiKey.LIST_GROUPS, version, ListGroupsRequest())
    assert response.error_code == OK
    assert [(each.group_id, each.protocol_type, each.group_state, each.group_type) for each in response.groups] == [
        ("classic", "consumer", "Stable", "classic"),
        ("consumer", "consumer", "Stable", "consumer"),
        ("offsets", "", "Empty", "classic"),
    ]


@pytest.mark.parametrize(
    ("fields", "listed"),
    [
        ({"states_filter": ("Stable",)}, ["classic", "consumer"]),
        ({"states_filter": ("empty", "Dead")}, ["offsets"]),
        ({"types_filter": ("Consumer",)}, ["consumer"]),
        ({"types_filter": ("classic",), "states_filter": ("Stable",)}, ["classic"]),
        ({"types_filter": ("share",)}, []),
    ],
)
def test_a_listing_may_be_filtered(world: World, fields: dict[str, Any], listed: list[str]) -> None:
    response = KafkaCaller(world).call(ApiKey.LIST_GROUPS, 5, ListGroupsRequest(**fields))
    assert [each.group_id for each in response.groups] == listed


def test_a_listing_shows_what_the_caller_may_see() -> None:
    world = group_world(authorizer=WithoutGroups())
    assert KafkaCaller(world).call(ApiKey.LIST_GROUPS, 5, ListGroupsRequest()).groups == []


def test_a_listing_is_refused_while_a_shard_is_loaded(world: World) -> None:
    world.unload("group:classic")
    world.load("group:classic")
    response = KafkaCaller(world).begin(ApiKey.LIST_GROUPS, 5, ListGroupsRequest()).result()
    assert (response.error_code, response.groups) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ())


@pytest.mark.parametrize("version", range(3))
def test_groups_are_deleted_each_on_its_own(world: World, version: int) -> None:
    request = DeleteGroupsRequest(groups_names=("offsets", "classic", "unknown", "offsets", ""))
    response = KafkaCaller(world).call(ApiKey.DELETE_GROUPS, version, request)
    assert {each.group_id: each.error_code for each in response.results} == {
        "offsets": OK,
        "classic": ErrorCode.NON_EMPTY_GROUP,
        "unknown": ErrorCode.GROUP_ID_NOT_FOUND,
        "": ErrorCode.GROUP_ID_NOT_FOUND,
    }
    assert len(response.results) == 4
    assert set(world.groups.listed()) == {"classic", "consumer"}
