"""A marker in the tail of a row is the marker by itself, byte by byte, and no other bytes are taken for one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from coordinator_protocol.batch import (
    HEADER_BYTES_COUNTED,
    TAIL_BYTES,
    BatchHeader,
    Encoding,
    decode_header,
    encode_offsetless,
    pack_place,
    split_row,
    verify_batch,
)
from coordinator_protocol.checksum import crc32c
from coordinator_protocol.errors import Refused
from coordinator_protocol.marker import (
    Marker,
    Outcome,
    control_batch,
    decode_marker_payload,
    encode_tail,
    marker_header,
    marker_row,
)

MARKER = Marker(
    producer_id=7, txn_epoch=3, next_epoch=4, coordinator_shard=5, coordinator_epoch=6, outcome=Outcome.COMMIT, csn=8
)
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
offsets = st.integers(0, 2**62)


def batch_of(marker: Marker, base_offset: int, count: int, payload: bytes, leader_epoch: int) -> bytes:
    header = BatchHeader(
        base_offset=base_offset,
        record_count=count,
        base_timestamp_ms=1,
        max_timestamp_ms=2,
        producer_id=marker.producer_id,
        producer_epoch=marker.txn_epoch,
        base_sequence=0,
        encoding=Encoding.RECORDS_V1,
        is_transactional=True,
    )
    place = pack_place(base_offset, HEADER_BYTES_COUNTED + len(payload), leader_epoch)
    return place + b"".join(encode_offsetless(header, payload))


@given(
    markers, offsets, st.integers(1, 9), st.binary(min_size=1, max_size=99), st.integers(0, 2**31 - 1), offsets, offsets
)
def test_a_tail_stands_for_the_batch_that_would_lie_there_by_itself(
    marker: Marker, base_offset: int, count: int, payload: bytes, leader_epoch: int, first_offset: int, now_ms: int
) -> None:
    batch = batch_of(marker, base_offset, count, payload, leader_epoch)
    offset = base_offset + count
    row, alone = (
        marker_row(
            marker,
            first_offset=first_offset,
            offset=offset,
            leader_epoch=leader_epoch,
            now_ms=now_ms,
            behind=before,
        )
        for before in (batch, b"")
    )
    found, tail = split_row(row)
    assert found == batch
    assert tail is not None
    header = marker_header(decode_header(found), tail)
    assert control_batch(header, tail) == alone
    assert header == decode_header(alone)
    assert control_batch(header, alone) == alone, "a marker by itself stays as it is"
    verify_batch(alone)
    assert decode_marker_payload(alone[-30:]).first_offset == first_offset


@given(st.binary(min_size=1, max_size=99))
def test_a_batch_without_a_tail_is_a_whole_row(payload: bytes) -> None:
    batch = batch_of(MARKER, 0, 1, payload, 0)
    assert split_row(batch) == (batch, None)


@given(
    st.binary(min_size=1, max_size=99), st.binary(min_size=1, max_size=60).filter(lambda more: len(more) != TAIL_BYTES)
)
def test_bytes_behind_a_batch_that_are_no_tail_make_the_row_no_batch(payload: bytes, more: bytes) -> None:
    row = batch_of(MARKER, 0, 1, payload, 0) + more
    assert split_row(row) == (row, None)
    with pytest.raises(Refused):
        decode_header(row)


@given(st.binary(max_size=250))
def test_bytes_of_any_kind_are_split_or_left_for_the_header_to_refuse(row: bytes) -> None:
    batch, tail = split_row(row)
    assert batch + (tail or b"") == row
    assert tail is None or len(tail) == TAIL_BYTES


@pytest.mark.parametrize("at", range(TAIL_BYTES))
def test_an_impossible_tail_is_refused(at: int) -> None:
    batch = batch_of(MARKER, 0, 1, b"payload", 0)
    tail = bytearray(encode_tail(MARKER, 0, 5))
    tail[at] ^= 1
    with pytest.raises(Refused, match="not the tail of a row: its checksum says"):
        marker_header(decode_header(batch), bytes(tail))


@pytest.mark.parametrize(("kind", "outcome"), [(2, 0), (1, 2), (2, 2)])
def test_a_tail_that_only_a_newer_version_knows_is_refused(kind: int, outcome: int) -> None:
    fields = bytes([kind, outcome]) + encode_tail(MARKER, 0, 5)[2:-4]
    tail = fields + crc32c(fields).to_bytes(4, "big")
    with pytest.raises(Refused, match=f"it is of kind {kind} and outcome {outcome}; read it with a newer version"):
        marker_header(decode_header(batch_of(MARKER, 0, 1, b"payload", 0)), tail)


def test_the_stored_bytes_never_change() -> None:
    assert encode_tail(replace(MARKER, csn=2**63), 0x1112, 0x0A0B).hex() == (
        "01010004000500000006" + "8000000000000000" + "0000000000000a0b" + "0000000000001112" + "4b119a19"
    )
