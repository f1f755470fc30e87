"""The blocking producer: transactions in a `with`, plain sends with `flush`, over the core that does the thinking."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from queue import SimpleQueue
from types import TracebackType
from typing import Final, Self, TypeAlias, Unpack

from coordinator_client.calls import Patience, Reply
from coordinator_client.connection import Connection
from coordinator_client.errors import Abortable, Loss, Rejected, TransactionError
from coordinator_client.flights import Transmission
from coordinator_client.process import keep_memory_of_batches
from coordinator_client.producer_shell import PreparedShell, ProducerOptions, ProducerShell, TransactionShell
from coordinator_client.state import ProducerStatus, Row
from coordinator_client.transport import Transport

_Report: TypeAlias = tuple[int, int, Reply | Loss]

_LONGEST_LOOK_MS: Final = 60_000


class Producer(ProducerShell):
    """Sends records, in transactions if it has a transactional id, else idempotently one by one.

    Nothing is opened before the first use, so a producer may be made before a fork and used after it, on one side only.
    It belongs to one thread at a time. Use it in a `with`, or call `close`.
    """

    def __init__(self, endpoint: str | Connection, **options: Unpack[ProducerOptions]) -> None:
        """Check the settings; the server is not asked yet.

        Options by name: `transactional_id`, `transaction_timeout_ms`, `delivery_timeout_ms`, `encoding`,
        `compression`, `batch_bytes`, `buffer_bytes`, `client_id`, `wait` (see `ProducerConfig`).
        Raises: Rejected or Misconfigured for a wrong one.
        """
        super().__init__(endpoint, **options)
        self._inbox: SimpleQueue[_Report] = SimpleQueue()
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

        With a transactional id this fences every earlier producer of that name and aborts what it left open, so a
        process that takes over does this first. Raises: Fenced, Rejected, Misconfigured, Retriable, OutcomeUnknown.
        """
        self._core.init()
        self._reach_goal()

    def recover(self) -> PreparedTransaction | None:
        """Take the transactional id over as `init` does, but keep what an earlier producer of that name left open.

        For a producer whose transactions somebody else decides (`two_phase_commit`), before anything else. Returns that
        transaction, to be ended as it was decided; None where nothing is open: then whatever was decided is done. One
        that was never prepared is kept too; it has no decision, so abort it. Raises: Rejected after the first use, else
        as `init`.
        """
        self._core.recover()
        self._reach_goal()
        return None if self._core.prepared is None else PreparedTransaction(self, self._core.prepared)

    def transaction(self) -> Transaction:
        """Return a transaction for a `with`: commits on a clean exit, aborts on any exception and lets it through.

        Raises: Rejected without a transactional id.
        """
        self._check_transactional()
        return Transaction(self)

    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Iterable[tuple[str, bytes | None]] = (),
        timestamp_ms: int | None = None,
        partition: int | None = None,
    ) -> None:
        """Take a record outside transactions; it is in the log once `flush` or `close` returned.

        `key` chooses the partition as Kafka does; without one, records go batch by batch to the partitions in turns.
        `timestamp_ms` is Unix milliseconds, by default now. Raises: Rejected or TypeError for a wrong call.
        """
        self._check_plain()
        self._take(topic, self._row(key, value, timestamp_ms, headers), partition)

    def flush(self) -> None:
        """Return once everything sent so far is in the log.

        Raises: what became of the first record that is not, once: Rejected, Recoverable, Retriable, OutcomeUnknown,
        Misconfigured, Fenced.
        """
        self._core.flush()
        self._reach_goal()

    def resolve_outcome(self) -> bool:
        """Ask again what became of a commit that ended in OutcomeUnknown: True = committed, False = aborted.

        The producer goes on afterwards. Raises: OutcomeUnknown if there is still no answer; Fenced where a newer
        producer runs and the outcome can no longer be told; Rejected if nothing is unknown.
        """
        self._core.resolve()
        try:
            self._reach_goal()
        except (Abortable, Rejected) as error:
            if error.may_have_committed:
                raise
            return False
        return True

    def close(self) -> None:
        """Flush (or abort an open transaction), then let go of the connection if it was made here. Again: nothing. A
        prepared transaction is left as it is.

        A flush takes as long as `delivery_timeout_ms`, because what it gives up is lost. An abort is given up a second
        after the server began not to answer: the server aborts the transaction itself. Raises: as `flush`; the producer
        is closed all the same.
        """
        self._close(is_patient=True)

    def _close(self, *, is_patient: bool) -> None:
        status = self._core.status
        try:
            if is_patient and status is not ProducerStatus.CLOSED and not self._connection.is_of_a_parent:
                if not self._core.is_transactional:
                    self.flush()
                elif status in (ProducerStatus.IN_TRANSACTION, ProducerStatus.MUST_ABORT):
                    self._core.abort()
                    self._reach_goal(self._leaving())
        finally:
            self._core.close()
            self._cancel_given_up()
            if self._is_own:
                self._connection.close()

    def _take(self, topic: str, row: Row, partition: int | None) -> None:
        writer = self._core.writers.get(topic) if partition is None else self._core.writer_for(topic, partition)
        if writer is None:
            self._learn(topic)
            self._reach_goal()
            writer = self._core.writers[topic]
        if self._core.append(writer, row, partition):
            keep_memory_of_batches()
            self._pump()
            while self._core.is_full:
                self._wait()
                self._pump()

    def _begin(self) -> None:
        self._core.begin()
        if self._core.goal is None:
            # The goal was reached without a request. In a fork this raises all the same.
            self._transport = self._connection.transport
        else:
            self._reach_goal()

    def _commit(self) -> int:
        self._core.commit()
        try:
            self._reach_goal()
        except TransactionError:
            raise
        except BaseException as interruption:
            if self._core.is_unresolved:
                interruption.add_note("The commit was interrupted: call resolve_outcome() to learn how it ended.")
            else:
                self._abort_because(interruption)
            raise
        return self._core.csn

    def _prepare(self) -> PreparedTransaction:
        self._core.prepare()
        self._reach_goal()
        assert self._core.prepared is not None, "what was prepared has a name"
        return PreparedTransaction(self, self._core.prepared)

    def _commit_prepared(self) -> int:
        if self._core.is_unresolved:
            self._core.resolve()
        else:
            self._core.commit()
        self._reach_goal()
        return self._core.csn

    def _abort(self) -> None:
        self._core.abort()
        self._reach_goal()

    def _abort_because(self, error: BaseException) -> None:
        with self._in_front(error):
            self._abort()

    def _reach_goal(self, patience: Patience | None = None) -> None:
        """Work until the core's goal is reached. Raises: the failure that it ended with; Retriable where patience ends
        first."""
        # In a fork this raises, even where no request is needed.
        self._transport = self._connection.transport
        try:
            while self._core.goal is not None:
                due = self._take_due()
                if patience is None and len(due) == 1 and not self._calls and self._transport.is_direct:
                    self._carry_out(due[0])
                    continue
                self._start(due)
                if self._core.goal is not None:
                    self._wait(None if patience is None else self._until_ms(patience))
        except BaseException:
            self._core.interrupt()
            self._cancel_given_up()
            raise
        if self._core.flights.cancelled:
            self._cancel_given_up()
        result = self._core.take_result()
        if result is not None:
            raise result

    def _pump(self) -> None:
        """Hand the answers that have arrived to the core, and start the attempts that are due. Does not wait."""
        self._start(self._take_due())

    def _take_due(self) -> list[Transmission]:
        while (report := self._clock.take(self._inbox, 0)) is not None:
            self._deliver(*report)
        # Asked for before the core notes that an attempt starts: in a fork this raises, and none can start.
        self._transport = self._connection.transport
        due = self._core.transmissions(self._clock.monotonic_ms())
        if self._core.flights.cancelled:
            self._cancel_given_up()
        return due

    def _start(self, due: list[Transmission]) -> None:
        for transmission in due:
            self._calls[transmission.flight] = self._transport.start(
                transmission.rpc,
                transmission.request,
                timeout_ms=transmission.timeout_ms,
                on_done=partial(_report, self._inbox, transmission.flight, transmission.attempt),
            )

    def _carry_out(self, transmission: Transmission) -> None:
        """Make the only call in flight in this thread, which saves the hop to another thread and back."""
        answer: Reply | Loss = Loss("CANCELLED", "interrupted")
        try:
            answer = self._transport.ask(transmission.rpc, transmission.request, timeout_ms=transmission.timeout_ms)
        finally:
            self._deliver(transmission.flight, transmission.attempt, answer)

    def _wait(self, until_ms: int | None = None) -> None:
        """Wait for one answer, at most until an attempt is due."""
        wake_ms = self._core.flights.wake_ms()
        if until_ms is not None:
            wake_ms = until_ms if wake_ms is None else min(wake_ms, until_ms)
        now_ms = self._clock.monotonic_ms()
        wait_ms = _LONGEST_LOOK_MS if wake_ms is None else max(0, wake_ms - now_ms)
        report = self._clock.take(self._inbox, wait_ms)
        if report is not None:
            self._deliver(*report)


