"""Asyncio producer: the same core on the application's own loop, on which `asyncio_shell` drives it."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from coordinator_client.errors import Abortable, OutcomeUnknown, Rejected, TransactionError
from coordinator_client.process import keep_memory_of_batches
from coordinator_client.producer.asyncio_shell import AsyncioProducerShell
from coordinator_client.producer.batching import SentRecord
from coordinator_client.producer.config import ProducerOptions
from coordinator_client.producer.rules import unawaited_sends
from coordinator_client.producer.shell import (
    ATTEMPTS,
    OUTCOME,
    PREPARED,
    STEP,
    TRANSACTION,
    PreparedShell,
    TransactionShell,
)
from coordinator_client.producer.state import OPEN, ProducerStatus
from coordinator_client.tracing import TRACING
from coordinator_client.transport.connection import Connection
from coordinator_client.values import Row

T = TypeVar("T")


class AsyncProducer(AsyncioProducerShell):
    """`Producer` for asyncio: the calls that wait are coroutines, everything else is the same.

    Its requests use the loop of the task that uses it first. All clients on that loop share one session: a thousand
    producers in a thousand tasks share messages. Tasks may send at the same time. Every other call belongs to one task
    at a time, and is refused while another task waits in such a call. Use it in an `async with` statement, or call
    `close`.
    """

    def __init__(self, endpoint: str | Connection, **options: Unpack[ProducerOptions]) -> None:
        """Check the settings; no request is sent yet. For the options see `ProducerConfig`.

        Raises: Rejected or Misconfigured for a wrong option.
        """
        super().__init__(endpoint, **options)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if error is None:
            await self.close()
            return
        try:
            # A cancelled task does not want to wait for the network.
            await self._close(is_patient=isinstance(error, Exception))
        except TransactionError as failed:
            error.add_note(f"closing the producer failed too: {failed}")

    async def init(self) -> None:
        """Get an identity now instead of at the first use.

        With a transactional id this fences every earlier producer of that id and aborts its open transaction. Call it
        first in a process that takes over.

        Raises: Fenced, Rejected, Misconfigured, Retriable, OutcomeUnknown.
        """
        self._clear_up()
        self._change(self._core.init)
        await self._reach_goal()

    async def recover(self) -> AsyncPreparedTransaction | None:
        """Take over the transactional id as `init` does, but keep the open transaction of an earlier producer; see
        `Producer.recover`."""
        self._clear_up()
        self._change(self._core.recover)
        await self._reach_goal()
        return None if self._core.prepared is None else AsyncPreparedTransaction(self, self._core.prepared)

    def transaction(self) -> AsyncTransaction:
        """Return a transaction for an `async with` statement. It commits on a clean exit; on an exception it aborts and
        re-raises.

        Raises: Rejected without a transactional id.
        """
        if not self._core.is_transactional:
            self._check_transactional()
        return AsyncTransaction(self)

    async def begin(self) -> AsyncTransaction:
        """Open a transaction and return it, for code that cannot use an `async with` statement. End it with
        `AsyncTransaction.commit` or `AsyncTransaction.abort`. See `Producer.begin`."""
        return await self.transaction().__aenter__()

    async def run(self, work: Callable[[AsyncTransaction], Awaitable[T]], *, attempts: int = ATTEMPTS) -> T:
        """Call `work` with a transaction, commit it, and return the result of `work`. Do it again if the transaction
        was rolled back and can be repeated. See `Producer.run`."""
        for attempts_left in range(attempts - 1, -1, -1):
            result: list[T] = []
            try:
                async with self.transaction() as txn:
                    result.append(await work(txn))
                return result[0]
            except OutcomeUnknown as error:
                if not error.may_have_committed:
                    raise
                if await self.resolve_outcome():
                    return result[0]
                if not attempts_left:
                    raise
            except TransactionError as error:
                if not self._repeats(error, attempts_left):
                    raise
        raise ValueError(f"attempts is {attempts} and must be at least 1")

    async def send(
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
        `timestamp_ms` is Unix milliseconds, by default now.

        Raises: Rejected or TypeError for a wrong call.
        """
        self._check_plain()
        return await self._take(topic, self._row(key, value, timestamp_ms, headers), partition)

    async def flush(self) -> None:
        """Return once everything sent so far is in the log.

        Raises the error of the first record that is not in the log, once: Rejected, Recoverable, Retriable,
        OutcomeUnknown, Misconfigured, Fenced.
        """
        self._clear_up()
        self._change(self._core.flush)
        await self._reach_goal()

    async def resolve_outcome(self) -> bool:
        """Ask again for the outcome of a commit that ended in OutcomeUnknown or was cancelled. True = committed, False
        = aborted. See `Producer.resolve_outcome`."""
        self._clear_up()
        known = self._known_outcome()
        if known is not None:
            return known
        self._change(self._core.resolve)
        try:
            await self._reach_goal()
        except (Abortable, Rejected) as error:
            if error.may_have_committed:
                raise
            return False
        return True

    async def close(self) -> None:
        """Flush (or abort an open transaction), then close the connection if it was made here. A second call does
        nothing. A prepared transaction is left as it is. For the time that this takes see `Producer.close`.

        Raises: as `flush`; the producer is closed even then.
        """
        await self._close(is_patient=True)

    async def _close(self, *, is_patient: bool) -> None:
        is_patient = is_patient and self.status is not ProducerStatus.CLOSED and not self._connection.is_of_a_parent
        if is_patient:
            self._clear_up()
        try:
            if is_patient and not self._core.is_transactional:
                await self.flush()
            elif is_patient and self.status in OPEN:
                self._patience = self._leaving()
                await self._abort()
        finally:
            self._stop()
            if self._is_own:
                self._connection.close()

    async def _take(
        self, topic: str, row: Row, partition: int | None, promised: AsyncTransaction | None = None
    ) -> SentRecord:
        """Take a record. `promised`: the transaction that counts the sends whose coroutine was not awaited yet."""
        if promised is not None:
            promised._unawaited -= 1
        core = self._core
        if self._step is not None or (core.goal is not None and not self._is_learning):
            self._clear_up()
        writer = core.writer_for(topic, partition)
        while writer is None:
            if self._is_learning:
                await self._news()
                writer = core.writer_for(topic, partition)
            else:
                self._learn(topic)
                await self._reach_goal()
                # The partitions as they are now: a partition that does not exist is refused.
                writer = core.writers[topic]
        self._step = STEP
        try:
            is_due = core.append(writer, row, partition)
        except TransactionError:
            self._step = None
            raise
        self._step = None
        sent = core.sender.waiting.newest
        if is_due:
            keep_memory_of_batches()
            await self._make_room()
        return sent

    async def _make_room(self) -> None:
        """Send full batches, and wait until the buffer takes more. The record is already taken, so an interruption
        makes the transaction abort-only."""
        try:
            self._turn()
            while self._core.is_full:
                await self._news()
        except BaseException:
            if self._step is None:
                self._fail_transaction()
                # Other tasks may wait for buffer space, or for the end of the transaction.
                self._go_on()
            raise

    async def _begin(self) -> None:
        self._clear_up()
        core = self._core
        if core.status is not ProducerStatus.READY and self._is_abandoned(core.status):
            await self._abort()
        self._forget_given()
        self._change(core.begin)
        if core.goal is None:
            # The goal was reached without a request. This raises in a forked child, as a request would.
            self._connection.transport_on(self._open_loop)
        else:
            await self._reach_goal()

    async def _commit(self) -> int:
        self._clear_up()
        self._change(self._core.commit)
        try:
            await self._reach_goal()
        except TransactionError:
            raise
        except BaseException as interruption:
            if not self._explain(interruption):
                await self._abort_because(interruption)
            raise
        return self._core.csn

    async def _prepare(self) -> AsyncPreparedTransaction:
        self._clear_up()
        self._change(self._core.prepare)
        await self._reach_goal()
        assert self._core.prepared is not None, "what was prepared has a name"
        return AsyncPreparedTransaction(self, self._core.prepared)

    async def _commit_prepared(self) -> int:
        self._clear_up()
        core = self._core
        if core.is_committed and OUTCOME not in self._given:
            return core.csn
        self._change(core.resolve if core.is_unresolved else core.commit)
        await self._reach_goal()
        return core.csn

    async def _abort(self) -> None:
        self._clear_up()
        self._change(self._core.abort)
        await self._reach_goal()

    async def _abort_because(self, error: BaseException) -> None:
        own = self._core.failure
        try:
            await self._abort()
        except TransactionError as failed:
            self._note_failed_abort(error, own, failed)

    def _is_used_elsewhere(self, opened_by: weakref.ref[Any]) -> bool:
        task = opened_by()
        return task is not None and task is not asyncio.current_task() and not task.done()


