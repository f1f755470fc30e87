"""What a producer does, without sockets, clocks or threads: the core under the blocking shell and every later one.

A shell sets a goal (`begin`, `flush`, `commit`, ...), then repeats three steps until there is no `goal` any more: start
what `transmissions` returns, wait for an answer or until `flights.wake_ms`, hand the answer to `on_answer`.
`take_result` then says how the goal ended. Records are taken in between with `append`.

The rules, each with its test:
- What was not sent by the commit goes with it if it fits, in one Transact, which often is all of the transaction.
- Else a commit waits for every batch. If one failed, EndTxn is not sent; the transaction is aborted and the first
  failure is the result (KAFKA-9279).
- EndTxn names the last sequence of every partition, so the server commits nothing it does not hold (design 6).
- The answer to a commit is the identity for the next transaction (KIP-890, transaction version 2).
- A commit that is answered "fenced" is followed by one abort: if that succeeds, it was the server itself that had
  aborted the transaction (its timeout), and the producer goes on; else a newer producer runs (spec transactions 2.6).
- A transaction that nothing was sent for ends without a request. Nothing at all is sent once the producer is fenced.
- A lost answer is asked for again with the same request until the deadline. After that the outcome is unknown: a commit
  stays open until `resolve` asks again; an abort is sent again before the next transaction.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from coordinator_api.v1 import transaction_pb2 as txn
from coordinator_client import rules
from coordinator_client.batching import SealedBatch, TopicWriter
from coordinator_client.ending import Ending, EndReply, identity_in
from coordinator_client.errors import Loss, OutcomeUnknown, TransactionError, failure, failure_of, rejected
from coordinator_client.flights import Flights, Transmission
from coordinator_client.methods import END_TXN, INIT_PRODUCER_ID, PREPARE_TRANSACTION, TRANSACT, Reply
from coordinator_client.producer_requests import end_request, init_request, prepare_request
from coordinator_client.random_source import RandomSource
from coordinator_client.retrying_call import RetryingCall
from coordinator_client.rows import Row
from coordinator_client.rules import AfterEnd, AfterSend
from coordinator_client.sending import CorePlan, Sender
from coordinator_client.state import Goal, Identity, ProducerStatus, step
from coordinator_client.transaction_offsets import TransactionOffsets
from coordinator_protocol.errors import ErrorClass, ErrorCode, Method

_S = ProducerStatus

_READY = ProducerStatus.READY
_IN_TRANSACTION = ProducerStatus.IN_TRANSACTION
_COMMITTING = ProducerStatus.COMMITTING
_UNINITIALISED = ProducerStatus.UNINITIALISED
_CLOSED = ProducerStatus.CLOSED
_COMMIT = Goal.COMMIT
"""What every transaction asks for has names of its own: to find a member in its class takes 0.1 us."""


class ProducerCore:
    """One producer: its status, its identity, its requests. Not for two threads at once."""

    def __init__(self, plan: CorePlan, random_source: RandomSource) -> None:
        self.status = _S.UNINITIALISED
        self.identity: Identity | None = None
        self.csn = 0
        """Commit sequence number of the last transaction that ended; 0 = none did yet."""
        self.prepared: Identity | None = None
        """What names the transaction that waits for an outside decision; None = none does."""
        self.failure: TransactionError | None = None
        """Why the open transaction, or what a plain producer sent since the last flush, cannot succeed."""
        self.is_transactional: Final = plan.transactional_id is not None
        """Whether records go out in transactions only."""
        self._plan = plan
        self._random_source = random_source
        self.flights = Flights(random_source)
        """The requests on their way: they say when to look at them again, and which nobody waits for any more."""
        self._sender = Sender(plan, flights=self.flights, random_source=random_source, on_failed=self._send_failed)
        self.writers: Final[Mapping[str, TopicWriter]] = self._sender.waiting.writers
        """Where the records of a topic go; one that is missing must be learned first, see `learn`."""
        self.goal: Goal | None = None
        """What the caller waits for; None = it is reached, or given up."""
        self._result: TransactionError | None = None
        self._more_failures = 0
        self._is_transaction_sent = False
        self._expected: Identity | None = None
        self._init_request: txn.InitProducerIdRequest | None = None
        self._ending: Ending | None = None
        self._fatal: TransactionError | None = None

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to start and nothing to wait for."""
        return self.goal is None and not (self._sender.has_ready or self.flights or self.is_full)

    @property
    def is_full(self) -> bool:
        """Whether enough waits to be sent before more is taken."""
        return self._sender.waiting.buffered_bytes >= self._plan.buffer_bytes_max

    @property
    def is_unresolved(self) -> bool:
        """Whether a commit was sent and its outcome is not known; an abort may have been begun to find out."""
        is_asking = self.status is _S.ABORTING and self.failure is not None and self.failure.may_have_committed
        return self.goal is None and (self.status is _S.COMMITTING or is_asking)

    def init(self) -> None:
        """Goal: an identity. For a transactional id this fences every earlier producer, and aborts what it left
        open."""
        self._set_goal(Goal.INIT)

    def recover(self) -> None:
        """Goal: as `init`, but what an earlier producer left open is kept, and `prepared` names it."""
        if not self.is_transactional or self.status is not _S.UNINITIALISED:
            raise rejected(
                ErrorCode.INVALID_TXN_STATE,
                "recovery comes before everything else, and is for a producer with a transactional_id",
            )
        self._set_goal(Goal.RECOVER)

    def begin(self) -> None:
        """Goal: an open transaction, after whatever must be done first (identity, an abort that is still due)."""
        if self.status is _READY:
            assert self.goal is None, f"{self.goal} is still being worked on"
            self._open()
            return
        if self.status is _S.PREPARED:
            raise rejected(ErrorCode.INVALID_TXN_STATE, "a transaction is prepared; commit it or abort it first")
        if self.status in (_S.IN_TRANSACTION, _S.MUST_ABORT):
            raise rejected(ErrorCode.INVALID_TXN_STATE, "a transaction is open already; end it before the next one")
        self._set_goal(Goal.BEGIN)

    def flush(self) -> None:
        """Goal: every record taken so far is in the log."""
        self._sender.waiting.seal_all()
        self._set_goal(Goal.FLUSH)

    def prepare(self) -> None:
        """Goal: the transaction waits for an outside decision, and `prepared` names it; else it is aborted, and the
        result says why."""
        self._check_open()
        self._sender.waiting.seal_all()
        if not (self._is_transaction_sent or self._sender.has_ready):
            raise rejected(ErrorCode.INVALID_TXN_STATE, "nothing was sent in the transaction, so there is no decision")
        self._set_goal(Goal.PREPARE)

    def commit(self) -> None:
        """Goal: the transaction is committed; else the result says why it was aborted, or that nobody knows."""
        if self.status is not _IN_TRANSACTION:
            if self.status is _READY or (self.status is _UNINITIALISED and self.failure is None):
                raise rules.nothing_open()
            if self.status is _COMMITTING:
                raise rules.still_unknown()
        self._sender.waiting.seal_all()
        self._set_goal(_COMMIT)

    def abort(self) -> None:
        """Goal: nothing of the transaction will ever be visible."""
        self._set_goal(Goal.ABORT)

    def resolve(self) -> None:
        """Goal: the outcome of a commit that was not known. Repeats the same request."""
        if not self.is_unresolved:
            raise rejected(ErrorCode.INVALID_TXN_STATE, "there is no commit whose outcome is unknown")
        self._set_goal(Goal.RESOLVE)

    def take_result(self) -> TransactionError | None:
        """Return how the last goal ended: None = as wanted."""
        result, self._result = self._result, None
        return result

    def interrupt(self) -> None:
        """Give the goal up where it is. What was sent may take effect; an end of a transaction stays unresolved."""
        if self.goal is None:
            return
        self.goal = None
        if self.status is _S.INITIALISING:
            self.flights.cancel_all()
            self._step(_S.UNINITIALISED)
        elif self.status is _S.PREPARING:
            self.flights.cancel_all()
            # Nobody has noted it yet, so nobody can have decided to commit it.
            interrupted = f"{Method.PREPARE_TRANSACTION} was interrupted"
            self._note_failure(failure(ErrorCode.TRANSACTION_ABORTABLE, ErrorClass.ABORT, interrupted))
            self._step(_S.MUST_ABORT)
        elif self.status in (_S.COMMITTING, _S.ABORTING):
            self.flights.cancel_all()
            assert self._ending is not None, "an end that is under way was begun"
            self._ending.is_lost = True

    def close(self) -> None:
        """Send nothing any more."""
        if self.status is not _S.CLOSED:
            self._close(rejected(ErrorCode.INVALID_REQUEST, "the producer is closed; open a new one"))

    def learn(self, topic: str, now_ms: int) -> None:
        """Goal: the partitions of the topic are known, so that it has a writer."""
        self._set_goal(Goal.LEARN)
        self._sender.describe(topic, self._learned, now_ms)

    def _learned(self, error: TransactionError | None) -> None:
        if self.goal is Goal.LEARN:
            self._finish(error)

    def append(self, writer: TopicWriter, row: Row, partition: int | None) -> bool:
        """Take a record; return whether something can be sent. Raises: why no record can be taken."""
        if self.status is not _IN_TRANSACTION:
            self._check_open()
        waiting = self._sender.waiting
        return waiting.append(writer, row, partition) or waiting.buffered_bytes >= self._plan.buffer_bytes_max

    def commit_offsets(self, offsets: TransactionOffsets) -> None:
        """Let a consumer's offsets commit with the transaction. Raises: why nothing can be taken."""
        self._check_open()
        self._sender.offsets.append(offsets)

    def transmissions(self, now_ms: int) -> list[Transmission]:
        """Return the attempts to start now."""
        if self.is_full and self._sender.makes_no_room:
            # Many open batches can fill the buffer without one of them being full. While others are on their way these
            # can still grow: cut each time a little room came back, they would all be small.
            self._sender.waiting.seal_all()
        self.flights.lose_overdue(now_ms)
        self._advance(now_ms)
        self._send(now_ms)
        return self.flights.transmissions(now_ms)

    def on_answer(self, flight: int, attempt: int, answer: Reply | Loss, now_ms: int) -> None:
        """Take what became of an attempt."""
        self.flights.on_answer(flight, attempt, answer, now_ms)
        self._advance(now_ms)

    def _set_goal(self, goal: Goal) -> None:
        assert self.goal is None, f"{self.goal} is still being worked on"
        self._result = None
        self.goal = goal

    def _finish(self, result: TransactionError | None) -> None:
        if result is not None and self._more_failures:
            result.add_note(f"further sends that failed: {self._more_failures}")
        self._more_failures = 0
        self.goal, self._result = None, result

    def _step(self, to: ProducerStatus) -> None:
        self.status = step(self.status, to)
        if to is _READY or to is _UNINITIALISED:
            self.prepared = None

    def _check_open(self) -> None:
        if self._fatal is not None:
            raise self._fatal
        if not self.is_transactional:
            return
        if self.failure is not None:
            raise self.failure
        if self.status is _S.PREPARED:
            raise rejected(ErrorCode.INVALID_TXN_STATE, "the transaction is prepared and takes no more")
        if self.status is not _S.IN_TRANSACTION:
            raise rules.nothing_open()

    def _advance(self, now_ms: int) -> None:
        """Do whatever the goal needs next and can be done without an answer."""
        if self.status is _CLOSED:
            if self.goal is not None:
                self._finish(None if self.goal is Goal.ABORT else self._fatal)
            return
        match self.goal:
            case Goal.COMMIT | Goal.RESOLVE:
                self._advance_commit(now_ms)
            case Goal.INIT | Goal.RECOVER:
                if self.status is _S.UNINITIALISED:
                    self._start_init(now_ms)
                elif self.status is not _S.INITIALISING:
                    self._finish(None)
            case Goal.BEGIN:
                self._advance_begin(now_ms)
            case Goal.FLUSH:
                self._advance_flush(now_ms)
            case Goal.PREPARE:
                self._advance_prepare(now_ms)
            case Goal.ABORT:
                self._advance_abort(now_ms)
            case None:
                # A plain producer begins to send when a batch is full, without anybody waiting for it.
                self._init_for_sending(now_ms)

    def _advance_begin(self, now_ms: int) -> None:
        match self.status:
            case _S.UNINITIALISED:
                self._start_init(now_ms)
            case _S.READY:
                self._open()
                self._finish(None)
            case _S.ABORTING:
                self._end_again(now_ms)
            case _S.COMMITTING:
                self._finish(rules.still_unknown())

    def _open(self) -> None:
        self._step(_IN_TRANSACTION)
        self.failure, self._is_transaction_sent, self._more_failures = None, False, 0

    def _advance_flush(self, now_ms: int) -> None:
        if self.failure is not None and (self.is_transactional or self._sender.is_drained):
            result = self.failure
            if not self.is_transactional:
                self.failure = None
            self._finish(result)
        elif self._sender.is_drained:
            self._finish(None)
        else:
            self._init_for_sending(now_ms)

    def _advance_prepare(self, now_ms: int) -> None:
        match self.status:
            case _S.IN_TRANSACTION:
                if self._sender.is_drained:
                    self._start_prepare(now_ms)
            case _S.PREPARED:
                self._finish(None)
            case _S.MUST_ABORT | _S.ABORTING:
                self._advance_abort(now_ms)
            case _S.READY | _S.UNINITIALISED:
                self._finish(self.failure)

    def _advance_commit(self, now_ms: int) -> None:
        if self.status is _IN_TRANSACTION:
            sender = self._sender
            if not sender.is_drained:
                if not sender.requests_in_flight and sender.fits_one_request:
                    self._start_transact(now_ms)
                return
            if self._is_transaction_sent:
                self._start_end(committed=True, now_ms=now_ms)
                return
            self._step(_READY)
        match self.status:
            case _S.READY | _S.UNINITIALISED:
                self._finish(self.failure)
            case _S.MUST_ABORT:
                self._advance_abort(now_ms)
            case _S.PREPARED:
                self._start_end(committed=True, now_ms=now_ms)
            case _S.COMMITTING | _S.ABORTING:
                self._end_again(now_ms)

    def _advance_abort(self, now_ms: int) -> None:
        match self.status:
            case _S.IN_TRANSACTION | _S.MUST_ABORT | _S.PREPARED:
                self._drop_sends()
                if self._is_transaction_sent:
                    self._start_end(committed=False, now_ms=now_ms)
                else:
                    self._sender.waiting.restart_sequences()
                    self._step(_S.READY)
                    self._finish_abort()
            case _S.ABORTING:
                self._end_again(now_ms)
            case _S.READY | _S.UNINITIALISED:
                self._finish(None)
            case _S.COMMITTING:
                self._finish(rules.still_unknown())

    def _finish_abort(self) -> None:
        self._finish(None if self.goal is Goal.ABORT else self.failure)

    def _send(self, now_ms: int) -> None:
        if (self.status is not _IN_TRANSACTION and self.status is not _READY) or not self._sender.has_ready:
            return
        # Offsets alone wait for the commit, and what is left at the commit goes with it.
        is_offsets = self.goal is None and not self._is_transaction_sent and not self._sender.waiting.ready
        if is_offsets or (self.goal is Goal.COMMIT and self._sender.fits_one_request):
            return
        assert self.identity is not None, "a producer that may send has an identity"
        self._is_transaction_sent = True
        self._sender.send_ready(self.identity, now_ms)

    def _drop_sends(self) -> None:
        # Requests on their way need no answer: what reaches the log after the abort has an epoch that the abort ended.
        self.flights.cancel_all()
        self._sender.drop()

    def _init_for_sending(self, now_ms: int) -> None:
        if not self.is_transactional and self.status is _S.UNINITIALISED and self._sender.waiting.ready:
            self._start_init(now_ms)

    def _start_init(self, now_ms: int) -> None:
        keeps = self.goal is Goal.RECOVER
        if self._init_request is None or self._init_request.keep_prepared != keeps:
            self._init_request = init_request(self._plan, self._sender.header(), self._expected, keep_prepared=keeps)
        self._step(_S.INITIALISING)
        call = RetryingCall(INIT_PRODUCER_ID, self._init_request, deadlines=self._plan.deadlines, now_ms=now_ms)
        self.flights.start(call, self._initialised)

    def _initialised(self, end: txn.InitProducerIdResponse | TransactionError, now_ms: int) -> None:
        if isinstance(end, TransactionError):
            # Given up, not answered: the next try repeats this very request, so that it cannot fence itself.
            if isinstance(end, OutcomeUnknown):
                end.action = "Try again: the same request is repeated, so it cannot fence its own first attempt."
            self._init_failed(end)
            return
        self._init_request = None
        error = failure_of(Method.INIT_PRODUCER_ID, end)
        if error is not None:
            self._init_failed(error)
            return
        self._expected = None
        self._adopt(Identity(end.producer_id, end.producer_epoch))
        if not end.HasField("ongoing_producer_id"):
            self._step(_S.READY)
            return
        self.prepared = Identity(end.ongoing_producer_id, end.ongoing_producer_epoch)
        self.failure, self._is_transaction_sent = None, True
        self._step(_S.PREPARED)

    def _init_failed(self, error: TransactionError) -> None:
        if error.error_class in (ErrorClass.FENCED, ErrorClass.MISCONFIGURED):
            self._close(error)
            return
        self._step(_S.UNINITIALISED)
        if self.goal in (Goal.INIT, Goal.RECOVER, Goal.BEGIN):
            self._finish(error)
            return
        self._sender.waiting.drop_unsent()
        self._note_failure(error)

    def _adopt(self, identity: Identity) -> None:
        self.identity = identity
        self._sender.waiting.restart_sequences()

    def _start_prepare(self, now_ms: int) -> None:
        assert self.identity is not None, "a transaction was sent, so there is an identity"
        request = prepare_request(self._plan, self._sender.header(), self.identity, self._sender.waiting)
        self._step(_S.PREPARING)
        call = RetryingCall(PREPARE_TRANSACTION, request, deadlines=self._plan.deadlines, now_ms=now_ms)
        self.flights.start(call, lambda end, _: self._after_prepare(end))

    def _after_prepare(self, end: txn.PrepareTransactionResponse | TransactionError) -> None:
        error = end if isinstance(end, TransactionError) else failure_of(Method.PREPARE_TRANSACTION, end)
        if error is None:
            assert isinstance(end, txn.PrepareTransactionResponse), "a failure is no reply"
            self.prepared = Identity(end.ongoing_producer_id, end.ongoing_producer_epoch)
            self._step(_S.PREPARED)
            return
        # Whatever is wrong, and even if it was prepared and the answer is lost: nobody has noted it, so it is aborted.
        self._note_failure(rules.send_failure(error, is_transactional=True))
        if error.error_class is ErrorClass.FENCED:
            self._close(error)
        elif rules.after_commit(error.error_class) is AfterEnd.RENEW:
            self._renew()
        else:
            self._step(_S.MUST_ABORT)

    def _start_end(self, *, committed: bool, now_ms: int) -> None:
        assert self.identity is not None, "a transaction was sent, so there is an identity"
        sent = None if self.prepared is not None else self._sender.waiting
        request = end_request(self._plan, self._sender.header(), self.identity, committed=committed, sent=sent)
        self._ending = Ending(END_TXN, request)
        self._step(_COMMITTING if committed else _S.ABORTING)
        self._end_again(now_ms)

    def _start_transact(self, now_ms: int) -> None:
        assert self.identity is not None, "a transaction is open, so there is an identity"
        self._ending = Ending(TRANSACT, self._sender.transact(self.identity), is_all=not self._is_transaction_sent)
        self._is_transaction_sent = True
        self._step(_COMMITTING)
        self._end_again(now_ms)

    def _end_again(self, now_ms: int) -> None:
        """Send the end of the transaction, unless it is on its way: the same request as before, if there was one."""
        if self.flights:
            return
        ending = self._ending
        assert ending is not None, "an end that is repeated was begun"
        call = RetryingCall(ending.rpc, ending.request, deadlines=self._plan.deadlines, now_ms=now_ms)
        self.flights.start(call, partial(self._ended, ending, call))

    def _ended(
        self, ending: Ending, call: RetryingCall[Any, EndReply], end: EndReply | TransactionError, _now_ms: int
    ) -> None:
        error = None
        if isinstance(end, TransactionError) or end.error_code:
            error = ending.failure(end, lost_attempts=call.lost)
        if error is None:
            assert not isinstance(end, TransactionError), "a failure is no reply"
            self._after_success(ending, end)
        elif not ending.committed:
            self._after_abort(rules.after_abort(error.error_class), error)
        else:
            error.may_have_committed = ending.is_lost
            self._is_transaction_sent = ending.leaves_something(error)
            # The reason may be a topic that was deleted, now or by whoever aborted the transaction.
            self._sender.waiting.forget(*ending.topics)
            self._after_commit(rules.after_commit(error.error_class), error)

    def _after_success(self, ending: Ending, reply: EndReply) -> None:
        if ending.committed:
            self._step(_READY)
        else:
            self._after_abort(AfterEnd.DONE, None)
        self.csn = reply.csn
        self._sender.drop()
        identity = identity_in(reply)
        if identity is not None:
            self._adopt(identity)

    def _after_commit(self, after: AfterEnd, error: TransactionError) -> None:
        match after:
            case AfterEnd.ABORT | AfterEnd.RENEW if self.prepared is not None and not rules.is_over(error):
                # It was decided to commit it, and it can be. So this is a defect of somebody, and no reason to abort.
                self._step(_S.PREPARED)
                self._finish(error)
            case AfterEnd.ABORT:
                self._note_failure(error)
                self._step(_S.MUST_ABORT)
            case AfterEnd.RENEW:
                self._note_failure(error)
                self._renew()
            case AfterEnd.CLOSE:
                self._close(error)
            case AfterEnd.UNKNOWN:
                self._finish(rules.unknown_commit(error))

    def _after_abort(self, after: AfterEnd, error: TransactionError | None) -> None:
        match after:
            case AfterEnd.DONE:
                self._step(_S.READY)
                if self.failure is not None:
                    self.failure.may_have_committed = False
                self._after_aborted(None)
            case AfterEnd.RENEW:
                self._renew()
                self._after_aborted(None)
            case AfterEnd.CLOSE:
                assert error is not None, "a success does not close"
                if self.failure is not None:
                    error.may_have_committed = self.failure.may_have_committed
                    error.__cause__ = self.failure
                self._close(error)
                self._finish(error)
            case AfterEnd.UNKNOWN | AfterEnd.ABORT:
                self._after_aborted(error)

    def _after_aborted(self, error: TransactionError | None) -> None:
        """End the goal the abort was for. BEGIN goes on by itself; an abort nobody confirmed is due before the next."""
        if error is not None:
            has_timeout = not self._plan.two_phase_commit and self.goal is not Goal.PREPARE
            is_of_commit = self.goal in (Goal.PREPARE, Goal.COMMIT, Goal.RESOLVE)
            self._finish(
                rules.unconfirmed_abort(error, self.failure if is_of_commit else None, has_timeout=has_timeout)
            )
        elif self.goal is not Goal.BEGIN:
            self._finish(None if self.goal is Goal.ABORT else self.failure)

    def _send_failed(self, error: TransactionError, batch: SealedBatch | None) -> None:
        """Take note of a batch, or of offsets (None), that failed for good."""
        after = rules.after_send(error, is_transactional=self.is_transactional)
        if batch is not None and error.code in rules.TOPIC_GONE:
            self._sender.waiting.forget(batch.queue.topic.name)
        if self.is_transactional and self.status is not _S.IN_TRANSACTION:
            # Another batch of the same answer has ended the transaction already.
            self._more_failures += 1
            return
        self._note_failure(rules.send_failure(error, is_transactional=self.is_transactional))
        match after:
            case AfterSend.GO_ON if batch is not None:
                self._sender.waiting.take_back_sequence(batch, self.identity)
            case AfterSend.ABORT:
                self._drop_sends()
                self._step(_S.MUST_ABORT)
            case AfterSend.RENEW if self.status in (_S.READY, _S.IN_TRANSACTION):
                self._renew()
            case AfterSend.CLOSE:
                self._close(error)

    def _renew(self) -> None:
        """Give the identity up; the next use asks for a new one, naming the old, which a rival's would not match."""
        if self.is_transactional:
            self._drop_sends()
            self._expected = self.identity
        self.identity = None
        self._sender.waiting.restart_sequences()
        self._step(_S.UNINITIALISED)

    def _note_failure(self, error: TransactionError | None) -> None:
        assert error is not None, "a success is no failure"
        if self.is_transactional:
            # Whoever asks for a topic waits no longer: what was on its way is dropped with the transaction.
            self._learned(error)
        if self.failure is None:
            self.failure = error
        else:
            self._more_failures += 1

    def _close(self, error: TransactionError | None) -> None:
        assert error is not None, "whoever closes says why"
        self._fatal = error
        self._drop_sends()
        self._step(_S.CLOSED)
