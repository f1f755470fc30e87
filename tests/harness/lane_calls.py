"""Calls as the server takes them: in the lane if they are for it, else by the general path."""

from __future__ import annotations

from coordinator_core.assembly import Core
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import CallContext
from txn_coordinator.requests import Transact
from txn_coordinator.service import TransactResult


def transact(core: Core, command: Transact, context: CallContext) -> Pending[TransactResult]:
    """Raises Refused."""
    lane = core.lane
    result = None if lane is None else lane.transact(command, context)
    if lane is None or result is None:
        return core.transactions.service.transact(command, context)
    return lane.end().map(lambda _ended: result)
