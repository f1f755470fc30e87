"""However a task that writes ends, readers of its topic go on: the task aborts what it opened, and where it was killed
the driver does. Against a real server, without Spark."""

from __future__ import annotations

import io
import socket
from collections.abc import Callable, Iterator
from typing import Any, Final

import pyarrow as pa
import pytest

from coordinator_client import Connection, Producer, read
from coordinator_client.admin.admin import Admin
from coordinator_client.arrow_encoding import SCHEMA
from coordinator_client.errors import Abortable, Rejected, TransactionError
from coordinator_client.producer.sink import SinkClient, SinkMember
from coordinator_protocol.errors import ErrorCode
from coordinator_protocol.methods import Method
from pyspark_txnlog.connections import shared_connection
from pyspark_txnlog.read.planning import UnknownTopic
from pyspark_txnlog.write import end_of_rows
from pyspark_txnlog.write.end_of_rows import RowsCutShort
from pyspark_txnlog.write.sink import BatchWriter, Written
from pyspark_txnlog.write.sink_options import Batch, WriteOptions, batch_of, parse_write_options
from pyspark_txnlog.write.sink_rows import InvalidRows
from pyspark_txnlog.write.sink_task import write_member
from tests.spark.topics import Topics

ENOUGH: Final = b"x" * 5_000_000
"""More than waits for a request."""


class TopicSink:
    """A topic, and a sink that writes to it."""

    def __init__(self, topics: Topics, admin: Admin) -> None:
        self.topic = topics.create()
        self._admin = admin
        self.options = parse_write_options({"endpoint": topics.endpoint, "topic": self.topic})
        self.batch = Batch(f"spark/{self.topic}", "run", 0)

    def write(self, *rows: pa.RecordBatch, then: BaseException | None = None) -> Any:
        """Write as a task does whose rows end with an error, or well."""

        def handed() -> Iterator[pa.RecordBatch]:
            yield from rows
            if then is not None:
                raise then

        return write_member(self.options, self.batch, handed(), "0.0-0")

    def killed(self, batch: Batch | None = None) -> SinkMember:
        """Return what a task leaves that has written and was killed."""
        batch = batch or self.batch
        member = SinkClient(self.connection, batch.sink, run_id=batch.run_id).join(
            batch.batch_id, attempt="killed", transaction_timeout_ms=900_000
        )
        assert isinstance(member, SinkMember)
        columns = [pa.nulls(1, pa.binary()), pa.array([b"killed"]), pa.array([1]), pa.nulls(1, SCHEMA.types[3])]
        member.send_arrow([(self.topic, 0, pa.RecordBatch.from_arrays(columns, schema=SCHEMA))])
        return member

    @property
    def connection(self) -> Connection:
        return shared_connection(self.options)

    def held_up(self) -> list[str]:
        """Return the members for which readers of the topic wait, and what they miss."""
        with Producer(self.connection) as producer:
            producer.send(self.topic, b"of others")
        (found,) = self._admin.describe_topic(self.topic).partitions
        return [] if found.last_stable_offset == found.high_watermark else ["readers wait"]

    def seen(self) -> list[bytes | None]:
        return [record.value for record in read(self.topic, self.connection)]


@pytest.fixture
def topic_sink(topics: Topics, admin: Admin) -> TopicSink:
    return TopicSink(topics, admin)


def rows(*values: bytes, **columns: list[Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"value": pa.array(list(values), pa.binary())} | columns)


@pytest.mark.parametrize(
    "end", [ValueError("a query fails"), KeyboardInterrupt(), SystemExit(1), GeneratorExit(), pa.ArrowInvalid("broken")]
)
def test_a_task_whose_rows_end_with_an_error_aborts_what_it_wrote(topic_sink: TopicSink, end: BaseException) -> None:
    with pytest.raises(type(end)):
        topic_sink.write(rows(ENOUGH[:900_000]), rows(*[ENOUGH[:900_000]] * 5), then=end)
    assert topic_sink.held_up() == []
    assert topic_sink.seen() == [b"of others"]


def test_a_task_that_is_refused_a_row_aborts_those_before_it(topic_sink: TopicSink) -> None:
    before = rows(*[ENOUGH[:900_000]] * 5)
    refused: list[tuple[pa.RecordBatch, type[Exception]]] = [
        (rows(b"a", partition=[9]), InvalidRows),
        (rows(ENOUGH), Rejected),
    ]
    for wrong, error in refused:
        with pytest.raises(error):
            topic_sink.write(before, wrong)
        assert topic_sink.held_up() == []
    with pytest.raises(UnknownTopic):
        write_member(
            parse_write_options({"endpoint": topic_sink.options.endpoint}),
            topic_sink.batch,
            iter([pa.RecordBatch.from_pydict({"value": [b"a", b"b"], "topic": [topic_sink.topic, "no-such-topic"]})]),
            "0.0-0",
        )
    assert topic_sink.held_up() == []
    assert set(topic_sink.seen()) == {b"of others"}


@pytest.fixture
def refuse(monkeypatch: pytest.MonkeyPatch) -> Callable[[Method, BaseException], None]:
    """Lets calls of a method be carried out, and their caller get an error in place of the answer."""
    ask = Connection.ask

    def refusing(method: Method, error: BaseException) -> None:
        left = [error]

        def failing(self: Connection, rpc: Any, *args: Any, **kwargs: Any) -> Any:
            answer = ask(self, rpc, *args, **kwargs)
            if rpc.method is method and left:
                raise left.pop()
            return answer

        monkeypatch.setattr(Connection, "ask", failing)

    return refusing


