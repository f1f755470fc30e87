"""Order in real time: one operation is before another if it was complete before the other began."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator

from msgspec import Struct


class Seen(Struct, frozen=True):
    """A number in an answer, and the line and the times of the operation."""

    line: int
    invoked: float
    completed: float
    number: int


def with_highest_before(answers: Iterable[Seen]) -> Iterator[tuple[Seen, Seen | None]]:
    """Yield each answer with the highest one that was complete before its operation began."""
    pending: list[tuple[float, int, Seen]] = []
    highest: Seen | None = None
    for place, each in enumerate(sorted(answers, key=lambda seen: (seen.invoked, seen.line))):
        while pending and pending[0][0] < each.invoked:
            earlier = heapq.heappop(pending)[2]
            if highest is None or earlier.number > highest.number:
                highest = earlier
        yield each, highest
        heapq.heappush(pending, (each.completed, place, each))
