"""D and F: shards that leave and come back, alone and while others serve."""

from __future__ import annotations

import pytest

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_runtime.decision import Coordinator, ShardKey, Turn
from coordinator_runtime.shard_table import ShardState
from tests.conformance.transactions.case_world import COMMIT, CaseWorld
from tests.conformance.transactions.cases import case
from txn_coordinator.config import EXPIRATION_MS
from txn_coordinator.records import TransactionStepped
from txn_coordinator.shard import TransactionShard
from txn_coordinator.state import TransactionState

A_SECOND = 1_000


def shard_of(world: CaseWorld, transactional_id: str) -> TransactionShard:
    shard: TransactionShard = world.inside.runtime.shard(world.inside.transactions.shard_key(transactional_id))
    return shard


def ids_in(world: CaseWorld, number: int, count: int) -> list[str]:
    """Some ids of one shard."""
    shard = ShardKey(Coordinator.TRANSACTIONS, number)
    names = (f"id{each}" for each in range(100))
    found = [name for name in names if world.inside.transactions.shard_key(name) == shard]
    return found[:count]


def unloads(world: CaseWorld, transactional_id: str) -> None:
    """The shard leaves, and is gone."""
    unloaded = world.unload(transactional_id)
    world.flush()
    unloaded.result()


def loads(world: CaseWorld, transactional_id: str) -> None:
    """The shard is read, and serves; what it owes is under way."""
    loaded = world.load(transactional_id)
    world.inside.driver.read_all()
    world.flush()
    loaded.result()


def completions(world: CaseWorld) -> list[str]:
    """Fills with the ids that become complete from now on."""
    completed: list[str] = []

    def on_event(event: object, _turn: Turn) -> None:
        if isinstance(event, TransactionStepped) and event.after.state is TransactionState.COMPLETE_COMMIT:
            completed.append(event.after.transactional_id)

    world.inside.runtime.on_event = on_event
    return completed


def decided(world: CaseWorld, transactional_id: str = "orders") -> list[str]:
    """An id whose commit is decided and whose markers are under way; what completes from then on."""
    world.ongoing(transactional_id).commit()
    assert world.state(transactional_id) == "PrepareCommit"
    return completions(world)


@case(134)
def test_a_shard_that_left_before_complete_leaves_it_to_the_next_owner() -> None:
    world = CaseWorld(split=True)
    completed = decided(world)
    unloads(world, "orders")
    world.settle()
    world.tick(60 * A_SECOND)
    world.settle()
    assert (world.state(), len(world.markers()), completed) == ("16", 1, [])
    loads(world, "orders")
    assert world.state() == "PrepareCommit"
    world.settle()
    assert (world.state(), len(world.markers()), completed) == ("CompleteCommit", 1, ["orders"])


@case(138)
def test_only_the_markers_of_the_shard_that_left_are_dropped() -> None:
    world = CaseWorld(split=True)
    world.answers_markers(Refused(ErrorCode.NETWORK_EXCEPTION, "away"), "t-0")
    (here,), (there,) = ids_in(world, 0, 1), ids_in(world, 1, 1)
    for name in (here, there):
        world.ongoing(name).commit()
    world.settle()
    assert sorted(world.inside.sender.unfinished_ids()) == sorted([here, there])
    unloads(world, here)
    assert list(world.inside.sender.unfinished_ids()) == [there]
    world.answers_markers(None)
    world.tick(A_SECOND)
    world.settle()
    assert (world.state(here), world.state(there)) == ("16", "CompleteCommit")


@case(142)
@pytest.mark.parametrize("is_loading", [False, True], ids=["lost", "loading"])
def test_a_marker_that_is_written_late_completes_nothing(is_loading: bool) -> None:
    """It was sent before the shard left, and is durable after that."""
    world = CaseWorld(split=True)
    completed = decided(world)
    if is_loading:
        world.load("orders")
    else:
        world.unload("orders")
    world.flush()
    assert (len(world.markers()), completed) == (1, [])
    assert world.state() == ("14" if is_loading else "16")
    loads(world, "orders")
    assert (world.state(), completed) == ("PrepareCommit", [])


