"""Payloads in tests: topics that take any, and checks that need no other process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from zlib import crc32

from coordinator_api.v1 import log_pb2
from coordinator_protocol.batch import BatchHeader, Encoding, payload_of
from coordinator_protocol.compression import unpack_as
from coordinator_protocol.kafka_records import decode_kafka_records
from coordinator_protocol.limits import Limits
from coordinator_protocol.wire import Buffer
from partition_log.batch_checks import BatchChecks
from partition_log.catalog.settings import VALIDATE_PAYLOAD, PayloadValidation
from tests.harness.store_features import EveryFeature
from tests.harness.workers import HeldWorker

UNREADABLE_PAYLOADS: Final = {VALIDATE_PAYLOAD: PayloadValidation.HEADER}
"""Setting of topics whose payloads no reader could read: words are easier to read in a test than records are, and most
tests look at everything else."""

EVERY_ENCODING: Final = frozenset(Encoding)
"""Encodings that a reader of this release takes."""
_RECORDS_TAG: Final = b"\n"
"""First byte of a payload of records. No word begins with it."""


def words_payload(values: Sequence[str]) -> bytes:
    """Words, which no reader but a test's can read."""
    return " ".join(values).encode()


def key_of(value: str, key_count: int) -> str:
    """The key of a record: one of so many, or its own value if that is 0."""
    return f"key{crc32(value.encode()) % key_count}" if key_count else value


def records_payload(values: Sequence[str], timestamp_ms: int, key_count: int = 0) -> bytes:
    """Records as the SDK sends them, with the keys of `key_of`."""
    records = [
        log_pb2.Record(key=key_of(value, key_count).encode(), value=value.encode(), timestamp_ms=timestamp_ms)
        for value in values
    ]
    return log_pb2.Records(records=records).SerializeToString()


def placed_values(header: BatchHeader, stored: Buffer) -> list[tuple[int, str]]:
    """The offsets and values of a stored batch: words, or records of the SDK or of a Kafka producer."""
    if not header.record_count:
        return []
    base = header.base_offset
    payload = unpack_as(header.encoding, bytes(payload_of(stored)), header.compression)
    if header.encoding is Encoding.KAFKA_V2:
        found = decode_kafka_records(payload, header.base_timestamp_ms)
        return [(base + delta, (value or b"").decode()) for delta, _at, _key, value, _headers in found]
    if payload[:1] == _RECORDS_TAG:
        records = log_pb2.Records.FromString(payload).records
        has_deltas = header.encoding is Encoding.RECORDS_V2
        return [
            (base + (each.offset_delta if has_deltas else place), each.value.decode())
            for place, each in enumerate(records)
        ]
    return list(enumerate(payload.decode().split(" "), base))


def checks_here(limits: Limits) -> BatchChecks:
    """Checks of batches that are done at once, whatever their size."""
    return BatchChecks(HeldWorker(), limits, features=EveryFeature())
