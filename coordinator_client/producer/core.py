"""Core of a producer, without sockets, clocks or threads, under the blocking and the asyncio shell.

A shell sets a goal (`begin`, `flush`, `commit`, ...), then repeats three steps until `goal` is None again. It starts
the attempts that `transmissions` returns, waits for an answer or until `flights.wake_ms`, and hands the answer to
`on_answer`. `take_result` then returns the result of the goal. Records are taken in between with `append`.

The core decides the next step towards the goal, and its parts carry it out. `requests` gets the identity, and prepares
and ends the transaction; `sending` sends the batches. They share one `ProducerProgress`.

The rules, each with its test:
- Records that were not sent by the time of the commit go with it in one Transact, if they fit. Often that is the whole
  transaction.
- Otherwise a commit waits for every batch. If one failed, EndTxn is not sent; the transaction is aborted and the first
  failure is the result (KAFKA-9279).
- EndTxn names the last sequence of every partition, so the server commits nothing that it does not hold (design 6).
- The answer to a commit is the identity for the next transaction (KIP-890, transaction version 2).
- A commit that is answered "fenced" is followed by one abort. If that succeeds, the server itself had aborted the
  transaction (at its timeout), and the producer continues. Otherwise a newer producer runs (spec transactions 2.6).
- A transaction in which nothing was sent ends without a request. A fenced producer sends nothing at all.
- A request with a lost answer is repeated unchanged until the deadline. After that the outcome is unknown. A commit
  stays open until `resolve` asks again; an abort is sent again before the next transaction.
- A step interrupted in its middle leaves state that cannot be trusted. `repair` discards all of it except what was
  stored in one assignment: status, identity, and the requests under way with their answers (decision 53).
"""

from __future__ import annotations

from coordinator_client.calls import Reply
from coordinator_client.errors import TOPIC_GONE, Loss, TransactionError, failure, rejected
from coordinator_client.flights import Transmission
from coordinator_client.producer import rules
from coordinator_client.producer.batching import SealedBatch, TopicWriter
from coordinator_client.producer.progress import ProducerProgress
from coordinator_client.producer.requests import EndAttempt, IdentityRequests, TransactionEnd
from coordinator_client.producer.rules import AfterSend
from coordinator_client.producer.sending import CorePlan
from coordinator_client.producer.state import Goal, ProducerStatus
from coordinator_client.pulse import Pulse
from coordinator_client.random_source import RandomSource
from coordinator_client.values import Row, TransactionAcknowledgements, TransactionOffsets
from coordinator_protocol.errors import ErrorClass, ErrorCode
from coordinator_protocol.methods import Method

_S = ProducerStatus

_READY = ProducerStatus.READY
_IN_TRANSACTION = ProducerStatus.IN_TRANSACTION
_COMMITTING = ProducerStatus.COMMITTING
_UNINITIALISED = ProducerStatus.UNINITIALISED
_CLOSED = ProducerStatus.CLOSED
_COMMIT = Goal.COMMIT
_ENDING = frozenset({_S.IN_TRANSACTION, _S.PREPARED, _S.COMMITTING, _S.ABORTING})
"""Module-level aliases of members used in every transaction: looking one up in its enum class takes 0.1 us."""


