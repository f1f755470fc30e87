"""Rules for a batch or a marker in a partition: pure decisions on frozen values.

The order of the checks is part of the contract.

1. The right to append outside transactions comes first, because it never changes.
2. A duplicate is recognised before every check whose result may change: its records are in the log, whatever happened
  since.
3. A stale epoch comes before membership. Otherwise a producer whose transaction timed out would get an error that means
  a bug (KAFKA-19690).
4. Membership comes before sequences, so that every record belongs to a transaction that will end it.

Source: spec log-and-runtime 1.3 and 1.5, with the csn of design 6 in place of the `last_marker` rows; spec transactions
2.9.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import Final

from msgspec.structs import replace

from coordinator_protocol.batch import (
    HEADER_BYTES,
    NO_PRODUCER_ID,
    NO_TIMESTAMP_MS,
    BatchHeader,
    Encoding,
    decode_header,
    split_row,
)
from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.marker import Marker
from coordinator_protocol.producers import SEQUENCE_MAX, is_plain, next_sequence
from coordinator_protocol.snapshots import OpenedExclusions
from coordinator_runtime.ports import EndIdentity, UnfinishedTransaction
from partition_log.catalog.settings import FOR_EVER
from partition_log.state import (
    BATCHES_CACHED_MAX,
    HIGH_WATERMARK,
    NO_COORDINATOR_EPOCH,
    NO_COORDINATOR_SHARD,
    NO_OFFSET,
    CachedBatch,
    ForgottenProducers,
    IndexEntry,
    IndexProgress,
    LastMarker,
    LogTotals,
    MovedLogStart,
    OpenTransaction,
    PartitionConfig,
    PartitionHead,
    ProducerEntry,
    RememberedEnd,
)

_HALF_CIRCLE: Final = SEQUENCE_MAX >> 1
_NEWLY_KEPT: Final = 1 - BATCHES_CACHED_MAX

_KAFKA: Final = Encoding.KAFKA_V2
_KAFKA_ROOM_BYTES: Final = 15
"""Bytes by which a batch of Kafka may exceed a limit. Our header has 3 more than Kafka's, and Kafka's default limit is
larger than ours by 12. What fits there fits here."""


class AppendVerdict(Enum):
    """Verdict on a batch that is neither refused nor a duplicate."""

    APPEND = "append"
    ADMIT = "admit"
    """The transaction coordinator must admit the batch first, in the same operation. The batch would open its
    transaction here, or it lies outside all transactions under a producer id that may belong to a transactional id."""


class MarkerVerdict(Enum):
    """Verdict on a marker that is not refused. Only APPEND writes; the others succeed without a write."""

    APPEND = "append"
    REPEATED = "repeated"
    """This very marker is in the log already."""
    STALE = "stale"
    """The marker belongs to an older transaction, which has ended here."""


# Module-level aliases for the fast path: enum attribute lookup is slow on CPython 3.11.
_APPEND: Final = AppendVerdict.APPEND
_APPEND_MARKER: Final = MarkerVerdict.APPEND


def judge_append(
    entry: ProducerEntry | None, batch: BatchHeader, *, is_admitted: bool, log_start_offset: int
) -> AppendVerdict | CachedBatch:
    """Decide on a client's batch. Return a cached batch for a duplicate: it is the answer.

    `is_admitted`: the transaction coordinator has just confirmed that the partition is in the batch's open transaction.
    For a plain batch, it has confirmed that the producer id was never given to a transactional id. That is needed only
    where the number itself does not show it.

    Raises Refused: INVALID_PRODUCER_EPOCH, CONCURRENT_TRANSACTIONS, OUT_OF_ORDER_SEQUENCE_NUMBER,
    DUPLICATE_SEQUENCE_NUMBER, UNKNOWN_PRODUCER_ID, INVALID_TXN_STATE."""
    if not batch.is_transactional:
        if batch.producer_id == NO_PRODUCER_ID:
            return _APPEND
        if not is_admitted and not is_plain(batch.producer_id):
            return AppendVerdict.ADMIT
    if batch.base_sequence == 0 and (
        entry is None or (batch.producer_epoch >= entry.epoch and not entry.batches and entry.open_transaction is None)
    ):
        # The first batch of an epoch, as in every transaction of client version 2. None of the checks below would find
        # anything.
        return _APPEND if is_admitted or not batch.is_transactional else AppendVerdict.ADMIT
    if entry is not None:
        duplicate = _find_duplicate(entry, batch)
        if duplicate is not None:
            return duplicate
        _check_epoch(entry, batch)
    has_open = entry is not None and entry.open_transaction is not None
    if batch.is_transactional:
        if _meets_seal(entry, batch) and not is_admitted:
            return AppendVerdict.ADMIT
        if has_open:
            _check_same_transaction(entry, batch)
        elif not is_admitted:
            return AppendVerdict.ADMIT
    _check_sequence(entry, batch, log_start_offset)
    if has_open and not batch.is_transactional:
        raise Refused(
            ErrorCode.INVALID_TXN_STATE,
            f"producer {batch.producer_id} has a transaction open in this partition: send the batch as part of it, or "
            "end it first",
        )
    return _APPEND


def check_timestamp(batch: BatchHeader, now_ms: int, after_max_ms: int) -> None:
    """Return only if the newest timestamp in a batch's header is at most `after_max_ms` ahead of the clock; FOR_EVER
    means no limit. Only batches that would be appended are checked. A duplicate is in the log already, even if its
    topic would now refuse it. Raises Refused INVALID_TIMESTAMP. Source: Kafka's `LogValidator`."""
    ahead_ms = batch.max_timestamp_ms - now_ms
    if after_max_ms != FOR_EVER and ahead_ms > after_max_ms:
        raise Refused(
            ErrorCode.INVALID_TIMESTAMP,
            f"the newest timestamp of the batch, {batch.max_timestamp_ms}, lies {ahead_ms} ms ahead of the server's "
            f"clock, and the topic takes up to {after_max_ms} ms (timestamp_after_max_ms): send Unix milliseconds, set "
            "the clock of the producer right, or let the topic take more",
        )


