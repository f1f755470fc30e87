"""Metrics of sinks: their decisions, and the members that wait for one. On the loop thread only."""

from __future__ import annotations

from typing import Final

from coordinator_server.metrics.instruments import MS, Readings, counts, single
from txn_coordinator.records import SinkDecided, SinkJoined
from txn_coordinator.state import Transaction, TransactionState

RESULTS: Final = ("committed", "repeated", "given_up")
ANSWERS: Final = ("member", "committed")


class SinkNumbers:
    """Decisions since the process started, and the members that are undecided now."""

    def __init__(self) -> None:
        self._batches = counts(*RESULTS)
        self._joins = counts(*ANSWERS)
        self._open: set[str] = set()
        self._sealed_since_ms: dict[str, int] = {}

    def moved(self, before: Transaction | None, after: Transaction | None) -> None:
        """Record a changed member. `before` is None for a new member, and `after` for a forgotten one."""
        if before is not None:
            self._open.discard(before.transactional_id)
            self._sealed_since_ms.pop(before.transactional_id, None)
        if after is None or after.state is not TransactionState.ONGOING:
            return
        if after.prepared_ms is None:
            self._open.add(after.transactional_id)
        else:
            self._sealed_since_ms[after.transactional_id] = after.prepared_ms

    def decided(self, event: SinkDecided) -> None:
        """Count a decision that is durable, or was found made."""
        self._batches[event.result] += 1

    def joined(self, event: SinkJoined) -> None:
        """Count the answer to a task that joins a batch."""
        self._joins[event.answer] += 1

    def readings(self, now_ms: int) -> Readings:
        """Return all counts."""
        oldest_ms = min(self._sealed_since_ms.values(), default=now_ms)
        return {
            "txn_sink_batches_total": {(result,): number for result, number in self._batches.items()},
            "txn_sink_joins_total": {(answer,): number for answer, number in self._joins.items()},
            "txn_sink_members": {("open",): len(self._open), ("sealed",): len(self._sealed_since_ms)},
            "txn_sink_oldest_sealed_age_seconds": single(max(0, now_ms - oldest_ms) / MS),
        }
