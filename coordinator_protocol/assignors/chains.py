"""The last step to balance unequal subscriptions: a member gives to another, which gives to a third, and so on.

If no single move helps, a chain of them may. Say members have 6, 5 and 4 partitions, and the first shares topics only
with the second. If the second shares topics with the third, a chain gives each of them 5. If no chain helps either, no
assignment is more even.

Source: ours, beyond H1 of spec groups 5.6, which asks for single moves only. It makes the sizes unique, so that the
cooperative rounds of 5.7 end at the intended sizes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from heapq import heapify, heappop, heappush
from typing import Final, Generic, TypeAlias

from coordinator_protocol.assignors.audiences import Audience
from coordinator_protocol.assignors.values import TopicT

CHAINS_MAX: Final = 1_000
"""Limit of the cost of a pathological group. The result is still valid, and the next run continues from it."""

_Chain: TypeAlias = list[tuple[int, TopicT, int]]
"""Consecutive moves: (giver, topic, partition) each; members by their places."""


class Chains(Generic[TopicT]):
    """Finds chains from members with many partitions to members with few.

    `topics_of`: the topics in which each member has partitions that may move. `loads`: the current numbers of
    partitions; the caller changes them as it moves partitions."""

    def __init__(
        self, audiences: Mapping[TopicT, Audience], topics_of: Mapping[int, list[TopicT]], loads: list[int]
    ) -> None:
        self._audiences = audiences
        self._topics_of = topics_of
        self._loads = loads
        self._most_first = [(-load, place) for place, load in enumerate(loads)]
        heapify(self._most_first)
        # No member in here can pass partitions on, by any chain, to a member with two partitions less than itself. The
        # most loaded members come first. So a later member that reaches one in here finds no receiver through it
        # either.
        self._even: set[int] = set()

    def next(self) -> _Chain[TopicT] | None:
        """Return a chain whose end has two partitions less than its start, or None if there is none left."""
        while self._most_first:
            load, start = self._most_first[0]
            if -load != self._loads[start] or start in self._even:
                heappop(self._most_first)
                continue
            found = self._search(start)
            if found:
                return found
        return None

    def moved(self, chain: _Chain[TopicT]) -> None:
        """Note that the caller moved partitions along a chain, so that the loads of its ends changed."""
        for place in (chain[0][0], chain[-1][2]):
            heappush(self._most_first, (-self._loads[place], place))

    def _search(self, start: int) -> _Chain[TopicT] | None:
        """Return the shortest chain from a member; if there is none, note all members that it reaches as even."""
        came_by: dict[int, tuple[int, TopicT] | None] = {start: None}
        heard: set[Audience] = set()
        waiting = deque([start])
        while waiting:
            giver = waiting.popleft()
            for topic in self._topics_of[giver]:
                audience = self._audiences[topic]
                if audience in heard:
                    continue
                heard.add(audience)
                for taker in audience.places:
                    if taker in came_by or taker in self._even:
                        continue
                    came_by[taker] = giver, topic
                    if self._loads[start] - self._loads[taker] >= 2:
                        return _chain_to(taker, came_by)
                    waiting.append(taker)
        self._even.update(came_by)
        return None


def _chain_to(end: int, came_by: Mapping[int, tuple[int, TopicT] | None]) -> _Chain[TopicT]:
    chain: _Chain[TopicT] = []
    taker = end
    while step := came_by[taker]:
        giver, topic = step
        chain.append((giver, topic, taker))
        taker = giver
    return chain[::-1]
