"""Compiled or not, the same payloads are converted to the same bytes, and the same ones are refused for the same
reason."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator_protocol.batch import ENCODINGS_WITH_DELTAS, BatchHeader, Compression, Encoding, decode_header
from coordinator_protocol.kafka_records import PlacedRecord, encode_kafka_records
from coordinator_server.compiled import fastest_conversions, to_kafka, to_records
from partition_log.conversion import (
    ConvertPayload,
    NotConvertible,
    kafka_batch_of,
    kafka_payload_of,
    records_batch_of,
    records_payload_of,
)
from tests.harness.every_encoding import CONTENT, payload_of_records, placed_records, stored
from tests.harness.workers import HeldWorker
from tests.log.test_examine_batch import PAYLOADS, damaged

pytest.importorskip("pyarrow")

compiled_to_kafka, compiled_to_records = fastest_conversions()
needs_it = pytest.mark.skipif(
    compiled_to_kafka is kafka_payload_of, reason="the compiled transport is not installed (make native)"
)
OURS = st.sampled_from([Encoding.RECORDS_V1, Encoding.RECORDS_V2, Encoding.ARROW_V1, Encoding.ARROW_V2])
ODD_HEADERS = st.lists(st.tuples(st.binary(max_size=6), CONTENT), max_size=2).map(tuple)
TIMES = st.integers(-(2**63), 2**63 - 1)
ODD_RECORDS = st.lists(st.tuples(st.integers(0, 300), TIMES, CONTENT, CONTENT, ODD_HEADERS), max_size=4)
BASES_MS = st.integers(-1, 2**63 - 1) | st.just(1_700_000_000_000)


def outcome(convert: Callable[[], bytes]) -> bytes | str:
    try:
        return convert()
    except NotConvertible as why:
        return str(why)


def header_of(count: int, encoding: Encoding, base_ms: int, holes: int = 0) -> BatchHeader:
    return BatchHeader(0, count, base_ms, base_ms, encoding, hole_count=holes)


def check_same(header: BatchHeader, plain: bytes, compiled: ConvertPayload, reference: ConvertPayload) -> None:
    assert outcome(lambda: compiled(header, plain)) == outcome(lambda: reference(header, plain))


@needs_it
@settings(max_examples=300, deadline=None)
@given(placed_records(), OURS, BASES_MS)
def test_compiled_or_not_what_writers_write_is_converted_alike(
    records: list[PlacedRecord], encoding: Encoding, base_ms: int
) -> None:
    has_deltas = encoding in ENCODINGS_WITH_DELTAS
    holes = records[-1][0] + 1 - len(records) if records and has_deltas else 0
    header = header_of(len(records), encoding, base_ms, holes)
    plain = payload_of_records(records, header)
    converted = compiled_to_kafka(header, plain)
    assert converted == kafka_payload_of(header, plain)
    kafka = header_of(len(records), Encoding.KAFKA_V2, base_ms, holes)
    assert compiled_to_records(kafka, converted) == records_payload_of(kafka, converted)


@needs_it
@settings(max_examples=500, deadline=None)
@given(PAYLOADS, st.integers(0, 4), st.sampled_from([Encoding.RECORDS_V1, Encoding.RECORDS_V2]), BASES_MS)
def test_compiled_or_not_odd_messages_are_judged_alike(
    plain: bytes, count: int, encoding: Encoding, base_ms: int
) -> None:
    header = header_of(count, encoding, base_ms, holes=300 if encoding in ENCODINGS_WITH_DELTAS else 0)
    check_same(header, plain, compiled_to_kafka, kafka_payload_of)


@needs_it
@settings(max_examples=300, deadline=None)
@given(st.data(), placed_records(count_min=1), st.sampled_from([Encoding.ARROW_V1, Encoding.ARROW_V2]))
def test_compiled_or_not_damaged_columns_are_judged_alike(
    data: st.DataObject, records: list[PlacedRecord], encoding: Encoding
) -> None:
    header = header_of(len(records), encoding, 5, holes=800 if encoding in ENCODINGS_WITH_DELTAS else 0)
    plain = data.draw(damaged(st.just(payload_of_records(records, header))))
    check_same(header, plain, compiled_to_kafka, kafka_payload_of)


@needs_it
@settings(max_examples=500, deadline=None)
@given(st.data(), ODD_RECORDS, st.integers(0, 4), st.booleans(), BASES_MS)
def test_compiled_or_not_odd_records_of_kafka_are_judged_alike(
    data: st.DataObject, records: list[PlacedRecord], count: int, has_holes: bool, base_ms: int
) -> None:
    good = st.just(encode_kafka_records(sorted(records, key=lambda record: record[0]), base_ms))
    plain = data.draw(st.one_of(good, damaged(good), st.binary(max_size=60)))
    header = header_of(count, Encoding.KAFKA_V2, base_ms, holes=300 if has_holes else 0)
    check_same(header, plain, compiled_to_records, records_payload_of)


@given(placed_records(count_min=1, has_holes=False), OURS, st.sampled_from(Compression))
@settings(deadline=None)
def test_another_process_can_convert_whole_batches(
    records: list[PlacedRecord], encoding: Encoding, compression: Compression
) -> None:
    worker = HeldWorker()
    ours = stored(records, encoding, compression=compression)
    assert worker.run(to_kafka, ours).result() == kafka_batch_of(decode_header(ours), ours)
    kafkas = stored(records, Encoding.KAFKA_V2, compression=compression)
    assert worker.run(to_records, kafkas).result() == records_batch_of(decode_header(kafkas), kafkas)
