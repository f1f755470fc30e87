"""Topologies by themselves and beside the topics that exist: what is refused, which numbers of partitions come out."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_runtime.ports import TopicShape
from group_coordinator.streams.topology import (
    TASKS_MAX,
    CopartitionGroup,
    InternalTopic,
    StatusCode,
    Subtopology,
    Topology,
    check_topology,
    configure,
)


def of(*subtopologies: Subtopology) -> Topology:
    return Topology(1, subtopologies)


def sub(name: str, *sources: str, **more: object) -> Subtopology:
    return Subtopology(subtopology_id=name, source_topics=sources, **more)  # type: ignore[arg-type]


def internal(*names: str, count: int = 0) -> tuple[InternalTopic, ...]:
    return tuple(InternalTopic(name, count) for name in names)


REFUSED = {
    "a negative epoch": Topology(-1, (sub("0", "a"),)),
    "no subtopology": of(),
    "an id twice": of(sub("0", "a"), sub("0", "b")),
    "a blank id": of(sub(" ", "a")),
    "an id with NUL": of(sub("0\0", "a")),
    "no source": of(sub("0", changelogs=internal("c"))),
    "a changelog with a number": of(sub("0", "a", changelogs=internal("c", count=3))),
    "a negative number": of(
        sub("0", "a", repartition_sinks=("r",)), sub("1", repartition_sources=internal("r", count=-1))
    ),
    "an internal topic twice": of(sub("0", "a", changelogs=internal("c")), sub("1", "b", changelogs=internal("c"))),
    "a source that is internal": of(sub("0", "a", changelogs=internal("a"))),
    "a sink without a reader": of(sub("0", "a", repartition_sinks=("r",))),
    "a repartition topic without a writer": of(sub("0", "a"), sub("1", repartition_sources=internal("r"))),
    "a place too many": of(sub("0", "a", copartition_groups=(CopartitionGroup((0, 1)),))),
    "a place below 0": of(sub("0", "a", copartition_groups=(CopartitionGroup((-1,)),))),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_topology_without_an_answer_is_refused(name: str) -> None:
    with pytest.raises(Refused) as refused:
        check_topology(REFUSED[name])
    assert refused.value.code is ErrorCode.STREAMS_INVALID_TOPOLOGY


def test_names_that_no_topic_can_have_are_refused() -> None:
    with pytest.raises(Refused) as refused:
        check_topology(of(sub("0", "a b")))
    assert refused.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION


def existing(**counts: int) -> Callable[[str], TopicShape | None]:
    return lambda name: TopicShape(name, name.encode().ljust(16), counts[name]) if name in counts else None


def made(topology: Topology, **counts: int) -> Mapping[str, int]:
    """Internal topics that are missing, with their numbers of partitions."""
    check_topology(topology)
    found = configure(topology, existing(**counts))
    assert found.status is not None
    assert found.status.code is StatusCode.MISSING_INTERNAL_TOPICS
    return {each.name: each.partition_count for each in found.missing}


def test_a_repartition_topic_is_as_wide_as_its_widest_source_and_a_changelog_as_the_tasks() -> None:
    topology = of(
        sub("0", "a", "b", repartition_sinks=("r",)),
        sub("1", "c", repartition_sources=internal("r"), changelogs=internal("kept")),
    )
    assert made(topology, a=3, b=5, c=2) == {"r": 5, "kept": 5}


def test_numbers_grow_through_a_chain_and_through_a_circle() -> None:
    chain = of(
        sub("2", repartition_sources=internal("s")),
        sub("1", repartition_sources=internal("r"), repartition_sinks=("s", "r")),
        sub("0", "a", repartition_sinks=("r",)),
    )
    assert made(chain, a=7) == {"r": 7, "s": 7}


def test_a_co_partitioned_source_decides_the_number_of_a_repartition_topic() -> None:
    topology = of(
        sub("0", "a", repartition_sinks=("r",)),
        sub("1", "table", repartition_sources=internal("r"), copartition_groups=(CopartitionGroup((0,), (0,)),)),
    )
    assert made(topology, a=8, table=4) == {"r": 4}


def test_co_partitioned_repartition_topics_get_the_larger_number() -> None:
    topology = of(
        sub("0", "a", repartition_sinks=("r",)),
        sub("1", "b", repartition_sinks=("s",)),
        sub("2", repartition_sources=internal("r", "s"), copartition_groups=(CopartitionGroup((), (0, 1)),)),
    )
    assert made(topology, a=2, b=6) == {"r": 6, "s": 6}


def test_the_server_keeps_changelogs_compacted_and_repartition_topics_whole() -> None:
    topology = of(
        sub("0", "a", repartition_sinks=("r",)),
        sub(
            "1",
            repartition_sources=internal("r"),
            changelogs=(InternalTopic("plain"), InternalTopic("window", config={"cleanup_policy": "compact,delete"})),
        ),
    )
    configs = {each.name: each.config for each in configure(topology, existing(a=1)).missing}
    assert configs == {
        "r": {"retention_ms": "-1", "retention_bytes": "-1"},
        "plain": {"cleanup_policy": "compact"},
        "window": {"cleanup_policy": "compact,delete"},
    }


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ({}, StatusCode.MISSING_SOURCE_TOPICS),
        ({"a": 3}, StatusCode.MISSING_SOURCE_TOPICS),
        ({"a": 3, "b": 4}, StatusCode.INCORRECTLY_PARTITIONED_TOPICS),
        ({"a": 3, "b": 3}, StatusCode.MISSING_INTERNAL_TOPICS),
        ({"a": 3, "b": 3, "c": 2}, StatusCode.INCORRECTLY_PARTITIONED_TOPICS),
        ({"a": 3, "b": 3, "c": 3}, None),
    ],
    ids=str,
)
def test_what_is_lacking(counts: dict[str, int], expected: StatusCode | None) -> None:
    joined = of(sub("0", "a", "b", changelogs=internal("c"), copartition_groups=(CopartitionGroup((0, 1)),)))
    found = configure(joined, existing(**counts))
    assert (None if found.status is None else found.status.code) == expected
    assert found.task_counts == ({"0": 3} if expected is None else {})


def test_a_fixed_number_that_does_not_fit_is_told() -> None:
    topology = of(
        sub("0", "a", repartition_sinks=("r",)),
        sub("1", "b", repartition_sources=internal("r", count=3), copartition_groups=(CopartitionGroup((0,), (0,)),)),
    )
    found = configure(topology, existing(a=1, b=4))
    assert found.status is not None
    assert found.status.detail == "topics must have equal numbers of partitions: b has 4, r has 3"


def test_more_tasks_than_one_computation_places_are_refused() -> None:
    found = configure(of(sub("0", "a"), sub("1", "b")), existing(a=TASKS_MAX, b=1))
    assert found.status is not None
    assert found.status.detail == "its topics give 100001 tasks, more than 100000"


def test_many_missing_topics_are_told_in_short() -> None:
    found = configure(of(sub("0", *(f"t{number:02}" for number in range(25)))), existing())
    assert found.status is not None
    assert found.status.detail.endswith("t18, t19 and 5 others are missing.")
