"""Rules for a marker in a partition.

Source: spec log-and-runtime 1.5, with the csn of design 6 in place of the `last_marker` rows; spec transactions 2.9.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.marker import Marker
from partition_log.state import (
    NO_COORDINATOR_SHARD,
    NO_OFFSET,
    CachedBatch,
    ForgottenProducers,
    LastMarker,
    ProducerEntry,
)


class MarkerVerdict(Enum):
    """Verdict on a marker that is not refused. Only APPEND writes; the others succeed without a write."""

    APPEND = "append"
    REPEATED = "repeated"
    """This very marker is in the log already."""
    STALE = "stale"
    """The marker belongs to an older transaction, which has ended here."""


# Module-level alias for the fast path: enum attribute lookup is slow on CPython 3.11.
_APPEND_MARKER: Final = MarkerVerdict.APPEND


def judge_marker(entry: ProducerEntry | None, marker: Marker, *, forgotten: ForgottenProducers) -> MarkerVerdict:
    """Decide on a marker. A marker for an unknown producer is appended, because it may be all that fences a late batch.
    It is stale if its csn is not newer than the newest forgotten one of its coordinator shard. Then the producer may
    have been forgotten with this very marker: it has nothing open, and the log must not hold the marker twice.

    Raises Refused: TRANSACTION_COORDINATOR_FENCED; INVALID_TXN_STATE where a marker contradicts the log, which no
    correct coordinator sends."""
    if entry is None:
        return MarkerVerdict.STALE if marker.csn <= forgotten.csn_of(marker.coordinator_shard) else _APPEND_MARKER
    if marker.coordinator_shard != entry.coordinator_shard != NO_COORDINATOR_SHARD:
        # Neither coordinator epochs nor csns of two shards can be compared.
        raise _contradiction(marker, f"the producer belongs to coordinator shard {entry.coordinator_shard}")
    if marker.coordinator_epoch < entry.coordinator_epoch:
        raise Refused(
            ErrorCode.TRANSACTION_COORDINATOR_FENCED,
            f"the marker comes from coordinator epoch {marker.coordinator_epoch}, and epoch {entry.coordinator_epoch} "
            "has taken over; stop sending",
        )
    if entry.last_marker is not None and marker.csn <= entry.last_marker.csn:
        return _judge_seen(entry.last_marker, marker)
    if marker.csn <= entry.forgotten_csn:
        # A csn is assigned when the outcome is decided, so after the last record of its transaction. This one was
        # assigned, written and forgotten before the producer's first known record. Where the epoch stays (client
        # version 1), nothing else shows that it belongs to an older transaction.
        return MarkerVerdict.STALE
    if entry.open_transaction is None:
        return _APPEND_MARKER if marker.txn_epoch >= entry.epoch else MarkerVerdict.STALE
    if marker.txn_epoch > entry.epoch:
        raise _contradiction(marker, f"the transaction of epoch {entry.epoch} is open here and its marker is missing")
    return _APPEND_MARKER if marker.txn_epoch == entry.epoch else MarkerVerdict.STALE


def _judge_seen(last: LastMarker, marker: Marker) -> MarkerVerdict:
    if marker.csn < last.csn:
        return MarkerVerdict.STALE
    if marker.txn_epoch != last.txn_epoch or marker.outcome is not last.outcome:
        raise _contradiction(marker, f"it ended epoch {last.txn_epoch} with {last.outcome.name} before")
    return MarkerVerdict.REPEATED


def _contradiction(marker: Marker, what: str) -> Refused:
    return Refused(
        ErrorCode.INVALID_TXN_STATE,
        f"marker {marker.csn} of coordinator shard {marker.coordinator_shard} ({marker.outcome.name}, producer "
        f"{marker.producer_id}, epoch {marker.txn_epoch}) contradicts the log: {what}. This is a defect of the "
        "coordinator",
    )


def entry_after_marker(entry: ProducerEntry | None, marker: Marker, *, now_ms: int) -> ProducerEntry:
    """Return the producer's entry once the marker is appended. A marker that raises the epoch restarts the sequences.
    With one that does not (client version 1) they continue."""
    epoch, first_offset = marker.next_epoch, NO_OFFSET
    batches: tuple[CachedBatch, ...] = ()
    if entry is not None:
        batches = entry.batches if epoch <= entry.epoch else ()
        epoch = max(entry.epoch, epoch)
        if entry.open_transaction is not None:
            first_offset = entry.open_transaction.first_offset
    return ProducerEntry(
        epoch=epoch,
        coordinator_epoch=marker.coordinator_epoch,
        last_append_ms=now_ms,
        batches=batches,
        last_marker=LastMarker(marker.txn_epoch, marker.outcome, marker.csn, first_offset),
        coordinator_shard=marker.coordinator_shard,
    )


def entry_left_by(marker: Marker, first_offset: int, now_ms: int) -> ProducerEntry:
    """Return the same as `entry_after_marker`, for a marker that raises the epoch and ends a transaction that begins at
    this offset. Nothing of the entry before remains. Called once per partition for each transaction that arrives as a
    whole."""
    last_marker = LastMarker(marker.txn_epoch, marker.outcome, marker.csn, first_offset)
    return ProducerEntry(
        marker.next_epoch,
        marker.coordinator_epoch,
        now_ms,
        (),
        None,
        last_marker,
        False,
        0,
        marker.coordinator_shard,
    )