def check_size(batch: BatchHeader, payload_bytes: int, batch_bytes_max: int) -> None:
    """Return only if the stored form of a batch is within the limit of its topic. As for its timestamps, a duplicate is
    not checked: a producer that is refused would send the same records again in smaller batches. Raises Refused
    MESSAGE_TOO_LARGE. Source: Kafka's `max.message.bytes`."""
    size = HEADER_BYTES + payload_bytes
    size_max = batch_bytes_max + _KAFKA_ROOM_BYTES if batch.encoding is _KAFKA else batch_bytes_max
    if size > size_max:
        raise Refused(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"the batch takes {size} bytes, and the topic takes up to {size_max} (batch_bytes_max): send fewer records "
            "in one batch, or let the topic take more",
        )


def _find_duplicate(entry: ProducerEntry, batch: BatchHeader) -> CachedBatch | None:
    if not entry.batches or batch.producer_epoch != entry.epoch:
        return None
    base_sequence, last_sequence = batch.base_sequence, batch.last_sequence
    for cached in entry.batches:
        if cached.base_sequence == base_sequence and cached.last_sequence == last_sequence:
            return cached
    return None


def _check_epoch(entry: ProducerEntry, batch: BatchHeader) -> None:
    if batch.producer_epoch < entry.epoch:
        raise Refused(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"epoch {batch.producer_epoch} of producer {batch.producer_id} is over, the partition has seen epoch "
            f"{entry.epoch}: abort the transaction and go on with the epoch that the coordinator gives you",
        )


def _meets_seal(entry: ProducerEntry | None, batch: BatchHeader) -> bool:
    """True for a newer epoch than that of a sealed transaction. Only the coordinator knows whether that transaction
    still waits for its decision (INVALID_TXN_STATE) or is decided, with the marker on its way
    (CONCURRENT_TRANSACTIONS).

    Raises Refused: INVALID_TXN_STATE for the sealed epoch itself, from its producer or from a zombie of it."""
    if entry is None or not entry.is_sealed:
        return False
    if batch.producer_epoch > entry.epoch:
        return True
    raise Refused(
        ErrorCode.INVALID_TXN_STATE,
        f"the transaction of epoch {entry.epoch} of producer {batch.producer_id} is prepared, or was taken over by a "
        "newer instance: it takes no more records, only a commit or an abort",
    )


def seal(entry: ProducerEntry | None, producer_epoch: int) -> ProducerEntry | None:
    """Return the producer's entry once its open transaction of this epoch takes no more records. Return None if nothing
    changes: it has no record here, so the next one would need the coordinator's admission anyway; or it is sealed
    already."""
    if entry is None or entry.open_transaction is None or entry.epoch != producer_epoch or entry.is_sealed:
        return None
    return replace(entry, is_sealed=True)