class ProducerCore(ProducerProgress):
    """One producer: its goals, and the next step towards each. Not for two threads at once."""

    def __init__(self, plan: CorePlan, random_source: RandomSource) -> None:
        super().__init__(plan, random_source, self._send_failed)
        self._identity_requests = IdentityRequests(self)
        self._transaction_end = TransactionEnd(self, self._identity_requests)
        self.pulse = Pulse(self.flights, plan.client_id)
        """Tells a slow server from a dead one while the producer closes."""
        self.is_commit_asked = False
        """True if a commit was requested since the last transaction began."""

    @property
    def is_idle(self) -> bool:
        """True if there is nothing to start and nothing to wait for."""
        return self.goal is None and not (self.sender.has_ready or self.flights or self.is_full)

    @property
    def is_full(self) -> bool:
        """True if so many bytes are unsent or in flight that answers must come before more are taken."""
        return self.sender.waiting.buffered_bytes >= self.plan.buffer_bytes_max

    @property
    def is_unresolved(self) -> bool:
        """True if a commit was sent and its outcome is unknown; an abort may have been started to find out."""
        return self.goal is None and self.may_have_committed

    @property
    def may_have_committed(self) -> bool:
        """True if a commit was sent and no answer has decided it."""
        if self.status is _S.ABORTING or self.status is _S.MUST_ABORT:
            return self.failure is not None and self.failure.may_have_committed
        return self.status is _S.COMMITTING

    @property
    def is_committed(self) -> bool:
        """True if the last transaction is known to be committed; kept until the next one begins."""
        ending = self._transaction_end.ending
        return self.is_commit_asked and ending is not None and ending.committed and ending.reply is not None

    def init(self) -> None:
        """Set the goal to have an identity. With a transactional id this fences every earlier producer, and aborts its
        open transaction."""
        self.set_goal(Goal.INIT)

    def recover(self) -> None:
        """Set the goal as `init` does, but keep the open transaction of an earlier producer, which `prepared` then
        names."""
        if self.status is _S.PREPARED and self.is_kept:
            # An earlier call, whose caller was interrupted, has recovered it: `prepared` still names it.
            return
        if not self.is_transactional or self.status is not _S.UNINITIALISED:
            raise rejected(
                ErrorCode.INVALID_TXN_STATE,
                "recovery comes before everything else, and is for a producer with a transactional_id",
            )
        self.set_goal(Goal.RECOVER)

    def begin(self) -> None:
        """Set the goal to have an open transaction, after the steps that must come first (identity, an abort that is
        still due). Legal only if no transaction is open or prepared."""
        if self.status is _READY:
            assert self.goal is None, f"{self.goal} is still being worked on"
            self._open()
            return
        self.set_goal(Goal.BEGIN)

    def flush(self) -> None:
        """Set the goal to have every record taken so far in the log."""
        if self.is_failure_told:
            self.failure = None
        self.told.clear()
        self.sender.waiting.seal_all()
        self.set_goal(Goal.FLUSH)

    def prepare(self) -> None:
        """Set the goal to have a prepared transaction that `prepared` names. On failure it is aborted, and the result
        says why."""
        self._check_open()
        self.sender.waiting.seal_all()
        if not (self.is_transaction_sent or self.sender.has_ready):
            raise rejected(ErrorCode.INVALID_TXN_STATE, "nothing was sent in the transaction, so there is no decision")
        self.set_goal(Goal.PREPARE)

    def commit(self) -> None:
        """Set the goal to commit the transaction. On failure the result says why it was aborted, or that the outcome is
        unknown."""
        if self.status is not _IN_TRANSACTION:
            if self.status is _READY or (self.status is _UNINITIALISED and self.failure is None):
                raise rules.nothing_open()
            if self.status is _COMMITTING:
                raise rules.still_unknown()
        self.is_commit_asked = True
        self.sender.waiting.seal_all()
        self.set_goal(_COMMIT)

    def abort(self) -> None:
        """Set the goal to abort the transaction, so that none of it ever becomes visible."""
        self.set_goal(Goal.ABORT)

    def resolve(self) -> None:
        """Set the goal to learn the outcome of an unresolved commit. Repeats the same request."""
        if not self.is_unresolved:
            raise rejected(ErrorCode.INVALID_TXN_STATE, "there is no commit whose outcome is unknown")
        self.set_goal(Goal.RESOLVE)

    def take_result(self) -> TransactionError | None:
        """Return the result of the last goal; None = it was reached."""
        result, self.result = self.result, None
        return result

    def interrupt(self) -> None:
        """Give up the goal as it stands. Requests already sent may take effect; the end of a transaction stays
        unresolved."""
        if self.goal is None:
            return
        self.goal = None
        if self.status is _S.INITIALISING:
            self.flights.cancel_all()
            self.step(_S.UNINITIALISED)
        elif self.status is _S.PREPARING:
            self.flights.cancel_all()
            # The caller has not stored the identity of the transaction yet, so no outside decision can name it.
            interrupted = f"{Method.PREPARE_TRANSACTION} was interrupted"
            self.note_failure(failure(ErrorCode.TRANSACTION_ABORTABLE, ErrorClass.ABORT, interrupted))
            self.step(_S.MUST_ABORT)
        elif self.status in (_S.COMMITTING, _S.ABORTING):
            self.flights.cancel_all()
            self._transaction_end.interrupt()

    def fail_transaction(self) -> None:
        """Make the open transaction abort-only, because a send was interrupted while it waited and its record is
        already taken. Outside transactions that is no failure."""
        if self.status is _IN_TRANSACTION:
            self.note_failure(rules.interrupted_transaction())
            self.drop_sends()
            self.step(_S.MUST_ABORT)

    def repair(self) -> None:
        """Continue after an interrupted step; may be interrupted itself, and is then called again.

        Trusts only state that is stored in one assignment: the reason for closing, status, identity, and the requests
        under way with their answers. From here on, a transaction whose commit was not sent can only be aborted. A plain
        producer's next flush raises OutcomeUnknown, since its buffered records are lost.
        """
        self.forget_work()
        self.pulse = Pulse(self.flights, self.plan.client_id)
        ending = self._transaction_end.ending
        if self.fatal is not None:
            self.status = _CLOSED
        elif not self.is_transactional:
            self.told.clear()
            self.failure, self.identity, self.status = rules.interrupted_sends(), None, _UNINITIALISED
        elif ending is not None and (self.status in _ENDING or (self.status is _S.MUST_ABORT and not ending.committed)):
            self._repair_end(ending)
        elif self.status in (_S.IN_TRANSACTION, _S.PREPARING, _S.MUST_ABORT) and self.identity is not None:
            self.failure = self.failure or rules.interrupted_transaction()
            self.is_transaction_sent, self.prepared = True, None
            self.status = _S.MUST_ABORT
        elif self.status not in (_READY, _S.PREPARED):
            self.status = _UNINITIALISED

    def _repair_end(self, ending: EndAttempt) -> None:
        """Continue from the state of the transaction's end: it is answered, or the same request is repeated."""
        if ending.reply is None:
            ending.is_lost = self.is_transaction_sent = True
            self.status = _COMMITTING if ending.committed else _S.ABORTING
            return
        self.csn = ending.reply.csn
        self.identity = ending.next_identity or self.identity
        self.prepared = None
        if self.failure is not None:
            self.failure.may_have_committed = False
        self.status = _READY

    def close(self) -> None:
        """Stop sending permanently."""
        if self.status is not _S.CLOSED:
            closed = rejected(ErrorCode.INVALID_REQUEST, "the producer is closed; open a new one")
            closed.may_have_committed = self.may_have_committed
            self.close_because(closed)

    def learn(self, topic: str, now_ms: int) -> None:
        """Set the goal to know the partitions of the topic, so that it has a writer."""
        self.set_goal(Goal.LEARN)
        self.sender.describe(topic, self.finish_learning, now_ms)

    def writer_for(self, topic: str, partition: int | None) -> TopicWriter | None:
        """Return the writer for a record. None if the topic must be looked up first, or again because the partition may
        be new."""
        writer = self.writers.get(topic)
        if writer is None or partition is None or partition < len(writer.queues):
            return writer
        return None

    def append(self, writer: TopicWriter, row: Row, partition: int | None) -> bool:
        """Take a record; return True if something can be sent.

        Raises: the reason why no record can be taken.
        """
        if self.status is not _IN_TRANSACTION:
            self._check_open()
        waiting = self.sender.waiting
        return waiting.append(writer, row, partition) or waiting.buffered_bytes >= self.plan.buffer_bytes_max

    def commit_offsets(self, offsets: TransactionOffsets) -> None:
        """Commit a consumer's offsets with the transaction.

        Raises: the reason why no offsets can be taken.
        """
        self._check_open()
        self.sender.offsets.append(offsets)

    def acknowledge(self, acks: TransactionAcknowledgements) -> None:
        """Acknowledge a share consumer's records with the transaction.

        Raises: the reason why no acknowledgements can be taken.
        """
        self._check_open()
        self.sender.acknowledgements.append(acks)

    def transmissions(self, now_ms: int) -> list[Transmission]:
        """Return the attempts to start now."""
        if self.is_full and self.sender.makes_no_room:
            # Many open batches can fill the buffer without one of them being full. While other batches are in flight,
            # the open ones can still grow. Cutting them each time a little space came back would make them all small.
            self.sender.waiting.seal_all()
        self.flights.lose_overdue(now_ms)
        self.pulse.advance(now_ms)
        self._advance(now_ms)
        self._send(now_ms)
        due = self.flights.transmissions(now_ms)
        refresh_ms = self.sender.refresh_ms
        # Never refresh alone: a single request is made in the caller's thread, and that caller does not wait for it.
        if due and refresh_ms is not None and now_ms >= refresh_ms:
            self.sender.refresh(now_ms)
            due += self.flights.transmissions(now_ms)
        return due

    def on_answer(self, flight: int, attempt: int, answer: Reply | Loss, now_ms: int) -> None:
        """Process the answer to an attempt, or its loss."""
        self.flights.on_answer(flight, attempt, answer, now_ms)
        self._advance(now_ms)

    def _check_open(self) -> None:
        if self.fatal is not None:
            raise self.fatal
        if not self.is_transactional:
            return
        if self.failure is not None:
            raise self.failure
        if self.status is _S.PREPARED:
            raise rejected(ErrorCode.INVALID_TXN_STATE, "the transaction is prepared and takes no more")
        if self.status is not _S.IN_TRANSACTION:
            raise rules.nothing_open()

    def _advance(self, now_ms: int) -> None:
        """Take all steps towards the goal that need no answer."""
        if self.status is _CLOSED:
            if self.goal is not None:
                self.finish(None if self.goal is Goal.ABORT else self.fatal)
            return
        match self.goal:
            case Goal.COMMIT | Goal.RESOLVE:
                self._advance_commit(now_ms)
            case Goal.INIT | Goal.RECOVER:
                if self.status is _S.UNINITIALISED:
                    self._identity_requests.start(now_ms)
                elif self.status is not _S.INITIALISING:
                    self.finish(None)
            case Goal.BEGIN:
                self._advance_begin(now_ms)
            case Goal.FLUSH:
                self._advance_flush(now_ms)
            case Goal.PREPARE:
                self._advance_prepare(now_ms)
            case Goal.ABORT:
                self._advance_abort(now_ms)
            case None:
                # A plain producer begins to send when a batch is full, even though no caller waits for it.
                self._init_for_sending(now_ms)

    def _advance_begin(self, now_ms: int) -> None:
        match self.status:
            case _S.UNINITIALISED:
                self._identity_requests.start(now_ms)
            case _S.READY:
                self._open()
                self.finish(None)
            case _S.ABORTING:
                self._transaction_end.send(now_ms)
            case _S.COMMITTING:
                self.finish(rules.still_unknown())

    def _open(self) -> None:
        self._transaction_end.ending = None
        self.is_commit_asked = self.is_transaction_sent = self.is_kept = False
        self.failure, self.more_failures = None, 0
        # Set last: with this status all other state belongs to the new transaction.
        self.step(_IN_TRANSACTION)

    def _advance_flush(self, now_ms: int) -> None:
        if self.failure is not None and (self.is_transactional or self.sender.is_drained):
            self.finish(self.failure)
        elif self.sender.is_drained:
            self.finish(None)
        else:
            self._init_for_sending(now_ms)

    def _advance_prepare(self, now_ms: int) -> None:
        match self.status:
            case _S.IN_TRANSACTION:
                if self.sender.is_drained:
                    self._transaction_end.prepare(now_ms)
            case _S.PREPARED:
                self.finish(None)
            case _S.MUST_ABORT | _S.ABORTING:
                self._advance_abort(now_ms)
            case _S.READY | _S.UNINITIALISED:
                self.finish(self.failure)

    def _advance_commit(self, now_ms: int) -> None:
        if self.status is _IN_TRANSACTION:
            sender = self.sender
            if not sender.is_drained:
                if not sender.requests_in_flight and sender.fits_one_request:
                    self._transaction_end.transact(now_ms)
                return
            if self.is_transaction_sent:
                self._transaction_end.end(committed=True, now_ms=now_ms)
                return
            self.step(_READY)
        match self.status:
            case _S.READY | _S.UNINITIALISED:
                self.finish(self.failure)
            case _S.MUST_ABORT:
                self._advance_abort(now_ms)
            case _S.PREPARED:
                self._transaction_end.end(committed=True, now_ms=now_ms)
            case _S.COMMITTING | _S.ABORTING:
                self._transaction_end.send(now_ms)

    def _advance_abort(self, now_ms: int) -> None:
        match self.status:
            case _S.IN_TRANSACTION | _S.MUST_ABORT | _S.PREPARED:
                self.drop_sends()
                if self.is_transaction_sent:
                    self._transaction_end.end(committed=False, now_ms=now_ms)
                else:
                    self.sender.waiting.restart_sequences()
                    self.step(_S.READY)
                    self._finish_abort()
            case _S.ABORTING:
                self._transaction_end.send(now_ms)
            case _S.READY | _S.UNINITIALISED:
                self.finish(None)
            case _S.COMMITTING:
                self.finish(rules.still_unknown())

    def _finish_abort(self) -> None:
        self.finish(None if self.goal is Goal.ABORT else self.failure)

    def _send(self, now_ms: int) -> None:
        if (self.status is not _IN_TRANSACTION and self.status is not _READY) or not self.sender.has_ready:
            return
        # Offsets alone wait for the commit, and so do the remaining batches when the commit comes.
        is_offsets = self.goal is None and not self.is_transaction_sent and not self.sender.waiting.ready
        if is_offsets or (self.goal is Goal.COMMIT and self.sender.fits_one_request):
            return
        assert self.identity is not None, "a producer that may send has an identity"
        self.is_transaction_sent = True
        self.sender.send_ready(self.identity, now_ms)

    def _init_for_sending(self, now_ms: int) -> None:
        if not self.is_transactional and self.status is _S.UNINITIALISED and self.sender.waiting.ready:
            self._identity_requests.start(now_ms)

    def _send_failed(self, error: TransactionError, batch: SealedBatch | None) -> None:
        """Process the permanent failure of a batch, or of offsets (None)."""
        after = rules.after_send(error, is_transactional=self.is_transactional)
        if batch is not None and error.code in TOPIC_GONE:
            self.sender.waiting.forget(batch.queue.topic.name)
        if self.is_transactional and self.status is not _S.IN_TRANSACTION:
            # Another batch of the same answer has already ended the transaction.
            self.more_failures += 1
            return
        self.note_failure(rules.send_failure(error, is_transactional=self.is_transactional))
        match after:
            case AfterSend.GO_ON if batch is not None:
                self.sender.waiting.take_back_sequence(batch, self.identity)
            case AfterSend.ABORT:
                self.drop_sends()
                self.step(_S.MUST_ABORT)
            case AfterSend.RENEW if self.status in (_S.READY, _S.IN_TRANSACTION):
                self._identity_requests.renew()
            case AfterSend.CLOSE:
                self.close_because(error)