def _report(inbox: SimpleQueue[_Report], flight: int, attempt: int, answer: Reply | Loss) -> None:
    """Put the answer to one attempt into the inbox, whichever thread it comes on."""
    inbox.put((flight, attempt, answer))


class Transaction(TransactionShell[Producer]):
    """All of its records become visible together, or none ever does. Made by `Producer.transaction`, used in a
    `with`."""

    def __enter__(self) -> Self:
        """Open it. Raises: Fenced, Rejected, Misconfigured, Retriable, OutcomeUnknown; nothing was sent then."""
        self._producer._begin()
        self._is_open = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """Commit on a clean exit, abort otherwise; the exception of the body goes on, a failed abort noted on it.

        Raises on a clean exit: Abortable (rolled back, the producer goes on), Recoverable, Fenced, Rejected,
        Misconfigured, OutcomeUnknown (see `Producer.resolve_outcome`).
        """
        if not self._is_open:
            return
        self._is_open = False
        if error is None:
            self.csn = self._producer._commit()
        else:
            self._producer._abort_because(error)

    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Iterable[tuple[str, bytes | None]] = (),
        timestamp_ms: int | None = None,
        partition: int | None = None,
    ) -> None:
        """Take a record; it is durable and visible once the `with` ended cleanly.

        `key` chooses the partition as Kafka does; without one, records go batch by batch to the partitions in turns.
        `timestamp_ms` is Unix milliseconds, by default now. Raises: Rejected or TypeError for a wrong call; the
        failure of an earlier send, after which the transaction can only be aborted.
        """
        if not self._is_open:
            self._check_open()
        producer = self._producer
        producer._take(topic, producer._row(key, value, timestamp_ms, headers), partition)

    def flush(self) -> None:
        """Return once everything sent so far is durable, though not visible. Raises: as `send`."""
        self._check_open()
        self._producer.flush()

    def prepare(self) -> PreparedTransaction:
        """Promise that the transaction can be committed whatever crashes, and let somebody else decide whether it is.

        Returns it with the identity to note beside that decision. From here on it takes no more records, never times
        out, and the `with` does nothing any more, however it ends: only the returned object ends the transaction, or
        that of a later `Producer.recover`. Raises: as a commit does; the transaction is then aborted.
        """
        self._check_open()
        try:
            return self._producer._prepare()
        finally:
            self._is_open = self._producer.status in (ProducerStatus.IN_TRANSACTION, ProducerStatus.MUST_ABORT)

    def abort(self) -> None:
        """Roll back now; the `with` then ends without doing anything. Raises: Fenced, OutcomeUnknown."""
        self._check_open()
        self._is_open = False
        self._producer._abort()


class PreparedTransaction(PreparedShell[Producer]):
    """A transaction that waits for somebody else's decision: it survives every crash, and holds readers of its
    partitions back until it is ended.

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

        Raises: OutcomeUnknown (call it again, or let the next start recover); Fenced where a newer producer recovered
        it and ends it; Abortable where an administrator aborted it; Rejected once it has ended.
        """
        return self._producer._commit_prepared()

    def abort(self) -> None:
        """Roll it back. Raises: as `commit`."""
        self._producer._abort()
