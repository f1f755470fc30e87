"""Transact: a whole transaction in one request."""

from __future__ import annotations

from msgspec import Struct

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.limits import Limits
from coordinator_protocol.marker import Outcome
from txn_coordinator.rules.adding import Additions, with_additions
from txn_coordinator.rules.ending import check_not_decided, is_end_retry, nothing_to_end
from txn_coordinator.state import ONGOING, Identity, Transaction


class TransactRequest(Struct, frozen=True, gc=False):
    """Transact, its arguments checked, without what it writes."""

    transactional_id: str
    identity: Identity
    outcome: Outcome
    request_id: bytes
    additions: Additions = Additions()


def judge_transact(
    current: Transaction, request: TransactRequest, *, now_ms: int, limits: Limits
) -> Transaction | None:
    """The transaction with all that the request brings, whose outcome is to be decided next. None when this very
    request was answered before: it gets the same answer and changes nothing (design 6).

    Raises Refused as `add`; INVALID_PRODUCER_EPOCH where the server aborted the transaction meanwhile,
    INVALID_TXN_STATE where it has ended otherwise, INVALID_REQUEST for the request id of the transaction before."""
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
    if request.additions.partitions or request.additions.groups:
        added = with_additions(current, request.additions, now_ms=now_ms, limits=limits, client_txn_version=2)
        return current if added is None else added
    return current


def check_something_to_end(opened: Transaction, request: TransactRequest) -> None:
    """Judge a Transact that adds nothing as EndTxn is judged. Raises Refused INVALID_TXN_STATE."""
    if opened.state is not ONGOING and request.outcome is Outcome.COMMIT:
        raise nothing_to_end(opened, request.outcome)


def _ended_otherwise(current: Transaction, request: TransactRequest) -> Refused:
    if current.outcome is Outcome.ABORT and not current.transact_id:
        # KIP-588: the producer can go on, once it has heard that with the EndTxn that this code asks for.
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
