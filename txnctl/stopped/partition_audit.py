"""Audit of one partition: recomputes from its log alone the rows that should accompany it.

The fold below repeats the effect of a batch and a marker on a partition. It is written anew, without the rules or
shards of the partition log, so that a mistake in either shows as a difference.

The log does not show that a producer was forgotten. The head of the partition has the log end at which that last
happened, and the newest csn of the forgotten producers by coordinator shard. Only producers up to these may have been
forgotten. Such a producer may be missing, and may start anew.

Source: spec log-and-runtime 1.3, 1.5, 1.7 and 6.2 (white-box checks).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from msgspec.structs import replace

from coordinator_protocol.batch import NO_PRODUCER_ID, BatchHeader, verify_batch
from coordinator_protocol.errors import Refused
from coordinator_protocol.limits import EPOCH_MAX
from coordinator_protocol.marker import Marker, Outcome, decode_marker_payload
from coordinator_protocol.producers import next_sequence
from coordinator_runtime.ports import EndIdentity
from partition_log import index_rows
from partition_log.batch_checks import unread, why_unreadable
from partition_log.batches import OFFSET_END, LogDamaged
from partition_log.state import (
    BATCHES_CACHED_MAX,
    NO_COORDINATOR_EPOCH,
    NO_COORDINATOR_SHARD,
    NO_OFFSET,
    AbortedTransaction,
    CachedBatch,
    ForgottenProducers,
    IndexEntry,
    LastMarker,
    LeaderEpoch,
    OpenTransaction,
    PartitionHead,
    ProducerEntry,
    RememberedEnd,
)
from txnctl.stopped.column_audit import Columns
from txnctl.stopped.stored import StoredBatch


@dataclass(frozen=True, slots=True)
class LoggedMarker:
    """A marker and its offset."""

    offset: int
    marker: Marker

    @property
    def identity(self) -> EndIdentity:
        """Identity of the ended transaction, the same in every partition."""
        return EndIdentity(self.marker.coordinator_shard, self.marker.csn, self.marker.producer_id)


@dataclass(frozen=True, slots=True)
class LoggedEnd:
    """A transaction that had records in the partition, and the marker that ended it."""

    first_offset: int
    last: LoggedMarker


@dataclass(slots=True)
class PartitionAudit:
    """Content of a partition's log, and the errors in it. Made by `audit_log`."""

    forgotten: ForgottenProducers
    """Limits of the forgotten producers, from the head of the partition."""
    columns: Columns
    opens_payloads: bool = False
    batch_count: int = 0
    transactional_batches: int = 0
    end_offset: int = 0
    producers: dict[int, ProducerEntry] = field(default_factory=dict)
    """Producers of the log. One that may have been forgotten is continued if its next write follows."""
    last_offsets: dict[int, int] = field(default_factory=dict)
    """Last offset of each producer's newest batch or marker."""
    returned: set[int] = field(default_factory=set)
    """Producers that wrote again after they may have been forgotten."""
    ended: list[LoggedEnd] = field(default_factory=list)
    markers: list[LoggedMarker] = field(default_factory=list)
    epochs: list[tuple[int, int]] = field(default_factory=list)
    """First offset and leader epoch of each run of batches with the same epoch."""
    is_whole: bool = True
    """False if bytes of the log could not be read as batches, so that their effect is unknown."""
    damaged: list[str] = field(default_factory=list)
    """Batches that differ from the written ones, or do not follow each other."""
    misplaced: list[str] = field(default_factory=list)
    """Transactional batches and markers outside of any transaction that was open there."""

    @property
    def open_offsets(self) -> list[int]:
        """First offsets of the transactions without a marker, ascending."""
        entries = self.producers.values()
        return sorted(entry.open_transaction.first_offset for entry in entries if entry.open_transaction is not None)

    @property
    def aborted(self) -> list[LoggedEnd]:
        """Transactions whose records are hidden from committed readers."""
        return [ended for ended in self.ended if ended.last.marker.outcome is Outcome.ABORT]

    def aborted_rows(self) -> set[tuple[int, AbortedTransaction]]:
        """Return the rows of the index of aborted transactions: at each marker, and at every multiple of the stride
        that a transaction crosses."""
        rows: set[tuple[int, AbortedTransaction]] = set()
        stride = index_rows.ABORTED_STRIDE
        for ended in self.aborted:
            marker, marker_offset = ended.last.marker, ended.last.offset
            aborted = AbortedTransaction(
                marker.producer_id,
                marker.txn_epoch,
                ended.first_offset,
                marker_offset,
                marker.coordinator_shard,
                marker.csn,
            )
            rows.add((marker_offset, aborted))
            across = stride * (ended.first_offset // stride + 1)
            while across < marker_offset:
                rows.add((across, aborted))
                across += stride
        return rows

    @property
    def has_what_was_forgotten(self) -> bool:
        """False if the head mentions offsets or markers that the log does not have."""
        numbers = {(logged.marker.coordinator_shard, logged.marker.csn) for logged in self.markers}
        return self.forgotten.end_offset <= self.end_offset and numbers.issuperset(self.forgotten.csns)

    def may_have_forgotten(self, producer_id: int) -> bool:
        """Return True if the partition may have forgotten this producer, by its batches and markers read so far."""
        entry = self.producers[producer_id]
        if entry.open_transaction is not None or self.last_offsets[producer_id] >= self.forgotten.end_offset:
            return False
        forgotten = dict(self.forgotten.csns)
        return entry.last_marker is None or entry.last_marker.csn <= forgotten.get(entry.coordinator_shard, 0)

    def head(self, log_start_offset: int, stored: PartitionHead) -> PartitionHead:
        """Return the positions that follow from the log. Those that the log does not show are taken from the stored
        head."""
        opened = self.open_offsets
        aborts = [ended.last.offset for ended in self.aborted]
        return PartitionHead(
            log_start_offset=log_start_offset,
            log_end_offset=self.end_offset,
            last_stable_offset=opened[0] if opened else self.end_offset,
            open_transactions=len(opened),
            last_abort_offset=max(aborts, default=NO_OFFSET),
            index=self.columns.index(),
            forgotten=stored.forgotten,
            totals=self.columns.totals,
            leadership=stored.leadership,
        )

    def epoch_differences(self, history: Sequence[LeaderEpoch]) -> Iterator[str]:
        """Yield the batches whose leader epoch differs from the stored epochs."""
        for (start_offset, epoch), (end_offset, _next) in pairwise([*self.epochs, (self.end_offset, -1)]):
            begun = [known for known in history if known.start_offset < end_offset]
            if not begun or begun[-1].epoch != epoch or begun[-1].start_offset > start_offset:
                known = ", ".join(f"{known.epoch} from offset {known.start_offset} on" for known in history)
                yield (
                    f"the batches at offsets {start_offset} to {end_offset - 1} have leader epoch {epoch}, stored are"
                    f" {known}"
                )


def audit_log(
    read_from: Callable[[int], Iterable[StoredBatch]],
    forgotten: ForgottenProducers,
    stretches: Sequence[IndexEntry] = (),
    *,
    opens_payloads: bool,
) -> PartitionAudit:
    """Read a whole log, from offset 0. After damage, only the batches themselves are checked.

    `stretches` are the stored index entries. `opens_payloads` is True if the topic accepts only batches that readers
    can decode."""
    audit = PartitionAudit(forgotten, Columns(stretches), opens_payloads)
    while audit.end_offset < OFFSET_END:
        try:
            for batch in read_from(audit.end_offset):
                _take(audit, batch)
        except LogDamaged as damage:
            audit.is_whole = False
            lost = f"the records from offset {damage.offset} to {damage.next_offset - 1}"
            audit.damaged.append(f"{lost} cannot be read: {damage.reason}; what else follows from them was not checked")
            audit.end_offset = damage.next_offset
        except Refused as damage:
            audit.is_whole = False
            audit.damaged.append(f"after offset {audit.end_offset}: {damage.message}; what follows was not checked")
            break
        else:
            break
    return audit


def _take(audit: PartitionAudit, batch: StoredBatch) -> None:
    header = batch.header
    if header.base_offset != audit.end_offset:
        audit.damaged.append(f"the batch at offset {header.base_offset} does not follow, {audit.end_offset} is next")
    if batch.key_offset != header.last_offset:
        audit.damaged.append(f"the batch that ends at {header.last_offset} lies under the key {batch.key_offset}")
    audit.end_offset = header.last_offset + 1
    audit.batch_count += 1
    if not audit.epochs or audit.epochs[-1][1] != header.leader_epoch:
        audit.epochs.append((header.base_offset, header.leader_epoch))
    # The header can be read, so the fold continues: one flipped bit should not show as a hundred wrong rows.
    damage = damage_of(batch, opens_payload=audit.opens_payloads)
    if damage:
        audit.damaged.append(damage)
    marker, ended_before = batch.marker, len(audit.ended)
    if marker is not None:
        _check_first_offset(audit, batch, marker)
        _take_marker(audit, header.base_offset, marker)
    elif header.producer_id != NO_PRODUCER_ID:
        _take_data(audit, header)
    if header.producer_id != NO_PRODUCER_ID:
        audit.last_offsets[header.producer_id] = header.last_offset
    ends_abort = marker is not None and marker.outcome is Outcome.ABORT and len(audit.ended) > ended_before
    audit.columns.take(batch, ends_abort=ends_abort)


def _check_first_offset(audit: PartitionAudit, batch: StoredBatch, marker: Marker) -> None:
    entry = audit.producers.get(marker.producer_id)
    opened = None if entry is None else entry.open_transaction
    first_offset, told = NO_OFFSET if opened is None else opened.first_offset, decode_marker_payload(batch.payload)
    if told.first_offset != first_offset:
        audit.misplaced.append(
            f"the marker at offset {batch.header.base_offset} says that its transaction begins at {told.first_offset},"
            f" the log says {first_offset}"
        )


def damage_of(batch: StoredBatch, *, opens_payload: bool) -> str | None:
    """Return the damage in the bytes of a batch whose header can be read; None if there is none. `opens_payload` is
    True if its topic accepts only batches that readers can decode."""
    header = batch.header
    try:
        verify_batch(batch.encoded)
    except Refused as damage:
        return f"at offset {header.base_offset}: {damage.message}"
    if not opens_payload or header.is_control:
        return None
    why = why_unreadable(unread(header, bytes(batch.payload)))
    return f"at offset {header.base_offset}: no reader can read the batch: {why}" if why else None


def _known(audit: PartitionAudit, producer_id: int, follows: Callable[[ProducerEntry], bool]) -> ProducerEntry | None:
    """Return the entry that the partition had for a producer that writes.

    A producer that may have been forgotten counts as new if its write would not have followed otherwise."""
    entry = audit.producers.get(producer_id)
    if entry is None or not audit.may_have_forgotten(producer_id):
        return entry
    if follows(entry):
        audit.returned.add(producer_id)
        return entry
    audit.returned.discard(producer_id)
    return None


def _take_data(audit: PartitionAudit, batch: BatchHeader) -> None:
    audit.transactional_batches += batch.is_transactional
    entry = _known(audit, batch.producer_id, lambda known: not _starts_anew(known, batch))
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
        coordinator_shard=NO_COORDINATOR_SHARD if entry is None else entry.coordinator_shard,
    )


