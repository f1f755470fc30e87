"""Calls as the server takes them: in the fast path if they are for it, else by the general path."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from coordinator_core.assembly import Core
from coordinator_core.fast_path import FastBatch, FastPath
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
    return transact_all(core, [(command, context)])[0]


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


def transact_all(core: Core, calls: Sequence[tuple[Transact, CallContext]]) -> Sequence[Pending[TransactResult]]:
    """Begin all Transacts of one message, in their order."""
    lane = core.fast_path
    replies: list[Pending[TransactResult]] = []
    taken: list[TransactResult] = []

    def end() -> None:
        if lane is not None and taken:
            ended = lane.end()
            replies.extend([ended.map(partial(_answer, result)) for result in taken])
            taken.clear()

    for command, context in calls:
        result = None if lane is None else _take(lane, command, context)
        if result is not None:
            taken.append(result)
        else:
            end()
            replies.append(called(partial(core.transactions.service.transact, command, context)))
    end()
    return replies


def _answer(result: TransactResult, _ended: None) -> TransactResult:
    return result


def _take(lane: FastPath, command: Transact, context: CallContext) -> TransactResult | None:
    batches = _columns(command.batches)
    if batches is None or command.outcome is not Outcome.COMMIT:
        return None
    taken = lane.transact(command.transactional_id, command.identity, batches, command.groups, context)
    if taken is None:
        return None
    after, first_offsets = taken
    return TransactResult(Ended(after.client_identity, after.csn), first_offsets)


def _columns(batches: Sequence[ClientBatch]) -> list[FastBatch] | None:
    columns: list[FastBatch] = []
    for batch in batches:
        if isinstance(batch.header, Refused):
            return None
        columns.append((batch.name, batch.header, batch.payload, batch.crc))
    return columns
