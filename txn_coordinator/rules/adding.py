"""Additions to an open transaction, and its closing: adding, verifying, preparing."""

from __future__ import annotations

from msgspec import Struct

from coordinator_protocol.errors import ErrorCode, NotInTransaction, Refused
from coordinator_protocol.limits import Limits
from coordinator_runtime.participants import ShareKey
from txn_coordinator.fencing import not_current
from txn_coordinator.rules.ending import being_completed, check_not_decided
from txn_coordinator.state import DECIDED, Identity, Transaction, TransactionState, step


class Additions(Struct, frozen=True, kw_only=True, gc=False):
    """Participants that a request adds to the transaction."""

    partitions: frozenset[int] = frozenset()
    groups: frozenset[str] = frozenset()
    shares: frozenset[ShareKey] = frozenset()


def add(
    current: Transaction,
    identity: Identity,
    additions: Additions,
    *,
    now_ms: int,
    limits: Limits,
    client_txn_version: int,
) -> Transaction | None:
    """Return the transaction with the additions, opened if none was open (spec transactions 2.3).

    None if it has them already and nothing needs to be written.
    """
    if current.state in DECIDED:
        raise being_completed(current)
    if identity != current.client_identity:
        raise not_current(current, identity)
    return with_additions(current, additions, now_ms=now_ms, limits=limits, client_txn_version=client_txn_version)


def with_additions(
    current: Transaction, additions: Additions, *, now_ms: int, limits: Limits, client_txn_version: int
) -> Transaction | None:
    """Return the result of `add`, once the caller is known to be the owner and nothing is being completed."""
    if current.is_closed:
        # Even an existing partition or group may not be added again: a success would let a batch in.
        raise _closed(current)
    is_open = current.state is TransactionState.ONGOING
    if (
        is_open
        and additions.partitions <= current.partitions
        and additions.groups <= current.groups
        and additions.shares <= current.shares
    ):
        return None
    partitions = current.partitions | additions.partitions
    groups, shares = current.groups | additions.groups, current.shares | additions.shares
    count = len(partitions) + len(groups) + len(shares)
    if count > limits.partitions_per_transaction_max:
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            f"the transaction would have {count} partitions, groups and share partitions; "
            f"at most {limits.partitions_per_transaction_max} are allowed",
        )
    return step(
        current,
        TransactionState.ONGOING,
        partitions=partitions,
        groups=groups,
        shares=shares,
        start_ms=current.start_ms if is_open else now_ms,
        last_update_ms=now_ms,
        client_txn_version=client_txn_version,
        cause="add",
        transact_id=b"",
    )


def verify(current: Transaction, identity: Identity, partitions: frozenset[int]) -> frozenset[int]:
    """Return the partitions that are in the open transaction (spec transactions 2.3, verify_only)."""
    return partitions & current.partitions if _takes_more(current, identity) else frozenset()


def is_open_with(current: Transaction | None, identity: Identity, partition: int) -> bool:
    """Return True if a transaction of this identity is open and the partition is in it, whether or not it takes
    more."""
    return (
        current is not None
        and current.state is TransactionState.ONGOING
        and current.client_identity == identity
        and partition in current.partitions
    )


def check_group(current: Transaction, identity: Identity, group: str) -> None:
    """Raise Refused as `verify`, or NotInTransaction if the group is not in the open transaction."""
    if not _takes_more(current, identity) or group not in current.groups:
        raise NotInTransaction(
            f"group {group!a:.300} is not in the transaction of {current.transactional_id!a}; call AddOffsetsToTxn "
            "before TxnOffsetCommit, or use client version 2, which adds it by itself",
        )


def _takes_more(current: Transaction, identity: Identity) -> bool:
    """Return True if the owner has a transaction open. Raises Refused if the caller is not the owner, or if the
    transaction is decided or closed to additions."""
    if identity != current.client_identity:
        raise not_current(current, identity)
    check_not_decided(current)
    if current.is_closed:
        raise _closed(current)
    return current.state is TransactionState.ONGOING


def prepare(current: Transaction, identity: Identity, *, now_ms: int) -> Transaction | None:
    """Return the transaction, prepared for an outside decision; None if it is prepared already.

    From now on the server never ends it on its own, and nothing is added to it (spec transactions 10,
    PrepareTransaction).
    """
    check_not_decided(current)
    if identity != current.client_identity:
        raise not_current(current, identity)
    if current.state is not TransactionState.ONGOING:
        raise Refused(
            ErrorCode.INVALID_TXN_STATE,
            f"no transaction of {current.transactional_id!r} is open that could be prepared "
            f"(state {current.state.api_name})",
        )
    if current.prepared_ms is not None:
        return None
    return step(current, TransactionState.ONGOING, prepared_ms=now_ms, last_update_ms=now_ms, cause="prepare")


def _closed(current: Transaction) -> Refused:
    """Return the refusal of an addition. A transaction that awaits an outside decision must keep the contents that are
    decided on (spec transactions 10)."""
    reason = "is prepared" if current.prepared_ms is not None else "was kept to be recovered"
    return Refused(
        ErrorCode.INVALID_TXN_STATE,
        f"the open transaction of {current.transactional_id!r} {reason} and takes no more; commit it or abort it",
    )
