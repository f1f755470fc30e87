"""A member of a group and its next step: what the rules of moving must know of the group."""

from __future__ import annotations

from group_coordinator.consumer.group import ConsumerGroup
from group_coordinator.consumer.rules import Destination, reconcile, same_partitions
from group_coordinator.consumer.state import ConsumerMember, CurrentAssignment, Owned
from group_coordinator.shard import GroupShard


def moved(
    shard: GroupShard,
    group: ConsumerGroup,
    member: ConsumerMember,
    owned: Owned | None,
    *,
    is_subscription_new: bool = False,
) -> CurrentAssignment:
    """Where the member is after its next step; the very value that the group has if there is none."""
    member_id, topics = member.member_id, group.topics_of(member.subscription)

    def is_subscribed(topic_id: bytes) -> bool:
        shape = shard.topics.shape_of_id(topic_id)
        return shape is not None and shape.topic in topics

    def is_free(topic_id: bytes, partition: int) -> bool:
        return group.owner(topic_id, partition) in {None, member_id}

    target = group.target(member_id)
    share = {topic_id: partitions for topic_id, partitions in target.items() if is_subscribed(topic_id)}
    destination = Destination(
        epoch=group.epochs.assignment_epoch, share=share, is_free=is_free, is_subscribed=is_subscribed
    )
    return reconcile(group.assignment(member_id), destination, owned, is_subscription_new=is_subscription_new)


def has_news(shard: GroupShard, group: ConsumerGroup, member: ConsumerMember, owned: Owned | None) -> bool:
    """True if a heartbeat would tell the member to hold something else. A new epoch alone can wait for the next
    heartbeat: a member that keeps what it has need not hear of everybody who comes and goes."""
    current = group.assignment(member.member_id)
    after = moved(shard, group, member, owned)
    return after is not current and not same_partitions(current.assigned, after.assigned)


def releases(before: CurrentAssignment, after: CurrentAssignment) -> bool:
    """True if something that was held is free now."""
    return any(
        after.assignment_epoch(topic_id, partition) is None
        for held in (before.assigned, before.pending_revocation)
        for topic_id, partitions in held.items()
        for partition in partitions
    )
