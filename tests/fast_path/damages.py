"""Damages of calls, by name: each changes a request that was right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from coordinator_api.v1 import group_pb2, log_pb2, transaction_pb2
from tests.harness.kafka_batches import kafka_payload


def _first_batch(damage: Callable[[log_pb2.RecordBatch], None]) -> Callable[[Any], None]:
    """Damage the first batch, or nothing where a call has none."""

    def apply(request: Any) -> None:
        for item in getattr(request, "batches", [])[:1]:
            damage(item.batch)

    return apply


def all_batches(request: Any) -> list[log_pb2.PartitionBatch]:
    """Return the batches of a request; none if it has no such field."""
    return list(getattr(request, "batches", []))


def _crc(batch: log_pb2.RecordBatch) -> None:
    batch.crc32c = 1


def _count(batch: log_pb2.RecordBatch) -> None:
    batch.record_count = 7


def _many_records(batch: log_pb2.RecordBatch) -> None:
    """A batch with so many is checked elsewhere."""
    batch.record_count = 40_000


def _no_records(batch: log_pb2.RecordBatch) -> None:
    batch.record_count = 0


def _payload(batch: log_pb2.RecordBatch) -> None:
    batch.payload = b"\xff\xff"


def _encoding(batch: log_pb2.RecordBatch) -> None:
    batch.encoding = log_pb2.ENCODING_UNSPECIFIED


def _of_kafka(batch: log_pb2.RecordBatch) -> None:
    """A batch such as Kafka's clients send; the first one gives the store a feature."""
    batch.encoding = log_pb2.ENCODING_KAFKA_V2
    batch.payload = kafka_payload([(None, batch.payload, batch.base_timestamp_ms, ())] * batch.record_count)


def _compression(batch: log_pb2.RecordBatch) -> None:
    batch.compression = log_pb2.COMPRESSION_GZIP


def _control(batch: log_pb2.RecordBatch) -> None:
    batch.is_control = True


def _timestamps(batch: log_pb2.RecordBatch) -> None:
    batch.base_timestamp_ms = 9


def _from_the_future(batch: log_pb2.RecordBatch) -> None:
    batch.max_timestamp_ms = 2**62


def _too_large(batch: log_pb2.RecordBatch) -> None:
    """Larger than the topic takes, and not than the server does."""
    record = log_pb2.Record(value=b"-" * 50_000, timestamp_ms=5)
    batch.payload = log_pb2.Records(records=[record]).SerializeToString()


def _base_offset(batch: log_pb2.RecordBatch) -> None:
    batch.base_offset = 3


def _holes(batch: log_pb2.RecordBatch) -> None:
    batch.hole_count = 2


def _no_sequence(batch: log_pb2.RecordBatch) -> None:
    batch.ClearField("base_sequence")


def _another_producer(batch: log_pb2.RecordBatch) -> None:
    batch.producer_id = 99


def _not_transactional(batch: log_pb2.RecordBatch) -> None:
    batch.is_transactional = not batch.is_transactional


def _no_request_id(request: Any) -> None:
    request.header.request_id = b""


def _short_request_id(request: Any) -> None:
    request.header.request_id = b"abc"


def _version(number: int) -> Callable[[Any], None]:
    def apply(request: Any) -> None:
        request.header.client_txn_version = number

    return apply


def _impatient(request: Any) -> None:
    request.header.refuse_concurrent = True


def _client_id(request: Any) -> None:
    request.header.client_id = "somebody else"


def _id(name: str) -> Callable[[Any], None]:
    def apply(request: Any) -> None:
        if hasattr(request, "transactional_id"):
            request.transactional_id = name

    return apply


def _unknown_producer(request: Any) -> None:
    if hasattr(request, "producer_id"):
        request.producer_id = 77


def _twice(request: Any) -> None:
    if all_batches(request):
        request.batches.append(request.batches[0])


def _added_twice(request: Any) -> None:
    if isinstance(request, transaction_pb2.AddPartitionsToTxnRequest):
        request.topics.extend(request.topics[:1])


def _also_a_batch(request: Any) -> None:
    if isinstance(request, transaction_pb2.AddPartitionsToTxnRequest):
        request.transactions.add(transactional_id="b", topics=request.topics)


def _many_partitions(request: Any) -> None:
    """More participants than one step may have (`Limits.fused_participants_max`), none of which is there."""
    for number in range(501 if all_batches(request) else 0):
        item = request.batches.add()
        item.CopyFrom(request.batches[0])
        item.partition = number + 10


def _read_topic(request: Any) -> None:
    for topic in _read_topics(request):
        topic.topic = "nowhere"


def _read_partition(request: Any) -> None:
    for topic in _read_topics(request):
        topic.partitions[0].partition = 9


def _read_topics(request: Any) -> list[group_pb2.TopicOffsets]:
    """Return the topics whose offsets come with records."""
    return [topic for group in getattr(request, "groups", []) for topic in group.topics]


def _topic_id(request: Any) -> None:
    for item in all_batches(request)[:1]:
        item.topic_id = b"\x07" * 16


def _nothing(_request: Any) -> None:
    """`Clients` does it."""


def _set(name: str, value: object) -> Callable[[Any], None]:
    """Set a field, of requests that have it."""

    def apply(request: Any) -> None:
        if name in request.DESCRIPTOR.fields_by_name:
            setattr(request, name, value)

    return apply


INIT_DAMAGES: Final[dict[str, Callable[[Any], None]]] = {
    "no timeout": _set("transaction_timeout_ms", 0),
    "long timeout": _set("transaction_timeout_ms", 2**31 - 1),
    "two phases": _set("enable_2pc", True),
    "keeps": _set("keep_prepared", True),
    "expects no producer": _set("expected_producer_id", -1),
    "expects an epoch": _set("expected_producer_epoch", 0),
    "system's name": _set("transactional_id", "__a"),
}
DAMAGES: Final[dict[str, Callable[[Any], None]]] = INIT_DAMAGES | {
    "crc": _first_batch(_crc),
    "count": _first_batch(_count),
    "many records": _first_batch(_many_records),
    "no records": _first_batch(_no_records),
    "payload": _first_batch(_payload),
    "encoding": _first_batch(_encoding),
    "of Kafka": _first_batch(_of_kafka),
    "compression": _first_batch(_compression),
    "control": _first_batch(_control),
    "timestamps": _first_batch(_timestamps),
    "from the future": _first_batch(_from_the_future),
    "too large": _first_batch(_too_large),
    "base offset": _first_batch(_base_offset),
    "holes": _first_batch(_holes),
    "no sequence": _first_batch(_no_sequence),
    "another producer": _first_batch(_another_producer),
    "not transactional": _first_batch(_not_transactional),
    "no request id": _no_request_id,
    "short request id": _short_request_id,
    "version 1": _version(1),
    "version 3": _version(3),
    "impatient": _impatient,
    "client id": _client_id,
    "no name": _id(""),
    "unknown name": _id("z"),
    "long name": _id("n" * 300),
    "unknown producer": _unknown_producer,
    "partition twice": _twice,
    "added twice": _added_twice,
    "also a batch": _also_a_batch,
    "only verifies": _set("verify_only", True),
    "many partitions": _many_partitions,
    "topic id": _topic_id,
    "offset of no topic": _read_topic,
    "offset of no partition": _read_partition,
    "cut": _nothing,
    "large": _nothing,
    "topic by id": _nothing,
    "partition by both names": _nothing,
}
"""Faults and oddities of a call. The last four are done where the bytes are made."""
