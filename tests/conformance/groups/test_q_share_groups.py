"""Q. Share groups."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator_api.v1 import common_pb2, group_pb2
from coordinator_protocol.errors import ErrorCode
from tests.conformance.groups.cases import case
from tests.harness.committed_offsets import Producer, topic_offsets
from tests.harness.consumers import all_of
from tests.harness.group_world import group_world
from tests.harness.groups import OK, code
from tests.harness.share_groups import ShareGroups, share_groups

_NAMES = group_pb2.TopicNames(names=["foo"])
_JOIN: dict[str, Any] = {"group_id": "g", "member_id": "m", "member_epoch": 0, "subscribed_topic_names": _NAMES}


def _without(*fields: str, **changes: Any) -> group_pb2.ShareGroupHeartbeatRequest:
    kept = {name: value for name, value in _JOIN.items() if name not in fields}
    return group_pb2.ShareGroupHeartbeatRequest(**{**kept, **changes})


@case(282)
@pytest.mark.parametrize(
    "request_",
    [
        _without(group_id=""),
        _without(group_id="   "),
        _without("subscribed_topic_names"),
        _without(subscribed_topic_names=group_pb2.TopicNames()),
        _without(member_epoch=1, member_id=""),
        _without(member_epoch=-2),
        _without(rack_id=""),
        _without(rack_id="  "),
        _without(member_id="m\0"),
    ],
    ids=str,
)
def test_a_heartbeat_that_cannot_be_meant_is_refused(request_: group_pb2.ShareGroupHeartbeatRequest) -> None:
    world = group_world()
    assert code(world.ask(request_)) is ErrorCode.INVALID_REQUEST
    assert not world.groups.has()


@case(283)
def test_only_a_member_of_a_share_group_goes_on_with_its_epoch() -> None:
    shares = share_groups()
    assert code(shares.member().beats(5)) is ErrorCode.GROUP_ID_NOT_FOUND
    shares.member("first").joins("foo")
    assert code(shares.member("other").beats(1)) is ErrorCode.UNKNOWN_MEMBER_ID
    shares.world.consumers.member(group_id="consumers").joins("foo")
    stranger = shares.member(group_id="consumers")
    assert code(stranger.beats(1)) is ErrorCode.GROUP_ID_NOT_FOUND
    assert code(stranger.joins("foo")) is ErrorCode.GROUP_ID_NOT_FOUND


@case(285)
def test_who_leaves_makes_room_and_a_new_epoch() -> None:
    shares = share_groups(share_size_max=2)
    first, second = shares.members("first", "second")
    first.joins("foo")
    second.joins("foo")
    before = shares.epoch()
    assert second.leaves().member_epoch == -1
    assert (shares.epoch(), shares.member_ids()) == (before + 1, ["first"])
    assert code(second.joins("foo")) is OK
    assert code(shares.member("third").joins("foo")) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert code(second.joins("foo")) is OK


@case(286)
def test_settings_of_a_group_hold_from_the_next_heartbeat() -> None:
    shares = share_groups()
    member = shares.member()
    assert member.joins("foo").heartbeat_interval_ms == 5_000
    assert shares.alter(share_session_timeout_ms=50_000, share_heartbeat_interval_ms=10_000) is OK
    assert member.beats().heartbeat_interval_ms == 10_000
    shares.world.pass_time(49_999)
    assert shares.member_ids() == ["m"]
    shares.world.pass_time(1)
    assert shares.member_ids() == []


@case(287)
def test_a_share_group_is_described_and_deleted_once_it_is_empty() -> None:
    shares = share_groups()
    member = shares.member()
    member.joins("foo", "bar")
    described = shares.describe()
    assert (described.group_state, described.assignor_name) == ("Stable", "simple")
    assert described.group_epoch == described.assignment_epoch == member.epoch
    (shown,) = described.members
    assert (shown.member_id, list(shown.subscribed_topic_names)) == ("m", ["bar", "foo"])
    assert {(topic.topic, number) for topic in shown.assignment for number in topic.partitions} == all_of(foo=6, bar=3)
    assert shares.world.groups.listed() == {"g": ("share", "Stable", "share")}
    assert shares.world.groups.delete() is ErrorCode.NON_EMPTY_GROUP
    member.leaves()
    assert (shares.state(), shares.world.groups.listed()) == ("Empty", {"g": ("share", "Empty", "share")})
    assert shares.world.groups.delete() is OK
    assert code(shares.describe()) is ErrorCode.GROUP_ID_NOT_FOUND
    shares.world.consumers.member(group_id="consumers").joins("foo")
    assert code(shares.describe("consumers")) is ErrorCode.GROUP_ID_NOT_FOUND


def _with_a_share_group(*, is_empty: bool) -> ShareGroups:
    shares = share_groups()
    member = shares.member()
    member.joins("foo")
    if is_empty:
        member.leaves()
    return shares


@case(307)
@pytest.mark.parametrize("is_empty", [False, True])
def test_a_share_group_has_no_offsets(*, is_empty: bool) -> None:
    world = _with_a_share_group(is_empty=is_empty).world
    commit = group_pb2.OffsetCommitRequest(group_id="g", topics=topic_offsets({"foo-0": 1}))
    assert code(world.ask(commit)) is ErrorCode.GROUP_ID_NOT_FOUND
    producer = Producer(world, "id")
    producer.init()
    assert code(world.ask(producer.request({"foo-0": 1}))) is ErrorCode.ILLEGAL_GENERATION
    wanted = group_pb2.PartitionSet(topics=[common_pb2.TopicPartitions(topic="foo", partitions=[0])])
    fetch = group_pb2.OffsetFetchRequest(groups=[group_pb2.OffsetFetchGroup(group_id="g", topics=wanted)])
    (group,) = world.ask(fetch).groups
    assert (code(group), [each.committed_offset for each in group.offsets]) == (OK, [-1])
    delete = group_pb2.OffsetDeleteRequest(group_id="g", topics=wanted.topics)
    assert code(world.ask(delete)) is ErrorCode.GROUP_ID_NOT_FOUND
