"""Heartbeats of one member that wait at the same time, and late ones that bring something new."""

from __future__ import annotations

from coordinator_api.v1 import group_pb2
from tests.groups.consumer.plans import planned_world
from tests.harness.consumers import of, partition_set, partitions_of
from tests.harness.group_world import group_world


def test_the_third_heartbeat_that_waits_stops_the_second() -> None:
    world = group_world()
    (member,) = world.consumers.members("first")
    world.consumers.stable(member, topics=("foo",))
    waiting = []
    for _ in range(3):
        request = member.request(max_wait_ms=5_000, topic_partitions=partition_set(member.assigned))
        waiting.append(world.call(request))
        world.settle()
    assert [each.is_settled for each in waiting] == [True, True, False]
    assert len(world.inside.core.news) == 1


def test_a_late_heartbeat_with_a_new_subscription_takes_nothing_away() -> None:
    world, plan = planned_world()
    first, second = world.consumers.members("first", "second")
    plan(first=of("foo", 0))
    first.joins("foo")
    plan(first=of("foo", 0, 1))
    second.joins("foo")
    first.hears(world.ask(first.request(1, topic_partitions=partition_set(of("foo", 0)))))
    assert first.assigned == of("foo", 0, 1)
    plan(first=of("foo", 0), second=of("foo", 1))
    topics = group_pb2.TopicNames(names=["foo", "bar"])
    late = world.ask(
        first.request(1, topic_partitions=partition_set(of("foo", 0)), subscribed_topic_names=topics),
    )
    assert (late.member_epoch, partitions_of(late.assignment.topics)) == (2, of("foo", 0, 1))
    second.beats()
    assert second.assigned == frozenset(), "first has it, and never said that it gave it up"
