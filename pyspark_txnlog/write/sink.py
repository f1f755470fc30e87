"""Sink of the format `txnlog`: the rows of a query become visible together and once, or not at all.

Each attempt of a task joins the batch as a member, writes and seals. The driver's `commit` decides for all of them at
once. Spark makes new writers for tasks and for `commit`, in other processes. So nothing is kept between calls, and all
state travels in the messages of the tasks. A sink with at-least-once delivery has no members.

Source: docs/spark.md; decision 39. Nothing here opens a connection before `write` or `commit` runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    MapType,
    NullType,
    StringType,
    StructType,
)

from pyspark_txnlog.bounds import InvalidOption
from pyspark_txnlog.read.reading import check_dependencies, settle_worker, told_shortly
from pyspark_txnlog.write.sink_options import BATCH_ID, QUERY_ID, RUN_ID, Batch, Delivery, WriteOptions, batch_of

if TYPE_CHECKING:
    import pyarrow as pa

    from coordinator_client.producer.sink import SinkClient

_TYPES = {
    "key": (BinaryType, StringType),
    "value": (BinaryType, StringType),
    "topic": (StringType,),
    "partition": (IntegerType,),
}
_COLUMNS: Final = (*_TYPES, "headers")
_HEADERS: Final = "array<struct<key:string,value:binary>>"
_LEFT_OUT = frozenset({"offset", "timestamp", "timestampType"})
"""Columns of the source that a record gets anew."""


@dataclass(frozen=True, slots=True)
class Written(WriterCommitMessage):
    """Message of a task to the driver."""

    batch: Batch | None
    """Batch that the task wrote a part of; None if records are visible as they are written."""
    producer_id: int = -1
    """Producer id of its member; -1 if the batch was committed already and the task wrote nothing."""
    producer_epoch: int = -1
    is_late: bool = False
    """True if this same run had committed the batch."""
    record_count: int = 0


def check_columns(schema: StructType, options: WriteOptions) -> None:
    """Check that the rows can be written. Raises InvalidOption with the name of the column."""
    names = {field.name: field.dataType for field in schema.fields}
    if "value" not in names:
        raise InvalidOption("the query has no column value; select what is to be written as value")
    if not options.topic and "topic" not in names:
        raise InvalidOption("no topic is named: set the option topic, or give the query a column topic")
    for name, kind in names.items():
        if name in _LEFT_OUT:
            continue
        if name not in _COLUMNS:
            raise InvalidOption(f"the query has a column {name}, and a record has {', '.join(_COLUMNS)}; leave it out")
        if name == "headers":
            _check_headers(kind)
        elif not isinstance(kind, _TYPES[name]):
            wanted = [each().simpleString() for each in _TYPES[name]]
            raise InvalidOption(
                f"the column {name} is {kind.simpleString()} and must be {' or '.join(wanted)}; cast it, as with"
                f" cast({name} as {wanted[-1]}) as {name}"
            )


def _check_headers(kind: DataType) -> None:
    """Check the type of the column headers. An empty array may have any type, and the value of a header may be null.
    Raises: InvalidOption."""
    if isinstance(kind, ArrayType):
        item = kind.elementType
        if isinstance(item, NullType):
            return
        found = {field.name: field.dataType for field in item.fields} if isinstance(item, StructType) else {}
        has_value = isinstance(found.get("value"), (BinaryType, StringType, NullType))
        if len(found) == 2 and isinstance(found.get("key"), (StringType, BinaryType)) and has_value:
            return
    raise InvalidOption(
        f"the column headers is {kind.simpleString()} and must be {_HEADERS}; make it so, as with {_cast_of(kind)} as"
        " headers"
    )


def _cast_of(kind: DataType) -> str:
    """Return an expression that converts a column of another type to headers."""
    if isinstance(kind, MapType):
        return "map_entries(cast(headers as map<string,binary>))"
    item = kind.elementType if isinstance(kind, ArrayType) else None
    if not isinstance(item, StructType):
        return "array(struct('name' as key, cast('text' as binary) as value))"
    kinds = {field.name: field.dataType for field in item.fields}
    names = list(kinds)
    key = "key" if "key" in kinds or not names else names[0]
    value = "value" if "value" in kinds or len(names) < 2 else names[1]
    # Spark casts text to bytes, but not numbers.
    is_text = isinstance(kinds.get(value), (BinaryType, StringType))
    text = f"h.{value}" if is_text else f"cast(h.{value} as string)"
    return f"transform(headers, h -> struct(cast(h.{key} as string) as key, cast({text} as binary) as value))"


class _Writer:
    """Common part of the writers of batches and of streams."""

    is_stream = False

    def __init__(self, options: WriteOptions) -> None:
        check_dependencies()
        from coordinator_client.random_source import SystemRandomSource

        self._options = options
        # Id of a batch write, the same in all tasks, because each gets a copy of this object.
        self._own_id = SystemRandomSource().request_id().hex()

    @told_shortly
    def write(self, rows: Iterator[pa.RecordBatch]) -> Written:
        """Write the rows of a task, on an executor. Raises: InvalidRows; LookupError for a topic that does not exist;
        TransactionError if the server refuses or stays out of reach."""
        check_dependencies()
        from coordinator_client.producer.sink import CommittedBatch
        from pyspark_txnlog.write.sink_task import write_member, write_records

        settle_worker()
        task_id, properties = _task()
        if self._options.delivery is Delivery.AT_LEAST_ONCE:
            return Written(None, record_count=write_records(self._options, rows, task_id))
        batch = batch_of(self._options, properties, self._own_id, is_stream=self.is_stream)
        member = write_member(self._options, batch, rows, task_id)
        if isinstance(member, CommittedBatch):
            return Written(batch, is_late=member.by_this_run)
        return Written(batch, *member.identity, record_count=member.record_count)

    def _decide(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Commit the batch that the tasks wrote.

        Raises InvalidOption if an earlier write of this run has committed it. After a TransactionError, Spark gives up
        the query. Its next start writes the batch again, or finds it committed."""
        written = [each for each in messages if isinstance(each, Written) and each.batch is not None]
        if not written or written[0].batch is None:
            return
        batch = written[0].batch
        assert all(each.batch == batch for each in written), "tasks of one write name one batch"
        members = [each for each in written if each.producer_id >= 0]
        if members:
            from coordinator_client.values import Identity

            identities = [Identity(each.producer_id, each.producer_epoch) for each in members]
            self._sink(batch).commit(batch.batch_id, identities)
        elif all(each.is_late for each in written):
            raise InvalidOption(
                f"batch {batch.batch_id} of {batch.sink} had been committed by this run already, so these rows were not"
                " written: within foreachBatch every write needs a sinkName of its own"
            )

    def _give_up(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Give up the members that tasks wrote but could not abort, because they were killed.

        If no task reported its batch, a batch write derives it from its own id. A stream leaves its batch to its next
        run, or to the timeout.
        """
        batch = next((each.batch for each in messages if isinstance(each, Written) and each.batch is not None), None)
        if batch is None and not self.is_stream and self._options.delivery is Delivery.EXACTLY_ONCE:
            batch = batch_of(self._options, {}, self._own_id, is_stream=False)
        if batch is not None:
            self._sink(batch).abort(batch.batch_id)

    def _sink(self, batch: Batch) -> SinkClient:
        check_dependencies()
        from coordinator_client.producer.sink import SinkClient
        from pyspark_txnlog.connections import shared_connection

        settle_worker()
        return SinkClient(
            shared_connection(self._options), batch.sink, run_id=batch.run_id, deadline_ms=self._options.rpc_timeout_ms
        )


class BatchWriter(_Writer, DataSourceArrowWriter):
    """Writer of the rows of a query, as one batch of a sink."""

    @told_shortly
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Make the rows visible, all at once. Raises the errors of `_decide`."""
        self._decide(messages)

    @told_shortly
    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Give up the batch."""
        self._give_up(messages)


class StreamWriter(_Writer, DataSourceStreamArrowWriter):
    """Writer of the micro-batches of a stream, each as a batch of its sink."""

    is_stream = True

    @told_shortly
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Make a micro-batch visible, all at once. Raises the errors of `_decide`."""
        del batchId
        self._decide(messages)

    @told_shortly
    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Give up a micro-batch."""
        del batchId
        self._give_up(messages)


def _task() -> tuple[str, dict[str, str | None]]:
    """Return the name of this attempt of a task, and the properties of its query that Spark sets."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None, "Spark calls write in a task"
    properties = {name: context.getLocalProperty(name) for name in (QUERY_ID, BATCH_ID, RUN_ID)}
    return f"{context.partitionId()}.{context.attemptNumber()}-{context.taskAttemptId()}", properties
