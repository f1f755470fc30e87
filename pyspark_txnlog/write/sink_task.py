"""Work of the sink in a task: join, write, seal. Loaded only where grpc and pyarrow are installed."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor  # noqa: TID251  it calls the SDK, which takes any thread

import pyarrow as pa

from coordinator_client.admin.admin import Admin
from coordinator_client.arrow_encoding import arrow_rows
from coordinator_client.clock import SystemClock
from coordinator_client.errors import Rejected
from coordinator_client.producer.producer import Producer
from coordinator_client.producer.sink import CommittedBatch, SinkClient, SinkMember
from coordinator_protocol.errors import ErrorCode
from pyspark_txnlog.connections import shared_connection
from pyspark_txnlog.read.planning import UnknownTopic
from pyspark_txnlog.write.end_of_rows import check_all_rows_came, check_not_hung_up
from pyspark_txnlog.write.sink_options import Batch, WriteOptions
from pyspark_txnlog.write.sink_rows import Request, RowsByPartition


def write_member(
    options: WriteOptions, batch: Batch, rows: Iterator[pa.RecordBatch], task_id: str
) -> SinkMember | CommittedBatch:
    """Write rows as a member of a batch, and seal it. If the batch is committed already, only read the rows.

    Any error before the end aborts the member, so that no reader waits for it.

    Raises: InvalidRows; UnknownTopic; RowsCutShort; TransactionError if the server refuses, or if another run or
    attempt has won.
    """
    connection = shared_connection(options)
    sink = SinkClient(connection, batch.sink, run_id=batch.run_id, deadline_ms=options.rpc_timeout_ms)
    member = sink.join(batch.batch_id, attempt=task_id, transaction_timeout_ms=options.transaction_timeout_ms)
    if isinstance(member, CommittedBatch):
        # Spark reports an error if its rows are not read to the end.
        for _ in rows:
            pass
        return member
    try:
        _send_rows(member, _gathering(options, task_id), rows)
        check_all_rows_came()
        member.seal()
    except BaseException as error:
        member.abort_because(error)
        raise
    return member


def _send_rows(member: SinkMember, gathered: RowsByPartition, rows: Iterator[pa.RecordBatch]) -> None:
    # A request is on its way while Spark delivers the rows of the next one.
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="txnlog-sink") as sending:
        on_its_way: Future[None] | None = None
        for request in _requests(gathered, rows):
            if on_its_way is not None:
                on_its_way.result()
            check_not_hung_up()
            on_its_way = sending.submit(member.send_arrow, request)
        if on_its_way is not None:
            on_its_way.result()


def write_records(options: WriteOptions, rows: Iterator[pa.RecordBatch], task_id: str) -> int:
    """Write rows that are visible at once; return their number. Raises the errors of `write_member`."""
    count = 0
    with Producer(shared_connection(options), encoding="arrow") as producer:
        for request in _requests(_gathering(options, task_id), rows):
            count += _send(producer, request)
        producer.flush()
    return count


def _requests(gathered: RowsByPartition, rows: Iterator[pa.RecordBatch]) -> Iterator[Request]:
    for some in rows:
        gathered.add(some)
        yield from gathered.full()
    yield from gathered.rest()


def _send(producer: Producer, request: Request) -> int:
    for topic, partition, records in request:
        for key, value, timestamp_ms, headers in arrow_rows(records):
            producer.send(topic, value, key=key, partition=partition, headers=headers, timestamp_ms=timestamp_ms)
    return sum(records.num_rows for _, _, records in request)


def _gathering(options: WriteOptions, task_id: str) -> RowsByPartition:
    admin = Admin(shared_connection(options))

    def partition_count(topic: str) -> int:
        try:
            return len(admin.describe_topic(topic).partitions)
        except Rejected as error:
            if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            raise UnknownTopic(
                f"topic {topic} does not exist; create it first, as with `txnctl topic create {topic}`"
            ) from None

    # The id of the task decides the first partition for rows without keys, so that tasks begin at different ones.
    first = zlib.crc32(task_id.encode())
    return RowsByPartition(options.topic, partition_count, first=first, now_ms=SystemClock().wall_ms())
