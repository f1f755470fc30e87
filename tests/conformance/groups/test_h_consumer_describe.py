"""H. Describe, List, Delete: ConsumerGroupDescribe."""

from __future__ import annotations

from coordinator_api.v1 import group_pb2
from coordinator_protocol.errors import ErrorCode
from tests.conformance.groups.cases import case
from tests.harness.group_world import group_world
from tests.harness.groups import OK, code
from tests.harness.share_groups import ShareMember


@case(122)
def test_a_description_shows_what_is_durable() -> None:
    world = group_world()
    member = world.consumers.member()
    joining = world.call(member.request(**member.join_fields("foo")))
    assert code(world.consumers.describe()) is ErrorCode.GROUP_ID_NOT_FOUND
    world.settle()
    member.hears(joining.result())
    assert (code(world.consumers.describe()), world.consumers.epoch()) == (OK, 1)
    world.call(member.request(subscribed_topic_names=group_pb2.TopicNames(names=["bar"])))
    (described,) = world.consumers.describe().members
    assert (world.consumers.epoch(), list(described.subscribed_topic_names)) == (1, ["foo"])
    world.settle()
    (described,) = world.consumers.describe().members
    assert (world.consumers.epoch(), list(described.subscribed_topic_names)) == (2, ["bar"])


@case(123)
def test_only_consumer_groups_can_be_described_as_such() -> None:
    world = group_world()
    world.classic.form(world.classic.subscriber(group_id="classic"), plan={})
    ShareMember(world, group_id="share").joins("foo")
    asked = group_pb2.ConsumerGroupDescribeRequest(group_ids=["unknown", "", "classic", "share"])
    assert [code(group) for group in world.ask(asked).groups] == [
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.INVALID_GROUP_ID,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.GROUP_ID_NOT_FOUND,
    ]
