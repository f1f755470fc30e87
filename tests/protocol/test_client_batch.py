"""Limits on a client's batch: its shape, checked before its partition is looked up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from coordinator_protocol.batch import (
    HEADER_BYTES,
    BatchHeader,
    Encoding,
    OffsetlessBatch,
    TimestampType,
    batch_crc,
    verify_batch,
)
from coordinator_protocol.client_batch import check_client_batch, encode_client_batch
from coordinator_protocol.errors import ErrorCode, Refused
from partition_log.codec import examine_batch
from tests.harness.stored_batches import encode_batch, with_place

PLAIN = BatchHeader(
    base_offset=0, record_count=2, base_timestamp_ms=10, max_timestamp_ms=20, encoding=Encoding.RECORDS_V1
)
OF_A_PRODUCER = replace(PLAIN, producer_id=7, producer_epoch=0, base_sequence=0)
TRANSACTIONAL = replace(OF_A_PRODUCER, is_transactional=True)
PAYLOAD = b"two records"
BATCH_BYTES_MAX = 1000


def check(header: BatchHeader, payload: bytes = PAYLOAD, crc: int | None = None) -> None:
    """By itself and on the way into the log: what the one refuses, the other does, for the same reason."""
    refused = refusal_of(lambda: check_client_batch(header, payload, crc=crc, batch_bytes_max=BATCH_BYTES_MAX))
    encoding = refusal_of(lambda: encode(header, payload, crc))
    if refused is not None:
        assert encoding is not None
        assert (encoding.code, encoding.message) == (refused.code, refused.message)
        raise refused
    assert encoding is None


def encode(header: BatchHeader, payload: bytes, crc: int | None) -> OffsetlessBatch:
    """The batch on the way into the log, without the check of its number of records."""
    encoded, count = encode_client_batch(
        header, payload, crc=crc, batch_bytes_max=BATCH_BYTES_MAX, examine=examine_batch, items_max=0
    )
    assert count is None
    return encoded


def refusal_of(decide: Callable[[], object]) -> Refused | None:
    try:
        decide()
    except Refused as refusal:
        return refusal
    return None


def refused_code(header: BatchHeader, payload: bytes = PAYLOAD, crc: int | None = None) -> ErrorCode:
    with pytest.raises(Refused) as refusal:
        check(header, payload, crc)
    return refusal.value.code


@pytest.mark.parametrize("header", [PLAIN, OF_A_PRODUCER, TRANSACTIONAL])
def test_a_good_batch_passes_with_and_without_checksum(header: BatchHeader) -> None:
    check(header)
    check(header, crc=batch_crc(header, PAYLOAD))


def test_a_wrong_checksum_is_corruption() -> None:
    crc = batch_crc(PLAIN, PAYLOAD)
    assert refused_code(PLAIN, crc=crc ^ 1) is ErrorCode.CORRUPT_MESSAGE
    assert refused_code(PLAIN, payload=PAYLOAD[::-1], crc=crc) is ErrorCode.CORRUPT_MESSAGE


def test_zero_is_a_checksum_and_not_its_absence() -> None:
    assert refused_code(PLAIN, crc=0) is ErrorCode.CORRUPT_MESSAGE


def test_the_bound_is_on_the_stored_size() -> None:
    check(PLAIN, bytes(BATCH_BYTES_MAX - HEADER_BYTES))
    assert refused_code(PLAIN, bytes(BATCH_BYTES_MAX - HEADER_BYTES + 1)) is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize(
    "change",
    [
        {"base_offset": 1},
        {"record_count": 0},
        {"record_count": -5},
        {"record_count": 2**31},
        {"is_control": True},
        {"encoding": Encoding.CONTROL},
        {"is_transactional": True},
        {"producer_id": 7},
        {"producer_epoch": 0},
        {"base_sequence": 0},
        {"producer_id": 7, "producer_epoch": 0},
        {"producer_id": 7, "producer_epoch": 2**15, "base_sequence": 0},
        {"producer_id": 7, "producer_epoch": 0, "base_sequence": 2**31},
        {"producer_id": -2, "producer_epoch": 0, "base_sequence": 0},
        {"producer_id": 7, "producer_epoch": -2, "base_sequence": 0, "is_transactional": True},
    ],
)
def test_a_batch_of_a_wrong_shape_is_an_invalid_record(change: dict[str, Any]) -> None:
    assert refused_code(replace(PLAIN, **change)) is ErrorCode.INVALID_RECORD


def test_an_empty_payload_holds_no_records() -> None:
    assert refused_code(PLAIN, payload=b"") is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize(
    "change",
    [
        {"base_timestamp_ms": 21},
        {"base_timestamp_ms": -2},
        {"max_timestamp_ms": 2**63},
        {"timestamp_type": TimestampType.LOG_APPEND_TIME},
    ],
)
def test_timestamps_must_be_possible_and_the_clients_own(change: dict[str, Any]) -> None:
    assert refused_code(replace(PLAIN, **change)) is ErrorCode.INVALID_TIMESTAMP


def test_a_batch_may_have_no_timestamp() -> None:
    check(replace(PLAIN, base_timestamp_ms=-1, max_timestamp_ms=-1))


def test_numbers_of_a_newer_client_are_refused_as_such() -> None:
    newer_encoding: Any = 9
    newer_compression: Any = 7
    assert refused_code(replace(PLAIN, encoding=newer_encoding)) is ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
    assert refused_code(replace(PLAIN, compression=newer_compression)) is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


numbers = st.integers(-2, 2) | st.sampled_from([edge + step for edge in (2**15, 2**31, 2**63) for step in (-1, 0)])


@given(
    st.builds(
        BatchHeader,
        base_offset=st.integers(0, 1),
        record_count=numbers,
        base_timestamp_ms=numbers,
        max_timestamp_ms=numbers,
        producer_id=numbers,
        producer_epoch=numbers,
        base_sequence=numbers,
        encoding=st.sampled_from(Encoding),
        is_transactional=st.booleans(),
        is_control=st.booleans(),
    )
)
def test_whatever_passes_can_be_stored_and_whatever_cannot_is_refused(header: BatchHeader) -> None:
    try:
        check(header, crc=None)
    except Refused:
        return
    encoded = encode(header, PAYLOAD, batch_crc(header, PAYLOAD))
    verify_batch(with_place(encoded, 5))
    assert with_place(encoded, 5) == encode_batch(replace(header, base_offset=5), PAYLOAD)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"hole_count": 2}, "2 of its offsets are without a record, and only compaction takes records away"),
        ({"hole_count": -1}, "send a hole_count of 0 and all records"),
        ({"encoding": Encoding.RECORDS_V2}, "clients do not write the encoding RECORDS_V2, which compaction leaves"),
        ({"encoding": Encoding.ARROW_V2, "hole_count": 1}, "use RECORDS_V1 or ARROW_V1"),
    ],
)
def test_clients_send_no_holes(changes: dict[str, int], said: str) -> None:
    for header in (PLAIN, OF_A_PRODUCER):
        with pytest.raises(Refused, match=said) as refusal:
            check(replace(header, **changes))
        assert refusal.value.code is ErrorCode.INVALID_RECORD
