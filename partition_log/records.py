"""Changes of a partition, as frozen values.

A record carries the state that results from it, not only what happened: so it is stored and replayed without looking
anything up, and the rows that a load finds are records of the same kind.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from coordinator_protocol.batch import NO_PRODUCER_ID
from partition_log.state import EndedTransaction, PartitionHead, ProducerEntry, TimeIndexEntry


class PartitionCreated(Struct, frozen=True, gc=False):
    """A partition exists, and is empty."""

    ordinal: int


class PartitionDeleted(Struct, frozen=True, gc=False):
    """A partition is gone with everything in it."""

    ordinal: int


class BatchAppended(Struct, frozen=True, gc=False):
    """A client's batch is in the log."""

    ordinal: int
    last_offset: int
    batch: bytes
    """Stored form, with its offset."""
    head: PartitionHead
    producer_id: int = NO_PRODUCER_ID
    producer: ProducerEntry | None = None
    """None for a batch of no producer."""
    indexed: TimeIndexEntry | None = None


class TransactionEnded(Struct, frozen=True, gc=False):
    """A marker is in the log, right behind the batches that came with it if there are any, and its producer has no open
    transaction here any more."""

    ordinal: int
    batches: Sequence[tuple[int, bytes]]
    """Last offset and stored form of each, the marker being the last one."""
    size_bytes: int
    """Of all stored forms."""
    head: PartitionHead
    producer_id: int
    producer: ProducerEntry
    ended: EndedTransaction | None
    """None where the transaction had no records here."""
    indexed: Sequence[tuple[TimeIndexEntry, int]] = ()
    """With the number of markers in the log up to the end of each stretch."""


class ProducerSealed(Struct, frozen=True, gc=False):
    """A producer's open transaction takes no more records."""

    ordinal: int
    producer_id: int
    producer: ProducerEntry


class ProducersForgotten(Struct, frozen=True, gc=False):
    """Producers that did not write for long, and had nothing open, are unknown from now on."""

    ordinal: int
    producer_ids: tuple[int, ...]
    head: PartitionHead


class PartitionRestored(Struct, frozen=True, gc=False):
    """A partition as its stored row has it."""

    ordinal: int
    head: PartitionHead


class ProducerRestored(Struct, frozen=True, gc=False):
    """A producer as its stored row has it. Those with open transactions come in order of their first offsets."""

    ordinal: int
    producer_id: int
    producer: ProducerEntry


LogRecord = (
    PartitionCreated
    | PartitionDeleted
    | BatchAppended
    | TransactionEnded
    | ProducerSealed
    | ProducersForgotten
    | PartitionRestored
    | ProducerRestored
)
