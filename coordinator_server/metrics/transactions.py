"""Metrics of transactions, counted as their steps become durable. On the loop thread only."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from coordinator_server.metrics.instruments import (
    AGES_SECONDS,
    MS,
    SECONDS,
    SIZES,
    Distribution,
    Labels,
    Readings,
    copies,
    counts,
    single,
)
from coordinator_server.metrics.sinks import SinkNumbers
from txn_coordinator.records import TransactionExpired, TransactionRanThrough, TransactionStepped
from txn_coordinator.state import DECIDED, IllegalStep, Transaction, TransactionState

FENCING_REASONS: Final = {
    "fence": "newer_init",
    "timeout": "timeout",
    "topic_deleted": "topic_deleted",
    "admin": "admin",
}
"""Causes of aborts that the client did not ask for, and the fencing reason of each for the producer."""

_COMMIT: Final[Labels] = ("commit",)
_ABORT: Final[Labels] = ("abort",)
_OUTCOMES: Final = {
    TransactionState.PREPARE_COMMIT: _COMMIT,
    TransactionState.PREPARE_ABORT: _ABORT,
    TransactionState.COMPLETE_COMMIT: _COMMIT,
    TransactionState.COMPLETE_ABORT: _ABORT,
}
_CAUSES: Final = (("commit", "client"), *(("abort", cause) for cause in ("client", *FENCING_REASONS)))


class TransactionNumbers:
    """Events of transactions since the process started, and the transactions that are under way."""

    def __init__(self) -> None:
        self.sinks = SinkNumbers()
        self._by_state = [0] * len(TransactionState)
        self._inits = counts("new", "bump", "reuse", "rotate", "keep")
        self._rotations = 0
        self._expired = 0
        self._completed: defaultdict[Labels, int] = counts(*_CAUSES)
        self._fenced = counts(*FENCING_REASONS.values())
        self._illegal_steps: defaultdict[Labels, int] = counts()
        self._open_to_end = {labels: Distribution(AGES_SECONDS, MS) for labels in (_COMMIT, _ABORT)}
        self._end_to_complete = {labels: Distribution(SECONDS, MS) for labels in (_COMMIT, _ABORT)}
        self._participants = Distribution(SIZES)
        self._open_since_ms: dict[str, int] = {}
        self._decided_since_ms: dict[str, int] = {}
        self._awaited_since_ms: dict[str, int] = {}
        """Times at which transactions were prepared for a pending outside decision, by transactional id."""

    @property
    def known_ids(self) -> int:
        return sum(self._by_state)

    def counters(self) -> dict[str, float]:
        """Return the numbers of finished transactions and of fences since the process started."""
        commits = sum(number for (outcome, _cause), number in self._completed.items() if outcome == "commit")
        aborts = sum(self._completed.values()) - commits
        return {"commits": commits, "aborts": aborts, "fences": sum(self._fenced.values())}

    def levels(self, now_ms: int) -> dict[str, float]:
        """Return the number of open transactions and the age of the oldest."""
        return {
            "open_transactions": len(self._open_since_ms),
            "oldest_open_seconds": _oldest_seconds(self._open_since_ms, now_ms),
        }

    def load(self, transactions: Iterable[Transaction]) -> None:
        """Add transactions that were loaded from the store."""
        for transaction in transactions:
            self._move(None, transaction)

    def unload(self, transactions: Iterable[Transaction]) -> None:
        """Remove transactions that are unloaded. All their steps were counted before."""
        for transaction in transactions:
            self._move(transaction, None)

    def stepped(self, event: TransactionStepped, now_ms: int) -> None:
        """Count a durable step. `now_ms` is the wall time at which it became known."""
        before, after = event.before, event.after
        state = after.state
        if before is None or before.state is not state:
            self._move(before, after)
        if state is TransactionState.ONGOING:
            # If the id was ONGOING before, `_move` was not called and has not noted this.
            if after.prepared_ms is not None:
                self._awaited_since_ms[after.transactional_id] = after.prepared_ms
                if after.member is not None:
                    self.sinks.moved(before, after)
            if after.cause == "keep":
                self._inits["keep"] += 1
            return
        if before is not None and before.producer_id != after.producer_id:
            self._rotations += 1
        if state is TransactionState.EMPTY:
            self._initialised(before, after)
        elif state in DECIDED:
            self._decided_one(before, after)
        elif before is not None:
            self._completed_one(before, after, now_ms)

    def ran_through(self, event: TransactionRanThrough, now_ms: int) -> None:
        """Count several steps at once: the states in between are over already."""
        after = event.transaction
        self._move(event.before, after)
        self._participants.observe(len(event.partitions) + len(event.groups))
        # The transaction was opened and decided at the same moment.
        self._open_to_end[_COMMIT].observe(0)
        self._completed["commit", after.cause] += 1
        self._end_to_complete[_COMMIT].observe(max(0, now_ms - after.last_update_ms))

    def expired(self, event: TransactionExpired) -> None:
        """Count an unused id that was forgotten."""
        self._move(event.before, None)
        self._expired += 1

    def met_defect(self, defect: BaseException) -> None:
        """Count a failed operation if the defect was a step that no table allows."""
        if isinstance(defect, IllegalStep):
            self._illegal_steps[defect.before.api_name, defect.after.api_name] += 1

    def pending_since_ms(self, transactional_ids: Iterable[str]) -> int | None:
        """Return the wall time of the oldest decision among these ids; None if none of them is being completed."""
        since = self._decided_since_ms
        return min((since[name] for name in transactional_ids if name in since), default=None)

    def readings(self, now_ms: int) -> Readings:
        """Return all counts."""
        return {
            "txn_coordinator_transactions": {(state.api_name,): self._by_state[state] for state in TransactionState},
            "txn_coordinator_transactional_ids": single(self.known_ids),
            "txn_coordinator_init_total": {(result,): number for result, number in self._inits.items()},
            "txn_coordinator_epoch_rotations_total": single(self._rotations),
            "txn_coordinator_completed_total": dict(self._completed),
            "txn_coordinator_open_to_end_seconds": copies(self._open_to_end),
            "txn_coordinator_end_to_complete_seconds": copies(self._end_to_complete),
            "txn_coordinator_partitions_per_txn": single(self._participants.copy()),
            "txn_coordinator_oldest_open_age_seconds": single(_oldest_seconds(self._open_since_ms, now_ms)),
            "txn_coordinator_oldest_prepare_age_seconds": single(_oldest_seconds(self._decided_since_ms, now_ms)),
            "txn_coordinator_oldest_prepared_2pc_age_seconds": single(_oldest_seconds(self._awaited_since_ms, now_ms)),
            "txn_coordinator_expired_ids_total": single(self._expired),
            "txn_coordinator_fenced_total": {(reason,): number for reason, number in self._fenced.items()},
            "txn_coordinator_invalid_transitions_total": dict(self._illegal_steps),
            **self.sinks.readings(now_ms),
        }

    def _move(self, before: Transaction | None, after: Transaction | None) -> None:
        """Record a changed state of an id. `before` is None for a new id, and `after` for one that is forgotten or
        unloaded."""
        if (after or before).member is not None:  # type: ignore[union-attr]  # one of them is there
            self.sinks.moved(before, after)
        if before is not None:
            state = before.state
            self._by_state[state] -= 1
            if state is TransactionState.ONGOING:
                del self._open_since_ms[before.transactional_id]
                self._awaited_since_ms.pop(before.transactional_id, None)
            elif state in DECIDED:
                del self._decided_since_ms[before.transactional_id]
        if after is not None:
            state = after.state
            self._by_state[state] += 1
            if state is TransactionState.ONGOING:
                self._open_since_ms[after.transactional_id] = after.start_ms
                if after.prepared_ms is not None:
                    self._awaited_since_ms[after.transactional_id] = after.prepared_ms
            elif state in DECIDED:
                self._decided_since_ms[after.transactional_id] = after.last_update_ms

    def _initialised(self, before: Transaction | None, after: Transaction) -> None:
        if after.cause != "admin":
            self._inits[_init_result(before, after)] += 1
        elif is_admin_fence(before, after):
            self._fenced["admin"] += 1

    def _decided_one(self, before: Transaction | None, after: Transaction) -> None:
        if before is not None and before.state is TransactionState.ONGOING:
            self._participants.observe(after.participant_count)
            elapsed_ms = after.last_update_ms - after.start_ms
            self._open_to_end[_OUTCOMES[after.state]].observe(max(0, elapsed_ms))
        if (reason := FENCING_REASONS.get(after.cause)) is not None:
            self._fenced[reason] += 1

    def _completed_one(self, before: Transaction, after: Transaction, now_ms: int) -> None:
        labels = _OUTCOMES[after.state]
        self._completed[(*labels, after.cause)] += 1
        self._end_to_complete[labels].observe(max(0, now_ms - before.last_update_ms))


def is_admin_fence(before: Transaction | None, after: Transaction) -> bool:
    """Return True if this step is an administrator's fence. A producer with an open transaction was fenced by the abort
    before, which counts instead."""
    was_aborted = before is not None and before.cause == "admin" and before.state is TransactionState.COMPLETE_ABORT
    return after.state is TransactionState.EMPTY and after.cause == "admin" and not was_aborted


def _init_result(before: Transaction | None, after: Transaction) -> str:
    if before is None:
        return "new"
    if before.producer_id != after.producer_id:
        return "rotate"
    return "reuse" if before.producer_epoch == after.producer_epoch else "bump"


def _oldest_seconds(since_ms: dict[str, int], now_ms: int) -> float:
    return max(0, now_ms - min(since_ms.values())) / MS if since_ms else 0.0
