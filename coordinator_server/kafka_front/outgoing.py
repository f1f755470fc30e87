"""Records on their way to a Kafka client: stored batches in Kafka's form.

Batches of Kafka's clients are sent from where they were read. A marker is made anew. A batch of another encoding is
converted, and is then not compressed. Small conversions happen here; larger ones keep the worker busy, not the loop.

An answer ends before a batch that the client cannot take, and before a conversion that makes it too large. An error is
its answer if that batch is the first.

Source: docs/spec, "kafka-front" B1, B7, B11 and B14.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

from msgspec import Struct

from coordinator_protocol.batch import HEADER_BYTES, BatchHeader, Compression, Encoding
from coordinator_protocol.errors import CoordinatorError, ErrorCode, Refused
from coordinator_protocol.kafka_batches import marker_to_kafka, to_kafka
from coordinator_protocol.marker import decode_marker_payload
from coordinator_protocol.wire import Buffer
from coordinator_runtime.pending import Pending, settled
from coordinator_runtime.ports import Connection
from coordinator_runtime.worker import Worker, WorkerLost
from coordinator_server.compiled import fastest_conversions
from coordinator_server.kafka_front.writing import Piece
from partition_log.batch_checks import PLAIN_HERE_BYTES_MAX, UNPACKED_HERE_BYTES_MAX
from partition_log.conversion import NotConvertible, kafka_batch_of, kafka_payload_of
from partition_log.fetch import Fetcher
from partition_log.reading import BYTES_READ_MAX

ZSTD_SINCE: Final = 10
"""First version of Fetch whose clients know ZSTD."""
PIECE_BYTES_MIN: Final = 4 * 1024
"""Mean size of batches from which they are sent in pieces. Smaller ones are joined, because a piece costs more than its
copy."""

ITEMS_HERE_MAX: Final = 512
"""Largest number of records that are converted on the loop in Python, in about 1 ms."""
_ITEMS_PER_BATCH: Final = 16
"""Cost of a batch besides its records, in records."""
_COMPILED_GAIN: Final = 10
"""Number of records that the compiled function converts in the time that Python takes for one."""

Batches = Sequence[tuple[BatchHeader, Buffer]]
"""Batches of one partition, in stored form."""

_KAFKA: Final = Encoding.KAFKA_V2
_CONTROL: Final = Encoding.CONTROL


class Outgoing(Struct, frozen=True):
    """Records of one partition in an answer, or the error in their place."""

    records: Sequence[Piece]
    error: CoordinatorError | None = None
    end_offset: int | None = None
    """First offset of the first batch that was left out; None if all are there."""


class ToConvert(Struct, frozen=True):
    """Batches to be converted, in the order of the answer. Values that another process can take."""

    batches: Sequence[tuple[BatchHeader, bytes]]
    bytes_max: int
    """Size after which no more are converted. The first one always is."""

    @property
    def size_bytes(self) -> int:
        """Size of the batches before conversion."""
        return sum(len(stored) for _header, stored in self.batches)


class Converted(Struct, frozen=True):
    """Converted batches, from the first on; None for one that cannot be."""

    batches: Sequence[bytes | None]


class OutgoingRecords:
    """Makes the records of answers."""

    def __init__(self, fetcher: Fetcher, worker: Worker) -> None:
        self._fetcher = fetcher
        self._worker = worker

    def of(
        self, results: Sequence[Batches], version: int, bytes_max: int, connection: Connection
    ) -> Pending[list[Outgoing]]:
        """Return the records for the batches of each partition, for a client of this version of Fetch.

        The limit bounds the converted batches together, apart from the first. Errors: Refused KAFKA_STORAGE_ERROR if
        the worker died."""
        foreign = [each for batches in results for each in batches if each[0].encoding not in (_KAFKA, _CONTROL)]
        if not foreign:
            return settled(_assembled(results, version, Converted(())))
        wanted = ToConvert([(header, bytes(batch)) for header, batch in foreign], min(bytes_max, BYTES_READ_MAX))
        assemble = partial(_assembled, results, version)
        if _is_small(wanted):
            return settled(assemble(convert(wanted)))
        return self._by_worker(wanted, connection).map(assemble, _not_converted)

    def _by_worker(self, wanted: ToConvert, connection: Connection) -> Pending[Converted]:
        """Convert batches in the worker. Until then they count as an answer that waits."""
        # The server sets the limit after the parts are made.
        limit, held_bytes = self._fetcher.answer_limit, wanted.size_bytes
        limit.hold(connection, held_bytes)
        converted = self._worker.run(convert, wanted)
        converted.on_settled(lambda _converted: limit.release(connection, held_bytes))
        return converted


def convert(wanted: ToConvert) -> Converted:
    """Convert batches. A module-level function, so that another process can run it."""
    batches: list[bytes | None] = []
    left = wanted.bytes_max
    payload_of, _ = fastest_conversions()
    for header, stored in wanted.batches:
        try:
            batch = kafka_batch_of(header, stored, payload_of)
        except NotConvertible:
            batches.append(None)
            continue
        if batches and len(batch) > left:
            break
        batches.append(batch)
        left -= len(batch)
    return Converted(batches)


def _is_small(wanted: ToConvert) -> bool:
    """Return True if the loop can spare the time to convert these batches."""
    items = 0
    is_compiled = fastest_conversions()[0] is not kafka_payload_of
    for header, _stored in wanted.batches:
        if header.compression is not Compression.NONE:
            return False
        items += _ITEMS_PER_BATCH + (header.record_count // _COMPILED_GAIN if is_compiled else header.record_count)
    bytes_max = PLAIN_HERE_BYTES_MAX if is_compiled else UNPACKED_HERE_BYTES_MAX
    return items <= ITEMS_HERE_MAX and wanted.size_bytes <= bytes_max


def _assembled(results: Sequence[Batches], version: int, converted: Converted) -> list[Outgoing]:
    found = iter(converted.batches)
    return [_outgoing(batches, version, found) for batches in results]


def _outgoing(batches: Batches, version: int, converted: Iterator[bytes | None]) -> Outgoing:
    """Return the records of one partition. Takes as many converted batches as there are batches to convert."""
    pieces: list[Piece] = []
    error: CoordinatorError | None = None
    is_cut = False
    end_offset: int | None = None
    size = 0
    for header, stored in batches:
        if header.encoding is _KAFKA:
            if header.compression is Compression.ZSTD and version < ZSTD_SINCE:
                error = error or _no_zstd(header, version)
                is_cut = True
            if not is_cut:
                pieces += to_kafka(header, stored)
                size += len(stored)
        elif header.encoding is _CONTROL:
            if not is_cut:
                marker = decode_marker_payload(memoryview(stored)[HEADER_BYTES:])
                pieces.append(marker_to_kafka(header, marker.outcome, marker.coordinator_epoch))
                size += len(stored)
        else:
            batch = next(converted, b"")
            if batch is None:
                error = error or _not_convertible(header)
            if not batch:
                is_cut = True
            elif not is_cut:
                pieces.append(batch)
                size += len(batch)
        if is_cut and end_offset is None:
            end_offset = header.base_offset
    if size < PIECE_BYTES_MIN * len(batches):
        pieces = [b"".join(pieces)]
    return Outgoing(pieces, None if size else error, end_offset)


def _no_zstd(header: BatchHeader, version: int) -> Refused:
    return Refused(
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        f"the batch at offset {header.base_offset} is compressed with ZSTD, and clients of Fetch {version} do not know "
        f"it; use a client of version {ZSTD_SINCE}",
    )


def _not_convertible(header: BatchHeader) -> Refused:
    return Refused(
        ErrorCode.CORRUPT_MESSAGE,
        f"the batch at offset {header.base_offset} has a payload that is not {header.encoding.name}; go on at "
        f"{header.last_offset + 1} to do without it",
    )


def _not_converted(error: Exception) -> list[Outgoing]:
    if not isinstance(error, WorkerLost):
        raise error
    text = f"the records were not converted ({error}); fetch them again"
    raise Refused(ErrorCode.KAFKA_STORAGE_ERROR, text)
