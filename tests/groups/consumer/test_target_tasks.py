"""Computations that leave the loop, and arrive whole in the other process."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Mapping, Sequence

import pytest

from coordinator_protocol.assignors.values import MemberSpec, TopicSpec
from coordinator_runtime.ports import TopicShape
from coordinator_runtime.timeline import Journal
from group_coordinator.consumer.computing import TargetTask
from group_coordinator.consumer.group import ConsumerGroup
from group_coordinator.consumer.records import MemberChanged
from group_coordinator.consumer.state import ConsumerMember, MemberSubscription
from group_coordinator.consumer.targets import is_large


class Topics:
    """Implements `TopicMetadata` with topics of equal size."""

    def __init__(self, names: Sequence[str], partition_count: int) -> None:
        self._shapes: Mapping[str, TopicShape] = {
            name: TopicShape(name, name.encode().rjust(16), partition_count) for name in names
        }

    def shape(self, topic: str) -> TopicShape | None:
        return self._shapes.get(topic)

    def shape_of_id(self, topic_id: bytes) -> TopicShape | None:
        return self._shapes.get(topic_id.decode().strip())

    def topic_names(self) -> Iterable[str]:
        return self._shapes


def group_of(size: int, *subscriptions: Sequence[str]) -> ConsumerGroup:
    group = ConsumerGroup("g", Journal())
    known = [MemberSubscription(names=frozenset(names)) for names in subscriptions]
    for number in range(size):
        member = ConsumerMember(member_id=f"m{number}", subscription=known[number % len(known)])
        group.replay(MemberChanged("g", member))
    return group


def names(count: int) -> list[str]:
    return [f"t{number}" for number in range(count)]


def without_one(all_names: Sequence[str]) -> list[list[str]]:
    """Return as many subscriptions as there are topics, each lacking another topic."""
    return [[name for name in all_names if name != missing] for missing in all_names]


@pytest.mark.parametrize(
    ("size", "topic_count", "partition_count", "is_away"),
    [(1, 1, 1, False), (100, 10, 100, False), (1_000, 100, 100, True), (10, 1_000, 1, True), (2, 1, 10_000, True)],
)
def test_equal_subscriptions(size: int, topic_count: int, partition_count: int, is_away: bool) -> None:
    topics = names(topic_count)
    assert is_large(group_of(size, topics), Topics(topics, partition_count)) is is_away


@pytest.mark.parametrize(
    ("size", "topic_count", "partition_count", "is_away"),
    [(10, 10, 10, False), (50, 20, 10, False), (10, 10, 300, True), (150, 100, 1, True)],
)
def test_different_subscriptions(size: int, topic_count: int, partition_count: int, is_away: bool) -> None:
    topics = names(topic_count)
    assert is_large(group_of(size, *without_one(topics)), Topics(topics, partition_count)) is is_away


def test_a_task_arrives_whole() -> None:
    topics = frozenset({b"t", b"u"})
    members = {
        "m": MemberSpec(topics=topics, instance_id="i", rack_id="r", owned={b"t": (0, 2)}, generation=3),
        "n": MemberSpec(topics=topics),
    }
    specs = {b"t": TopicSpec(2, (frozenset("a"), frozenset("ab"))), b"u": TopicSpec(1)}
    task = TargetTask("g", 7, "uniform", members, specs)
    arrived = pickle.loads(pickle.dumps(task))
    assert arrived == task
    assert arrived.members["m"].topics is arrived.members["n"].topics
