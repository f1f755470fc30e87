"""Kafka's batches: what its clients send is stored as it is, and comes back byte by byte, but for its place."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from coordinator_protocol.batch import (
    HEADER_BYTES,
    BatchHeader,
    Compression,
    Encoding,
    batch_crc,
    decode_header,
    verify_batch,
)
from coordinator_protocol.client_batch import KAFKA_EXTRA_BYTES, check_client_batch
from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.kafka_batches import from_kafka, marker_to_kafka, to_kafka
from coordinator_protocol.limits import Limits
from coordinator_protocol.marker import Outcome, control_header
from partition_log.batch_checks import unread, why_unreadable
from tests.harness.kafka_batches import BASE_MS, KAFKA_ROWS, ROW, KafkaRow, kafka_batch, kafka_packed, kafka_payload
from tests.harness.stored_batches import encode_batch

_OF_ANOTHER_CLIENT = "0000018bcfe568000000018bcfe56805000000000000126700090000006400000003"
VECTORS = {
    Compression.NONE: "00000000000000000000009c0000000002de8be067001000000002"
    + _OF_ANOTHER_CLIENT
    + "26000000026b0a7661"
    "6c75650402680278026e010c000a020101009c0100cf0f04008c01" + "76" * 70 + "00",
    Compression.GZIP: "00000000000000000000006d00000000024604f7c6001100000002"
    + _OF_ANOTHER_CLIENT
    + "1f8b08001d600b6b02"
    "ff5363606060cae62a4bcc294d6561ca60aa60ca63e461e06262646498c3c8709e9f85a187b18c2a800100c255fdd46b000000",
    Compression.ZSTD: "00000000000000000000006800000000023e6fa06d001400000002"
    + _OF_ANOTHER_CLIENT
    + "28b52ffd206b750100"
    "640226000000026b0a76616c75650402680278026e010c000a020101009c0100cf0f04008c017600010015143c01",
}
"""Batches that kafka-python 3.0 wrote: three records of a transaction, one of them with two headers, one with nulls."""

SENT = kafka_batch(kafka_payload([ROW] * 3), 3, producer=(7, 0, 10), attributes=1 << 4)


def refusal_of(records: bytes) -> Refused:
    with pytest.raises(Refused) as refused:
        from_kafka(memoryview(records))
    return refused.value


def stored(sent: bytes, *, base_offset: int = 0, leader_epoch: int = -1) -> bytes:
    header, payload, _crc = from_kafka(sent)
    return encode_batch(replace(header, base_offset=base_offset, leader_epoch=leader_epoch), payload)


@pytest.mark.parametrize("compression", VECTORS)
def test_what_another_writer_made_is_understood(compression: Compression) -> None:
    header, payload, crc = from_kafka(memoryview(bytes.fromhex(VECTORS[compression])))
    assert header == BatchHeader(
        base_offset=0,
        record_count=3,
        base_timestamp_ms=1_700_000_000_000,
        max_timestamp_ms=1_700_000_000_005,
        encoding=Encoding.KAFKA_V2,
        producer_id=4711,
        producer_epoch=9,
        base_sequence=100,
        compression=compression,
        is_transactional=True,
    )
    assert batch_crc(header, payload) == crc
    assert why_unreadable(unread(header, payload)) is None


@given(
    rows=KAFKA_ROWS,
    compression=st.sampled_from(Compression),
    base_offset=st.integers(0, 2**62),
    leader_epoch=st.integers(0, 2**31 - 1),
    attributes=st.sampled_from([0, 1 << 4]),
)
def test_what_was_sent_comes_back_in_its_place(
    rows: list[KafkaRow], compression: Compression, base_offset: int, leader_epoch: int, attributes: int
) -> None:
    fields: dict[str, Any] = {"compression": compression, "producer": (7, 3, 5), "attributes": attributes}
    payload = kafka_packed(kafka_payload(rows), compression)
    row = stored(kafka_batch(payload, len(rows), **fields), base_offset=base_offset, leader_epoch=leader_epoch)
    verify_batch(row)
    placed = kafka_batch(payload, len(rows), place=(base_offset, leader_epoch), **fields)
    pieces = to_kafka(decode_header(row), row)
    assert b"".join(pieces) == placed
    assert all(piece.obj is row for piece in pieces[1:]), "what is large is not copied"


@given(at=st.integers(16, len(SENT) + 2), bit=st.integers(0, 7))
def test_every_changed_bit_of_a_stored_batch_is_noticed(at: int, bit: int) -> None:
    row = bytearray(stored(SENT))
    row[at] ^= 1 << bit
    with pytest.raises(Refused) as refused:
        verify_batch(bytes(row))
    assert refused.value.code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT)


def test_the_checksum_is_kafkas() -> None:
    header, payload, crc = from_kafka(SENT)
    assert batch_crc(header, payload) == crc
    assert batch_crc(replace(header, encoding=Encoding.RECORDS_V1), payload) != crc


def changed(**fields: Any) -> bytes:
    return kafka_batch(kafka_payload([ROW] * 3), 3, **fields)


@pytest.mark.parametrize(
    ("records", "code", "words"),
    [
        pytest.param(b"", ErrorCode.CORRUPT_MESSAGE, "does not fit into 0 bytes", id="nothing"),
        pytest.param(SENT[:60], ErrorCode.CORRUPT_MESSAGE, "61 bytes of header", id="half a header"),
        pytest.param(SENT[:-1], ErrorCode.CORRUPT_MESSAGE, f"takes {len(SENT)} bytes", id="cut off"),
        pytest.param(SENT + SENT, ErrorCode.INVALID_RECORD, "send one batch", id="two batches"),
        pytest.param(
            SENT[:16] + b"\1" + SENT[17:], ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, "magic 1", id="messages of 0.10"
        ),
        pytest.param(SENT[:16] + b"\3" + SENT[17:], ErrorCode.CORRUPT_MESSAGE, "magic is 3", id="a later format"),
        pytest.param(
            SENT[:8] + b"\0\0\0\x05" + SENT[12:],
            ErrorCode.CORRUPT_MESSAGE,
            "it takes 17 bytes",
            id="shorter than a header",
        ),
        pytest.param(changed(attributes=1 << 3), ErrorCode.INVALID_TIMESTAMP, "LOG_APPEND_TIME", id="time of the log"),
        pytest.param(changed(attributes=1 << 5), ErrorCode.INVALID_RECORD, "control batches", id="a control batch"),
        pytest.param(changed(attributes=1 << 6), ErrorCode.INVALID_RECORD, "attributes 0x0040", id="a broker's bit"),
        pytest.param(changed(attributes=5), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "compression 5", id="compression"),
        pytest.param(changed(last_offset_delta=3), ErrorCode.INVALID_RECORD, "all records of a batch", id="a hole"),
    ],
)
def test_what_no_client_may_send_is_refused(records: bytes, code: ErrorCode, words: str) -> None:
    refusal = refusal_of(records)
    assert refusal.code is code
    assert words in refusal.message


@given(st.binary(max_size=80) | st.binary(max_size=30).map(lambda damage: SENT[: len(SENT) - len(damage)] + damage))
def test_any_bytes_are_a_batch_or_are_refused(records: bytes) -> None:
    with suppress(Refused):
        header, payload, _crc = from_kafka(records)
        assert len(payload) == len(records) - 61
        check_client_batch(header, payload, crc=None, batch_bytes_max=1_000)


@given(at=st.integers(0, len(SENT) - 1), number=st.integers(0, 255))
def test_a_changed_byte_is_refused_or_outside_of_the_checksum(at: int, number: int) -> None:
    changed_there = SENT[:at] + bytes([number]) + SENT[at + 1 :]
    with suppress(Refused):
        header, payload, crc = from_kafka(changed_there)
        check_client_batch(header, payload, crc=crc, batch_bytes_max=1_000)
        assert changed_there[16:] == SENT[16:]


def test_what_fits_kafkas_default_fits_here() -> None:
    limit = Limits().batch_bytes_max
    header, _payload, _crc = from_kafka(SENT)
    largest = bytes(1_048_588 - (HEADER_BYTES - 3))
    assert HEADER_BYTES + len(largest) == limit + KAFKA_EXTRA_BYTES
    check_client_batch(header, largest, crc=None, batch_bytes_max=limit)
    with pytest.raises(Refused, match="takes 1048589 bytes and at most 1048588") as refused:
        check_client_batch(header, largest + b"\0", crc=None, batch_bytes_max=limit)
    assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE
    with pytest.raises(Refused, match="at most 1048576"):
        check_client_batch(replace(header, encoding=Encoding.RECORDS_V1), largest, crc=None, batch_bytes_max=limit)


@pytest.mark.parametrize(("outcome", "kind"), [(Outcome.ABORT, "0000"), (Outcome.COMMIT, "0001")])
def test_a_marker_is_kafkas_control_batch(outcome: Outcome, kind: str) -> None:
    header = control_header(4711, 9, BASE_MS, 5, 3)
    made = marker_to_kafka(header, outcome, 17)
    assert made.hex() == (
        "0000000000000005000000420000000302" + made[17:21].hex() + "003000000000"
        "0000018bcfe568000000018bcfe5680000000000000012670009ffffffff00000001"
        "20000000080000" + kind + "0c00000000001100"
    )  # fmt: skip
    covered = kafka_batch(made[61:], 1, producer=(4711, 9, -1), attributes=0x30, place=(5, 3))
    assert made == covered
    assert marker_to_kafka(header, outcome, 18) != made
