"""Effects that decisions about groups of both kinds have. Values only, so that decisions stay pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GroupNews:
    """Something changed for the members of a group: heartbeats that wait look again (`news`)."""

    group_id: str
