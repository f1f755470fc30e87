"""Remains of a partition's log after a compaction, put into a store by hand: batches with holes, and none where all
records of one are gone.

Written with protobuf, Arrow and a few lines for Kafka's records, so that no reader of ours is tested against itself.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from msgspec.structs import replace

from coordinator_api.v1 import log_pb2
from coordinator_protocol.batch import BatchHeader, Encoding, decode_header, payload_of, split_row
from coordinator_protocol.marker import control_batch, marker_header
from coordinator_protocol.wire import varint
from coordinator_runtime.store import CommitGroup, Family, Mutation
from partition_log import codec, index_rows
from partition_log.state import LogTotals
from tests.harness.memory_store import MemoryStore
from tests.harness.stored_batches import encode_batch


class Left(Enum):
    """Remains of a batch after a compaction."""

    AS_IT_WAS = "as it was"
    RECORDS = "records"
    ARROW = "arrow"
    KAFKA = "kafka"
    """Records of Kafka, as if its producer had sent the batch."""
    EMPTY = "empty"
    """A batch without a record, which keeps its producer's sequences."""
    NOTHING = "nothing"


def compact(store: MemoryStore, ordinal: int, end_offset: int, left: Callable[[int], tuple[Left, set[int]]]) -> None:
    """Rewrite the batches that end before an offset; `left` says of a batch, by its first offset, what stays of it, and
    at which offsets the records are that go."""
    head = codec.decode_head(_there(store.get(Family.PARTITIONS, codec.head_key(ordinal))))
    rows: list[Mutation] = []
    removed: list[tuple[int, LogTotals]] = []
    log = list(store.scan(Family.LOG, codec.log_key(ordinal, 0), codec.log_key(ordinal, end_offset)))
    for key, before in log:
        encoded, tail = split_row(before)
        header = decode_header(encoded)
        how, gone = left(header.base_offset)
        if header.is_control or how is Left.AS_IT_WAS:
            continue
        row = _rewritten(header, encoded, how, gone)
        kept = 0 if row is None else decode_header(row).record_count
        if tail is not None:
            # A marker keeps its offset, and so its row: without its batch it is one by itself.
            row = bytes(control_batch(marker_header(header, tail), tail)) if row is None else row + tail
        less = LogTotals(len(before) - len(row or b""), header.record_count - kept)
        rows.append((Family.LOG, key, row))
        removed.append((codec.last_offset(key), less))
    rows += _moved_stretches(store, ordinal, removed)
    rows.append((Family.PARTITIONS, codec.head_key(ordinal), codec.encode_head(replace(head, compacted_to=end_offset))))
    store.write([CommitGroup(store.version() + 1, rows)])
    store.sync()


def _rewritten(header: BatchHeader, encoded: bytes, how: Left, gone: set[int]) -> bytes | None:
    if how is Left.NOTHING:
        return None
    before = log_pb2.Records.FromString(bytes(payload_of(encoded))).records
    stay = [(delta, each) for delta, each in enumerate(before) if header.base_offset + delta not in gone]
    if how is Left.EMPTY:
        stay = []
    counts = {"record_count": len(stay), "hole_count": len(before) - len(stay)}
    match how:
        case Left.ARROW:
            encoding, payload = Encoding.ARROW_V2, arrow_payload(stay)
        case Left.KAFKA:
            encoding, payload = Encoding.KAFKA_V2, kafka_payload(stay, header.base_timestamp_ms)
        case _:
            encoding, payload = Encoding.RECORDS_V2, records_payload(stay)
    return encode_batch(replace(header, encoding=encoding, **counts), payload)


def records_payload(records: list[tuple[int, log_pb2.Record]]) -> bytes:
    """The payload of RECORDS_V2: each record says where it lies."""
    message = log_pb2.Records()
    for delta, record in records:
        message.records.add().CopyFrom(record)
        message.records[-1].offset_delta = delta
    return message.SerializeToString()


def kafka_payload(records: list[tuple[int, log_pb2.Record]], base_timestamp_ms: int = 0) -> bytes:
    """The payload of KAFKA_V2: each record says where it lies, and its time since the batch's."""

    def number(value: int) -> bytes:
        return varint(value << 1 if value >= 0 else (-value << 1) - 1)

    def sized(content: bytes | None) -> bytes:
        return number(-1) if content is None else number(len(content)) + content

    payload = b""
    for delta, each in records:
        record = b"\0" + number(each.timestamp_ms - base_timestamp_ms) + number(delta)
        record += sized(each.key if each.HasField("key") else None)
        record += sized(each.value if each.HasField("value") else None) + number(len(each.headers))
        for one in each.headers:
            record += sized(one.key.encode()) + sized(one.value if one.HasField("value") else None)
        payload += sized(record)
    return payload


def arrow_payload(records: list[tuple[int, log_pb2.Record]]) -> bytes:
    """The payload of ARROW_V2: one more column says where each record lies."""
    import pyarrow as pa

    header = pa.struct([pa.field("key", pa.utf8(), nullable=False), pa.field("value", pa.binary())])
    columns = {
        pa.field("key", pa.binary()): [each.key if each.HasField("key") else None for _, each in records],
        pa.field("value", pa.binary()): [each.value if each.HasField("value") else None for _, each in records],
        pa.field("timestamp_ms", pa.int64(), nullable=False): [each.timestamp_ms for _, each in records],
        pa.field("headers", pa.list_(pa.field("item", header, nullable=False))): [
            [{"key": one.key, "value": one.value} for one in each.headers] for _, each in records
        ],
        pa.field("offset_delta", pa.int32(), nullable=False): [delta for delta, _ in records],
    }
    arrays = [pa.array(column, each.type) for each, column in columns.items()]
    payload: bytes = pa.record_batch(arrays, schema=pa.schema(list(columns))).serialize().to_pybytes()
    return payload


def _moved_stretches(store: MemoryStore, ordinal: int, removed: list[tuple[int, LogTotals]]) -> list[Mutation]:
    """Stretches say what lies before their end only in comparison, so what was taken away behind an end is added there:
    the rows behind, and the head, stay as they are."""
    rows: list[Mutation] = []
    start, end = codec.partition_key(ordinal), codec.partition_key(ordinal + 1)
    for key, value in store.scan(Family.STRETCHES, start, end):
        stretch = index_rows.decode_stretch(key, value)
        totals = stretch.totals
        for last_offset, less in removed:
            if last_offset > stretch.last_offset:
                totals = replace(
                    totals,
                    size_bytes=totals.size_bytes + less.size_bytes,
                    record_count=totals.record_count + less.record_count,
                )
        rows.append((Family.STRETCHES, key, index_rows.encode_stretch(replace(stretch, totals=totals))))
    return rows


def _there(value: bytes | None) -> bytes:
    assert value is not None
    return value
