"""Members of streams groups over Kafka's protocol, and what is told of their groups."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

import pytest

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_server.kafka_front.access_bits import NOT_ASKED
from coordinator_server.kafka_front.alter_configs import Change
from coordinator_server.kafka_front.apis import ApiKey
from coordinator_server.kafka_front.configs import ConfigResource
from coordinator_server.kafka_front.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from coordinator_server.kafka_front.messages.list_groups_request import ListGroupsRequest
from coordinator_server.kafka_front.messages.streams_group_describe_request import StreamsGroupDescribeRequest
from coordinator_server.kafka_front.messages.streams_group_heartbeat_request import (
    CopartitionGroup,
    Endpoint,
    KeyValue,
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TaskIds,
    TaskOffset,
    TopicInfo,
    Topology,
)
from partition_log.requests import DescribeTopicConfigs, TopicName
from tests.harness.group_calls import ANYBODY
from tests.harness.kafka_caller import KafkaCaller
from tests.harness.streams_groups import PLAIN as PLAIN_OF_GRPC
from tests.harness.streams_groups import StreamsGroups, streams_groups

HEARTBEAT, DESCRIBE = ApiKey.STREAMS_GROUP_HEARTBEAT, ApiKey.STREAMS_GROUP_DESCRIBE
MISSING_SOURCE_TOPICS, MISSING_INTERNAL_TOPICS, SHUTDOWN, DELAYED = 1, 3, 4, 5
SIX: Final = {"0": [0, 1, 2, 3, 4, 5]}
PLAIN: Final = Topology(1, (Subtopology("0", ("foo",)),))
"""One stateless subtopology: six tasks."""
CHANGELOG: Final = (
    KeyValue("cleanup.policy", "compact"),
    KeyValue("message.timestamp.type", "CreateTime"),
    KeyValue("segment.bytes", "52428800"),
)
REPARTITION: Final = (
    KeyValue("cleanup.policy", "delete"),
    KeyValue("message.timestamp.type", "CreateTime"),
    KeyValue("retention.ms", "-1"),
    KeyValue("segment.bytes", "52428800"),
)
WORDS: Final = Topology(
    0,
    (
        Subtopology("0", ("foo",), repartition_sink_topics=("by-word",)),
        Subtopology(
            "1",
            state_changelog_topics=(TopicInfo("counts", topic_configs=CHANGELOG),),
            repartition_source_topics=(TopicInfo("by-word", topic_configs=REPARTITION),),
            copartition_groups=(CopartitionGroup(repartition_source_topics=(0,)),),
        ),
    ),
)
"""The word count of Kafka Streams, with the settings of its internal topics."""


@pytest.fixture
def streams() -> StreamsGroups:
    return streams_groups()


@dataclass
class KafkaStreams:
    """One member. It keeps what it was last told."""

    streams: StreamsGroups
    member_id: str = "m"
    settings: dict[str, Any] = field(default_factory=dict)
    """Further fields of its joins."""
    epoch: int = 0

    def beats(self, **fields: Any) -> Any:
        said = {"group_id": "g", "member_id": self.member_id, "member_epoch": self.epoch, **fields}
        response = KafkaCaller(self.streams.world).call(HEARTBEAT, 0, StreamsGroupHeartbeatRequest(**said))
        if not response.error_code:
            self.epoch = response.member_epoch
        return response

    def joins(self, wanted: Topology | None = PLAIN, **fields: Any) -> Any:
        owned = {"active_tasks": (), "standby_tasks": (), "warmup_tasks": ()}
        said = {"topology": wanted, "rebalance_timeout_ms": 30_000, "process_id": f"process of {self.member_id}"}
        return self.beats(**{"member_epoch": 0, **owned, **said, **self.settings, **fields})

    def starts(self, wanted: Topology = PLAIN, **fields: Any) -> Any:
        """Join, and be told the first tasks after the delay."""
        self.joins(wanted, **fields)
        self.streams.starts()
        return self.beats()


def told(messages: Iterable[Any] | None) -> dict[str, list[int]]:
    assert messages is not None, "unchanged"
    return {each.subtopology_id: list(each.partitions) for each in messages}


def tasks(**partitions: Iterable[int]) -> tuple[TaskIds, ...]:
    """Tasks by subtopology, which is named as `s0`."""
    return tuple(TaskIds(name.removeprefix("s"), tuple(numbers)) for name, numbers in partitions.items())


def statuses(response: Any) -> list[int]:
    return [each.status_code for each in response.status]


def described(streams: StreamsGroups, group_id: str = "g", **fields: Any) -> Any:
    request = StreamsGroupDescribeRequest(group_ids=(group_id,), **fields)
    (group,) = KafkaCaller(streams.world).call(DESCRIBE, 0, request).groups
    return group


# Heartbeats


def test_a_member_joins_stays_and_leaves(streams: StreamsGroups) -> None:
    member = KafkaStreams(streams)
    joined = member.joins(endpoint_information_epoch=-1)
    assert (joined.error_code, joined.error_message, joined.member_id) == (ErrorCode.NONE, None, "m")
    assert (joined.member_epoch, statuses(joined), joined.active_tasks) == (1, [DELAYED], [])
    assert (joined.heartbeat_interval_ms, joined.task_offset_interval_ms) == (5_000, 60_000)
    assert (joined.acceptable_recovery_lag, joined.partitions_by_user_endpoint) == (10_000, [])
    streams.starts()
    started = member.beats(endpoint_information_epoch=joined.endpoint_information_epoch)
    assert (started.member_epoch, statuses(started), told(started.active_tasks)) == (2, [], SIX)
    assert (told(started.standby_tasks), told(started.warmup_tasks)) == ({}, {})
    assert started.partitions_by_user_endpoint is None
    held = {"active_tasks": tasks(s0=range(6)), "standby_tasks": (), "warmup_tasks": ()}
    again = member.beats(**held)
    assert (again.active_tasks, again.standby_tasks, again.warmup_tasks) == (None, None, None)
    assert member.beats(member_epoch=-1).member_epoch == -1
    assert described(streams).group_state == "Empty"


def test_a_task_moves_once_its_member_says_that_it_gave_it_up(streams: StreamsGroups) -> None:
    first, second = KafkaStreams(streams, "first"), KafkaStreams(streams, "second")
    first.starts()
    second.joins()
    streams.starts()
    kept = told(first.beats().active_tasks)["0"]
    assert (len(kept), told(second.joins().active_tasks)) == (3, {})
    confirmed = first.beats(active_tasks=tasks(s0=kept), standby_tasks=(), warmup_tasks=())
    assert confirmed.member_epoch == 3
    assert told(second.joins().active_tasks) == {"0": sorted({*range(6)} - {*kept})}


def test_internal_topics_are_made_with_the_settings_of_the_member(streams: StreamsGroups) -> None:
    started = KafkaStreams(streams).starts(WORDS)
    assert (statuses(started), told(started.active_tasks)) == ([], {**SIX, "1": SIX["0"]})
    shapes = [streams.world.inside.catalog.shape(name) for name in ("counts", "by-word")]
    assert [shape and shape.partition_count for shape in shapes] == [6, 6]
    settings = streams.world.inside.topics.describe_topic_configs(
        DescribeTopicConfigs([TopicName("counts"), TopicName("by-word")]), ANYBODY
    )
    counts, by_word = ({each.name: each.value for each in topic.settings} for topic in settings)
    assert counts["cleanup_policy"] == "compact"
    assert (by_word["cleanup_policy"], by_word["retention_ms"]) == ("delete", "-1")


def test_a_missing_source_topic_is_a_status(streams: StreamsGroups) -> None:
    joined = KafkaStreams(streams).joins(Topology(0, (Subtopology("0", ("nowhere",)),)))
    assert (joined.error_code, joined.active_tasks) == (ErrorCode.NONE, [])
    (missing,) = [each for each in joined.status if each.status_code == MISSING_SOURCE_TOPICS]
    assert missing.status_detail == "Source topics nowhere are missing."
    assert described(streams).group_state == "NotReady"


def test_all_members_hear_of_a_shutdown(streams: StreamsGroups) -> None:
    first, second = KafkaStreams(streams, "first"), KafkaStreams(streams, "second")
    first.starts()
    second.joins()
    first.beats(shutdown_application=True)
    assert SHUTDOWN in statuses(second.beats())


def test_members_learn_where_the_state_of_others_is(streams: StreamsGroups) -> None:
    first = KafkaStreams(streams, "first", {"user_endpoint": Endpoint("host", 80)})
    started = first.starts()
    (there,) = first.beats(endpoint_information_epoch=started.endpoint_information_epoch).partitions_by_user_endpoint
    assert (there.user_endpoint.host, there.user_endpoint.port) == ("host", 80)
    (partitions,) = there.active_partitions
    assert (partitions.topic, partitions.partitions, there.standby_partitions) == ("foo", SIX["0"], [])


def test_a_join_without_a_process_is_a_process_of_its_own(streams: StreamsGroups) -> None:
    KafkaStreams(streams).joins(process_id=None)
    (member,) = described(streams).members
    assert member.process_id == "m"


def test_members_of_both_fronts_share_a_group(streams: StreamsGroups) -> None:
    kafka, grpc = KafkaStreams(streams, "kafka"), streams.member("grpc")
    kafka.joins(PLAIN)
    grpc.joins(PLAIN_OF_GRPC)
    streams.starts()
    grpc.beats()
    mine = told(kafka.beats().active_tasks)["0"]
    assert sorted([*mine, *(partition for _subtopology, partition in grpc.active)]) == SIX["0"]


def test_a_static_member_comes_back_to_its_tasks(streams: StreamsGroups) -> None:
    first, second = KafkaStreams(streams, "first"), KafkaStreams(streams, "second")
    first.settings["instance_id"] = second.settings["instance_id"] = "i"
    first.starts()
    assert first.beats(member_epoch=-2, instance_id="i").member_epoch == -2
    assert told(second.joins().active_tasks) == SIX
    fenced = first.beats(member_epoch=2, instance_id="i")
    assert fenced.error_code == ErrorCode.FENCED_INSTANCE_ID


def test_standby_tasks_are_a_setting_of_the_group(streams: StreamsGroups) -> None:
    first, second = KafkaStreams(streams, "first"), KafkaStreams(streams, "second")
    first.joins(WORDS)
    second.joins(WORDS)
    streams.starts()
    assert (told(first.beats().standby_tasks), told(second.beats().standby_tasks)) == ({}, {})
    assert altered(streams, "streams.num.standby.replicas", "3") == ErrorCode.INVALID_CONFIG
    assert altered(streams, "streams.num.standby.replicas", "1") == ErrorCode.NONE
    standby = [told(each.beats().standby_tasks)["1"] for each in (first, second)]
    assert sorted(standby[0] + standby[1]) == SIX["0"]


def altered(streams: StreamsGroups, name: str, value: str) -> int:
    """Set a setting of the group, and return the error code."""
    setting = AlterableConfig(name=name, config_operation=Change.SET, value=value)
    resource = AlterConfigsResource(resource_type=ConfigResource.GROUP, resource_name="g", configs=(setting,))
    request = IncrementalAlterConfigsRequest(resources=(resource,))
    (answer,) = KafkaCaller(streams.world).call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request).responses
    code: int = answer.error_code
    return code


# Refusals


def with_changelog(**fields: Any) -> Topology:
    return Topology(0, (Subtopology("0", ("foo",), state_changelog_topics=(TopicInfo("counts", **fields),)),))


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"member_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"group_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"rack_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"instance_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"rebalance_timeout_ms": -1}, ErrorCode.INVALID_REQUEST),
        ({"topology": None}, ErrorCode.INVALID_REQUEST),
        ({"active_tasks": tasks(s0=[0])}, ErrorCode.INVALID_REQUEST),
        ({"active_tasks": None, "standby_tasks": None, "warmup_tasks": None}, ErrorCode.INVALID_REQUEST),
        ({"warmup_tasks": None}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": 1}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": -2, "topology": None, "process_id": None}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": -3}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": 1, "topology": None, "process_id": None}, ErrorCode.GROUP_ID_NOT_FOUND),
        ({"task_offsets": (TaskOffset("0", 0, 5),)}, ErrorCode.INVALID_REQUEST),
        ({"user_endpoint": Endpoint("host", 0)}, ErrorCode.INVALID_REQUEST),
        ({"topology": Topology(0, (Subtopology("0", ("foo",), ("f.*",)),))}, ErrorCode.INVALID_REQUEST),
        ({"topology": Topology(0, ())}, ErrorCode.STREAMS_INVALID_TOPOLOGY),
        ({"topology": with_changelog(partitions=3)}, ErrorCode.STREAMS_INVALID_TOPOLOGY),
        ({"topology": with_changelog(replication_factor=3)}, ErrorCode.STREAMS_INVALID_TOPOLOGY),
        (
            {"topology": with_changelog(topic_configs=(KeyValue("message.timestamp.type", "LogAppendTime"),))},
            ErrorCode.STREAMS_INVALID_TOPOLOGY,
        ),
        ({"topology": with_changelog(topic_configs=(KeyValue("x", "y"),))}, ErrorCode.STREAMS_INVALID_TOPOLOGY),
    ],
)
def test_what_is_refused_has_kafkas_code(streams: StreamsGroups, fields: dict[str, Any], code: ErrorCode) -> None:
    refused = KafkaStreams(streams).joins(**fields)
    assert refused.error_code == code
    assert refused.error_message
    assert described(streams).error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_one_replica_may_be_asked_for_in_three_ways(streams: StreamsGroups) -> None:
    for number, factor in enumerate((-1, 0, 1)):
        wanted = Topology(
            0, (Subtopology("0", ("foo",), state_changelog_topics=(TopicInfo(f"c{number}", 0, factor),)),)
        )
        assert KafkaStreams(streams).joins(wanted, group_id=f"g{number}").error_code == ErrorCode.NONE


def test_a_member_is_fenced_by_epoch(streams: StreamsGroups) -> None:
    member = KafkaStreams(streams)
    member.starts()
    assert member.beats(member_epoch=999).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert member.beats(member_id="other").error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert member.joins(Topology(1, (Subtopology("other", ("bar",)),))).error_code == ErrorCode.INVALID_REQUEST


def test_a_fenced_member_that_joins_again_has_its_epoch_and_its_tasks(streams: StreamsGroups) -> None:
    member = KafkaStreams(streams)
    member.starts()
    again = member.joins()
    assert (again.error_code, again.member_epoch, told(again.active_tasks)) == (ErrorCode.NONE, 2, SIX)
    assert (again.standby_tasks, again.warmup_tasks) == ([], [])


def test_a_member_whose_session_ended_is_unknown_until_it_joins_again(streams: StreamsGroups) -> None:
    member = KafkaStreams(streams)
    member.starts()
    streams.world.pass_time(45_001)
    assert member.beats().error_code == ErrorCode.UNKNOWN_MEMBER_ID
    again = member.joins()
    assert (again.member_epoch > 2, told(again.active_tasks)) == (True, SIX)


def test_a_server_that_loads_lets_the_member_ask_again(streams: StreamsGroups) -> None:
    caller, request = KafkaCaller(streams.world), StreamsGroupHeartbeatRequest(group_id="g", member_id="m")
    timed_out = Refused(ErrorCode.REQUEST_TIMED_OUT, "the disk is slow")
    refused = caller.refused(HEARTBEAT, 0, request, timed_out)
    assert (refused.error_code, refused.status) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, ())
    asked = StreamsGroupDescribeRequest(group_ids=("g", "h"))
    groups = caller.refused(DESCRIBE, 0, asked, timed_out).groups
    assert [(each.group_id, each.error_code) for each in groups] == [
        ("g", ErrorCode.COORDINATOR_NOT_AVAILABLE),
        ("h", ErrorCode.COORDINATOR_NOT_AVAILABLE),
    ]


# Descriptions


def test_a_group_is_described(streams: StreamsGroups) -> None:
    member = KafkaStreams(streams, settings={"user_endpoint": Endpoint("host", 80), "rack_id": "r", "instance_id": "i"})
    member.starts(WORDS, client_tags=(KeyValue("zone", "z"),))
    offsets = {"task_offsets": (TaskOffset("1", 2, 5),), "task_end_offsets": (TaskOffset("1", 2, 8),)}
    member.beats(instance_id="i", **offsets)
    group = described(streams)
    assert (group.error_code, group.group_state, group.authorized_operations) == (ErrorCode.NONE, "Stable", NOT_ASKED)
    assert group.group_epoch == group.assignment_epoch == member.epoch
    (found,) = group.members
    assert (found.member_id, found.instance_id, found.rack_id, found.member_epoch) == ("m", "i", "r", member.epoch)
    assert (found.client_id, found.client_host, found.process_id) == ("a-kafka-client", "/1.2.3.4", "process of m")
    assert (found.topology_epoch, found.is_classic) == (0, False)
    assert (found.user_endpoint.host, found.user_endpoint.port) == ("host", 80)
    assert [(each.key, each.value) for each in found.client_tags] == [("zone", "z")]
    assert [(each.subtopology_id, each.partition, each.offset) for each in found.task_offsets] == [("1", 2, 5)]
    assert [(each.subtopology_id, each.partition, each.offset) for each in found.task_end_offsets] == [("1", 2, 8)]
    assert told(found.assignment.active_tasks) == {**SIX, "1": SIX["0"]}
    assert found.target_assignment == found.assignment
    assert described(streams, include_authorized_operations=True).authorized_operations != NOT_ASKED


def test_a_topology_is_described_under_kafkas_names(streams: StreamsGroups) -> None:
    KafkaStreams(streams).joins(WORDS)
    topology = described(streams).topology
    source, counting = topology.subtopologies
    assert (topology.epoch, source.subtopology_id, list(source.source_topics)) == (0, "0", ["foo"])
    assert (list(source.repartition_sink_topics), counting.subtopology_id) == (["by-word"], "1")
    (changelog,), (repartition,) = counting.state_changelog_topics, counting.repartition_source_topics
    assert (changelog.name, repartition.name) == ("counts", "by-word")
    assert [(each.key, each.value) for each in changelog.topic_configs] == [("cleanup.policy", "compact")]
    assert {each.key: each.value for each in repartition.topic_configs} == {
        "cleanup.policy": "delete",
        "retention.ms": "-1",
    }


def test_an_unknown_group_and_one_of_another_kind_are_not_described(streams: StreamsGroups) -> None:
    streams.world.offsets.commits({"foo-0": 1}, group_id="classic")
    for group_id in ("unknown", "classic"):
        group = described(streams, group_id)
        assert (group.group_id, group.error_code) == (group_id, ErrorCode.GROUP_ID_NOT_FOUND)
        assert group.error_message


def test_streams_groups_are_listed_by_their_type(streams: StreamsGroups) -> None:
    KafkaStreams(streams).starts()
    request = ListGroupsRequest(types_filter=("Streams",))
    (listed,) = KafkaCaller(streams.world).call(ApiKey.LIST_GROUPS, 5, request).groups
    assert (listed.group_id, listed.group_type, listed.group_state, listed.protocol_type) == (
        "g",
        "streams",
        "Stable",
        "streams",
    )
