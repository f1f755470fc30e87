"""Topologies: their values, their check, and the topics and tasks that they need.

A subtopology has a task for each partition of its widest source. The server makes *internal topics*. A
repartition topic carries records from one subtopology to another. A changelog topic keeps the state of tasks.
Members send numbers of partitions only where their application fixes them. `configure` finds the others:

- Co-partitioned topics have one number. A source topic or a fixed number among them decides it.
- Any other repartition topic has the largest number of all sources of the subtopologies that write it. The numbers grow
  from nothing until none changes. So a topology with a circle has an answer, unless nothing comes in from outside.
- A changelog topic has the number of tasks of its subtopology.

Source: KIP-1071, spec groups 6.6 and 6.7.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from msgspec import Struct

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.names import ID_BYTES_MAX, check_topic_name
from coordinator_runtime.ports import TopicShape

SUBTOPOLOGIES_MAX: Final = 1_000
TASKS_MAX: Final = 100_000
"""Maximum number of tasks of a group. One computation places all of them."""
_NAMED_MAX: Final = 20
"""Number of topics that a text for people names."""


_CHANGELOG: Final[Mapping[str, str]] = {"cleanup_policy": "compact"}
_REPARTITION: Final[Mapping[str, str]] = {"retention_ms": "-1", "retention_bytes": "-1"}
"""Retention must remove no record that was not processed yet."""


class InternalTopic(Struct, frozen=True):
    """A topic that the server makes for a topology."""

    name: str
    partition_count: int = 0
    """0 if the server decides it."""
    config: Mapping[str, str] = {}


class CopartitionGroup(Struct, frozen=True):
    """Topics of a subtopology with equal numbers of partitions, by their places in its lists."""

    source_topics: tuple[int, ...] = ()
    repartition_sources: tuple[int, ...] = ()


class Subtopology(Struct, frozen=True, kw_only=True):
    """Connected processors: one task for each partition of the widest source."""

    subtopology_id: str
    source_topics: tuple[str, ...] = ()
    repartition_sources: tuple[InternalTopic, ...] = ()
    repartition_sinks: tuple[str, ...] = ()
    changelogs: tuple[InternalTopic, ...] = ()
    copartition_groups: tuple[CopartitionGroup, ...] = ()

    def sources(self) -> Iterator[str]:
        """Return the names of the topics that its tasks read."""
        yield from self.source_topics
        for topic in self.repartition_sources:
            yield topic.name

    def copartitioned(self) -> Iterator[tuple[str, ...]]:
        """Return the names of the topics of each co-partition group."""
        for group in self.copartition_groups:
            yield (
                *(self.source_topics[place] for place in group.source_topics),
                *(self.repartition_sources[place].name for place in group.repartition_sources),
            )


class Topology(Struct, frozen=True):
    """The topology of an application."""

    epoch: int = 0
    subtopologies: tuple[Subtopology, ...] = ()

    def source_topics(self) -> frozenset[str]:
        """Return the topics from outside."""
        return frozenset(name for each in self.subtopologies for name in each.source_topics)

    def topics(self) -> frozenset[str]:
        """Return all topics that the application reads, or keeps its state in."""
        names = (name for each in self.subtopologies for name in (*each.sources(), *(t.name for t in each.changelogs)))
        return frozenset(names)

    def repartition_topics(self) -> dict[str, InternalTopic]:
        return {topic.name: topic for each in self.subtopologies for topic in each.repartition_sources}


class StatusCode(IntEnum):
    """Facts for members besides their tasks. The numbers are Kafka's."""

    STALE_TOPOLOGY = 0
    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    MISSING_INTERNAL_TOPICS = 3
    SHUTDOWN_APPLICATION = 4
    ASSIGNMENT_DELAYED = 5


class Status(NamedTuple):
    """One status, with a text for people."""

    code: StatusCode
    detail: str


class Configured(Struct, frozen=True):
    """A topology beside the topics that exist."""

    status: Status | None = None
    """Reason for which there are no tasks; None if there are some."""
    task_counts: Mapping[str, int] = {}
    """Number of tasks by subtopology."""
    missing: tuple[InternalTopic, ...] = ()
    """Internal topics to be made, with their numbers of partitions."""
    readers: Mapping[bytes, tuple[str, ...]] = {}
    """Subtopologies that read a topic, by topic id."""

    @property
    def is_ready(self) -> bool:
        return self.status is None


