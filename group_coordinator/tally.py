"""Numbers of things of which there are too many to count whenever somebody asks."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, NamedTuple, TypeVar

from coordinator_runtime.timeline import Journal, TimelineMap
from group_coordinator.state import GroupKind

K = TypeVar("K", bound=Hashable)


class Tally(Generic[K]):
    """How many there are of each, live and durable. Only `replay` changes it."""

    __slots__ = ("_numbers",)

    def __init__(self, journal: Journal) -> None:
        self._numbers: TimelineMap[K, int] = TimelineMap(journal)

    def add(self, key: K, change: int = 1) -> None:
        number = (self._numbers.get(key) or 0) + change
        if number:
            self._numbers.put(key, number)
        else:
            self._numbers.remove(key)

    def live(self, key: K) -> int:
        return self._numbers.get(key) or 0

    def durable(self) -> dict[K, int]:
        """Those of which there are any, as they are on disk."""
        return dict(self._numbers.durable_items())


class Standing(NamedTuple):
    """What a group is, for whoever counts groups."""

    kind: GroupKind
    state_name: str


class Standings:
    """How many groups stand where. Whoever changes a group says so, and it is looked up anew."""

    __slots__ = ("_known", "_look_up", "_tally")

    def __init__(self, journal: Journal, look_up: Callable[[str], Standing | None]) -> None:
        self._look_up = look_up
        self._known: TimelineMap[str, Standing] = TimelineMap(journal)
        self._tally: Tally[Standing] = Tally(journal)

    def look(self, group_id: str) -> None:
        """The group may stand elsewhere now, or be gone. In `replay` only."""
        before, now = self._known.get(group_id), self._look_up(group_id)
        if now == before:
            return
        if before is not None:
            self._tally.add(before, -1)
        if now is None:
            self._known.remove(group_id)
        else:
            self._known.put(group_id, now)
            self._tally.add(now)

    def durable(self) -> dict[Standing, int]:
        """As it is on disk, where there are any."""
        return self._tally.durable()
