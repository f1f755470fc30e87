"""A transactional id whose stored state only a newer server knows fails alone, and nothing is guessed for it."""

from __future__ import annotations

import pytest

from coordinator_api.storage.v1 import transaction_pb2 as storage
from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.marker import Outcome
from coordinator_runtime.rows import state_row
from coordinator_runtime.store import CommitGroup
from tests.harness.inside import WorldOptions
from tests.harness.world import World
from tests.transactions.administered import Administered
from txn_coordinator.codec import TRANSACTION_TYPE
from txn_coordinator.config import EXPIRATION_MS, TwoPhase
from txn_coordinator.hanging import ProducerOwners
from txn_coordinator.shard import TransactionShard
from txn_coordinator.state import Identity

UNKNOWN = 77
PARTITION = "t-0"


def store_state(world: World, transactional_id: str, state: int) -> bytes:
    """Store the id in another state and start again. Gives the row as it is stored then."""
    world.settle()
    store = world.shelf.store
    family, key = state_row(
        world.inside.transactions.shard_key(transactional_id), TRANSACTION_TYPE, transactional_id.encode()
    )
    value = storage.TransactionValue.FromString(store.get(family, key) or b"")
    value.state = state
    store.write([CommitGroup(store.version() + 1, [(family, key, value.SerializeToString())])])
    store.sync()
    world.crash()
    return value.SerializeToString()


def stored_row(world: World, transactional_id: str) -> bytes | None:
    row = state_row(world.inside.transactions.shard_key(transactional_id), TRANSACTION_TYPE, transactional_id.encode())
    return world.shelf.store.get(*row)


def same_shard(world: World, transactional_id: str) -> str:
    shard_key = world.inside.transactions.shard_key
    names = (f"other-{number}" for number in range(100))
    return next(name for name in names if shard_key(name) == shard_key(transactional_id))


def initialised(world: World, transactional_id: str) -> Identity:
    reply = world.init(transactional_id)
    world.settle()
    return reply.result()


@pytest.fixture(params=TwoPhase)
def world(request: pytest.FixtureRequest) -> World:
    world = World(WorldOptions(two_phase=request.param))
    world.create_topic("t", 2)
    return world


def test_it_is_refused_with_the_reason_and_its_shard_serves(world: World) -> None:
    identity = initialised(world, "newer")
    world.produce("newer", identity, PARTITION, ["x"], sequence=0)
    row = store_state(world, "newer", UNKNOWN)
    other = same_shard(world, "newer")
    assert initialised(world, other).producer_epoch == 0
    for reply in (world.init("newer"), world.end("newer", identity, Outcome.COMMIT)):
        world.settle()
        with pytest.raises(Refused, match="state 77, which only a newer server knows") as refused:
            reply.result()
        assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    produced = world.produce("newer", identity, "t-1", ["y"], sequence=0)
    world.settle()
    assert produced.result().error.code is ErrorCode.KAFKA_STORAGE_ERROR
    with pytest.raises(Refused, match="state 77"):
        world.describe("newer")
    world.tick(EXPIRATION_MS + 100_000)
    assert stored_row(world, "newer") == row, "neither aborted nor forgotten: it is as it was stored"


def test_its_open_transaction_is_not_called_hanging(world: World) -> None:
    identity = initialised(world, "newer")
    world.produce("newer", identity, PARTITION, ["x"], sequence=0)
    store_state(world, "newer", UNKNOWN)
    owners = ProducerOwners(world.inside.runtime)
    with pytest.raises(Refused, match="state 77"):
        owners.owner_of(identity.producer_id)
    with pytest.raises(Refused, match="state 77"):
        owners.owners_of([identity.producer_id])
    assert owners.owners_of([identity.producer_id + 1]) == {}


@pytest.mark.parametrize("two_phase", TwoPhase)
def test_administrators_are_told_why_they_cannot_end_it(two_phase: TwoPhase) -> None:
    world = Administered(two_phase)
    world.opened("newer")
    row = store_state(world, "newer", UNKNOWN)
    for acted in (world.abort("newer"), world.fence("newer")):
        ((transactional_id, error),) = [(each.transactional_id, each.error) for each in acted.results]
        assert transactional_id == "newer"
        assert error is not None
        assert (error.code, "state 77" in error.message) == (ErrorCode.KAFKA_STORAGE_ERROR, True)
    assert stored_row(world, "newer") == row


@pytest.mark.parametrize("state", [6, 127, 2**32 - 1])
def test_it_goes_on_where_the_state_is_known_again(world: World, state: int) -> None:
    identity = initialised(world, "newer")
    world.produce("newer", identity, PARTITION, ["x"], sequence=0)
    store_state(world, "newer", state)
    shard: TransactionShard = world.inside.runtime.shard(world.inside.transactions.shard_key("newer"))
    assert [found.state for found in shard.table.unreadable.values()] == [state]
    store_state(world, "newer", 1)
    ended = world.end("newer", identity, Outcome.COMMIT)
    world.settle()
    assert ended.result().csn > 0
    assert world.read(PARTITION).values == ["x"]
