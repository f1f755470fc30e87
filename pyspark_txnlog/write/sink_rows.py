"""Conversion of the rows of a query to batches of the log. Columns with the names of Spark's Kafka sink become Arrow
v1, and each row is assigned to a partition.

The only module of the sink that calls pyarrow. Source: docs/spark.md; design 6 (partitioner).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import zip_longest
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from coordinator_client.arrow_encoding import HEADER_TYPE, HEADERS_TYPE, SCHEMA
from coordinator_protocol.hashing import partition_for
from coordinator_protocol.limits import KIBI, MEBI
from pyspark_txnlog.bounds import InvalidOption

BATCH_BYTES: Final = 512 * KIBI
"""Size at which batches are cut (bytes), approximately. A server accepts twice as much."""
REQUEST_BYTES: Final = 4 * MEBI
"""Largest size of a request with batches of all partitions (bytes), unless a single record is larger."""


_NO_KEY: Final = "the column headers has a header without a key in some rows; every header needs one"


class InvalidRows(InvalidOption):
    """The rows cannot be written. The message names the wrong column."""


Request = list[tuple[str, int, pa.RecordBatch]]
"""Batches that go together: topic, partition, records. Each partition has at most one of them, because the log accepts
one batch per partition in a request."""


class RowsByPartition:
    """Collects the rows of one task, and cuts them into batches."""

    def __init__(self, topic: str, partition_count: Callable[[str], int], *, first: int, now_ms: int) -> None:
        """`topic` is the topic of all rows; empty to use the column `topic`. `partition_count` raises for a topic that
        does not exist. `first` chooses the first partition for rows without a key. `now_ms` is the time of all
        records."""
        self._topic = topic
        self._partition_count = partition_count
        self._turn = first
        self._now_ms = now_ms
        self._counts: dict[str, int] = {}
        self._waiting: dict[tuple[str, int], list[pa.RecordBatch]] = {}
        self._waiting_bytes = 0

    def add(self, rows: pa.RecordBatch) -> None:
        """Add rows. Raises: InvalidRows; any error of `partition_count`."""
        records = as_records(rows, self._now_ms)
        for topic, of_topic in self._topics(rows):
            chosen = records if of_topic is None else records.take(of_topic)
            asked = None if "partition" not in rows.schema.names else rows.column("partition")
            if asked is not None and of_topic is not None:
                asked = asked.take(of_topic)
            for partition, found in self._placed(topic, chosen, asked):
                self._waiting.setdefault((topic, partition), []).append(found)
                self._waiting_bytes += found.nbytes

    def full(self) -> Iterator[Request]:
        """Yield the collected rows in requests, once they are enough for one."""
        if self._waiting_bytes >= REQUEST_BYTES:
            yield from self.rest()

    def rest(self) -> Iterator[Request]:
        """Yield all collected rows in requests."""
        waiting, self._waiting, self._waiting_bytes = self._waiting, {}, 0
        by_place = [[(*place, batch) for batch in _sized(batches)] for place, batches in waiting.items()]
        for layer in zip_longest(*by_place):
            request: Request = []
            size_bytes = 0
            for each in filter(None, layer):
                if request and size_bytes + each[2].nbytes > REQUEST_BYTES:
                    yield request
                    request, size_bytes = [], 0
                request.append(each)
                size_bytes += each[2].nbytes
            yield request

    def _topics(self, rows: pa.RecordBatch) -> Iterator[tuple[str, pa.Array | None]]:
        """Yield each topic and the indices of its rows; None stands for all rows."""
        if self._topic:
            yield self._topic, None
            return
        if "topic" not in rows.schema.names:
            raise InvalidRows("no topic is named: set the option topic, or give the rows a column topic")
        column = rows.column("topic")
        if column.null_count:
            raise InvalidRows("the column topic is null in some rows; set the option topic, or leave these rows out")
        yield from _groups(column)

    def _placed(
        self, topic: str, records: pa.RecordBatch, asked: pa.Array | None
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield the records by partition. If none of them has a partition or a key, they are cut into batches, and each
        batch goes to the next partition in turn."""
        count = self._counts.get(topic)
        if count is None:
            count = self._counts[topic] = self._partition_count(topic)
        if not records.num_rows:
            return
        keys = records.column("key")
        if asked is None and keys.null_count == len(keys):
            # No record has a partition or a key, so all keep their order and are not copied.
            for batch in _cut(records):
                yield self._next_turn(count), batch
            return
        for partition, found in _groups(self._partitions(topic, count, keys, asked)):
            yield partition, records.take(found)

    def _partitions(self, topic: str, count: int, keys: pa.Array, asked: pa.Array | None) -> pa.Array:
        """Return the partition of each record: the requested one, else that of its key, else one that all records
        without a key share."""
        if asked is not None and not asked.null_count:
            return _checked(asked.cast(pa.int32()), topic, count)
        chosen = _by_key(keys, count).fill_null(self._next_turn(count))
        return chosen if asked is None else _checked(pc.coalesce(asked.cast(pa.int32()), chosen), topic, count)

    def _next_turn(self, count: int) -> int:
        self._turn = (self._turn + 1) % count
        return self._turn


