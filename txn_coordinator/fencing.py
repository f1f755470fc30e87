"""Fencing: the identities that may act for a transactional id, and the refusals of all others.

A client that shows an old identity gets one of two refusals. It is *fenced* if a newer instance or an administrator has
the id: it must stop. It is *outdated* if the server aborted its transaction, for example at its timeout, or if the
client itself has gone on. Then no other client has the id, and InitProducerId with the old identity returns the current
one. Both have Kafka's code; the class in the reply tells them apart.

The state shows which applies: `last_producer_epoch` is the client's epoch before the last bump that was not made for
another client. A newer instance erases it.

Source: spec transactions 2.2, 2.6, 3.1, 3.2, 3.10; KIP-360, KIP-588.
"""

from __future__ import annotations

from typing import Final

from coordinator_protocol.errors import ErrorCode, Outdated, Refused
from coordinator_protocol.limits import Limits
from txn_coordinator.state import (
    NO_EPOCH,
    TAKEN_OVER,
    Identity,
    Transaction,
    TransactionState,
)

_ABORTED: Final = frozenset({TransactionState.PREPARE_ABORT, TransactionState.COMPLETE_ABORT})


def check_expected(current: Transaction, expected: Identity | None, limits: Limits) -> None:
    """Raise Refused unless this id had the identity that a recovering producer shows (spec transactions 2.2, row
    12)."""
    if expected is None or current.producer_epoch == NO_EPOCH:
        return
    if expected.producer_id == current.client_identity.producer_id:
        return
    is_exhausted = expected.producer_epoch >= limits.producer_epoch_max - 1
    if expected.producer_id == current.prev_producer_id and is_exhausted:
        return
    raise fenced(current, expected)


def check_init_on_open(current: Transaction, expected: Identity | None) -> None:
    """Raise Refused unless the expected epoch is the current or the last one. A zombie must not abort the live owner's
    transaction (spec transactions 2.2, row Ongoing [D])."""
    owned = (current.client_identity.producer_epoch, current.last_producer_epoch)
    if expected is not None and expected.producer_epoch not in owned:
        raise fenced(current, expected)


def not_current(current: Transaction, shown: Identity) -> Refused:
    """Return the refusal for a producer that does not show exactly `client_identity`. Higher epochs are refused too
    (spec transactions 3.1)."""
    if shown.producer_id not in (current.client_identity.producer_id, current.producer_id):
        return wrong_producer_id(current, shown)
    return fenced(current, shown)


def is_outdated(current: Transaction, shown: Identity) -> bool:
    """Return True for the identity before the current one, if its own client or the server made the bump.

    An InitProducerId that expects it gets the current one, without another bump. False while a transaction is open: the
    client that opened it has the current identity, and initialising would abort it.
    """
    if shown.producer_epoch != current.last_producer_epoch or shown.producer_epoch == NO_EPOCH:
        return False
    is_mine = shown.producer_id in (current.client_identity.producer_id, current.prev_producer_id)
    return is_mine and current.state is not TransactionState.ONGOING and current.cause != TAKEN_OVER


def fenced(current: Transaction, shown: Identity) -> Refused:
    """Return the refusal for an identity whose epoch is over, or never existed."""
    epoch = f"epoch {shown.producer_epoch} of producer id {shown.producer_id}"
    if not is_outdated(current, shown):
        return Refused(
            ErrorCode.PRODUCER_FENCED,
            f"{epoch} is not the current one of {current.transactional_id!r}: a newer instance or an administrator "
            "took over, or its own producer has gone on",
        )
    return Outdated(
        ErrorCode.PRODUCER_FENCED,
        f"{epoch} is over, and no newer instance has {current.transactional_id!r}: {_why_over(current)}. Call "
        "InitProducerId, expecting this identity, and go on with the one it gives",
    )


def _why_over(current: Transaction) -> str:
    if current.state not in _ABORTED:
        return "its producer has gone on"
    match current.cause:
        case "timeout":
            return (
                f"its transaction was open for longer than its timeout of {current.txn_timeout_ms} ms, and was aborted"
            )
        case "topic_deleted":
            return "its transaction was aborted, because a topic in it was deleted"
        case "admin":
            return "its transaction was aborted by an administrator"
        case _:
            return "its transaction was aborted"


def wrong_producer_id(current: Transaction, shown: Identity) -> Refused:
    return Refused(
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        f"{current.transactional_id!r} does not belong to producer id {shown.producer_id}; call InitProducerId again",
    )
