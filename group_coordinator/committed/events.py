"""What happened to offsets, for whoever counts it or writes it down."""

from __future__ import annotations

from dataclasses import dataclass

from coordinator_protocol.marker import Outcome


@dataclass(frozen=True, slots=True)
class OffsetsCommitted:
    """Offsets were committed; those of a transaction are pending."""

    group_id: str
    offset_count: int
    is_transactional: bool = False


@dataclass(frozen=True, slots=True)
class OffsetsSettled:
    """A transaction ended, and with it the wait of its offsets."""

    group_id: str
    offset_count: int
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class OffsetsExpired:
    """Offsets were forgotten because of their age."""

    group_id: str
    offset_count: int


@dataclass(frozen=True, slots=True)
class OffsetsDeleted:
    """Somebody deleted offsets of the group, or a topic that they belong to."""

    group_id: str
    offset_count: int
