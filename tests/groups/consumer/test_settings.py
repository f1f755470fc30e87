"""Settings of single groups, and what a restart brings back of consumer groups."""

from __future__ import annotations

from coordinator_api.v1 import group_pb2
from coordinator_protocol.errors import ErrorCode
from tests.groups.consumer.schedule import snapshot
from tests.harness.group_world import group_world
from tests.harness.groups import OK, code
from tests.harness.world import World

SESSION = "consumer_session_timeout_ms"
INTERVAL = "consumer_heartbeat_interval_ms"


def alter(world: World, *unset: str, validate_only: bool = False, **wanted: int) -> ErrorCode:
    configs = [group_pb2.GroupConfig(name=name, value=value) for name, value in wanted.items()]
    request = group_pb2.AlterGroupConfigsRequest(group_id="g", set=configs, unset=unset, validate_only=validate_only)
    return code(world.ask(request))


def configs(world: World) -> dict[str, int]:
    described = world.ask(group_pb2.DescribeGroupConfigsRequest(group_id="g"))
    assert code(described) is OK
    return {config.name: config.value for config in described.configs}


def test_settings_are_kept_and_taken_back() -> None:
    world = group_world()
    assert alter(world, **{SESSION: 50_000, INTERVAL: 6_000}) is OK
    world.restart()
    assert configs(world) == {SESSION: 50_000, INTERVAL: 6_000}
    assert alter(world, SESSION, **{INTERVAL: 7_000}) is OK
    assert configs(world) == {INTERVAL: 7_000}
    assert alter(world, INTERVAL) is OK
    world.restart()
    assert configs(world) == {}


def test_a_check_changes_nothing() -> None:
    world = group_world()
    assert alter(world, validate_only=True, **{SESSION: 50_000}) is OK
    assert alter(world, validate_only=True, **{SESSION: 1}) is ErrorCode.INVALID_CONFIG
    assert configs(world) == {}


def test_a_value_that_comes_twice_is_refused() -> None:
    world = group_world()
    twice = [group_pb2.GroupConfig(name=SESSION, value=value) for value in (50_000, 60_000)]
    assert code(world.ask(group_pb2.AlterGroupConfigsRequest(group_id="g", set=twice))) is ErrorCode.INVALID_CONFIG
    assert code(world.ask(group_pb2.AlterGroupConfigsRequest(group_id=""))) is ErrorCode.INVALID_GROUP_ID


def test_the_next_heartbeat_of_a_member_takes_settings_up() -> None:
    world = group_world()
    (member,) = world.consumers.stable(world.consumers.member())
    alter(world, **{SESSION: 60_000})
    world.pass_time(45_000)
    assert world.consumers.member_ids() == []
    member.joins("foo")
    world.pass_time(59_999)
    assert world.consumers.member_ids() == ["m"]


def test_a_restart_brings_back_members_and_their_timers() -> None:
    world = group_world()
    first, second = world.consumers.members("first", "second")
    world.consumers.stable(first, world.consumers.member("static", "i1"))
    second.joins("foo", "bar")
    first.beats()
    before = snapshot(world.consumers.group())
    world.restart()
    assert snapshot(world.consumers.group()) == before
    assert world.groups.timers() == {"session": 3, "rebalance": 1}
    world.pass_time(10_000)
    assert world.consumers.member_ids() == ["second", "static"]
    world.pass_time(35_000)
    assert (world.consumers.member_ids(), world.groups.timers()) == ([], {})
