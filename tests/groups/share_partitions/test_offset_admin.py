"""Administrators see and move the offsets of share groups."""

from __future__ import annotations

from typing import Any

from coordinator_api.v1 import common_pb2, group_pb2
from coordinator_protocol.errors import ErrorCode
from tests.harness.group_world import group_world
from tests.harness.groups import GROUP, OK, code
from tests.harness.share_consumers import ACCEPT, REJECT, ShareConsumer, alter_shares, response_of, share_consumer
from tests.harness.share_partitions import Shares
from tests.harness.world import World


def read_group(**settings: int | str) -> tuple[World, ShareConsumer]:
    """A group that reads `t` from the beginning, with ten records in t-0 and none in t-1."""
    world = group_world(topics={"t": 2, "u": 1})
    alter_shares(world, **{"auto_offset_reset": "earliest", **settings})
    consumer = share_consumer(world, "a", "t")
    Shares(world, "t-0", GROUP).produce(5, 5)
    return world, consumer


def described(world: World, group_id: str = GROUP, **topics: list[int]) -> dict[str, tuple[int, int]]:
    """Start offset and lag of each partition; of all that the group reads, if none is named."""
    wanted = [common_pb2.TopicPartitions(topic=topic, partitions=numbers) for topic, numbers in topics.items()]
    request = group_pb2.DescribeShareGroupOffsetsRequest(
        group_id=group_id, topics=group_pb2.PartitionSet(topics=wanted) if topics else None
    )
    response = world.ask(request)
    assert code(response) is OK, response
    assert all(code(each) is OK for each in response.offsets), response
    return {f"{each.topic}-{each.partition}": (each.start_offset, each.lag) for each in response.offsets}


def altering(world: World, offset: int, partition: int = 0, topic: str = "t", group_id: str = GROUP) -> Any:
    wanted = group_pb2.ShareStartOffset(topic=topic, partition=partition, start_offset=offset)
    return world.ask(group_pb2.AlterShareGroupOffsetsRequest(group_id=group_id, offsets=[wanted]))


def altered(world: World, offset: int, partition: int = 0, topic: str = "t") -> ErrorCode:
    response = altering(world, offset, partition, topic)
    assert code(response) is OK, response
    return code(response.results[0])


def deleting(world: World, *topics: str, group_id: str = GROUP) -> Any:
    return world.ask(group_pb2.DeleteShareGroupOffsetsRequest(group_id=group_id, topics=topics))


def test_the_lag_counts_what_is_not_done() -> None:
    world, a = read_group()
    assert described(world) == {"t-0": (-1, -1), "t-1": (-1, -1)}
    a.fetch()
    assert described(world) == {"t-0": (0, 10), "t-1": (0, 0)}
    a.acknowledge("t-0", (2, 3, ACCEPT), (9, 9, REJECT))
    assert described(world) == {"t-0": (0, 7), "t-1": (0, 0)}
    a.acknowledge("t-0", (0, 1, ACCEPT))
    assert described(world) == {"t-0": (4, 5), "t-1": (0, 0)}
    Shares(world, "t-0", GROUP).trim(8)
    assert described(world, t=[0]) == {"t-0": (4, 2)}


def test_named_partitions_are_described_and_those_that_the_group_does_not_read_have_no_offset() -> None:
    world, a = read_group()
    a.fetch()
    assert described(world, u=[0], t=[1]) == {"u-0": (-1, -1), "t-1": (0, 0)}
    wanted = [common_pb2.TopicPartitions(topic=topic, partitions=[7]) for topic in ("t", "x")]
    request = group_pb2.DescribeShareGroupOffsetsRequest(group_id=GROUP, topics=group_pb2.PartitionSet(topics=wanted))
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [code(each) for each in world.ask(request).offsets] == [unknown, unknown]


