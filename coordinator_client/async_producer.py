"""The asyncio producer: the same core on the application's own loop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial
from types import TracebackType
from typing import Self, Unpack

from coordinator_client.calls import Patience, Reply
from coordinator_client.connection import Connection
from coordinator_client.errors import Abortable, Loss, Rejected, TransactionError
from coordinator_client.loops import AsyncioLoop, Loop, Timer
from coordinator_client.process import keep_memory_of_batches
from coordinator_client.producer_shell import PreparedShell, ProducerOptions, ProducerShell, TransactionShell
from coordinator_client.state import ProducerStatus, Row


class AsyncProducer(ProducerShell):
    """`Producer` for asyncio: what waits is awaited, everything else is the same.

    Its requests travel on the loop of the task that uses it first, in one session with everything else on that loop: a
    thousand producers in a thousand tasks share messages. It belongs to one task at a time. Use it in an `async with`,
    or call `close`.
    """

    def __init__(self, endpoint: str | Connection, **options: Unpack[ProducerOptions]) -> None:
        """Check the settings; the server is not asked yet. Options by name: see `ProducerConfig`.

        Raises: Rejected or Misconfigured for a wrong one.
        """
        super().__init__(endpoint, **options)
        self._open_loop = self._connection.open_loop or AsyncioLoop
        self._loop: Loop
        self._has_loop = False
        self._waiter: asyncio.Future[None] | None = None
        self._timer: Timer | None = None
        self._timer_ms = 0
        self._defect: BaseException | None = None
        self._patience: Patience | None = None
        """How long to work towards the goal; None = until the core ends it."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if error is None:
            await self.close()
            return
        try:
            # A task that is cancelled does not want to wait for the network.
            await self._close(is_patient=isinstance(error, Exception))
        except TransactionError as failed:
            error.add_note(f"closing the producer failed too: {failed}")

    async def init(self) -> None:
        """Get an identity now instead of at the first use.

        With a transactional id this fences every earlier producer of that name and aborts what it left open, so a
        process that takes over does this first. Raises: Fenced, Rejected, Misconfigured, Retriable, OutcomeUnknown.
        """
        self._core.init()
        await self._reach_goal()

    async def recover(self) -> AsyncPreparedTransaction | None:
        """Take the transactional id over as `init` does, but keep what an earlier producer of that name left open; see
        `Producer.recover`."""
        self._core.recover()
        await self._reach_goal()
        return None if self._core.prepared is None else AsyncPreparedTransaction(self, self._core.prepared)

    def transaction(self) -> AsyncTransaction:
        """Return a transaction for an `async with`: commits on a clean exit, aborts on any exception and lets it
        through.

        Raises: Rejected without a transactional id.
        """
        if not self._core.is_transactional:
            self._check_transactional()
        return AsyncTransaction(self)

    async def send(
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
        await self._take(topic, self._row(key, value, timestamp_ms, headers), partition)

    async def flush(self) -> None:
        """Return once everything sent so far is in the log.

        Raises: what became of the first record that is not, once: Rejected, Recoverable, Retriable, OutcomeUnknown,
        Misconfigured, Fenced.
        """
        self._core.flush()
        await self._reach_goal()

    async def resolve_outcome(self) -> bool:
        """Ask again what became of a commit that ended in OutcomeUnknown: True = committed, False = aborted.

        The producer goes on afterwards. Raises: OutcomeUnknown if there is still no answer; Fenced where a newer
        producer runs and the outcome can no longer be told; Rejected if nothing is unknown.
        """
        self._core.resolve()
        try:
            await self._reach_goal()
        except (Abortable, Rejected) as error:
            if error.may_have_committed:
                raise
            return False
        return True

    async def close(self) -> None:
        """Flush (or abort an open transaction), then let go of the connection if it was made here. Again: nothing. A
        prepared transaction is left as it is. How long that takes: see `Producer.close`.

        Raises: as `flush`; the producer is closed all the same.
        """
        await self._close(is_patient=True)

    async def _close(self, *, is_patient: bool) -> None:
        status = self._core.status
        try:
            if is_patient and status is not ProducerStatus.CLOSED and not self._connection.is_of_a_parent:
                if not self._core.is_transactional:
                    await self.flush()
                elif status in (ProducerStatus.IN_TRANSACTION, ProducerStatus.MUST_ABORT):
                    self._patience = self._leaving()
                    await self._abort()
        finally:
            self._core.close()
            self._cancel_given_up()
            if self._timer is not None:
                self._timer.cancel()
            if self._is_own:
                self._connection.close()

    async def _take(self, topic: str, row: Row, partition: int | None) -> None:
        core = self._core
        writer = core.writers.get(topic) if partition is None else core.writer_for(topic, partition)
        if writer is None:
            self._learn(topic)
            await self._reach_goal()
            writer = core.writers[topic]
        if core.append(writer, row, partition):
            keep_memory_of_batches()
            self._pump()
            while core.is_full:
                await self._news()

    async def _begin(self) -> None:
        self._core.begin()
        if self._core.goal is None:
            # The goal was reached without a request. In a fork this raises all the same.
            self._connection.transport_on(self._open_loop)
        else:
            await self._reach_goal()

    async def _commit(self) -> int:
        self._core.commit()
        try:
            await self._reach_goal()
        except TransactionError:
            raise
        except BaseException as interruption:
            if self._core.is_unresolved:
                interruption.add_note("The commit was interrupted: call resolve_outcome() to learn how it ended.")
            else:
                await self._abort_because(interruption)
            raise
        return self._core.csn

    async def _prepare(self) -> AsyncPreparedTransaction:
        self._core.prepare()
        await self._reach_goal()
        assert self._core.prepared is not None, "what was prepared has a name"
        return AsyncPreparedTransaction(self, self._core.prepared)

    async def _commit_prepared(self) -> int:
        if self._core.is_unresolved:
            self._core.resolve()
        else:
            self._core.commit()
        await self._reach_goal()
        return self._core.csn

    async def _abort(self) -> None:
        self._core.abort()
        await self._reach_goal()

    async def _abort_because(self, error: BaseException) -> None:
        with self._in_front(error):
            await self._abort()

    async def _reach_goal(self) -> None:
        """Work until the core's goal is reached. Raises: the failure that it ended with."""
        core = self._core
        try:
            self._pump()
            while core.goal is not None:
                await self._news()
        except BaseException:
            core.interrupt()
            self._cancel_given_up()
            raise
        if core.flights.cancelled:
            self._cancel_given_up()
        result = core.take_result()
        if result is not None:
            raise result

    async def _news(self) -> None:
        """Return when the goal is reached, or there is room for more records. Raises: what went wrong on the loop
        meanwhile."""
        if self._defect is not None:
            raise self._defect
        if self._patience is not None:
            self._wake_at(self._until_ms(self._patience))
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _pump(self) -> None:
        """Start the attempts that are due, and set the timer for the others. Does not wait."""
        # Asked for before the core notes that an attempt starts: in a fork this raises, and none can start.
        transport = self._connection.transport_on(self._open_loop)
        if not self._has_loop or self._loop.is_over:
            self._loop, self._has_loop, self._timer = self._open_loop(), True, None
        core, now_ms = self._core, self._clock.monotonic_ms()
        for due in core.transmissions(now_ms):
            self._calls[due.flight] = transport.start(
                due.rpc, due.request, timeout_ms=due.timeout_ms, on_done=partial(self._report, due.flight, due.attempt)
            )
        if core.flights.cancelled:
            self._cancel_given_up()
        wake_ms = core.flights.wake_ms()
        if wake_ms is not None:
            self._wake_at(wake_ms)

    def _wake_at(self, wake_ms: int) -> None:
        """Set the timer so that the core is asked again by then."""
        if self._timer is None or wake_ms < self._timer_ms:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_ms = wake_ms
            self._timer = self._loop.call_after(max(0, wake_ms - self._clock.monotonic_ms()), self._on_time)

    def _report(self, flight: int, attempt: int, answer: Reply | Loss) -> None:
        """Receive an answer: directly where it comes on this loop, as those of a session do."""
        report = flight, attempt, answer
        if self._loop.is_here:
            self._go_on(report)
        else:
            self._loop.call_soon(partial(self._go_on, report))

    def _on_time(self) -> None:
        self._timer = None
        self._go_on(None)

    def _go_on(self, report: tuple[int, int, Reply | Loss] | None) -> None:
        """Hand the answer to the core, if there is one, start what follows from it, and wake the task that waits."""
        if self._defect is not None:
            return
        try:
            if report is not None:
                self._deliver(*report)
            if not self._core.is_idle:
                self._pump()
        except BaseException as error:  # noqa: BLE001  nobody is here to see it: whoever waits raises it
            self._defect = error
        waiter = self._waiter
        if waiter is None or waiter.done():
            return
        if self._defect is not None:
            waiter.set_exception(self._defect)
        elif self._core.goal is None or self._patience is not None:
            waiter.set_result(None)


class AsyncTransaction(TransactionShell[AsyncProducer]):
    """All of its records become visible together, or none ever does. Made by `AsyncProducer.transaction`, used in an
    `async with`."""

    async def __aenter__(self) -> Self:
        """Open it. Raises: Fenced, Rejected, Misconfigured, Retriable, OutcomeUnknown; nothing was sent then."""
        await self._producer._begin()
        self._is_open = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """Commit on a clean exit, abort otherwise; the exception of the body goes on, a failed abort noted on it.

        Raises on a clean exit: Abortable (rolled back, the producer goes on), Recoverable, Fenced, Rejected,
        Misconfigured, OutcomeUnknown (see `AsyncProducer.resolve_outcome`).
        """
        if not self._is_open:
            return
        self._is_open = False
        if error is None:
            self.csn = await self._producer._commit()
        else:
            await self._producer._abort_because(error)

    async def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Iterable[tuple[str, bytes | None]] = (),
        timestamp_ms: int | None = None,
        partition: int | None = None,
    ) -> None:
        """Take a record; it is durable and visible once the `async with` ended cleanly. See `Transaction.send`."""
        if not self._is_open:
            self._check_open()
        producer = self._producer
        await producer._take(topic, producer._row(key, value, timestamp_ms, headers), partition)

    async def flush(self) -> None:
        """Return once everything sent so far is durable, though not visible. Raises: as `send`."""
        self._check_open()
        await self._producer.flush()

    async def prepare(self) -> AsyncPreparedTransaction:
        """Promise that the transaction can be committed whatever crashes, and let somebody else decide whether it is.
        See `Transaction.prepare`."""
        self._check_open()
        try:
            return await self._producer._prepare()
        finally:
            self._is_open = self._producer.status in (ProducerStatus.IN_TRANSACTION, ProducerStatus.MUST_ABORT)

    async def abort(self) -> None:
        """Roll back now; the `async with` then ends without doing anything. Raises: Fenced, OutcomeUnknown."""
        self._check_open()
        self._is_open = False
        await self._producer._abort()


class AsyncPreparedTransaction(PreparedShell[AsyncProducer]):
    """`PreparedTransaction` for asyncio."""

    async def commit(self) -> int:
        """Make its records visible, and return its commit sequence number. See `PreparedTransaction.commit`."""
        return await self._producer._commit_prepared()

    async def abort(self) -> None:
        """Roll it back. Raises: as `commit`."""
        await self._producer._abort()
