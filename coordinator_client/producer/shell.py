"""Common base of the blocking and the asyncio producer: calls that do not wait.

For applications: `TransactionShell.commit_offsets` is the one of `Transaction` and `AsyncTransaction`. The rest is
internal: look at `Producer` and `AsyncProducer`.

An exception may interrupt a call at any line: from a signal handler, by Ctrl-C, or by the cancellation of a task.
Therefore no call relies on an exception handler of its own for cleaning up.

Each step that changes the core stores its name first and clears it last. The next call finds the name of an unfinished
step, or a goal whose caller is gone, and repairs it (`_clear_up`). `_given` holds the results that the caller certainly
has: the handle of a transaction, the outcome of a commit. The expression that returns a result also notes it there
(decision 53).
"""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar, Unpack

from coordinator_client.calls import CUT_OFF_CLOSE_MS, Patience, Reply, timed_out
from coordinator_client.errors import (
    Abortable,
    Fenced,
    Loss,
    Recoverable,
    TransactionError,
    check_here,
    failure,
    rejected,
)
from coordinator_client.producer.config import ProducerConfig, ProducerOptions
from coordinator_client.producer.core import ProducerCore
from coordinator_client.producer.dropped import DROPPED
from coordinator_client.producer.record import checked_headers, not_bytes
from coordinator_client.producer.rules import closed_unknown, unconfirmed_abort
from coordinator_client.producer.state import OPEN, ProducerStatus
from coordinator_client.settings import timestamp_ms as check_timestamp_ms
from coordinator_client.share.acquired import ShareRecords
from coordinator_client.tracing import TRACING, TransactionTrace
from coordinator_client.transport.connection import Connection, client_id_for, connection_to
from coordinator_client.transport.transport import Attempt
from coordinator_client.values import Identity, OffsetSource, Row
from coordinator_protocol.errors import ErrorClass, ErrorCode
from coordinator_protocol.names import check_topic_name

_UNTRACED: Final = nullcontext()

ATTEMPTS: Final = 5
"""Default number of transactions that `run` tries."""

STEP: Final = "step"
"""Name of a step that changes the core."""
SEND: Final = "send"
"""Name of the step in which a send waits for buffer space, after its record was taken."""

Report: TypeAlias = tuple[int, int, Reply | Loss]
"""Numbers of the flight and the attempt, and the answer."""

TRANSACTION: Final = "transaction"
PREPARED: Final = "prepared"
OUTCOME: Final = "outcome"

T = TypeVar("T")
BatchT = TypeVar("BatchT")
ProducerT = TypeVar("ProducerT", bound="ProducerShell")


class Given(Protocol):
    """A dictionary of results that the caller has, by name."""

    def setdefault(self, name: str, what: T, /) -> T:
        """Note that the caller has the result, and return it."""

    def get(self, name: str, /) -> Any:  # noqa: ANN401  each name has its own type
        """Return the result that the caller has; None if it has none."""

    def pop(self, name: str, default: None, /) -> object:
        """Note that the caller does not have the result."""

    def __contains__(self, name: object, /) -> bool: ...


def new_given() -> Given:
    """Return an empty dictionary of results: the state before a transaction begins."""
    return dict[str, Any]()


