"""The reader of streams, asked as Spark asks it, against a real server; no Spark session. What it remembers from one
trigger to the next, what a trigger costs, and how it waits."""

from __future__ import annotations

import sys
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from coordinator_client.admin.admin import Admin
from coordinator_client.errors import Loss, Rejected, Retriable, rejected
from coordinator_client.transport.connection import Connection
from coordinator_protocol.errors import ErrorCode
from coordinator_protocol.methods import Method
from pyspark_txnlog import connections
from pyspark_txnlog.options import RPC_TIMEOUT_MS, parse_options
from pyspark_txnlog.read import planning, stream_source
from pyspark_txnlog.read.planning import UnknownTopic
from pyspark_txnlog.read.ranges import DataLoss
from pyspark_txnlog.read.stream_offsets import StreamPosition
from pyspark_txnlog.read.stream_source import StreamReader
from tests.harness.manual_clock import ManualClock
from tests.spark.test_planning import PositionsOnly
from tests.spark.topics import Topics

T = TypeVar("T")
MakeReader = Callable[..., StreamReader]


@pytest.fixture
def reader(topics: Topics) -> MakeReader:
    def making(topic: str, **options: str) -> StreamReader:
        asked = {"endpoint": topics.endpoint, "subscribe": topic, "startingOffsets": "earliest"} | options
        return StreamReader(parse_options(asked, is_stream=True))

    return making


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Method]:
    """Every call to the server, as it is made."""
    methods: list[Method] = []
    ask = Connection.ask

    def noting(self: Connection, rpc: Any, *args: Any, **kwargs: Any) -> Any:
        methods.append(rpc.method)
        return ask(self, rpc, *args, **kwargs)

    monkeypatch.setattr(Connection, "ask", noting)
    return methods


def next_end(reader: StreamReader, start: dict[str, Any]) -> dict[str, Any]:
    return reader.latestOffset(start, ReadAllAvailable())


