"""Batches are converted for readers that cannot decode them, once all that a fetch reads is there."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from coordinator_protocol.batch import ENCODINGS_OF_OLD_READERS, Encoding
from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_runtime.pending import Pending
from partition_log.fetch_conversion import ReadBatch
from tests.harness.kafka_batches import BASE_MS, ROW, kafka_payload
from tests.harness.stored_batches import encode_batch
from tests.log.driven_log import COMMIT, Batch, DrivenLog, code, offsets_of, transactional

KAFKA = {"encoding": Encoding.KAFKA_V2, "base_timestamp_ms": BASE_MS, "max_timestamp_ms": BASE_MS}
OF_KAFKA = Batch(payload=kafka_payload([ROW] * 2), count=2, changes=KAFKA)
OLD = Batch(payload=b"\n\0", count=1)


class ConverterByHand:
    """Converts Kafka's batches to `Records` when the test says so."""

    def __init__(self) -> None:
        self.waiting: list[tuple[ReadBatch, Pending[ReadBatch]]] = []
        self.refused_at: set[int] = set()

    def readable(self, accepted: frozenset[Encoding]) -> frozenset[Encoding]:
        return accepted | {Encoding.KAFKA_V2} if Encoding.RECORDS_V1 in accepted else accepted

    def convert(self, batch: ReadBatch, accepted: frozenset[Encoding]) -> Pending[ReadBatch]:
        found: Pending[ReadBatch] = Pending()
        self.waiting.append((batch, found))
        return found

    def release(self) -> None:
        waiting, self.waiting = self.waiting, []
        for (header, _stored), found in waiting:
            if header.base_offset in self.refused_at:
                found.fail(Refused(ErrorCode.CORRUPT_MESSAGE, f"at {header.base_offset}"))
                continue
            after = replace(header, encoding=Encoding.RECORDS_V1)
            found.succeed((after, encode_batch(after, b"\n\0" * header.record_count)))


@pytest.fixture
def converter() -> ConverterByHand:
    return ConverterByHand()


@pytest.fixture
def driven(converter: ConverterByHand) -> DrivenLog:
    """A log with batches of both kinds: two of Kafka's at 1 and 4, others at 0, 3 and 6."""
    driven = DrivenLog()
    driven.create(config={})
    for each in (OLD, OF_KAFKA, OLD, OF_KAFKA, OLD):
        driven.append(each)
    driven.log.fetcher.converter = converter
    return driven


def read(driven: DrivenLog, converter: ConverterByHand, **fields: Any) -> Any:
    fetched = driven.fetch(**fields)
    assert not fetched.is_settled
    converter.release()
    (result,) = fetched.result()
    return result


def test_all_come_in_an_encoding_that_the_reader_takes(driven: DrivenLog, converter: ConverterByHand) -> None:
    result = read(driven, converter)
    assert (result.error, offsets_of(result), result.next_offset) == (None, [0, 1, 2, 3, 4, 5, 6], 7)
    assert {header.encoding for header, _stored in result.batches} == {Encoding.RECORDS_V1}


def test_a_reader_of_all_of_them_waits_for_nothing(driven: DrivenLog, converter: ConverterByHand) -> None:
    result = driven.read(accepted_encodings=ENCODINGS_OF_OLD_READERS | {Encoding.KAFKA_V2})
    assert [header.encoding for header, _stored in result.batches].count(Encoding.KAFKA_V2) == 2
    assert driven.read(end_offset=1).error is None
    assert not converter.waiting


def test_what_cannot_be_converted_either_is_refused(driven: DrivenLog) -> None:
    result = driven.read(fetch_offset=1, accepted_encodings=frozenset({Encoding.ARROW_V1}))
    assert code(result) is ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT


def test_a_batch_that_is_refused_ends_what_is_returned(driven: DrivenLog, converter: ConverterByHand) -> None:
    converter.refused_at = {4}
    result = read(driven, converter)
    assert (result.error, offsets_of(result), result.next_offset) == (None, [0, 1, 2, 3], 4)
    assert result.last_read_epoch == 0
    refused = read(driven, converter, fetch_offset=4)
    assert code(refused) is ErrorCode.CORRUPT_MESSAGE
    assert (refused.batches, refused.next_offset) == ((), 6)


def test_the_epoch_of_a_batch_that_is_refused_was_not_read(driven: DrivenLog, converter: ConverterByHand) -> None:
    """A reader that names an epoch which it did not read would not learn that its log ended before."""
    restored = driven.restore(driven.backup())
    restored.append(OF_KAFKA)
    restored.log.fetcher.converter = converter
    epoch = restored.head().leadership.epoch
    converter.refused_at = {7}
    result = read(restored, converter, fetch_offset=3)
    assert (offsets_of(result), result.next_offset, result.last_read_epoch) == ([3, 4, 5, 6], 7, 0)
    converter.refused_at.clear()
    assert read(restored, converter, fetch_offset=3).last_read_epoch == epoch > 0


def test_a_defect_is_the_error_of_the_fetch(driven: DrivenLog, converter: ConverterByHand) -> None:
    fetched = driven.fetch()
    for _batch, found in converter.waiting:
        found.fail(ZeroDivisionError())
    assert isinstance(fetched.error, ZeroDivisionError)


def test_a_fetch_that_has_waited_is_converted_too(driven: DrivenLog, converter: ConverterByHand) -> None:
    waiting = driven.fetch(fetch_offset=7, wait_ms_max=60_000)
    driven.append(OF_KAFKA)
    assert driven.log.fetcher.waiting_fetches == 0
    assert not waiting.is_settled
    converter.release()
    assert offsets_of(waiting.result()[0]) == [7, 8]


def test_a_caller_may_leave_during_the_conversion(driven: DrivenLog, converter: ConverterByHand) -> None:
    waiting = driven.fetch(fetch_offset=7, wait_ms_max=60_000)
    driven.append(OF_KAFKA)
    waiting.cancel()
    converter.release()
    assert waiting.is_settled
    assert driven.log.fetcher.waiting_fetches == 0


def test_markers_are_never_converted(driven: DrivenLog, converter: ConverterByHand) -> None:
    producer = transactional(7)
    driven.append(Batch(producer, 0, payload=OF_KAFKA.payload, count=2, changes=KAFKA))
    driven.end(producer, COMMIT)
    result = read(driven, converter, fetch_offset=7, is_raw=True)
    assert [header.encoding for header, _stored in result.batches] == [Encoding.RECORDS_V1, Encoding.CONTROL]