def _check_same_transaction(entry: ProducerEntry | None, batch: BatchHeader) -> None:
    """Refuse a newer epoch that writes while the marker of the older one is still on its way (KAFKA-18575). Mixing the
    two would give the newer records the older outcome."""
    assert entry is not None, "an open transaction has an entry"
    if batch.producer_epoch != entry.epoch:
        raise Refused(
            ErrorCode.CONCURRENT_TRANSACTIONS,
            f"the transaction of epoch {entry.epoch} of producer {batch.producer_id} is still being completed in this "
            "partition; try again",
        )


def _check_sequence(entry: ProducerEntry | None, batch: BatchHeader, log_start_offset: int) -> None:
    first = batch.base_sequence
    if entry is None:
        if first != 0:
            raise Refused(
                ErrorCode.UNKNOWN_PRODUCER_ID,
                f"this partition knows nothing of producer {batch.producer_id}, so sequence {first} cannot be checked "
                f"(the log starts at offset {log_start_offset}): abort the transaction, or get a new epoch with "
                "InitProducerId, and start at sequence 0",
            )
        return
    if batch.producer_epoch > entry.epoch:
        if first != 0:
            raise _out_of_order(batch, f"epoch {batch.producer_epoch} is new here and starts at sequence 0")
        return
    if first == next_sequence(entry.last_sequence):
        return
    if _is_surely_in_log(entry, batch):
        raise Refused(
            ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
            f"sequences {first} to {batch.last_sequence} of producer {batch.producer_id} are in the log already, at an "
            "offset that is no longer remembered: go on with the next batch",
        )
    raise _out_of_order(batch, f"the next sequence is {next_sequence(entry.last_sequence)}")


def _is_surely_in_log(entry: ProducerEntry, batch: BatchHeader) -> bool:
    """True if a batch is in the log beyond doubt. A batch that was never appended must not be called a duplicate, or it
    would be lost. Sequences between 0 and the last one were appended in this epoch. Near the wrap-around, small
    sequences may also be ahead, behind a gap, so only the nearer half of the circle counts as behind."""
    behind = entry.last_sequence - batch.last_sequence
    return batch.base_sequence <= batch.last_sequence and 0 <= behind <= _HALF_CIRCLE


def _out_of_order(batch: BatchHeader, expected: str) -> Refused:
    return Refused(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"sequence {batch.base_sequence} of producer {batch.producer_id} does not follow: {expected}. A batch before "
        "it was lost or refused; send that one first",
    )


def entry_after_append(
    entry: ProducerEntry | None,
    batch: BatchHeader,
    *,
    base_offset: int,
    now_ms: int,
    forgotten: ForgottenProducers,
    coordinator_shard: int,
) -> ProducerEntry:
    """Return the producer's entry once the batch is appended at `base_offset`. An unknown producer may be a forgotten
    one, so it takes over the forgotten csn of its transactional id's coordinator shard. A producer without a
    transactional id gets no markers."""
    cached = CachedBatch(batch.base_sequence, batch.last_sequence, base_offset)
    open_transaction = entry.open_transaction if entry is not None else None
    if batch.is_transactional and open_transaction is None:
        open_transaction = OpenTransaction(base_offset, now_ms)
    if entry is None:
        return ProducerEntry(
            batch.producer_epoch,
            NO_COORDINATOR_EPOCH,
            now_ms,
            (cached,),
            open_transaction,
            forgotten_csn=forgotten.csn_of(coordinator_shard),
            coordinator_shard=coordinator_shard,
        )
    batches = (*entry.batches[_NEWLY_KEPT:], cached) if entry.epoch == batch.producer_epoch else (cached,)
    return ProducerEntry(
        batch.producer_epoch,
        entry.coordinator_epoch,
        now_ms,
        batches,
        open_transaction,
        entry.last_marker,
        forgotten_csn=entry.forgotten_csn,
        coordinator_shard=entry.coordinator_shard,
    )


def outside_of_transaction() -> Refused:
    """Error for batches that are in the log already, but outside of their transaction."""
    return Refused(
        ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
        "these sequence numbers are in the log already, outside of the transaction: send each batch once",
    )


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


