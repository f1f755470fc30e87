"""Requests of share groups that no state allows, and what each of them is answered (spec groups 6.1-6.5).

Malformed acknowledgements have their table in `test_rules`, epochs of sessions in `test_sessions`, heartbeats in the
cases of conformance, TxnShareAcknowledge in `test_refused_in_transaction`.
"""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.message import Message

from coordinator_api.v1 import common_pb2, group_pb2, share_pb2
from coordinator_protocol.errors import ErrorCode
from tests.groups.share_partitions.pictures import picture
from tests.harness.group_world import group_world
from tests.harness.groups import GROUP, OK, code
from tests.harness.share_consumers import ShareConsumer, alter_shares, response_of, share_consumer
from tests.harness.share_groups import ShareMember
from tests.harness.share_partitions import Shares
from tests.harness.world import World

INVALID, UNKNOWN = ErrorCode.INVALID_REQUEST, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
ACK = share_pb2.AcknowledgementBatch(first_offset=0, last_offset=0, types=[1])


def group() -> tuple[World, ShareConsumer]:
    """A member that holds the two records of t-0, in a session."""
    world = group_world(topics={"t": 1, "u": 1})
    alter_shares(world, auto_offset_reset="earliest")
    consumer = share_consumer(world, "a", "t")
    Shares(world, "t-0", GROUP).produce(2)
    assert consumer.fetch() == {"t-0": [0, 1]}
    return world, consumer


def answer(world: World, request: Message) -> Any:
    asked = world.call(request)
    world.settle()
    return response_of(asked)


def named(topic: str = "t", partition: int = 0, *, topic_id: bytes = b"", acks: bool = True) -> Any:
    return share_pb2.SharePartition(
        topic=topic, topic_id=topic_id, partition=partition, acknowledgements=[ACK] if acks else []
    )


PARTITIONS: dict[str, tuple[list[Any], ErrorCode]] = {
    "a negative partition": ([named(partition=-1)], INVALID),
    "no topic": ([named(topic="")], INVALID),
    "a topic id of a wrong length": ([named(topic_id=b"short")], INVALID),
    "a partition that is named twice": ([named(), named()], INVALID),
}
"""Partitions that refuse the whole request."""


@pytest.mark.parametrize("why", PARTITIONS)
@pytest.mark.parametrize("by_fetch", [True, False])
def test_impossible_partitions_refuse_the_request_and_use_up_no_epoch(why: str, *, by_fetch: bool) -> None:
    world, consumer = group()
    partitions, expected = PARTITIONS[why]
    make = share_pb2.ShareFetchRequest if by_fetch else share_pb2.ShareAcknowledgeRequest
    request = make(group_id=GROUP, member_id="a", session_epoch=consumer.epoch, partitions=partitions)
    assert code(answer(world, request)) is expected
    assert picture(Shares(world, "t-0", GROUP).state) == "0: a1 a1"
    assert code(consumer.asks()) is OK


@pytest.mark.parametrize("by_fetch", [True, False])
@pytest.mark.parametrize(
    ("group_id", "member_id", "expected"),
    [
        ("", "a", ErrorCode.INVALID_GROUP_ID),
        ("g" * 1_001, "a", ErrorCode.INVALID_GROUP_ID),
        (GROUP, "", ErrorCode.SHARE_SESSION_NOT_FOUND),
        ("none", "a", ErrorCode.SHARE_SESSION_NOT_FOUND),
    ],
)
def test_names_without_a_group_or_member(group_id: str, member_id: str, expected: ErrorCode, *, by_fetch: bool) -> None:
    world, _consumer = group()
    make = share_pb2.ShareFetchRequest if by_fetch else share_pb2.ShareAcknowledgeRequest
    assert code(answer(world, make(group_id=group_id, member_id=member_id, session_epoch=1))) is expected


def test_a_partition_that_is_forgotten_has_a_name() -> None:
    world, consumer = group()
    forgotten = [common_pb2.TopicPartitions(topic="t", partitions=[-1])]
    request = share_pb2.ShareFetchRequest(
        group_id=GROUP, member_id="a", session_epoch=consumer.epoch, forgotten=forgotten
    )
    assert code(answer(world, request)) is INVALID


