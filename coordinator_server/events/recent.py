"""The most recent events, kept in memory: fences, timeouts, acts, refusals."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Collection, Mapping
from itertools import islice
from typing import Any, Final

from coordinator_core.observation import EVENTS_MAX
from coordinator_core.observed import NotedEvent
from coordinator_runtime.clock import Clock

FACT_LENGTH_MAX: Final = 300
"""Largest number of characters of a fact that is kept."""
_CALLER: Final = ("principal", "client_id", "host")


class RecentEvents:
    """Keeps the last events. On the loop only."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._events: deque[NotedEvent] = deque(maxlen=EVENTS_MAX)

    def add(self, kind: str, fields: Mapping[str, object]) -> None:
        """Remember an event with the fields of its line in the log."""
        caller = {name: str(fields.get(name) or "")[:FACT_LENGTH_MAX] for name in _CALLER}
        facts = {name: _text(value) for name, value in fields.items() if name not in _CALLER and value is not None}
        self._events.append(NotedEvent(self._clock.wall_ms(), kind, **caller, facts=facts))

    def beside(self, write: Callable[..., None]) -> Callable[..., None]:
        """Return a function that writes a line to the log with `write`, and remembers it."""

        def remember(kind: str, **fields: Any) -> None:  # noqa: ANN401  the fields of a line
            write(kind, **fields)
            self.add(kind, fields)

        return remember

    def newest(self, limit: int, kinds: Collection[str]) -> list[NotedEvent]:
        """Return the newest events of these kinds, or of all kinds, the newest first."""
        wanted = (event for event in reversed(self._events) if not kinds or event.kind in kinds)
        return list(islice(wanted, limit))


def _text(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return text if len(text) <= FACT_LENGTH_MAX else text[: FACT_LENGTH_MAX - 1] + "…"
