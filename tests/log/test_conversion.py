"""Conversion for readers of another encoding: the same records at the same offsets, whichever way, and no guess where a
payload is damaged."""

from __future__ import annotations

import struct
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from coordinator_protocol.arrow_payload import NotArrow
from coordinator_protocol.arrow_records import placed_arrow_records
from coordinator_protocol.batch import (
    ENCODINGS_WITH_DELTAS,
    HEADER_BYTES,
    BatchHeader,
    Compression,
    Encoding,
    TimestampType,
    decode_header,
    verify_batch,
)
from coordinator_protocol.checksum import crc32c
from coordinator_protocol.kafka_records import PlacedRecord, decode_kafka_records
from partition_log.batch_checks import PIECE_BYTES
from partition_log.codec import placed_records_of
from partition_log.conversion import NotConvertible, is_large, kafka_batch_of, records_batch_of
from tests.harness.every_encoding import payload_of_records, placed_records, stored

pytest.importorskip("pyarrow")

OURS: Final = (Encoding.RECORDS_V1, Encoding.ARROW_V1, Encoding.RECORDS_V2, Encoding.ARROW_V2)
KAFKA_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
PRODUCER: Final = {"producer_id": 2**40, "producer_epoch": 7, "base_sequence": 2**31 - 2, "is_transactional": True}
PLACED: Final = {"base_offset": 2**33, "leader_epoch": 5}


def test_a_converted_batch_is_the_documented_record_batch_byte_for_byte() -> None:
    records: list[PlacedRecord] = [(0, 1_000, b"k", b"v", ()), (2, 1_001, None, b"", ((b"h", None),))]
    batch = stored(records, Encoding.RECORDS_V2, base_offset=9, leader_epoch=3, **PRODUCER)
    body = bytes.fromhex("10 00 00 00 02 6b 02 76 00") + bytes.fromhex("12 00 02 04 01 00 02 02 68 01")
    after = struct.pack(">hiqqqhii", 0x10, 2, 1_000, 1_001, 2**40, 7, 2**31 - 2, 2) + body
    expected = struct.pack(">qiib", 9, 49 + len(body), 3, 2) + crc32c(after).to_bytes(4, "big") + after
    assert kafka_batch_of(decode_header(batch), batch).hex() == expected.hex()


@settings(deadline=None)
@given(st.data(), st.sampled_from(OURS), st.sampled_from(Compression), st.booleans(), st.sampled_from(TimestampType))
def test_kafkas_consumers_get_the_same_records_in_the_same_places(
    data: st.DataObject, encoding: Encoding, compression: Compression, is_transactional: bool, kind: TimestampType
) -> None:
    has_deltas = encoding in ENCODINGS_WITH_DELTAS
    records = data.draw(placed_records(has_holes=has_deltas, count_min=not has_deltas))
    fields: dict[str, Any] = {**(PRODUCER if is_transactional else {}), **PLACED, "timestamp_type": kind}
    batch = stored(records, encoding, compression=compression, **fields)
    header = decode_header(batch)
    converted = kafka_batch_of(header, memoryview(batch))
    offset, length, epoch, magic, crc, attributes, last_delta, base_ms, max_ms, *rest = KAFKA_HEADER.unpack_from(
        converted
    )
    assert (offset, length, epoch, magic) == (2**33, len(converted) - 12, 5, 2)
    assert crc == crc32c(converted[21:])
    assert attributes == kind << 3 | is_transactional << 4
    assert (last_delta, base_ms, max_ms) == (
        header.last_offset_delta,
        header.base_timestamp_ms,
        header.max_timestamp_ms,
    )
    assert rest == [header.producer_id, header.producer_epoch, header.base_sequence, len(records)]
    assert decode_kafka_records(converted[KAFKA_HEADER.size :], base_ms) == records


@settings(deadline=None)
@given(placed_records(), st.sampled_from(Compression), st.booleans())
def test_older_readers_get_the_records_of_kafkas_producers(
    records: list[PlacedRecord], compression: Compression, is_transactional: bool
) -> None:
    fields = {**(PRODUCER if is_transactional else {}), **PLACED}
    batch = stored(records, Encoding.KAFKA_V2, compression=compression, **fields)
    header = decode_header(batch)
    converted = records_batch_of(header, batch)
    verify_batch(converted)
    after = decode_header(converted)
    encoding = Encoding.RECORDS_V2 if header.hole_count else Encoding.RECORDS_V1
    assert after == replace(header, encoding=encoding, compression=Compression.NONE)
    first_place = None if header.hole_count else 0
    assert placed_records_of(converted[HEADER_BYTES:], first_place) == records


