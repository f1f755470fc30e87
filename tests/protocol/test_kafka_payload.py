"""The records of a Kafka batch: what Kafka's writers make is counted, and nothing else is taken for it."""

from __future__ import annotations

import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator_protocol import kafka_payload as checked
from coordinator_protocol.batch import Compression
from coordinator_protocol.compression import NotUnpackable, unpack_kafka
from coordinator_protocol.kafka_payload import (
    NotKafkaRecords,
    TooManyItems,
    kafka_record_count,
    keyless_kafka_records,
)
from tests.harness.kafka_batches import (
    BASE_MS,
    KAFKA_ROWS,
    ROW,
    KafkaRow,
    kafka_packed,
    kafka_payload,
    sized,
    xerial,
    zigzag,
)

THREE = kafka_payload([ROW] * 3)


@given(KAFKA_ROWS)
def test_what_a_writer_makes_is_counted(rows: list[KafkaRow]) -> None:
    assert kafka_record_count(kafka_payload(rows), len(rows) - 1) == len(rows)


@given(KAFKA_ROWS, st.data())
def test_what_is_cut_off_is_refused_or_holds_fewer(rows: list[KafkaRow], data: st.DataObject) -> None:
    whole = kafka_payload(rows)
    cut = whole[: data.draw(st.integers(0, len(whole) - 1))]
    with suppress(NotKafkaRecords):
        assert kafka_record_count(cut, len(rows) - 1) < len(rows)


def with_body(body: bytes) -> bytes:
    return sized(body)


EMPTY = b"\0" + zigzag(0) * 2 + zigzag(-1) * 2


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        pytest.param(THREE[:-1], "record 2 is cut off", id="cut off"),
        pytest.param(b"\x80", "record 0 is cut off", id="half a number"),
        pytest.param(THREE + b"\0", "record 3", id="a byte too many"),
        pytest.param(with_body(EMPTY + zigzag(0) + b"\0"), "does not end where its length says", id="a longer record"),
        pytest.param(zigzag(-3) + EMPTY + zigzag(0), "does not end where its length says", id="a negative length"),
        pytest.param(
            with_body(b"\0" + zigzag(0) * 2 + zigzag(-2)), "the length before byte .* is -2", id="length of a key"
        ),
        pytest.param(with_body(EMPTY + zigzag(-1)), "a record has -1 headers", id="fewer headers than none"),
        pytest.param(
            with_body(EMPTY + zigzag(2) + sized(b"h") + sized(b"x")), "ends before its headers do", id="headers"
        ),
        pytest.param(with_body(EMPTY + zigzag(1) + zigzag(-1) + sized(b"x")), "the name of a header", id="a null name"),
        pytest.param(b"\xff\xff\xff\xff\x1f" + EMPTY, "larger than its type", id="a number of 33 bits"),
        pytest.param(b"\x80" * 5 + b"\0" + EMPTY, "larger than its type", id="a number of six bytes"),
    ],
)
def test_other_bytes_are_refused_with_a_reason(payload: bytes, why: str) -> None:
    with pytest.raises(NotKafkaRecords, match=why):
        kafka_record_count(payload, 5)


def test_records_lie_in_ascending_places() -> None:
    assert kafka_record_count(kafka_payload([ROW] * 3, [0, 2, 5]), 5) == 3
    for wrong in ([0, 0], [1, 0], [0, 6], [-1, 0]):
        with pytest.raises(NotKafkaRecords, match="do not lie in ascending places up to 5"):
            kafka_record_count(kafka_payload([ROW] * 2, wrong), 5)


SHAPES = st.tuples(
    st.none() | st.binary(max_size=80),
    st.none() | st.binary(max_size=200) | st.just(bytes(9_000)),
    st.sampled_from([0, 63, 64, 8_191, 8_192, -(2**40), 2**62]).map(BASE_MS.__add__),
    st.sampled_from([[], [], [], [(b"h", None)]]),
)


