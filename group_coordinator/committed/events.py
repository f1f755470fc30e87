"""What happened to offsets, as the metrics and the log are told it once it is durable."""

from __future__ import annotations

from msgspec import Struct

from coordinator_protocol.marker import Outcome


class OffsetsCommitted(Struct, frozen=True):
    """Offsets were committed; those of a transaction are pending."""

    group_id: str
    offset_count: int
    is_transactional: bool = False


class OffsetsSettled(Struct, frozen=True):
    """A transaction ended, and its pending offsets were committed or dropped."""

    group_id: str
    offset_count: int
    outcome: Outcome


class OffsetsExpired(Struct, frozen=True):
    """Offsets were forgotten because of their age."""

    group_id: str
    offset_count: int


class OffsetsDeleted(Struct, frozen=True):
    """Somebody deleted offsets of the group, or a topic that they belong to."""

    group_id: str
    offset_count: int
