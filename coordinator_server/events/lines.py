"""Parts that the lines of all events share."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from coordinator_runtime.decision import Turn
from coordinator_runtime.ports import TopicCatalog

Remember = Callable[[str, Mapping[str, object]], None]
"""Remembers an event by its kind and the fields of its line (`RecentEvents.add`)."""
PartitionFields = Callable[[int], Mapping[str, object]]
"""Returns the fields of a line that name a partition, by its ordinal."""


def forget(_kind: str, _fields: Mapping[str, object]) -> None:
    """Remember nothing."""


def partition_fields(catalog: TopicCatalog, ordinal: int) -> Mapping[str, object]:
    """Return topic and partition as log fields; None for a partition that is gone."""
    ref = catalog.by_ordinal(ordinal)
    return {"topic": None, "partition": None} if ref is None else {"topic": ref.topic, "partition": ref.partition}


def caller_fields(turn: Turn) -> dict[str, object]:
    """Return the client of the call as log fields; empty strings for an act of the server itself."""
    return {"client_id": turn.client_id, "host": turn.host}
