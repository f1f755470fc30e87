"""Loss of old records by `cleanup_policy`, Kafka's `cleanup.policy`, as long as nothing compacts."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from coordinator_protocol.errors import ErrorCode
from coordinator_runtime.features import COMPACT_TOPICS, FEATURES_KEY
from coordinator_runtime.ports import AllowAll, CallContext, Permission, ResourceType
from coordinator_runtime.store import Family
from partition_log.catalog.settings import KEEP_ALL, CleanupPolicy, Retention, SettingsChange, cleanup_policy
from partition_log.catalog.state import NewTopic, Topic, TopicSet, TopicToAlter
from partition_log.requests import (
    AlterTopicConfigs,
    CreateTopics,
    DescribeTopicConfigs,
    TopicConfigs,
    TopicName,
    TopicResult,
)
from partition_log.state import PartitionConfig
from tests.harness.payloads import UNREADABLE_PAYLOADS
from tests.log.driven_log import CONTEXT, TOPIC, Batch, DrivenLog, code
from tests.log.test_delete_records import delete

COMPACT = {"cleanup_policy": "compact"}
BOTH = {"cleanup_policy": "compact,delete"}


def alter(
    driven: DrivenLog, wanted: Mapping[str, str], *unset: str, topic: str = TOPIC, validate_only: bool = False
) -> TopicConfigs:
    change = TopicToAlter(topic, b"", SettingsChange(wanted, unset), validate_only)
    altered = driven.topics.alter_topic_configs(AlterTopicConfigs([change]), CONTEXT)
    driven.flush()
    return altered.result()[0]


def create(
    driven: DrivenLog, config: Mapping[str, str], name: str = TOPIC, *, validate_only: bool = False
) -> TopicResult:
    created = driven.topics.create_topics(CreateTopics([NewTopic(name, 1, config)], validate_only), CONTEXT)
    driven.flush()
    return created.result()[0]


def shown(driven: DrivenLog) -> dict[str, str]:
    (found,) = driven.topics.describe_topic_configs(DescribeTopicConfigs([TopicName(TOPIC)]), CONTEXT)
    return {setting.name: setting.value for setting in found.settings}


def features(driven: DrivenLog) -> bytes | None:
    return driven.store.get(Family.META, FEATURES_KEY)


def log_start(driven: DrivenLog) -> int:
    driven.remove()
    return driven.head().log_start_offset


@pytest.fixture
def small() -> DrivenLog:
    """A server that keeps almost nothing by default, and ten records."""
    driven = DrivenLog(config=PartitionConfig(index_interval_batches=1), default_retention=Retention(1_000, 1))
    driven.create(config=UNREADABLE_PAYLOADS | COMPACT)
    for _ in range(10):
        driven.append(Batch())
    driven.clock.advance(10_000)
    return driven


def test_with_compact_alone_retention_removes_nothing_and_is_shown_as_it_was_set(small: DrivenLog) -> None:
    assert log_start(small) == 0
    alter(small, {"retention_ms": "5", "retention_bytes": "6"})
    assert (log_start(small), log_start(small.crash())) == (0, 0)
    found = shown(small)
    assert (found["cleanup_policy"], found["retention_ms"], found["retention_bytes"]) == ("compact", "5", "6")


@pytest.mark.parametrize("change", [BOTH, {"cleanup_policy": "delete"}, None], ids=["both", "delete", "unset"])
def test_with_delete_retention_goes_on(small: DrivenLog, change: Mapping[str, str] | None) -> None:
    alter(small, {}, "cleanup_policy") if change is None else alter(small, change)
    assert log_start(small) > 5


def test_records_are_deleted_by_request_whatever_the_policy(small: DrivenLog) -> None:
    delete(small, 4)
    assert log_start(small) == 4


@pytest.mark.parametrize("value", ["Compact", "delete,compact", "compact, delete", "compact;delete", "none", ""])
def test_what_no_policy_can_be_is_refused(driven: DrivenLog, value: str) -> None:
    refused = alter(driven, {"cleanup_policy": value})
    assert code(refused) is ErrorCode.INVALID_CONFIG
    assert "choose delete or compact or compact,delete" in str(refused.error)
    assert shown(driven)["cleanup_policy"] == "delete"


def test_a_policy_of_a_newer_program_removes_nothing(small: DrivenLog) -> None:
    topic = small.catalog.topic(TOPIC, b"")
    assert cleanup_policy((("cleanup_policy", "archive"),)) is CleanupPolicy.COMPACT
    settings = (("cleanup_policy", "archive"), ("retention_bytes", "1"))
    newer = Topic(topic.name, topic.topic_id, topic.partition_ordinals, topic.created_ms, settings)
    small.catalog.replay(TopicSet(newer))
    assert small.catalog.retention(newer) == KEEP_ALL


# The feature, without which an older program would apply its retention


def test_the_first_topic_that_is_only_compacted_begins_the_feature() -> None:
    driven = DrivenLog()
    assert create(driven, BOTH, "other").error is None
    assert create(driven, {"cleanup_policy": "delete"}, "another").error is None
    assert features(driven) is None
    assert create(driven, COMPACT).error is None
    assert features(driven) == COMPACT_TOPICS.encode()
    version = driven.store.version()
    assert alter(driven, COMPACT, topic="other").error is None
    assert driven.store.version() == version + 1, "the feature is there already"
    assert features(driven.crash()) == COMPACT_TOPICS.encode()


def test_an_altered_topic_begins_it_too(driven: DrivenLog) -> None:
    assert alter(driven, {"retention_ms": "7"}).error is None
    assert features(driven) is None
    assert alter(driven, COMPACT).error is None
    assert (features(driven), shown(driven)["cleanup_policy"]) == (COMPACT_TOPICS.encode(), "compact")


def remove_items(driven: DrivenLog, *items: str, topic: str = TOPIC) -> TopicConfigs:
    change = TopicToAlter(topic, b"", SettingsChange({}, removed_items={"cleanup_policy": items}))
    altered = driven.topics.alter_topic_configs(AlterTopicConfigs([change]), CONTEXT)
    driven.flush()
    return altered.result()[0]


def test_a_topic_of_which_only_compact_is_left_begins_it_too(driven: DrivenLog) -> None:
    assert code(remove_items(driven, "delete")) is ErrorCode.INVALID_CONFIG
    assert alter(driven, BOTH).error is None
    assert remove_items(driven, "purge").error is None
    assert features(driven) is None
    assert remove_items(driven, "delete").error is None
    assert (features(driven), shown(driven)["cleanup_policy"]) == (COMPACT_TOPICS.encode(), "compact")


def test_changes_of_a_list_follow_each_other_before_they_are_durable(driven: DrivenLog) -> None:
    changes = [
        SettingsChange({}, added_items={"cleanup_policy": ["compact"]}),
        SettingsChange({}, removed_items={"cleanup_policy": ["compact"]}),
    ]
    altered = [
        driven.topics.alter_topic_configs(AlterTopicConfigs([TopicToAlter(TOPIC, b"", each)]), CONTEXT)
        for each in changes
    ]
    driven.flush()
    assert [each.result()[0].error for each in altered] == [None, None]
    assert shown(driven)["cleanup_policy"] == "delete"


@pytest.mark.parametrize(("flushes", "kept_groups"), [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0)])
def test_no_crash_leaves_the_topic_without_the_feature(flushes: int, kept_groups: int) -> None:
    driven = DrivenLog()
    answered = driven.topics.create_topics(CreateTopics([NewTopic(TOPIC, 1, COMPACT)]), CONTEXT)
    for _ in range(flushes):
        driven.driver.flush()
    is_answered = answered.is_settled
    after = driven.crash(kept_groups)
    is_there = TOPIC in after.catalog.topic_names()
    assert (features(after) is not None) >= is_there >= is_answered
    assert is_there == (flushes + kept_groups >= 2)


def test_what_is_refused_or_only_tried_begins_no_feature(driven: DrivenLog) -> None:
    assert code(create(driven, COMPACT)) is ErrorCode.TOPIC_ALREADY_EXISTS
    assert code(alter(driven, COMPACT, topic="missing")) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert code(alter(driven, COMPACT | {"retention_ms": "0"})) is ErrorCode.INVALID_CONFIG
    assert create(driven, COMPACT, "new", validate_only=True).error is None
    tried = alter(driven, COMPACT, validate_only=True)
    assert {each.name: each.value for each in tried.settings}["cleanup_policy"] == "compact"
    assert (features(driven), shown(driven)["cleanup_policy"]) == (None, "delete")


class Reader(AllowAll):
    """A caller without the right to change anything."""

    def is_allowed(self, context: CallContext, permission: Permission, resource_type: ResourceType, name: str) -> bool:
        return permission not in (Permission.ALTER_CONFIGS, Permission.CREATE) or name == TOPIC


def test_who_may_not_alter_a_topic_begins_no_feature() -> None:
    driven = DrivenLog(authorizer=Reader())
    denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert code(create(driven, COMPACT, "other")) is denied
    assert code(alter(driven, COMPACT, topic="other")) is denied
    assert features(driven) is None
    assert create(driven, COMPACT).error is None