class ProducerShell(ABC):
    """Base of `Producer` and `AsyncProducer`; not for applications."""

    def __init__(self, endpoint: str | Connection, **options: Unpack[ProducerOptions]) -> None:
        config = ProducerConfig(**options)
        self._connection, self._is_own = connection_to(
            endpoint, client_id=config.client_id, transport=config.transport, wait_ms=config.wait_ms, tls=config.tls
        )
        self._clock = self._connection.clock
        self._delivery_timeout_ms = config.delivery_timeout_ms
        self._has_timeout = not config.two_phase_commit
        client_id = self._connection.client_id or client_id_for("producer", config.transactional_id)
        self._core = ProducerCore(config.core_plan(client_id=client_id), self._connection.random_source)
        self._core.flights.answers, self._core.flights.throttle = self._connection.answers, self._connection.throttle
        self._reports: deque[Report] = deque()
        """Arrived answers that the core has not processed yet."""
        self._calls: dict[int, Attempt] = {}
        self._step: str | None = None
        """Current step, or the step that was interrupted."""
        self._given: Given = new_given()
        """Results of the current transaction that its caller has."""
        self._refused_for: Any = None
        """Open transaction because of which another one was refused."""
        DROPPED.watch(self, self._core, self._name())

    def __repr__(self) -> str:
        return f"{self._name()[:-1]}, status={self._core.status.name})"

    def _name(self) -> str:
        transactional_id = self._core.plan.transactional_id
        named = "" if transactional_id is None else f", transactional_id={transactional_id!r}"
        return f"{type(self).__name__}({self._connection.endpoint!r}{named})"

    @property
    def identity(self) -> Identity | None:
        """Producer id and epoch of the current or next transaction; None before the first use."""
        return self._core.identity

    @property
    def status(self) -> ProducerStatus:
        """Status of the producer, which says what it can do next."""
        return self._core.status

    def _check_transactional(self) -> None:
        if not self._core.is_transactional:
            raise rejected(
                ErrorCode.INVALID_REQUEST, "a producer without transactional_id has no transactions; give it one"
            )

    def _check_plain(self) -> None:
        if self._core.is_transactional:
            raise rejected(
                ErrorCode.INVALID_REQUEST,
                "a producer with a transactional_id sends inside a transaction: `with producer.transaction() as txn`",
            )

    def _row(
        self,
        key: bytes | None,
        value: bytes | None,
        timestamp_ms: int | None,
        headers: Iterable[tuple[str, bytes | None]],
    ) -> Row:
        if type(value) is not bytes and value is not None:
            raise not_bytes("value", value)
        if key is not None and type(key) is not bytes:
            raise not_bytes("key", key)
        if timestamp_ms is None:
            timestamp_ms = self._clock.wall_ms()
        else:
            check_timestamp_ms("timestamp_ms", timestamp_ms)
        return key, value, timestamp_ms, checked_headers(headers) if headers else ()

    def _learn(self, topic: str) -> None:
        """Set the goal to look up the partitions of a topic. Raises: Rejected for an invalid topic name."""
        check_here(check_topic_name, topic)
        self._core.learn(topic, self._clock.monotonic_ms())

    def _repeats(self, error: TransactionError, attempts_left: int) -> bool:
        """Return True if `run` does its work again after this error."""
        return attempts_left > 0 and isinstance(error, Abortable | Recoverable)

    @abstractmethod
    def _turn(self) -> object:
        """Hand the arrived answers to the core, and start the attempts that are due. Does not wait."""

    def _change(self, change: Callable[..., None], *arguments: object) -> None:
        """Change the core in a step. Raises: the error of `change`, which has then changed nothing."""
        self._step = STEP
        try:
            change(*arguments)
        except TransactionError:
            self._step = None
            raise
        self._step = None

    def _clear_up(self) -> None:
        """Repair the effects of an interrupted call. Every call begins with this."""
        if self._step is not None:
            if self._step is SEND:
                self._fail_transaction()
            else:
                self._repair()
        if self._core.goal is not None:
            self._give_up()

    def _fail_transaction(self) -> None:
        """Note that a send was interrupted while it waited."""
        self._step = STEP
        self._core.fail_transaction()
        self._cancel_given_up()
        self._step = None

    def _repair(self) -> None:
        self._step = STEP
        calls, self._calls = self._calls, {}
        for call in calls.values():
            call.cancel()
        self._reports.clear()
        self._core.repair()
        self._step = None

    def _give_up(self) -> None:
        """Give up the goal of a call that was interrupted while it waited."""
        self._step = STEP
        self._core.interrupt()
        self._cancel_given_up()
        self._step = None

    def _is_abandoned(self, status: ProducerStatus) -> bool:
        """Return True if a transaction is open but its caller is gone. That caller was interrupted before it got the
        handle, or in a method that ends the transaction. Raises: Rejected if one is open and its caller is, or may be,
        still there."""
        if status is ProducerStatus.PREPARED:
            if PREPARED in self._given or self._core.is_kept:
                raise rejected(ErrorCode.INVALID_TXN_STATE, "a transaction is prepared; commit it or abort it first")
            return True
        if status not in OPEN:
            return False
        holder = self._given.get(TRANSACTION)
        if holder is None or not holder._is_open:
            return True
        if holder is self._refused_for and not self._is_used_elsewhere(holder._opened_by):
            return True
        self._refused_for = holder
        raise rejected(
            ErrorCode.INVALID_TXN_STATE,
            "a transaction is open already; end it before the next one (if the end of its `with` was interrupted: the "
            "next call of this kind aborts it)",
        )

    @abstractmethod
    def _is_used_elsewhere(self, opened_by: weakref.ref[Any]) -> bool:
        """Return True if a transaction was opened by another thread or task that still runs."""

    def _forget_given(self) -> None:
        """Invalidate the handle of the previous transaction, since another one begins."""
        holder = self._given.get(TRANSACTION)
        if holder is not None and holder._is_open:
            holder._is_given_up = True
            holder._is_open = False
        self._refused_for = None
        self._core.sender.traceparent = ""
        if not self._core.may_have_committed:
            # Cleared before the results are: otherwise the outcome of the previous transaction would seem unreported.
            self._core.is_commit_asked = False
        self._given = new_given()

    def _give(self, name: str, what: T) -> T:
        """Return a result to the caller, and note that the caller has it."""
        try:
            return self._given.setdefault(name, what)
        except BaseException:
            self._given.pop(name, None)
            raise

    def _known_outcome(self) -> bool | None:
        """Return True if the last commit succeeded and False if not; None if the server must be asked.

        Raises: Rejected if no commit was requested, or the caller knows its outcome; Fenced or OutcomeUnknown if the
        outcome can no longer be determined.
        """
        core = self._core
        if core.is_unresolved:
            return None
        if not core.is_commit_asked or OUTCOME in self._given:
            raise rejected(ErrorCode.INVALID_TXN_STATE, "there is no commit whose outcome is unknown")
        if core.is_committed:
            return True
        if core.fatal is not None and core.fatal.may_have_committed:
            raise core.fatal if isinstance(core.fatal, Fenced) else closed_unknown()
        if core.status is ProducerStatus.PREPARED:
            raise rejected(ErrorCode.INVALID_TXN_STATE, "the transaction is prepared: commit or abort that once more")
        # The commit was refused, or never sent; the next transaction aborts an open one.
        return False

    def _explain(self, interruption: BaseException) -> bool:
        """Add a note to the interruption of a commit on how to learn its outcome. Return True if the outcome is unknown
        or a commit."""
        self._clear_up()
        if not (self._core.is_unresolved or self._core.is_committed):
            return False
        interruption.add_note("The commit was interrupted: call resolve_outcome() to learn how it ended.")
        return True

    def _deliver(self) -> None:
        """Hand the arrived answers to the core; part of a step."""
        reports = self._reports
        while reports:
            flight, attempt, answer = reports.popleft()
            self._calls.pop(flight, None)
            self._core.on_answer(flight, attempt, answer, self._clock.monotonic_ms())

    def _leaving(self) -> Patience:
        """Return the time limit of the abort in `close`. Giving up is harmless: the server aborts at the timeout, and
        the next producer of this id aborts before it begins."""
        limit_ms = self._delivery_timeout_ms
        self._core.pulse.begin(self._clock.monotonic_ms())
        return Patience(self._clock.monotonic_ms() + limit_ms, limit_ms, CUT_OFF_CLOSE_MS)

    def _until_ms(self, patience: Patience) -> int:
        """Return the time of the next check, at the latest the end of patience. Raises: Retriable if it has ended."""
        now_ms = self._clock.monotonic_ms()
        pulse = self._core.pulse
        until_ms = patience.until_ms(now_ms, is_cut_off=self._connection.answers.is_lost, heard_ms=pulse.heard_ms)
        if now_ms >= until_ms:
            raise unconfirmed_abort(timed_out("the abort", patience.limit_ms), None, has_timeout=self._has_timeout)
        due_ms = pulse.due_ms()
        return until_ms if due_ms is None else min(until_ms, due_ms)

    def _note_failed_abort(self, error: BaseException, own: TransactionError | None, failed: TransactionError) -> None:
        """Note on `error` that the abort because of it failed. Raises: Fenced if `error` is the transaction's own
        failure, because its advice to repeat the work would be wrong."""
        if isinstance(failed, Fenced) and error is own:
            raise failed
        error.add_note(f"the abort that followed failed: {failed}")

    def _cancel_given_up(self) -> None:
        """Cancel the calls that the core has given up."""
        for flight in self._core.flights.take_cancelled():
            call = self._calls.pop(flight, None)
            if call is not None:
                call.cancel()