# The check of a topology by itself


def check_topology(topology: Topology) -> None:
    """Raise Refused unless the topology has an answer whatever topics exist: STREAMS_INVALID_TOPOLOGY,
    INVALID_TOPIC_EXCEPTION."""
    if topology.epoch < 0:
        raise _invalid(f"its epoch is {topology.epoch}; count from 0")
    if not 0 < len(topology.subtopologies) <= SUBTOPOLOGIES_MAX:
        raise _invalid(f"it has {len(topology.subtopologies)} subtopologies; give 1 to {SUBTOPOLOGIES_MAX}")
    _check_unique(topology)
    for subtopology in topology.subtopologies:
        _check_subtopology(subtopology)
    sinks = {name for each in topology.subtopologies for name in each.repartition_sinks}
    sources = topology.repartition_topics()
    for name in sinks - sources.keys():
        raise _invalid(f"{name!a:.300} is a repartition sink, and no subtopology reads it; name its reader")
    counts = _counts(topology, dict.fromkeys(topology.source_topics(), 1))
    for name in sources:
        if not counts[name]:
            raise _invalid(
                f"the repartition topic {name!a:.300} gets records from no source topic, so its number of partitions "
                "is unknown; give partition_count, or name the subtopology that writes it"
            )


def _check_unique(topology: Topology) -> None:
    ids = Counter(each.subtopology_id for each in topology.subtopologies)
    made = Counter(
        topic.name for each in topology.subtopologies for topic in (*each.repartition_sources, *each.changelogs)
    )
    for what, counted in (("subtopology", ids), ("internal topic", made)):
        for name, times in counted.items():
            if times > 1:
                raise _invalid(f"the {what} {name!a:.300} is there {times} times; name it once")
    for name in topology.source_topics() & made.keys():
        raise _invalid(f"{name!a:.300} is both a source topic and an internal topic; make it one of them")


def _check_subtopology(subtopology: Subtopology) -> None:
    name = subtopology.subtopology_id
    if not name.strip() or "\0" in name or len(name.encode()) > ID_BYTES_MAX:
        raise _invalid(f"the subtopology id {name!a:.80} is blank, has a NUL, or is longer than {ID_BYTES_MAX} bytes")
    topics = [*subtopology.sources(), *(topic.name for topic in subtopology.changelogs), *subtopology.repartition_sinks]
    for topic_name in topics:
        check_topic_name(topic_name)
    if not any(subtopology.sources()):
        raise _invalid(f"the subtopology {name!a:.80} has no source; give it a topic to read")
    for topic in subtopology.changelogs:
        if topic.partition_count:
            raise _invalid(
                f"the changelog topic {topic.name!a:.300} must not fix its number of partitions, which is that of the "
                f"tasks; send 0 instead of {topic.partition_count}"
            )
    for topic in subtopology.repartition_sources:
        if topic.partition_count < 0:
            raise _invalid(f"{topic.name!a:.300} has {topic.partition_count} partitions; send 0 if the server decides")
    for group in subtopology.copartition_groups:
        _check_places(name, group.source_topics, len(subtopology.source_topics))
        _check_places(name, group.repartition_sources, len(subtopology.repartition_sources))


def _check_places(name: str, places: Sequence[int], count: int) -> None:
    for place in places:
        if not 0 <= place < count:
            raise _invalid(f"a co-partition group of {name!a:.80} names the topic {place} of {count}; count from 0")


def _invalid(why: str) -> Refused:
    return Refused(ErrorCode.STREAMS_INVALID_TOPOLOGY, f"the topology is invalid: {why}")


# A topology beside the topics that exist


