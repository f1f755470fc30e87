"""Topics that change: more partitions, other settings, and everything that must not change."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from coordinator_protocol.errors import ErrorCode
from coordinator_protocol.limits import Limits
from coordinator_runtime.ports import AllowAll, CallContext, Permission, ResourceType
from partition_log.catalog.settings import Origin, Retention, SettingsChange
from partition_log.catalog.state import ORDINAL_MAX, MorePartitions, OrdinalsAllocated, Topic, TopicSet, TopicToAlter
from partition_log.requests import (
    AlterTopicConfigs,
    CreatePartitions,
    DeleteTopics,
    DescribeTopicConfigs,
    DescribeTopics,
    TopicConfigs,
    TopicName,
    TopicResult,
)
from tests.log.driven_log import ABORT, CONTEXT, TOPIC, Batch, DrivenLog, code, transactional

TX = transactional()
LIMIT = Limits().partitions_per_topic_max


def more(name: str, count: int, topic_id: bytes = b"", *, validate_only: bool = False) -> MorePartitions:
    return MorePartitions(name, topic_id, count, validate_only)


def extend(driven: DrivenLog, *topics: MorePartitions, context: CallContext = CONTEXT) -> list[TopicResult]:
    changed = driven.topics.create_partitions(CreatePartitions(topics), context)
    driven.flush()
    return changed.result()


def change(
    name: str,
    wanted: Mapping[str, str] | None = None,
    *unset: str,
    topic_id: bytes = b"",
    validate_only: bool = False,
) -> TopicToAlter:
    return TopicToAlter(name, topic_id, SettingsChange(wanted or {}, unset), validate_only)


def alter(driven: DrivenLog, *topics: TopicToAlter, context: CallContext = CONTEXT) -> list[TopicConfigs]:
    changed = driven.topics.alter_topic_configs(AlterTopicConfigs(topics), context)
    driven.flush()
    return changed.result()


def counts(driven: DrivenLog) -> dict[str, int]:
    return {topic.name: len(topic.heads) for topic in driven.topics.describe_topics(DescribeTopics(), CONTEXT)}


def settings(driven: DrivenLog, name: str = TOPIC) -> dict[str, tuple[str, Origin]]:
    (found,) = driven.topics.describe_topic_configs(DescribeTopicConfigs([TopicName(name)]), CONTEXT)
    assert found.error is None
    return {each.name: (each.value, each.origin) for each in found.settings}


def staged(driven: DrivenLog) -> int:
    """Return the number of groups ever made durable: a refusal adds none."""
    driven.flush()
    return driven.runtime.groups.durable_version


class TestPartitions:
    def test_new_partitions_are_behind_the_old_ones_which_stay_as_they_are(self, driven: DrivenLog) -> None:
        driven.append(Batch(count=3), partition=1)
        ordinals = [driven.ordinal(0), driven.ordinal(1)]
        (result,) = extend(driven, more(TOPIC, 5))
        assert (result.error, result.partition_count) == (None, 5)
        assert [driven.ordinal(partition) for partition in range(2)] == ordinals
        assert len({driven.ordinal(partition) for partition in range(5)}) == 5
        assert driven.append(Batch(), partition=4).base_offset == 0
        assert driven.append(Batch(), partition=1).base_offset == 3
        again = driven.crash()
        assert again.state() == driven.state()
        assert counts(again) == {TOPIC: 5}

    def test_nothing_is_told_and_nothing_shown_before_it_is_durable(self, driven: DrivenLog) -> None:
        extended = driven.topics.create_partitions(CreatePartitions([more(TOPIC, 3)]), CONTEXT)
        assert not extended.is_settled
        assert counts(driven) == {TOPIC: 2}
        reader = driven.fetch(partition=2, wait_ms_max=100)
        appended = driven.send(Batch(), partition=2)
        assert not appended.is_settled
        driven.flush()
        assert code(reader.result()[0]) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert (extended.result()[0].error, appended.result()[0].base_offset) == (None, 0)

    @pytest.mark.parametrize("kept_groups", [0, 1])
    def test_a_crash_leaves_all_of_the_new_partitions_or_none(self, driven: DrivenLog, kept_groups: int) -> None:
        driven.topics.create_partitions(CreatePartitions([more(TOPIC, 9)]), CONTEXT)
        driven.runtime.groups.seal()
        again = driven.crash(kept_groups)
        assert counts(again) == {TOPIC: 9 if kept_groups else 2}
        last = max(again.ordinal(partition) for partition in range(counts(again)[TOPIC]))
        again.create("other")
        assert again.ordinal(0, "other") > last

    def test_a_deletion_takes_the_new_partitions_too(self, driven: DrivenLog) -> None:
        extend(driven, more(TOPIC, 4))
        driven.append(Batch(TX, 0), partition=3)
        driven.end(TX, ABORT, partition=3)
        driven.topics.delete_topics(DeleteTopics([TopicName(TOPIC)]), CONTEXT)
        driven.flush()
        assert counts(driven.crash()) == {}

    @pytest.mark.parametrize(
        ("count", "why"),
        [
            (2, "it has as many already"),
            (1, "it has 2, and partitions are never taken away"),
            (0, f"may have up to {LIMIT}"),
            (-1, f"may have up to {LIMIT}"),
            (-(2**31), f"may have up to {LIMIT}"),
            (LIMIT + 1, f"may have up to {LIMIT}"),
            (2**31 - 1, f"may have up to {LIMIT}"),
        ],
    )
    def test_what_no_topic_can_have_is_refused_and_changes_nothing(
        self, driven: DrivenLog, count: int, why: str
    ) -> None:
        before = staged(driven)
        (result,) = extend(driven, more(TOPIC, count))
        assert code(result) is ErrorCode.INVALID_PARTITIONS
        assert result.error is not None
        assert why in result.error.message
        assert (counts(driven), staged(driven)) == ({TOPIC: 2}, before)

    def test_ordinals_that_are_used_up_are_refused(self, driven: DrivenLog) -> None:
        driven.catalog.replay(OrdinalsAllocated(ORDINAL_MAX - 2))
        (result,) = extend(driven, more(TOPIC, 5))
        assert code(result) is ErrorCode.INVALID_PARTITIONS
        assert extend(driven, more(TOPIC, 4))[0].error is None

    def test_each_topic_is_extended_or_refused_by_itself(self, driven: DrivenLog) -> None:
        other_id = driven.create("other")
        results = extend(driven, more("missing", 3), more(TOPIC, 1), more("", 3, other_id), more("bad name", 3))
        assert [code(result) for result in results] == [
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.INVALID_PARTITIONS,
            ErrorCode.NONE,
            ErrorCode.INVALID_TOPIC_EXCEPTION,
        ]
        assert counts(driven) == {TOPIC: 2, "other": 3}

    def test_a_topic_that_is_named_twice_is_refused_both_times(self, driven: DrivenLog) -> None:
        topic_id = driven.create("other")
        results = extend(driven, more("other", 3), more(TOPIC, 3), more("", 4, topic_id))
        assert [code(result) for result in results] == [
            ErrorCode.INVALID_REQUEST,
            ErrorCode.NONE,
            ErrorCode.INVALID_REQUEST,
        ]
        assert counts(driven) == {TOPIC: 3, "other": 1}

    def test_a_topic_that_was_deleted_is_not_extended_by_its_old_id(self, driven: DrivenLog) -> None:
        old_id = driven.catalog.resolve(TOPIC, b"", 0).topic_id
        driven.topics.delete_topics(DeleteTopics([TopicName(TOPIC)]), CONTEXT)
        results = extend(driven, more("", 3, old_id))
        driven.create(partition_count=2)
        results += extend(driven, more(TOPIC, 3, old_id))
        assert [code(result) for result in results] == [ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID]
        assert counts(driven) == {TOPIC: 2}

    def test_a_dry_run_answers_the_same_and_changes_nothing(self, driven: DrivenLog) -> None:
        before = staged(driven)
        good, bad = extend(driven, more(TOPIC, 3, validate_only=True)) + extend(
            driven, more(TOPIC, 1, validate_only=True)
        )
        assert (good.error, good.partition_count, code(bad)) == (None, 3, ErrorCode.INVALID_PARTITIONS)
        assert (counts(driven), staged(driven)) == ({TOPIC: 2}, before)


OF_COMPACTION = {
    "min_compaction_lag_ms": ("0", Origin.DEFAULT),
    "max_compaction_lag_ms": ("-1", Origin.DEFAULT),
    "delete_retention_ms": ("86400000", Origin.DEFAULT),
    "min_dirty_ratio": ("0.5", Origin.DEFAULT),
}


class TestSettings:
    def test_each_value_says_where_it_comes_from(self) -> None:
        driven = DrivenLog(default_retention=Retention(retention_ms=5_000))
        driven.create(config={"validate_payload": "header"})
        assert settings(driven) == {
            "validate_payload": ("header", Origin.TOPIC),
            "retention_ms": ("5000", Origin.SERVER),
            "retention_bytes": ("-1", Origin.DEFAULT),
            "timestamp_after_max_ms": ("-1", Origin.DEFAULT),
            "batch_bytes_max": ("1048576", Origin.DEFAULT),
            "cleanup_policy": ("delete", Origin.DEFAULT),
            **OF_COMPACTION,
        }

    def test_what_is_altered_holds_and_what_is_unset_is_the_servers_again(self) -> None:
        driven = DrivenLog(default_retention=Retention(retention_ms=5_000))
        driven.create(config={"retention_ms": "7", "retention_bytes": "8"})
        (answered,) = alter(driven, change(TOPIC, {"retention_bytes": "9"}, "retention_ms"))
        for each in (driven, driven.crash()):
            assert settings(each)["retention_ms"] == ("5000", Origin.SERVER)
            assert settings(each)["retention_bytes"] == ("9", Origin.TOPIC)
        assert {each.name: each.value for each in answered.settings}["retention_bytes"] == "9"

    def test_a_setting_takes_effect_at_once_on_partitions_that_serve(self) -> None:
        driven = DrivenLog()
        driven.create(config={})
        assert code(driven.append(Batch())) is ErrorCode.INVALID_RECORD
        alter(driven, change(TOPIC, {"validate_payload": "header"}))
        assert driven.append(Batch()).error is None
        alter(driven, change(TOPIC, None, "validate_payload"))
        assert code(driven.append(Batch())) is ErrorCode.INVALID_RECORD

    def test_to_repeat_a_change_is_success_and_writes_nothing(self, driven: DrivenLog) -> None:
        alter(driven, change(TOPIC, {"retention_ms": "7"}))
        before = staged(driven)
        (result,) = alter(driven, change(TOPIC, {"retention_ms": "7"}))
        assert (result.error, staged(driven)) == (None, before)

    @pytest.mark.parametrize(
        ("wanted", "why"),
        [
            (change(TOPIC, {"retension_ms": "1"}), "did you mean retention_ms?"),
            (change(TOPIC, None, "validate_payloads"), "did you mean validate_payload?"),
            (change(TOPIC, {"\x00": "1"}), "there are validate_payload, retention_ms, retention_bytes"),
            (change(TOPIC, {"retention_ms": "0"}), "retention_ms of the topic orders cannot be '0'"),
            (change(TOPIC, {"retention_ms": "-2"}), "choose a whole number from 1"),
            (change(TOPIC, {"retention_bytes": str(2**63)}), "choose a whole number from 1"),
            (change(TOPIC, {"retention_bytes": ""}), "choose a whole number from 1"),
            (change(TOPIC, {"validate_payload": "FULL"}), "choose full or header"),
            (change(TOPIC, {"retention_ms": "5"}, "retention_ms"), "is set and unset at once"),
            (change(TOPIC, {"retention_ms": "5", "no_such": "1"}), "topics have no setting 'no_such'"),
        ],
    )
    def test_what_no_setting_can_be_is_refused_and_changes_nothing(
        self, driven: DrivenLog, wanted: TopicToAlter, why: str
    ) -> None:
        before, held = staged(driven), settings(driven)
        (result,) = alter(driven, wanted)
        assert code(result) is ErrorCode.INVALID_CONFIG
        assert result.error is not None
        assert why in result.error.message
        assert (settings(driven), staged(driven)) == (held, before)

    def test_a_change_of_nothing_is_refused(self, driven: DrivenLog) -> None:
        (result,) = alter(driven, change(TOPIC))
        assert code(result) is ErrorCode.INVALID_REQUEST

    def test_each_topic_is_altered_or_refused_by_itself(self, driven: DrivenLog) -> None:
        topic_id = driven.create("other")
        results = alter(
            driven,
            change("missing", {"retention_ms": "5"}),
            change(TOPIC, {"retention_ms": "5"}),
            change("other", {"retention_ms": "5"}),
            change("", {"retention_ms": "6"}, topic_id=topic_id),
        )
        assert [code(result) for result in results] == [
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.NONE,
            ErrorCode.INVALID_REQUEST,
            ErrorCode.INVALID_REQUEST,
        ]
        assert settings(driven)["retention_ms"] == ("5", Origin.TOPIC)
        assert settings(driven, "other")["retention_ms"] == ("-1", Origin.DEFAULT)

    def test_a_dry_run_shows_what_would_be_and_changes_nothing(self, driven: DrivenLog) -> None:
        before, held = staged(driven), settings(driven)
        (result,) = alter(driven, change(TOPIC, {"retention_ms": "5"}, "validate_payload", validate_only=True))
        assert {each.name: (each.value, each.origin) for each in result.settings} == {
            "validate_payload": ("full", Origin.DEFAULT),
            "retention_ms": ("5", Origin.TOPIC),
            "retention_bytes": ("-1", Origin.DEFAULT),
            "timestamp_after_max_ms": ("-1", Origin.DEFAULT),
            "batch_bytes_max": ("1048576", Origin.DEFAULT),
            "cleanup_policy": ("delete", Origin.DEFAULT),
            **OF_COMPACTION,
        }
        assert (settings(driven), staged(driven)) == (held, before)

    def test_what_a_newer_program_set_stays_and_may_be_unset(self, driven: DrivenLog) -> None:
        topic = driven.catalog.topic(TOPIC, b"")
        newer = Topic(topic.name, topic.topic_id, topic.partition_ordinals, topic.created_ms, (("new_thing", "1"),))
        driven.catalog.replay(TopicSet(newer))
        alter(driven, change(TOPIC, {"retention_ms": "5"}))
        assert driven.catalog.topic(TOPIC, b"").settings == (("new_thing", "1"), ("retention_ms", "5"))
        assert alter(driven, change(TOPIC, None, "new_thing"))[0].error is None
        assert driven.catalog.topic(TOPIC, b"").settings == (("retention_ms", "5"),)

    def test_growing_keeps_settings_and_altering_keeps_partitions(self, driven: DrivenLog) -> None:
        held = driven.catalog.topic(TOPIC, b"").settings
        extend(driven, more(TOPIC, 4))
        alter(driven, change(TOPIC, {"retention_ms": "5"}))
        topic = driven.crash().catalog.topic(TOPIC, b"")
        assert (len(topic.partition_ordinals), topic.settings) == (4, tuple(sorted((*held, ("retention_ms", "5")))))


class Without(AllowAll):
    """A caller with every right on topics but one."""

    def __init__(self, permission: Permission) -> None:
        self._permission = permission

    def is_allowed(self, context: CallContext, permission: Permission, resource_type: ResourceType, name: str) -> bool:
        return permission is not self._permission


class TestPermissions:
    def test_partitions_need_alter(self) -> None:
        driven = DrivenLog(authorizer=Without(Permission.ALTER))
        driven.create()
        results = extend(driven, more(TOPIC, 2), more("missing", 2))
        assert {code(result) for result in results} == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
        assert counts(driven) == {TOPIC: 1}

    def test_settings_need_alter_configs(self) -> None:
        driven = DrivenLog(authorizer=Without(Permission.ALTER_CONFIGS))
        driven.create()
        results = alter(driven, change(TOPIC, {"retention_ms": "1"}), change("missing", {"retention_ms": "1"}))
        assert {code(result) for result in results} == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
        assert settings(driven)["retention_ms"] == ("-1", Origin.DEFAULT)

    def test_who_may_not_see_settings_is_refused_by_name_and_gets_none_of_all(self) -> None:
        driven = DrivenLog(authorizer=Without(Permission.DESCRIBE_CONFIGS))
        driven.create()
        (named,) = driven.topics.describe_topic_configs(DescribeTopicConfigs([TopicName(TOPIC)]), CONTEXT)
        assert code(named) is ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert driven.topics.describe_topic_configs(DescribeTopicConfigs(), CONTEXT) == []