def as_records(rows: pa.RecordBatch, now_ms: int) -> pa.RecordBatch:
    """Return the rows as records of Arrow v1, all with this time. Raises: InvalidRows."""
    names = rows.schema.names
    if "value" not in names:
        raise InvalidRows("the rows have no column value; select what is to be written as value")
    key = _binary(rows, "key") if "key" in names else pa.nulls(rows.num_rows, pa.binary())
    headers = _headers(rows.column("headers")) if "headers" in names else pa.nulls(rows.num_rows, HEADERS_TYPE)
    times = pa.repeat(pa.scalar(now_ms, pa.int64()), rows.num_rows)
    return pa.RecordBatch.from_arrays([key, _binary(rows, "value"), times, headers], schema=SCHEMA)


def _binary(rows: pa.RecordBatch, name: str) -> pa.Array:
    return rows.column(name).cast(pa.binary())


def _headers(column: pa.Array) -> pa.Array:
    """Return the headers under the names of the log, which Arrow compares."""
    items = column.flatten()
    if items.null_count:
        raise InvalidRows(_NO_KEY)
    keys = _texts(items.field("key")) if len(items) else pa.array([], pa.utf8())
    values = items.field("value").cast(pa.binary()) if len(items) else pa.array([], pa.binary())
    if keys.null_count:
        raise InvalidRows(_NO_KEY)
    lengths = pc.fill_null(pc.list_value_length(column), 0)
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths).cast(pa.int32())])
    structs = pa.StructArray.from_arrays([keys, values], fields=list(HEADER_TYPE))
    return pa.ListArray.from_arrays(offsets, structs, type=HEADERS_TYPE)


def _texts(keys: pa.Array) -> pa.Array:
    try:
        return keys.cast(pa.utf8())
    except pa.ArrowInvalid:
        raise InvalidRows(
            "the column headers has a key that is not UTF-8 in some rows, and keys of headers are text; make text of "
            "it, as with hex(key)"
        ) from None


def _by_key(keys: pa.Array, count: int) -> pa.Array:
    """Return the partition of each key, null without a key. Equal keys are hashed once."""
    encoded = keys.dictionary_encode()
    hashed = pa.array([partition_for(key, count) for key in encoded.dictionary.to_pylist()], pa.int32())
    return hashed.take(encoded.indices)


def _groups(column: pa.Array) -> Iterator[tuple[Any, pa.Array]]:
    """Yield each value of a column, and the indices of its rows in order."""
    encoded = column.dictionary_encode()
    if len(encoded.dictionary) == 1:
        yield encoded.dictionary[0].as_py(), pa.array(range(len(column)), pa.int64())
        return
    for number, found in enumerate(encoded.dictionary.to_pylist()):
        yield found, pc.indices_nonzero(pc.equal(encoded.indices, number))


def _checked(partitions: pa.Array, topic: str, count: int) -> pa.Array:
    wrong = pc.or_(pc.less(partitions, 0), pc.greater_equal(partitions, count))
    if pc.any(wrong).as_py():
        number = partitions.filter(wrong)[0].as_py()
        raise InvalidRows(f"the column partition has {number}, and topic {topic} has partitions 0 to {count - 1}")
    return partitions


def _sized(batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the records in batches of a suitable size: large ones are cut, and small ones joined."""
    waiting: list[pa.RecordBatch] = []
    size_bytes = 0
    for piece in (piece for batch in batches for piece in _cut(batch)):
        if waiting and size_bytes + piece.nbytes > BATCH_BYTES:
            yield _joined(waiting)
            waiting, size_bytes = [], 0
        waiting.append(piece)
        size_bytes += piece.nbytes
    if waiting:
        yield _joined(waiting)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    (whole,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return whole


def _cut(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield the batch in pieces that are small enough, or that have a single record. Nothing is copied."""
    if batch.nbytes <= BATCH_BYTES or batch.num_rows == 1:
        yield batch
        return
    length = max(1, batch.num_rows * BATCH_BYTES // batch.nbytes)
    for start in range(0, batch.num_rows, length):
        yield from _cut(batch.slice(start, length))
