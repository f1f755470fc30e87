"""What a producer does, without sockets, clocks or threads: the core under the blocking and the asyncio shell.

A shell sets a goal (`begin`, `flush`, `commit`, ...), then repeats three steps until there is no `goal` any more: start
what `transmissions` returns, wait for an answer or until `flights.wake_ms`, hand the answer to `on_answer`.
`take_result` then says how the goal ended. Records are taken in between with `append`.

What the core decides here is the next step towards the goal. Its parts carry it out: `requests` gets the
identity, and prepares and ends the transaction; `sending` sends the batches. They share one `ProducerProgress`.

The rules, each with its test:
- What was not sent by the time of the commit goes with it if it fits, in one Transact, which often is all of the
  transaction.
- Otherwise a commit waits for every batch. If one failed, EndTxn is not sent; the transaction is aborted and the first
  failure is the result (KAFKA-9279).
- EndTxn names the last sequence of every partition, so the server commits nothing that it does not hold (design 6).
- The answer to a commit is the identity for the next transaction (KIP-890, transaction version 2).
- A commit that is answered "fenced" is followed by one abort: if that succeeds, it was the server itself that had
  aborted the transaction (its timeout), and the producer goes on; otherwise a newer producer runs (spec transactions
  2.6).
- A transaction in which nothing was sent ends without a request. Nothing at all is sent once the producer is fenced.
- A lost answer is asked for again with the same request until the deadline. After that the outcome is unknown: a commit
  stays open until `resolve` asks again; an abort is sent again before the next transaction.
- A step that an exception interrupted in its middle leaves what cannot be trusted. `repair` forgets all of it but what
  was stored at once: status, identity, and the requests under way with their answers (decision 53).
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
from coordinator_client.values import Row, TransactionOffsets
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
"""Members that every transaction asks for have names of their own: finding one in its class takes 0.1 us."""


class ProducerCore(ProducerProgress):
    """One producer: its goals, and the next step towards each. Not for two threads at once."""

    def __init__(self, plan: CorePlan, random_source: RandomSource) -> None:
        super().__init__(plan, random_source, self._send_failed)
        self._identity_requests = IdentityRequests(self)
        self._transaction_end = TransactionEnd(self, self._identity_requests)
        self.pulse = Pulse(self.flights, plan.client_id)
        """Tells a server that is slow from one that is gone, while the producer closes."""
        self.is_commit_asked = False
        """Whether a commit was asked for since the last transaction began."""

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to start and nothing to wait for."""
        return self.goal is None and not (self.sender.has_ready or self.flights or self.is_full)

    @property
    def is_full(self) -> bool:
        """Whether enough waits to be sent before more is taken."""
        return self.sender.waiting.buffered_bytes >= self.plan.buffer_bytes_max

    @property
    def is_unresolved(self) -> bool:
        """Whether a commit was sent and its outcome is not known; an abort may have been begun to find out."""
        return self.goal is None and self.may_have_committed

    @property
    def may_have_committed(self) -> bool:
        """Whether a commit was sent that no answer has decided."""
        if self.status is _S.ABORTING or self.status is _S.MUST_ABORT:
            return self.failure is not None and self.failure.may_have_committed
        return self.status is _S.COMMITTING

    @property
    def is_committed(self) -> bool:
        """Whether the last transaction is known to be committed; kept until the next one begins."""
        ending = self._transaction_end.ending
        return self.is_commit_asked and ending is not None and ending.committed and ending.reply is not None

    def init(self) -> None:
        """Goal: an identity. For a transactional id this fences every earlier producer, and aborts what it left
        open."""
        self.set_goal(Goal.INIT)

    def recover(self) -> None:
        """Goal: as `init`, but what an earlier producer left open is kept, and `prepared` names it."""
        if self.status is _S.PREPARED and self.is_kept:
            # Recovered before, by a call whose caller was interrupted: it is named again.
            return
        if not self.is_transactional or self.status is not _S.UNINITIALISED:
            raise rejected(
                ErrorCode.INVALID_TXN_STATE,
                "recovery comes before everything else, and is for a producer with a transactional_id",
            )
        self.set_goal(Goal.RECOVER)

    def begin(self) -> None:
        """Goal: an open transaction, after whatever must be done first (identity, an abort that is still due). Only
        where none is open or prepared."""
        if self.status is _READY:
            assert self.goal is None, f"{self.goal} is still being worked on"
            self._open()
            return
        self.set_goal(Goal.BEGIN)

    def flush(self) -> None:
        """Goal: every record taken so far is in the log."""
        if self.is_failure_told:
            self.failure = None
        self.told.clear()
        self.sender.waiting.seal_all()
        self.set_goal(Goal.FLUSH)

    def prepare(self) -> None:
        """Goal: the transaction waits for an outside decision, and `prepared` names it; else it is aborted, and the
        result says why."""
        self._check_open()
        self.sender.waiting.seal_all()
        if not (self.is_transaction_sent or self.sender.has_ready):
            raise rejected(ErrorCode.INVALID_TXN_STATE, "nothing was sent in the transaction, so there is no decision")
        self.set_goal(Goal.PREPARE)

    def commit(self) -> None:
        """Goal: the transaction is committed; else the result says why it was aborted, or that nobody knows."""
        if self.status is not _IN_TRANSACTION:
            if self.status is _READY or (self.status is _UNINITIALISED and self.failure is None):
                raise rules.nothing_open()
            if self.status is _COMMITTING:
                raise rules.still_unknown()
        self.is_commit_asked = True
        self.sender.waiting.seal_all()
        self.set_goal(_COMMIT)

    def abort(self) -> None:
        """Goal: nothing of the transaction will ever be visible."""
        self.set_goal(Goal.ABORT)

    def resolve(self) -> None:
        """Goal: the outcome of a commit that was not known. Repeats the same request."""
        if not self.is_unresolved:
            raise rejected(ErrorCode.INVALID_TXN_STATE, "there is no commit whose outcome is unknown")
        self.set_goal(Goal.RESOLVE)

    def take_result(self) -> TransactionError | None:
        """Return how the last goal ended: None = as wanted."""
        result, self.result = self.result, None
        return result

    def interrupt(self) -> None:
        """Give the goal up where it is. What was sent may take effect; an end of a transaction stays unresolved."""
        if self.goal is None:
            return
        self.goal = None
        if self.status is _S.INITIALISING:
            self.flights.cancel_all()
            self.step(_S.UNINITIALISED)
        elif self.status is _S.PREPARING:
            self.flights.cancel_all()
            # Nobody has noted the transaction yet, so nobody can have decided to commit it.
            interrupted = f"{Method.PREPARE_TRANSACTION} was interrupted"
            self.note_failure(failure(ErrorCode.TRANSACTION_ABORTABLE, ErrorClass.ABORT, interrupted))
            self.step(_S.MUST_ABORT)
        elif self.status in (_S.COMMITTING, _S.ABORTING):
            self.flights.cancel_all()
            self._transaction_end.interrupt()

    def fail_transaction(self) -> None:
        """Let the open transaction only be aborted, because a send was interrupted while it waited: its record is
        taken. Outside transactions that is no failure."""
        if self.status is _IN_TRANSACTION:
            self.note_failure(rules.interrupted_transaction())
            self.drop_sends()
            self.step(_S.MUST_ABORT)

    def repair(self) -> None:
        """Go on after a step that was interrupted in its middle; may be interrupted itself, and then is called again.

        Counts on nothing that the step left but what is stored at once: why the producer is closed, status, identity,
        and the requests under way with their answers. A transaction whose commit was not sent can only be aborted from
        here on. A plain producer's next flush raises OutcomeUnknown, since records that it had taken are gone.
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
        """Go on where the end of the transaction stands: it is answered, or the same request is repeated."""
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
        """Send nothing any more."""
        if self.status is not _S.CLOSED:
            closed = rejected(ErrorCode.INVALID_REQUEST, "the producer is closed; open a new one")
            closed.may_have_committed = self.may_have_committed
            self.close_because(closed)

    def learn(self, topic: str, now_ms: int) -> None:
        """Goal: the partitions of the topic are known, so that it has a writer."""
        self.set_goal(Goal.LEARN)
        self.sender.describe(topic, self.finish_learning, now_ms)

    def writer_for(self, topic: str, partition: int | None) -> TopicWriter | None:
        """Return where a record goes; None: the topic must be learned first, or once more, because the partition may be
        a new one."""
        writer = self.writers.get(topic)
        if writer is None or partition is None or partition < len(writer.queues):
            return writer
        return None

    def append(self, writer: TopicWriter, row: Row, partition: int | None) -> bool:
        """Take a record; return whether something can be sent. Raises: why no record can be taken."""
        if self.status is not _IN_TRANSACTION:
            self._check_open()
        waiting = self.sender.waiting
        return waiting.append(writer, row, partition) or waiting.buffered_bytes >= self.plan.buffer_bytes_max

    def commit_offsets(self, offsets: TransactionOffsets) -> None:
        """Let a consumer's offsets commit with the transaction. Raises: why nothing can be taken."""
        self._check_open()
        self.sender.offsets.append(offsets)

    def transmissions(self, now_ms: int) -> list[Transmission]:
        """Return the attempts to start now."""
        if self.is_full and self.sender.makes_no_room:
            # Many open batches can fill the buffer without one of them being full. While other batches are in flight,
            # these can still grow: cut each time a little room came back, they would all be small.
            self.sender.waiting.seal_all()
        self.flights.lose_overdue(now_ms)
        self.pulse.advance(now_ms)
        self._advance(now_ms)
        self._send(now_ms)
        due = self.flights.transmissions(now_ms)
        refresh_ms = self.sender.refresh_ms
        # Beside another request and never alone: the only one is made in the caller's thread, who does not wait for it.
        if due and refresh_ms is not None and now_ms >= refresh_ms:
            self.sender.refresh(now_ms)
            due += self.flights.transmissions(now_ms)
        return due

    def on_answer(self, flight: int, attempt: int, answer: Reply | Loss, now_ms: int) -> None:
        """Take what became of an attempt."""
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
        """Do whatever the goal needs next and can be done without an answer."""
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
                # A plain producer begins to send when a batch is full, though nobody waits for it.
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
        # Last: with this status the rest is that of the new transaction.
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
        # Offsets alone wait for the commit, and so does what is left when the commit comes.
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
        """Take note of a batch, or of offsets (None), that failed for good."""
        after = rules.after_send(error, is_transactional=self.is_transactional)
        if batch is not None and error.code in TOPIC_GONE:
            self.sender.waiting.forget(batch.queue.topic.name)
        if self.is_transactional and self.status is not _S.IN_TRANSACTION:
            # Another batch of the same answer has ended the transaction already.
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
