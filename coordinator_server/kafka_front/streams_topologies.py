"""Topologies of streams groups in Kafka's messages.

Settings of internal topics have Kafka's names there, and those of the core in a group. Settings without effect are left
out, so members of both protocols can send the same topology.

Source: KIP-1071.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_server.kafka_front.messages import streams_group_describe_response as described
from coordinator_server.kafka_front.messages import streams_group_heartbeat_request as sent
from coordinator_server.kafka_front.topic_settings import core_settings, kafka_settings
from group_coordinator.streams.topology import CopartitionGroup, InternalTopic, Subtopology, Topology

_REPLICATION_FACTORS: Final = (-1, 0, 1)
"""Replication factors that mean one replica: two of them are the default of the server."""


def topology_of(message: sent.Topology) -> Topology:
    """Return the topology that a member sent. The core checks it.

    Raises Refused: INVALID_REQUEST for patterns of source topics, as in Kafka; STREAMS_INVALID_TOPOLOGY for replicas or
    settings that a topic cannot have here.
    """
    return Topology(message.epoch, tuple([_subtopology_of(each) for each in message.subtopologies]))


def _subtopology_of(message: sent.Subtopology) -> Subtopology:
    if message.source_topic_regex or any(group.source_topic_regex for group in message.copartition_groups):
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            f"the subtopology {message.subtopology_id!a:.80} has patterns of source topics: name the topics instead",
        )
    return Subtopology(
        subtopology_id=message.subtopology_id,
        source_topics=message.source_topics,
        repartition_sources=_internal_topics_of(message.repartition_source_topics),
        repartition_sinks=message.repartition_sink_topics,
        changelogs=_internal_topics_of(message.state_changelog_topics),
        copartition_groups=tuple(
            [
                CopartitionGroup(group.source_topics, group.repartition_source_topics)
                for group in message.copartition_groups
            ]
        ),
    )


def _internal_topics_of(messages: Iterable[sent.TopicInfo]) -> tuple[InternalTopic, ...]:
    return tuple([InternalTopic(each.name, each.partitions, _config_of(each)) for each in messages])


def _config_of(message: sent.TopicInfo) -> dict[str, str]:
    """Return the settings of the core. Raises Refused with a code that streams clients know."""
    if message.replication_factor not in _REPLICATION_FACTORS:
        text = f"the replication factor of {message.name!a:.300} is {message.replication_factor}"
        raise _invalid(f"{text}: this server is the only node, so write 1, or -1")
    try:
        return core_settings(message.name, [(each.key, each.value) for each in message.topic_configs])
    except Refused as refusal:
        raise _invalid(refusal.message) from None


def _invalid(why: str) -> Refused:
    return Refused(ErrorCode.STREAMS_INVALID_TOPOLOGY, f"the topology is invalid: {why}")


def described_topology(topology: Topology) -> described.Topology:
    """Return the topology of a group, with the numbers of partitions that its members sent."""
    return described.Topology(
        epoch=topology.epoch,
        subtopologies=[
            described.Subtopology(
                subtopology_id=each.subtopology_id,
                source_topics=each.source_topics,
                repartition_sink_topics=each.repartition_sinks,
                state_changelog_topics=_described_topics(each.changelogs),
                repartition_source_topics=_described_topics(each.repartition_sources),
            )
            for each in topology.subtopologies
        ],
    )


def _described_topics(topics: Iterable[InternalTopic]) -> list[described.TopicInfo]:
    return [
        described.TopicInfo(
            name=each.name,
            partitions=each.partition_count,
            topic_configs=[described.KeyValue(name, value) for name, value in kafka_settings(each.config)],
        )
        for each in topics
    ]
