"""Topics: creation, deletion, and that a deleted one is never taken for its successor."""

from __future__ import annotations

import pytest

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.limits import Limits
from coordinator_runtime.ports import AllowAll, CallContext, PartitionName, Permission, ResourceType
from coordinator_runtime.store import Family
from partition_log.catalog.settings import Retention
from partition_log.catalog.state import NewTopic
from partition_log.requests import (
    CountQuery,
    CountRecords,
    CreateTopics,
    DeleteTopics,
    DescribeProducers,
    DescribeTopics,
    Fetch,
    FetchItem,
    ListOffsets,
    OffsetQuery,
    Produce,
    TopicName,
    TopicResult,
)
from tests.harness.payloads import UNREADABLE_PAYLOADS
from tests.log.driven_log import (
    ABORT,
    COMMITTED,
    CONTEXT,
    TOPIC,
    Batch,
    DrivenLog,
    code,
    transactional,
)

TX = transactional()
NO_LIMITS = ("", "0", "-2", "1.5", " 7", "7d", "1_000", "01", "9223372036854775808", "\u0661")
"""Texts that are no limit of retention."""


def create(driven: DrivenLog, *topics: NewTopic, validate_only: bool = False) -> list[TopicResult]:
    created = driven.topics.create_topics(CreateTopics(topics, validate_only=validate_only), CONTEXT)
    driven.flush()
    return created.result()


def delete(driven: DrivenLog, *topics: TopicName) -> list[TopicResult]:
    deleted = driven.topics.delete_topics(DeleteTopics(topics), CONTEXT)
    driven.flush()
    return deleted.result()


def rows_of(driven: DrivenLog) -> dict[str, int]:
    families = (Family.LOG, Family.STRETCHES, Family.PRODUCERS, Family.ABORTED, Family.PARTITIONS)
    return {family.name: len(list(driven.store.scan(family, b"", b"\xff" * 40))) for family in families}


# Creation


def test_a_topic_is_created_with_all_its_partitions() -> None:
    driven = DrivenLog()
    (result,) = create(driven, NewTopic("orders", 5))
    assert (result.error, result.partition_count, len(result.topic_id)) == (None, 5, 16)
    (described,) = driven.topics.describe_topics(DescribeTopics(), CONTEXT)
    assert (described.name, described.topic_id, len(described.heads)) == ("orders", result.topic_id, 5)


def test_a_topic_is_answered_and_described_once_it_is_durable() -> None:
    driven = DrivenLog()
    created = driven.topics.create_topics(CreateTopics([NewTopic("orders", 1)]), CONTEXT)
    assert not created.is_settled
    assert driven.topics.describe_topics(DescribeTopics(), CONTEXT) == []
    driven.flush()
    assert created.is_settled


def test_a_topic_may_be_written_as_soon_as_it_is_staged() -> None:
    driven = DrivenLog()
    driven.topics.create_topics(CreateTopics([NewTopic(TOPIC, 1)]), CONTEXT)
    assert driven.append(Batch()).base_offset == 0


