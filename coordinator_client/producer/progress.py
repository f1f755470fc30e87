"""State that the parts of a producer's core share, and the few ways in which they change it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from coordinator_client.errors import TransactionError
from coordinator_client.flights import Flights
from coordinator_client.producer.batching import SealedBatch, TopicWriter
from coordinator_client.producer.sending import CorePlan, Sender
from coordinator_client.producer.state import Goal, ProducerStatus, step
from coordinator_client.random_source import RandomSource
from coordinator_client.values import Identity

FAILURE: Final = "failure"

_READY = ProducerStatus.READY
_UNINITIALISED = ProducerStatus.UNINITIALISED


class ProducerProgress:
    """Status, identity, goal and failures of one producer. Not for two threads at once."""

    def __init__(
        self,
        plan: CorePlan,
        random_source: RandomSource,
        on_send_failed: Callable[[TransactionError, SealedBatch | None], None],
    ) -> None:
        self.plan: Final = plan
        self._random_source = random_source
        self._on_send_failed = on_send_failed
        self.is_transactional: Final = plan.transactional_id is not None
        """True if records are sent in transactions only."""
        self.flights = Flights(random_source)
        """Requests in flight, with the time of the next check and the calls that were given up."""
        self.sender = Sender(plan, flights=self.flights, random_source=random_source, on_failed=on_send_failed)
        self.writers: Mapping[str, TopicWriter] = self.sender.waiting.writers
        """Writer of each known topic; a missing topic must be looked up first, see `ProducerCore.learn`."""
        self.status = ProducerStatus.UNINITIALISED
        self.identity: Identity | None = None
        self.csn = 0
        """Commit sequence number of the last transaction that ended; 0 = none has yet."""
        self.prepared: Identity | None = None
        """Name of the transaction that waits for an outside decision; None = there is none."""
        self.is_kept = False
        """True if that transaction is an earlier producer's, which `recover` kept."""
        self.is_transaction_sent = False
        """True if the server may know of the open transaction."""
        self.goal: Goal | None = None
        """Goal of the caller; None = it was reached, or given up."""
        self.result: TransactionError | None = None
        """Result of the last goal; None = it was reached."""
        self.failure: TransactionError | None = None
        """Reason why the open transaction, or the records of a plain producer since the last flush, cannot succeed."""
        self.more_failures = 0
        """Number of sends that failed after that."""
        self.told: dict[str, TransactionError] = {}
        """Failure that a plain producer has raised. The expression that raises it stores it here, so that an
        interruption cannot come between."""
        self.fatal: TransactionError | None = None
        """Reason why the producer is closed."""

    def forget_work(self) -> None:
        """Restart without records, requests and known topics, whatever state they are in."""
        self.goal, self.result, self.more_failures = None, None, 0
        self.flights = Flights(self._random_source, before=self.flights)
        self.sender = Sender(
            self.plan, flights=self.flights, random_source=self._random_source, on_failed=self._on_send_failed
        )
        self.writers = self.sender.waiting.writers

    def step(self, to: ProducerStatus) -> None:
        """Change to this status."""
        self.status = step(self.status, to)
        if to is _READY or to is _UNINITIALISED:
            self.prepared = None

    def set_goal(self, goal: Goal) -> None:
        """Set the goal to work towards from now on."""
        assert self.goal is None, f"{self.goal} is still being worked on"
        self.result = None
        self.goal = goal

    def finish(self, result: TransactionError | None) -> None:
        """End the goal; None = it was reached."""
        if result is not None and self.more_failures:
            result.add_note(f"further sends that failed: {self.more_failures}")
        self.more_failures = 0
        self.goal, self.result = None, result

    def finish_learning(self, error: TransactionError | None) -> None:
        """End the goal if it is to know a topic."""
        if self.goal is Goal.LEARN:
            self.finish(error)

    @property
    def is_failure_told(self) -> bool:
        """True if `failure` has been raised and no longer counts."""
        return bool(self.told) and self.told.get(FAILURE) is self.failure

    def note_failure(self, error: TransactionError) -> None:
        """Store the reason why the transaction, or the next flush, fails. The first reason counts."""
        if self.is_transactional:
            # A lookup of a topic is dropped with the transaction, so its caller must not wait any longer.
            self.finish_learning(error)
        if self.failure is None or self.is_failure_told:
            self.told.clear()
            self.failure = error
        else:
            self.more_failures += 1

    def adopt(self, identity: Identity | None) -> None:
        """Use this identity from now on, with sequences that begin at 0; None = the next use asks for one."""
        self.identity = identity
        self.sender.waiting.restart_sequences()

    def drop_sends(self) -> None:
        """Forget all records and requests."""
        # The requests in flight need no answer. A batch that reaches the log after the abort is refused: its epoch has
        # ended.
        self.flights.cancel_all()
        self.sender.drop()

    def close_because(self, error: TransactionError) -> None:
        """Stop sending permanently."""
        self.fatal = error
        self.drop_sends()
        self.step(ProducerStatus.CLOSED)
