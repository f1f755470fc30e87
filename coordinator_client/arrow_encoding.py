"""Record batches as Arrow. Only this module imports `pyarrow`, and it is imported lazily, so the SDK works without
pyarrow.

The payload is one encapsulated Arrow IPC record-batch message, without the schema, which is fixed here and in the
protocol. So a reader uses the columns directly in the received bytes.

Source: design 6 (encodings); docs/spark.md (limits of Spark's Python API).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

try:
    import pyarrow as pa
    import pyarrow.compute as pc
except ImportError as error:
    raise ImportError(
        "records in Arrow need pyarrow, which is not installed: install txn-coordinator[spark], "
        "or use encoding='records'"
    ) from error

from coordinator_client.errors import corrupt
from coordinator_client.fetch_reply import Payload
from coordinator_client.values import Row

HEADER_TYPE: Final = pa.struct([pa.field("key", pa.utf8(), nullable=False), pa.field("value", pa.binary())])
HEADERS_TYPE: Final = pa.list_(pa.field("item", HEADER_TYPE, nullable=False))

SCHEMA: Final = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("timestamp_ms", pa.int64(), nullable=False),
        pa.field("headers", HEADERS_TYPE),
    ]
)
"""The only schema of Arrow v1. It can never change: the bytes do not name it."""

SCHEMA_V2: Final = SCHEMA.append(pa.field("offset_delta", pa.int32(), nullable=False))
"""The only schema of Arrow v2, fixed as well: each record states its offset within the batch."""

_DELTAS: Final = SCHEMA_V2.get_field_index("offset_delta")
_TIMES: Final = SCHEMA.get_field_index("timestamp_ms")
_HEADERS: Final = SCHEMA.get_field_index("headers")


def rows_to_arrow(rows: Sequence[Row]) -> pa.RecordBatch:
    """Return the rows as one record batch of `SCHEMA`."""
    keys, values, times, headers = zip(*rows, strict=True) if rows else ((), (), (), ())
    columns = [
        pa.array(keys, pa.binary()),
        pa.array(values, pa.binary()),
        pa.array(times, pa.int64()),
        _header_column(headers),
    ]
    return pa.record_batch(columns, schema=SCHEMA)


def encode_arrow(rows: Sequence[Row]) -> bytes:
    """Return the rows as the payload of an Arrow v1 batch."""
    payload: bytes = rows_to_arrow(rows).serialize().to_pybytes()
    return payload


def first_and_latest_ms(records: pa.RecordBatch) -> tuple[int, int]:
    """Return the timestamp of the first record and the latest timestamp, for the header of the batch."""
    times = records.column(_TIMES)
    return times[0].as_py(), pc.max(times).as_py()


def decode_arrow(payload: Payload, where: str) -> pa.RecordBatch:
    """Return the columns of an unpacked Arrow v1 payload as views of its bytes.

    Every offset and text in it is checked, because a wrong one would make Arrow read outside the payload.

    Raises: Rejected (CORRUPT_MESSAGE).
    """
    return _decode(payload, SCHEMA, where)


def decode_arrow_with_deltas(payload: Payload, where: str) -> tuple[pa.Array, pa.RecordBatch]:
    """Return the offset column of an unpacked Arrow v2 payload, unchecked, and its other columns as `decode_arrow` does
    for v1.

    The first column has the offset of each record within the batch. Raises: Rejected (CORRUPT_MESSAGE).
    """
    batch = _decode(payload, SCHEMA_V2, where)
    deltas = batch.column(_DELTAS)
    if deltas.null_count:
        raise corrupt(f"{where}: some of its records do not say where they lie")
    return deltas, pa.RecordBatch.from_arrays(batch.columns[:_DELTAS], schema=SCHEMA)


def placed(deltas: pa.Array | Sequence[int], base_offset: int = 0) -> pa.Array:
    """Return a column of offsets: the offset of each record within a batch, plus the offset of the batch."""
    column = pa.array(deltas, pa.int64()) if isinstance(deltas, Sequence) else deltas.cast(pa.int64())
    return pc.add(column, pa.scalar(base_offset, pa.int64()))


def _decode(payload: Payload, schema: pa.Schema, where: str) -> pa.RecordBatch:
    buffer = pa.py_buffer(payload)
    try:
        source = pa.BufferReader(buffer)
        message = pa.ipc.read_message(source)
        is_whole = source.tell() == len(payload)
        batch = pa.ipc.read_record_batch(message, schema)
        batch.validate(full=True)
    except (pa.ArrowException, EOFError, OSError, ValueError) as error:
        raise corrupt(f"{where}: its payload is no Arrow record batch of the agreed schema ({error})") from None
    if not is_whole:
        raise corrupt(f"{where}: other bytes follow its Arrow record batch")
    headers = batch.column(_HEADERS).values
    if batch.column(_TIMES).null_count or headers.null_count or (len(headers) and headers.field(0).null_count):
        # Arrow does not check that a field declared without nulls has none.
        raise corrupt(f"{where}: some of its records lack a timestamp, or a header lacks its key")
    return batch


def arrow_rows(batch: pa.RecordBatch) -> list[Row]:
    """Return the records of a batch of `SCHEMA`, one by one."""
    keys, values, times, headers = (column.to_pylist() for column in batch.columns)
    pairs = [tuple((item["key"], item["value"]) for item in items) if items else () for items in headers]
    return list(zip(keys, values, times, pairs, strict=True))


def _header_column(headers: Sequence[tuple[tuple[str, bytes | None], ...]]) -> pa.Array:
    if not any(headers):
        # Most records have no headers; an empty list for each needs no Python object.
        offsets = pa.array([0] * (len(headers) + 1), pa.int32())
        return pa.ListArray.from_arrays(offsets, pa.array([], HEADER_TYPE), type=HEADERS_TYPE)
    return pa.array([[{"key": name, "value": content} for name, content in items] for items in headers], HEADERS_TYPE)
