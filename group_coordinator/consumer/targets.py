"""Input of an assignor for a group, and the decision to compute its target on the loop or away from it.

A small target is computed in the operation that needs it. A large one would delay all callers on the loop. So another
process computes it (`background`), and the result counts only if the group epoch is still the same.

Source: spec groups 3.5, 5.8; design 8.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from coordinator_protocol.assignors.values import MemberSpec, TopicSpec
from coordinator_runtime.ports import TopicMetadata, TopicShape
from group_coordinator.consumer.computing import TargetTask
from group_coordinator.consumer.group import ConsumerGroup
from group_coordinator.topics import shapes_of

ON_LOOP_US_MAX: Final = 2_000
"""Estimated duration of a computation above which it leaves the loop (us)."""

# Measured costs of the assignors (`python -m bench assignors`), right to a factor of two.
_US_PER_MEMBER: Final = 0.5
_US_PER_TOPIC: Final = 6.0
_US_PER_PARTITION: Final = 0.25
_US_PER_PARTITION_UNEQUAL: Final = 1.0
_US_PER_WISH_UNEQUAL: Final = 0.4
"""Cost of each topic of each member, if members subscribe to different topics."""


def is_large(group: ConsumerGroup, topics: TopicMetadata) -> bool:
    """Return True if the computation would block the loop for too long."""
    return _cost_us(group, shapes_of(group.subscribed_topics(), topics)) > ON_LOOP_US_MAX


def _cost_us(group: ConsumerGroup, shapes: Sequence[TopicShape]) -> float:
    partitions = sum(shape.partition_count for shape in shapes)
    cost_us = len(group.members) * _US_PER_MEMBER + len(shapes) * _US_PER_TOPIC
    if len({group.topics_of(subscription) for subscription in group.subscriptions()}) == 1:
        return cost_us + partitions * _US_PER_PARTITION
    wishes = sum(len(group.topics_of(each)) * count for each, count in group.subscription_counts())
    return cost_us + partitions * _US_PER_PARTITION_UNEQUAL + wishes * _US_PER_WISH_UNEQUAL


def target_task(group: ConsumerGroup, topics: TopicMetadata, assignors: tuple[str, ...]) -> TargetTask:
    """Return the computation that the group needs now. `assignors` are the available ones, the default first."""
    shapes = shapes_of(group.subscribed_topics(), topics)
    ids = {shape.topic: shape.topic_id for shape in shapes}
    wanted: dict[frozenset[bytes], frozenset[bytes]] = {}
    subscribed: dict[object, frozenset[bytes]] = {}
    for subscription in group.subscriptions():
        topic_ids = frozenset(ids[name] for name in group.topics_of(subscription) if name in ids)
        # Equal sets share one object, so that assignors can compare them at no cost.
        subscribed[subscription] = wanted.setdefault(topic_ids, topic_ids)
    members = {
        member_id: MemberSpec(
            topics=subscribed[member.subscription],
            instance_id=member.instance_id,
            rack_id=member.rack_id,
            owned=group.target(member_id),
        )
        for member_id, member in group.members.items()
    }
    specs = {shape.topic_id: TopicSpec(shape.partition_count) for shape in shapes}
    epoch = group.epochs.group_epoch
    return TargetTask(
        group_id=group.group_id,
        group_epoch=epoch,
        assignor_name=preferred_assignor(group, assignors),
        members=members,
        topics=specs,
    )


def preferred_assignor(group: ConsumerGroup, assignors: tuple[str, ...]) -> str:
    """Return the assignor that most members name, at a tie the one listed first; the first if no member names any."""
    votes = Counter(member.server_assignor for member in group.members.values() if member.server_assignor is not None)
    return max(assignors, key=lambda name: (votes[name], -assignors.index(name)))
