"""Rules for a batch of a client in a partition.

The order of the checks is part of the contract.

1. The right to append outside transactions comes first, because it never changes.
2. A duplicate is recognised before every check whose result may change: its records are in the log, whatever happened
  since. But a transaction does not have the records of an ended one. A batch for it that repeats their sequences is
  refused, or the client would take its records for kept (decision 64).
3. A stale epoch comes before membership. Otherwise a producer whose transaction timed out would get an error that means
  a bug (KAFKA-19690).
4. Membership comes before sequences, so that every record belongs to a transaction that will end it.

Source: spec log-and-runtime 1.3; spec transactions 2.9.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from msgspec.structs import replace

from coordinator_protocol.batch import (
    HEADER_BYTES,
    NO_PRODUCER_ID,
    BatchHeader,
    Encoding,
)
from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.producers import SEQUENCE_MAX, is_plain, next_sequence
from partition_log.catalog.settings import FOR_EVER
from partition_log.state import (
    BATCHES_CACHED_MAX,
    NO_COORDINATOR_EPOCH,
    CachedBatch,
    ForgottenProducers,
    OpenTransaction,
    ProducerEntry,
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


# Module-level alias for the fast path: enum attribute lookup is slow on CPython 3.11.
_APPEND: Final = AppendVerdict.APPEND


def judge_append(
    entry: ProducerEntry | None, batch: BatchHeader, *, is_admitted: bool, log_start_offset: int
) -> AppendVerdict | CachedBatch:
    """Decide on a client's batch. Return a cached batch for a duplicate: it is the answer, unless the coordinator must
    be asked (`refusal_if_open`).

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
            _check_own(entry, batch)
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


def refusal_if_open(entry: ProducerEntry | None, batch: BatchHeader) -> Refused | None:
    """Return the refusal of a repeated batch, for the case that its partition is in its producer's open transaction.
    Only the coordinator knows that, because the transaction has no record here yet. None if the batch belongs to no
    transaction, or to one that has records here."""
    if entry is None or entry.open_transaction is not None or not batch.is_transactional:
        return None
    return _of_ended_transaction(batch)


def _check_own(entry: ProducerEntry, batch: BatchHeader) -> None:
    """Return only if a repeated batch may be of the transaction that is open here. Raises Refused UNKNOWN_PRODUCER_ID
    if it surely repeats sequences from before it."""
    opened = entry.open_transaction
    if opened is None or not batch.is_transactional:
        return
    for cached in reversed(entry.batches):
        if cached.base_offset < opened.first_offset:
            if (cached.last_sequence - batch.base_sequence) & SEQUENCE_MAX <= _HALF_CIRCLE:
                raise _of_ended_transaction(batch)
            return


def _of_ended_transaction(batch: BatchHeader) -> Refused:
    # With OUT_OF_ORDER_SEQUENCE_NUMBER librdkafka gives the producer up. With this code it aborts the transaction, asks
    # for a new epoch and goes on.
    return Refused(
        ErrorCode.UNKNOWN_PRODUCER_ID,
        f"sequences {batch.base_sequence} to {batch.last_sequence} of producer {batch.producer_id} are in the log "
        "already, as part of a transaction that has ended: abort the open one, get a new epoch with InitProducerId, "
        "and start at sequence 0",
    )


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
        _check_own(entry, batch)
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
