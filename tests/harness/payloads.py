"""Payloads in tests: topics that take any, and checks that need no other process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

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


def records_payload(values: Sequence[str], timestamp_ms: int) -> bytes:
    """Records as the SDK sends them, each with a key of its own."""
    records = [log_pb2.Record(key=value.encode(), value=value.encode(), timestamp_ms=timestamp_ms) for value in values]
    return log_pb2.Records(records=records).SerializeToString()


def values_in(header: BatchHeader, stored: Buffer) -> list[str]:
    """The values of a stored batch: words, or records of the SDK or of a Kafka producer."""
    payload = unpack_as(header.encoding, bytes(payload_of(stored)), header.compression)
    if header.encoding is Encoding.KAFKA_V2:
        found = decode_kafka_records(payload, header.base_timestamp_ms)
        return [(value or b"").decode() for _delta, _at, _key, value, _headers in found]
    if payload[:1] == _RECORDS_TAG:
        return [record.value.decode() for record in log_pb2.Records.FromString(payload).records]
    return payload.decode().split(" ")


def checks_here(limits: Limits) -> BatchChecks:
    """Checks of batches that are done at once, whatever their size."""
    return BatchChecks(HeldWorker(), limits, features=EveryFeature())
