"""Facts that the log must know of an incoming batch: the compiled function finds those that the one in Python finds,
whatever the bytes are."""

from __future__ import annotations

import pickle
import re
from functools import partial
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator_api.v1 import log_pb2 as log
from coordinator_client.encodings import encode_records
from coordinator_protocol.batch import BatchHeader, Compression, Encoding, batch_crc, kafka_covered
from coordinator_protocol.compression import pack
from coordinator_protocol.errors import Refused
from coordinator_protocol.limits import Limits
from coordinator_protocol.wire import varint
from coordinator_server.compiled import fastest_examine_batch
from partition_log.batch_checks import (
    ITEMS_EXPLAINED_MAX,
    UNPACKED_HERE_BYTES_MAX,
    BatchChecks,
    unread,
    why_unreadable,
)
from partition_log.codec import examine_batch
from tests.harness.kafka_batches import KAFKA_ROWS, KafkaRow, kafka_payload
from tests.harness.store_features import EveryFeature
from tests.harness.workers import HeldWorker

compiled = fastest_examine_batch()
needs_it = pytest.mark.skipif(compiled is examine_batch, reason="the compiled transport is not installed (make native)")

DISPUTED: Final = re.compile(rb"[\x80-\xff]{5}|[" + bytes(range(3, 256, 8)) + rb"].*[\0-\7]", re.DOTALL)
"""Content on which versions of protobuf disagree whether it is a message: sizes of more than five bytes, and groups
with a field number 0 in them. Other bytes match, too."""

NUMBERS = st.sampled_from([1, 1, 1, 2, 4, 4, 3, 5, 0, 6, 2**29 - 1])
PADDINGS = st.sampled_from([0, 0, 0, 0, 1, 3, 4, 9])
TEXTS = st.text(max_size=3).map(str.encode)


def padded(number: int, padding: int) -> bytes:
    """A varint in so many more bytes than it needs."""
    if not padding:
        return varint(number)
    *others, last = varint(number)
    return bytes([*others, last | 0x80, *[0x80] * (padding - 1), 0])


