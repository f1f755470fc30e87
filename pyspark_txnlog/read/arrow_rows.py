"""Conversion of fetched batches to Arrow record batches with Spark's exact schema and a suitable size.

A stored Arrow payload is passed through. Its columns are viewed, cut to the range and joined with others, without
touching a row. Only topic, partition, offset and time are built here, column by column.

With `report=ranges` there is one row for each range, with the numbers of visible and hidden records. It shows if a read
without rows hid aborted transactions, and a result can be audited with it. Visible, aborted and control records and the
skipped corrupt offsets add up to the offsets of the range. Only offsets that compaction left without a record are
missing.

Source: docs/spark.md (schema, batch sizes).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from coordinator_client.encodings import FetchedBatch
from coordinator_client.reading.batch_reader import BatchReader
from coordinator_protocol.batch import TimestampType
from pyspark_txnlog.read.ranges import OffsetRange

JOINED_BYTES_MIN: Final = 512 * 1024
"""Size at which joined batches are handed over (bytes): the next batch could take them over 1 MiB. Below it, Spark
spends more on each batch than on its rows. Above it, nothing is gained and memory grows."""

JOINED_ROWS_MAX: Final = 65_536
"""Number of rows at which joined batches are handed over. Narrow columns gain nothing beyond it."""

CUT_BYTES: Final = 4 * 1024 * 1024
"""Size above which an unpacked batch is handed over in slices (bytes), so that the JVM never holds all of it at
once."""

SLICE_BYTES: Final = 1024 * 1024

_HEADERS: Final = pa.list_(
    pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
)
_TYPES: Final = MappingProxyType(
    {
        "key": pa.binary(),
        "value": pa.binary(),
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "timestampType": pa.int32(),
        "headers": _HEADERS,
    }
)
_STORED: Final = MappingProxyType({"key": "key", "value": "value", "timestamp": "timestamp_ms", "headers": "headers"})
"""Column of the payload by column of the result, for the columns that come from the payload."""


class UnreadableRecords(RuntimeError):
    """Stored records cannot be shown in the requested columns."""


def arrow_schema(columns: Sequence[str]) -> pa.Schema:
    """Return the schema that Spark compares with the first batch: names, order, types and nullability."""
    return pa.schema([pa.field(name, _TYPES[name]) for name in columns])


def spark_batches(fetched: Iterable[FetchedBatch], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the records as batches of `arrow_schema(columns)`, joined or cut to a size that suits Spark.

    Raises: CorruptBatch for a payload that does not match its header; UnreadableRecords.
    """
    joined = _Joined(columns)
    for batch in fetched:
        joined.add(batch)
        if joined.is_enough:
            yield from joined.take()
    yield from joined.take()


@dataclass(frozen=True, slots=True)
class _Part:
    """A batch, with its decoded columns if any."""

    batch: FetchedBatch
    payload: pa.RecordBatch | None = None
    """Stored columns; None if none is needed."""
    offsets: pa.Array | None = None
    """Offset of each row; None if the rows have consecutive offsets."""

    @property
    def row_count(self) -> int:
        count: int = self.batch.record_count if self.offsets is None else len(self.offsets)
        return count


