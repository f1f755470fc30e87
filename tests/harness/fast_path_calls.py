"""Calls as the server takes them: in the fast path if they are for it, else by the general path."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from coordinator_core.assembly import Core
from coordinator_core.fast_batches import FastBatch
from coordinator_core.fast_path import FastPath
from coordinator_protocol.errors import CoordinatorError, Refused
from coordinator_protocol.marker import Outcome
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import CallContext, ClientBatch
from partition_log.requests import Produce, ProduceResult
from partition_log.service import LogService
from tests.harness.calls import called
from txn_coordinator.outcomes import Ended
from txn_coordinator.requests import EndTxn, Transact
from txn_coordinator.service import TransactionService, TransactResult


def transact(core: Core, command: Transact, context: CallContext) -> Pending[TransactResult]:
    """A message of one."""
    lane, batches, taken = core.fast_path, _columns(command.batches), None
    if lane is not None and batches is not None and command.outcome is Outcome.COMMIT:
        taken = lane.transact(command.transactional_id, command.identity, batches, command.groups, context)
    if lane is None or taken is None:
        return called(partial(core.transactions.service.transact, command, context))
    after, first_offsets = taken
    result = TransactResult(Ended(after.client_identity, after.csn), first_offsets)
    return lane.end().map(lambda _ended: result)


def produce(
    lane: FastPath | None, service: LogService, command: Produce, context: CallContext
) -> Pending[list[ProduceResult]]:
    """A message of one."""
    results = None
    batches = _columns(command.batches)
    if lane is not None and batches is not None and command.transactional_id:
        results = lane.produce(command.transactional_id, batches, context)
    if lane is None or results is None:
        return called(partial(service.produce, command, context))
    return lane.end().map(lambda _ended: results, partial(_all_lost, results))


def end_txn(
    lane: FastPath | None, service: TransactionService, command: EndTxn, context: CallContext
) -> Pending[Ended]:
    """A message of one."""
    ended = None
    if lane is not None and command.outcome is Outcome.COMMIT:
        ended = lane.commit(command.transactional_id, command.identity, command.last_sequences, context)
    if lane is None or ended is None:
        return called(partial(service.end_txn, command, context))
    return lane.end().map(lambda _ended: ended)


def _all_lost(results: Sequence[ProduceResult], error: Exception) -> list[ProduceResult]:
    assert isinstance(error, CoordinatorError), error
    return [ProduceResult(result.name, error=error) for result in results]


def _columns(batches: Sequence[ClientBatch]) -> list[FastBatch] | None:
    columns: list[FastBatch] = []
    for batch in batches:
        if isinstance(batch.header, Refused):
            return None
        columns.append((batch.name, batch.header, batch.payload, batch.crc))
    return columns
