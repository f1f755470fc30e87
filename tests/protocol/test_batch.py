"""The stored batch: fixed bytes, a checksum that covers what the client wrote, and no batch out of damaged bytes."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from coordinator_protocol.batch import (
    ENCODINGS_WITH_DELTAS,
    HEADER_BYTES,
    BatchHeader,
    Compression,
    Encoding,
    TimestampType,
    batch_crc,
    compression_of,
    decode_header,
    encode_offsetless,
    encoding_of,
    misplaced_delta,
    payload_of,
    stored_crc,
    verify_batch,
)
from coordinator_protocol.checksum import crc32c
from coordinator_protocol.errors import ErrorCode, Refused
from tests.harness.stored_batches import encode_batch, with_place

HEADER = BatchHeader(
    base_offset=0x0102030405060708,
    record_count=3,
    base_timestamp_ms=1_700_000_000_000,
    max_timestamp_ms=1_700_000_000_005,
    producer_id=4711,
    producer_epoch=9,
    base_sequence=100,
    encoding=Encoding.ARROW_V1,
    compression=Compression.ZSTD,
    timestamp_type=TimestampType.LOG_APPEND_TIME,
    is_transactional=True,
)
STORED = bytes.fromhex(
    "0102030405060708"  # base_offset
    "00000038"  # batch_length: 52 bytes of header after it, and 4 of payload
    "ffffffff"  # partition_leader_epoch
    "02"  # magic
    "b922ed67"  # crc
    "001c"  # attributes: zstd, log append time, transactional
    "00000002"  # last_offset_delta
    "0000018bcfe56800"  # base_timestamp_ms
    "0000018bcfe56805"  # max_timestamp_ms
    "0000000000001267"  # producer_id
    "0009"  # producer_epoch
    "00000064"  # base_sequence
    "00000003"  # record_count
    "02"  # encoding
    "01"  # format_version
    "00"  # reserved
    "deadbeef"
)
PAYLOAD = b"\xde\xad\xbe\xef"


@st.composite
def headers(draw: st.DrawFn) -> BatchHeader:
    encoding = draw(st.sampled_from(Encoding))
    last_offset_delta = draw(st.integers(0, 2**31 - 2))
    hole_count = draw(st.integers(0, last_offset_delta + 1)) if encoding in ENCODINGS_WITH_DELTAS else 0
    return BatchHeader(
        base_offset=draw(st.integers(0, 2**62)),
        record_count=last_offset_delta + 1 - hole_count,
        hole_count=hole_count,
        base_timestamp_ms=draw(st.integers(-1, 2**63 - 1)),
        max_timestamp_ms=draw(st.integers(-1, 2**63 - 1)),
        producer_id=draw(st.integers(-1, 2**63 - 1)),
        producer_epoch=draw(st.integers(-1, 2**15 - 1)),
        base_sequence=draw(st.integers(-1, 2**31 - 1)),
        encoding=encoding,
        compression=draw(st.sampled_from(Compression)),
        timestamp_type=draw(st.sampled_from(TimestampType)),
        is_transactional=draw(st.booleans()),
        is_control=encoding is Encoding.CONTROL,
    )


payloads = st.binary(max_size=100)


def test_a_batch_with_holes_takes_all_its_offsets_and_sequences() -> None:
    header = replace(HEADER, encoding=Encoding.RECORDS_V2, record_count=1, hole_count=2)
    assert (header.last_offset, header.last_sequence) == (HEADER.last_offset, HEADER.last_sequence)
    empty = replace(header, record_count=0, hole_count=3)
    for each in (header, empty):
        assert decode_header(encode_batch(each, b"")) == each


@pytest.mark.parametrize(("start", "end", "count"), [(0, 9, 2), (0, 4, 1), (5, 9, 2), (6, 7, 1), (7, 9, 0), (0, 3, 0)])
def test_of_a_part_of_a_batch_with_holes_a_header_knows_an_upper_bound(start: int, end: int, count: int) -> None:
    header = replace(HEADER, base_offset=3, encoding=Encoding.ARROW_V2, record_count=2, hole_count=2)
    assert header.records_between(start, end) == count


@pytest.mark.parametrize(
    ("deltas", "last", "wrong"),
    [((), 0, None), ((0, 2, 3), 3, None), ((0, 2, 2), 3, 2), ((1, 0), 3, 0), ((-1,), 3, -1), ((0, 4), 3, 4)],
)
def test_places_in_a_batch_ascend_and_end_with_it(deltas: tuple[int, ...], last: int, wrong: int | None) -> None:
    assert misplaced_delta(deltas, last) == wrong


def patched(at: int, value: bytes) -> bytes:
    return STORED[:at] + value + STORED[at + len(value) :]


def refusal_of(encoded: bytes) -> Refused:
    with pytest.raises(Refused) as refusal:
        decode_header(encoded)
    assert refusal.value.code is ErrorCode.CORRUPT_MESSAGE
    return refusal.value


def test_the_stored_bytes_never_change() -> None:
    assert encode_batch(HEADER, PAYLOAD).hex() == STORED.hex()
    assert decode_header(STORED) == HEADER


def test_the_checksum_is_over_everything_after_itself() -> None:
    assert stored_crc(STORED) == crc32c(STORED[21:]) == batch_crc(HEADER, PAYLOAD)


def test_the_first_61_bytes_are_kafkas_header() -> None:
    kafka = struct.Struct(">qiibIhiqqqhii")
    assert kafka.size == 61
    base_offset, length, _, magic, _, attributes, delta, *_, count = kafka.unpack_from(STORED)
    assert (base_offset, length, magic) == (HEADER.base_offset, len(STORED) - 12, 2)
    assert (attributes, delta, count) == (4 | 1 << 3 | 1 << 4, HEADER.last_offset_delta, HEADER.record_count)


@given(headers(), payloads)
def test_what_is_written_is_read(header: BatchHeader, payload: bytes) -> None:
    encoded = encode_batch(header, payload)
    verify_batch(encoded)
    decoded = decode_header(memoryview(encoded))
    assert decoded == header
    assert hash(decoded) == hash(header)
    assert payload_of(encoded) == payload
    assert encode_batch(decoded, bytes(payload_of(encoded))) == encoded


def test_a_decoded_header_is_as_frozen_as_any_other() -> None:
    header = decode_header(STORED)
    assert type(header) is BatchHeader
    with pytest.raises(AttributeError):
        header.base_offset = 0  # type: ignore[misc]
    assert replace(header, base_offset=5).base_offset == 5


def test_a_decoded_header_holds_enums_and_not_their_numbers() -> None:
    header = decode_header(STORED)
    assert header.encoding is Encoding.ARROW_V1
    assert header.compression is Compression.ZSTD
    assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert header.is_transactional is True
    assert header.is_control is False


@given(headers(), payloads, st.integers(0, 2**63 - 1))
def test_the_log_stamps_the_offset_and_the_checksum_stays(header: BatchHeader, payload: bytes, offset: int) -> None:
    encoded = encode_batch(header, payload)
    moved = with_place(encode_offsetless(header, payload), offset)
    assert moved == encode_batch(replace(header, base_offset=offset), payload)
    assert stored_crc(moved) == stored_crc(encoded) == batch_crc(header, payload)
    verify_batch(moved)


@given(headers(), payloads, st.data())
def test_no_flipped_bit_under_the_checksum_goes_unseen(
    header: BatchHeader, payload: bytes, data: st.DataObject
) -> None:
    encoded = bytearray(encode_batch(header, payload))
    bit = data.draw(st.integers(17 * 8, len(encoded) * 8 - 1))
    encoded[bit // 8] ^= 1 << bit % 8
    with pytest.raises(Refused) as refusal:
        verify_batch(bytes(encoded))
    assert refusal.value.code is ErrorCode.CORRUPT_MESSAGE


@given(headers(), payloads, st.data())
def test_a_batch_cut_anywhere_is_refused(header: BatchHeader, payload: bytes, data: st.DataObject) -> None:
    encoded = encode_batch(header, payload)
    refusal_of(encoded[: data.draw(st.integers(0, len(encoded) - 1))])


@given(st.binary(min_size=HEADER_BYTES, max_size=HEADER_BYTES + 20))
def test_any_bytes_are_refused_for_a_reason(buffer: bytes) -> None:
    assert refusal_of(buffer).message.startswith("not a stored batch: ")


@given(st.integers(12, HEADER_BYTES - 1), st.integers(0, 255))
def test_one_changed_byte_makes_another_batch_or_a_refusal_for_a_reason(at: int, byte: int) -> None:
    buffer = patched(at, bytes([byte]))
    try:
        decode_header(buffer)
    except Refused:
        refusal_of(buffer)


@pytest.mark.parametrize(
    ("encoded", "complaint"),
    [
        (b"", "0 are there"),
        (STORED[:63], "63 are there"),
        (STORED[:-1], "cut off after 67"),
        (STORED + b"x", "1 more follow"),
        (patched(8, b"\xff\xff\xff\xff"), "more follow"),
        (patched(16, b"\x01"), "magic is 1"),
        (patched(22, b"\x05"), "attributes 0x0005"),
        (patched(22, b"\x44"), "attributes 0x0044"),
        (patched(21, b"\x80"), "attributes 0x801c"),
        (patched(22, b"\x3c"), "control bit"),
        (patched(61, b"\x00"), "control bit"),
        (patched(61, b"\x06"), "encoding 6"),
        (patched(60, b"\x02"), "does not fit the last offset delta 2 and the encoding ARROW_V1"),
        (patched(60, b"\x04\x03"), "record count 4"),
        (patched(57, b"\xff\xff\xff\xff\x03"), "record count -1"),
        (patched(62, b"\x02"), "format version 2"),
        (patched(63, b"\x01"), "reserved byte 1"),
        (patched(60, b"\x04"), "record count 4"),
        (patched(57, b"\xff\xff\xff\xff"), "record count -1"),
        (patched(57, bytes(4)), "record count 0"),
    ],
)
def test_the_refusal_names_what_is_wrong(encoded: bytes, complaint: str) -> None:
    assert complaint in refusal_of(encoded).message


def test_no_records_are_no_batch() -> None:
    empty = patched(57, bytes(4))[:23] + b"\xff\xff\xff\xff" + patched(57, bytes(4))[27:]
    assert "record count 0" in refusal_of(empty).message


def test_the_checksum_of_half_a_header_is_refused() -> None:
    with pytest.raises(Refused, match="20 are there"):
        stored_crc(STORED[:20])


def test_the_last_sequence_wraps_with_the_batch() -> None:
    at_the_end = replace(HEADER, base_sequence=2**31 - 2)
    assert at_the_end.last_sequence == 0
    assert HEADER.last_sequence == 102
    assert replace(HEADER, base_sequence=-1).last_sequence == -1


def test_the_last_offset_is_that_of_the_last_record() -> None:
    assert replace(HEADER, base_offset=10).last_offset == 12


def test_known_numbers_become_encodings_and_compressions() -> None:
    assert [encoding_of(number) for number in range(6)] == list(Encoding)
    assert [compression_of(number) for number in range(5)] == list(Compression)


@pytest.mark.parametrize("number", [-1, 6, 99])
def test_unknown_numbers_are_refused(number: int) -> None:
    with pytest.raises(Refused, match=str(number)) as encoding_refusal:
        encoding_of(number)
    assert encoding_refusal.value.code is ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
    with pytest.raises(Refused, match="ZSTD") as compression_refusal:
        compression_of(number)
    assert compression_refusal.value.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
