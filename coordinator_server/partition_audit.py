"""One partition, read from its log alone: what its other rows should say.

The fold below repeats what the partition log does with a batch and a marker, in its own words and without its rules or
shards, so that a mistake in either shows as a difference.

Source: spec log-and-runtime 1.3, 1.5, 1.7 and 6.2 (white-box checks).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from coordinator_protocol.batch import NO_PRODUCER_ID, BatchHeader, verify_batch
from coordinator_protocol.errors import Refused
from coordinator_protocol.marker import Marker, Outcome
from coordinator_protocol.sequences import next_sequence
from coordinator_server.stored import StoredBatch
from partition_log.state import (
    BATCHES_CACHED_MAX,
    NO_COORDINATOR_EPOCH,
    NO_OFFSET,
    CachedBatch,
    EndedTransaction,
    LastMarker,
    OpenTransaction,
    PartitionHead,
    ProducerEntry,
)


@dataclass(frozen=True, slots=True)
class LoggedMarker:
    """A marker and where it lies."""

    offset: int
    marker: Marker


@dataclass(slots=True)
class PartitionAudit:
    """What a partition's log says, and what is wrong in it. Made by `audit_log`."""

    batch_count: int = 0
    transactional_batches: int = 0
    end_offset: int = 0
    producers: dict[int, ProducerEntry] = field(default_factory=dict)
    ended: set[EndedTransaction] = field(default_factory=set)
    markers: list[LoggedMarker] = field(default_factory=list)
    is_whole: bool = True
    """False: a row was no batch at all, and what lies behind it is unknown."""
    damaged: list[str] = field(default_factory=list)
    """Batches that are not what was written, or do not follow each other."""
    misplaced: list[str] = field(default_factory=list)
    """Transactional batches and markers that belong to no transaction that was open there."""

    @property
    def open_offsets(self) -> list[int]:
        """First offsets of the transactions without a marker."""
        entries = self.producers.values()
        return sorted(entry.open_transaction.first_offset for entry in entries if entry.open_transaction is not None)

    def head(self, log_start_offset: int, stored: PartitionHead) -> PartitionHead:
        """The positions that follow from the log. What it cannot say is taken from the stored ones."""
        opened = self.open_offsets
        aborts = [ended.marker_offset for ended in self.ended if ended.outcome is Outcome.ABORT]
        return PartitionHead(
            log_start_offset,
            self.end_offset,
            opened[0] if opened else self.end_offset,
            len(opened),
            max(aborts, default=NO_OFFSET),
            stored.index,
            len(aborts),
        )


def audit_log(batches: Iterable[StoredBatch]) -> PartitionAudit:
    """Read a whole log, from offset 0."""
    audit = PartitionAudit()
    try:
        for batch in batches:
            _take(audit, batch)
    except Refused as damage:
        audit.is_whole = False
        audit.damaged.append(f"after offset {audit.end_offset}: {damage.message}; what follows was not checked")
    return audit


def _take(audit: PartitionAudit, batch: StoredBatch) -> None:
    header = batch.header
    if header.base_offset != audit.end_offset:
        audit.damaged.append(f"the batch at offset {header.base_offset} does not follow, {audit.end_offset} is next")
    if batch.key_offset != header.last_offset:
        audit.damaged.append(f"the batch that ends at {header.last_offset} lies under the key {batch.key_offset}")
    audit.end_offset = header.last_offset + 1
    audit.batch_count += 1
    try:
        verify_batch(batch.encoded)
    except Refused as damage:
        # Its header can be read, so the fold goes on: one flipped bit should not look like a hundred wrong rows.
        audit.damaged.append(f"at offset {header.base_offset}: {damage.message}")
    marker = batch.marker
    if marker is not None:
        _take_marker(audit, header.base_offset, marker)
    elif header.producer_id != NO_PRODUCER_ID:
        _take_data(audit, header)