def configure(topology: Topology, shape_of: Callable[[str], TopicShape | None]) -> Configured:
    """Return the tasks of a topology that passed `check_topology`, or what its topics lack. The status for missing
    topics has the words of Kafka, which its own tests compare."""
    shapes = {name: shape for name in topology.topics() if (shape := shape_of(name)) is not None}
    lacking = sorted(topology.source_topics() - shapes.keys())
    if lacking:
        return Configured(Status(StatusCode.MISSING_SOURCE_TOPICS, f"Source topics {_named(lacking)} are missing."))
    counts = _counts(topology, {name: shapes[name].partition_count for name in topology.source_topics()})
    unequal = _unequal_group(topology, counts)
    if unequal is not None:
        return _wrong(f"topics must have equal numbers of partitions: {unequal}")
    tasks = {each.subtopology_id: max(counts[name] for name in each.sources()) for each in topology.subtopologies}
    if sum(tasks.values()) > TASKS_MAX:
        return _wrong(f"its topics give {sum(tasks.values())} tasks, more than {TASKS_MAX}")
    wanted = [
        *((topic, counts[name]) for name, topic in topology.repartition_topics().items()),
        *((topic, tasks[each.subtopology_id]) for each in topology.subtopologies for topic in each.changelogs),
    ]
    for topic, count in wanted:
        shape = shapes.get(topic.name)
        if shape is not None and shape.partition_count != count:
            return _wrong(f"the internal topic {topic.name} has {shape.partition_count} partitions instead of {count}")
    kept = {topic.name for each in topology.subtopologies for topic in each.changelogs}
    missing = tuple(
        InternalTopic(topic.name, count, {**(_CHANGELOG if topic.name in kept else _REPARTITION), **topic.config})
        for topic, count in wanted
        if topic.name not in shapes
    )
    if missing:
        names = _named([topic.name for topic in missing])
        status = Status(StatusCode.MISSING_INTERNAL_TOPICS, f"Internal topics are missing: {names}")
        return Configured(status, missing=missing)
    return Configured(task_counts=tasks, readers=_readers(topology, shapes))


def _counts(topology: Topology, sources: Mapping[str, int]) -> dict[str, int]:
    """Return the number of partitions of each topic that is read; 0 where nothing decides it."""
    internal = topology.repartition_topics()
    counts = {**dict.fromkeys(internal, 0), **sources}
    counts |= {name: topic.partition_count for name, topic in internal.items() if topic.partition_count}
    groups = [group for each in topology.subtopologies for group in each.copartitioned()]
    decided = {name for name, count in counts.items() if count}
    for group in groups:
        known = {counts[name] for name in group if name in decided}
        if len(known) == 1:
            counts |= dict.fromkeys(group, *known)
    free = {name for name, count in counts.items() if not count}
    is_growing = True
    while is_growing:
        is_growing = False
        for names, gets in _flows(topology, groups):
            most = max((counts[name] for name in names), default=0)
            for name in gets:
                if name in free and counts[name] < most:
                    counts[name] = most
                    is_growing = True
    return counts


def _flows(topology: Topology, groups: Sequence[tuple[str, ...]]) -> Iterator[tuple[Sequence[str], Sequence[str]]]:
    """Return pairs of topics, and those that have at least as many partitions."""
    for subtopology in topology.subtopologies:
        yield tuple(subtopology.sources()), subtopology.repartition_sinks
    for group in groups:
        yield group, group


def _unequal_group(topology: Topology, counts: Mapping[str, int]) -> str | None:
    for subtopology in topology.subtopologies:
        for group in subtopology.copartitioned():
            if len({counts[name] for name in group}) > 1:
                return ", ".join(f"{name} has {counts[name]}" for name in group[:_NAMED_MAX])
    return None


def _wrong(detail: str) -> Configured:
    return Configured(Status(StatusCode.INCORRECTLY_PARTITIONED_TOPICS, detail))


def _named(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_NAMED_MAX])
    return shown if len(names) <= _NAMED_MAX else f"{shown} and {len(names) - _NAMED_MAX} others"


def _readers(topology: Topology, shapes: Mapping[str, TopicShape]) -> dict[bytes, tuple[str, ...]]:
    readers: dict[bytes, tuple[str, ...]] = {}
    for subtopology in topology.subtopologies:
        for name in subtopology.sources():
            topic_id = shapes[name].topic_id
            readers[topic_id] = (*readers.get(topic_id, ()), subtopology.subtopology_id)
    return readers
