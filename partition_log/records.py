"""Changes of a partition, as frozen values; and what happened in partitions, for observers: metrics and logs.

A record carries the state that results from it, not only what happened: so it is stored and replayed without looking
anything up, and the rows that a load finds are records of the same kind.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from msgspec import Struct

from coordinator_protocol.marker import Marker, Outcome
from coordinator_runtime.store import Family
from partition_log.catalog.state import Topic
from partition_log.state import (
    EMPTY_HEAD,
    AbortedTransaction,
    IndexEntry,
    Isolation,
    PartitionHead,
    ProducerEntry,
    RememberedEnd,
)


class OfPartition(Struct, frozen=True, gc=False):
    """A change of one partition, or what happened in it."""

    ordinal: int


class PartitionCreated(OfPartition, frozen=True, gc=False):
    """A partition exists, and is empty."""

    head: PartitionHead = EMPTY_HEAD


class LeaderEpochRaised(OfPartition, frozen=True, gc=False):
    """A partition goes on from its log end in another leader epoch."""

    head: PartitionHead


class LogStartMoved(OfPartition, frozen=True, gc=False):
    """What lies before the log start of a partition is not served any more, and may be removed once this is durable."""

    head: PartitionHead


class StretchFinished(OfPartition, frozen=True, gc=False):
    """The end of a log is a finished stretch before it is as long as others."""

    head: PartitionHead
    stretch: IndexEntry


class PartitionDeleted(OfPartition, frozen=True, gc=False):
    """A partition is gone with everything in it."""


class RowsAppended(OfPartition, frozen=True, gc=False):
    """A log has grown: by batches of a client, all of one producer or of none; by a marker; by batches with the marker
    right behind them; or by batches of several producers, one of each, with or without markers, which commit."""

    rows: Sequence[tuple[int, bytes]]
    """Last offset and stored form of each row. A marker is a row by itself, or the end of one."""
    size_bytes: int
    """Bytes of all rows."""
    head: PartitionHead
    producers: Sequence[tuple[int, ProducerEntry]] = ()
    """Producer ids, and what is known of each; empty for batches of no producer."""
    aborted: AbortedTransaction | None = None
    """What the marker aborted here, if it did and there was anything."""
    stretches: Sequence[IndexEntry] = ()
    """Stretches of the log that are finished now."""


class ProducerSealed(OfPartition, frozen=True, gc=False):
    """A producer's open transaction takes no more records."""

    producer_id: int
    producer: ProducerEntry


class ProducersForgotten(OfPartition, frozen=True, gc=False):
    """Producers that did not write for long, and had nothing open, are unknown from now on."""

    producer_ids: tuple[int, ...]
    head: PartitionHead
    raised_csns: Sequence[tuple[int, int]] = ()
    """What is newer now in `head.forgotten.csns`."""
    remembered: Sequence[RememberedEnd] = ()
    """What stays of those whose last transaction had records here."""


class PartitionRestored(OfPartition, frozen=True, gc=False):
    """A partition as its stored row has it."""

    head: PartitionHead


class ProducerRestored(OfPartition, frozen=True, gc=False):
    """A producer as its stored row has it. Those with open transactions come in order of their first offsets."""

    producer_id: int
    producer: ProducerEntry


LogRecord = (
    PartitionCreated
    | LeaderEpochRaised
    | LogStartMoved
    | StretchFinished
    | PartitionDeleted
    | RowsAppended
    | ProducerSealed
    | ProducersForgotten
    | PartitionRestored
    | ProducerRestored
)


class RemovalCause(StrEnum):
    """Why records go; the value names it to observers."""

    REQUEST = "request"
    RETENTION = "retention"


class TopicChanged(Struct, frozen=True, gc=False):
    """A topic was created, changed, or deleted with everything in it. Told by the runtime."""

    before: Topic | None
    """None for a new topic."""
    after: Topic | None
    """None for one that is gone."""


class PartitionGrew(OfPartition, frozen=True, gc=False):
    """Batches of a client are durable in a partition, or a marker, or both. Told by the runtime."""

    record_count: int
    """Records in the batches; 0 = there is only a marker."""
    size_bytes: int
    """Bytes of the batches in their stored form; 0 = there is only a marker."""
    outcome: Outcome | None = None
    """What the marker says; None = there is no marker."""
    marker_bytes: int = 0
    marker_count: int = 0
    """How many markers say that: as many as the fast path ended transactions in the partition at once."""


class RecordsDeleted(OfPartition, frozen=True, gc=False):
    """The log start of a partition went ahead, durably. Told by the runtime."""

    offsets: int
    """How many offsets lie before it now that did not before."""
    cause: RemovalCause


class RowsRemoved(OfPartition, frozen=True, gc=False):
    """What lay before the log start of a partition is being removed from the store."""

    size_bytes: int
    """How much, to within a stretch of the log."""


class ProducersExpired(OfPartition, frozen=True, gc=False):
    """A partition forgot producers that had not written for long. Told by the runtime."""

    count: int


class MarkerFromOutside(OfPartition, frozen=True, gc=False):
    """A marker that no coordinator of this server sent is durable in a partition. Told by the runtime."""

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
