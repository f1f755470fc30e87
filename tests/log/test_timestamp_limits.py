"""Limits on timestamps ahead of the clock: `timestamp_after_max_ms`, Kafka's `message.timestamp.after.max.ms`."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator_protocol.errors import ErrorClass, ErrorCode, error_class
from coordinator_protocol.methods import Method
from partition_log.catalog.settings import SettingsChange, timestamp_after_max
from partition_log.catalog.state import TopicToAlter
from partition_log.requests import AlterTopicConfigs
from tests.harness.payloads import UNREADABLE_PAYLOADS
from tests.log.driven_log import COMMIT, CONTEXT, TOPIC, Batch, DrivenLog, Producer, code, transactional

HOUR_MS = 3_600_000
BOUND = {**UNREADABLE_PAYLOADS, "timestamp_after_max_ms": str(HOUR_MS)}
IDEMPOTENT = Producer(7, 0)
TX = transactional()


@pytest.fixture
def driven() -> DrivenLog:
    driven = DrivenLog()
    driven.create(config=BOUND)
    return driven


def ahead(driven: DrivenLog, ahead_ms: int, producer: Producer = IDEMPOTENT, sequence: int = 0, **fields: Any) -> Batch:
    return Batch(producer, sequence, timestamp_ms=driven.clock.wall_ms() + ahead_ms, **fields)


def alter(driven: DrivenLog, value: str | None) -> None:
    name = "timestamp_after_max_ms"
    change = SettingsChange({}, (name,)) if value is None else SettingsChange({name: value})
    altered = driven.topics.alter_topic_configs(AlterTopicConfigs([TopicToAlter(TOPIC, b"", change)]), CONTEXT)
    driven.flush()
    assert altered.result()[0].error is None


def test_without_the_setting_any_timestamp_is_taken() -> None:
    driven = DrivenLog()
    driven.create()
    assert driven.append(Batch(timestamp_ms=2**63 - 1)).error is None


@pytest.mark.parametrize("producer", [IDEMPOTENT, TX], ids=["plain", "transactional"])
def test_a_batch_further_ahead_is_refused_and_changes_nothing(driven: DrivenLog, producer: Producer) -> None:
    before, version = driven.state(), driven.store.version()
    result = driven.append(ahead(driven, HOUR_MS + 1, producer))
    assert code(result) is ErrorCode.INVALID_TIMESTAMP
    assert error_class(Method.PRODUCE, code(result)) is ErrorClass.REJECTED
    assert "lies 3600001 ms ahead of the server's clock, and the topic takes up to 3600000 ms" in str(result.error)
    if producer is IDEMPOTENT:
        assert driven.store.version() == version
    assert driven.state() == before
    assert driven.append(ahead(driven, HOUR_MS, producer)).base_offset == 0, "its sequence is not used up"


def test_the_newest_record_of_a_batch_counts(driven: DrivenLog) -> None:
    now_ms = driven.clock.wall_ms()
    changes = {"base_timestamp_ms": 5, "max_timestamp_ms": now_ms + HOUR_MS + 1}
    assert code(driven.append(Batch(changes=changes))) is ErrorCode.INVALID_TIMESTAMP


@pytest.mark.parametrize("timestamp_ms", [-1, 0, 5])
def test_the_past_is_not_bounded(driven: DrivenLog, timestamp_ms: int) -> None:
    assert driven.append(Batch(timestamp_ms=timestamp_ms)).error is None


def test_others_in_the_transaction_and_of_the_request_are_taken(driven: DrivenLog) -> None:
    assert driven.append(ahead(driven, 0, TX)).error is None
    assert code(driven.append(ahead(driven, HOUR_MS + 1, TX, 1))) is ErrorCode.INVALID_TIMESTAMP
    assert driven.append(ahead(driven, 0, TX, 1)).base_offset == 1
    driven.end(TX, COMMIT)
    assert driven.read_all() == [0, 1]


def test_a_batch_that_was_appended_before_is_a_duplicate_whatever_the_topic_takes_by_now(driven: DrivenLog) -> None:
    """The first answer may have been lost, and the clock was set back meanwhile, or the setting changed."""
    batch = ahead(driven, HOUR_MS)
    assert driven.append(batch).base_offset == 0
    driven.clock.step_wall(-10_000)
    alter(driven, "1")
    repeated = driven.append(batch)
    assert (repeated.error, repeated.base_offset, repeated.is_duplicate) == (None, 0, True)


def test_who_is_fenced_hears_that_first(driven: DrivenLog) -> None:
    driven.append(ahead(driven, 0, Producer(7, 3)))
    refused = driven.append(ahead(driven, HOUR_MS + 1, Producer(7, 2)))
    assert code(refused) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_change_holds_at_once_and_survives_a_crash(driven: DrivenLog) -> None:
    alter(driven, "1000")
    assert code(driven.append(ahead(driven, 1_001))) is ErrorCode.INVALID_TIMESTAMP
    after = driven.crash()
    assert code(after.append(ahead(after, 1_001))) is ErrorCode.INVALID_TIMESTAMP
    alter(after, "-1")
    assert after.append(ahead(after, 10**15)).error is None


def test_the_servers_setting_holds_where_the_topic_has_none() -> None:
    assert timestamp_after_max((), 1_000) == 1_000
    assert timestamp_after_max([("timestamp_after_max_ms", "-1")], 1_000) == -1
    assert timestamp_after_max([("timestamp_after_max_ms", "5")], 1_000) == 5
    assert timestamp_after_max([("timestamp_after_max_ms", "soon")], 1_000) == -1, "of a newer program"
