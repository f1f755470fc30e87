"""Endpoints of a streams group: where the partitions of its state are to be found.

A process that answers queries of its state names an endpoint. Every member gets the partitions of all endpoints when
they have changed since the epoch that it knows.

Source: KIP-1071, spec groups 6.7.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from group_coordinator.shard import GroupShard
from group_coordinator.streams.group import StreamsGroup
from group_coordinator.streams.requests import EndpointPartitions
from group_coordinator.streams.state import Roles, TaskId, UserEndpoint, by_subtopology
from group_coordinator.topics import TopicShare, topic_shares

_LOAD_BITS: Final = 11
_CHANGE_BITS: Final = 20


def endpoint_epoch(shard: GroupShard, group: StreamsGroup) -> int:
    """Return the epoch of the endpoints, which is another one after each change and each load; 0 while none changed."""
    if not group.endpoint_changes:
        return 0
    load = shard.coordinator_epoch % (1 << _LOAD_BITS)
    return (load << _CHANGE_BITS) + group.endpoint_changes % (1 << _CHANGE_BITS)


def endpoint_partitions(shard: GroupShard, group: StreamsGroup) -> tuple[EndpointPartitions, ...]:
    """Return the partitions of all endpoints, in the order of the endpoints."""
    tasks: dict[UserEndpoint, Roles] = {}
    for member_id, member in group.members.items():
        if member.user_endpoint is not None:
            here, more = tasks.get(member.user_endpoint, Roles()), group.assignment(member_id).assigned
            tasks[member.user_endpoint] = Roles(here.active | more.active, here.standby | more.standby)
    return tuple(
        EndpointPartitions(endpoint, _partitions(shard, group, roles.active), _partitions(shard, group, roles.standby))
        for endpoint, roles in sorted(tasks.items())
    )


def _partitions(shard: GroupShard, group: StreamsGroup, tasks: Iterable[TaskId]) -> tuple[TopicShare, ...]:
    """Return the partitions that these tasks read."""
    sources = {each.subtopology_id: tuple(each.sources()) for each in group.topology.subtopologies}
    held: dict[bytes, set[int]] = {}
    for subtopology_id, partitions in by_subtopology(tasks):
        for topic in sources.get(subtopology_id, ()):
            shape = shard.topics.shape(topic)
            if shape is not None:
                held.setdefault(shape.topic_id, set()).update(
                    each for each in partitions if each < shape.partition_count
                )
    return topic_shares(held, shard.topics)
