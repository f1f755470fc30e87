"""Records of Kafka's version 2: bytes by its documentation, whatever a writer writes, and what damage makes of them."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from coordinator_protocol.kafka_records import (
    NotKafkaRecords,
    PlacedRecord,
    decode_kafka_records,
    encode_kafka_records,
    kafka_record_times,
)

BASE_MS: Final = 1_700_000_000_000
INT64 = st.integers(-(2**63), 2**63 - 1)
CONTENT = st.none() | st.binary(max_size=150)
HEADERS = st.lists(st.tuples(st.binary(max_size=70), CONTENT), max_size=3).map(tuple)
RECORDS = st.lists(st.tuples(st.integers(0, 2**31 - 1), INT64 | st.just(-1), CONTENT, CONTENT, HEADERS), max_size=8)

# Byte by byte from the documented format: length, attributes, timestamp, offset, key, value, headers.
FIRST: Final = bytes([0x14, 0x00, 0x00, 0x00, 0x02]) + b"k" + bytes([0x06]) + b"abc" + b"\x00"
LATER: Final = bytes([0x28, 0x00, 0x80, 0x03, 0x02, 0x01, 0x01, 0x04])
LATER_HEADERS: Final = bytes([0x0E]) + b"traceid" + bytes([0x02]) + b"7" + bytes([0x02]) + b"x" + bytes([0x01])
BY_HAND: Final = FIRST + LATER + LATER_HEADERS
WHAT_IT_HOLDS: Final[list[PlacedRecord]] = [
    (0, BASE_MS, b"k", b"abc", ()),
    (1, BASE_MS + 192, None, None, ((b"traceid", b"7"), (b"x", None))),
]


def test_bytes_of_the_documented_format_are_read_and_written() -> None:
    assert decode_kafka_records(BY_HAND, BASE_MS) == WHAT_IT_HOLDS
    assert encode_kafka_records(WHAT_IT_HOLDS, BASE_MS) == BY_HAND
    assert list(kafka_record_times(BY_HAND, BASE_MS)) == [(0, BASE_MS), (1, BASE_MS + 192)]


@given(RECORDS, INT64)
@example([(0, 2**63 - 1, None, b"", ())], -1)
@example([(0, -1, b"", None, ((b"", None), (b"", b"")))], 2**63 - 1)
def test_what_is_written_is_read(records: list[PlacedRecord], base_ms: int) -> None:
    payload = encode_kafka_records(records, base_ms)
    assert decode_kafka_records(memoryview(payload), base_ms) == records
    assert list(kafka_record_times(payload, base_ms)) == [record[:2] for record in records]


@given(RECORDS.filter(bool), st.data())
def test_a_payload_that_is_cut_off_is_refused_or_holds_fewer_records(
    records: list[PlacedRecord], data: st.DataObject
) -> None:
    payload = encode_kafka_records(records, 0)
    cut = payload[: data.draw(st.integers(0, len(payload) - 1))]
    for read in (decode_kafka_records, lambda payload, base: list(kafka_record_times(payload, base))):
        with suppress(NotKafkaRecords):
            assert len(read(cut, 0)) < len(records)


@given(st.binary(max_size=80) | RECORDS.map(lambda records: encode_kafka_records(records, 0)), st.data())
def test_damage_is_refused_or_read_as_something_that_can_be_written(payload: bytes, data: st.DataObject) -> None:
    damaged = bytearray(payload)
    for _ in range(data.draw(st.integers(0, 3)) if payload else 0):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    try:
        records = decode_kafka_records(bytes(damaged), 0)
    except NotKafkaRecords:
        return
    assert decode_kafka_records(encode_kafka_records(records, 0), 0) == records


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        (b"\x0c\0\0\0\x01\x01", "record 0 is cut off"),
        (b"\x0c\0\0\0\x01\x01\0\0", "record 1 is cut off"),
        (b"\x0e\0\0\0\x01\x01\0", "record 0 does not end where its length says"),
        (b"\x0a\0\0\0\x01\x01\0", "record 0 does not end where its length says"),
        (b"\x01\0\0\0\x01\x01\0", "record 0 does not end where its length says"),
        (b"\x0c\0\0\0\x03\x01\0", "-2 is no length, before byte 5"),
        (b"\x0c\0\0\0\x01\x03\0", "-2 is no length, before byte 6"),
        (b"\x0c\0\0\0\x01\x01\x01", "a record says that it has -1 headers"),
        (b"\x10\0\0\0\x01\x01\x02\x01\x01", "-1 is no length, before byte 8"),
        (b"\x0c\0\0\0\x04k", "record 0 is cut off"),
        (b"\x18\0\0\0\x01\x01\x02\x02h\x06v", "record 0 is cut off"),
        (b"\x16\0\0\x80\x80\x80\x80\x10\x01\x01\0", "the number before byte 7 is larger than its type"),
        (b"\x16\0\0\x80\x80\x80\x80\x80\x00\x01\x01\0", "the number before byte 8 is larger than its type"),
        (b"\x80" * 5 + b"\0", "the number before byte 5 is larger than its type"),
    ],
)
def test_what_no_writer_writes_is_refused_by_name(payload: bytes, why: str) -> None:
    with pytest.raises(NotKafkaRecords) as refused:
        decode_kafka_records(payload, 0)
    assert str(refused.value) == why
