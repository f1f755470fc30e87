"""H. Describe, List, Delete: ConsumerGroupDescribe."""

from __future__ import annotations

from coordinator_api.v1 import group_pb2
from coordinator_protocol.errors import ErrorCode
from tests.conformance.groups.cases import case
from tests.groups.consumer.members import OK, code
from tests.groups.consumer.mixed import MixedRoom


@case(122)
def test_a_description_shows_what_is_durable() -> None:
    room = MixedRoom()
    member = room.member()
    joining = room.call(member.request(**member.join_fields("foo")))
    assert code(room.describe()) is ErrorCode.GROUP_ID_NOT_FOUND
    room.settle()
    member.hears(joining.result())
    assert (code(room.describe()), room.epoch()) == (OK, 1)
    room.call(member.request(subscribed_topic_names=group_pb2.TopicNames(names=["bar"])))
    (described,) = room.describe().members
    assert (room.epoch(), list(described.subscribed_topic_names)) == (1, ["foo"])
    room.settle()
    (described,) = room.describe().members
    assert (room.epoch(), list(described.subscribed_topic_names)) == (2, ["bar"])


@case(123)
def test_only_consumer_groups_can_be_described_as_such() -> None:
    room = MixedRoom()
    room.classic_group(room.classic(group_id="classic"), plan={})
    asked = group_pb2.ConsumerGroupDescribeRequest(group_ids=["unknown", "", "classic"])
    assert [code(group) for group in room.told(asked).groups] == [
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.INVALID_GROUP_ID,
        ErrorCode.GROUP_ID_NOT_FOUND,
    ]