@pytest.mark.parametrize("method", [Method.JOIN_BATCH, Method.DESCRIBE_TOPICS, Method.PRODUCE, Method.SEAL_MEMBER])
def test_a_task_that_is_interrupted_in_any_call_leaves_nothing_open(
    topic_sink: TopicSink, refuse: Callable[[Method, BaseException], None], method: Method
) -> None:
    refuse(method, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        topic_sink.write(rows(b"a"))
    assert topic_sink.held_up() == []
    assert topic_sink.seen() == [b"of others"]


def test_the_error_of_a_task_stays_and_says_what_could_not_be_aborted(
    topic_sink: TopicSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refusing(_member: SinkMember, **_given: Any) -> None:
        raise Rejected(ErrorCode.INVALID_REQUEST, Rejected.action, "ids that start with __ are reserved")  # type: ignore[arg-type]

    with monkeypatch.context() as older:
        older.setattr(SinkMember, "abort", refusing)
        with pytest.raises(ValueError, match="a query fails") as failed:
            topic_sink.write(rows(*[ENOUGH[:900_000]] * 5), then=ValueError("a query fails"))
    (note,) = failed.value.__notes__
    assert "could not be aborted (ids that start with __ are reserved)" in note
    assert topic_sink.held_up() == ["readers wait"]


def test_a_task_that_fails_leaves_the_attempts_beside_it_alone(topic_sink: TopicSink) -> None:
    sibling = topic_sink.write(rows(b"sibling"))
    with pytest.raises(ValueError, match="fails"):
        topic_sink.write(rows(b"failed"), then=ValueError("fails"))
    again = topic_sink.write(rows(b"again"))
    SinkClient(topic_sink.connection, topic_sink.batch.sink, run_id="run").commit(0, [sibling.identity, again.identity])
    assert topic_sink.seen() == [b"sibling", b"again"]


# A worker whose Spark hangs up


Worker = Callable[[Callable[[], Any], bytes], Any]


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Worker:
    """Runs work as Spark's worker does, which has got these bytes behind its rows; none: Spark has hung up."""
    monkeypatch.setattr(end_of_rows, "_WORKERS", (__name__,))

    def running(work: Callable[[], Any], behind: bytes) -> Any:
        ours, sparks = socket.socketpair()
        with ours, sparks, ours.makefile("rb") as received:
            sparks.sendall(behind)
            if not behind:
                sparks.shutdown(socket.SHUT_WR)
            return main(received, work)

    return running


def main(infile: io.BufferedReader, work: Callable[[], Any]) -> Any:
    """Stand for the function of Spark's worker that holds its socket under this name."""
    assert infile.readable()
    return work()


def test_rows_that_broke_off_between_two_batches_are_not_taken_for_all(topic_sink: TopicSink, worker: Worker) -> None:
    with pytest.raises(RowsCutShort, match="broke the rows of this task off"):
        worker(lambda: topic_sink.write(rows(b"a")), b"")
    assert topic_sink.held_up() == []
    assert isinstance(worker(lambda: topic_sink.write(rows(b"a")), b"\xff\xff\xff\xfc"), SinkMember)


def test_a_task_that_is_killed_while_it_sends_stops_at_the_next_request(topic_sink: TopicSink, worker: Worker) -> None:
    taken = []

    def much() -> Iterator[pa.RecordBatch]:
        for number in range(10):
            taken.append(number)
            yield rows(*[ENOUGH[:900_000]] * 5)

    with pytest.raises(RowsCutShort):
        worker(lambda: write_member(topic_sink.options, topic_sink.batch, much(), "0.0-0"), b"")
    assert taken == [0]
    assert topic_sink.held_up() == []


# The driver


def writer_and_batch(options: WriteOptions) -> tuple[BatchWriter, Batch]:
    writer = BatchWriter(options)
    return writer, batch_of(options, {}, writer._own_id, is_stream=False)


@pytest.mark.parametrize("more", [{}, {"txnAppId": "nightly", "txnVersion": "3"}])
def test_the_driver_gives_up_what_killed_tasks_left_though_none_told_of_its_batch(
    topics: Topics, topic_sink: TopicSink, more: dict[str, str]
) -> None:
    given = {"endpoint": topics.endpoint, "topic": topic_sink.topic, "transactionalIdPrefix": topic_sink.topic}
    writer, batch = writer_and_batch(parse_write_options(given | more))
    topic_sink.killed(batch)
    assert topic_sink.held_up() == ["readers wait"]

    writer.abort([None])

    assert topic_sink.held_up() == []
    writer.abort([None])


def test_a_decision_that_is_refused_is_followed_by_an_abort_of_the_rest(topics: Topics, topic_sink: TopicSink) -> None:
    given = {"endpoint": topics.endpoint, "topic": topic_sink.topic, "transactionalIdPrefix": topic_sink.topic}
    writer, batch = writer_and_batch(parse_write_options(given))
    lost, kept = topic_sink.killed(batch), topic_sink.killed(batch)
    lost.abort()
    kept.seal()
    messages = [Written(batch, *each.identity, record_count=1) for each in (lost, kept)]
    with pytest.raises(Abortable):
        writer.commit(list(messages))
    assert topic_sink.held_up() == ["readers wait"]

    writer.abort(list(messages))

    assert topic_sink.held_up() == []


def test_a_member_can_be_aborted_once(topic_sink: TopicSink) -> None:
    member = topic_sink.killed()
    member.abort()
    with pytest.raises(TransactionError, match="is no member any more"):
        member.abort()