def _starts_anew(entry: ProducerEntry, batch: BatchHeader) -> bool:
    """True for a first batch that would be refused if its producer were known."""
    if batch.base_sequence != 0 or batch.producer_epoch > entry.epoch:
        return False
    if batch.producer_epoch < entry.epoch:
        # The coordinator starts no transaction with an older epoch.
        return not batch.is_transactional
    return bool(entry.batches) and next_sequence(entry.last_sequence) != 0


def _take_marker(audit: PartitionAudit, offset: int, marker: Marker) -> None:
    audit.markers.append(LoggedMarker(offset, marker))
    entry = _known(audit, marker.producer_id, lambda known: marker.txn_epoch >= known.epoch)
    where = f"the marker at offset {offset} (producer {marker.producer_id}, epoch {marker.txn_epoch}, csn {marker.csn})"
    if entry is not None:
        last = entry.last_marker
        if last is not None and marker.coordinator_shard != entry.coordinator_shard:
            audit.misplaced.append(
                f"{where} is of coordinator shard {marker.coordinator_shard}, and the one before of"
                f" {entry.coordinator_shard}"
            )
        elif last is not None and marker.csn <= last.csn:
            audit.misplaced.append(f"{where} follows csn {last.csn} of the same producer")
        if entry.open_transaction is not None:
            if marker.txn_epoch != entry.epoch:
                audit.misplaced.append(f"{where} ends a transaction that is open with epoch {entry.epoch}")
            first_offset = entry.open_transaction.first_offset
            audit.ended.append(LoggedEnd(first_offset, audit.markers[-1]))
    opened = None if entry is None else entry.open_transaction
    epoch = marker.next_epoch if entry is None else max(entry.epoch, marker.next_epoch)
    is_new_epoch = entry is None or marker.next_epoch > entry.epoch
    audit.producers[marker.producer_id] = ProducerEntry(
        epoch=epoch,
        coordinator_epoch=marker.coordinator_epoch,
        batches=() if entry is None or is_new_epoch else entry.batches,
        last_marker=LastMarker(
            marker.txn_epoch, marker.outcome, marker.csn, NO_OFFSET if opened is None else opened.first_offset
        ),
        coordinator_shard=marker.coordinator_shard,
    )


