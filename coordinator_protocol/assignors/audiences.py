"""Audiences: the subscribers of topics. Topics with the same subscribers share one audience, instead of a list each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from coordinator_protocol.assignors.values import MemberSpec, TopicSpec, TopicT


def in_order(members: Mapping[str, MemberSpec[TopicT]]) -> list[str]:
    """Return the member ids in the order of their turns: static ones by instance id, then dynamic ones by member id."""
    static = [
        (member.instance_id, member_id) for member_id, member in members.items() if member.instance_id is not None
    ]
    dynamic = [member_id for member_id, member in members.items() if member.instance_id is None]
    return [member_id for _, member_id in sorted(static)] + sorted(dynamic)


@dataclass(frozen=True, slots=True, eq=False)
class Audience:
    """The subscribers of some topics: their places in the order of turns, ascending, never empty.

    There is one object per set of subscribers, so that audiences can be compared and looked up by identity."""

    places: tuple[int, ...]


def audiences(members: Sequence[MemberSpec[TopicT]], topics: Mapping[TopicT, TopicSpec]) -> dict[TopicT, Audience]:
    """Return the audience of each topic that exists and has one, topics ascending."""
    by_subscription: defaultdict[frozenset[TopicT], list[int]] = defaultdict(list)
    for place, member in enumerate(members):
        by_subscription[member.topics].append(place)
    wanted_by: dict[TopicT, list[int]] = {}
    for number, subscription in enumerate(by_subscription):
        for topic in subscription:
            if topic in topics:
                wanted_by.setdefault(topic, []).append(number)
    places = list(by_subscription.values())
    made: dict[tuple[int, ...], Audience] = {}
    result = {}
    for topic in sorted(wanted_by):
        numbers = tuple(wanted_by[topic])
        audience = made.get(numbers)
        if audience is None:
            audience = Audience(tuple(sorted(chain.from_iterable(places[number] for number in numbers))))
            made[numbers] = audience
        result[topic] = audience
    return result