class _Joined:
    """Batches of one partition that wait to be handed over together."""

    def __init__(self, columns: Sequence[str]) -> None:
        self._columns = columns
        self._schema = arrow_schema(columns)
        self._stored = [_STORED[name] for name in columns if name in _STORED]
        self._parts: list[_Part] = []
        self._byte_count = 0
        self._row_count = 0

    def add(self, batch: FetchedBatch) -> None:
        part = self._part(batch)
        self._parts.append(part)
        self._row_count += part.row_count

    def _part(self, batch: FetchedBatch) -> _Part:
        # If no column needs the payload, it stays closed: its checksum was right, and its header has the count. With
        # holes, only the payload shows which offsets have a row.
        if not self._stored and not batch.header.hole_count:
            return _Part(batch)
        offsets, rows = batch.placed_arrow()
        payload = rows.select(self._stored)
        # Computing `nbytes` would take as long as opening the payload.
        self._byte_count += payload.get_total_buffer_size()
        return _Part(batch, payload, offsets)

    @property
    def is_enough(self) -> bool:
        return self._byte_count >= JOINED_BYTES_MIN or self._row_count >= JOINED_ROWS_MAX

    def take(self) -> Iterator[pa.RecordBatch]:
        """Yield the waiting batches as rows for Spark, and start anew."""
        parts, row_count = self._parts, self._row_count
        self._parts, self._byte_count, self._row_count = [], 0, 0
        if not row_count:
            return
        rows = _Rows(parts, row_count, self._stored_columns(parts))
        made = pa.record_batch([_MAKERS[name](rows) for name in self._columns], schema=self._schema)
        # The total is never less than `nbytes`, and cheaper to compute.
        if made.get_total_buffer_size() <= CUT_BYTES or made.nbytes <= CUT_BYTES:
            yield made
            return
        step = max(1, row_count * SLICE_BYTES // made.nbytes)
        yield from (made.slice(start, step) for start in range(0, row_count, step))

    def _stored_columns(self, parts: Sequence[_Part]) -> Mapping[str, pa.Array]:
        """Return the stored columns of all payloads. The columns of a single payload are not copied."""
        if not self._stored:
            return {}
        payloads = [part.payload for part in parts if part.payload is not None]
        return {name: _one([payload.column(name) for payload in payloads]) for name in self._stored}


@dataclass(frozen=True, slots=True)
class _Rows:
    """Batches of one partition, as input for the columns of the result."""

    parts: Sequence[_Part]
    row_count: int
    stored: Mapping[str, pa.Array]
    """Needed stored columns, by their names in the payload."""

    @property
    def batches(self) -> list[FetchedBatch]:
        return [part.batch for part in self.parts]

    def per_batch(self, numbers: Sequence[int], kind: pa.DataType) -> pa.Array:
        """Return a column with one number for all records of a batch."""
        if len(set(numbers)) == 1:
            return pa.repeat(pa.scalar(numbers[0], kind), self.row_count)
        runs = zip(numbers, self.parts, strict=True)
        return _one([pa.repeat(pa.scalar(number, kind), part.row_count) for number, part in runs])


def _one(columns: Sequence[pa.Array]) -> pa.Array:
    return columns[0] if len(columns) == 1 else pa.concat_arrays(columns)


def _offsets(rows: _Rows) -> pa.Array:
    if any(part.offsets is not None for part in rows.parts):
        return _one([_offsets_of(part) for part in rows.parts])
    runs: list[tuple[int, int]] = []
    for batch in rows.batches:
        if runs and runs[-1][1] == batch.first_offset:
            runs[-1] = (runs[-1][0], batch.end_offset)
        else:
            runs.append((batch.first_offset, batch.end_offset))
    first, end = runs[0][0], runs[-1][1]
    if end - first > JOINED_ROWS_MAX:
        return _one([_count_up(start, stop) for start, stop in runs])
    # Each step in Arrow costs more than the numbers of a batch, so count once, including hidden offsets.
    counted = _count_up(first, end)
    return _one([counted.slice(start - first, stop - start) for start, stop in runs])


def _offsets_of(part: _Part) -> pa.Array:
    return _count_up(part.batch.first_offset, part.batch.end_offset) if part.offsets is None else part.offsets


def _count_up(start: int, end: int) -> pa.Array:
    size = end - start
    if size > len(_ASCENDING):
        return pa.array(range(start, end), pa.int64())
    return pc.add(_ASCENDING.slice(0, size), pa.scalar(start, pa.int64()))


def _timestamps(rows: _Rows) -> pa.Array:
    column = rows.stored["timestamp_ms"]
    types = {batch.header.timestamp_type for batch in rows.batches}
    if types != {TimestampType.CREATE_TIME}:
        # A time set by the log is the same for the whole batch, and in its header.
        column = _one(list(_times_by_batch(rows, column)))
    try:
        return pc.multiply_checked(column, _US_PER_MS).view(_TYPES["timestamp"])
    except pa.ArrowInvalid as error:
        first = rows.batches[0]
        raise UnreadableRecords(
            f"a timestamp in {first.topic}-{first.partition} between the offsets {first.first_offset} and "
            f"{rows.batches[-1].end_offset} is too far from now for Spark ({error}); "
            "read without it: set columns to those you need"
        ) from None


def _times_by_batch(rows: _Rows, column: pa.Array) -> Iterator[pa.Array]:
    start = 0
    for part in rows.parts:
        header, count = part.batch.header, part.row_count
        if header.timestamp_type is TimestampType.CREATE_TIME:
            yield column.slice(start, count)
        else:
            yield pa.repeat(pa.scalar(header.max_timestamp_ms, pa.int64()), count)
        start += count


def _headers(rows: _Rows) -> pa.Array:
    column = rows.stored["headers"].cast(_HEADERS)
    # Spark's Kafka source returns null, not an empty list, for a record without headers.
    return pc.if_else(pc.equal(pc.list_value_length(column), 0), pa.scalar(None, _HEADERS), column)


_ASCENDING: Final = pa.array(range(JOINED_ROWS_MAX), pa.int64())
_US_PER_MS: Final = pa.scalar(1_000, pa.int64())
_MAKERS: Final = MappingProxyType[str, Callable[[_Rows], pa.Array]](
    {
        "key": lambda rows: rows.stored["key"],
        "value": lambda rows: rows.stored["value"],
        # For a value without a type, Arrow first tries NumPy, which costs more than the column.
        "topic": lambda rows: pa.repeat(pa.scalar(rows.batches[0].topic, pa.string()), rows.row_count),
        "partition": lambda rows: pa.repeat(pa.scalar(rows.batches[0].partition, pa.int32()), rows.row_count),
        "offset": _offsets,
        "timestamp": _timestamps,
        "timestampType": lambda rows: rows.per_batch(
            [int(batch.header.timestamp_type) for batch in rows.batches], pa.int32()
        ),
        "headers": _headers,
    }
)


_SCHEMA: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("startOffset", pa.int64()),
        ("endOffset", pa.int64()),
        ("rows", pa.int64()),
        ("abortedRecords", pa.int64()),
        ("controlRecords", pa.int64()),
        ("corruptBatches", pa.int64()),
        ("corruptOffsets", pa.int64()),
        ("leaderEpoch", pa.int32()),
    ]
)


def report_batch(scanned: OffsetRange, rows: int, readers: Sequence[BatchReader]) -> pa.RecordBatch:
    """Return the row about a range, from the readers that read it one after the other."""
    numbers: list[int | None] = [scanned.partition, scanned.start_offset, scanned.end_offset, rows]
    numbers += [
        sum(reader.hidden.aborted for reader in readers),
        sum(reader.hidden.control for reader in readers),
        sum(reader.skipped.batches for reader in readers),
        sum(reader.skipped.offsets for reader in readers),
        scanned.leader_epoch,
    ]
    columns = [[scanned.topic], *([number] for number in numbers)]
    return pa.record_batch(
        [pa.array(column, declared.type) for column, declared in zip(columns, _SCHEMA, strict=True)], schema=_SCHEMA
    )