@case(143)
def test_answers_to_an_older_coordinator_epoch_change_nothing() -> None:
    world = CaseWorld(split=True)
    completed = decided(world)
    world.load("orders")
    world.inside.driver.read_all()
    # The markers of the old epoch become durable together with the new epoch, which sends its own.
    world.flush()
    assert (shard_of(world, "orders").coordinator_epoch, len(world.markers())) == (2, 1)
    assert (world.state(), completed) == ("PrepareCommit", [])
    world.settle()
    assert (world.state(), len(world.markers()), completed) == ("CompleteCommit", 1, ["orders"])


@case(194)
@pytest.mark.parametrize("split", [False, True], ids=["fused", "split"])
def test_the_newest_state_of_every_id_is_there_until_the_shard_leaves(split: bool) -> None:
    world = CaseWorld(split=split)
    one, two = ids_in(world, 0, 2)
    for name in (one, two):
        client = world.ongoing(name)
        client.commit()
        world.settle()
        client.add("t-1")
    loads(world, one)
    assert [world.state(name) for name in (one, two)] == ["Ongoing", "Ongoing"]
    unloads(world, one)
    assert [world.state(name) for name in (one, two)] == ["16", "16"]
    assert [world.client(name).init() for name in (one, two)] == [16, 16]


@case(195)
def test_only_the_ids_of_the_shard_that_left_vanish() -> None:
    world = CaseWorld()
    (here,), (there,) = ids_in(world, 0, 1), ids_in(world, 1, 1)
    clients = {name: world.ongoing(name) for name in (here, there)}
    unloads(world, here)
    assert (world.state(here), world.state(there)) == ("16", "Ongoing")
    assert clients[there].commit() == clients[there].identity
    assert clients[here].commit() == 16


@case(197)
def test_a_shard_that_is_loaded_again_without_an_unload_is_replaced() -> None:
    world = CaseWorld()
    world.ongoing()
    before = shard_of(world, "orders")
    loads(world, "orders")
    after = shard_of(world, "orders")
    assert after is not before
    assert (before.coordinator_epoch, after.coordinator_epoch) == (1, 2)
    assert (world.state(), world.described()) == ("Ongoing", before.table.durable("orders"))


@case(207)
def test_a_shard_that_resigns_takes_its_ids_and_markers_along() -> None:
    world = CaseWorld(split=True)
    world.answers_markers(Refused(ErrorCode.NETWORK_EXCEPTION, "away"), "t-0")
    world.ongoing().commit()
    world.settle()
    unloads(world, "orders")
    assert (world.state(), world.inside.sender.waiting_markers) == ("16", 0)
    assert "markers" not in world.inside.runtime.timers.by_kind()
    assert world.inside.runtime.table.state(world.shard_of("orders")) is ShardState.UNLOADED


@case(210)
@pytest.mark.parametrize("split", [False, True], ids=["fused", "split"])
def test_loads_unloads_and_expiration_at_once(split: bool) -> None:
    world = CaseWorld(split=split)
    staying, leaving = ids_in(world, 0, 12), ids_in(world, 1, 12)
    idle, busy = staying[:6], staying[6:]
    for name in (*idle, *leaving):
        world.ready(name)
    world.tick(EXPIRATION_MS)
    for name in busy:
        world.ongoing(name)
    ended = [world.end(name, world.described(name).identity, COMMIT) for name in busy]
    loaded, unloaded = world.load(busy[0]), world.unload(leaving[0])
    world.settle()
    assert (loaded.result(), unloaded.result()) == (None, None)
    assert all(each.result() for each in ended)
    world.tick(EXPIRATION_MS // 50)
    world.settle()
    assert {world.state(name) for name in busy} == {"CompleteCommit"}
    assert {world.state(name) for name in leaving} == {"16"}
    assert {world.state(name) for name in idle} == {"105"}
