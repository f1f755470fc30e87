"""Stored records of the transaction coordinator, as frozen values. `codec` knows their bytes."""

from __future__ import annotations

from dataclasses import dataclass

from coordinator_protocol.quick import quick
from txn_coordinator.state import Transaction


@quick
@dataclass(frozen=True, slots=True)
class TransactionChanged:
    """The newest snapshot of a transactional id (TRANSACTIONS shards)."""

    transaction: Transaction


@dataclass(frozen=True, slots=True)
class TransactionForgotten:
    """A tombstone: the id expired (TRANSACTIONS shards)."""

    transactional_id: str


@dataclass(frozen=True, slots=True)
class ProducerIdBlockTaken:
    """Every producer id below `next_unassigned` may have been given away (COUNTERS shard)."""

    next_unassigned_producer_id: int


@dataclass(frozen=True, slots=True)
class ProducerIdGiven:
    """One producer id of the current block was given away. Not stored: after a restart the rest of the block is skipped
    (spec transactions 6)."""

    producer_id: int


@quick
@dataclass(frozen=True, slots=True)
class CsnGiven:
    """One commit sequence number was given to an outcome (COUNTERS shard)."""

    csn: int


@dataclass(frozen=True, slots=True)
class UnownedMarkerWritten:
    """A marker was written for a producer id that no transactional id here owns: by an administrator who ended what
    hung, or for a coordinator elsewhere (COUNTERS shard). History only: it tells why a marker is there that nobody here
    decided."""

    csn: int
    ordinal: int
    producer_id: int
