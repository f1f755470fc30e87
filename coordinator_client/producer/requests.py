"""Requests of a producer other than sends: for its identity (InitProducerId), and for the end of its transactions.

A lost InitProducerId is repeated unchanged, so that a producer cannot fence itself. A request that replaces an unusable
identity names it. If a newer producer has taken over the id meanwhile, the named identity does not match, and that
producer is not fenced.

A transaction ends with EndTxn, or with a Transact that holds the records not sent before, often all of them. The same
request is sent until it has a final answer. This module decides the consequences of each answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from coordinator_api.v1 import transaction_pb2 as txn
from coordinator_client.calls import END_TXN, INIT_PRODUCER_ID, PREPARE_TRANSACTION, TRANSACT, RetryingCall, Rpc
from coordinator_client.errors import NOTHING_CHANGED, PASSING, OutcomeUnknown, TransactionError, failure
from coordinator_client.producer import rules
from coordinator_client.producer.progress import ProducerProgress
from coordinator_client.producer.rules import AfterEnd
from coordinator_client.producer.state import Goal, ProducerStatus
from coordinator_client.values import Identity
from coordinator_protocol.errors import ErrorClass, ErrorCode
from coordinator_protocol.methods import Method

_S = ProducerStatus


class IdentityRequests:
    """Asks for the identity of one producer."""

    def __init__(self, progress: ProducerProgress) -> None:
        self._progress = progress
        self._given_up: Identity | None = None
        """Identity named by the next request, because the new one replaces it."""
        self._request: txn.InitProducerIdRequest | None = None
        """Request that was sent and is not answered yet."""

    def start(self, now_ms: int) -> None:
        """Ask for an identity; under the goal RECOVER without aborting the open transaction of an earlier producer."""
        progress = self._progress
        keeps = progress.goal is Goal.RECOVER
        if self._request is None or self._request.keep_prepared != keeps:
            self._request = self._new_request(keep_prepared=keeps)
        progress.step(_S.INITIALISING)
        call = RetryingCall(INIT_PRODUCER_ID, self._request, deadlines=progress.plan.deadlines, now_ms=now_ms)
        progress.flights.start(call, self._ended)

    def renew(self) -> None:
        """Give up the identity; the next use asks for a new one."""
        progress = self._progress
        if progress.is_transactional:
            progress.drop_sends()
            # The identity is None if an earlier call was interrupted after `adopt`.
            self._given_up = progress.identity or self._given_up
        progress.adopt(None)
        progress.step(_S.UNINITIALISED)

    def _new_request(self, *, keep_prepared: bool) -> txn.InitProducerIdRequest:
        plan = self._progress.plan
        request = txn.InitProducerIdRequest(header=self._progress.sender.header())
        if plan.transactional_id is not None:
            request.transactional_id = plan.transactional_id
            request.transaction_timeout_ms = plan.transaction_timeout_ms
            request.enable_2pc = plan.two_phase_commit
            request.keep_prepared = keep_prepared
            if self._given_up is not None:
                request.expected_producer_id, request.expected_producer_epoch = self._given_up
        return request

    def _ended(self, end: txn.InitProducerIdResponse | TransactionError, _now_ms: int) -> None:
        if isinstance(end, TransactionError):
            if isinstance(end, OutcomeUnknown):
                end.action = "Try again: the same request is repeated, so it cannot fence its own first attempt."
            if end.error_class not in PASSING:
                # Without a definite answer, the next try repeats this very request.
                self._request = None
            self._failed(end)
            return
        self._succeeded(end)
        # Cleared last: if an interruption comes before this line, the request is repeated and gets the same answer.
        self._given_up = self._request = None

    def _succeeded(self, reply: txn.InitProducerIdResponse) -> None:
        progress = self._progress
        progress.adopt(Identity(reply.producer_id, reply.producer_epoch))
        if not reply.HasField("ongoing_producer_id"):
            progress.step(_S.READY)
            return
        progress.prepared = Identity(reply.ongoing_producer_id, reply.ongoing_producer_epoch)
        progress.failure, progress.is_transaction_sent, progress.is_kept = None, True, True
        progress.step(_S.PREPARED)

    def _failed(self, error: TransactionError) -> None:
        progress = self._progress
        if error.error_class in (ErrorClass.FENCED, ErrorClass.MISCONFIGURED):
            progress.close_because(error)
            return
        progress.step(_S.UNINITIALISED)
        if progress.goal in (Goal.INIT, Goal.RECOVER, Goal.BEGIN):
            progress.finish(error)
            return
        progress.sender.waiting.drop_unsent()
        progress.note_failure(error)


EndRequest: TypeAlias = txn.EndTxnRequest | txn.TransactRequest
EndReply: TypeAlias = txn.EndTxnResponse | txn.TransactResponse


_READY = ProducerStatus.READY
_COMMITTING = ProducerStatus.COMMITTING
"""Module-level aliases of members used in every transaction: looking one up in its enum class takes 0.1 us."""


@dataclass(slots=True)
class EndAttempt:
    """The requested end of one transaction."""

    rpc: Rpc[Any, Any]
    request: EndRequest
    reply: EndReply | None = None
    """Successful answer; None until there is one."""
    is_all: bool = False
    """True if the request is the whole transaction, so that a refusal leaves nothing to abort."""
    is_lost: bool = False
    """True if an attempt may have been carried out without an answer reaching this client."""

    @property
    def committed(self) -> bool:
        """True if a commit was requested, False for an abort."""
        return self.request.committed

    @property
    def next_identity(self) -> Identity | None:
        """Identity of the next transaction, if the answer names one."""
        reply = self.reply
        if reply is None or not (
            isinstance(reply, txn.TransactResponse)
            or (reply.HasField("producer_id") and reply.HasField("producer_epoch"))
        ):
            return None
        return Identity(reply.producer_id, reply.producer_epoch)

    def failure(self, error: TransactionError) -> TransactionError:
        """Return the failure of the transaction that a failed call causes."""
        self.is_lost = self.is_lost or error.lost_attempts > 0
        if self.committed and error.error_class in NOTHING_CHANGED and not self.is_lost:
            # Given up, and certainly never carried out: the outcome is known, as after a send that was given up.
            return rules.send_failure(error, is_transactional=True)
        return error

    def leaves_something(self, error: TransactionError) -> bool:
        """Return True if an abort must follow this refusal.

        If an attempt may still arrive, the abort ends the epoch under which it would be accepted. If the server has
        aborted the transaction meanwhile, its answer to the abort holds the next identity.
        """
        return not self.is_all or self.is_lost or error.code == ErrorCode.INVALID_PRODUCER_EPOCH


class TransactionEnd:
    """Prepares and ends the transactions of one producer."""

    def __init__(self, progress: ProducerProgress, identity_requests: IdentityRequests) -> None:
        self._progress = progress
        self._identity_requests = identity_requests
        self.ending: EndAttempt | None = None
        """End of the transaction, set before it is sent and kept until the next transaction begins."""
        self._call: RetryingCall[Any, Any] | None = None
        """Latest call that sends it, with its attempts."""

    def prepare(self, now_ms: int) -> None:
        """Prepare the transaction, so that everything sent can be committed after any crash."""
        progress, plan = self._progress, self._progress.plan
        assert plan.transactional_id is not None, "only transactions are prepared"
        assert progress.identity is not None, "a transaction was sent, so there is an identity"
        request = txn.PrepareTransactionRequest(
            header=progress.sender.header(),
            transactional_id=plan.transactional_id,
            producer_id=progress.identity.producer_id,
            producer_epoch=progress.identity.producer_epoch,
            last_sequences=progress.sender.waiting.last_sequences(),
        )
        progress.step(_S.PREPARING)
        call = RetryingCall(PREPARE_TRANSACTION, request, deadlines=plan.deadlines, now_ms=now_ms)
        progress.flights.start(call, self._prepared)

    def end(self, *, committed: bool, now_ms: int) -> None:
        """Commit or abort with EndTxn. A commit names the last sequences that the log must hold, unless they were
        checked when the transaction was prepared."""
        progress, plan = self._progress, self._progress.plan
        assert plan.transactional_id is not None, "only transactions end"
        assert progress.identity is not None, "a transaction was sent, so there is an identity"
        is_checked = committed and progress.prepared is None
        request = txn.EndTxnRequest(
            header=progress.sender.header(),
            transactional_id=plan.transactional_id,
            producer_id=progress.identity.producer_id,
            producer_epoch=progress.identity.producer_epoch,
            committed=committed,
            last_sequences=progress.sender.waiting.last_sequences() if is_checked else (),
        )
        self.ending = EndAttempt(END_TXN, request)
        progress.step(_COMMITTING if committed else _S.ABORTING)
        self.send(now_ms)

    def transact(self, now_ms: int) -> None:
        """Commit with one Transact that holds everything that waits."""
        progress = self._progress
        assert progress.identity is not None, "a transaction is open, so there is an identity"
        request = progress.sender.transact(progress.identity)
        self.ending = EndAttempt(TRANSACT, request, is_all=not progress.is_transaction_sent)
        progress.is_transaction_sent = True
        progress.step(_COMMITTING)
        self.send(now_ms)

    def send(self, now_ms: int) -> None:
        """Send the end of the transaction, unless it is in flight. A repetition is the same request."""
        progress, ending = self._progress, self.ending
        if progress.flights.has_other_than(progress.sender.refresh_flight):
            return
        assert ending is not None, "an end that is repeated was begun"
        call = self._call = RetryingCall(ending.rpc, ending.request, deadlines=progress.plan.deadlines, now_ms=now_ms)
        progress.flights.start(call, partial(self._ended, ending))

    def interrupt(self) -> None:
        """Give up the end as it stands: an attempt of it may still be carried out. A Transact that was waiting for a
        throttle pause had no attempt yet, and counts as refused."""
        ending, call = self.ending, self._call
        assert ending is not None, "an end that is under way was begun"
        if ending.rpc is TRANSACT and not ending.is_lost and call is not None and not call.attempts:
            unsent = f"{Method.TRANSACT} was interrupted before it was sent"
            self._commit_refused(ending, failure(ErrorCode.TRANSACTION_ABORTABLE, ErrorClass.ABORT, unsent))
        else:
            ending.is_lost = True

    def _prepared(self, end: txn.PrepareTransactionResponse | TransactionError, _now_ms: int) -> None:
        progress = self._progress
        if not isinstance(end, TransactionError):
            progress.prepared = Identity(end.ongoing_producer_id, end.ongoing_producer_epoch)
            progress.step(_S.PREPARED)
            return
        # The identity of the transaction was not stored, so it is aborted. That holds for every error, even if it was
        # prepared and the answer was lost.
        progress.note_failure(rules.send_failure(end, is_transactional=True))
        if end.error_class is ErrorClass.FENCED:
            progress.close_because(end)
        elif rules.after_commit(end.error_class) is AfterEnd.RENEW:
            self._identity_requests.renew()
        else:
            progress.step(_S.MUST_ABORT)

    def _ended(self, ending: EndAttempt, end: EndReply | TransactionError, _now_ms: int) -> None:
        if not isinstance(end, TransactionError):
            self._succeeded(ending, end)
            return
        error = ending.failure(end)
        if ending.committed:
            self._commit_refused(ending, error)
        else:
            self._abort_ended(rules.after_abort(error.error_class), error)

    def _succeeded(self, ending: EndAttempt, reply: EndReply) -> None:
        # Stored first, in one assignment: from here on the outcome is known even after an interruption.
        ending.reply = reply
        progress = self._progress
        progress.csn = reply.csn
        if isinstance(reply, txn.TransactResponse):
            progress.sender.note_offsets(reply)
        progress.sender.drop()
        identity = ending.next_identity
        if identity is not None:
            progress.adopt(identity)
        if ending.committed:
            progress.step(_READY)
        else:
            self._abort_ended(AfterEnd.DONE, None)

    def _commit_refused(self, ending: EndAttempt, error: TransactionError) -> None:
        progress = self._progress
        error.may_have_committed = ending.is_lost
        progress.is_transaction_sent = ending.leaves_something(error)
        if isinstance(ending.request, txn.TransactRequest):
            # The reason may be a deleted topic: deleted now, or earlier, which aborted the transaction.
            progress.sender.waiting.forget(*{batch.topic for batch in ending.request.batches})
        match rules.after_commit(error.error_class):
            case AfterEnd.ABORT | AfterEnd.RENEW if progress.prepared is not None and not rules.is_over(error):
                # The owner decided to commit it, and it can be committed. So the refusal is a defect somewhere, and no
                # reason to abort.
                self.ending = None
                progress.step(_S.PREPARED)
                progress.finish(error)
            case AfterEnd.ABORT:
                progress.note_failure(error)
                progress.step(_S.MUST_ABORT)
            case AfterEnd.RENEW:
                progress.note_failure(error)
                self._identity_requests.renew()
            case AfterEnd.CLOSE:
                progress.close_because(error)
            case AfterEnd.UNKNOWN:
                progress.finish(rules.unknown_commit(error))

    def _abort_ended(self, after: AfterEnd, error: TransactionError | None) -> None:
        progress = self._progress
        match after:
            case AfterEnd.DONE:
                progress.step(_READY)
                if progress.failure is not None:
                    progress.failure.may_have_committed = False
                self._finish_abort(None)
            case AfterEnd.RENEW:
                self._identity_requests.renew()
                self._finish_abort(None)
            case AfterEnd.CLOSE:
                assert error is not None, "a success does not close"
                if progress.failure is not None:
                    error.may_have_committed = progress.failure.may_have_committed
                    error.__cause__ = progress.failure
                progress.close_because(error)
                progress.finish(error)
            case AfterEnd.UNKNOWN | AfterEnd.ABORT:
                self._finish_abort(error)

    def _finish_abort(self, error: TransactionError | None) -> None:
        """End the goal that the abort served. BEGIN continues by itself; an unconfirmed abort is repeated before the
        next transaction."""
        progress = self._progress
        if error is not None:
            has_timeout = not progress.plan.two_phase_commit and progress.goal is not Goal.PREPARE
            is_of_commit = progress.goal in (Goal.PREPARE, Goal.COMMIT, Goal.RESOLVE)
            refusal = progress.failure if is_of_commit else None
            progress.finish(rules.unconfirmed_abort(error, refusal, has_timeout=has_timeout))
        elif progress.goal is not Goal.BEGIN:
            progress.finish(None if progress.goal is Goal.ABORT else progress.failure)
