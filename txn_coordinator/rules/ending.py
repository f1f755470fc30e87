"""EndTxn, and the two states of every end of a transaction: PREPARE, which decides the outcome, and COMPLETE.

An EndTxn may legally show three epochs (spec transactions 2.6):
- the stored one ("current");
- the one before the bump that this very EndTxn made ("bump-retry");
- the last one before the producer id was rotated ("overflow-retry").
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from typing import Final

from msgspec import Struct

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.limits import EPOCH_MAX, Limits
from coordinator_protocol.marker import Marker, Outcome
from coordinator_runtime.participants import ShareKey
from txn_coordinator.fencing import fenced, not_current, wrong_producer_id
from txn_coordinator.requests import EndTxn
from txn_coordinator.state import (
    COMPLETE,
    COMPLETE_STATES,
    DECIDED,
    NO_EPOCH,
    NO_PRODUCER_ID,
    OUTCOMES,
    PREPARE_STATES,
    Identity,
    Transaction,
    TransactionState,
    step,
)

AllocateProducerId = Callable[[], int]

_NO_PARTITIONS: Final[frozenset[int]] = frozenset()
_NO_GROUPS: Final[frozenset[str]] = frozenset()
_NO_SHARES: Final[frozenset[ShareKey]] = frozenset()


class EndVerdict(Enum):
    """Meaning of an EndTxn for the state it finds."""

    DECIDE = auto()
    """Decide the outcome now."""
    REPEATED = auto()
    """An earlier attempt decided and completed it: give the same answer."""


def judge_end(current: Transaction, command: EndTxn, *, client_txn_version: int) -> EndVerdict:
    """Judge an EndTxn (spec transactions 2.6, both tables)."""
    shown, outcome = command.identity, command.outcome
    if client_txn_version < 2:
        if shown != current.client_identity:
            raise not_current(current, shown)
        check_not_decided(current)
        if current.state is TransactionState.ONGOING:
            return EndVerdict.DECIDE
        if current.state is not TransactionState.EMPTY and current.outcome is outcome:
            return EndVerdict.REPEATED
        raise nothing_to_end(current, outcome)
    if current.state in DECIDED:
        raise being_completed(current)
    is_retry = is_end_retry(current, shown)
    if current.state is TransactionState.ONGOING:
        return EndVerdict.DECIDE
    if not is_retry:
        if outcome is Outcome.ABORT:
            # The client does not know if anything was added, so this is an empty abort with a bump.
            return EndVerdict.DECIDE
        raise nothing_to_end(current, outcome)
    if current.outcome is outcome:
        return EndVerdict.REPEATED
    if current.outcome is Outcome.ABORT:
        # A correct client does not commit a transaction that it has ended by EndTxn(abort). So the server aborted it,
        # at its timeout for example, or this client did with an InitProducerId (KAFKA-20785). A client that does both
        # gets the same refusal.
        raise fenced(current, shown)
    raise nothing_to_end(current, outcome)


def is_end_retry(current: Transaction, shown: Identity) -> bool:
    """Return True for the identity of the last ended transaction, shown by its owner (a bump-retry or an
    overflow-retry).

    False for the current identity. Raises Refused for all others.

    Only the client on whose behalf the epoch was bumped may repeat its request. A new instance erases
    `last_producer_epoch`, so an older holder can never take the new one's outcome for its own (spec transactions 3.2).
    """
    client = current.client_identity
    if shown == client:
        return False
    is_last = shown.producer_epoch == current.last_producer_epoch
    is_overflow_retry = is_last and current.prev_producer_id == shown.producer_id and current.producer_epoch == 0
    if shown.producer_id not in (client.producer_id, current.producer_id) and not is_overflow_retry:
        raise wrong_producer_id(current, shown)
    is_bump_retry = (
        is_last and shown.producer_id == current.producer_id and current.producer_epoch == shown.producer_epoch + 1
    )
    if current.state in COMPLETE and (is_overflow_retry or is_bump_retry):
        return True
    raise fenced(current, shown)


class Ending(Struct, frozen=True, gc=False):
    """Outcome of the end of a transaction, and its cause."""

    outcome: Outcome
    bumps_epoch: bool
    """True for clients of version 2, and for every abort by the server: the next transaction has a new epoch."""
    cause: str
    transact_id: bytes = b""
    """Request id of the Transact that ends the transaction; empty if there is none."""
    csn: int = 0
    """Csn already given to the outcome; 0 if it gets one of its own."""


def by_server(cause: str) -> Ending:
    """Return the ending of an abort by the server."""
    return Ending(Outcome.ABORT, bumps_epoch=True, cause=cause)


def decide(
    current: Transaction, ending: Ending, *, csn: int, now_ms: int, limits: Limits, allocate: AllocateProducerId
) -> Transaction:
    """Return the decided transaction (spec transactions 3.3 - 3.5).

    If the ending bumps the epoch, it carries the epoch that fences the old one, and at exhaustion the next producer id.
    A kept transaction may hold three ids: of its markers, of the client that ends it, and of the next transaction (spec
    transactions 10).
    """
    bumps_epoch, txn_epoch = ending.bumps_epoch, current.producer_epoch
    # `Transaction.is_kept` without its call: every commit passes here.
    is_kept = current.state is TransactionState.ONGOING and current.next_producer_epoch != NO_EPOCH
    epoch, last_epoch, prev_producer_id = txn_epoch, current.last_producer_epoch, current.prev_producer_id
    next_producer_id, next_epoch = current.next_producer_id, current.next_producer_epoch
    if bumps_epoch or is_kept:
        # The markers of a kept transaction fence its first owner in the partitions, for clients of any version.
        epoch = min(txn_epoch + 1, limits.producer_epoch_max)
    if current.member is not None:
        # The producer id of a member never writes again. The log shows that by the greatest epoch, so its readers know
        # why the producer is gone.
        epoch = EPOCH_MAX
    if bumps_epoch:
        producer_id, last_epoch = current.client_identity
        # Only after an end that rotates the producer id may a retry name the id before. Any other end drops the id of
        # an older rotation, or a zombie with that id could pass `check_expected` once the epochs meet again. For a
        # kept transaction the id is the client's own.
        is_exhausted = last_epoch >= limits.producer_epoch_max - 1
        prev_producer_id = producer_id if is_exhausted or is_kept else NO_PRODUCER_ID
        if is_exhausted:
            next_producer_id, next_epoch = allocate(), 0
        elif is_kept:
            # Bumped again, although keeping it bumped already: a delayed copy of this EndTxn could otherwise end the
            # next transaction.
            next_epoch = last_epoch + 1
    return step(
        current,
        PREPARE_STATES[ending.outcome],
        producer_epoch=epoch,
        last_producer_epoch=last_epoch,
        prev_producer_id=prev_producer_id,
        next_producer_id=next_producer_id,
        next_producer_epoch=next_epoch,
        start_ms=current.start_ms if current.state is TransactionState.ONGOING else now_ms,
        last_update_ms=now_ms,
        txn_epoch=txn_epoch,
        csn=csn,
        cause=ending.cause,
        transact_id=ending.transact_id,
    )


def complete(decided: Transaction, *, now_ms: int) -> Transaction:
    """Return the transaction once every participant has its marker."""
    assert decided.state in DECIDED, "only what is decided can be completed"
    producer_id, producer_epoch = decided.client_identity
    return step(
        decided,
        COMPLETE_STATES[decided.state],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        next_producer_id=NO_PRODUCER_ID,
        next_producer_epoch=NO_EPOCH,
        partitions=_NO_PARTITIONS,
        groups=_NO_GROUPS,
        shares=_NO_SHARES,
        last_update_ms=now_ms,
        txn_epoch=NO_EPOCH,
        prepared_ms=None,
    )


def marker_of(decided: Transaction, coordinator_shard: int, coordinator_epoch: int) -> Marker:
    """Return the marker for every participant. It is sent again unchanged, except for the epoch of the coordinator."""
    return Marker(
        producer_id=decided.producer_id,
        txn_epoch=decided.txn_epoch,
        next_epoch=decided.producer_epoch,
        coordinator_shard=coordinator_shard,
        coordinator_epoch=coordinator_epoch,
        outcome=OUTCOMES[decided.state],
        csn=decided.csn,
        is_last=decided.member is not None,
    )


def is_due(current: Transaction, meant: Transaction) -> bool:
    """Return True if the transaction that an abort was meant for is still the open one (spec transactions 5)."""
    return (
        current.state is TransactionState.ONGOING
        and current.identity == meant.identity
        and current.start_ms == meant.start_ms
    )


def check_not_decided(current: Transaction) -> None:
    """Raise Refused CONCURRENT_TRANSACTIONS if the outcome is decided: it is completed before anything else (spec
    transactions 2.6 [D])."""
    if current.state in DECIDED:
        raise being_completed(current)


def being_completed(current: Transaction) -> Refused:
    return Refused(
        ErrorCode.CONCURRENT_TRANSACTIONS,
        f"the last transaction of {current.transactional_id!r} is decided and being completed; try again",
    )


def nothing_to_end(current: Transaction, outcome: Outcome) -> Refused:
    return Refused(
        ErrorCode.INVALID_TXN_STATE,
        f"cannot {outcome.name.lower()}: no transaction of {current.transactional_id!r} is open "
        f"(state {current.state.api_name})",
    )
