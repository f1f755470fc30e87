"""What happens only in consumer groups, for observers; what happens in both kinds is in `group_coordinator.events`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TargetComputed:
    """There is a target for this epoch; members move towards it."""

    group_id: str
    assignment_epoch: int
    assignor_name: str
    changed_members: int
    away_us: int | None = None
    """How long it took another process, with the wait for it; None: it was computed here."""


@dataclass(frozen=True, slots=True)
class TargetFailed:
    """The assignor failed in the other process; the group keeps the target that it has."""

    group_id: str
    group_epoch: int
    assignor_name: str
    error: str


@dataclass(frozen=True, slots=True)
class GroupConverted:
    """A group with members changed its protocol."""

    group_id: str
    is_upgrade: bool
    """From classic to consumer; False: the other way."""