def test_a_topic_is_not_read_before_it_is_durable() -> None:
    driven = DrivenLog()
    driven.topics.create_topics(CreateTopics([NewTopic(TOPIC, 1)]), CONTEXT)
    found = driven.fetch(wait_ms_max=100)
    driven.flush()
    assert code(found.result()[0]) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize(
    ("topic", "expected"),
    [
        (NewTopic("", 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic("a b", 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic("..", 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic("x" * 250, 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic("__offsets", 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic("fine", 0), ErrorCode.INVALID_PARTITIONS),
        (NewTopic("fine", -1), ErrorCode.INVALID_PARTITIONS),
        (NewTopic("fine", 10_001), ErrorCode.INVALID_PARTITIONS),
        (NewTopic("fine", 1, {"retention.ms": "1"}), ErrorCode.INVALID_CONFIG),
        (NewTopic("fine", 1, {"validate_payload": "yes"}), ErrorCode.INVALID_CONFIG),
        *[(NewTopic("fine", 1, {"retention_ms": value}), ErrorCode.INVALID_CONFIG) for value in NO_LIMITS],
        *[(NewTopic("fine", 1, {"retention_bytes": value}), ErrorCode.INVALID_CONFIG) for value in NO_LIMITS],
    ],
)
def test_what_cannot_be_created_is_refused(topic: NewTopic, expected: ErrorCode) -> None:
    driven = DrivenLog()
    assert [code(result) for result in create(driven, topic)] == [expected]
    assert driven.topics.describe_topics(DescribeTopics(), CONTEXT) == []


def test_a_setting_that_does_not_exist_names_the_one_that_may_be_meant() -> None:
    (result,) = create(DrivenLog(), NewTopic("fine", 1, {"retention.ms": "1"}))
    assert "did you mean retention_ms?" in str(result.error)


def test_a_topic_shows_its_own_limits_of_retention_and_else_those_of_the_server() -> None:
    driven = DrivenLog(default_retention=Retention(retention_ms=1_000, retention_bytes=2_000))
    own, none = {"retention_ms": "-1", "retention_bytes": str(2**63 - 1)}, {"retention_bytes": "5"}
    create(driven, NewTopic("own", 1, own), NewTopic("partly", 1, none), NewTopic("servers", 1))
    shown = [
        {name: topic.config[name] for name in ("retention_ms", "retention_bytes")}
        for topic in driven.topics.describe_topics(DescribeTopics(), CONTEXT)
    ]
    assert shown == [
        own,
        {"retention_ms": "1000", "retention_bytes": "5"},
        {"retention_ms": "1000", "retention_bytes": "2000"},
    ]


def test_each_topic_is_created_or_refused_by_itself(driven: DrivenLog) -> None:
    results = create(driven, NewTopic(TOPIC, 1), NewTopic("bad name", 1), NewTopic("other", 1))
    assert [code(result) for result in results] == [
        ErrorCode.TOPIC_ALREADY_EXISTS,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.NONE,
    ]


def test_a_name_used_twice_in_one_request_is_refused_both_times() -> None:
    results = create(DrivenLog(), NewTopic("a", 1), NewTopic("b", 1), NewTopic("a", 2))
    assert [code(result) for result in results] == [
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NONE,
        ErrorCode.INVALID_REQUEST,
    ]


def test_validation_checks_everything_and_creates_nothing(driven: DrivenLog) -> None:
    results = create(driven, NewTopic("new", 3), NewTopic(TOPIC, 1), NewTopic("bad name", 1), validate_only=True)
    assert [code(result) for result in results] == [
        ErrorCode.NONE,
        ErrorCode.TOPIC_ALREADY_EXISTS,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    ]
    assert (results[0].topic_id, results[0].partition_count) == (b"", 3)
    assert [topic.name for topic in driven.topics.describe_topics(DescribeTopics(), CONTEXT)] == [TOPIC]


def test_the_largest_topic_can_be_created_and_survives_a_crash() -> None:
    driven = DrivenLog()
    driven.create("wide", 10_000)
    assert code(driven.append(Batch(), topic="wide", partition=9_999)) is ErrorCode.NONE
    again = driven.crash()
    assert again.state() == driven.state()


# Deletion


def test_a_deleted_topic_leaves_no_row(driven: DrivenLog) -> None:
    driven.create("kept")
    before = rows_of(driven)
    for partition in (0, 1):
        driven.append(Batch(TX, 0), partition=partition)
        driven.end(TX, ABORT, partition=partition)
    assert [code(result) for result in delete(driven, TopicName(TOPIC))] == [ErrorCode.NONE]
    # The head of `kept`, and where its leader epoch began.
    assert rows_of(driven) == {**before, "PARTITIONS": 2}
    driven = driven.crash()
    assert [topic.name for topic in driven.topics.describe_topics(DescribeTopics(), CONTEXT)] == ["kept"]


def test_open_transactions_that_touch_a_topic_are_aborted_before_it_goes(driven: DrivenLog) -> None:
    driven.create("kept")
    driven.append(Batch(TX, 0))
    driven.append(Batch(TX, 0), topic="kept")
    driven.append(Batch(transactional(8), 0), topic="kept")
    delete(driven, TopicName(TOPIC))
    head = driven.head(topic="kept")
    assert (head.open_transactions, head.last_stable_offset) == (1, 1)
    assert code(driven.append(Batch(TX, 1), topic="kept")) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_deletion_that_is_not_durable_never_happened(driven: DrivenLog) -> None:
    driven.append(Batch(TX, 0, 3))
    state = driven.state()
    driven.topics.delete_topics(DeleteTopics([TopicName(TOPIC)]), CONTEXT)
    assert driven.crash().state() == state


def test_a_topic_created_again_has_another_id_and_nothing_of_the_old_one(driven: DrivenLog) -> None:
    old_id = driven.catalog.resolve(TOPIC, b"", 0).topic_id
    old_ordinals = {driven.ordinal(partition) for partition in (0, 1)}
    driven.append(Batch(count=5))
    delete(driven, TopicName(TOPIC))
    new_id = driven.create(partition_count=2)
    assert new_id != old_id
    assert old_ordinals.isdisjoint({driven.ordinal(partition) for partition in (0, 1)})
    assert (driven.head().log_end_offset, driven.read_all()) == (0, [])


def test_ordinals_are_not_used_again_after_a_crash_either(driven: DrivenLog) -> None:
    last = driven.ordinal(1)
    delete(driven, TopicName(TOPIC))
    driven = driven.crash()
    driven.create()
    assert driven.ordinal() == last + 1


def test_deletion_and_creation_in_one_flush_keep_the_new_topic(driven: DrivenLog) -> None:
    driven.append(Batch())
    driven.topics.delete_topics(DeleteTopics([TopicName(TOPIC)]), CONTEXT)
    driven.topics.create_topics(CreateTopics([NewTopic(TOPIC, 1, UNREADABLE_PAYLOADS)]), CONTEXT)
    driven.send(Batch(count=2))
    driven.flush()
    assert driven.read_all() == [0, 1]
    assert driven.crash().read_all() == [0, 1]


def test_a_topic_is_deleted_once(driven: DrivenLog) -> None:
    results = delete(driven, TopicName(TOPIC), TopicName(TOPIC))
    assert [code(result) for result in results] == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


# Names and ids


@pytest.fixture
def ids(driven: DrivenLog) -> dict[str, bytes]:
    old = driven.catalog.resolve(TOPIC, b"", 0).topic_id
    delete(driven, TopicName(TOPIC))
    return {"old": old, "new": driven.create(), "other": driven.create("other"), "none": b"", "unknown": b"u" * 16}


@pytest.mark.parametrize(
    ("name", "key", "expected"),
    [
        (TOPIC, "new", ErrorCode.NONE),
        (TOPIC, "none", ErrorCode.NONE),
        ("", "new", ErrorCode.NONE),
        (TOPIC, "old", ErrorCode.INCONSISTENT_TOPIC_ID),
        (TOPIC, "other", ErrorCode.INCONSISTENT_TOPIC_ID),
        ("missing", "new", ErrorCode.INCONSISTENT_TOPIC_ID),
        ("", "old", ErrorCode.UNKNOWN_TOPIC_ID),
        ("missing", "unknown", ErrorCode.UNKNOWN_TOPIC_ID),
        ("missing", "none", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_name_and_id_must_belong_together_everywhere(
    driven: DrivenLog, ids: dict[str, bytes], name: str, key: str, expected: ErrorCode
) -> None:
    partition = PartitionName(name, ids[key], 0)
    sent = driven.log.produce(Produce(None, (Batch().item(partition),)), CONTEXT)
    driven.flush()
    fetched = driven.log.fetch(Fetch((FetchItem(partition, 0),)), CONTEXT)
    listed = driven.positions.list_offsets(ListOffsets([OffsetQuery(partition, -1)], COMMITTED), CONTEXT)
    described = driven.topics.describe_topics(DescribeTopics([TopicName(name, ids[key])]), CONTEXT)
    answers = [sent.result()[0], fetched.result()[0], listed.result()[0], described[0]]
    assert [code(answer) for answer in answers] == [expected] * 4
    assert code(delete(driven, TopicName(name, ids[key]))[0]) is expected


def test_answers_carry_the_name_and_the_id_whichever_was_asked(driven: DrivenLog) -> None:
    full = PartitionName(TOPIC, driven.catalog.resolve(TOPIC, b"", 0).topic_id, 1)
    by_id = PartitionName("", full.topic_id, 1)
    sent = driven.log.produce(Produce(None, (Batch().item(by_id),)), CONTEXT)
    driven.flush()
    assert sent.result()[0].name == full
    assert driven.log.fetch(Fetch((FetchItem(by_id, 0),)), CONTEXT).result()[0].name == full
    assert (
        driven.positions.list_offsets(ListOffsets([OffsetQuery(by_id, -1)], COMMITTED), CONTEXT).result()[0].name
        == full
    )


def test_a_refusal_that_rests_on_a_deletion_waits_for_it(driven: DrivenLog) -> None:
    driven.topics.delete_topics(DeleteTopics([TopicName(TOPIC)]), CONTEXT)
    sent, fetched = driven.send(Batch()), driven.fetch()
    listed = driven.positions.list_offsets(
        ListOffsets([OffsetQuery(PartitionName(TOPIC, b"", 0), -1)], COMMITTED), CONTEXT
    )
    assert not any([sent.is_settled, fetched.is_settled, listed.is_settled])
    driven.flush()
    answers = [sent.result()[0], fetched.result()[0], listed.result()[0]]
    assert [code(answer) for answer in answers] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 3


@pytest.mark.parametrize("order", [1, -1], ids=["gone first", "gone last"])
def test_it_waits_whatever_else_the_request_names(driven: DrivenLog, order: int) -> None:
    driven.create("kept")
    driven.topics.delete_topics(DeleteTopics([TopicName(TOPIC)]), CONTEXT)
    names = [PartitionName(topic, b"", 0) for topic in (TOPIC, "kept")][::order]
    # The batch for the topic that stays is refused by itself, so the answer waits for no record.
    batches = [Batch(crc=0).item(name) for name in names]
    sent = driven.log.produce(Produce(None, batches), CONTEXT)
    fetched = driven.log.fetch(Fetch([FetchItem(name, 0) for name in names]), CONTEXT)
    assert not any([sent.is_settled, fetched.is_settled])
    driven.flush()
    gone, none = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NONE
    assert [code(result) for result in sent.result()] == [gone, ErrorCode.CORRUPT_MESSAGE][::order]
    assert [code(result) for result in fetched.result()] == [gone, none][::order]


def test_a_batch_that_waited_while_its_topic_was_deleted_is_refused(driven: DrivenLog) -> None:
    driven.append(Batch(TX, 0))
    waiting = driven.send(Batch(TX.at(1), 0))
    delete(driven, TopicName(TOPIC))
    assert not waiting.is_settled
    driven.unpark(TX)
    assert code(waiting.result()[0]) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# Permission


class OnlyReading(AllowAll):
    def is_allowed(self, context: CallContext, permission: Permission, resource: ResourceType, name: str) -> bool:
        return permission in {Permission.READ, Permission.DESCRIBE} and name == TOPIC


def test_every_use_of_a_topic_asks_for_its_permission(driven: DrivenLog) -> None:
    secret_id = driven.create("secret")
    guarded = DrivenLog(driven.store, driven.clock, authorizer=OnlyReading())
    denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert code(guarded.append(Batch())) is denied
    assert code(guarded.read()) is ErrorCode.NONE
    assert code(guarded.read(topic="secret")) is denied
    assert code(guarded.read(topic="missing")) is denied
    assert code(guarded.offsets(-1, topic="secret")[0]) is denied
    counted = guarded.ranges.count_records(CountRecords([CountQuery(PartitionName("secret", b"", 0), 0)]), CONTEXT)
    guarded.flush()
    assert code(counted.result()[0]) is denied
    assert code(create(guarded, NewTopic("mine", 1))[0]) is denied
    assert code(delete(guarded, TopicName(TOPIC))[0]) is denied
    for topic_id in (secret_id, b"nobody has this!"):
        unknown = ErrorCode.UNKNOWN_TOPIC_ID
        assert code(delete(guarded, TopicName("", topic_id))[0]) is unknown
        described = guarded.topics.describe_topics(DescribeTopics([TopicName("", topic_id)]), CONTEXT)[0]
        assert (code(described), described.name) == (unknown, "")
    assert [topic.name for topic in guarded.topics.describe_topics(DescribeTopics(), CONTEXT)] == [TOPIC]
    assert code(guarded.topics.describe_topics(DescribeTopics([TopicName("secret")]), CONTEXT)[0]) is denied


class OnlyDescribing(AllowAll):
    def is_allowed(self, context: CallContext, permission: Permission, resource: ResourceType, name: str) -> bool:
        return permission is Permission.DESCRIBE


def test_who_may_only_describe_a_topic_is_not_told_its_producers(driven: DrivenLog) -> None:
    guarded = DrivenLog(driven.store, driven.clock, authorizer=OnlyDescribing())
    described = guarded.log.describe_producers(DescribeProducers([PartitionName(TOPIC, b"", 0)]), CONTEXT)
    assert code(guarded.offsets(-1)[0]) is ErrorCode.NONE
    assert code(described.result()[0]) is ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_a_transaction_asks_for_the_permission_of_its_id(driven: DrivenLog) -> None:
    guarded = DrivenLog(driven.store, driven.clock, authorizer=OnlyReading())
    with pytest.raises(Refused) as refused:
        guarded.send(Batch(TX, 0))
    assert refused.value.code is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_the_number_of_partitions_is_configurable_downwards() -> None:
    driven = DrivenLog(limits=Limits(partitions_per_topic_max=2))
    assert code(create(driven, NewTopic("t", 3))[0]) is ErrorCode.INVALID_PARTITIONS