def test_a_name_of_a_header_that_is_no_text_is_read_as_kafkas_consumer_reads_it() -> None:
    batch = stored([(0, 5, None, None, ((b"caf\xe9", b"1"),))], Encoding.KAFKA_V2)
    converted = records_batch_of(decode_header(batch), batch)
    assert placed_records_of(converted[HEADER_BYTES:], 0)[0][4] == (("caf�".encode(), b"1"),)


def test_a_marker_behind_the_batch_is_left_out() -> None:
    records: list[PlacedRecord] = [(0, 5, b"k", b"v", ())]
    for encoding, convert in ((Encoding.RECORDS_V1, kafka_batch_of), (Encoding.KAFKA_V2, records_batch_of)):
        batch = stored(records, encoding)
        assert convert(decode_header(batch), batch + bytes(38)) == convert(decode_header(batch), batch)


def test_many_records_are_parsed_piece_by_piece() -> None:
    count = PIECE_BYTES // 100
    records: list[PlacedRecord] = [(at, at, b"k" * 50, b"v" * 100, ()) for at in range(count)]
    batch = stored(records, Encoding.RECORDS_V1)
    assert is_large(decode_header(batch), len(batch))
    converted = kafka_batch_of(decode_header(batch), batch)
    assert decode_kafka_records(converted[KAFKA_HEADER.size :], 0) == records


@given(placed_records(has_holes=True), st.booleans())
def test_records_are_read_out_of_arrow_without_arrow(records: list[PlacedRecord], has_deltas: bool) -> None:
    encoding = Encoding.ARROW_V2 if has_deltas else Encoding.ARROW_V1
    payload = payload_of_records(records, BatchHeader(0, len(records), 0, 0, encoding))
    expected = records if has_deltas else [(at, *record[1:]) for at, record in enumerate(records)]
    assert placed_arrow_records(payload, has_deltas=has_deltas) == expected


@settings(deadline=None)
@given(placed_records(count_min=1), st.sampled_from(OURS), st.data())
def test_damage_is_refused_or_what_is_left_can_be_read(
    records: list[PlacedRecord], encoding: Encoding, data: st.DataObject
) -> None:
    header = BatchHeader(0, len(records), 0, 0, encoding)
    payload = bytearray(payload_of_records(records, header))
    for _ in range(data.draw(st.integers(1, 3))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    batch = stored([], encoding, last_delta=records[-1][0])[:HEADER_BYTES]
    damaged = bytes(payload[: data.draw(st.integers(0, len(payload)))] if data.draw(st.booleans()) else payload)
    whole = batch[:8] + (52 + len(damaged)).to_bytes(4, "big") + batch[12:] + damaged
    try:
        converted = kafka_batch_of(replace(header, hole_count=records[-1][0] + 1 - len(records)), whole)
    except NotConvertible:
        return
    assert len(decode_kafka_records(converted[KAFKA_HEADER.size :], 0)) == len(records)


@pytest.mark.parametrize(
    ("count", "places", "why"),
    [
        (1, (0, 1), "it holds 2 records and its header says 1"),
        (2, (0, 6), "its records do not lie at ascending places up to 5, one is at 6"),
        (2, (3, 3), "its records do not lie at ascending places up to 5, one is at 3"),
    ],
)
def test_records_that_the_header_does_not_have_are_named(count: int, places: tuple[int, int], why: str) -> None:
    records: list[PlacedRecord] = [(place, 5, None, None, ()) for place in places]
    for encoding, convert in ((Encoding.KAFKA_V2, records_batch_of), (Encoding.RECORDS_V2, kafka_batch_of)):
        batch = stored(records, encoding, record_count=count, hole_count=6 - count)
        with pytest.raises(NotConvertible) as refused:
            convert(decode_header(batch), batch)
        assert str(refused.value) == why


def test_a_payload_that_does_not_unpack_is_not_converted() -> None:
    batch = stored([(0, 5, None, None, ())], Encoding.KAFKA_V2, compression=Compression.ZSTD)
    damaged = batch[:HEADER_BYTES] + bytes(len(batch) - HEADER_BYTES)
    with pytest.raises(NotConvertible, match="its zstd payload cannot be unpacked"):
        records_batch_of(decode_header(damaged), damaged)
    with pytest.raises(NotArrow):
        placed_arrow_records(b"no arrow", has_deltas=False)
