"""Balance if every member subscribes to every topic: sizes differ by one at most, and as little as possible moves.

With P partitions and M members, each member gets P // M, and P % M members get one more. A member that holds more than
its due gives up the surplus; partitions without an owner are dealt to members that hold less. So no partition moves
without need, and a second run on the result changes nothing.

Source: spec groups 5.5 (K1 to K4); Kafka's "constrained" assignment and its uniform homogeneous builder.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Generic

from coordinator_protocol.assignors.dealing import deal
from coordinator_protocol.assignors.ownership import Holdings
from coordinator_protocol.assignors.racks import Racks
from coordinator_protocol.assignors.values import Share, TopicT


def balance_equal(holdings: Holdings[TopicT], racks: Racks[TopicT] | None) -> Sequence[Share[TopicT]]:
    """Return the balanced shares by place; an unchanged share is the same object as in `holdings`.

    Racks are only a preference: of the partitions that need an owner, members first get those near to them."""
    sizes = [sum(map(len, share.values())) for share in holdings.shares]
    total = sum(sizes) + sum(map(len, holdings.unowned.values()))
    due, larger = divmod(total, len(sizes))
    shares = list(holdings.shares)
    given_up: defaultdict[TopicT, list[int]] = defaultdict(list)
    for place, size in enumerate(sizes):
        if size > due:
            sizes[place] = due + (larger > 0)
            larger -= larger > 0
        if size > sizes[place]:
            shares[place] = _keep(shares[place], place, sizes[place], given_up, racks)
    spare = {**holdings.unowned}
    for topic, partitions in given_up.items():
        spare[topic] = sorted([*spare.get(topic, ()), *partitions])
    table = _ShareTable(shares, spare, racks)
    # First each member gets its due. The rest then goes, one each, to members that hold no more than that.
    table.hand_out({place: due - size for place, size in enumerate(sizes) if size < due})
    if table.has_left:
        table.hand_out({place: 1 for place, size in enumerate(sizes) if size <= due})
    return table.shares


def _keep(
    share: Share[TopicT], place: int, size: int, given_up: defaultdict[TopicT, list[int]], racks: Racks[TopicT] | None
) -> Share[TopicT]:
    """Return the partitions that a member with too many keeps: first those near to it, then the first in order."""
    held = sorted((topic, partition) for topic, partitions in share.items() for partition in partitions)
    if racks is not None:
        held.sort(key=lambda one: not racks.are_near(place, *one))
    kept: defaultdict[TopicT, list[int]] = defaultdict(list)
    for at, (topic, partition) in enumerate(held):
        (kept if at < size else given_up)[topic].append(partition)
    return {topic: tuple(sorted(partitions)) for topic, partitions in kept.items()}


class _ShareTable(Generic[TopicT]):
    """Shares during the distribution of spare partitions. A share is copied when its member first gets one."""

    def __init__(
        self, shares: list[Share[TopicT]], spare: Mapping[TopicT, Sequence[int]], racks: Racks[TopicT] | None
    ) -> None:
        self.shares = shares
        self._copied: dict[int, dict[TopicT, tuple[int, ...]]] = {}
        self._runs = deque((topic, spare[topic]) for topic in sorted(spare))
        self._racks = racks

    @property
    def has_left(self) -> bool:
        return bool(self._runs)

    def hand_out(self, capacities: dict[int, int]) -> None:
        """Give each member, by its place, up to so many partitions: in rounds of one each, among members that may take
        more."""
        if self._racks is not None:
            self._hand_out_near(capacities, self._racks)
        left = sum(len(partitions) for _, partitions in self._runs)
        dealt_rounds = 0
        # Rounds with the same receivers are dealt together.
        for rounds in sorted(set(capacities.values())):
            places = [place for place, capacity in capacities.items() if capacity >= rounds]
            count = min((rounds - dealt_rounds) * len(places), left)
            if count:
                deal([self._copy(place) for place in places[:count]], self._take(count))
            dealt_rounds = rounds
            left -= count

    def _hand_out_near(self, capacities: dict[int, int], racks: Racks[TopicT]) -> None:
        """Give each partition to a member in a rack with a replica, if one may take more.

        Of several racks, choose the one whose members may take most. Members of a rack take turns. Removes the
        partitions from the runs, and reduces `capacities`."""
        waiting: defaultdict[str | None, deque[int]] = defaultdict(deque)
        capacity_of: defaultdict[str | None, int] = defaultdict(int)
        for place, capacity in capacities.items():
            if capacity:
                waiting[racks.of_members[place]].append(place)
                capacity_of[racks.of_members[place]] += capacity
        runs: deque[tuple[TopicT, Sequence[int]]] = deque()
        for topic, partitions in self._runs:
            far = []
            for partition in partitions:
                near = [rack for rack in racks.of_partition(topic, partition) if capacity_of[rack]]
                if not near:
                    far.append(partition)
                    continue
                rack = max(near, key=lambda rack: (capacity_of[rack], rack))
                place = waiting[rack].popleft()
                deal([self._copy(place)], [(topic, [partition])])
                capacities[place] -= 1
                capacity_of[rack] -= 1
                if capacities[place]:
                    waiting[rack].append(place)
            if far:
                runs.append((topic, far))
        self._runs = runs

    def _copy(self, place: int) -> dict[TopicT, tuple[int, ...]]:
        copied = self._copied.get(place)
        if copied is None:
            copied = self._copied[place] = dict(self.shares[place])
            self.shares[place] = copied
        return copied

    def _take(self, count: int) -> Iterator[tuple[TopicT, Sequence[int]]]:
        """Take the first `count` partitions off the remaining ones."""
        while count:
            topic, partitions = self._runs.popleft()
            if len(partitions) > count:
                self._runs.appendleft((topic, partitions[count:]))
                partitions = partitions[:count]
            count -= len(partitions)
            yield topic, partitions
