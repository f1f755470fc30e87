"""Batches that wait behind a payload that is checked elsewhere: one producer's requests keep their order."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator_protocol.batch import Compression
from coordinator_protocol.errors import ErrorCode
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import PartitionName
from coordinator_runtime.worker import WorkerLost
from partition_log.requests import Produce, ProduceResult
from tests.log.driven_log import COMMIT, CONTEXT, TOPIC, Batch, DrivenLog, Producer, code, transactional
from tests.log.payloads import (
    IDEMPOTENT,
    batch_of,
    checking_log,
    large,
    of_kafka,
)


@pytest.fixture
def driven() -> DrivenLog:
    """A log whose worker holds every check until it is released."""
    driven = checking_log()
    driven.worker.is_held = True
    return driven


def results(*sent: Pending[list[ProduceResult]]) -> list[Any]:
    return [one.result()[0] for one in sent]


def test_a_later_batch_waits(driven: DrivenLog) -> None:
    first = driven.send(large(producer=IDEMPOTENT, sequence=0))
    second = driven.send(batch_of(producer=IDEMPOTENT, sequence=100))
    driven.flush()
    assert not first.is_settled
    assert not second.is_settled
    driven.worker.release()
    driven.flush()
    assert [result.base_offset for result in results(first, second)] == [0, 100]


def test_checks_that_end_in_another_order_change_nothing(driven: DrivenLog) -> None:
    first = driven.send(large(producer=IDEMPOTENT, sequence=0))
    held = driven.worker.tasks
    driven.worker.tasks = []
    second = driven.send(large(producer=IDEMPOTENT, sequence=100))
    driven.worker.release()
    driven.flush()
    assert not second.is_settled
    driven.worker.tasks = held
    driven.worker.release()
    driven.flush()
    assert [result.base_offset for result in results(first, second)] == [0, 100]


def test_other_producers_do_not_wait(driven: DrivenLog) -> None:
    driven.send(large(producer=IDEMPOTENT, sequence=0))
    other = driven.append(batch_of(producer=Producer(8, 0), sequence=0))
    plain = driven.append(batch_of())
    assert (other.base_offset, plain.base_offset) == (0, 1)


def test_a_refused_payload_lets_the_next_batch_find_the_gap(driven: DrivenLog) -> None:
    driven.append(batch_of(producer=IDEMPOTENT, sequence=0))
    first = driven.send(large(producer=IDEMPOTENT, sequence=1, count=99))
    second = driven.send(batch_of(producer=IDEMPOTENT, sequence=100))
    driven.worker.release()
    driven.flush()
    codes = [code(result) for result in results(first, second)]
    assert codes == [ErrorCode.INVALID_RECORD, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]


def test_the_batches_of_one_request_are_refused_by_themselves(driven: DrivenLog) -> None:
    batches = [
        large(producer=IDEMPOTENT, sequence=0, count=7),
        large(producer=IDEMPOTENT, sequence=0),
        batch_of(producer=Producer(8, 0), sequence=0),
    ]
    items = tuple(batch.item(PartitionName(TOPIC, b"", number)) for number, batch in enumerate(batches))
    sent = driven.log.produce(Produce(None, items), CONTEXT)
    driven.flush()
    assert driven.head(2).log_end_offset == 1, "another producer's batch does not wait"
    driven.worker.release()
    driven.flush()
    assert [code(result) for result in sent.result()] == [ErrorCode.INVALID_RECORD, ErrorCode.NONE, ErrorCode.NONE]
    assert [result.name.partition for result in sent.result()] == [0, 1, 2]


def test_a_batch_of_a_transaction_waits_and_so_does_what_follows(driven: DrivenLog) -> None:
    producer = transactional()
    first = driven.send(large(producer=producer, sequence=0))
    second = driven.send(batch_of(producer=producer, sequence=100))
    driven.flush()
    assert not second.is_settled
    driven.worker.release()
    driven.flush()
    assert [result.base_offset for result in results(first, second)] == [0, 100]
    driven.end(producer, COMMIT)
    assert len(driven.read_all()) == 101


def test_who_must_not_be_kept_waiting_waits_for_its_own_check(driven: DrivenLog) -> None:
    at_once = CONTEXT.__class__(client_id="test", refuse_concurrent=True)
    sent = driven.send(large(producer=transactional(), sequence=0), context=at_once)
    driven.flush()
    assert not sent.is_settled
    driven.worker.release()
    driven.flush()
    assert sent.result()[0].error is None


def test_batches_of_no_producer_stay_in_order_on_a_connection_of_kafkas(driven: DrivenLog) -> None:
    """A client of Kafka sends several requests at once, and relies on their order without a producer, too."""
    same, other = [CONTEXT.__class__(client_id="test", connection=name) for name in ("kafka-1", "kafka-2")]
    first = driven.send(of_kafka(5_000), context=same)
    second = driven.send(of_kafka(1), context=same)
    driven.flush()
    assert not second.is_settled
    assert driven.append(of_kafka(1), context=other).base_offset == 0
    driven.worker.release()
    driven.flush()
    assert [result.base_offset for result in results(first, second)] == [1, 5_001]
    assert driven.append(of_kafka(1), context=same).base_offset == 5_002


def test_a_caller_that_gives_up_leaves_nothing_behind(driven: DrivenLog) -> None:
    first = driven.send(large(producer=IDEMPOTENT, sequence=0))
    second = driven.send(batch_of(producer=IDEMPOTENT, sequence=0))
    first.cancel()
    driven.worker.release()
    driven.flush()
    assert second.result()[0].base_offset == 0
    assert (driven.checks.waiting_bytes, driven.checks.waiting_batches) == (0, 0)


def test_a_lost_check_is_told_to_be_sent_again(driven: DrivenLog) -> None:
    sent = driven.send(large(producer=IDEMPOTENT, sequence=0))
    driven.worker.die(WorkerLost("it died"))
    driven.flush()
    assert code(sent.result()[0]) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    driven.worker.is_held = False
    assert driven.append(large(producer=IDEMPOTENT, sequence=0)).base_offset == 0


def test_more_than_may_wait_are_told_to_come_again(driven: DrivenLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("partition_log.batch_checks.WAITING_BYTES_MAX", 500)
    first, second = driven.send(large()), driven.send(large(), partition=1)
    assert 250 < driven.checks.waiting_bytes <= 500
    assert code(second.result()[0]) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    driven.worker.release()
    driven.flush()
    assert first.result()[0].error is None
    assert driven.checks.waiting_bytes == 0


def test_so_are_many_that_are_small(driven: DrivenLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("partition_log.batch_checks.WAITING_BATCHES_MAX", 2)
    damaged = Batch(payload=b"no gzip", changes={"compression": Compression.GZIP})
    *waiting, refused = [driven.send(damaged) for _ in range(3)]
    assert code(refused.result()[0]) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    driven.worker.release()
    driven.flush()
    assert [code(sent.result()[0]) for sent in waiting] == [ErrorCode.INVALID_RECORD] * 2
    assert driven.checks.waiting_batches == 0
