"""Blocking producer: transactions in a `with` statement, plain sends with `flush`; the core decides what to send."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Final, Self, TypeVar, Unpack

from coordinator_client.calls import Patience, Reply
from coordinator_client.errors import Abortable, Loss, OutcomeUnknown, Rejected, TransactionError
from coordinator_client.flights import Transmission
from coordinator_client.process import keep_memory_of_batches
from coordinator_client.producer.batching import SentRecord
from coordinator_client.producer.config import ProducerOptions
from coordinator_client.producer.progress import FAILURE
from coordinator_client.producer.shell import (
    ATTEMPTS,
    OUTCOME,
    PREPARED,
    SEND,
    STEP,
    TRANSACTION,
    PreparedShell,
    ProducerShell,
    Report,
    TransactionShell,
)
from coordinator_client.producer.state import OPEN, ProducerStatus
from coordinator_client.tracing import TRACING
from coordinator_client.transport.connection import Connection
from coordinator_client.transport.transport import Transport
from coordinator_client.values import Row

_LONGEST_LOOK_MS: Final = 60_000

T = TypeVar("T")


class Producer(ProducerShell):
    """Sends records: in transactions if it has a transactional id, else as a plain idempotent producer.

    No connection is opened before the first use. So a producer may be made before a fork and used after it, in one of
    the two processes only. It belongs to one thread at a time. Use it in a `with` statement, or call `close`.
    """

    def __init__(self, endpoint: str | Connection, **options: Unpack[ProducerOptions]) -> None:
        """Check the settings; no request is sent yet.

        For the options see `ProducerConfig`, among them `transactional_id` and `wait_ms`.

        Raises: Rejected or Misconfigured for a wrong option.
        """
        super().__init__(endpoint, **options)
        self._inbox: SimpleQueue[bool] = SimpleQueue()
        """Wakes the caller once `_reports` has something; spurious wake-ups are possible."""
        self._transport: Transport

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
            return
        try:
            # A user who presses Ctrl-C does not want to wait for the network.
            self._close(is_patient=isinstance(error, Exception))
        except TransactionError as failed:
            error.add_note(f"closing the producer failed too: {failed}")

    def init(self) -> None:
        """Get an identity now instead of at the first use.

        With a transactional id this fences every earlier producer of that id and aborts its open transaction. Call it
        first in a process that takes over.

        Raises: Fenced, Rejected, Misconfigured, Retriable, OutcomeUnknown.
        """
        self._clear_up()
        self._change(self._core.init)
        self._reach_goal()

    def recover(self) -> PreparedTransaction | None:
        """Take over the transactional id as `init` does, but keep the open transaction of an earlier producer.

        For producers with an outside decision (`two_phase_commit`); call it before anything else. Returns the open
        transaction, to be ended as decided. None means that no transaction is open: every decision has been carried
        out. A transaction that was never prepared is kept too; it has no decision, so abort it.

        Raises: Rejected after the first use, else as `init`.
        """
        self._clear_up()
        self._change(self._core.recover)
        self._reach_goal()
        return None if self._core.prepared is None else PreparedTransaction(self, self._core.prepared)

    def transaction(self) -> Transaction:
        """Return a transaction for a `with` statement. It commits on a clean exit; on an exception it aborts and
        re-raises.

        Raises: Rejected without a transactional id.
        """
        self._check_transactional()
        return Transaction(self)

    def begin(self) -> Transaction:
        """Open a transaction and return it, for code that cannot use a `with` statement. End it with
        `Transaction.commit` or `Transaction.abort`.

        Raises: as the beginning of `with producer.transaction()`.
        """
        return self.transaction().__enter__()

    def run(self, work: Callable[[Transaction], T], *, attempts: int = ATTEMPTS) -> T:
        """Call `work` with a transaction, commit it, and return the result of `work`. If the transaction was rolled
        back and can be repeated (Abortable, Recoverable), do the same with another one, at most `attempts` times in
        all.

        `work` must have no effect other than its sends: it may be called several times. If the outcome of a commit is
        unknown, the server is asked again.

        Raises: the exception of `work`, after an abort; the error of the last attempt; OutcomeUnknown if the server
        cannot be reached.
        """
        for attempts_left in range(attempts - 1, -1, -1):
            result: list[T] = []
            try:
                with self.transaction() as txn:
                    result.append(work(txn))
                return result[0]
            except OutcomeUnknown as error:
                if not error.may_have_committed:
                    raise
                if self.resolve_outcome():
                    return result[0]
                if not attempts_left:
                    raise
            except TransactionError as error:
                if not self._repeats(error, attempts_left):
                    raise
        raise ValueError(f"attempts is {attempts} and must be at least 1")

    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Iterable[tuple[str, bytes | None]] = (),
        timestamp_ms: int | None = None,
        partition: int | None = None,
    ) -> SentRecord:
        """Take a record outside transactions; it is in the log once `flush` or `close` has returned. The result has its
        partition, and then its offset.

        `key` chooses the partition as Kafka does; records without a key go to the partitions in turn, batch by batch.
        `timestamp_ms` is Unix milliseconds, by default now. If a send is interrupted, its record may or may not reach
        the log.

        Raises: Rejected or TypeError for a wrong call.
        """
        self._check_plain()
        return self._take(topic, self._row(key, value, timestamp_ms, headers), partition)

    def flush(self) -> None:
        """Return once everything sent so far is in the log.

        Raises the error of the first record that is not in the log, once: Rejected, Recoverable, Retriable,
        OutcomeUnknown, Misconfigured, Fenced. Recoverable is also raised if the server has forgotten the producer. That
        happens to a producer that sent nothing for longer than the server's setting `producer_id_expiration_ms`. Then
        the batch is not in the log, and its records can be sent again at once.
        """
        self._clear_up()
        self._change(self._core.flush)
        self._reach_goal()

    def resolve_outcome(self) -> bool:
        """Ask again for the outcome of a commit that ended in OutcomeUnknown or was interrupted. True = committed,
        False = aborted.

        The producer is usable afterwards. The outcome of an interrupted commit can be asked for until the next
        transaction begins. A commit whose `with` block had ended was not interrupted: `Transaction.csn` is not 0 then,
        even if an exception comes before the caller's next line.

        Raises: OutcomeUnknown if there is still no answer. Fenced if a newer producer runs and the outcome can no
        longer be determined. Rejected if no outcome is unknown.
        """
        self._clear_up()
        known = self._known_outcome()
        if known is not None:
            return known
        self._change(self._core.resolve)
        try:
            self._reach_goal()
        except (Abortable, Rejected) as error:
            if error.may_have_committed:
                raise
            return False
        return True

    def close(self) -> None:
        """Flush (or abort an open transaction), then close the connection if it was made here. A second call does
        nothing. A prepared transaction is left as it is.

        A flush may take `delivery_timeout_ms`, because records that it gives up are lost. An abort is given up one
        second after the server stopped answering: the server aborts the transaction itself.

        Raises: as `flush`; the producer is closed even then.
        """
        self._close(is_patient=True)

    def _close(self, *, is_patient: bool) -> None:
        try:
            if is_patient and self.status is not ProducerStatus.CLOSED and not self._connection.is_of_a_parent:
                self._clear_up()
                if not self._core.is_transactional:
                    self.flush()
                elif self.status in OPEN:
                    self._change(self._core.abort)
                    self._reach_goal(self._leaving())
        finally:
            self._core.close()
            self._cancel_given_up()
            if self._is_own:
                self._connection.close()

    def _take(self, topic: str, row: Row, partition: int | None) -> SentRecord:
        core = self._core
        if self._step is not None or core.goal is not None:
            self._clear_up()
        writer = core.writers.get(topic) if partition is None else core.writer_for(topic, partition)
        if writer is None:
            self._learn(topic)
            self._reach_goal()
            writer = core.writers[topic]
        self._step = STEP
        try:
            is_due = core.append(writer, row, partition)
        except TransactionError:
            self._step = None
            raise
        sent = core.sender.waiting.newest
        if is_due:
            # From here on the record is taken, and an interruption makes the transaction abort-only.
            self._step = SEND
            keep_memory_of_batches()
            self._turn(SEND)
            while core.is_full:
                self._wait()
                self._turn(SEND)
        self._step = None
        return sent

    def _begin(self) -> None:
        self._clear_up()
        core = self._core
        if core.status is not ProducerStatus.READY and self._is_abandoned(core.status):
            self._abort()
        self._forget_given()
        self._change(core.begin)
        if core.goal is None:
            # The goal was reached without a request. This raises in a forked child, as a request would.
            self._transport = self._connection.transport
        else:
            self._reach_goal()

    def _is_used_elsewhere(self, opened_by: weakref.ref[Any]) -> bool:
        thread = opened_by()
        return thread is not None and thread is not threading.current_thread() and thread.is_alive()

    def _commit(self) -> int:
        self._clear_up()
        self._change(self._core.commit)
        try:
            self._reach_goal()
        except TransactionError:
            raise
        except BaseException as interruption:
            if not self._explain(interruption):
                self._abort_because(interruption)
            raise
        return self._core.csn

    def _prepare(self) -> PreparedTransaction:
        self._clear_up()
        self._change(self._core.prepare)
        self._reach_goal()
        assert self._core.prepared is not None, "what was prepared has a name"
        return PreparedTransaction(self, self._core.prepared)

    def _commit_prepared(self) -> int:
        self._clear_up()
        core = self._core
        if core.is_committed and OUTCOME not in self._given:
            return core.csn
        self._change(core.resolve if core.is_unresolved else core.commit)
        self._reach_goal()
        return core.csn

    def _abort(self) -> None:
        self._clear_up()
        self._change(self._core.abort)
        self._reach_goal()

    def _abort_because(self, error: BaseException) -> None:
        own = self._core.failure
        try:
            self._abort()
        except TransactionError as failed:
            self._note_failed_abort(error, own, failed)

    def _reach_goal(self, patience: Patience | None = None) -> None:
        """Work until the core's goal is reached. Raises: the failure that it ended with; Retriable if patience ends
        first."""
        core = self._core
        try:
            while core.goal is not None:
                alone = self._turn(asks=patience is None)
                if alone is not None:
                    self._ask(alone)
                elif core.goal is not None:
                    self._wait(None if patience is None else self._until_ms(patience))
        except BaseException:
            self._clear_up()
            raise
        if core.flights.cancelled:
            self._cancel_given_up()
        result = core.take_result()
        if result is not None:
            # A single expression: a plain producer raises each failure once, and an interruption must not lose it.
            raise result if core.is_transactional else core.told.setdefault(FAILURE, result)

    def _turn(self, then: str | None = None, *, asks: bool = False) -> Transmission | None:
        """Hand the arrived answers to the core and start the attempts that are due; does not wait.

        `then`: name of the step that the caller is in afterwards. With `asks`, an attempt is returned instead of
        started if it is the only one in flight and this is faster. The caller then waits for it in this thread.
        """
        # Read before the core notes that an attempt starts: this raises in a forked child, where no attempt can start.
        transport = self._transport = self._connection.transport
        self._step = STEP
        self._deliver()
        due = self._core.transmissions(self._clock.monotonic_ms())
        if self._core.flights.cancelled:
            self._cancel_given_up()
        alone = None
        if asks and len(due) == 1 and not self._calls and transport.is_direct:
            (alone,) = due
        else:
            self._start(transport, due)
        self._step = then
        return alone

    def _start(self, transport: Transport, due: list[Transmission]) -> None:
        for transmission in due:
            self._calls[transmission.flight] = transport.start(
                transmission.rpc,
                transmission.request,
                timeout_ms=transmission.timeout_ms,
                on_done=partial(_report, self._reports, self._inbox, transmission.flight, transmission.attempt),
            )

    def _ask(self, transmission: Transmission) -> None:
        """Make the only call in flight in this thread, which saves the hop to another thread and back."""
        answer: Reply | Loss = Loss("CANCELLED", "interrupted")
        try:
            answer = self._transport.ask(transmission.rpc, transmission.request, timeout_ms=transmission.timeout_ms)
        finally:
            self._reports.append((transmission.flight, transmission.attempt, answer))

    def _wait(self, until_ms: int | None = None) -> None:
        """Wait for one answer, at most until an attempt is due."""
        wake_ms = self._core.flights.wake_ms()
        if until_ms is not None:
            wake_ms = until_ms if wake_ms is None else min(wake_ms, until_ms)
        now_ms = self._clock.monotonic_ms()
        self._clock.take(self._inbox, _LONGEST_LOOK_MS if wake_ms is None else max(0, wake_ms - now_ms))


def _report(reports: deque[Report], inbox: SimpleQueue[bool], flight: int, attempt: int, answer: Reply | Loss) -> None:
    """Note the answer to one attempt and wake the caller; may run on any thread."""
    reports.append((flight, attempt, answer))
    if inbox.empty():
        inbox.put(True)


class Transaction(TransactionShell[Producer]):
    """A transaction whose records become visible together or not at all. Made by `Producer.transaction`, used in a
    `with` statement."""

    def __enter__(self) -> Self:
        """Open the transaction. The first one asks for an identity, as `Producer.init` does.

        Raises: Fenced, Rejected, Misconfigured, Retriable, OutcomeUnknown; then nothing of this transaction was sent.
        OutcomeUnknown: the outcome of the last commit is unknown (`may_have_committed`; ask `resolve_outcome`), or the
        request for an identity or for a pending abort got no answer (try again).
        """
        if self._is_open:
            # `with producer.begin() as txn`: it is open already.
            return self
        self._producer._begin()
        self._opened_by = weakref.ref(threading.current_thread())
        if TRACING.is_on:
            self._begin_trace()
        self._is_open = True
        # A single expression notes that the caller has the transaction and returns it, so no interruption can come
        # between.
        return self._producer._give(TRANSACTION, self)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """Commit on a clean exit, abort otherwise. The exception of the body is re-raised, with a failed abort noted on
        it.

        Raises on a clean exit: Abortable (rolled back; the producer is still usable), Recoverable, Fenced, Rejected,
        Misconfigured, OutcomeUnknown (see `Producer.resolve_outcome`).
        """
        if not self._is_open:
            if error is None:
                self._check_not_given_up()
            return
        if error is not None:
            self._is_open = False
            with self._ending("abort"):
                self._producer._abort_because(error)
            return
        self.commit()

    def commit(self) -> int:
        """Commit now, and return the commit sequence number; the end of a `with` block then does nothing.

        Raises: as the end of a `with` block.
        """
        self._check_open()
        self._is_open = False
        with self._ending("commit"):
            self.csn = self._producer._commit()
        # This must be the last statement: an interruption before it leaves the outcome to `resolve_outcome`.
        return self._producer._give(OUTCOME, self.csn)

    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Iterable[tuple[str, bytes | None]] = (),
        timestamp_ms: int | None = None,
        partition: int | None = None,
    ) -> SentRecord:
        """Take a record; it is durable and visible once the `with` block ended cleanly. The result has its partition,
        and then its offset.

        `key` chooses the partition as Kafka does; records without a key go to the partitions in turn, batch by batch.
        `timestamp_ms` is Unix milliseconds, by default now. After an interrupted send the transaction can only be
        aborted, unless the exception came before anything was done.

        Raises: Rejected or TypeError for a wrong call; the failure of an earlier send, after which the transaction can
        only be aborted.
        """
        if not self._is_open:
            self._check_open()
        producer = self._producer
        return producer._take(topic, producer._row(key, value, timestamp_ms, headers), partition)

    def flush(self) -> None:
        """Return once everything sent so far is durable, though not yet visible. Raises: as `send`."""
        self._check_open()
        self._producer.flush()

    def prepare(self) -> PreparedTransaction:
        """Prepare the transaction: from now on it can be committed after any crash, and an outside decision ends it.

        Returns the prepared transaction, with the identity to store beside the decision. It takes no more records and
        never times out, and the end of the `with` block no longer affects it. Only the returned object ends the
        transaction, or that of a later `Producer.recover`.

        Raises: as a commit does; the transaction is then aborted.
        """
        self._check_open()
        try:
            with self._ending("prepare"):
                prepared = self._producer._prepare()
        except TransactionError:
            self._is_open = self._producer.status in OPEN
            raise
        self._is_open = False
        return self._producer._give(PREPARED, prepared)

    def abort(self) -> None:
        """Roll back now; the end of the `with` block then does nothing. Raises: Fenced, OutcomeUnknown."""
        self._check_open()
        self._is_open = False
        with self._ending("abort"):
            self._producer._abort()


class PreparedTransaction(PreparedShell[Producer]):
    """A transaction that waits for an outside decision. It survives every crash, and committed readers of its
    partitions wait until it is ended.

    ```python
    with Producer("127.0.0.1:7070", transactional_id="shop", two_phase_commit=True) as producer:
        if (kept := producer.recover()) is not None:
            kept.commit() if database.has_decided(kept.identity) else kept.abort()
        with producer.transaction() as txn:
            txn.send("orders", b"42")
            prepared = txn.prepare()
        database.commit_with_decision(prepared.identity)    # this is the decision
        prepared.commit()                                   # after a crash, `recover` does it
    ```
    """

    def commit(self) -> int:
        """Make its records visible, and return its commit sequence number.

        Raises: OutcomeUnknown (call it again, or let the next start recover). Fenced if a newer producer recovered it
        and ends it. Abortable if an administrator aborted it; Rejected once it has ended.
        """
        return self._producer._give(OUTCOME, self._producer._commit_prepared())

    def abort(self) -> None:
        """Roll it back. Raises: as `commit`."""
        self._producer._abort()
