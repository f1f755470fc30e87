"""What happened in partitions, for observers: metrics and logs."""

from __future__ import annotations

from msgspec import Struct

from coordinator_protocol.marker import Marker, Outcome
from coordinator_runtime.store import Family
from partition_log.catalog.state import Topic
from partition_log.state import Isolation


class TopicChanged(Struct, frozen=True, gc=False):
    """A topic was created, or deleted with everything in it. Told by the runtime."""

    before: Topic | None
    """None for a new topic."""
    after: Topic | None
    """None for one that is gone."""


class PartitionGrew(Struct, frozen=True, gc=False):
    """Batches of a client are durable in a partition, or a marker, or both. Told by the runtime."""

    ordinal: int
    record_count: int
    """Records in the batches; 0 = there is only a marker."""
    size_bytes: int
    """Bytes of the batches in their stored form; 0 = there is only a marker."""
    outcome: Outcome | None = None
    """What the marker says; None = there is no marker."""
    marker_bytes: int = 0


class ProducersExpired(Struct, frozen=True, gc=False):
    """A partition forgot producers that had not written for long. Told by the runtime."""

    ordinal: int
    count: int


class MarkerFromOutside(Struct, frozen=True, gc=False):
    """A marker that no coordinator of this server sent is durable in a partition. Told by the runtime."""

    ordinal: int
    marker: Marker


class RecordsRead(Struct, frozen=True, gc=False):
    """What one fetch showed and hid of one topic. Told by the reader."""

    topic: str
    isolation: Isolation
    served: int
    aborted_hidden: int
    control_hidden: int


class DamageFound(Struct, frozen=True, gc=False):
    """Stored bytes of a partition are not what was written. Told once for each place, by the reader."""

    topic: str
    partition: int
    family: Family
    """What is damaged: LOG = records, another one = an index of them."""
    offset: int | None
    next_offset: int | None
    """The records in between are lost, or whether they were aborted is unknown. None where an index is damaged."""
    reason: str
