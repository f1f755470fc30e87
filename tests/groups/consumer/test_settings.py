"""Settings of single groups, and what a restart brings back of consumer groups."""

from __future__ import annotations

from coordinator_api.v1 import group_pb2
from coordinator_protocol.errors import ErrorCode
from tests.groups.consumer.members import OK, ConsumerRoom, code
from tests.groups.consumer.schedule import snapshot

SESSION = "consumer_session_timeout_ms"
INTERVAL = "consumer_heartbeat_interval_ms"


def alter(room: ConsumerRoom, *unset: str, validate_only: bool = False, **wanted: int) -> ErrorCode:
    configs = [group_pb2.GroupConfig(name=name, value=value) for name, value in wanted.items()]
    request = group_pb2.AlterGroupConfigsRequest(group_id="g", set=configs, unset=unset, validate_only=validate_only)
    return code(room.told(request))


def configs(room: ConsumerRoom) -> dict[str, int]:
    described = room.told(group_pb2.DescribeGroupConfigsRequest(group_id="g"))
    assert code(described) is OK
    return {config.name: config.value for config in described.configs}


def test_settings_are_kept_and_taken_back() -> None:
    room = ConsumerRoom()
    assert alter(room, **{SESSION: 50_000, INTERVAL: 6_000}) is OK
    room.restart()
    assert configs(room) == {SESSION: 50_000, INTERVAL: 6_000}
    assert alter(room, SESSION, **{INTERVAL: 7_000}) is OK
    assert configs(room) == {INTERVAL: 7_000}
    assert alter(room, INTERVAL) is OK
    room.restart()
    assert configs(room) == {}


def test_a_check_changes_nothing() -> None:
    room = ConsumerRoom()
    assert alter(room, validate_only=True, **{SESSION: 50_000}) is OK
    assert alter(room, validate_only=True, **{SESSION: 1}) is ErrorCode.INVALID_CONFIG
    assert configs(room) == {}


def test_a_value_that_comes_twice_is_refused() -> None:
    room = ConsumerRoom()
    twice = [group_pb2.GroupConfig(name=SESSION, value=value) for value in (50_000, 60_000)]
    assert code(room.told(group_pb2.AlterGroupConfigsRequest(group_id="g", set=twice))) is ErrorCode.INVALID_CONFIG
    assert code(room.told(group_pb2.AlterGroupConfigsRequest(group_id=""))) is ErrorCode.INVALID_GROUP_ID


def test_the_next_heartbeat_of_a_member_takes_settings_up() -> None:
    room = ConsumerRoom()
    (member,) = room.stable(room.member())
    alter(room, **{SESSION: 60_000})
    room.tick(45_000)
    assert room.member_ids() == []
    member.joins("foo")
    room.tick(59_999)
    assert room.member_ids() == ["m"]


def test_a_restart_brings_back_members_and_their_timers() -> None:
    room = ConsumerRoom()
    first, second = room.members("first", "second")
    room.stable(first, room.member("static", "i1"))
    second.joins("foo", "bar")
    first.beats()
    before = snapshot(room.group())
    room.restart()
    assert snapshot(room.group()) == before
    assert room.timers() == {"session": 3, "rebalance": 1}
    room.tick(10_000)
    assert room.member_ids() == ["second", "static"]
    room.tick(35_000)
    assert (room.member_ids(), room.timers()) == ([], {})
