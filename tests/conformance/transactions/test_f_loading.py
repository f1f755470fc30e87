"""F. Loading, unloading, the stored log."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from coordinator_api.v1 import transaction_pb2
from coordinator_protocol.errors import UnknownOutcome
from coordinator_runtime.decision import Coordinator
from coordinator_runtime.pending import Pending
from coordinator_runtime.store import CommitGroup, Family, StoreFailed
from coordinator_server.metrics.families import FAMILIES
from tests.conformance.transactions.case_world import ABORT, COMMIT, EIGHT_DAYS_MS, NOW, CaseWorld
from tests.conformance.transactions.cases import case, not_drivable
from tests.transactions.world_of_one import transaction
from txn_coordinator.codec import TRANSACTION_TYPE, TransactionCodec
from txn_coordinator.records import TransactionChanged
from txn_coordinator.state import Identity, TransactionState

FAIL_STOP = "design 10: an append that fails ends the process, so no call waits for its outcome and nothing pends"


def write_row(world: CaseWorld, record_type: int, transactional_id: str, value: bytes) -> None:
    """Put a row among the stored transactions, as no server would."""
    shard = world.inside.transactions.shard_key(transactional_id).number
    key = struct.pack(">BHB", Coordinator.TRANSACTIONS, shard, record_type) + transactional_id.encode()
    store = world.shelf.store
    store.write([CommitGroup(store.version() + 1, [(Family.COORDINATOR_STATE, key, value)])])
    store.sync()


def in_another_shard(world: CaseWorld, transactional_id: str) -> str:
    """An id that is not in the shard of this one."""
    transactions = world.inside.transactions
    names = (f"{transactional_id}-{number}" for number in range(100))
    return next(each for each in names if transactions.shard_key(each) != transactions.shard_key(transactional_id))


@case(193)
def test_two_that_create_an_id_at_once_create_it_once() -> None:
    world = CaseWorld()
    assert world.state() == "105"
    attempts = [world.client().sends_init() for _ in range(2)]
    assert [world.told(attempt) for attempt in attempts] == [Identity(0, 0), Identity(0, 1)]


@case(198, differs="spec 7.5 [D]: a shard that cannot be read fails, and never publishes a half-read map")
def test_a_row_that_cannot_be_read_fails_its_shard_alone() -> None:
    world = CaseWorld()
    world.ready()
    other = world.ready(in_another_shard(world, "orders"))
    write_row(world, TRANSACTION_TYPE, "orders", b"\xff\xff\xff")
    world.crash()
    assert world.client().init() == 56
    assert other.add("t-0") is True


@case(199)
def test_rows_of_an_unknown_type_are_skipped() -> None:
    world = CaseWorld()
    client = world.ongoing()
    write_row(world, 200, "from the future", b"what is this")
    world.crash()
    assert (world.state(), world.described().identity) == ("Ongoing", client.identity)


@case(201, differs="design 10: an append that fails ends the process; who waits is told that the outcome is unknown")
def test_an_append_that_fails_leaves_the_old_state() -> None:
    world = CaseWorld()
    client = world.ongoing()
    adding = world.add("orders", client.identity, ["t-1"], client.context)
    world.inside.runtime.fail(StoreFailed("disk full"))
    with pytest.raises(UnknownOutcome):
        adding.result()
    assert client.add("t-2") == 15
    world.crash()
    assert world.names(world.described()) == ["t-0"]
    assert client.add("t-1") is True


not_drivable(202, FAIL_STOP)
not_drivable(203, FAIL_STOP)
not_drivable(205, FAIL_STOP)
not_drivable(206, "a state is decided and replayed in one step: memory cannot change under an append")


@case(209)
@pytest.mark.parametrize("split", [False, True], ids=["fused", "split"])
def test_many_ids_at_once_end_as_they_should(split: bool) -> None:
    """All calls of a round are under way at once, over both shards."""
    world = CaseWorld(split=split)
    ids = [f"id-{number}" for number in range(60)]
    initialised = [world.init(name) for name in ids]
    world.settle()
    identities = [each.result() for each in initialised]
    assert len({identity.producer_id for identity in identities}) == len(ids)
    added = [world.add(name, identity, ["t-0", "t-1"]) for name, identity in zip(ids, identities, strict=True)]
    offsets = [
        world.commit_offset(name, identity, f"g-{name}", 1) for name, identity in zip(ids, identities, strict=True)
    ]
    outcomes = [COMMIT if number % 3 else ABORT for number in range(len(ids))]
    ended = [world.end(*each) for each in zip(ids, identities, outcomes, strict=True)]
    world.settle()
    calls: list[Pending[Any]] = [*added, *offsets, *ended]
    assert all(call.result() is not None for call in calls)
    assert [world.state(name) for name in ids] == [f"Complete{outcome.name.title()}" for outcome in outcomes]
    committed = [world.inside.groups.committed(f"g-{name}") for name in ids]
    assert committed == [1 if outcome is COMMIT else -1 for outcome in outcomes]


@case(211)
@pytest.mark.parametrize("state", list(TransactionState), ids=lambda state: state.api_name)
def test_what_is_stored_is_read_back(state: TransactionState) -> None:
    written = TransactionChanged(transaction(state))
    codec = TransactionCodec()
    record = codec.encode(written)
    assert record.value is not None
    assert codec.decode(record.record_type, record.key, record.value) == written


@case(213)
def test_fields_of_the_future_are_ignored() -> None:
    written = TransactionChanged(transaction(TransactionState.ONGOING))
    codec = TransactionCodec()
    record = codec.encode(written)
    assert record.value is not None
    field_1000 = b"\xc0\x3e\x01"
    assert codec.decode(record.record_type, record.key, record.value + field_1000) == written


not_drivable(
    214, "stored values are protobuf messages that grow at their end; there is no server level to choose one by"
)


@case(215)
def test_the_history_of_a_forgotten_id_ends_with_its_deletion() -> None:
    """That of a stopped directory, too: tests/cli/test_forgotten_id.py."""
    world = CaseWorld(split=False)
    world.ongoing().commit()
    world.tick(EIGHT_DAYS_MS)
    world.settle()
    request = transaction_pb2.DescribeTransactionsRequest(transactional_ids=["orders"], history_limit=10)
    (described,) = world.told(world.servicer().DescribeTransactions(request, NOW)).transactions
    assert (described.error_code, described.history_complete) == (105, True)
    assert [step.state for step in described.history] == [
        "Dead",
        "CompleteCommit",
        "PrepareCommit",
        "Ongoing",
        "Empty",
    ]
    (last, *_steps) = described.history
    assert (last.cause, last.client_id, last.producer_id, last.producer_epoch) == ("expire", "", -1, -1)


@case(
    217, differs="Dead and PrepareEpochFence do not exist: a decision is made and replayed in one step and never pends"
)
def test_states_have_kafkas_numbers_and_names() -> None:
    assert {int(state): state.api_name for state in TransactionState} == {
        0: "Empty",
        1: "Ongoing",
        2: "PrepareCommit",
        3: "PrepareAbort",
        4: "CompleteCommit",
        5: "CompleteAbort",
    }


@case(218, differs="all is loaded at once, at the start: one number, not a maximum and an average over many loads")
def test_the_time_of_the_load_is_measured() -> None:
    assert "txn_runtime_load_seconds" in {family.name for family in FAMILIES}
