"""Clients whose transactions are decided outside (KIP-939): a manager notes each decision, and none may be undone.

An instance that starts keeps what its predecessor left open and ends it as the manager says; what the manager knows
nothing of is aborted, and noted as aborted first, so that a predecessor who still lives cannot decide otherwise.
"""

from __future__ import annotations

from random import Random

from tests.simulation.clients import Instance, Numbers
from tests.simulation.history import History, Identity, Op


class Manager:
    """The outside: a database, a workflow engine. Its notes survive everything."""

    def __init__(self) -> None:
        self.transactions: dict[Identity, int] = {}
        """Token of a transaction (the identity it was begun with) -> its number."""
        self._decisions: dict[Identity, str] = {}

    def settle(self, token: Identity, wanted: str) -> str:
        """Note a decision, or hear the one that was noted before."""
        return self._decisions.setdefault(token, wanted)


class Participant(Instance):
    """One process that takes part in decisions of the manager."""

    def __init__(
        self, name: str, transactional_id: str, *, manager: Manager, rng: Random, history: History, numbers: Numbers
    ) -> None:
        super().__init__(name, transactional_id, 2, rng=rng, history=history, numbers=numbers)
        self._manager = manager
        self._kept: Identity | None = None
        self._is_prepared = False

    @property
    def has_recovered(self) -> bool:
        """Nothing of a predecessor is open any more."""
        return self.identity is not None and self._kept is None

    def next_request(self, partitions: list[str], now: int) -> Op | None:
        if self._must_recover:
            self.is_dead = True
        if self.is_dead:
            return None if self.identity is None else self._produce(self._rng.choice(partitions), now)
        if self.identity is None:
            op = self._init(now)
            op.keeps = True
            return op
        if self._kept is not None:
            self._transaction = self._manager.transactions[self._kept]
            return self._carry_out(self._manager.settle(self._kept, "abort"), now)
        if not self._transaction:
            self._begin()
            self._manager.transactions[self.identity] = self._transaction
        if self._steps_left > 0 and not self._must_abort:
            self._steps_left -= 1
            return self._work(partitions, now)
        return self._finish_transaction(self.identity, now)

    def _finish_transaction(self, token: Identity, now: int) -> Op:
        if self._must_abort or not self._has_work:
            return self._carry_out(self._manager.settle(token, "abort"), now)
        if not self._is_prepared:
            return self._op("prepare", now)
        wanted = "commit" if self._rng.random() < 0.8 else "abort"
        return self._carry_out(self._manager.settle(token, wanted), now)

    def _carry_out(self, outcome: str, now: int) -> Op:
        """EndTxn, or a Transact that brings nothing: to what is prepared or kept nothing can be added."""
        if self._rng.random() < self.transact_share:
            return self._transact(outcome, [], now)
        return self._op("end", now, outcome=outcome)

    def _on_init(self, op: Op) -> None:
        super()._on_init(op)
        self._kept = op.ongoing

    def _on_done(self, op: Op) -> None:
        if op.kind == "prepare":
            self._is_prepared = True
            return
        super()._on_done(op)
        if op.kind in ("end", "transact"):
            self._kept, self._is_prepared = None, False

    def _on_end_refused(self, op: Op) -> None:
        # A newer instance keeps the transaction and ends it as the manager says.
        self.is_dead = True
