"""First and last offsets of a read, asked of a real server: by offsets, by times, and by a group's positions. No Spark
session."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from dataclasses import replace

import pytest
from pyspark.sql.datasource import InputPartition

from coordinator_client.admin.admin import Admin
from coordinator_client.errors import Rejected
from coordinator_client.transport import known_servers
from coordinator_client.transport.connection import Connection
from coordinator_client.values import OffsetAndMetadata, TopicPartition
from pyspark_txnlog import connections
from pyspark_txnlog.bounds import InvalidOption
from pyspark_txnlog.options import parse_options
from pyspark_txnlog.read.planning import measured_steps, plan_read, split_read
from pyspark_txnlog.read.ranges import DataLoss
from pyspark_txnlog.read.reading import PlannedPartition, RangeReader
from tests.spark.topics import Topics

pytestmark = pytest.mark.slow

Plan = Callable[..., list[tuple[int, int]]]


@pytest.fixture
def plan(topics: Topics) -> Plan:
    """Returns the range of each partition of a topic."""

    def planning(topic: str, **given: str) -> list[tuple[int, int]]:
        options = parse_options({"endpoint": topics.endpoint, "subscribe": topic} | given)
        with Connection(topics.endpoint, client_id="tests") as connection:
            return [(found.start_offset, found.end_offset) for found in plan_read(connection, options)]

    return planning


@pytest.fixture
def timed(topics: Topics) -> str:
    """Two batches in partition 0, the first with records that are younger than some behind them; one in 1."""
    topic = topics.create(2)
    topics.commit_at(topic, [(1_000, "a"), (3_000, "b"), (2_000, "c")])
    topics.commit_at(topic, [(4_000, "d"), (5_000, "e")], encoding="records")
    topics.commit_at(topic, [(1_000, "f"), (2_500, "g")], partition=1)
    return topic


@pytest.mark.parametrize(
    ("since_ms", "starts"), [("0", (0, 0)), ("1001", (1, 1)), ("2001", (1, 1)), ("2500", (1, 1)), ("1000", (0, 0))]
)
def test_a_read_begins_at_the_first_record_of_a_time_though_it_lies_inside_a_batch(
    plan: Plan, timed: str, since_ms: str, starts: tuple[int, int]
) -> None:
    assert plan(timed, startingTimestamp=since_ms) == [(starts[0], 7), (starts[1], 3)]


def test_a_read_ends_before_the_first_record_of_a_time_or_at_the_end(plan: Plan, timed: str) -> None:
    assert plan(timed, endingTimestamp="2500") == [(0, 1), (0, 1)]
    assert plan(timed, endingTimestamp="4500") == [(0, 5), (0, 3)]


def test_each_partition_may_have_a_time_of_its_own(plan: Plan, timed: str) -> None:
    starting, ending = json.dumps({timed: {"0": 4_000, "1": 2_000}}), json.dumps({timed: {"0": 4_500, "1": 9_000}})
    assert plan(timed, startingOffsetsByTimestamp=starting, endingOffsetsByTimestamp=ending) == [(4, 5), (1, 3)]
    with pytest.raises(
        InvalidOption, match=f"startingOffsets must name every partition that is read; it lacks {timed}-1"
    ):
        plan(timed, startingOffsetsByTimestamp=json.dumps({timed: {"0": 4_000}}))


def test_a_time_that_no_record_reaches_fails_the_read_unless_it_may_begin_at_the_end(plan: Plan, timed: str) -> None:
    with pytest.raises(
        InvalidOption, match=rf"{timed}-1 has no record from 4000 on .* startingOffsetsByTimestampStrategy"
    ):
        plan(timed, startingTimestamp="4000")
    assert plan(timed, startingTimestamp="4000", startingOffsetsByTimestampStrategy="latest") == [(4, 7), (3, 3)]


def test_records_that_are_not_decided_yet_have_no_time_for_a_committed_reader(
    plan: Plan, topics: Topics, timed: str
) -> None:
    topics.leave_open(timed, ["open"], partition=1)
    assert plan(timed, startingTimestamp="6000", startingOffsetsByTimestampStrategy="latest") == [(7, 7), (3, 3)]


def test_a_read_begins_where_a_group_stands_and_else_at_the_earliest(plan: Plan, topics: Topics, timed: str) -> None:
    group = f"{timed}-readers"
    committed = {TopicPartition(timed, 0): OffsetAndMetadata(4, leader_epoch=0)}
    with Connection(topics.endpoint, client_id="tests") as connection:
        Admin(connection).alter_group_offsets(group, committed)
    assert plan(timed, startingOffsets="group", groupId=group) == [(4, 7), (0, 3)]
    topics.delete_records(timed, 5)
    with pytest.raises(DataLoss, match=rf"{timed}-0 begins at 5 and the read at 4"):
        plan(timed, startingOffsets="group", groupId=group)


def test_an_unknown_group_has_no_position(plan: Plan, timed: str) -> None:
    assert plan(timed, startingOffsets="group", groupId=f"{timed}-nobody") == [(0, 7), (0, 3)]


def test_tasks_get_the_same_share_of_bytes_not_of_offsets(topics: Topics) -> None:
    topic = topics.create(2)
    topics.commit(topic, ["x" * 2_000] * 50)
    topics.abort(topic, ["x"] * 500)
    topics.commit(topic, ["x" * 10] * 500, partition=1)
    options = parse_options({"endpoint": topics.endpoint, "subscribe": topic, "minPartitions": "5"})
    with Connection(topics.endpoint, client_id="tests") as connection:
        planned = plan_read(connection, options)
        pieces = split_read(connection, options, planned)
        (step, *more), (other,) = measured_steps(connection, options, planned, step_bytes=1 << 30)
        assert split_read(connection, replace(options, min_partitions=2), planned) == planned
    assert (step.records, more, other.records) == (50, [], 500)
    assert [(piece.partition, piece.start_offset, piece.end_offset) for piece in pieces[:4]] == [
        (0, 0, 12),
        (0, 12, 25),
        (0, 25, 37),
        (0, 37, 552),
    ]


def test_no_task_gets_more_records_than_asked_for(topics: Topics) -> None:
    topic = topics.create()
    topics.commit(topic, ["x"] * 9)
    topics.abort(topic, ["x"] * 500)
    options = parse_options({"endpoint": topics.endpoint, "subscribe": topic, "maxRecordsPerPartition": "4"})
    with Connection(topics.endpoint, client_id="tests") as connection:
        pieces = split_read(connection, options, plan_read(connection, options))
    assert [(piece.start_offset, piece.end_offset) for piece in pieces] == [(0, 4), (4, 8), (8, 511)]


def task(topics: Topics, topic: str, **given: str) -> tuple[RangeReader, list[InputPartition]]:
    """A read that is planned, as its tasks get it."""
    reader = RangeReader(parse_options({"endpoint": topics.endpoint, "subscribe": topic} | given))
    return reader, reader.partitions()


def test_a_topic_that_is_trimmed_under_a_read_fails_its_task_with_what_is_gone(topics: Topics) -> None:
    topic = topics.create()
    topics.commit(topic, ["a", "b", "c"])
    reader, (planned,) = task(topics, topic)
    topics.delete_records(topic, 2)
    with pytest.raises(
        Rejected,
        match=rf"OFFSET_OUT_OF_RANGE.*{topic}-0 at offset 0: offset 0 is not in the log, which goes from 2 to 4",
    ):
        list(reader.read(planned))


def test_what_is_left_of_a_trimmed_topic_is_read_where_a_loss_is_not_fatal(topics: Topics) -> None:
    topic = topics.create()
    topics.commit(topic, ["a"])
    topics.commit(topic, ["b", "c"])
    reader, (planned,) = task(topics, topic, failOnDataLoss="false", columns="offset")
    report, (range_of_all,) = task(topics, topic, failOnDataLoss="false", report="ranges")
    topics.delete_records(topic, 3)
    with pytest.warns(RuntimeWarning, match=f"{topic}-0 begins at 3 by now and the read was at 0"):
        assert [rows.to_pydict() for rows in reader.read(planned)] == [{"offset": [3]}]
    with pytest.warns(RuntimeWarning, match="records before it are gone"):
        (row,) = next(iter(report.read(range_of_all))).to_pylist()
    assert (row["startOffset"], row["endOffset"], row["rows"], row["controlRecords"]) == (0, 5, 1, 1)
    topics.delete_records(topic, -1)
    with pytest.warns(RuntimeWarning, match=f"{topic}-0 begins at 5 by now"):
        assert list(reader.read(planned)) == []


def test_a_topic_that_is_deleted_under_a_read_fails_its_task(topics: Topics) -> None:
    topic = topics.create()
    topics.commit(topic, ["a"])
    reader, (planned,) = task(topics, topic)
    topics.delete(topic)
    advice = r"was deleted \(UNKNOWN_TOPIC_\w+\); set failOnDataLoss to false to go on with what is there"
    with pytest.raises(DataLoss, match=f"{topic}-0 is gone while it was read: .*{advice}"):
        list(reader.read(planned))
    with pytest.raises(Rejected, match=f"UNKNOWN_TOPIC_OR_PARTITION.*{topic}"):
        reader.partitions()


LOST = "127.0.0.1:9"
"""An address at which no server answers."""


def test_a_new_worker_goes_on_at_a_server_that_only_its_planner_knew(topics: Topics) -> None:
    topic = topics.create()
    topics.commit(topic, ["a", "b"])
    _, (planned,) = task(topics, topic)
    # A worker that Spark forks later knows the option alone.
    worker = RangeReader(parse_options({"endpoint": LOST, "subscribe": topic}))
    work = pickle.loads(pickle.dumps(PlannedPartition(planned.value, (LOST, topics.endpoint))))
    assert sum(batch.num_rows for batch in worker.read(work)) == 2


def test_a_plan_names_the_servers_that_its_process_knows(topics: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = topics.create()
    topics.commit(topic, ["a"])
    # Other tests of this process go on with what it knew.
    monkeypatch.setattr(connections, "_CONNECTIONS", {})
    monkeypatch.setattr(known_servers, "_KNOWN", {})
    options = parse_options({"endpoint": topics.endpoint, "subscribe": topic})
    connections.shared_connection(options).add_known_servers([LOST])
    (planned,) = RangeReader(options).partitions()
    assert isinstance(planned, PlannedPartition)
    assert planned.known_servers == (topics.endpoint, LOST)
