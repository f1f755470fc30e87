"""Parts that the lines of all events share."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from coordinator_runtime.decision import Turn

Remember = Callable[[str, Mapping[str, object]], None]
"""Remembers an event by its kind and the fields of its line (`RecentEvents.add`)."""


def forget(_kind: str, _fields: Mapping[str, object]) -> None:
    """Remember nothing."""


def caller_fields(turn: Turn) -> dict[str, object]:
    """Return the client of the call as log fields; empty strings for an act of the server itself."""
    return {"client_id": turn.client_id, "host": turn.host}
