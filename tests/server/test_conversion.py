"""Readers that do not take batches of Kafka's producers get the records in our encoding."""

from __future__ import annotations

import pytest

from coordinator_api.v1.log_pb2 import Records
from coordinator_protocol.batch import Compression, Encoding, payload_of, verify_batch
from coordinator_protocol.errors import ErrorCode
from coordinator_runtime.worker import WorkerLost
from coordinator_server.conversion import RecordsConverter
from tests.harness.kafka_batches import ROW, kafka_batch, kafka_payload
from tests.harness.payloads import UNREADABLE_PAYLOADS
from tests.log.driven_log import DrivenLog, code, offsets_of
from tests.log.test_kafka_log import append, batch


@pytest.fixture
def driven() -> DrivenLog:
    driven = DrivenLog()
    driven.create()
    driven.log.fetcher.converter = RecordsConverter(driven.worker)
    return driven


def test_a_reader_that_names_no_encoding_gets_the_records(driven: DrivenLog) -> None:
    append(driven)
    result = driven.read()
    assert (result.error, offsets_of(result), result.next_offset) == (None, [0, 1], 2)
    ((header, row),) = result.batches
    assert header.encoding is Encoding.RECORDS_V1
    verify_batch(row)
    assert [record.value for record in Records.FromString(bytes(payload_of(row))).records] == [ROW[1]] * 2


def test_a_reader_that_names_kafkas_gets_them_as_they_are(driven: DrivenLog) -> None:
    append(driven)
    result = driven.read(accepted_encodings=frozenset(Encoding))
    assert [header.encoding for header, _row in result.batches] == [Encoding.KAFKA_V2]


def test_large_and_compressed_batches_are_converted_by_the_worker(driven: DrivenLog) -> None:
    append(driven, rows=[(b"k", bytes(1_000), ROW[2], ())] * 100)
    append(driven, compression=Compression.ZSTD)
    done = driven.worker.done_count
    assert driven.read_all() == list(range(102))
    assert driven.worker.done_count > done


def test_a_reader_asks_again_where_the_worker_died(driven: DrivenLog) -> None:
    append(driven, compression=Compression.ZSTD)
    driven.worker.is_held = True
    waiting = driven.fetch()
    driven.worker.die(WorkerLost("killed"))
    assert code(waiting.result()[0]) is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_an_unreadable_batch_is_refused_by_itself(driven: DrivenLog) -> None:
    driven.create("any", config=UNREADABLE_PAYLOADS)
    for payload in (kafka_payload([ROW]), b"damaged", kafka_payload([ROW])):
        driven.append(batch(kafka_batch(payload, 1)), topic="any")
    assert offsets_of(driven.read(topic="any")) == [0]
    refused = driven.read(topic="any", fetch_offset=1)
    assert (code(refused), refused.next_offset) == (ErrorCode.CORRUPT_MESSAGE, 2)
    assert refused.error is not None
    assert "go on at 2 to do without it" in refused.error.message
    assert offsets_of(driven.read(topic="any", fetch_offset=2)) == [2]
