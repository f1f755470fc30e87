"""Changes of settings of groups, as frozen values."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct


class GroupConfigChanged(Struct, frozen=True):
    """These settings of one group differ from the server's; none: it follows the server again. The group need not
    exist."""

    group_id: str
    overrides: Mapping[str, int]
    """Values by name; never changed, only replaced."""
