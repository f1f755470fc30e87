"""Principals that hold transactional ids and open transactions, tracked by events.

The principal that opened a transaction is not stored with it. So after a start an open transaction counts for no
principal until it ends, and an id counts from its next use.
"""

from __future__ import annotations

from coordinator_runtime.decision import Turn
from coordinator_runtime.ports import INTERNAL, Level, Levels
from txn_coordinator.records import TransactionExpired, TransactionStepped
from txn_coordinator.state import TransactionState


class TransactionHolders:
    """Counts ids and open transactions by principal. Called with events once they are durable."""

    def __init__(self, levels: Levels) -> None:
        self._levels = levels
        self._ids: dict[str, str] = {}
        """Principal that holds each transactional id."""
        self._open: dict[str, str] = {}
        """Principal that opened the transaction of an id."""

    def __call__(self, event: object, turn: Turn) -> None:
        """Update the counts by an event."""
        if isinstance(event, TransactionStepped):
            self._stepped(event, turn.principal)
        elif isinstance(event, TransactionExpired):
            self._end(self._ids, Level.TRANSACTIONAL_IDS, event.before.transactional_id)

    def _stepped(self, event: TransactionStepped, principal: str) -> None:
        after = event.after
        name = after.transactional_id
        # Members of sinks are ids that the server makes, and they go with their decision.
        if name not in self._ids and after.member is None and principal != INTERNAL.principal:
            self._begin(self._ids, Level.TRANSACTIONAL_IDS, name, principal)
        if after.state is not TransactionState.ONGOING:
            self._end(self._open, Level.OPEN_TRANSACTIONS, name)
        elif name not in self._open and (event.before is None or event.before.state is not TransactionState.ONGOING):
            self._begin(self._open, Level.OPEN_TRANSACTIONS, name, principal)

    def _begin(self, holders: dict[str, str], level: Level, name: str, principal: str) -> None:
        holders[name] = principal
        self._levels.add(level, principal)

    def _end(self, holders: dict[str, str], level: Level, name: str) -> None:
        principal = holders.pop(name, None)
        if principal is not None:
            self._levels.add(level, principal, -1)
