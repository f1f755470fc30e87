"""Simple: the strategy of share groups, in which several members may hold one partition.

Every member gets every partition of its topics. In a large group that would let each member ask for records of each
partition, so the *balanced* form spreads them. Topics with the same subscribers are dealt together. With more
subscribers than partitions each subscriber gets one partition, and the numbers of subscribers of the partitions differ
by one at most. Otherwise each partition gets one subscriber, and the numbers of partitions of the subscribers differ by
one at most. Both are the problem of `sticky` with equal subscriptions, the second one with its roles changed. So no
more moves than the balance needs.

Source: spec groups 5.9; KIP-932.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from coordinator_protocol.assignors.audiences import Audience, audiences, in_order
from coordinator_protocol.assignors.sticky import assign_sticky
from coordinator_protocol.assignors.values import MemberSpec, Share, Shares, TopicSpec, TopicT

PAIRS_MAX: Final = 10_000
"""Number of members times number of partitions above which the form is balanced."""

Partitions: TypeAlias = Mapping[TopicT, tuple[int, ...]]
"""Partitions that can be assigned, ascending, by topic. They need not be all of the topic."""


def assign_simple(members: Mapping[str, MemberSpec[TopicT]], partitions: Partitions[TopicT]) -> Shares[TopicT]:
    """Return the shares. An unchanged share is the same object that the member came with (`owned`)."""
    turns = in_order(members)
    specs = [members[member_id] for member_id in turns]
    wanted = audiences(specs, {topic: TopicSpec(len(numbers)) for topic, numbers in partitions.items()})
    count = sum(len(partitions[topic]) for topic in wanted)
    if len(turns) * count > PAIRS_MAX:
        shares = _balanced(specs, partitions, wanted)
    else:
        shares = _everything(specs, partitions)
    return {
        member_id: spec.owned if spec.owned == share else share
        for member_id, spec, share in zip(turns, specs, shares, strict=True)
    }


def _everything(members: Sequence[MemberSpec[TopicT]], partitions: Partitions[TopicT]) -> list[Share[TopicT]]:
    made: dict[frozenset[TopicT], Share[TopicT]] = {}
    for member in members:
        if member.topics not in made:
            made[member.topics] = {topic: partitions[topic] for topic in member.topics if partitions.get(topic)}
    return [made[member.topics] for member in members]


def _balanced(
    members: Sequence[MemberSpec[TopicT]], partitions: Partitions[TopicT], wanted: Mapping[TopicT, Audience]
) -> list[Share[TopicT]]:
    alike: defaultdict[Audience, list[TopicT]] = defaultdict(list)
    for topic, audience in wanted.items():
        alike[audience].append(topic)
    numbers: list[dict[TopicT, list[int]]] = [defaultdict(list) for _ in members]
    for audience, topics in alike.items():
        pairs = [(topic, number) for topic in topics for number in partitions[topic]]
        places = {pair: place for place, pair in enumerate(pairs)}
        held = [
            [
                places[topic, number]
                for topic in topics
                for number in members[place].owned.get(topic, ())
                if (topic, number) in places
            ]
            for place in audience.places
        ]
        for place, share in zip(audience.places, _dealt(held, len(pairs)), strict=True):
            for each in share:
                topic, number = pairs[each]
                numbers[place][topic].append(number)
    return [{topic: tuple(sorted(each)) for topic, each in share.items()} for share in numbers]


def _dealt(held: Sequence[Sequence[int]], count: int) -> list[list[int]]:
    """Return the partitions of each subscriber, out of `count`, of which they hold some."""
    if len(held) <= count:
        return _dealt_once(held, count)
    subscribers: list[list[int]] = [[] for _ in range(count)]
    for subscriber, mine in enumerate(held):
        if mine:
            subscribers[min(mine)].append(subscriber)
    shares: list[list[int]] = [[] for _ in held]
    for partition, mine in enumerate(_dealt_once(subscribers, len(held))):
        for subscriber in mine:
            shares[subscriber].append(partition)
    return shares


_ONLY: Final = ""


def _dealt_once(held: Sequence[Sequence[int]], count: int) -> list[list[int]]:
    """Give each of `count` things to one receiver, balanced. What several receivers hold, the first one keeps."""
    taken: set[int] = set()
    members: dict[str, MemberSpec[str]] = {}
    for receiver, mine in enumerate(held):
        kept = sorted(set(mine) - taken)
        taken.update(kept)
        owned = {_ONLY: tuple(kept)} if kept else {}
        members[f"{receiver:08}"] = MemberSpec(topics=_TOPICS, owned=owned)
    shares = assign_sticky(members, {_ONLY: TopicSpec(count)})
    return [list(shares[receiver].get(_ONLY, ())) for receiver in members]


_TOPICS: Final = frozenset({_ONLY})