def _take_data(audit: PartitionAudit, batch: BatchHeader) -> None:
    audit.transactional_batches += batch.is_transactional
    entry = audit.producers.get(batch.producer_id)
    where = f"the batch at offset {batch.base_offset} (producer {batch.producer_id}, epoch {batch.producer_epoch})"
    opened = None if entry is None else entry.open_transaction
    if entry is not None:
        if batch.producer_epoch < entry.epoch:
            audit.misplaced.append(f"{where} lies behind epoch {entry.epoch}, which had fenced it")
        if opened is not None and not batch.is_transactional:
            audit.misplaced.append(f"{where} is outside transactions while one of its producer is open")
        if opened is not None and batch.producer_epoch > entry.epoch:
            audit.misplaced.append(f"{where} lies inside the transaction of epoch {entry.epoch}")
    cached = CachedBatch(batch.base_sequence, batch.last_sequence, batch.base_offset)
    is_same_epoch = entry is not None and entry.epoch == batch.producer_epoch
    earlier = entry.batches if entry is not None and is_same_epoch else ()
    expected = next_sequence(earlier[-1].last_sequence) if earlier else 0
    if batch.base_sequence != expected:
        audit.misplaced.append(f"{where} has sequence {batch.base_sequence}, {expected} is next")
    if batch.is_transactional and opened is None:
        opened = OpenTransaction(batch.base_offset, 0)
    audit.producers[batch.producer_id] = ProducerEntry(
        epoch=batch.producer_epoch,
        coordinator_epoch=NO_COORDINATOR_EPOCH if entry is None else entry.coordinator_epoch,
        batches=(*earlier, cached)[-BATCHES_CACHED_MAX:],
        open_transaction=opened,
        last_marker=None if entry is None else entry.last_marker,
    )


def _take_marker(audit: PartitionAudit, offset: int, marker: Marker) -> None:
    audit.markers.append(LoggedMarker(offset, marker))
    entry = audit.producers.get(marker.producer_id)
    where = f"the marker at offset {offset} (producer {marker.producer_id}, epoch {marker.txn_epoch}, csn {marker.csn})"
    if entry is not None:
        if entry.last_marker is not None and marker.csn <= entry.last_marker.csn:
            audit.misplaced.append(f"{where} follows csn {entry.last_marker.csn} of the same producer")
        if entry.open_transaction is not None:
            if marker.txn_epoch != entry.epoch:
                audit.misplaced.append(f"{where} ends a transaction that is open with epoch {entry.epoch}")
            first_offset = entry.open_transaction.first_offset
            audit.ended.add(
                EndedTransaction(marker.producer_id, marker.txn_epoch, first_offset, offset, marker.outcome, marker.csn)
            )
    epoch = marker.next_epoch if entry is None else max(entry.epoch, marker.next_epoch)
    is_new_epoch = entry is None or marker.next_epoch > entry.epoch
    audit.producers[marker.producer_id] = ProducerEntry(
        epoch=epoch,
        coordinator_epoch=marker.coordinator_epoch,
        batches=() if entry is None or is_new_epoch else entry.batches,
        last_marker=LastMarker(marker.txn_epoch, marker.outcome, marker.csn),
    )


def producer_differences(found: dict[int, ProducerEntry], stored: dict[int, ProducerEntry]) -> Iterator[str]:
    """Where stored producers are not what the log says. Wall times and seals are not in the log and not
    compared."""
    for producer_id in sorted(found.keys() | stored.keys()):
        expected, kept = found.get(producer_id), stored.get(producer_id)
        if expected is None:
            yield f"producer {producer_id} is stored and never wrote here"
        elif kept is None:
            yield f"producer {producer_id} wrote here and is not stored"
        elif _timeless(expected) != _timeless(kept):
            yield f"producer {producer_id} is stored as {_timeless(kept)}, the log says {_timeless(expected)}"


def _timeless(entry: ProducerEntry) -> ProducerEntry:
    opened = entry.open_transaction
    if opened is not None:
        opened = OpenTransaction(opened.first_offset, 0)
    return replace(entry, last_append_ms=0, open_transaction=opened, is_sealed=False)
