"""The history tells what was decided: the Prepare state as it was, whether it has a record of its own or another one
stands for it."""

from __future__ import annotations

from itertools import product

import msgspec
import pytest
from msgspec.structs import replace

from coordinator_protocol.marker import Outcome
from tests.transactions.world_of_one import (
    EXHAUSTED,
    ID,
    NOW_MS,
    PRODUCER_ID,
    TURN,
    ask,
    shard_with,
    steps_in,
    transaction,
)
from txn_coordinator.codec import TransactionCodec, step_of
from txn_coordinator.config import TwoPhase
from txn_coordinator.outcomes import Contribution
from txn_coordinator.records import TransactionChanged
from txn_coordinator.requests import EndTxn
from txn_coordinator.rules import adding, transacting
from txn_coordinator.shard import Decision, PlacedTransact, TransactionShard
from txn_coordinator.state import DECIDED, NO_EPOCH, NO_PRODUCER_ID, Identity, Transaction, TransactionState
from txn_coordinator.steps import StoredStep, decode_step

_NO_PRODUCER = Identity(NO_PRODUCER_ID, NO_EPOCH)
_KEEPERS = (
    _NO_PRODUCER,
    Identity(PRODUCER_ID, 8),
    Identity(PRODUCER_ID, EXHAUSTED),
    Identity(9, 0),
    Identity(9, EXHAUSTED),
)


def _states() -> list[Transaction]:
    """Every state in which an outcome can be decided; open ones prepared or not, kept by whom or not."""
    idle = (TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)
    found = [transaction(state, epoch=epoch) for state in idle for epoch in (5, EXHAUSTED)]
    for epoch, prepared_ms, keeper in product((5, EXHAUSTED), (None, NOW_MS - 60), _KEEPERS):
        opened = transaction(TransactionState.ONGOING, epoch=epoch)
        found.append(
            replace(
                opened,
                prepared_ms=prepared_ms,
                next_producer_id=keeper.producer_id,
                next_producer_epoch=keeper.producer_epoch,
            )
        )
    return found


def _end(shard: TransactionShard, before: Transaction, outcome: Outcome) -> Decision:
    request = EndTxn(transactional_id=ID, identity=before.client_identity, outcome=outcome)
    return shard.decide_end(request, TURN)


def _transact(shard: TransactionShard, before: Transaction, outcome: Outcome) -> Decision:
    request = transacting.TransactRequest(ID, before.client_identity, outcome, b"t" * 16)
    return shard.decide_transact(PlacedTransact(request, Contribution()), TURN)


def _transact_more(shard: TransactionShard, before: Transaction, outcome: Outcome) -> Decision:
    more = adding.Additions(partitions=frozenset({1, 5}), groups=frozenset({"g"}))
    request = transacting.TransactRequest(ID, before.client_identity, outcome, b"t" * 16, more)
    return shard.decide_transact(PlacedTransact(request, Contribution()), TURN)


def _abort(shard: TransactionShard, before: Transaction, _outcome: Outcome) -> Decision:
    return shard.decide_abort(TURN, meant=before, cause="admin")


@pytest.mark.parametrize("end", [_end, _transact, _transact_more, _abort])
@pytest.mark.parametrize("outcome", list(Outcome))
@pytest.mark.parametrize("two_phase", list(TwoPhase))
def test_the_records_tell_what_was_decided(end: object, outcome: Outcome, two_phase: TwoPhase) -> None:
    assert callable(end)
    decided = 0
    for before in _states():
        shard = shard_with(before, two_phase=two_phase)
        decision = ask(lambda shard=shard, before=before: end(shard, before, outcome))  # type: ignore[misc]
        if isinstance(decision, int):
            continue
        steps = [step.after for step in steps_in(decision) if step.after.state is not TransactionState.ONGOING]
        assert _told(decision) == [step_of(TransactionChanged(after)) for after in steps], f"from {before}"
        decided += bool(steps)
    assert decided


def _told(decision: Decision) -> list[StoredStep]:
    """The states that the history tells of a decision, in their order, each as if it had a step of its own."""
    told: list[StoredStep] = []
    for value in (record.value for record in decision.records):
        if isinstance(value, TransactionChanged):
            encoded = TransactionCodec().encode(value)
            step = decode_step(msgspec.Raw(msgspec.msgpack.encode(encoded.told)))
            assert step is not None
            told += [each if each.state in DECIDED else replace(each, decided=None) for each in reversed(step.each)]
    return told
