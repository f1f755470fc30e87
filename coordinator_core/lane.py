"""The lane: calls of the common shape, a whole message at once, beside the general path.

The general path (operation, decision, joins, replay) handles everything, and is the reference. Whatever is unusual in
any way the lane leaves to it, untouched and in its place among the others, so both give the same.
"""

from __future__ import annotations

from coordinator_runtime.pending import Pending, settled
from coordinator_runtime.ports import CallContext
from txn_coordinator.requests import Transact
from txn_coordinator.service import TransactResult


class Lane:
    """Takes the calls of one message, one after the other. Between the first `transact` of a message and its `end`
    nobody else may write."""

    def transact(self, command: Transact, context: CallContext) -> TransactResult | None:
        """The transaction has ended, with all that it brings, and the caller may hear of it once the `end` of the
        message is settled. None: it is not of the common shape, and nothing has happened."""
        return None

    def end(self) -> Pending[None]:
        """All that was taken since the last end is staged. The reply comes when it is durable.

        Errors: UnknownOutcome."""
        return settled(None)

    def take_back(self) -> None:
        """Undo all that was taken since the last end: the lane met a defect of its own."""
