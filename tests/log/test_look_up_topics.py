"""Looking up topics: ids and partitions, as clients ask for them again and again, without positions and settings."""

from __future__ import annotations

import pytest

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_runtime.incarnation import IncarnationCause
from coordinator_runtime.ports import AllowAll, CallContext, Permission, ResourceType
from coordinator_runtime.shard_table import ShardState
from partition_log.catalog.state import NewTopic
from partition_log.requests import CreateTopics, DeleteTopics, DescribeTopics, FoundTopic, LookUpTopics, TopicName
from tests.log.driven_log import CONTEXT, TOPIC, DrivenLog, code

OTHER = "other"


def look_up(driven: DrivenLog, *topics: TopicName) -> list[FoundTopic]:
    return driven.topics.look_up_topics(LookUpTopics(topics), CONTEXT)


def look_up_all(driven: DrivenLog) -> list[str]:
    return [topic.name for topic in driven.topics.look_up_topics(LookUpTopics(), CONTEXT)]


def test_a_topic_is_found_by_name_by_id_and_by_both(driven: DrivenLog) -> None:
    topic_id = driven.create(OTHER, 3)
    asked = [TopicName(OTHER), TopicName("", topic_id), TopicName(OTHER, topic_id)]
    assert look_up(driven, *asked) == [FoundTopic(OTHER, topic_id, [0, 0, 0])] * 3


def test_all_topics_are_found_by_name_and_none_if_none_is_asked_for(driven: DrivenLog) -> None:
    driven.create("another")
    assert look_up_all(driven) == ["another", TOPIC]
    assert look_up(driven) == []


def test_what_is_found_is_what_the_description_says(driven: DrivenLog) -> None:
    driven.create(OTHER, 5)
    described = driven.topics.describe_topics(DescribeTopics(), CONTEXT)
    expected = [(each.name, each.topic_id, len(each.heads)) for each in described]
    found = driven.topics.look_up_topics(LookUpTopics(), CONTEXT)
    assert [(each.name, each.topic_id, len(each.leader_epochs)) for each in found] == expected


def test_the_epochs_are_those_after_a_loss(driven: DrivenLog) -> None:
    store = driven.backup()
    store.begin_incarnation(IncarnationCause.DATA_LOSS, driven.clock.wall_ms())
    restored = DrivenLog(store, driven.clock)
    restored.flush()
    (found,) = look_up(restored, TopicName(TOPIC))
    assert found.leader_epochs == [restored.head(partition).leadership.epoch for partition in (0, 1)]
    assert found.leader_epochs[0] != 0


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (TopicName("missing"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TopicName("", b"u" * 16), ErrorCode.UNKNOWN_TOPIC_ID),
        (TopicName(TOPIC, b"u" * 16), ErrorCode.INCONSISTENT_TOPIC_ID),
        (TopicName("no name"), ErrorCode.INVALID_TOPIC_EXCEPTION),
    ],
)
def test_an_unknown_topic_is_refused_by_itself_and_as_its_description(
    driven: DrivenLog, wanted: TopicName, expected: ErrorCode
) -> None:
    refused, found = look_up(driven, wanted, TopicName(TOPIC))
    (described,) = driven.topics.describe_topics(DescribeTopics([wanted]), CONTEXT)
    assert (refused.name, refused.topic_id) == (wanted.name, wanted.topic_id)
    assert (code(refused), code(described), code(found)) == (expected, expected, ErrorCode.NONE)


def test_a_request_without_name_and_id_is_refused(driven: DrivenLog) -> None:
    with pytest.raises(Refused) as refused:
        look_up(driven, TopicName(""))
    assert refused.value.code is ErrorCode.INVALID_REQUEST


def test_a_topic_is_found_once_it_is_durable(driven: DrivenLog) -> None:
    driven.topics.create_topics(CreateTopics([NewTopic(OTHER, 1)]), CONTEXT)
    assert look_up_all(driven) == [TOPIC]
    driven.flush()
    assert look_up_all(driven) == [TOPIC, OTHER]


def test_a_topic_that_is_being_deleted_is_found_without_epochs(driven: DrivenLog) -> None:
    driven.topics.delete_topics(DeleteTopics([TopicName(TOPIC)]), CONTEXT)
    (found,) = look_up(driven, TopicName(TOPIC))
    assert (found.error, found.leader_epochs) == (None, [None, None])
    driven.flush()
    assert look_up_all(driven) == []


def test_a_shard_that_does_not_serve_costs_its_partitions_alone(driven: DrivenLog) -> None:
    driven.create(OTHER, 8)
    down = driven.catalog.log_shard(OTHER, 0)
    driven.runtime.table.mark(down, ShardState.UNLOADED)
    (found,) = look_up(driven, TopicName(OTHER))
    served = [driven.catalog.log_shard(OTHER, partition) != down for partition in range(8)]
    assert [epoch is not None for epoch in found.leader_epochs] == served
    assert (found.error, any(served)) == (None, True)


class SeesOne(AllowAll):
    """A caller who may describe one topic alone."""

    def is_allowed(self, context: CallContext, permission: Permission, resource_type: ResourceType, name: str) -> bool:
        return permission is not Permission.DESCRIBE or name == OTHER


def test_a_topic_that_the_caller_may_not_see_is_refused_by_name_and_unknown_by_id() -> None:
    driven = DrivenLog(authorizer=SeesOne())
    topic_id = driven.create(TOPIC)
    driven.create(OTHER)
    assert look_up_all(driven) == [OTHER]
    asked = [TopicName(TOPIC), TopicName("missing"), TopicName("", topic_id)]
    refused = [code(found) for found in look_up(driven, *asked)]
    denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert refused == [denied, denied, ErrorCode.UNKNOWN_TOPIC_ID]
    assert refused == [code(each) for each in driven.topics.describe_topics(DescribeTopics(asked), CONTEXT)]