class AsyncTransaction(TransactionShell[AsyncProducer]):
    """A transaction whose records become visible together or not at all. Made by `AsyncProducer.transaction`, used in
    an `async with` statement."""

    def __init__(self, producer: AsyncProducer) -> None:
        super().__init__(producer)
        self._unawaited = 0
        """Number of sends whose coroutine did not begin."""

    async def __aenter__(self) -> Self:
        """Open the transaction. The first one asks for an identity, as `AsyncProducer.init` does.

        Raises: Fenced, Rejected, Misconfigured, Retriable, OutcomeUnknown; then nothing of this transaction was sent.
        OutcomeUnknown: the outcome of the last commit is unknown (`may_have_committed`; ask `resolve_outcome`), or the
        request for an identity or for a pending abort got no answer (try again).
        """
        if self._is_open:
            # `async with await producer.begin() as txn`: it is open already.
            return self
        await self._producer._begin()
        self._opened_by = weakref.ref(asyncio.current_task() or self)
        if TRACING.is_on:
            self._begin_trace()
        self._is_open = True
        # A single expression notes that the caller has the transaction and returns it, so no interruption can come
        # between.
        return self._producer._give(TRANSACTION, self)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """Commit on a clean exit, abort otherwise. The exception of the body is re-raised, with a failed abort noted on
        it.

        Raises on a clean exit: Abortable (rolled back; the producer is still usable), Recoverable, Fenced, Rejected,
        Misconfigured, OutcomeUnknown (see `AsyncProducer.resolve_outcome`).
        """
        if not self._is_open:
            if error is None:
                self._check_not_given_up()
            return
        if error is not None:
            self._is_open = False
            with self._ending("abort"):
                await self._producer._abort_because(error)
            return
        await self.commit()

    async def commit(self) -> int:
        """Commit now, and return the commit sequence number; the end of an `async with` block then does nothing.

        Raises: as the end of an `async with` block. Rejected if a send was not awaited; the transaction is then
        aborted.
        """
        self._check_open()
        self._is_open = False
        if self._unawaited:
            forgotten = unawaited_sends(self._unawaited)
            await self._producer._abort_because(forgotten)
            raise forgotten
        with self._ending("commit"):
            self.csn = await self._producer._commit()
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
    ) -> Coroutine[Any, Any, SentRecord]:
        """Take a record; it is durable and visible once the `async with` block ended cleanly. Await the result, which
        has its partition and then its offset: a commit is refused while a send was not awaited. See
        `Transaction.send`."""
        if not self._is_open:
            self._check_open()
        producer = self._producer
        row = producer._row(key, value, timestamp_ms, headers)
        # Counted here and not in the coroutine, which never runs if its caller forgets the await.
        self._unawaited += 1
        return producer._take(topic, row, partition, self)

    async def flush(self) -> None:
        """Return once everything sent so far is durable, though not yet visible. Raises: as `send`."""
        self._check_open()
        await self._producer.flush()

    async def prepare(self) -> AsyncPreparedTransaction:
        """Prepare the transaction: from now on it can be committed after any crash, and an outside decision ends it.
        See `Transaction.prepare`."""
        self._check_open()
        try:
            with self._ending("prepare"):
                prepared = await self._producer._prepare()
        except TransactionError:
            self._is_open = self._producer.status in OPEN
            raise
        self._is_open = False
        return self._producer._give(PREPARED, prepared)

    async def abort(self) -> None:
        """Roll back now; the end of the `async with` block then does nothing. Raises: Fenced, OutcomeUnknown."""
        self._check_open()
        self._is_open = False
        with self._ending("abort"):
            await self._producer._abort()


class AsyncPreparedTransaction(PreparedShell[AsyncProducer]):
    """`PreparedTransaction` for asyncio."""

    async def commit(self) -> int:
        """Make its records visible, and return its commit sequence number. See `PreparedTransaction.commit`."""
        csn = await self._producer._commit_prepared()
        return self._producer._give(OUTCOME, csn)

    async def abort(self) -> None:
        """Roll it back. Raises: as `commit`."""
        await self._producer._abort()
