"""Members of consumer groups over Kafka's protocol, and what is told of their groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from coordinator_protocol.errors import ErrorCode
from coordinator_server.kafka_front.access_bits import NOT_ASKED
from coordinator_server.kafka_front.apis import ApiKey
from coordinator_server.kafka_front.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from coordinator_server.kafka_front.messages.consumer_group_describe_response import DescribedGroup
from coordinator_server.kafka_front.messages.consumer_group_heartbeat_request import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from coordinator_server.kafka_front.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse
from tests.harness.consumers import of
from tests.harness.group_world import group_world
from tests.harness.kafka_caller import KafkaCaller
from tests.harness.world import World

Owned = dict[bytes, list[int]]


@dataclass
class KafkaConsumer:
    """One client. It keeps what it was last told."""

    world: World
    member_id: str = "m"
    epoch: int = 0
    version: int = 1

    def beats(self, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        said = {"group_id": "g", "member_id": self.member_id, "member_epoch": self.epoch, **fields}
        reply = KafkaCaller(self.world).begin(
            ApiKey.CONSUMER_GROUP_HEARTBEAT, self.version, ConsumerGroupHeartbeatRequest(**said)
        )
        self.world.settle()
        response: ConsumerGroupHeartbeatResponse = reply.result()
        if not response.error_code:
            assert response.member_id is not None
            self.member_id, self.epoch = response.member_id, response.member_epoch
        return response

    def joins(self, *topics: str, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        said = {"subscribed_topic_names": topics, "rebalance_timeout_ms": 60_000, "topic_partitions": (), **fields}
        return self.beats(**said)


def assigned(response: ConsumerGroupHeartbeatResponse) -> Owned:
    assert response.assignment is not None
    return {each.topic_id: list(each.partitions) for each in response.assignment.topic_partitions}


def topic_id(world: World, topic: str) -> bytes:
    return world.inside.catalog.resolve(topic, b"", 0).topic_id


def owned(held: Owned) -> tuple[TopicPartitions, ...]:
    return tuple(TopicPartitions(topic_id=topic_id, partitions=tuple(numbers)) for topic_id, numbers in held.items())


def described(world: World, group_id: str = "g", *, version: int = 1, **fields: Any) -> DescribedGroup:
    request = ConsumerGroupDescribeRequest(group_ids=(group_id,), **fields)
    (group,) = KafkaCaller(world).call(ApiKey.CONSUMER_GROUP_DESCRIBE, version, request).groups
    found: DescribedGroup = group
    return found


@pytest.fixture
def world() -> World:
    return group_world()


@pytest.mark.parametrize("version", [0, 1])
def test_a_member_is_told_its_partitions_by_topic_id(world: World, version: int) -> None:
    consumer = KafkaConsumer(world, version=version)
    joined = consumer.joins("foo", "zar")
    assert (joined.error_code, joined.error_message, joined.member_id) == (ErrorCode.NONE, None, "m")
    assert joined.heartbeat_interval_ms == 5_000
    held = {topic_id(world, "foo"): list(range(6)), topic_id(world, "zar"): [0]}
    assert assigned(joined) == held
    again = consumer.beats(topic_partitions=owned(held))
    assert (again.error_code, again.assignment) == (ErrorCode.NONE, None)


def test_the_server_makes_the_member_id_of_version_0(world: World) -> None:
    consumer = KafkaConsumer(world, member_id="", version=0)
    assert consumer.joins("foo").error_code == ErrorCode.NONE
    assert consumer.member_id


def test_a_member_makes_its_own_id_from_version_1_on(world: World) -> None:
    refused = KafkaConsumer(world, member_id="").joins("foo")
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    assert refused.error_message is not None
    assert "member id" in refused.error_message
    assert refused.member_id is None


def test_members_hear_of_changes_with_their_next_heartbeat(world: World) -> None:
    first, second = KafkaConsumer(world, "first"), KafkaConsumer(world, "second")
    foo = topic_id(world, "foo")
    assert assigned(first.joins("foo")) == {foo: list(range(6))}
    assert assigned(second.joins("foo")) == {}
    first_told = assigned(first.beats())
    assert len(first_told[foo]) == 3
    first.beats(topic_partitions=owned(first_told))
    second_told = assigned(second.beats())
    assert sorted(first_told[foo] + second_told[foo]) == list(range(6))


def test_a_pattern_selects_topics_from_version_1_on(world: World) -> None:
    consumer = KafkaConsumer(world)
    consumer.joins(subscribed_topic_names=None, subscribed_topic_regex="(foo|bar)")
    # The topics are looked up behind the join.
    world.pass_time(0)
    told = consumer.beats()
    assert set(assigned(told)) == {topic_id(world, "foo"), topic_id(world, "bar")}
    refused = KafkaConsumer(world, "other").joins(subscribed_topic_names=None, subscribed_topic_regex="(")
    assert refused.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION


def test_a_member_leaves_and_comes_back(world: World) -> None:
    consumer = KafkaConsumer(world)
    consumer.joins("foo")
    left = consumer.beats(member_epoch=-1)
    assert (left.error_code, left.member_epoch) == (ErrorCode.NONE, -1)
    consumer.epoch = 0
    assert consumer.joins("foo").error_code == ErrorCode.NONE


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"rebalance_timeout_ms": -1}, ErrorCode.INVALID_REQUEST),
        ({"topic_partitions": None}, ErrorCode.INVALID_REQUEST),
        ({"subscribed_topic_names": None}, ErrorCode.INVALID_REQUEST),
        ({"server_assignor": "best"}, ErrorCode.UNSUPPORTED_ASSIGNOR),
        ({"member_epoch": 7}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_a_wrong_heartbeat_is_refused_with_a_message(world: World, fields: dict[str, Any], code: ErrorCode) -> None:
    KafkaConsumer(world, "other").joins("foo")
    refused = KafkaConsumer(world).joins("foo", **fields)
    assert refused.error_code == code
    assert refused.error_message


def test_a_member_of_an_older_epoch_is_fenced(world: World) -> None:
    consumer = KafkaConsumer(world)
    consumer.joins("foo")
    assert consumer.beats(member_epoch=consumer.epoch + 1).error_code == ErrorCode.FENCED_MEMBER_EPOCH


def test_members_of_both_doors_share_a_group(world: World) -> None:
    kafka, grpc = KafkaConsumer(world, "kafka"), world.consumers.member("grpc")
    kafka.joins("foo")
    grpc.joins("foo")
    told = assigned(kafka.beats())
    kafka.beats(topic_partitions=owned(told))
    grpc.beats()
    numbers = told[topic_id(world, "foo")]
    assert len(numbers) == 3
    assert grpc.assigned == of("foo", *(set(range(6)) - set(numbers)))


def test_a_group_is_described(world: World) -> None:
    consumer = KafkaConsumer(world)
    consumer.joins("foo", instance_id="i", rack_id="r")
    group = described(world)
    assert (group.error_code, group.group_state, group.assignor_name) == (ErrorCode.NONE, "Stable", "uniform")
    assert group.group_epoch == group.assignment_epoch == consumer.epoch
    (member,) = group.members
    assert (member.member_id, member.instance_id, member.rack_id) == ("m", "i", "r")
    assert (member.client_id, member.client_host) == ("a-kafka-client", "/1.2.3.4")
    assert member.subscribed_topic_regex == ""
    assert (member.subscribed_topic_names, member.member_type) == (["foo"], 1)
    (share,) = member.assignment.topic_partitions
    assert (share.topic_name, share.topic_id, share.partitions) == ("foo", topic_id(world, "foo"), list(range(6)))
    assert member.target_assignment == member.assignment
    assert group.authorized_operations == NOT_ASKED


def test_a_member_is_described_with_partitions_that_it_has_yet_to_revoke(world: World) -> None:
    first = KafkaConsumer(world, "first")
    first.joins("foo")
    KafkaConsumer(world, "second").joins("foo")
    assert len(assigned(first.beats())[topic_id(world, "foo")]) == 3
    (member, _other) = described(world).members
    (share,), (target,) = member.assignment.topic_partitions, member.target_assignment.topic_partitions
    assert (share.partitions, len(target.partitions)) == (list(range(6)), 3)


def test_the_operations_on_a_group_are_told_on_request(world: World) -> None:
    KafkaConsumer(world).joins("foo")
    group = described(world, include_authorized_operations=True)
    read, delete, describe, describe_configs, alter_configs = (1 << bit for bit in (3, 6, 8, 10, 11))
    assert group.authorized_operations == read | delete | describe | describe_configs | alter_configs


def test_an_unknown_group_and_one_of_another_kind_are_refused(world: World) -> None:
    world.offsets.commits({"foo-0": 1}, group_id="classic")
    for group_id in ("unknown", "classic"):
        group = described(world, group_id)
        assert (group.group_id, group.error_code) == (group_id, ErrorCode.GROUP_ID_NOT_FOUND)
        assert group.error_message
