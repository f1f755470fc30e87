"""Limits on the size of a topic's batches: `batch_bytes_max`, Kafka's `max.message.bytes`."""

from __future__ import annotations

import pytest

from coordinator_protocol.batch import HEADER_BYTES, BatchHeader, Encoding
from coordinator_protocol.errors import ErrorClass, ErrorCode, Refused, error_class
from coordinator_protocol.limits import Limits
from coordinator_protocol.methods import Method
from partition_log.catalog.settings import Origin, SettingsChange, batch_bytes_max
from partition_log.catalog.state import TopicToAlter
from partition_log.requests import AlterTopicConfigs, DescribeTopicConfigs, TopicConfigs, TopicName
from partition_log.rules import appending
from tests.harness.payloads import UNREADABLE_PAYLOADS
from tests.log.driven_log import COMMIT, CONTEXT, TOPIC, Batch, DrivenLog, Producer, code, transactional

SERVER_MAX, TOPIC_MAX = 2_000, 1_000
IDEMPOTENT = Producer(7, 0)
TX = transactional()


@pytest.fixture
def driven() -> DrivenLog:
    driven = DrivenLog(limits=Limits(batch_bytes_max=SERVER_MAX))
    driven.create(config={**UNREADABLE_PAYLOADS, "batch_bytes_max": str(TOPIC_MAX)})
    return driven


def batch_of(size: int, producer: Producer = IDEMPOTENT, sequence: int = 0) -> Batch:
    return Batch(producer, sequence, payload=b"x" * (size - HEADER_BYTES))


def alter(driven: DrivenLog, value: str | None) -> TopicConfigs:
    name = "batch_bytes_max"
    change = SettingsChange({}, (name,)) if value is None else SettingsChange({name: value})
    altered = driven.topics.alter_topic_configs(AlterTopicConfigs([TopicToAlter(TOPIC, b"", change)]), CONTEXT)
    driven.flush()
    return altered.result()[0]


def shown(driven: DrivenLog) -> tuple[str, Origin, str]:
    (found,) = driven.topics.describe_topic_configs(DescribeTopicConfigs([TopicName(TOPIC)]), CONTEXT)
    (setting,) = [each for each in found.settings if each.name == "batch_bytes_max"]
    return setting.value, setting.origin, setting.inherited


@pytest.mark.parametrize("producer", [IDEMPOTENT, TX], ids=["plain", "transactional"])
def test_a_larger_batch_is_refused_and_changes_nothing(driven: DrivenLog, producer: Producer) -> None:
    before = driven.state()
    result = driven.append(batch_of(TOPIC_MAX + 1, producer))
    assert code(result) is ErrorCode.MESSAGE_TOO_LARGE
    assert error_class(Method.PRODUCE, code(result)) is ErrorClass.REJECTED
    assert "takes 1001 bytes, and the topic takes up to 1000 (batch_bytes_max)" in str(result.error)
    assert driven.state() == before
    assert driven.append(batch_of(TOPIC_MAX, producer)).base_offset == 0, "its sequence is not used up"


def test_a_topic_without_the_setting_takes_as_much_as_the_server(driven: DrivenLog) -> None:
    alter(driven, None)
    assert driven.append(batch_of(SERVER_MAX)).error is None
    refused = driven.append(batch_of(SERVER_MAX + 1, sequence=1))
    assert code(refused) is ErrorCode.MESSAGE_TOO_LARGE


def test_others_in_the_transaction_are_taken(driven: DrivenLog) -> None:
    assert driven.append(batch_of(500, TX)).error is None
    assert code(driven.append(batch_of(TOPIC_MAX + 1, TX, 1))) is ErrorCode.MESSAGE_TOO_LARGE
    assert driven.append(batch_of(500, TX, 1)).base_offset == 1
    driven.end(TX, COMMIT)
    assert driven.read_all() == [0, 1]


def test_a_batch_that_was_appended_before_is_a_duplicate_whatever_the_topic_takes_by_now(driven: DrivenLog) -> None:
    """Otherwise its producer would send the same records again, in smaller batches."""
    batch = batch_of(TOPIC_MAX)
    assert driven.append(batch).base_offset == 0
    alter(driven, "100")
    repeated = driven.append(batch)
    assert (repeated.error, repeated.base_offset, repeated.is_duplicate) == (None, 0, True)


def test_a_change_holds_at_once_and_survives_a_crash(driven: DrivenLog) -> None:
    assert alter(driven, "100").error is None
    assert code(driven.append(batch_of(101))) is ErrorCode.MESSAGE_TOO_LARGE
    after = driven.crash()
    assert code(after.append(batch_of(101))) is ErrorCode.MESSAGE_TOO_LARGE
    assert shown(after) == ("100", Origin.TOPIC, "2000")


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("2001", "the server takes batches of up to 2000 bytes"),
        ("0", "choose a whole number from 1"),
        ("-1", "choose a whole number from 1"),
        ("1e3", "choose a whole number from 1"),
        ("", "choose a whole number from 1"),
        ("9" * 30, "choose a whole number from 1"),
    ],
)
def test_what_no_limit_can_be_is_refused(driven: DrivenLog, value: str, why: str) -> None:
    refused = alter(driven, value)
    assert code(refused) is ErrorCode.INVALID_CONFIG
    assert why in str(refused.error)
    assert shown(driven) == ("1000", Origin.TOPIC, "2000")
    assert alter(driven, "2000").error is None


def test_a_server_that_takes_less_by_now_bounds_its_topics(driven: DrivenLog) -> None:
    smaller = DrivenLog(driven.store, driven.clock, limits=Limits(batch_bytes_max=300))
    assert shown(smaller) == ("300", Origin.TOPIC, "300")
    assert code(smaller.append(batch_of(301))) is ErrorCode.MESSAGE_TOO_LARGE
    assert smaller.append(batch_of(300)).error is None


def test_a_value_of_a_newer_program_stops_no_producer() -> None:
    assert batch_bytes_max([("batch_bytes_max", "a lot")], 7) == 7
    assert batch_bytes_max([("batch_bytes_max", "5")], 7) == 5


def test_a_batch_of_kafka_may_have_the_bytes_that_kafka_counts_otherwise() -> None:
    """Our header has three bytes more, and Kafka's default is larger by twelve."""
    header = BatchHeader(0, 1, 0, 0, encoding=Encoding.KAFKA_V2)
    appending.check_size(header, 951, 1_000)
    with pytest.raises(Refused, match="takes 1016 bytes, and the topic takes up to 1015"):
        appending.check_size(header, 952, 1_000)
