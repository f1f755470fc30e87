"""Claims: the valid ones on each partition, and the partitions without an owner.

Source: spec groups 5.4; Kafka's `AbstractStickyAssignor`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Generic

from coordinator_protocol.assignors.values import MemberSpec, Share, TopicSpec, TopicT


@dataclass(frozen=True, slots=True)
class Holdings(Generic[TopicT]):
    """Every partition in exactly one place: with a member that may keep it, or unowned."""

    shares: tuple[Share[TopicT], ...]
    """Shares by place in the order of turns. A share in which nothing was wrong is the same object that the member came
    with."""
    unowned: Mapping[TopicT, Sequence[int]]
    """Partitions without an owner. Both topics and partitions ascend; topics without any are left out."""


def settle_claims(
    members: Sequence[MemberSpec[TopicT]], topics: Mapping[TopicT, TopicSpec], assignable: Iterable[TopicT]
) -> Holdings[TopicT]:
    """Return the claimed partitions that each member keeps.

    A claim is void if the partition does not exist, or if its topic is not subscribed to or not `assignable`. Those are
    the topics that exist and have a subscriber, ascending. Of several claims on one partition, the one of the highest
    generation holds. If two have that generation, none holds: at most one can be right, and there is no way to tell
    which."""
    claims: dict[TopicT, list[int]] = {topic: [] for topic in assignable}
    ways: dict[frozenset[TopicT], dict[TopicT, Callable[[Iterable[int]], None]]] = {}
    shares: list[Share[TopicT]] = []
    for member in members:
        share: Share[TopicT] = member.owned
        if share:
            claim = ways.get(member.topics)
            if claim is None:
                claim = ways[member.topics] = {
                    topic: claims[topic].extend for topic in member.topics if topic in claims
                }
            for topic, partitions in share.items():
                try:
                    claim[topic](partitions)
                except KeyError:
                    share = {other: share[other] for other in share if other in claim}
        shares.append(share)
    unowned: dict[TopicT, Sequence[int]] = {}
    everything = {count: frozenset(range(count)) for count in {topics[topic].partition_count for topic in claims}}
    for topic, claimed in claims.items():
        partitions_there = everything[topics[topic].partition_count]
        missing = partitions_there.difference(claimed)
        if len(claimed) + len(missing) != len(partitions_there):
            # There is not one claim for each partition that is not missing: some are claimed twice, or do not exist.
            missing = partitions_there.difference(_settle(topic, partitions_there, members, shares))
        if missing:
            unowned[topic] = sorted(missing) if claimed else range(len(partitions_there))
    return Holdings(tuple(shares), unowned)


def _settle(
    topic: TopicT, partitions_there: frozenset[int], members: Sequence[MemberSpec[TopicT]], shares: list[Share[TopicT]]
) -> Set[int]:
    """Reduce the contested topic in `shares` to the valid claims; return the partitions that have an owner."""
    best: dict[int, tuple[int, int | None]] = {}
    for place, share in enumerate(shares):
        generation = members[place].generation
        for partition in set(share.get(topic, ())):
            newest, _ = best.get(partition, (generation - 1, None))
            if generation > newest:
                best[partition] = generation, place
            elif generation == newest:
                best[partition] = generation, None
    holds = {p: place for p, (_, place) in best.items() if place is not None and p in partitions_there}
    for place, share in enumerate(shares):
        claimed = share.get(topic, ())
        kept = tuple(sorted({partition for partition in claimed if holds.get(partition) == place}))
        if kept != claimed:
            others = {other: partitions for other, partitions in share.items() if other != topic}
            shares[place] = {**others, topic: kept} if kept else others
    return holds.keys()