def read(reader: StreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[str]:
    parts = reader.partitions(start, end)
    return [value.as_py().decode() for part in parts for rows in reader.read(part) for value in rows.column("value")]


def test_an_empty_trigger_is_two_calls_however_much_is_hidden(
    reader: MakeReader, topics: Topics, asked: list[Method]
) -> None:
    topic = topics.create(3)
    topics.commit(topic, ["a"])
    stream = reader(topic)
    stood = next_end(stream, stream.initialOffset())
    topics.abort(topic, ["x"] * 10)
    assert next_end(stream, stood) is stood
    asked.clear()

    for _ in range(5):
        assert next_end(stream, stood) is stood

    assert asked == [Method.DESCRIBE_TOPICS, Method.LIST_OFFSETS] * 5


def test_hidden_records_that_were_deleted_ahead_of_a_stream_are_no_loss(reader: MakeReader, topics: Topics) -> None:
    topic = topics.create()
    topics.commit(topic, ["a"])
    stream = reader(topic)
    stood = next_end(stream, stream.initialOffset())
    topics.abort(topic, ["x", "y"])
    assert next_end(stream, stood) is stood
    topics.delete_records(topic, 4)

    moved = next_end(stream, stood)

    assert (moved[topic], read(stream, stood, moved)) == ({"0": 5}, [])
    assert next_end(reader(topic), moved) is moved, "one that starts anew knows it by the checkpoint"
    topics.commit(topic, ["b"])
    assert read(stream, moved, next_end(stream, moved)) == ["b"]


def test_hidden_records_that_were_deleted_while_no_stream_looked_are_told_as_a_loss(
    reader: MakeReader, topics: Topics
) -> None:
    topic = topics.create()
    topics.commit(topic, ["a"])
    stream = reader(topic)
    stood = next_end(stream, stream.initialOffset())
    topics.abort(topic, ["x", "y"])
    topics.commit(topic, ["b"])
    topics.delete_records(topic, 5)

    # The log does not keep what was hidden of that which is gone. A loss that was none costs a look, one that goes
    # untold costs records.
    with pytest.raises(DataLoss, match="begins at 5 and the stream at 2"):
        next_end(reader(topic), stood)
    going_on = reader(topic, failOnDataLoss="false")
    with pytest.warns(RuntimeWarning, match="begins at 5 and the stream at 2"):
        end = next_end(going_on, stood)
    assert read(going_on, stood, end) == ["b"]


def test_visible_records_that_were_deleted_behind_hidden_ones_are_a_loss(reader: MakeReader, topics: Topics) -> None:
    topic = topics.create()
    topics.commit(topic, ["a"])
    stream = reader(topic)
    stood = next_end(stream, stream.initialOffset())
    topics.abort(topic, ["x", "y"])
    assert next_end(stream, stood) is stood
    topics.commit(topic, ["lost"])
    topics.delete_records(topic, 6)

    with pytest.raises(DataLoss, match="begins at 6 and the stream at 2"):
        next_end(stream, stood)


def test_visible_records_that_a_limit_left_behind_and_that_are_deleted_are_a_loss(
    reader: MakeReader, topics: Topics
) -> None:
    topic = topics.create(2)
    topics.commit(topic, ["lost"])
    topics.commit(topic, ["b"], partition=1)
    stream = reader(topic, maxRecordsPerTrigger="1")
    stood = stream.latestOffset(stream.initialOffset(), stream.getDefaultReadLimit())
    assert stood[topic] == {"0": 0, "1": 2}
    topics.delete_records(topic, 1)

    with pytest.raises(DataLoss, match="begins at 1 and the stream at 0"):
        stream.latestOffset(stood, stream.getDefaultReadLimit())


def test_a_stream_that_waits_for_more_offsets_does_not_wait_for_ever(
    reader: MakeReader, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    monkeypatch.setattr(stream_source, "_now_ms", clock.monotonic_ms)
    topic = topics.create()
    topics.commit(topic, ["a"])
    stream = reader(topic, minOffsetsPerTrigger="10", maxTriggerDelay="5m")
    limit = stream.getDefaultReadLimit()
    stood = stream.latestOffset(stream.initialOffset(), limit)
    assert stood[topic] == {"0": 2}, "the first micro-batch comes at once, as in Kafka's source"
    topics.commit(topic, ["b"])

    clock.advance(5 * 60_000 - 1)
    assert stream.latestOffset(stood, limit) is stood
    clock.advance(1)
    late = stream.latestOffset(stood, limit)
    assert late[topic] == {"0": 4}
    topics.commit(topic, [str(number) for number in range(9)])
    assert stream.latestOffset(late, limit)[topic] == {"0": 14}


def test_a_stream_keeps_a_group_where_it_stands(
    reader: MakeReader, topics: Topics, admin: Admin, asked: list[Method]
) -> None:
    topic = topics.create()
    group = f"{topic}-lake"
    topics.commit(topic, ["a"])
    stream = reader(topic, groupId=group)
    start = stream.initialOffset()
    end = next_end(stream, start)
    assert committed(admin, group) == {(topic, 0): (0, 0)}, "the micro-batch is not written yet"
    asked.clear()

    assert next_end(stream, end) is next_end(stream, end) is end

    assert committed(admin, group) == {(topic, 0): (2, 0)}
    assert asked.count(Method.OFFSET_COMMIT) == 1


def committed(admin: Admin, group: str) -> dict[tuple[str, int], tuple[int, int | None]]:
    return {
        (found.partition.topic, found.partition.partition): (found.committed.offset, found.committed.leader_epoch)
        for found in admin.group_offsets(group)
        if found.committed
    }


def test_a_group_that_refuses_fails_the_start_of_a_stream_and_later_only_warns(
    reader: MakeReader, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = topics.create()
    topics.commit(topic, ["a"])
    publish, is_refused = planning.publish_offsets, [True]

    def refusing(*args: Any) -> None:
        if is_refused[0]:
            raise rejected(ErrorCode.NON_EMPTY_GROUP, "the group has members")
        publish(*args)

    monkeypatch.setattr(planning, "publish_offsets", refusing)
    stream = reader(topic, groupId=f"{topic}-lake")
    start = stream.initialOffset()
    with pytest.raises(Rejected, match="has members"):
        next_end(stream, start)
    is_refused[0] = False
    end = next_end(stream, start)
    is_refused[0] = True
    with pytest.warns(RuntimeWarning, match="not published: .*has members"):
        assert next_end(stream, end) is end


def test_where_a_stream_stood_in_a_topic_is_not_published_in_another_one_of_its_name(topics: Topics) -> None:
    topic, other = topics.create(), topics.create()
    group = f"{topic}-lake"
    stands = {(name, 0): StreamPosition(topics.topic_id(name), 1) for name in (topic, other)}
    topics.recreate(topic)
    topics.commit(topic, ["a", "b"])
    options = parse_options(
        {"endpoint": topics.endpoint, "subscribe": f"{topic},{other}", "groupId": group}, is_stream=True
    )
    with Connection(topics.endpoint, client_id="tests") as connection:
        planning.publish_offsets(connection, options, stands)
        (published,) = Admin(connection).group_offsets(group)
    assert published.partition == (other, 0)


def test_a_topic_must_have_the_id_that_is_wanted(reader: MakeReader, topics: Topics) -> None:
    topic = topics.create()
    strange = f'{{"{topic}":"{"00" * 15}01"}}'
    with pytest.raises(UnknownTopic, match="is gone; another one of that name was created"):
        reader(topic, topicIds=strange).initialOffset()


def test_a_topic_that_the_cluster_of_a_checkpoint_had_and_this_one_has_not_is_named(
    reader: MakeReader, topics: Topics
) -> None:
    topic, other = topics.create(), topics.create()
    stood = reader(topic).initialOffset()
    moved = {**stood, other: stood[topic], "$topicIds": {**stood["$topicIds"], other: "ff" * 16}}
    with pytest.raises(DataLoss, match=f"{other}-0 is gone, and the stream was at 0 there"):
        next_end(reader(topic), moved)


@pytest.mark.parametrize("module", ["pyarrow", "grpc"])
def test_a_python_that_lacks_a_package_is_told_once(
    reader: MakeReader, topics: Topics, monkeypatch: pytest.MonkeyPatch, module: str
) -> None:
    topic = topics.create()
    topics.commit(topic, ["a"])
    stream = reader(topic)
    start = stream.initialOffset()
    (part,) = stream.partitions(start, next_end(stream, start))
    monkeypatch.setitem(sys.modules, module, None)
    for asking in (stream.initialOffset, lambda: next_end(stream, start), lambda: list(stream.read(part))):
        with pytest.raises(ImportError, match=rf"needs {module}, and .* cannot import it .*: install"):
            asking()


class PausingClock(ManualClock):
    """A clock on which pauses make time pass."""

    def pause(self, wait_ms: int) -> None:
        self.advance(wait_ms)

    def take(self, inbox: SimpleQueue[T], wait_ms: int) -> T | None:
        self.advance(wait_ms if inbox.empty() else 0)
        return None if inbox.empty() else inbox.get()


class Away(PositionsOnly):
    """A server that cannot be reached for a while."""

    def __init__(self, clock: ManualClock, away_ms: int) -> None:
        super().__init__({"a": [(0, 10, 10)]})
        self._clock = clock
        self._back_ms = clock.monotonic_ms() + away_ms

    def ask(self, rpc: Any, request: Any, *, timeout_ms: int) -> Any:
        if self._clock.monotonic_ms() < self._back_ms:
            return Loss("UNAVAILABLE", "connection refused", is_without_effect=True)
        return super().ask(rpc, request, timeout_ms=timeout_ms)


@pytest.mark.parametrize(("away_ms", "is_over"), [(60_000, False), (100_000, False), (RPC_TIMEOUT_MS + 1, True)])
def test_a_server_that_is_away_for_a_minute_is_waited_for(
    away_ms: int, monkeypatch: pytest.MonkeyPatch, *, is_over: bool
) -> None:
    clock = PausingClock()
    transport = Away(clock, away_ms)
    connection = Connection("h:1", clock=clock, open_transport=lambda _endpoint: transport)
    monkeypatch.setattr(connections, "shared_connection", lambda _options: connection)
    stream = StreamReader(
        parse_options({"endpoint": "h:1", "subscribe": "a", "startingOffsets": "earliest"}, is_stream=True)
    )
    if not is_over:
        assert stream.initialOffset()["a"] == {"0": 0}
    else:
        with pytest.raises(Retriable, match="connection refused - Nothing was changed"):
            stream.initialOffset()


def test_small_ranges_of_a_micro_batch_share_a_task_unless_tasks_are_asked_for(
    topics: Topics, reader: MakeReader
) -> None:
    topic = topics.create(3)
    for partition in range(3):
        topics.commit(topic, [f"{partition}{number}" for number in range(2)], partition=partition)
    for wanted, task_count in (({}, 1), ({"minPartitions": "3"}, 3), ({"maxRecordsPerPartition": "2"}, 3)):
        stream = reader(topic, **wanted)
        start = stream.initialOffset()
        end = next_end(stream, start)
        assert len(stream.partitions(start, end)) == task_count, wanted
        assert read(stream, start, end) == ["00", "01", "10", "11", "20", "21"]


def test_what_shows_much_has_a_task_for_itself(topics: Topics, reader: MakeReader) -> None:
    topic = topics.create(2)
    for partition in range(2):
        topics.commit(topic, ["x" * 100_000] * 2, partition=partition)
    stream = reader(topic)
    start = stream.initialOffset()
    assert len(stream.partitions(start, next_end(stream, start))) == 2
