"""Round robin: all partitions of all topics in one row, dealt around the group past members that do not subscribe.

With equal subscriptions the numbers differ by one at most; with unequal ones nothing is promised.

Source: spec groups 5.3; Kafka's `RoundRobinAssignor`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from itertools import groupby

from coordinator_protocol.assignors.audiences import audiences, in_order
from coordinator_protocol.assignors.dealing import deal
from coordinator_protocol.assignors.values import MemberSpec, Shares, TopicSpec, TopicT


def assign_round_robin(members: Mapping[str, MemberSpec[TopicT]], topics: Mapping[TopicT, TopicSpec]) -> Shares[TopicT]:
    """Return the shares. Previous owners do not matter."""
    turns = in_order(members)
    shares: list[dict[TopicT, tuple[int, ...]]] = [{} for _ in turns]
    wanted = audiences([members[member_id] for member_id in turns], topics)
    turn = 0
    # Consecutive topics with the same audience are dealt to it together.
    for audience, names in groupby(wanted, key=wanted.__getitem__):
        runs = [(topic, range(topics[topic].partition_count)) for topic in names]
        first = bisect_left(audience.places, turn) % len(audience.places)
        around = audience.places[first:] + audience.places[:first]
        deal([shares[place] for place in around], runs)
        if count := sum(len(partitions) for _, partitions in runs):
            turn = (around[(count - 1) % len(around)] + 1) % len(turns)
    return dict(zip(turns, shares, strict=True))
