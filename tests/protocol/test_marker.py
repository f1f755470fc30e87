"""The marker's payload: fixed bytes today, room to grow, and no guess at what is not a marker."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.marker import (
    MARKER_BYTES,
    Marker,
    MarkerPayload,
    Outcome,
    decode_marker_payload,
    encode_marker_payload,
)

MARKER = Marker(
    producer_id=77,
    txn_epoch=0x0102,
    next_epoch=0x0103,
    coordinator_shard=0x0E0F,
    coordinator_epoch=0x0A0B0C0D,
    outcome=Outcome.COMMIT,
    csn=2**63,
)
FIRST_OFFSET = 0x1112
STORED = bytes.fromhex("0002 0001 0a0b0c0d 0102 0103 8000000000000000 0e0f 0000000000001112")

markers = st.builds(
    Marker,
    producer_id=st.integers(0, 2**63 - 1),
    txn_epoch=st.integers(0, 2**15 - 1),
    next_epoch=st.integers(0, 2**15 - 1),
    coordinator_shard=st.integers(0, 2**16 - 1),
    coordinator_epoch=st.integers(0, 2**31 - 1),
    outcome=st.sampled_from(Outcome),
    csn=st.integers(0, 2**64 - 1),
)


def without_producer(marker: Marker) -> MarkerPayload:
    return MarkerPayload(
        txn_epoch=marker.txn_epoch,
        next_epoch=marker.next_epoch,
        coordinator_shard=marker.coordinator_shard,
        coordinator_epoch=marker.coordinator_epoch,
        outcome=marker.outcome,
        csn=marker.csn,
        first_offset=FIRST_OFFSET,
    )


def test_the_stored_bytes_never_change() -> None:
    assert encode_marker_payload(MARKER, FIRST_OFFSET) == STORED
    assert decode_marker_payload(STORED) == without_producer(MARKER)


@given(markers)
def test_what_is_written_is_read(marker: Marker) -> None:
    assert decode_marker_payload(encode_marker_payload(marker, FIRST_OFFSET)) == without_producer(marker)


@given(markers, st.integers(2, 2**15 - 1), st.binary(max_size=20))
def test_a_later_version_with_more_at_its_end_is_read(marker: Marker, version: int, more: bytes) -> None:
    later = version.to_bytes(2, "big") + encode_marker_payload(marker, FIRST_OFFSET)[2:] + more
    assert decode_marker_payload(memoryview(later)) == without_producer(marker)


@pytest.mark.parametrize(
    ("payload", "complaint"),
    [
        (b"", "0 bytes"),
        (STORED[: MARKER_BYTES - 1], "29 bytes"),
        (b"\x00\x01" + STORED[2:], "version is 1"),
        (b"\xff\xff" + STORED[2:], "version is 65535"),
        (STORED[:2] + b"\x00\x02" + STORED[4:], "type is 2"),
        (STORED[:2] + b"\xff\xff" + STORED[4:], "type is -1"),
        (STORED[:4] + b"\xff" + STORED[5:], "coordinator"),
        (STORED[:8] + b"\xff" + STORED[9:], "transaction"),
        (STORED[:10] + b"\xff" + STORED[11:], "next"),
    ],
)
def test_what_is_short_negative_or_unknown_is_refused(payload: bytes, complaint: str) -> None:
    with pytest.raises(Refused, match=complaint) as refusal:
        decode_marker_payload(payload)
    assert refusal.value.code is ErrorCode.CORRUPT_MESSAGE


@given(st.binary(max_size=40))
def test_any_bytes_are_a_marker_or_refused(payload: bytes) -> None:
    with contextlib.suppress(Refused):
        decoded = decode_marker_payload(payload)
        assert decoded.outcome in Outcome
