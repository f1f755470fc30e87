"""Topology of a stream-processing application, as its members describe it to the group.

Source: KIP-1071, spec groups 6.6.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from coordinator_api.v1 import group_pb2 as group
from coordinator_client.errors import check_here, wrong_argument
from coordinator_client.streams.tasks import Task
from coordinator_client.values import TopicPartition
from coordinator_protocol.names import check_topic_name


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsInternalTopic:
    """A topic that the server makes for the application, if it is missing."""

    name: str
    partition_count: int = 0
    """Number of partitions; 0 (default): the server decides. Always 0 for changelogs, which have one for each task."""
    config: Mapping[str, str] = field(default_factory=dict)
    """Settings of the topic, for when it is made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsCopartitionGroup:
    """Sources whose partitions of the same number belong together, as for a join."""

    source_topics: Sequence[str] = ()
    repartition_source_topics: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsSubtopology:
    """A part of the topology without a repartition inside. It has one task for each partition of its sources."""

    subtopology_id: str
    source_topics: Sequence[str] = ()
    """Topics that exist, and that its tasks read."""
    repartition_sources: Sequence[StreamsInternalTopic] = ()
    """Topics that other subtopologies write to, and that its tasks read."""
    repartition_sinks: Sequence[str] = ()
    """Repartition topics that its tasks write to."""
    changelogs: Sequence[StreamsInternalTopic] = ()
    """Changelogs of the state of its tasks. With one, its tasks are stateful: they may have standby and warm-up
    tasks."""
    copartition_groups: Sequence[StreamsCopartitionGroup] = ()

    def sources(self) -> frozenset[str]:
        """Return the topics that its tasks read."""
        return frozenset((*self.source_topics, *(topic.name for topic in self.repartition_sources)))


@dataclass(frozen=True, slots=True)
class StreamsTopology:
    """All subtopologies of an application. All members of a group have the same.

    Raises at construction: Rejected for an impossible topic name, a name that is there twice, or no subtopology.
    """

    subtopologies: Sequence[StreamsSubtopology]
    epoch: int = 0
    """Version of the topology. A group takes another topology once all of its members have left."""

    def __post_init__(self) -> None:
        names = [each.subtopology_id for each in self.subtopologies]
        if not names or len({*names}) != len(names):
            raise wrong_argument("subtopologies", names, "must have at least one, each with a name of its own")
        for each in self.subtopologies:
            topics = (*each.sources(), *each.repartition_sinks, *(topic.name for topic in each.changelogs))
            for topic in topics:
                check_here(check_topic_name, topic)

    def tasks_reading(self, name: TopicPartition) -> frozenset[Task]:
        """Return the tasks that read a partition."""
        return frozenset(
            Task(each.subtopology_id, name.partition) for each in self.subtopologies if name.topic in each.sources()
        )

    def sources_of(self, task: Task) -> tuple[TopicPartition, ...]:
        """Return the partitions that a task may read, in order; a topic may have fewer partitions than there are
        tasks."""
        (found,) = (each for each in self.subtopologies if each.subtopology_id == task.subtopology_id)
        return tuple(TopicPartition(topic, task.partition) for topic in sorted(found.sources()))

    def message(self) -> group.StreamsTopology:
        """Return the topology as a heartbeat has it."""
        return group.StreamsTopology(epoch=self.epoch, subtopologies=[_message(each) for each in self.subtopologies])


def _message(part: StreamsSubtopology) -> group.StreamsSubtopology:
    outside, internal = list(part.source_topics), [topic.name for topic in part.repartition_sources]
    return group.StreamsSubtopology(
        subtopology_id=part.subtopology_id,
        source_topics=outside,
        repartition_source_topics=[_topic(each) for each in part.repartition_sources],
        repartition_sink_topics=part.repartition_sinks,
        state_changelog_topics=[_topic(each) for each in part.changelogs],
        copartition_groups=[
            group.StreamsCopartitionGroup(
                source_topics=[outside.index(name) for name in each.source_topics],
                repartition_source_topics=[internal.index(name) for name in each.repartition_source_topics],
            )
            for each in part.copartition_groups
        ],
    )


def _topic(topic: StreamsInternalTopic) -> group.StreamsInternalTopic:
    return group.StreamsInternalTopic(name=topic.name, partition_count=topic.partition_count, config=dict(topic.config))
