"""D and F: shards that leave and come back, alone and while others serve."""

from __future__ import annotations

import pytest

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_runtime.decision import Coordinator, ShardKey, Turn
from coordinator_runtime.shard_table import ShardState
from tests.conformance.transactions.cases import case
from tests.conformance.transactions.room import COMMIT, Room
from txn_coordinator.config import EXPIRATION_MS
from txn_coordinator.records import TransactionStepped
from txn_coordinator.shard import TransactionShard
from txn_coordinator.state import TransactionState

A_SECOND = 1_000


def shard_of(room: Room, transactional_id: str) -> TransactionShard:
    shard: TransactionShard = room.inside.runtime.shard(room.inside.transactions.shard_key(transactional_id))
    return shard


def ids_in(room: Room, number: int, count: int) -> list[str]:
    """Some ids of one shard."""
    shard = ShardKey(Coordinator.TRANSACTIONS, number)
    names = (f"id{each}" for each in range(100))
    found = [name for name in names if room.inside.transactions.shard_key(name) == shard]
    return found[:count]


def unloads(room: Room, transactional_id: str) -> None:
    """The shard leaves, and is gone."""
    unloaded = room.unload(transactional_id)
    room.flush()
    unloaded.result()


def loads(room: Room, transactional_id: str) -> None:
    """The shard is read, and serves; what it owes is under way."""
    loaded = room.load(transactional_id)
    room.inside.driver.read_all()
    room.flush()
    loaded.result()


def completions(room: Room) -> list[str]:
    """Fills with the ids that become complete from now on."""
    completed: list[str] = []

    def on_event(event: object, _turn: Turn) -> None:
        if isinstance(event, TransactionStepped) and event.after.state is TransactionState.COMPLETE_COMMIT:
            completed.append(event.after.transactional_id)

    room.inside.runtime.on_event = on_event
    return completed


def decided(room: Room, transactional_id: str = "orders") -> list[str]:
    """An id whose commit is decided and whose markers are under way; what completes from then on."""
    room.ongoing(transactional_id).commit()
    assert room.state(transactional_id) == "PrepareCommit"
    return completions(room)


@case(134)
def test_a_shard_that_left_before_complete_leaves_it_to_the_next_owner() -> None:
    room = Room(split=True)
    completed = decided(room)
    unloads(room, "orders")
    room.settle()
    room.tick(60 * A_SECOND)
    room.settle()
    assert (room.state(), len(room.markers()), completed) == ("16", 1, [])
    loads(room, "orders")
    assert room.state() == "PrepareCommit"
    room.settle()
    assert (room.state(), len(room.markers()), completed) == ("CompleteCommit", 1, ["orders"])


@case(138)
def test_only_the_markers_of_the_shard_that_left_are_dropped() -> None:
    room = Room(split=True)
    room.answers_markers(Refused(ErrorCode.NETWORK_EXCEPTION, "away"), "t-0")
    (here,), (there,) = ids_in(room, 0, 1), ids_in(room, 1, 1)
    for name in (here, there):
        room.ongoing(name).commit()
    room.settle()
    assert sorted(room.inside.sender.unfinished_ids()) == sorted([here, there])
    unloads(room, here)
    assert list(room.inside.sender.unfinished_ids()) == [there]
    room.answers_markers(None)
    room.tick(A_SECOND)
    room.settle()
    assert (room.state(here), room.state(there)) == ("16", "CompleteCommit")


@case(142)
@pytest.mark.parametrize("is_loading", [False, True], ids=["lost", "loading"])
def test_a_marker_that_is_written_late_completes_nothing(is_loading: bool) -> None:
    """It was sent before the shard left, and is durable after that."""
    room = Room(split=True)
    completed = decided(room)
    if is_loading:
        room.load("orders")
    else:
        room.unload("orders")
    room.flush()
    assert (len(room.markers()), completed) == (1, [])
    assert room.state() == ("14" if is_loading else "16")
    loads(room, "orders")
    assert (room.state(), completed) == ("PrepareCommit", [])


