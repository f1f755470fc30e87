"""Encoding of Fetch answers, written around the payloads as the store returned them.

A protobuf message copies a payload when it takes it in, and again with every message around it. It copies it once more
for each doubling of the output buffer. At 100 KiB per batch this was four fifths of the cost of a Fetch. So only the
small fields are messages here. Payloads are the last field of their batch, and batches the last of their partition
(`log.proto`), so an answer is a sequence of pieces.

The pieces are joined once. They are not joined at all if the transport sends them one after the other and most of the
bytes are in large ones. Then a payload is sent from the buffer that the store filled.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Final, Generic, TypeVar

from google.protobuf.message import Message

from coordinator_api.v1 import log_pb2
from coordinator_protocol.batch import (
    ENCODINGS_OF_OLD_READERS,
    HEADER_BYTES,
    NO_PRODUCER_ID,
    BatchHeader,
    Encoding,
    payload_of,
    stored_crc,
)
from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.limits import KIBI
from coordinator_protocol.marker import Outcome, decode_marker_payload
from coordinator_protocol.methods import Method
from coordinator_protocol.producers import NO_SEQUENCE
from coordinator_protocol.wire import Buffer, Pieces, bytes_field, field_prefix
from coordinator_server.grpc_front.wire.edge import set_error
from partition_log.leadership import Diverged
from partition_log.requests import FetchResult
from partition_log.state import Isolation

_RESULTS: Final = bytes_field(log_pb2.FetchResponse.RESULTS_FIELD_NUMBER)
_BATCHES: Final = bytes_field(log_pb2.FetchResult.BATCHES_FIELD_NUMBER)
_RESULT_PREFIX: Final = partial(field_prefix, _RESULTS)
_PAYLOAD: Final = bytes_field(log_pb2.RecordBatch.PAYLOAD_FIELD_NUMBER)

PAYLOAD_BYTES_MIN: Final = 32 * KIBI
"""Mean payload size from which pieces are kept apart. A smaller payload is copied faster than it is handed over."""

_ISOLATIONS: Final = (Isolation.READ_COMMITTED, Isolation.READ_COMMITTED, Isolation.READ_UNCOMMITTED)
"""Isolation levels by their numbers on the wire; 0 is that of a client that sets none."""


_KNOWN_ENCODINGS: Final = frozenset(Encoding)

ResultT = TypeVar("ResultT", bound=Message)
Batches = Sequence[tuple[BatchHeader, Buffer]]
FieldPrefix = Callable[[int], bytes]


class RecordsAnswer(Generic[ResultT]):
    """A response with records as the transport takes it: its bytes, and its error codes. Its results are the last of
    its fields."""

    __slots__ = ("_batch_count", "_pieces", "_size_bytes", "results")

    error_code: Final = 0

    def __init__(self, before: bytes, results: Iterable[tuple[ResultT, Batches]], prefix: FieldPrefix) -> None:
        """`before`: the fields before the results. `prefix`: writes what precedes one result."""
        self._size_bytes, self._batch_count = len(before), 0
        self.results: Final[list[ResultT]] = []
        """One result for each partition, without its batches."""
        self._pieces: list[bytes | memoryview] = [before] if before else []
        for fields, batches in results:
            self.results.append(fields)
            self._add(fields.SerializeToString(), batches, prefix)

    def _add(self, fields: bytes, batches: Batches, prefix: FieldPrefix) -> None:
        pieces: list[bytes | memoryview] = [fields]
        size = len(fields)
        for header, encoded in batches:
            payload_bytes = len(encoded) - HEADER_BYTES
            inside = _batch_fields(header, encoded).SerializeToString() + field_prefix(_PAYLOAD, payload_bytes)
            before = field_prefix(_BATCHES, len(inside) + payload_bytes) + inside
            pieces += (before, payload_of(encoded))
            size += len(before) + payload_bytes
        before_all = prefix(size)
        self._pieces.append(before_all)
        self._pieces += pieces
        self._size_bytes += len(before_all) + size
        self._batch_count += len(batches)

    def SerializeToString(self) -> bytes:
        """Return the bytes of the message, as a protobuf message does."""
        return b"".join(self._pieces)

    def in_pieces(self) -> bytes | Pieces:
        """Return the same bytes, in pieces if that is faster."""
        if self._size_bytes >= PAYLOAD_BYTES_MIN * max(1, self._batch_count):
            return Pieces(self._pieces, self._size_bytes)
        return self.SerializeToString()


class FetchAnswer(RecordsAnswer[log_pb2.FetchResult]):
    """A successful `FetchResponse`."""

    def __init__(self, found: Sequence[FetchResult]) -> None:
        super().__init__(b"", ((_result_fields(result), result.batches) for result in found), _RESULT_PREFIX)


def _result_fields(result: FetchResult) -> log_pb2.FetchResult:
    name, head = result.name, result.head
    message = log_pb2.FetchResult(
        topic=name.topic,
        topic_id=name.topic_id,
        partition=name.partition,
        next_offset=result.next_offset,
        aborted_records_hidden=result.aborted_records_hidden,
        control_records_hidden=result.control_records_hidden,
    )
    for ended in result.aborted:
        message.aborted_transactions.add(
            producer_id=ended.producer_id, first_offset=ended.first_offset, marker_offset=ended.marker_offset
        )
    if head is not None:
        message.high_watermark = head.log_end_offset
        message.last_stable_offset = head.last_stable_offset
        message.log_start_offset = head.log_start_offset
        message.leader_epoch = head.leadership.epoch
    if result.last_read_epoch is not None:
        message.last_read_epoch = result.last_read_epoch
    if isinstance(result.error, Diverged):
        found = result.error.divergence
        message.diverging.CopyFrom(log_pb2.EpochEnd(epoch=found.epoch, end_offset=found.end_offset))
    if result.error is not None:
        set_error(message, Method.FETCH, result.error)
    return message


def _batch_fields(header: BatchHeader, encoded: Buffer) -> log_pb2.RecordBatch:
    """Return the fields of a stored batch except its payload. Absent fields stay absent."""
    has_producer = header.producer_id != NO_PRODUCER_ID
    message = log_pb2.RecordBatch(
        base_offset=header.base_offset,
        record_count=header.record_count,
        base_timestamp_ms=header.base_timestamp_ms,
        max_timestamp_ms=header.max_timestamp_ms,
        producer_id=header.producer_id if has_producer else None,
        producer_epoch=header.producer_epoch if has_producer else None,
        base_sequence=header.base_sequence if header.base_sequence != NO_SEQUENCE else None,
        is_transactional=header.is_transactional,
        encoding=header.encoding,  # type: ignore[arg-type]  # the numbers of these three are those of the wire
        compression=header.compression,  # type: ignore[arg-type]
        timestamp_type=header.timestamp_type,  # type: ignore[arg-type]
        crc32c=stored_crc(encoded),
        hole_count=header.hole_count,
        leader_epoch=header.leader_epoch,
    )
    if header.is_control:
        marker = decode_marker_payload(encoded[HEADER_BYTES:])
        message.is_control = True
        message.marker.CopyFrom(
            log_pb2.ControlMarker(
                committed=marker.outcome is Outcome.COMMIT,
                txn_epoch=marker.txn_epoch,
                next_epoch=marker.next_epoch,
                coordinator_epoch=marker.coordinator_epoch,
                csn=marker.csn,
                coordinator_shard=marker.coordinator_shard,
                first_offset=marker.first_offset,
            )
        )
    return message


def accepted_encodings_of(numbers: Collection[int]) -> frozenset[Encoding]:
    """Return the encodings that a reader takes, of those known here. Control batches are taken by every raw reader."""
    if not numbers:
        return ENCODINGS_OF_OLD_READERS
    return _KNOWN_ENCODINGS.intersection(numbers) | {Encoding.CONTROL}


def isolation_of(level: int) -> Isolation:
    """Return the isolation level of a wire number. Raises Refused INVALID_REQUEST for an unknown one."""
    if not 0 <= level < len(_ISOLATIONS):
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            f"isolation level {level} is not known here; use READ_COMMITTED (1) or READ_UNCOMMITTED (2)",
        )
    return _ISOLATIONS[level]