class TransactionShell(Generic[ProducerT]):
    """Base of `Transaction` and `AsyncTransaction`; not for applications."""

    def __init__(self, producer: ProducerT) -> None:
        self._producer = producer
        self._is_open = False
        self._opened_by: weakref.ref[Any]
        """Thread or task that opened the transaction."""
        self._is_given_up = False
        """True if the transaction was aborted because another one began."""
        self._trace: TransactionTrace | None = None
        """Span of the transaction; None = it is not traced."""
        self.csn = 0
        """Commit sequence number, which orders all outcomes of one coordinator shard; 0 until the commit is done."""

    def __repr__(self) -> str:
        state = "open" if self._is_open else f"committed, csn={self.csn}" if self.csn else "not open"
        return f"{type(self).__name__}({state}) of {self._producer!r}"

    def commit_offsets(self, consumer: OffsetSource[BatchT], batch: BatchT) -> None:
        """Commit the consumer's next offsets after this batch together with the transaction, or not at all.

        `batch` is the result of `Consumer.poll`, or a mapping of offsets by partition. The group refuses it once the
        consumer is no longer a member or the partitions belong to another member; the transaction then ends in
        Abortable. So every record counts once (KIP-447).

        The consumer must not commit automatically: `enable_auto_commit=False`. After an abort call
        `consumer.rewind(batch)`. Otherwise the consumer goes on after the batch, and the next commit passes its
        records.

        Raises: Abortable if a partition of a batch from `poll` no longer belongs to the consumer. Rejected if a
        partition of a mapping is not assigned: it was lost, or never assigned. Rejected without a group, or with
        automatic commits. Else as `send`.
        """
        self._check_open()
        self._producer._clear_up()
        offsets = consumer.transaction_offsets(batch)
        self._producer._change(self._producer._core.commit_offsets, offsets)
        self._producer._turn()

    def acknowledge(self, records: ShareRecords) -> None:
        """Acknowledge the records of one `ShareConsumer.poll` together with the transaction, or not at all. So each
        record counts exactly once, with what was made of it.

        Records are accepted unless the consumer rejected them before; those that it released or renewed are left out.
        They wait for the end of the transaction, without a lock duration. An abort makes them available again, or
        archives them at the group's delivery limit.

        The consumer must not accept by itself: `explicit=True`. After an abort call `consumer.release(records)` before
        the next poll. It gives back records that the transaction did not come to, and does nothing to others.

        Raises: Abortable if the consumer does not hold the records any more. Rejected in implicit mode. Else as `send`.
        """
        self._check_open()
        if records.for_transaction is None:
            return
        self._producer._clear_up()
        acks = records.for_transaction(records)
        if acks.types:
            self._producer._change(self._producer._core.acknowledge, acks)
            self._producer._turn()

    def _begin_trace(self) -> None:
        """Begin the span of the transaction, if this process traces."""
        core = self._producer._core
        self._trace = TRACING.begin(core.plan.transactional_id or "", core.identity)
        core.sender.traceparent = "" if self._trace is None else self._trace.traceparent

    def _ending(self, outcome: str) -> AbstractContextManager[None]:
        """Return a block in which the transaction ends, and its span with it."""
        return _UNTRACED if self._trace is None else self._trace.ending(outcome)

    def _check_open(self) -> None:
        if not self._is_open:
            self._check_not_given_up()
            raise rejected(ErrorCode.INVALID_TXN_STATE, "the transaction is over; open another one")

    def _check_not_given_up(self) -> None:
        if self._is_given_up:
            raise failure(
                ErrorCode.TRANSACTION_ABORTABLE,
                ErrorClass.ABORT,
                "the transaction was aborted, because another one was begun twice in its place",
            )


class PreparedShell(Generic[ProducerT]):
    """Base of `PreparedTransaction` and `AsyncPreparedTransaction`; not for applications."""

    def __init__(self, producer: ProducerT, identity: Identity) -> None:
        self._producer = producer
        self.identity: Final = identity
        """Name of the transaction, unchanged by recovery: store it beside the decision, and look it up there."""
