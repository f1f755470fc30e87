"""Racks of members and of the replicas of partitions, if they make any difference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Generic

from coordinator_protocol.assignors.values import MemberSpec, TopicSpec, TopicT

_NOWHERE: Final[frozenset[str]] = frozenset()


@dataclass(frozen=True, slots=True)
class Racks(Generic[TopicT]):
    """Racks of members, by their place in the order of turns, and of the replicas of partitions."""

    of_members: tuple[str | None, ...]
    topics: Mapping[TopicT, TopicSpec]

    def of_partition(self, topic: TopicT, partition: int) -> frozenset[str]:
        """Return the racks with a replica; empty if they are not known."""
        racks = self.topics[topic].racks
        return racks[partition] if partition < len(racks) else _NOWHERE

    def are_near(self, place: int, topic: TopicT, partition: int) -> bool:
        """Return True if the member's rack has a replica of the partition."""
        return self.of_members[place] in self.of_partition(topic, partition)


def racks_that_matter(
    members: Sequence[MemberSpec[TopicT]], topics: Mapping[TopicT, TopicSpec]
) -> Racks[TopicT] | None:
    """Return the racks, or None if no choice of an owner brings any member nearer to a replica.

    Source: Kafka's `useRackAwareAssignment`: some member is in a rack that has replicas, and not every partition has
    one in every such rack."""
    of_members = tuple(member.rack_id for member in members)
    if not any(of_members):
        return None
    of_partitions = {racks for topic in topics.values() for racks in topic.racks}
    everywhere = _NOWHERE.union(*of_partitions)
    if everywhere.isdisjoint(of_members) or of_partitions == {everywhere}:
        return None
    return Racks(of_members, topics)