def head_after_forgetting(head: PartitionHead, forgotten: Iterable[ProducerEntry]) -> PartitionHead:
    """Return the positions of the partition once these producers, which have nothing open, are forgotten. Their newest
    csns are kept per coordinator shard, so that late markers are still recognised."""
    csns = dict(head.forgotten.csns)
    for entry in forgotten:
        assert entry.open_transaction is None, "an open transaction needs its producer until its marker"
        if entry.last_marker is not None:
            csns[entry.coordinator_shard] = max(csns.get(entry.coordinator_shard, 0), entry.last_marker.csn)
    return replace(head, forgotten=ForgottenProducers(head.log_end_offset, tuple(sorted(csns.items()))))


def remembered_ends(forgotten: Mapping[int, ProducerEntry]) -> tuple[RememberedEnd, ...]:
    """Return the ends that stay known of forgotten producers: the first offsets of their last transactions, if those
    had records here."""
    return tuple(
        RememberedEnd(EndIdentity(entry.coordinator_shard, marker.csn, producer_id), marker.first_offset)
        for producer_id, entry in forgotten.items()
        if (marker := entry.last_marker) is not None and marker.first_offset != NO_OFFSET
    )


def check_last_sequence(
    entry: ProducerEntry | None, *, producer_id: int, producer_epoch: int, last_sequence: int
) -> None:
    """Return only if this is the last sequence of the producer's open transaction (EndTxn.last_sequences).

    Raises Refused: TRANSACTION_ABORTABLE."""
    held = "no record of this transaction"
    if entry is not None and entry.epoch == producer_epoch and entry.open_transaction is not None:
        if entry.last_sequence == last_sequence:
            return
        held = f"records up to sequence {entry.last_sequence}"
    raise Refused(
        ErrorCode.TRANSACTION_ABORTABLE,
        f"producer {producer_id} says that it last sent sequence {last_sequence}, and the log holds {held}: a batch "
        "was lost or refused; abort the transaction and send it again",
    )


def move_log_start(head: PartitionHead, wanted: int, *, high_watermark: int, leased_from: int | None) -> MovedLogStart:
    """Return the log start as near to the wanted offset as the last stable offset and leases allow. It never goes back.
    `leased_from`: first offset that a lease holds.

    Raises Refused OFFSET_OUT_OF_RANGE."""
    offset = high_watermark if wanted == HIGH_WATERMARK else wanted
    if not 0 <= offset <= high_watermark:
        raise Refused(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"records cannot be deleted up to offset {offset}: choose one from {head.log_start_offset} to the high "
            f"watermark {high_watermark}, or {HIGH_WATERMARK} for that",
        )
    start, stable = head.log_start_offset, head.last_stable_offset
    due = max(start, min(offset, stable))
    allowed = due if leased_from is None else min(due, leased_from)
    held_back = ""
    if max(start, allowed) < offset:
        held_back = (
            f"a transaction that began at offset {stable} is open: try again when it has ended; `txnctl explain` tells "
            "whose it is"
            if allowed == stable
            else f"a reader holds what lies from offset {leased_from} on: try again when it is done"
        )
    return MovedLogStart(max(start, allowed), held_back, due)


def index_after(
    head: PartitionHead,
    rows: Sequence[tuple[int, bytes]],
    totals: LogTotals,
    newest_ms: int,
    config: PartitionConfig,
    now_ms: int,
) -> tuple[IndexProgress, Sequence[IndexEntry]]:
    """Return the progress at the end of the log after several rows, each with its last offset, and the index entries
    that they finished. `totals` and `newest_ms`, the largest timestamp of a record, are those of the log with all of
    these rows."""
    index = head.index
    size_bytes = index.size_bytes + totals.size_bytes - head.totals.size_bytes
    batch_count = index.batch_count + len(rows)
    if size_bytes < config.index_interval_bytes and batch_count < config.index_interval_batches:
        return IndexProgress(index.first_offset, size_bytes, batch_count, newest_ms), ()
    return stretches_after(head, rows, totals=totals, config=config, now_ms=now_ms)


