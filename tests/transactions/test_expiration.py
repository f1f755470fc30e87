"""Idle transactional ids are forgotten, and nothing else is (spec transactions 5)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from coordinator_runtime.decision import ArmTimer, Decision
from tests.harness.inside import WorldOptions
from tests.harness.manual_clock import ManualClock
from tests.harness.world import World
from tests.transactions.world_of_one import ID, NOW_MS, TURN, shard_with, transaction
from txn_coordinator.records import TransactionExpired, TransactionForgotten
from txn_coordinator.state import IDLE, TransactionState

EXPIRATION_MS = 1_000
DUE_MS = NOW_MS - EXPIRATION_MS


def sweep(state: TransactionState, last_update_ms: int) -> Decision:
    shard = shard_with(replace(transaction(state), last_update_ms=last_update_ms))
    shard.expiration_ms = EXPIRATION_MS
    return shard.decide_expire(TURN)


def next_sweep_ms(decision: Decision) -> int:
    (armed,) = decision.effects
    assert isinstance(armed, ArmTimer)
    return armed.delay_ms


@pytest.mark.parametrize("state", list(TransactionState))
def test_only_an_idle_id_expires_and_the_bound_is_inclusive(state: TransactionState) -> None:
    decision = sweep(state, DUE_MS)
    forgotten = [record.value for record in decision.records]
    if state in IDLE:
        assert forgotten == [TransactionForgotten(ID)]
        (event,) = decision.events
        assert isinstance(event, TransactionExpired)
        assert event.before.transactional_id == ID
    else:
        assert forgotten == []
    later = sweep(state, DUE_MS + 1)
    assert (later.records, later.events) == ((), ())


def test_the_next_look_is_when_the_next_id_is_due() -> None:
    assert next_sweep_ms(sweep(TransactionState.EMPTY, DUE_MS + 300)) == 300
    assert next_sweep_ms(sweep(TransactionState.ONGOING, DUE_MS - 300)) == EXPIRATION_MS, "nothing to look at earlier"
    assert next_sweep_ms(sweep(TransactionState.EMPTY, DUE_MS + 1)) == EXPIRATION_MS // 100, "not for every id anew"
    assert next_sweep_ms(sweep(TransactionState.EMPTY, NOW_MS + 9_999)) == EXPIRATION_MS, "a clock was set back"


def test_many_ids_go_in_several_steps() -> None:
    idle = transaction(TransactionState.EMPTY)
    shard = shard_with(
        *(replace(idle, transactional_id=f"id-{number}", last_update_ms=DUE_MS) for number in range(1_100))
    )
    shard.expiration_ms = EXPIRATION_MS
    sizes, delays = [], []
    for _step in range(3):
        decision = shard.decide_expire(TURN)
        for record in decision.records:
            assert isinstance(record.value, TransactionForgotten)
            shard.replay(record.value)
        sizes.append(len(decision.records))
        delays.append(next_sweep_ms(decision))
    assert sizes == [500, 500, 100]
    assert delays == [1, 1, EXPIRATION_MS]


def test_an_expiry_is_told_once_and_durable() -> None:
    world = World(WorldOptions(expiration_ms=EXPIRATION_MS))
    told: list[str] = []
    world.inside.runtime.on_event = lambda event, _turn: (
        told.append(event.before.transactional_id) if isinstance(event, TransactionExpired) else None
    )
    for transactional_id in ("a", "b"):
        world.init(transactional_id)
        world.settle()
    world.tick(2 * EXPIRATION_MS)
    assert told == [], "no answer before it is durable"
    world.settle()
    assert sorted(told) == ["a", "b"]
    world.check_replay()
    world.crash()
    world.settle()
    assert world.inside.state().transactions == {}


def test_a_crash_before_the_tombstone_is_durable_forgets_later() -> None:
    world = World(WorldOptions(expiration_ms=EXPIRATION_MS))
    world.init("a")
    world.settle()
    world.tick(EXPIRATION_MS)
    world.crash()
    assert set(world.inside.state().transactions) == {"a"}
    world.tick(100)
    world.settle()
    assert world.inside.state().transactions == {}
    assert isinstance(world.clock, ManualClock)
