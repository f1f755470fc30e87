"""Balance if members subscribe to different topics: no other assignment would be more even.

Each member keeps its partitions of the topics that it still wants. A partition without an owner goes to its least
loaded subscriber; topics with the most partitions for each subscriber come first. Then partitions move from more to
less loaded members while that makes the two more even. First this is done in passes over the topics, within a topic and
many at a time. Then, where no single move helps, it is done along chains. Every step makes the sum of the squares of
the loads smaller, so there is an end; a run on the result changes nothing.

Partitions that were unowned move first, and owned ones only if that is not enough. An assignment may be interrupted:
the cooperative way hands over later what must be given up first. A run on the interrupted state finds the intended
sizes, and takes nothing from any member again.

Source: spec groups 5.6 (H1, H2); Kafka's uniform heterogeneous builder.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heapreplace
from typing import Final, Generic

from coordinator_protocol.assignors.audiences import Audience
from coordinator_protocol.assignors.chains import CHAINS_MAX, Chains
from coordinator_protocol.assignors.ownership import Holdings
from coordinator_protocol.assignors.racks import Racks
from coordinator_protocol.assignors.values import Share, TopicSpec, TopicT

PASSES_MAX: Final = 16
"""Limit of the passes over the topics. Chains even out the rest."""


def balance_unequal(
    holdings: Holdings[TopicT],
    topics: Mapping[TopicT, TopicSpec],
    audiences: Mapping[TopicT, Audience],
    racks: Racks[TopicT] | None,
) -> Sequence[Share[TopicT]]:
    """Return the balanced shares by place; an unchanged share is the same object as in `holdings`.

    Racks are only a preference: among equally loaded subscribers, one in a rack with a replica goes first."""

    def weight(topic: TopicT) -> tuple[float, int, TopicT]:
        size = len(audiences[topic].places)
        return -topics[topic].partition_count / size, size, topic

    balance = _Balance(holdings.shares, audiences)
    if holdings.unowned:
        for topic in sorted(holdings.unowned, key=weight):
            balance.place(topic, holdings.unowned[topic], racks)
        balance.even_out()
    balance.let_owned_move()
    balance.even_out()
    return balance.shares()


class _Balance(Generic[TopicT]):
    """The owners of partitions on the way to balance; members by their places."""

    def __init__(self, before: Sequence[Share[TopicT]], audiences: Mapping[TopicT, Audience]) -> None:
        self._before = before
        self._audiences = audiences
        self._loads = [sum(map(len, share.values())) for share in before]
        self._changed: set[int] = set()
        # Partitions that may move. The last one that a member got is last in its list, and moves first.
        self._owners: dict[TopicT, dict[int, Sequence[int]]] = {topic: {} for topic in audiences}

    def place(self, topic: TopicT, partitions: Sequence[int], racks: Racks[TopicT] | None) -> None:
        """Give each partition to the least loaded subscriber; of several to the first in turn."""
        by_load: defaultdict[int, list[int]] = defaultdict(list)
        for place in self._audiences[topic].places:
            by_load[self._loads[place]].append(place)
        load = min(by_load)
        got: defaultdict[int, list[int]] = defaultdict(list)
        while partitions:
            takers = sorted(by_load[load])
            hand, partitions = partitions[: len(takers)], partitions[len(takers) :]
            by_load[load + 1] += takers
            if racks is not None:
                takers = _near_first(topic, hand, takers, racks)
            for place, partition in zip(takers, hand, strict=False):
                got[place].append(partition)
                self._loads[place] = load + 1
            load += 1
        self._owners[topic].update(got)
        self._changed.update(got)

    def let_owned_move(self) -> None:
        """Let previously owned partitions move too from now on, after those received since."""
        for place, share in enumerate(self._before):
            for topic, partitions in share.items():
                owners = self._owners[topic]
                owners[place] = [*partitions, *owners[place]] if place in owners else partitions

    def even_out(self) -> None:
        """Move partitions until nothing helps."""
        for _ in range(PASSES_MAX):
            if not self._pass():
                break
        if max(self._loads) - min(self._loads) > 1:
            self._follow_chains()

    def _pass(self) -> bool:
        """Even every topic out by itself; return whether anything moved."""
        is_moved = False
        load_of = self._loads.__getitem__
        least: dict[Audience, int] = {}
        for topic, audience in self._audiences.items():
            owners = self._owners[topic]
            if not owners:
                continue
            if audience not in least:
                least[audience] = min(map(load_of, audience.places))
            if max(map(load_of, owners)) - least[audience] > 1:
                self._even_out_topic(topic)
                is_moved = True
                least.clear()
        return is_moved

    def _even_out_topic(self, topic: TopicT) -> None:
        """Move partitions of one topic from the most to the least loaded while that makes the two more even.

        Meanwhile the highest load only falls and the lowest only rises, so a giver never takes and a taker never gives.
        Each heap is right about the members that can still come first in it. Keys hold load and place, least first. A
        giver's load counts down, a taker's up, both by adding `size`."""
        size = len(self._loads)
        owners = self._owners[topic]
        givers = [place - self._loads[place] * size for place in owners]
        takers = [place + self._loads[place] * size for place in self._audiences[topic].places]
        heapify(givers)
        heapify(takers)
        while givers:
            most, giver = divmod(givers[0], size)
            least, taker = divmod(takers[0], size)
            if -most - least <= 1:
                return
            self._move(giver, topic, taker)
            heapreplace(takers, takers[0] + size)
            if giver in owners:
                heapreplace(givers, givers[0] + size)
            else:
                heappop(givers)

    def _follow_chains(self) -> None:
        topics_of: dict[int, list[TopicT]] = {place: [] for place in range(len(self._loads))}
        for topic, owners in self._owners.items():
            for place in owners:
                topics_of[place].append(topic)
        chains = Chains(self._audiences, topics_of, self._loads)
        for _ in range(CHAINS_MAX):
            chain = chains.next()
            if chain is None:
                break
            for giver, topic, taker in chain:
                if taker not in self._owners[topic]:
                    topics_of[taker].append(topic)
                self._move(giver, topic, taker)
                if giver not in self._owners[topic]:
                    topics_of[giver].remove(topic)
            chains.moved(chain)

    def _move(self, giver: int, topic: TopicT, taker: int) -> None:
        owners = self._owners[topic]
        given = _own(owners, giver)
        _own(owners, taker).append(given.pop())
        if not given:
            del owners[giver]
        self._loads[giver] -= 1
        self._loads[taker] += 1
        self._changed.update((giver, taker))

    def shares(self) -> Sequence[Share[TopicT]]:
        """Return the current shares. All partitions must have been allowed to move."""
        new: dict[int, dict[TopicT, tuple[int, ...]]] = {place: {} for place in self._changed}
        for topic, owners in self._owners.items():
            for place, partitions in owners.items():
                if place in new:
                    new[place][topic] = tuple(sorted(partitions))
        return [new.get(place, share) for place, share in enumerate(self._before)]


def _own(owners: dict[int, Sequence[int]], place: int) -> list[int]:
    """Return the member's partitions of a topic as a mutable list. It is made when first needed, because most never
    are."""
    owned = owners.get(place, ())
    if not isinstance(owned, list):
        owned = owners[place] = [*owned]
    return owned


def _near_first(topic: TopicT, hand: Sequence[int], takers: Sequence[int], racks: Racks[TopicT]) -> list[int]:
    """Return the takers in an order in which partitions get a near one if possible; otherwise they keep their turns."""
    left = list(takers)
    found: dict[int, int] = {}
    for partition in hand:
        near = next((place for place in left if racks.are_near(place, topic, partition)), None)
        if near is not None:
            found[partition] = near
            left.remove(near)
    rest = iter(left)
    return [found[partition] if partition in found else next(rest) for partition in hand]
