"""What happened in partitions, for observers: metrics and logs."""

from __future__ import annotations

from dataclasses import dataclass

from coordinator_protocol.marker import Marker, Outcome
from coordinator_protocol.quick import quick
from partition_log.catalog.state import Topic
from partition_log.state import Isolation


@dataclass(frozen=True, slots=True)
class TopicChanged:
    """A topic was created, or deleted with everything in it. Told by the runtime."""

    before: Topic | None
    """None for a new topic."""
    after: Topic | None
    """None for one that is gone."""


@quick
@dataclass(frozen=True, slots=True)
class PartitionGrew:
    """Batches of a client are durable in a partition, or a marker, or both. Told by the runtime."""

    ordinal: int
    record_count: int
    """Of the batches; 0 = there is only a marker."""
    size_bytes: int
    """The same."""
    outcome: Outcome | None = None
    """Of the marker; None = there is none."""
    marker_bytes: int = 0


@dataclass(frozen=True, slots=True)
class ProducersExpired:
    """A partition forgot producers that had not written for long. Told by the runtime."""

    ordinal: int
    count: int


@dataclass(frozen=True, slots=True)
class MarkerFromOutside:
    """A marker that no coordinator of this server sent is durable in a partition. Told by the runtime."""

    ordinal: int
    marker: Marker


@dataclass(frozen=True, slots=True)
class RecordsRead:
    """What one fetch showed and hid of one topic. Told by the reader."""

    topic: str
    isolation: Isolation
    served: int
    aborted_hidden: int
    control_hidden: int