def stretches_after(
    head: PartitionHead,
    rows: Iterable[tuple[int, bytes]],
    *,
    totals: LogTotals,
    config: PartitionConfig,
    now_ms: int,
) -> tuple[IndexProgress, list[IndexEntry]]:
    """Do the work of `index_after` row by row, for rows that finish one or more index entries."""
    index, counted, aborts = head.index, head.totals, totals.abort_count - head.totals.abort_count
    finished: list[IndexEntry] = []
    for last_offset, row in rows:
        batch, tail = split_row(row)
        header = decode_header(batch)
        newest_ms, is_marker = index.max_timestamp_ms, header.is_control
        marker_count = 1 if is_marker or tail is not None else 0
        # Markers are not records: a search by time must not end at one.
        if not is_marker and newest_ms < header.max_timestamp_ms:
            newest_ms = header.max_timestamp_ms
        counted = LogTotals(
            counted.size_bytes + len(row),
            counted.record_count + (0 if is_marker else header.record_count),
            counted.marker_count + marker_count,
            counted.abort_count + aborts * marker_count,
        )
        size_bytes, batch_count = index.size_bytes + len(row), index.batch_count + 1
        if size_bytes < config.index_interval_bytes and batch_count < config.index_interval_batches:
            index = IndexProgress(index.first_offset, size_bytes, batch_count, newest_ms)
        else:
            finished.append(IndexEntry(index.first_offset, last_offset, newest_ms, now_ms, counted))
            index = IndexProgress(last_offset + 1, 0, 0, newest_ms)
    assert counted == totals, "the rows are what the totals count"
    return index, finished


def finish_ahead_of_time(head: PartitionHead, now_ms: int) -> tuple[PartitionHead, IndexEntry] | None:
    """Finish the index entry at the end of a log, if only the clock can tell how old the end is. That is so if there
    are rows, and the newest timestamp lies ahead of the clock or is missing. Return the new head and the entry, or None
    if nothing changes."""
    if NO_TIMESTAMP_MS < head.index.max_timestamp_ms <= now_ms:
        return None
    return finish_unfinished(head, now_ms)


def finish_unfinished(head: PartitionHead, now_ms: int) -> tuple[PartitionHead, IndexEntry] | None:
    """Finish the index entry at the end of a log. Return the new head and the entry. None if there are no rows, or all
    of them lie before the log start. No index row is ever written there again."""
    index = head.index
    if not index.batch_count or head.log_start_offset >= head.log_end_offset:
        return None
    end_offset = head.log_end_offset
    stretch = IndexEntry(index.first_offset, end_offset - 1, index.max_timestamp_ms, now_ms, head.totals)
    return replace(head, index=IndexProgress(end_offset, 0, 0, index.max_timestamp_ms)), stretch


def exclusions(
    opened: Mapping[int, int],
    unfinished: Iterable[UnfinishedTransaction],
    entry_of: Callable[[int], ProducerEntry | None],
    log_start_offset: int,
    forgotten: ForgottenProducers,
) -> Mapping[int, int]:
    """Return the exclusions of a snapshot in one partition: by producer id, the first offset of its excluded
    transaction. A transaction is excluded if it is open there, or has its marker there and is not finished elsewhere.
    The log start stands in for a first offset that is no longer known. All arguments are one reading of durable state.
    `opened`: producer ids by first offset; the answer keeps it.

    Raises Refused COORDINATOR_LOAD_IN_PROGRESS where the partition may have forgotten a producer whose transaction is
    not finished elsewhere. Excluding everything of that producer would hide its earlier transactions, and excluding
    nothing might show this one in part. Source: spec log-and-runtime 2.4, Algorithm S, step 3."""
    marked: dict[int, int] = {}
    for each in unfinished:
        entry = entry_of(each.producer_id)
        if entry is None:
            # Forgotten with its marker, or never here. Everything that such a producer wrote is in this transaction.
            if each.writes_once:
                marked.setdefault(each.producer_id, log_start_offset)
            elif each.csn <= forgotten.csn_of(each.coordinator_shard):
                raise Refused(
                    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                    f"the transaction of producer id {each.producer_id} has been decided for longer than a partition "
                    "remembers producers, and is not finished everywhere: try again, or load the shards it waits for",
                )
            continue
        last = entry.last_marker
        is_this = last is not None and (entry.coordinator_shard, last.csn) == (each.coordinator_shard, each.csn)
        if last is not None and is_this and last.first_offset != NO_OFFSET:
            marked.setdefault(each.producer_id, last.first_offset)
    if not marked:
        return OpenedExclusions(opened)
    # A producer may have both. Its open transaction counts then.
    return marked | dict(zip(opened.values(), opened, strict=True))
