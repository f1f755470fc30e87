"""What a producer does after an error, decided by the class of the error alone: three total functions, without state.

Source: spec ecosystem 1 (one class, one action); spec transactions 2.6, 2.9 and 3; KIP-360, KIP-588, KIP-890.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

from coordinator_client.errors import ABORTED_BY_SERVER, PASSING, TOPIC_GONE, TransactionError, failure
from coordinator_protocol.errors import ErrorClass, ErrorCode

_C = ErrorClass

_EXPIRED: Final = frozenset({_C.RECOVER, _C.REJOIN})


class AfterSend(Enum):
    """What a batch that failed for good means for its producer."""

    GO_ON = auto()
    """The batch certainly is not in the log: its sequence numbers are used again for the next one."""
    ABORT = auto()
    """The transaction must be aborted."""
    RENEW = auto()
    """The identity is of no use any more: ask for a new one, and begin at sequence 0."""
    CLOSE = auto()
    """A newer producer is running: send nothing more."""


class AfterEnd(Enum):
    """What the answer to EndTxn means for the transaction."""

    DONE = auto()
    """The transaction ended as asked; the answer holds the identity for the next one."""
    ABORT = auto()
    """The commit was refused: abort, then go on. Where the server had aborted it already, the abort is answered with
    the identity to go on with."""
    RENEW = auto()
    """The transaction is over, and so is the identity: ask for a new one."""
    CLOSE = auto()
    """A newer producer is running, or this one lacks the permission: send nothing more."""
    UNKNOWN = auto()
    """No definite answer before the deadline."""


def after_send(error: TransactionError, *, is_transactional: bool) -> AfterSend:
    """Return what a failed batch means."""
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
    """Return what the answer to a commit means."""
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
    """Return what the answer to an abort means. It never is "abort" again: that would loop for ever (KAFKA-19250)."""
    match what:
        case _C.NONE:
            return AfterEnd.DONE
        case _C.FENCED | _C.MISCONFIGURED:
            return AfterEnd.CLOSE
        case _C.RETRY | _C.REFRESH | _C.UNKNOWN_OUTCOME:
            return AfterEnd.UNKNOWN
        case _C.RECOVER | _C.REJOIN | _C.REJECTED | _C.ABORT:
            # An id that expired has no open transaction, and one that ended another way cannot be ended again.
            return AfterEnd.RENEW


def send_failure(error: TransactionError, *, is_transactional: bool) -> TransactionError:
    """Return the failure of a batch as the caller should see it.

    In a transaction a send that was given up at its deadline is no unknown outcome: the transaction is aborted, so it
    certainly has no effect. Outside, "abort" is advice that nobody can follow.
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
    """Return the failure of a call that comes while the outcome of a commit is not known."""
    unknown = failure(
        ErrorCode.INVALID_TXN_STATE,
        _C.UNKNOWN_OUTCOME,
        "the outcome of the last commit is not known, and nothing can follow before it is",
    )
    unknown.may_have_committed = True
    return unknown


def interrupted_transaction() -> TransactionError:
    """Return the failure of a transaction in which a call was interrupted: what it had taken is not known."""
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
    """Return whether the refusal of a commit says that the server had aborted the transaction, so that nothing can
    commit it."""
    return error.error_class is _C.ABORT and error.code in ABORTED_BY_SERVER


def nothing_open() -> TransactionError:
    """Return the failure of a call that needs an open transaction."""
    reason = "no transaction is open: use `with producer.transaction() as txn`"
    return failure(ErrorCode.INVALID_TXN_STATE, _C.REJECTED, reason)


def unconfirmed_abort(
    abort: TransactionError, commit: TransactionError | None, *, has_timeout: bool
) -> TransactionError:
    """Return the failure of an abort that nobody confirmed, and of the refused `commit` before it, if there was one.

    The refusal stays in front, unless an earlier attempt of the commit may still succeed.
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
