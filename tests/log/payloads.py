"""Batches for tests of payloads, small and large, and the log that takes them."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator_client.encodings import encode_records
from coordinator_protocol.batch import Compression, Encoding
from coordinator_protocol.compression import pack
from coordinator_protocol.kafka_batches import from_kafka
from partition_log.batch_checks import (
    UNPACKED_HERE_BYTES_MAX,
)
from tests.harness.kafka_batches import ROW as KAFKA_ROW
from tests.harness.kafka_batches import kafka_batch, kafka_packed, kafka_payload
from tests.log.driven_log import NO_PRODUCER, Batch, DrivenLog, Producer

IDEMPOTENT = Producer(7, 0)
ROW = (b"k", b"v" * 20, 5, (("h", b"x"),))
PACKING = sorted(set(Compression) - {Compression.NONE})
FULL: dict[str, str] = {}


def checking_log() -> DrivenLog:
    """A topic with three partitions that takes what every reader can decode."""
    driven = DrivenLog()
    driven.create(partition_count=3, config=FULL)
    return driven


def encoded(encoding: Encoding, rows: Any) -> bytes:
    if encoding is Encoding.RECORDS_V1:
        return encode_records(rows)
    pytest.importorskip("pyarrow")
    from coordinator_client.arrow_encoding import encode_arrow

    return encode_arrow(rows)


def batch_of(
    rows: Any = (ROW,),
    *,
    encoding: Encoding = Encoding.RECORDS_V1,
    compression: Compression = Compression.NONE,
    producer: Producer = NO_PRODUCER,
    sequence: int = -1,
    count: int | None = None,
) -> Batch:
    return Batch(
        producer,
        sequence,
        len(rows) if count is None else count,
        pack(encoded(encoding, rows), compression),
        changes={"encoding": encoding, "compression": compression},
    )


def large(**fields: Any) -> Batch:
    """A batch that is checked elsewhere."""
    rows = [(b"k", b"v" * 1_000, 5, ())] * 100
    assert len(encode_records(rows)) > UNPACKED_HERE_BYTES_MAX
    return batch_of(rows, compression=Compression.GZIP, **fields)


def of_kafka(count: int) -> Batch:
    """A batch as clients of Kafka send it, which is checked elsewhere if it has thousands of records."""
    compression = Compression.GZIP if count > 1 else Compression.NONE
    payload = kafka_packed(kafka_payload([KAFKA_ROW] * count), compression)
    header, records, crc = from_kafka(kafka_batch(payload, count, compression=compression))
    names = ("base_timestamp_ms", "max_timestamp_ms", "encoding", "compression")
    changes = {name: getattr(header, name) for name in names}
    return Batch(payload=bytes(records), count=count, crc=crc, changes=changes)


def with_payload(payload: bytes, *, compression: Compression = Compression.NONE, **fields: Any) -> Batch:
    return Batch(payload=payload, changes={"compression": compression}, **fields)
