"""Logs of dead-letter topics. Implements `coordinator_runtime.dead_letters.DeadLetterLog`.

Letters are records of `RECORDS_V1`, without a producer. They are uncompressed, and have the time of their writing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Final

from coordinator_protocol.arrow_payload import NotArrow
from coordinator_protocol.arrow_records import placed_arrow_records
from coordinator_protocol.batch import (
    ENCODINGS_WITH_DELTAS,
    HEADER_BYTES,
    BatchHeader,
    Compression,
    Encoding,
    encode_offsetless,
    stored_bytes,
)
from coordinator_protocol.compression import NotUnpackable, unpack_as
from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.kafka_records import NotKafkaRecords, PlacedRecord, decode_kafka_records
from coordinator_protocol.wire import Buffer
from coordinator_runtime.dead_letters import PlacedLetters
from coordinator_runtime.decision import Operation
from coordinator_runtime.pending import Pending, settled
from partition_log.batch_checks import BatchChecks
from partition_log.catalog.shard import CatalogShard
from partition_log.codec import NotRecords, encode_records
from partition_log.conversion import is_large, placed_records_in
from partition_log.partition_state import Append
from partition_log.shard import LogShard

_OF_RECORDS: Final = (Encoding.RECORDS_V1, Encoding.RECORDS_V2)

Picked = tuple[int, int, int, frozenset[int], bytes]
"""Argument of `picked_records`, as plain values for another process. From the header: encoding, compression, base
timestamp. Then the offset deltas of the wanted records, and the payload."""


class LetterLog:
    """Reads the records that get letters, and places letters in dead-letter topics."""

    def __init__(self, catalog: CatalogShard, checks: BatchChecks) -> None:
        self._catalog = catalog
        self._checks = checks

    def records_at(
        self, batch: tuple[BatchHeader, Buffer], offsets: Collection[int]
    ) -> Pending[Mapping[int, PlacedRecord]]:
        header, stored = batch
        base_offset, payload = header.base_offset, bytes(memoryview(stored)[HEADER_BYTES : stored_bytes(stored)])
        deltas = frozenset(offset - base_offset for offset in offsets)
        picked: Picked = int(header.encoding), int(header.compression), header.base_timestamp_ms, deltas, payload
        found = (
            self._checks.worker.run(picked_records, picked)
            if is_large(header, HEADER_BYTES + len(payload))
            else settled(picked_records(picked))
        )
        return found.map(lambda records: {base_offset + record[0]: record for record in records})

    def place(self, topic: str, number: int, letters: Sequence[PlacedRecord], now_ms: int) -> PlacedLetters:
        shape = self._catalog.shape(topic)
        if shape is None:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {topic}")
        if self._checks.disk.refusal is not None:
            raise self._checks.disk.refusal
        placed = self._catalog.place(topic, b"", number % shape.partition_count)
        payload, taken = bytearray(), 0
        for each in letters:
            encoded = encode_records((each,), has_deltas=False)
            if HEADER_BYTES + len(payload) + len(encoded) > placed.batch_bytes_max:
                break
            payload += encoded
            taken += 1
        if not taken:
            return PlacedLetters(0, None)
        header = BatchHeader(0, taken, now_ms, now_ms, Encoding.RECORDS_V1)
        append = Append(
            placed.ref.ordinal,
            header,
            encode_offsetless(header, bytes(payload)),
            batch_bytes_max=placed.batch_bytes_max,
        )
        return PlacedLetters(taken, Operation(placed.shard, partial(LogShard.decide_append, append=append)))


def picked_records(picked: Picked) -> list[PlacedRecord]:
    """Return the wanted records of a payload; none if no reader could decode it. A module-level function, so that
    another process can run it."""
    encoding, compression, base_timestamp_ms, deltas, payload = picked
    try:
        plain = unpack_as(Encoding(encoding), payload, Compression(compression))
        records = _records(plain, Encoding(encoding), base_timestamp_ms)
    except (NotUnpackable, NotRecords, NotArrow, NotKafkaRecords, ValueError):
        return []
    return [record for record in records if record[0] in deltas]


def _records(plain: bytes, encoding: Encoding, base_timestamp_ms: int) -> Sequence[PlacedRecord]:
    """Return the records of an unpacked payload. Raises NotRecords, NotArrow, NotKafkaRecords, ValueError."""
    if encoding is Encoding.KAFKA_V2:
        return decode_kafka_records(plain, base_timestamp_ms)
    has_deltas = encoding in ENCODINGS_WITH_DELTAS
    if encoding not in _OF_RECORDS:
        return placed_arrow_records(plain, has_deltas=has_deltas)
    return placed_records_in(plain, has_deltas=has_deltas)
