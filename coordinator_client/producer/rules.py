"""Total functions without state that choose a producer's reaction to an error, by its class.

Source: docs/clients.md (one class, one action); spec transactions 2.6, 2.9 and 3; KIP-360, KIP-588, KIP-890.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

from coordinator_client.errors import ABORTED_BY_SERVER, PASSING, TOPIC_GONE, TransactionError, failure, rejected
from coordinator_protocol.errors import ErrorClass, ErrorCode

_C = ErrorClass

_EXPIRED: Final = frozenset({_C.RECOVER, _C.REJOIN})


class AfterSend(Enum):
    """Consequences that a permanently failed batch has for its producer."""

    GO_ON = auto()
    """The batch is certainly not in the log: its sequence numbers are used again for the next one."""
    ABORT = auto()
    """The transaction must be aborted."""
    RENEW = auto()
    """The identity is no longer usable: ask for a new one, and begin at sequence 0."""
    CLOSE = auto()
    """A newer producer is running: send nothing more."""


class AfterEnd(Enum):
    """Consequences that the answer to EndTxn has for the transaction."""

    DONE = auto()
    """The transaction ended as requested; the answer holds the identity for the next one."""
    ABORT = auto()
    """The commit was refused: abort, then continue. If the server had aborted it already, its answer to the abort holds
    the next identity."""
    RENEW = auto()
    """The transaction is over, and so is the identity: ask for a new one."""
    CLOSE = auto()
    """A newer producer is running, or this one lacks the permission: send nothing more."""
    UNKNOWN = auto()
    """No definite answer came before the deadline."""


def after_send(error: TransactionError, *, is_transactional: bool) -> AfterSend:
    """Return the consequence of a failed batch."""
    what = error.error_class
    if what is _C.FENCED:
        return AfterSend.CLOSE
    if is_transactional:
        return AfterSend.RENEW if what in _EXPIRED else AfterSend.ABORT
    if error.lost_attempts or what in _EXPIRED or what is _C.UNKNOWN_OUTCOME:
        return AfterSend.RENEW
    if what is _C.ABORT and error.code not in TOPIC_GONE:
        # Out of order, or the partition forgot this producer: only a new identity helps.
        return AfterSend.RENEW
    return AfterSend.GO_ON


def after_commit(what: ErrorClass) -> AfterEnd:
    """Return the consequence of the answer to a commit."""
    match what:
        case _C.NONE:
            return AfterEnd.DONE
        case _C.ABORT | _C.REJECTED:
            return AfterEnd.ABORT
        case _C.RECOVER | _C.REJOIN:
            return AfterEnd.RENEW
        case _C.FENCED | _C.MISCONFIGURED:
            return AfterEnd.CLOSE
        case _C.RETRY | _C.REFRESH | _C.UNKNOWN_OUTCOME:
            return AfterEnd.UNKNOWN


def after_abort(what: ErrorClass) -> AfterEnd:
    """Return the consequence of the answer to an abort; never ABORT, which would loop forever (KAFKA-19250)."""
    match what:
        case _C.NONE:
            return AfterEnd.DONE
        case _C.FENCED | _C.MISCONFIGURED:
            return AfterEnd.CLOSE
        case _C.RETRY | _C.REFRESH | _C.UNKNOWN_OUTCOME:
            return AfterEnd.UNKNOWN
        case _C.RECOVER | _C.REJOIN | _C.REJECTED | _C.ABORT:
            # An expired id has no open transaction, and a transaction that ended another way cannot be ended again.
            return AfterEnd.RENEW


def send_failure(error: TransactionError, *, is_transactional: bool) -> TransactionError:
    """Return the failure of a batch as the caller should see it.

    In a transaction, a send given up at its deadline is not an unknown outcome. The transaction is aborted, so the send
    certainly has no effect. Outside transactions there is nothing to abort, so the class ABORT is replaced.
    """
    if is_transactional:
        if error.error_class not in PASSING:
            return error
        seen = failure(error.code, _C.ABORT, error.reason)
    elif error.error_class is _C.ABORT:
        seen = failure(error.code, _C.REJECTED if error.code in TOPIC_GONE else _C.RECOVER, error.reason)
    else:
        return error
    seen.lost_attempts = error.lost_attempts
    return seen


def unknown_commit(error: TransactionError) -> TransactionError:
    """Return the failure of a commit without a definite answer; "try again later" would be wrong advice for it."""
    unknown = failure(error.code, _C.UNKNOWN_OUTCOME, error.reason)
    unknown.lost_attempts, unknown.may_have_committed = error.lost_attempts, True
    return unknown


def still_unknown() -> TransactionError:
    """Return the failure of a call made while the outcome of a commit is unknown."""
    unknown = failure(
        ErrorCode.INVALID_TXN_STATE,
        _C.UNKNOWN_OUTCOME,
        "the outcome of the last commit is not known, and nothing can follow before it is",
    )
    unknown.may_have_committed = True
    return unknown


def interrupted_transaction() -> TransactionError:
    """Return the failure of a transaction in which a call was interrupted; it is unknown which records that call
    took."""
    reason = "a call in the transaction was interrupted, so that the transaction can only be aborted"
    return failure(ErrorCode.TRANSACTION_ABORTABLE, _C.ABORT, reason)


def interrupted_sends() -> TransactionError:
    """Return the failure of a plain producer that was interrupted while it worked on its records."""
    reason = "a call was interrupted, and records sent since the last flush may be in the log or not"
    unknown = failure(ErrorCode.UNKNOWN_SERVER_ERROR, _C.UNKNOWN_OUTCOME, reason)
    unknown.action = "Look in the topic which of them are there before you send them again; the producer goes on."
    return unknown


def closed_unknown() -> TransactionError:
    """Return the failure of a question about a commit to a producer that was closed before the answer came."""
    reason = "the producer was closed before the outcome of its last commit was known"
    unknown = failure(ErrorCode.INVALID_REQUEST, _C.UNKNOWN_OUTCOME, reason)
    unknown.action = "Read the topic as read_committed to see whether the records are there."
    unknown.may_have_committed = True
    return unknown


def is_over(error: TransactionError) -> bool:
    """Return True if the refusal of a commit says that the server had aborted the transaction, so that it cannot be
    committed any more."""
    return error.error_class is _C.ABORT and error.code in ABORTED_BY_SERVER


def nothing_open() -> TransactionError:
    """Return the failure of a call that needs an open transaction."""
    reason = "no transaction is open: use `with producer.transaction() as txn`"
    return failure(ErrorCode.INVALID_TXN_STATE, _C.REJECTED, reason)


def unconfirmed_abort(
    abort: TransactionError, commit: TransactionError | None, *, has_timeout: bool
) -> TransactionError:
    """Return the failure of an unconfirmed abort, and of the refused `commit` before it, if there was one.

    The refusal is returned, unless an earlier attempt of the commit may still succeed.
    """
    then = "the next transaction of this transactional id ends it first."
    if has_timeout:
        then = "the server aborts the transaction at its timeout at the latest."
    abort.action = f"Nothing is visible; {then}"
    if commit is None:
        return abort
    if not commit.may_have_committed:
        commit.add_note(f"the abort that followed was not confirmed: {abort}")
        return commit
    unknown = failure(
        abort.code,
        _C.UNKNOWN_OUTCOME,
        f"the commit was refused ({commit.reason}), and what would tell whether an earlier attempt of it can still "
        f"succeed was not answered: {abort.reason}",
    )
    unknown.may_have_committed = True
    return unknown


def unawaited_sends(count: int) -> TransactionError:
    """Return the failure of a commit before which the caller forgot to await sends."""
    sends = "a send was" if count == 1 else f"{count} sends were"
    return rejected(
        ErrorCode.INVALID_TXN_STATE,
        f"{sends} not awaited, so the transaction lacks records and is aborted: write `await txn.send(...)`",
    )
