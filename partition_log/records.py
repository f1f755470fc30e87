"""Changes of a partition as frozen values, and events in partitions for observers: metrics and logs.

A record carries the resulting state, not only the change. It is therefore stored and replayed without a look-up, and
the rows that a load finds become records of the same kind.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from msgspec import Struct

from coordinator_protocol.marker import Marker, Outcome
from coordinator_runtime.store import Family
from partition_log.catalog.state import Topic
from partition_log.compaction_steps import CompactionStep
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
    """Base class of changes and events of one partition."""

    ordinal: int


class PartitionCreated(OfPartition, frozen=True, gc=False):
    """A partition was created, and is empty."""

    head: PartitionHead = EMPTY_HEAD


class LeaderEpochRaised(OfPartition, frozen=True, gc=False):
    """A partition continues from its log end in another leader epoch."""

    head: PartitionHead


class LogStartMoved(OfPartition, frozen=True, gc=False):
    """The log start of a partition moved. Records before it are no longer served, and may be removed once this is
    durable."""

    head: PartitionHead


class StretchFinished(OfPartition, frozen=True, gc=False):
    """The end of a log became a finished index entry before it reached the usual size."""

    head: PartitionHead
    stretch: IndexEntry


class LogCompacted(OfPartition, frozen=True, gc=False):
    """A pass of compaction began, changed rows of the log, or ended."""

    head: PartitionHead
    step: CompactionStep


class PartitionDeleted(OfPartition, frozen=True, gc=False):
    """A partition was deleted with everything in it."""


class RowsAppended(OfPartition, frozen=True, gc=False):
    """Rows were appended to a log. They are one of these:

    - batches of a client, all of one producer or of none
    - a marker
    - batches with the marker right behind them
    - batches of several producers, one of each, with or without markers; these markers commit"""

    rows: Sequence[tuple[int, bytes]]
    """Last offset and stored form of each row. A marker is a row by itself, or the tail of one."""
    size_bytes: int
    """Size of all rows (bytes)."""
    head: PartitionHead
    producers: Sequence[tuple[int, ProducerEntry]] = ()
    """Producer ids and their new entries; empty for batches of no producer."""
    aborted: AbortedTransaction | None = None
    """The transaction that the marker aborted, if it had records here."""
    stretches: Sequence[IndexEntry] = ()
    """Index entries that are finished now."""


class ProducerSealed(OfPartition, frozen=True, gc=False):
    """A producer's open transaction was sealed: it takes no more records."""

    producer_id: int
    producer: ProducerEntry


class ProducersForgotten(OfPartition, frozen=True, gc=False):
    """Producers without an open transaction were forgotten: they have not written for long, or will never write
    again."""

    producer_ids: tuple[int, ...]
    head: PartitionHead
    raised_csns: Sequence[tuple[int, int]] = ()
    """The csns that are newer now in `head.forgotten.csns`."""
    remembered: Sequence[RememberedEnd] = ()
    """Ends that stay known, of producers whose last transaction had records here."""


class PartitionRestored(OfPartition, frozen=True, gc=False):
    """A partition as its stored row describes it."""

    head: PartitionHead


class ProducerRestored(OfPartition, frozen=True, gc=False):
    """A producer as its stored row describes it. Producers with open transactions come last, in order of their first
    offsets."""

    producer_id: int
    producer: ProducerEntry


LogRecord = (
    PartitionCreated
    | LeaderEpochRaised
    | LogStartMoved
    | StretchFinished
    | LogCompacted
    | PartitionDeleted
    | RowsAppended
    | ProducerSealed
    | ProducersForgotten
    | PartitionRestored
    | ProducerRestored
)


class RemovalCause(StrEnum):
    """Cause of the removal of records. Observers see the value."""

    REQUEST = "request"
    RETENTION = "retention"


class TopicChanged(Struct, frozen=True, gc=False):
    """A topic was created, changed, or deleted with everything in it. Emitted by the runtime."""

    before: Topic | None
    """Topic before the change; None for a new topic."""
    after: Topic | None
    """Topic after the change; None for a deleted topic."""


class PartitionGrew(OfPartition, frozen=True, gc=False):
    """Batches of a client, a marker, or both became durable in a partition. Emitted by the runtime."""

    record_count: int
    """Number of records in the batches; 0 if there is only a marker."""
    size_bytes: int
    """Size of the batches in their stored form (bytes); 0 if there is only a marker."""
    outcome: Outcome | None = None
    """Outcome in the marker; None if there is no marker."""
    marker_bytes: int = 0
    marker_count: int = 0
    """Number of markers with this outcome: one for each transaction that the fast path ended in the partition at
    once."""


class RecordsDeleted(OfPartition, frozen=True, gc=False):
    """The log start of a partition moved ahead, durably. Emitted by the runtime."""

    offsets: int
    """Number of offsets between the old log start and the new one."""
    cause: RemovalCause


class RowsRemoved(OfPartition, frozen=True, gc=False):
    """Rows before the log start of a partition are being removed from the store."""

    size_bytes: int
    """Size of these rows (bytes), accurate to one index entry."""


class RowsCompacted(OfPartition, frozen=True, gc=False):
    """A pass of compaction replaced or deleted rows of a log, durably. Emitted by the runtime."""

    size_bytes: int
    """Bytes that the log has less than before."""
    record_count: int


class CompactionEnded(OfPartition, frozen=True, gc=False):
    """A pass of compaction reached its end, durably. Emitted by the runtime."""

    end_offset: int


class ProducersExpired(OfPartition, frozen=True, gc=False):
    """A partition forgot producers that had not written for long. Emitted by the runtime."""

    count: int


class MarkerFromOutside(OfPartition, frozen=True, gc=False):
    """A marker that no coordinator of this server sent became durable in a partition. Emitted by the runtime."""

    marker: Marker


class RecordsRead(Struct, frozen=True, gc=False):
    """Numbers of records that one fetch showed and hid in one topic. Emitted by the reader."""

    topic: str
    isolation: Isolation
    served: int
    aborted_hidden: int
    control_hidden: int


class DamageFound(Struct, frozen=True, gc=False):
    """Stored bytes of a partition differ from the bytes that were written. Emitted once for each place, by the
    reader."""

    topic: str
    partition: int
    family: Family
    """Damaged family: LOG for records, another one for an index of them."""
    offset: int | None
    next_offset: int | None
    """End of the damage, exclusive. The records from `offset` on are lost, or their outcome is unknown. Both offsets
    are None where an index is damaged."""
    reason: str
