"""Planning asks the server for all positions at once, and takes no topic for another."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from coordinator_api.v1 import log_pb2 as log
from coordinator_api.v1.common_pb2 import ISOLATION_LEVEL_READ_UNCOMMITTED
from coordinator_client.fetch_reply import FetchReply, PartitionReply
from coordinator_client.transport.connection import Connection
from coordinator_client.transport.transport import Attempt
from coordinator_protocol.errors import ErrorCode
from coordinator_protocol.methods import Method
from coordinator_runtime.incarnation import IncarnationCause
from partition_log.leadership import divergence, epoch_at
from partition_log.state import EMPTY_HEAD, FIRST_LEADERSHIP, LeaderEpoch, Leadership
from pyspark_txnlog.bounds import Position
from pyspark_txnlog.connections import shared_connection
from pyspark_txnlog.options import SourceOptions, Topics, parse_options
from pyspark_txnlog.read.planning import UnknownTopic, plan_read
from pyspark_txnlog.read.ranges import DataLoss


class PositionsOnly:
    """A transport to a log whose partitions have positions and nothing else: earliest, LSO, high watermark."""

    is_direct = False

    def __init__(self, topics: Mapping[str, list[tuple[int, int, int]]]) -> None:
        self.topics = topics
        self.asked: list[Method] = []
        self.line = FIRST_LEADERSHIP
        """Leader epochs of every partition."""
        self.compared: list[log.FetchPartition] = []

    def start(self, rpc: Any, request: Any, *, timeout_ms: int, on_done: Callable[[Any], None]) -> Attempt:
        raise NotImplementedError("planning blocks")

    def ask(self, rpc: Any, request: Any, *, timeout_ms: int) -> Any:
        self.asked.append(rpc.method)
        match request:
            case log.DescribeTopicsRequest():
                return self._describe([topic.name for topic in request.topics] or sorted(self.topics))
            case log.ListOffsetsRequest():
                return self._list_offsets(request)
            case log.FetchRequest():
                return self._fetch(request)
            case _:
                raise NotImplementedError(rpc.method)

    def close(self) -> None:
        """Nothing is open."""

    def _describe(self, names: list[str]) -> log.DescribeTopicsResponse:
        reply = log.DescribeTopicsResponse()
        for name in names:
            topic = reply.topics.add(name=name, topic_id=topic_id(name))
            for number in range(len(self.topics[name])):
                topic.partitions.add(partition=number)
        return reply

    def _list_offsets(self, request: log.ListOffsetsRequest) -> log.ListOffsetsResponse:
        reply = log.ListOffsetsResponse()
        latest = 2 if request.isolation_level == ISOLATION_LEVEL_READ_UNCOMMITTED else 1
        for query in request.partitions:
            assert query.topic_id == topic_id(query.topic)
            position = self.topics[query.topic][query.partition]
            offset = position[0 if query.timestamp_ms == -2 else latest]
            reply.results.add(offset=offset, leader_epoch=epoch_at(self.line, offset))
        return reply

    def _fetch(self, request: log.FetchRequest) -> FetchReply:
        reply = FetchReply()
        for asked in request.partitions:
            assert asked.end_offset == asked.fetch_offset, "nothing is to be read"
            self.compared.append(asked)
            head = replace(
                EMPTY_HEAD, log_end_offset=self.topics[asked.topic][asked.partition][2], leadership=self.line
            )
            found = divergence(head, asked.last_read_epoch, asked.fetch_offset)
            result = log.FetchResult()
            if found is not None:
                result.error_code = ErrorCode.OFFSET_OUT_OF_RANGE.value
                result.diverging.CopyFrom(log.EpochEnd(epoch=found.epoch, end_offset=found.end_offset))
            reply.results.append(PartitionReply(result, ()))
        return reply


def topic_id(name: str) -> bytes:
    return name.encode().ljust(16, b"\0")


def plan(transport: PositionsOnly, topics: Topics, **options: Any) -> list[tuple[str, int, int, int]]:
    asked = SourceOptions(endpoint="h:1", topics=topics, **options)
    with Connection("h:1", open_transport=lambda _endpoint: transport) as connection:
        planned = plan_read(connection, asked)
    assert all(found.topic_id == topic_id(found.topic) for found in planned)
    return [(found.topic, found.partition, found.start_offset, found.end_offset) for found in planned]


@pytest.fixture
def two_topics() -> PositionsOnly:
    return PositionsOnly({"a": [(0, 10, 12), (3, 7, 7)], "b": [(0, 5, 9)]})


def test_all_positions_of_all_topics_are_asked_for_once(two_topics: PositionsOnly) -> None:
    assert plan(two_topics, Topics(names=("a", "b"))) == [("a", 0, 0, 10), ("a", 1, 3, 7), ("b", 0, 0, 5)]
    assert two_topics.asked == [Method.DESCRIBE_TOPICS, Method.LIST_OFFSETS]


def test_read_uncommitted_ends_at_the_high_watermark(two_topics: PositionsOnly) -> None:
    assert plan(two_topics, Topics(names=("b",)), isolation="read_uncommitted") == [("b", 0, 0, 9)]


def test_assigned_partitions_are_all_that_is_read(two_topics: PositionsOnly) -> None:
    assert plan(two_topics, Topics(assigned={"a": (1,)})) == [("a", 1, 3, 7)]


def test_a_partition_that_does_not_exist_is_named(two_topics: PositionsOnly) -> None:
    with pytest.raises(UnknownTopic, match="a has 2 partitions, counted from 0, and no 2"):
        plan(two_topics, Topics(assigned={"a": (1, 2)}))


def test_a_pattern_must_match_the_whole_name(two_topics: PositionsOnly) -> None:
    assert plan(two_topics, Topics(pattern="[b-z]")) == [("b", 0, 0, 5)]


def test_a_pattern_without_a_topic_reads_nothing_and_says_so(two_topics: PositionsOnly) -> None:
    with pytest.warns(RuntimeWarning, match="'x.*' matches no topic"):
        assert plan(two_topics, Topics(pattern="x.*")) == []


def test_a_topic_with_another_id_is_not_the_one_that_was_asked_for(two_topics: PositionsOnly) -> None:
    with pytest.raises(UnknownTopic, match=r"the topic a with the id 0101.* is gone"):
        plan(two_topics, Topics(names=("a",)), topic_ids={"a": b"\x01" * 16})


@pytest.fixture
def two_lines(two_topics: PositionsOnly) -> PositionsOnly:
    """The log was in epoch 2 from offset 4 on, until it was lost from 6 on; then it went on in epoch 5."""
    begun = [LeaderEpoch(epoch, start, 0, IncarnationCause.DATA_LOSS) for epoch, start in ((0, 0), (2, 4), (5, 6))]
    two_topics.line = Leadership(5, 5, tuple(begun))
    return two_topics


def of_b(position: Position) -> dict[str, dict[int, Position]]:
    return {"b": {0: position}}


def test_only_offsets_with_an_epoch_are_compared_with_the_log(two_lines: PositionsOnly) -> None:
    asked = SourceOptions(
        endpoint="h:1", topics=Topics(names=("b",)), starting=of_b(Position(2)), ending=of_b(Position(5, 2))
    )
    with Connection("h:1", open_transport=lambda _endpoint: two_lines) as connection:
        (planned,) = plan_read(connection, asked)
    assert (planned.start_offset, planned.end_offset, planned.leader_epoch) == (2, 5, 2)
    assert [(found.fetch_offset, found.last_read_epoch) for found in two_lines.compared] == [(5, 2)]


@pytest.mark.parametrize("option", ["starting", "ending"])
@pytest.mark.parametrize(
    ("position", "parted_at"),
    [
        (Position(9, 2), 6),
        (Position(7, 0), 4),
        (Position(5, 1), 4),
        (Position(9, 4), 6),
        (Position(4, 1), 4),
    ],
)
def test_an_offset_of_another_line_fails_the_read_and_says_from_where_on(
    two_lines: PositionsOnly, option: str, position: Position, parted_at: int
) -> None:
    with pytest.raises(
        DataLoss, match=f"{option}Offsets is of a log of b-0 .* went another way from offset {parted_at}"
    ):
        plan(two_lines, Topics(names=("b",)), isolation="read_uncommitted", **{option: of_b(position)})


@pytest.mark.parametrize("position", [Position(6, 2), Position(4, 0), Position(9, 5), Position(2, 2)])
def test_an_offset_of_this_line_is_read_on_from(two_lines: PositionsOnly, position: Position) -> None:
    planned = plan(two_lines, Topics(names=("b",)), isolation="read_uncommitted", starting=of_b(position))
    assert planned == [("b", 0, position.offset, 9)]


def test_a_process_has_one_connection_to_a_server() -> None:
    one, other = (parse_options({"endpoint": endpoint, "subscribe": "t"}) for endpoint in ("h:9", "h:10"))
    assert shared_connection(one) is shared_connection(one)
    assert shared_connection(one) is not shared_connection(other)