@given(st.lists(SHAPES, max_size=90), st.data())
def test_the_fast_path_counts_and_refuses_as_the_loop_behind_it(rows: list[KafkaRow], data: st.DataObject) -> None:
    payload = bytearray(kafka_payload(rows))
    for _ in range(data.draw(st.integers(0, 2)) if payload else 0):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    last, records_max = len(rows) - 1, data.draw(st.none() | st.integers(0, 90))
    items_max = data.draw(st.none() | st.integers(0, 90))

    def outcome() -> tuple[object, str]:
        try:
            return kafka_record_count(bytes(payload), last, items_max=items_max, records_max=records_max), ""
        except (NotKafkaRecords, TooManyItems) as refusal:
            return type(refusal), str(refusal)

    found = outcome()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checked, "_behind_usual", lambda *_: (0, 0, -1))
        assert outcome() == found


def test_the_fast_path_takes_the_usual_records() -> None:
    rows: list[KafkaRow] = [(b"key", bytes(100), BASE_MS, [])] * 100
    assert checked._behind_usual(kafka_payload(rows), 99, 100)[1:] == (100, 99)


def test_no_more_is_looked_at_than_was_asked() -> None:
    assert kafka_record_count(THREE, 2, items_max=9) == 3
    with pytest.raises(TooManyItems):
        kafka_record_count(THREE, 2, items_max=8)
    assert kafka_record_count(THREE + b"damage", 2, records_max=1) == 2


def test_a_record_of_nothing_but_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checked, "HEADERS_MAX", 10)

    def headers(count: int) -> bytes:
        return kafka_payload([(None, None, 0, [(b"", None)] * count)])

    assert kafka_record_count(headers(10), 0) == 1
    with pytest.raises(NotKafkaRecords, match="a record has 11 headers"):
        kafka_record_count(headers(11), 0)


@given(st.lists(SHAPES, max_size=90))
def test_records_without_a_key_are_found(rows: list[KafkaRow]) -> None:
    keyless = tuple(place for place, row in enumerate(rows) if row[0] is None)
    assert keyless_kafka_records(kafka_payload(rows)) == keyless


def test_a_null_key_may_be_written_in_more_bytes_than_it_needs() -> None:
    before_key, behind_key = b"\0" + zigzag(0) * 2, zigzag(-1) + zigzag(0)
    payload = with_body(before_key + b"\x81\0" + behind_key) + with_body(before_key + b"\x82\0k" + behind_key)
    assert keyless_kafka_records(payload) == (0,)


@pytest.mark.parametrize("payload", [b"\x80", b"\0", zigzag(-6) + EMPTY, with_body(b"\0" + b"\xff" * 12)])
def test_keys_are_not_found_in_other_bytes(payload: bytes) -> None:
    with pytest.raises(NotKafkaRecords):
        keyless_kafka_records(payload)


@pytest.mark.parametrize("compression", Compression)
def test_it_is_unpacked_as_kafkas_clients_pack_it(compression: Compression) -> None:
    assert unpack_kafka(kafka_packed(THREE, compression), compression) == THREE


def test_snappy_may_be_a_block_without_a_frame() -> None:
    (length,) = struct.unpack_from(">i", xerial(THREE, block_bytes=1_000), 16)
    assert unpack_kafka(xerial(THREE, block_bytes=1_000)[20 : 20 + length], Compression.SNAPPY) == THREE


@pytest.mark.parametrize("damaged", [b"", xerial(THREE)[:-1], xerial(THREE)[:18], b"\xff\xff\xff\xff\x0fx"])
def test_damaged_snappy_is_refused(damaged: bytes) -> None:
    with pytest.raises(NotUnpackable, match="snappy"):
        unpack_kafka(damaged, Compression.SNAPPY)


def test_snappy_that_unpacks_to_too_much_is_refused() -> None:
    packed = xerial(bytes(100))
    assert len(unpack_kafka(packed, Compression.SNAPPY, bytes_max=100)) == 100
    with pytest.raises(NotUnpackable, match="unpacks to more than"):
        unpack_kafka(packed, Compression.SNAPPY, bytes_max=99)