@case(143)
def test_answers_to_an_older_coordinator_epoch_change_nothing() -> None:
    room = Room(split=True)
    completed = decided(room)
    room.load("orders")
    room.inside.driver.read_all()
    # The markers of the old epoch become durable together with the new epoch, which sends its own.
    room.flush()
    assert (shard_of(room, "orders").coordinator_epoch, len(room.markers())) == (2, 1)
    assert (room.state(), completed) == ("PrepareCommit", [])
    room.settle()
    assert (room.state(), len(room.markers()), completed) == ("CompleteCommit", 1, ["orders"])


@case(194)
@pytest.mark.parametrize("split", [False, True], ids=["fused", "split"])
def test_the_newest_state_of_every_id_is_there_until_the_shard_leaves(split: bool) -> None:
    room = Room(split=split)
    one, two = ids_in(room, 0, 2)
    for name in (one, two):
        client = room.ongoing(name)
        client.commit()
        room.settle()
        client.add("t-1")
    loads(room, one)
    assert [room.state(name) for name in (one, two)] == ["Ongoing", "Ongoing"]
    unloads(room, one)
    assert [room.state(name) for name in (one, two)] == ["16", "16"]
    assert [room.client(name).init() for name in (one, two)] == [16, 16]


@case(195)
def test_only_the_ids_of_the_shard_that_left_vanish() -> None:
    room = Room()
    (here,), (there,) = ids_in(room, 0, 1), ids_in(room, 1, 1)
    clients = {name: room.ongoing(name) for name in (here, there)}
    unloads(room, here)
    assert (room.state(here), room.state(there)) == ("16", "Ongoing")
    assert clients[there].commit() == clients[there].identity
    assert clients[here].commit() == 16


@case(197)
def test_a_shard_that_is_loaded_again_without_an_unload_is_replaced() -> None:
    room = Room()
    room.ongoing()
    before = shard_of(room, "orders")
    loads(room, "orders")
    after = shard_of(room, "orders")
    assert after is not before
    assert (before.coordinator_epoch, after.coordinator_epoch) == (1, 2)
    assert (room.state(), room.described()) == ("Ongoing", before.durable("orders"))


@case(207)
def test_a_shard_that_resigns_takes_its_ids_and_markers_along() -> None:
    room = Room(split=True)
    room.answers_markers(Refused(ErrorCode.NETWORK_EXCEPTION, "away"), "t-0")
    room.ongoing().commit()
    room.settle()
    unloads(room, "orders")
    assert (room.state(), room.inside.sender.waiting_markers) == ("16", 0)
    assert "markers" not in room.inside.runtime.timers.by_kind()
    assert room.inside.runtime.table.state(room.shard_of("orders")) is ShardState.UNLOADED


@case(210)
@pytest.mark.parametrize("split", [False, True], ids=["fused", "split"])
def test_loads_unloads_and_expiration_at_once(split: bool) -> None:
    room = Room(split=split)
    staying, leaving = ids_in(room, 0, 12), ids_in(room, 1, 12)
    idle, busy = staying[:6], staying[6:]
    for name in (*idle, *leaving):
        room.ready(name)
    room.tick(EXPIRATION_MS)
    for name in busy:
        room.ongoing(name)
    ended = [room.end(name, room.described(name).identity, COMMIT) for name in busy]
    loaded, unloaded = room.load(busy[0]), room.unload(leaving[0])
    room.settle()
    assert (loaded.result(), unloaded.result()) == (None, None)
    assert all(each.result() for each in ended)
    room.tick(EXPIRATION_MS // 50)
    room.settle()
    assert {room.state(name) for name in busy} == {"CompleteCommit"}
    assert {room.state(name) for name in leaving} == {"16"}
    assert {room.state(name) for name in idle} == {"105"}
