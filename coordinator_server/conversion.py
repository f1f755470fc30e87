"""Conversion for readers of gRPC that cannot decode batches of Kafka's producers: they get messages `Records`.

Small batches are converted on the loop, others by the worker.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from coordinator_protocol.batch import BatchHeader, Encoding, decode_header
from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_runtime.pending import Pending, settled
from coordinator_runtime.worker import Worker, WorkerLost
from coordinator_server.compiled import to_records
from partition_log.conversion import NotConvertible, is_large
from partition_log.fetch_conversion import ReadBatch

_KAFKA: Final = Encoding.KAFKA_V2


class RecordsConverter:
    """Implements `partition_log.fetch_conversion.Converter`."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    def readable(self, accepted: frozenset[Encoding]) -> frozenset[Encoding]:
        """Return the encodings that the reader takes, and Kafka's."""
        return accepted | {_KAFKA}

    def convert(self, batch: ReadBatch, accepted: frozenset[Encoding]) -> Pending[ReadBatch]:
        """Return a batch of Kafka's in our encoding. Errors: Refused CORRUPT_MESSAGE if it is unreadable,
        COORDINATOR_NOT_AVAILABLE if the worker died."""
        header, stored = batch
        answer = partial(_answer, header)
        if not is_large(header, len(stored)):
            return settled(records_or_reason(bytes(stored))).map(answer)
        return self._worker.run(records_or_reason, bytes(stored)).map(answer, _lost)


def records_or_reason(batch: bytes) -> bytes | str:
    """Return a stored batch of Kafka's in our encoding, or the reason why it is unreadable. A module-level function, so
    that another process can run it."""
    try:
        return to_records(batch)
    except NotConvertible as error:
        return str(error)


def _answer(header: BatchHeader, converted: bytes | str) -> ReadBatch:
    if isinstance(converted, str):
        raise Refused(
            ErrorCode.CORRUPT_MESSAGE,
            f"the batch at offset {header.base_offset} cannot be read: {converted};"
            f" go on at {header.last_offset + 1} to do without it",
        )
    return decode_header(converted), converted


def _lost(error: Exception) -> ReadBatch:
    if not isinstance(error, WorkerLost):
        raise error
    raise Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"the records were not converted ({error}); fetch them again")