def test_only_share_groups_are_described_and_changed() -> None:
    world, _a = read_group()
    world.consumers.member(group_id="consumers").joins("t")
    for group_id in ("nobody", "consumers"):
        request = group_pb2.DescribeShareGroupOffsetsRequest(group_id=group_id)
        assert code(world.ask(request)) is ErrorCode.GROUP_ID_NOT_FOUND
        assert code(altering(world, 0, group_id=group_id)) is ErrorCode.GROUP_ID_NOT_FOUND
        assert code(deleting(world, "t", group_id=group_id)) is ErrorCode.GROUP_ID_NOT_FOUND


def test_a_group_with_members_is_not_changed() -> None:
    world, a = read_group()
    a.fetch()
    assert code(altering(world, 3)) is ErrorCode.NON_EMPTY_GROUP
    assert code(deleting(world, "t")) is ErrorCode.NON_EMPTY_GROUP
    assert described(world, t=[0]) == {"t-0": (0, 10)}


def test_an_empty_group_begins_anew_where_it_is_told() -> None:
    world, a = read_group()
    a.fetch()
    a.acknowledge("t-0", (0, 9, ACCEPT))
    a.member.leaves()
    world.settle()
    assert altered(world, 7) is OK
    assert described(world, t=[0]) == {"t-0": (7, 3)}
    world.crash()
    assert described(world, t=[0]) == {"t-0": (7, 3)}
    assert share_consumer(world, "b", "t").fetch() == {"t-0": [7, 8, 9]}
    world.check_replay()
    world.check_stored()


def test_an_offset_beyond_the_log_is_its_end_and_a_negative_one_is_refused() -> None:
    world, a = read_group()
    a.member.leaves()
    world.settle()
    Shares(world, "t-0", GROUP).trim(4)
    assert altered(world, 2) is OK
    assert described(world, t=[0]) == {"t-0": (4, 6)}
    assert altered(world, 99) is OK
    assert described(world, t=[0]) == {"t-0": (10, 0)}
    assert altered(world, -1) is ErrorCode.INVALID_REQUEST
    assert altered(world, 0, 7) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert described(world, t=[0]) == {"t-0": (10, 0)}


def test_a_partition_that_the_group_did_not_read_may_have_an_offset() -> None:
    world, a = read_group()
    a.member.leaves()
    world.settle()
    Shares(world, "u-0", GROUP).produce(3)
    assert altered(world, 2, topic="u") is OK
    assert described(world) == {"t-0": (-1, -1), "t-1": (-1, -1), "u-0": (2, 1)}
    b = share_consumer(world, "b", "u")
    assert b.fetch() == {"u-0": [2]}
    world.check_replay()
    world.check_stored()


def test_what_is_deleted_begins_where_the_settings_say() -> None:
    world, a = read_group()
    a.fetch()
    a.acknowledge("t-0", (0, 9, ACCEPT))
    a.member.leaves()
    world.settle()
    response = deleting(world, "t", "u", "x")
    assert [code(each) for each in response.topics] == [OK, OK, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert described(world) == {}
    world.crash()
    assert described(world) == {}
    b = share_consumer(world, "b", "t")
    assert b.fetch() == {"t-0": [*range(10)]}
    world.check_replay()
    world.check_stored()


def test_what_is_deleted_begins_with_the_records_of_some_time_again() -> None:
    world, a = read_group(auto_offset_reset="by_duration:PT30S")
    for name, offsets in (("a", [*range(10)]), ("b", [10])):
        consumer = a if name == "a" else share_consumer(world, name, "t")
        asked = consumer.fetching(max_wait_ms=1_000)
        world.settle()
        assert consumer.acquired(response_of(asked)) == {"t-0": offsets}
        consumer.member.leaves()
        world.settle()
        assert [code(each) for each in deleting(world, "t").topics] == [OK]
        world.pass_time(40_000)
        Shares(world, "t-0", GROUP).produce(1)


def test_a_fetch_that_was_planned_before_an_offset_moved_acquires_nothing_of_it() -> None:
    world, a = read_group()
    a.fetch(max_records=5)
    a.member.leaves()
    world.settle()
    assert altered(world, 0) is OK
    b = share_consumer(world, "b", "t")
    assert b.fetch() == {"t-0": [*range(10)]}
    assert b.counts() == dict.fromkeys(range(10), 1)
