"""Consumers as the tests speak of them: each remembers its answers, as a client does.

world = group_world()
first, second = world.consumers.members("first", "second")
first.joins("foo", "bar")
second.joins("foo")
first.beats()                          # asked to give something up
first.acknowledges()                   # says that it did
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from coordinator_api.v1 import common_pb2, group_pb2
from coordinator_runtime.pending import Pending
from group_coordinator.consumer.group import ConsumerGroup
from tests.harness.groups import GROUP, OK, code

if TYPE_CHECKING:
    from tests.harness.world import World

Partitions = frozenset[tuple[str, int]]


def partitions_of(topics: Iterable[common_pb2.TopicPartitions]) -> Partitions:
    return frozenset((topic.topic, number) for topic in topics for number in topic.partitions)


def of(topic: str, *numbers: int) -> Partitions:
    """Some partitions of a topic."""
    return frozenset((topic, number) for number in numbers)


def all_of(**topics: int) -> Partitions:
    """All partitions of topics with so many."""
    return frozenset((topic, number) for topic, count in topics.items() for number in range(count))


def partition_set(partitions: Iterable[tuple[str, int]]) -> group_pb2.PartitionSet:
    by_topic: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        by_topic.setdefault(topic, []).append(number)
    return group_pb2.PartitionSet(
        topics=[common_pb2.TopicPartitions(topic=topic, partitions=numbers) for topic, numbers in by_topic.items()]
    )


@dataclass(frozen=True, slots=True)
class ConsumerGroups:
    """The consumer groups of a world, and their members."""

    world: World

    def member(self, member_id: str = "m", instance_id: str | None = None, **settings: Any) -> Consumer:
        """A consumer that has not joined yet."""
        return Consumer(self.world, member_id, instance_id, **settings)

    def members(self, *member_ids: str) -> list[Consumer]:
        return [self.member(member_id) for member_id in member_ids]

    def stable(self, *members: Consumer, topics: Iterable[str] = ("foo", "bar")) -> list[Consumer]:
        """They join, one after the other, and give and take until all hold their targets."""
        for member in members:
            assert code(member.joins(*topics)) is OK
        self.quiet(*members)
        return list(members)

    def quiet(self, *members: Consumer) -> None:
        """They send heartbeats until nothing changes any more."""
        for _round in range(20):
            before = [(member.epoch, member.assigned) for member in members]
            for member in members:
                assert code(member.acknowledges()) is OK
            if before == [(member.epoch, member.assigned) for member in members]:
                return
        raise AssertionError("the members give and take without an end")

    def describe(self, group_id: str = GROUP) -> Any:
        return self.world.ask(group_pb2.ConsumerGroupDescribeRequest(group_ids=[group_id])).groups[0]

    def state(self, group_id: str = GROUP) -> str:
        return str(self.describe(group_id).group_state)

    def epoch(self, group_id: str = GROUP) -> int:
        return int(self.describe(group_id).group_epoch)

    def described(self, member_id: str, group_id: str = GROUP) -> Any:
        (found,) = (member for member in self.describe(group_id).members if member.member_id == member_id)
        return found

    def member_ids(self, group_id: str = GROUP) -> list[str]:
        return [member.member_id for member in self.describe(group_id).members]

    def group(self, group_id: str = GROUP) -> ConsumerGroup:
        """The group itself, for state without an API."""
        found = self.world.groups.live(group_id)
        assert isinstance(found, ConsumerGroup)
        return found


@dataclass
class Consumer:
    """One client."""

    world: World
    member_id: str = "m"
    instance_id: str | None = None
    group_id: str = GROUP
    rebalance_timeout_ms: int = 10_000
    epoch: int = 0
    assigned: Partitions = frozenset()
    """Partitions in the last assignment that it was sent."""
    fields: dict[str, Any] = field(default_factory=dict)
    """Fields of every heartbeat."""

    def request(self, member_epoch: int | None = None, **fields: Any) -> group_pb2.ConsumerGroupHeartbeatRequest:
        return group_pb2.ConsumerGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            instance_id=self.instance_id,
            member_epoch=self.epoch if member_epoch is None else member_epoch,
            **{**self.fields, **fields},
        )

    def hears(self, response: Any) -> Any:
        """Take up what was answered."""
        if code(response) is OK:
            self.member_id = response.member_id
            self.epoch = response.member_epoch
            if response.HasField("assignment"):
                self.assigned = partitions_of(response.assignment.topics)
        return response

    def beats(self, member_epoch: int | None = None, **fields: Any) -> Any:
        """A heartbeat that says no more than these fields."""
        return self.hears(self.world.ask(self.request(member_epoch, **fields)))

    def waits(self, max_wait_ms: int = 5_000, **fields: Any) -> Pending[Any]:
        """A heartbeat that waits for news."""
        waiting = self.world.call(self.request(max_wait_ms=max_wait_ms, **fields))
        waiting.on_settled(lambda reply: self.hears(reply.result()))
        return waiting

    def joins(self, *topics: str, **fields: Any) -> Any:
        return self.beats(**self.join_fields(*topics), **fields)

    def join_fields(self, *topics: str) -> dict[str, Any]:
        return {
            "member_epoch": 0,
            "rebalance_timeout_ms": self.rebalance_timeout_ms,
            "subscribed_topic_names": group_pb2.TopicNames(names=topics),
            "topic_partitions": group_pb2.PartitionSet(),
        }

    def acknowledges(self, **fields: Any) -> Any:
        """Send a heartbeat that names the partitions of its last assignment as owned, and no more."""
        return self.beats(topic_partitions=partition_set(self.assigned), **fields)

    def subscribes(self, *topics: str) -> Any:
        return self.beats(subscribed_topic_names=group_pb2.TopicNames(names=topics))

    def leaves(self) -> Any:
        return self.beats(-1)

    def goes_for_a_moment(self) -> Any:
        return self.world.ask(self.request(-2))