MISSING: dict[str, tuple[Any, ErrorCode]] = {
    "an unknown topic": (named("none"), UNKNOWN),
    "an unknown partition": (named(partition=9), UNKNOWN),
    "an unknown topic id": (named("", topic_id=b"i" * 16), ErrorCode.UNKNOWN_TOPIC_ID),
    "a partition that the group does not read": (named("u"), UNKNOWN),
}
"""Partitions that have an error of their own."""


@pytest.mark.parametrize("why", MISSING)
def test_a_partition_without_records_for_the_member_has_an_error_of_its_own(why: str) -> None:
    world, consumer = group()
    partition, expected = MISSING[why]
    acknowledge = share_pb2.ShareAcknowledgeRequest(
        group_id=GROUP, member_id="a", session_epoch=consumer.epoch, partitions=[partition, named()]
    )
    response = answer(world, acknowledge)
    assert (code(response), [code(each) for each in response.results]) == (OK, [expected, OK])
    assert picture(Shares(world, "t-0", GROUP).state) == "1: a1"
    partition.ClearField("acknowledgements")
    fetch = share_pb2.ShareFetchRequest(
        group_id=GROUP, member_id="a", session_epoch=consumer.epoch + 1, partitions=[partition]
    )
    response = answer(world, fetch)
    assert (code(response), [code(each) for each in response.results]) == (OK, [expected])
    partition.acknowledgements.append(ACK)


def test_who_is_no_member_cannot_leave() -> None:
    world, _consumer = group()
    assert code(ShareMember(world, "a", "none").leaves()) is ErrorCode.GROUP_ID_NOT_FOUND
    assert code(ShareMember(world, "b", GROUP).leaves()) is ErrorCode.UNKNOWN_MEMBER_ID


def offset(topic: str = "t", partition: int = 0, *, start_offset: int = 0, topic_id: bytes = b"") -> Any:
    return group_pb2.ShareStartOffset(topic=topic, topic_id=topic_id, partition=partition, start_offset=start_offset)


ALTERED: dict[str, tuple[list[Any], ErrorCode]] = {
    "a negative partition": ([offset(partition=-1)], INVALID),
    "no topic": ([offset("")], INVALID),
    "a partition that is named twice": ([offset(), offset()], INVALID),
}


@pytest.mark.parametrize("why", ALTERED)
def test_start_offsets_of_nothing_are_refused_as_a_whole(why: str) -> None:
    world, consumer = group()
    consumer.member.leaves()
    offsets, expected = ALTERED[why]
    assert code(world.ask(group_pb2.AlterShareGroupOffsetsRequest(group_id=GROUP, offsets=offsets))) is expected


def test_start_offsets_have_errors_of_their_own() -> None:
    world, consumer = group()
    consumer.member.leaves()
    offsets = [offset("none"), offset(partition=9), offset("", topic_id=b"i" * 16), offset(start_offset=-1)]
    response = world.ask(group_pb2.AlterShareGroupOffsetsRequest(group_id=GROUP, offsets=[*offsets, offset("u")]))
    expected = [UNKNOWN, UNKNOWN, ErrorCode.UNKNOWN_TOPIC_ID, INVALID, OK]
    assert [code(each) for each in response.results] == expected


@pytest.mark.parametrize("topics", [[""], ["t", "t"]], ids=["no name", "named twice"])
def test_topics_that_cannot_be_deleted(topics: list[str]) -> None:
    world, consumer = group()
    consumer.member.leaves()
    assert code(world.ask(group_pb2.DeleteShareGroupOffsetsRequest(group_id=GROUP, topics=topics))) is INVALID


@pytest.mark.parametrize(("topic", "expected"), [("none", UNKNOWN), ("a b", ErrorCode.INVALID_TOPIC_EXCEPTION)])
def test_an_unknown_topic_has_no_offsets_to_describe_or_delete(topic: str, expected: ErrorCode) -> None:
    world, consumer = group()
    consumer.member.leaves()
    response = world.ask(group_pb2.DeleteShareGroupOffsetsRequest(group_id=GROUP, topics=[topic]))
    assert [code(each) for each in response.topics] == [expected]
    wanted = group_pb2.PartitionSet(topics=[common_pb2.TopicPartitions(topic=topic, partitions=[0])])
    response = world.ask(group_pb2.DescribeShareGroupOffsetsRequest(group_id=GROUP, topics=wanted))
    assert [code(each) for each in response.offsets] == [expected]
