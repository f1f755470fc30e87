"""Messages taken apart and put together by hand: protobuf itself says what is right."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator_api.v1 import log_pb2 as log
from coordinator_protocol.wire import bytes_field, field_prefix, pieces, split

PAYLOAD = bytes_field(log.RecordBatch.PAYLOAD_FIELD_NUMBER)

batches = st.builds(
    log.RecordBatch,
    base_offset=st.integers(-(2**63), 2**63 - 1),
    record_count=st.integers(0, 2**31 - 1),
    producer_epoch=st.none() | st.integers(-1, 2**31 - 1),
    is_transactional=st.booleans(),
    crc32c=st.none() | st.integers(0, 2**32 - 1),
    marker=st.none() | st.builds(log.ControlMarker, csn=st.integers(0, 2**64 - 1)),
    payload=st.binary(max_size=300),
)


@given(batches, st.binary(max_size=3), st.binary(max_size=3))
def test_a_message_is_split_into_one_field_and_the_rest(batch: log.RecordBatch, before: bytes, after: bytes) -> None:
    message = batch.SerializeToString()
    rest, places = split(before + message + after, len(before), len(before) + len(message), PAYLOAD)
    payload = b"".join((before + message)[start:end] for start, end in places)
    assert payload == batch.payload
    without = log.RecordBatch()
    without.CopyFrom(batch)
    without.ClearField("payload")
    assert log.RecordBatch.FromString(rest) == without


@pytest.mark.parametrize("size", [0, 1, 127, 128, 16_383, 16_384])
def test_a_field_is_written_as_protobuf_writes_it(size: int) -> None:
    assert (
        field_prefix(PAYLOAD, size) + bytes(size) == log.RecordBatch(payload=bytes(size)).SerializeToString()
        or not size
    )


def test_a_field_may_come_twice_and_in_any_place() -> None:
    first, count, second = (log.RecordBatch(**field).SerializeToString() for field in _FIELDS)
    message = first + count + second
    rest, places = split(message, 0, len(message), PAYLOAD)
    assert rest == count
    assert [message[start:end] for start, end in places] == [b"first", b"second"]


_FIELDS: list[dict[str, bytes | int]] = [{"payload": b"first"}, {"record_count": 7}, {"payload": b"second"}]


@pytest.mark.parametrize(
    "damaged",
    [
        b"\x08",
        b"\x08\xff",
        b"\xff",
        PAYLOAD,
        PAYLOAD + b"\x05abc",
        b"\x6d\x01\x02",
        b"\x0b",
    ],
    ids=["no number", "endless number", "endless tag", "no size", "cut off", "fixed, cut off", "a group"],
)
def test_what_is_no_message_is_refused(damaged: bytes) -> None:
    with pytest.raises(ValueError, match="byte"):
        split(damaged, 0, len(damaged), PAYLOAD)


def test_a_length_without_end_is_refused_at_its_tenth_digit() -> None:
    """To read on takes the square of how long it is: a payload of 500 bytes, unpacked, took hours."""
    largest = PAYLOAD + b"\xff" * 9 + b"\x01"
    endless = PAYLOAD + b"\xff" * 1_000
    for message, why in ((largest, "beyond the end"), (endless, "more digits than any number")):
        with pytest.raises(ValueError, match=why):
            split(message, 0, len(message), PAYLOAD)
        with pytest.raises(ValueError, match=why):
            list(pieces(message, 10))


@given(st.binary(max_size=40))
def test_any_bytes_are_split_or_refused(noise: bytes) -> None:
    try:
        split(noise, 0, len(noise), PAYLOAD)
    except ValueError:
        return