def producer_differences(audit: PartitionAudit, stored: dict[int, ProducerEntry]) -> Iterator[str]:
    """Yield the stored producers that differ from the log. Wall times, seals and forgotten csns are not in the log and
    not compared."""
    for producer_id in sorted(audit.producers.keys() | stored.keys()):
        if producer_id not in audit.producers:
            yield f"producer {producer_id} is stored and never wrote here"
        elif producer_id not in stored:
            if not audit.may_have_forgotten(producer_id):
                yield f"producer {producer_id} wrote here and is not stored"
        else:
            expected, kept = _comparable(audit.producers[producer_id]), _comparable(stored[producer_id])
            if expected.last_marker is None or kept.last_marker is None:
                # In the log, only a marker has the coordinator shard.
                expected = replace(expected, coordinator_shard=kept.coordinator_shard)
            if kept != expected and not (producer_id in audit.returned and _is_rest(kept, expected)):
                yield f"producer {producer_id} is stored as {kept}, the log says {expected}"


def remembered_differences(
    audit: PartitionAudit, stored: Mapping[int, ProducerEntry], remembered: Iterable[RememberedEnd]
) -> Iterator[str]:
    """Yield the remembered ends of forgotten producers that differ from the log, or are missing. The log does not show
    which producers were forgotten and returned."""
    begins = {ended.last.identity: ended.first_offset for ended in audit.ended}
    kept = {end.identity: end.first_offset for end in remembered}
    for identity, first_offset in kept.items():
        begin = begins.get(identity)
        if begin != first_offset:
            yield f"{_end_words(identity)} is remembered from offset {first_offset}, the log says {begin}"
    for producer_id in sorted(audit.producers.keys() - stored.keys()):
        entry = audit.producers[producer_id]
        if entry.last_marker is None or entry.last_marker.first_offset == NO_OFFSET:
            continue
        if entry.epoch == EPOCH_MAX:
            # The last marker of a producer at the largest epoch may leave nothing: a Transact of a sink's member is
            # never repeated.
            continue
        identity = EndIdentity(entry.coordinator_shard, entry.last_marker.csn, producer_id)
        if identity not in kept:
            yield f"{_end_words(identity)} is not remembered, and its producer is forgotten"


def _end_words(identity: EndIdentity) -> str:
    return f"outcome {identity.csn} of coordinator shard {identity.coordinator_shard}, producer {identity.producer_id},"


def _is_rest(kept: ProducerEntry, expected: ProducerEntry) -> bool:
    """True for the rest of an entry whose beginning the partition had forgotten."""
    if kept.last_marker is None:
        expected = replace(expected, coordinator_epoch=NO_COORDINATOR_EPOCH, last_marker=None)
    batches = expected.batches[len(expected.batches) - len(kept.batches) :]
    return kept == replace(expected, batches=batches)


def _comparable(entry: ProducerEntry) -> ProducerEntry:
    opened = entry.open_transaction
    if opened is not None:
        opened = OpenTransaction(opened.first_offset, 0)
    return replace(entry, last_append_ms=0, open_transaction=opened, is_sealed=False, forgotten_csn=0)
