"""Transact: a whole transaction in one request."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.limits import Limits
from coordinator_protocol.marker import Outcome
from txn_coordinator.records import TransactionRanThrough, TransactionStepped
from txn_coordinator.rules.adding import Additions, with_additions
from txn_coordinator.rules.ending import check_not_decided, is_end_retry, nothing_to_end
from txn_coordinator.state import IDLE, NO_PRODUCER_ID, Identity, Transaction, TransactionState, step


class TransactRequest(Struct, frozen=True, gc=False):
    """Transact with checked arguments, without its writes."""

    transactional_id: str
    identity: Identity
    outcome: Outcome
    request_id: bytes
    additions: Additions = Additions()


def judge_transact(
    current: Transaction, request: TransactRequest, *, now_ms: int, limits: Limits
) -> Transaction | None:
    """Return the transaction with all additions of the request; its outcome is to be decided next.

    None if this very request was answered before: it gets the same answer and changes nothing (design 6).

    Raises Refused as `add`, or INVALID_REQUEST for the request id of the previous transaction. If the transaction has
    ended meanwhile: INVALID_PRODUCER_EPOCH if the server aborted it, else INVALID_TXN_STATE.
    """
    check_not_decided(current)
    is_known = current.transact_id == request.request_id
    if is_end_retry(current, request.identity):
        if is_known and current.outcome is request.outcome:
            return None
        raise _ended_otherwise(current, request)
    if is_known:
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            f"the transaction of {current.transactional_id!a} before this one was ended under the same request_id; "
            "every transaction needs its own, and only its retries have it too",
        )
    if request.additions.partitions or request.additions.groups or request.additions.shares:
        added = with_additions(current, request.additions, now_ms=now_ms, limits=limits, client_txn_version=2)
        return current if added is None else added
    return current


def check_something_to_end(opened: Transaction, request: TransactRequest) -> None:
    """Raise Refused INVALID_TXN_STATE if a Transact has nothing to commit. It is judged as an EndTxn."""
    if opened.state is not TransactionState.ONGOING and request.outcome is Outcome.COMMIT:
        raise nothing_to_end(opened, request.outcome)


def _ended_otherwise(current: Transaction, request: TransactRequest) -> Refused:
    if current.outcome is Outcome.ABORT and not current.transact_id:
        # KIP-588: the producer can go on, once the EndTxn that this code asks for has given it the next identity.
        return Refused(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"the transaction was aborted meanwhile (cause: {current.cause}), nothing was written: abort it, which "
            "tells the identity to go on with",
        )
    return Refused(
        ErrorCode.INVALID_TXN_STATE,
        f"the transaction of {current.transactional_id!a} with epoch {request.identity.producer_epoch} was ended by "
        f"another request ({current.outcome.name.lower()}); nothing was written",
    )


def commit_in_one_step(
    current: Transaction, identity: tuple[int, int], request_id: bytes, *, csn: int, now_ms: int, limits: Limits
) -> Transaction | None:
    """Return an idle id after the whole commit of a Transact that writes something; None if the checked steps do
    anything else.

    It replaces three checked steps by one, those of `judge_transact`, `ending.decide` and `ending.complete`, because no
    path is more frequent. A property test holds it to them. They do something else if they refuse, recognise a
    repetition, or rotate the producer id.
    """
    if (
        current.state not in IDLE
        or (current.producer_id, current.producer_epoch) != identity
        or current.transact_id == request_id
        or current.producer_epoch >= limits.producer_epoch_max - 1
    ):
        return None
    return replace(
        current,
        state=TransactionState.COMPLETE_COMMIT,
        producer_epoch=current.producer_epoch + 1,
        last_producer_epoch=current.producer_epoch,
        prev_producer_id=NO_PRODUCER_ID,
        start_ms=now_ms,
        last_update_ms=now_ms,
        client_txn_version=2,
        csn=csn,
        cause="client",
        transact_id=request_id,
    )


def steps_of(ran: TransactionRanThrough) -> Sequence[TransactionStepped]:
    """Return the steps of a transaction that ran through in one, one by one."""
    before, after = ran.before, ran.transaction
    opened = step(
        before,
        TransactionState.ONGOING,
        partitions=frozenset(ran.partitions),
        groups=frozenset(ran.groups),
        start_ms=after.start_ms,
        last_update_ms=after.last_update_ms,
        client_txn_version=after.client_txn_version,
        cause="add",
        transact_id=b"",
    )
    decided = replace(
        after,
        state=TransactionState.PREPARE_COMMIT,
        partitions=opened.partitions,
        groups=opened.groups,
        txn_epoch=before.producer_epoch,
    )
    changes = ((before, opened), (opened, decided), (decided, after))
    return [TransactionStepped(*change) for change in changes]
