"""What happens only in consumer groups, for observers; what happens in both kinds is in `group_coordinator.events`."""

from __future__ import annotations

from msgspec import Struct


class TargetComputed(Struct, frozen=True):
    """There is a target for this epoch; members move towards it."""

    group_id: str
    assignment_epoch: int
    assignor_name: str
    changed_members: int
    away_us: int | None = None
    """How long it took another process, with the wait for it; None: it was computed here."""


class TargetFailed(Struct, frozen=True):
    """The assignor failed in the other process; the group keeps the target that it has."""

    group_id: str
    group_epoch: int
    assignor_name: str
    error: str


class GroupConverted(Struct, frozen=True):
    """A group with members changed its protocol."""

    group_id: str
    is_upgrade: bool
    """True: from classic to consumer. False: the other way."""