def fields(contents: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    """Messages of any fields: of those that they have, and of others, written well and badly."""

    def tagged(wire_type: int, content: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
        tags = st.builds(lambda number, padding: padded(number << 3 | wire_type, padding), NUMBERS, PADDINGS)
        return st.builds(bytes.__add__, tags, content)

    def sized(content: bytes, padding: int) -> bytes:
        return padded(len(content), padding) + content

    def group(number: int, content: bytes, depth: int) -> bytes:
        return varint(number << 3 | 3) * depth + content + varint(number << 3 | 4) * depth

    field = st.one_of(
        tagged(2, st.builds(sized, contents, PADDINGS)),
        tagged(2, st.builds(sized, contents, st.just(0))),
        tagged(0, st.builds(padded, st.sampled_from([0, 1, 2**63, 2**64 - 1]), PADDINGS)),
        tagged(1, st.binary(min_size=8, max_size=8)),
        tagged(5, st.binary(min_size=4, max_size=4)),
        st.builds(group, NUMBERS, contents, st.sampled_from([1, 1, 2, 97, 98, 99, 100, 101])),
    )
    return st.lists(field, max_size=4).map(b"".join)


ODD = st.recursive(st.binary(max_size=9) | TEXTS, fields, max_leaves=12)
CONTENTS = st.none() | st.binary(max_size=20)
ROWS = st.lists(
    st.tuples(
        CONTENTS,
        CONTENTS,
        st.integers(-1, 2**62),
        st.lists(st.tuples(st.text(max_size=5), CONTENTS), max_size=2).map(tuple),
    ),
    max_size=4,
)


@st.composite
def damaged(draw: st.DrawFn, payloads: st.SearchStrategy[bytes]) -> bytes:
    """Bytes of which some have become others, or the end is missing."""
    payload = bytearray(draw(payloads))
    for _ in range(draw(st.integers(0, 3)) if payload else 0):
        payload[draw(st.integers(0, len(payload) - 1))] = draw(st.integers(0, 255))
    return bytes(payload[: draw(st.integers(0, len(payload)))] if draw(st.booleans()) else payload)


GOOD = st.builds(encode_records, ROWS)
PAYLOADS = st.one_of(GOOD, damaged(GOOD), ODD, damaged(ODD))


@needs_it
@settings(max_examples=500)
@given(covered=st.binary(max_size=60), payload=PAYLOADS, items_max=st.sampled_from([0, 1]))
def test_compiled_or_not_the_same_is_found(covered: bytes, payload: bytes, items_max: int) -> None:
    found, expected = compiled(covered, payload, items_max), examine_batch(covered, payload, items_max)
    if found != expected:
        assert found == (*expected[:2], None)
        assert DISPUTED.search(payload)


KAFKA = st.builds(kafka_payload, KAFKA_ROWS)


@needs_it
@settings(max_examples=500)
@given(
    payload=st.one_of(KAFKA, damaged(KAFKA), ODD),
    last_offset_delta=st.integers(-1, 5) | st.sampled_from([-(2**31), 2**31 - 1]),
    items_max=st.sampled_from([0, 1, 4, 100]),
)
def test_compiled_or_not_the_same_is_found_in_a_kafka_batch(
    payload: bytes, last_offset_delta: int, items_max: int
) -> None:
    covered = kafka_covered(1, last_offset_delta)
    assert compiled(covered, payload, items_max) == examine_batch(covered, payload, items_max)


@needs_it
@given(KAFKA | damaged(KAFKA), st.integers(1, 5))
def test_compiled_or_not_a_payload_is_unreadable(payload: bytes, record_count: int) -> None:
    asked = unread(BatchHeader(0, record_count, 5, 5, Encoding.KAFKA_V2), payload)
    in_python, by_both = why_unreadable(asked), why_unreadable(asked, examine=compiled)
    assert (in_python is None) is (by_both is None)


@needs_it
def test_a_worker_has_the_compiled_function_too() -> None:
    look = pickle.loads(pickle.dumps(partial(why_unreadable, examine=compiled)))
    many = kafka_payload([(None, None, 0, ())] * (ITEMS_EXPLAINED_MAX + 2))
    header = BatchHeader(0, ITEMS_EXPLAINED_MAX + 2, 5, 5, Encoding.KAFKA_V2)
    assert look(unread(header, many)) is None
    assert "behind the first 131072 records" in look(unread(header, many[:-1]))


@needs_it
@given(KAFKA_ROWS)
def test_what_a_kafka_writer_made_is_counted(rows: list[KafkaRow]) -> None:
    assert compiled(kafka_covered(len(rows), len(rows) - 1), kafka_payload(rows), 100)[2] == len(rows)


@needs_it
@given(GOOD)
def test_what_a_writer_made_is_counted(payload: bytes) -> None:
    assert compiled(b"", payload, 1)[2] == len(log.Records.FromString(payload).records)


def outcome(checks: BatchChecks, header: BatchHeader, payload: bytes, crc: int | None, *, validates: bool) -> Any:
    """The batch as it will be stored, or why it is refused, and whether a worker had to look."""
    worker = checks.worker
    assert isinstance(worker, HeldWorker)
    before = worker.done_count
    try:
        offsetless, check = checks.take(header, payload, crc=crc, validates_payload=validates)
        if check is not None:
            check.result()
    except Refused as why:
        return why.code, why.message, worker.done_count - before
    return offsetless, worker.done_count - before


IN_PYTHON, COMPILED = (
    BatchChecks(HeldWorker(), Limits(), examine=examine, features=EveryFeature())
    for examine in (examine_batch, compiled)
)


@needs_it
@settings(max_examples=500)
@given(
    payload=PAYLOADS | KAFKA,
    count=st.integers(1, 5) | st.just(40_000),
    compression=st.sampled_from([Compression.NONE, Compression.NONE, Compression.LZ4]),
    encoding=st.sampled_from([Encoding.RECORDS_V1, Encoding.RECORDS_V1, Encoding.ARROW_V1, Encoding.KAFKA_V2]),
    crc=st.sampled_from(["right", "wrong", "none"]),
    validates=st.booleans(),
)
def test_compiled_or_not_the_same_batches_are_taken_and_refused_for_the_same_reason(
    payload: bytes, count: int, compression: Compression, encoding: Encoding, crc: str, validates: bool
) -> None:
    header = BatchHeader(
        base_offset=0,
        record_count=count,
        base_timestamp_ms=5,
        max_timestamp_ms=5,
        encoding=encoding,
        compression=compression,
    )
    sent = pack(payload, compression)
    right = batch_crc(header, sent)
    shown = {"right": right, "wrong": right ^ 1, "none": None}[crc]
    judged = [outcome(checks, header, sent, shown, validates=validates) for checks in (IN_PYTHON, COMPILED)]
    assert judged[0] == judged[1]


@needs_it
@pytest.mark.parametrize("more", [0, 1])
def test_the_largest_payload_that_is_counted_at_once_is_judged_as_a_larger_one(more: int) -> None:
    payload = encode_records([(None, bytes(UNPACKED_HERE_BYTES_MAX + more - 8), 0, ())])
    assert len(payload) == UNPACKED_HERE_BYTES_MAX + more
    header = BatchHeader(0, 1, 5, 5, Encoding.RECORDS_V1)
    judged = [outcome(checks, header, payload, None, validates=True) for checks in (IN_PYTHON, COMPILED)]
    assert judged[0] == judged[1] == (judged[0][0], 0)


def test_the_compiled_function_knows_all_fields_that_could_be_written_wrongly() -> None:
    """It passes over others: a new field that is text or a message belongs into `native_transport/src/records.rs`."""
    looked_into = {
        (message.DESCRIPTOR.name, field.name)
        for message in (log.Records, log.Record, log.Header)
        for field in message.DESCRIPTOR.fields
        if field.type in (field.TYPE_STRING, field.TYPE_MESSAGE, field.TYPE_GROUP)
    }
    assert looked_into == {("Records", "records"), ("Record", "headers"), ("Header", "key")}
