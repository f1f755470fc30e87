"""Records of classic groups, as frozen values. `codec` knows the bytes of those that are stored.

Every record holds the whole group, so the newest stored one is enough (spec groups 2.1).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from group_coordinator.classic.state import ClassicGroup


class ClassicGroupStored(Struct, frozen=True):
    """A generation was completed, or what belongs to it changed. Of the group, what a restart must know is stored."""

    group: ClassicGroup


class ClassicGroupRemembered(Struct, frozen=True):
    """A rebalance went on: in memory only, what is stored still stands."""

    group: ClassicGroup


class ClassicGroupForgotten(Struct, frozen=True):
    """A tombstone: the group was deleted, or changed its kind."""

    group_id: str
