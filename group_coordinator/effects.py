"""Effects that decisions about groups of both kinds have. Values only, so that decisions stay pure."""

from __future__ import annotations

from msgspec import Struct


class GroupNews(Struct, frozen=True):
    """Something changed for the members of a group: heartbeats that wait look again (`news`)."""

    group_id: str
