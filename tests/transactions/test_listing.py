"""ListTransactions and DescribeTransactions read durable state, and filter as spec transactions 2.8 says."""

from __future__ import annotations

import pytest

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.marker import Outcome
from coordinator_runtime.ports import CallContext
from tests.harness.inside import WorldOptions
from tests.harness.world import World
from txn_coordinator.config import TwoPhase
from txn_coordinator.requests import Listing, TransactionFilter
from txn_coordinator.state import Identity


@pytest.fixture
def world() -> World:
    """empty: initialised. open: since 1,000 ms. done: committed, its transaction began 5,000 ms ago."""
    world = World()
    world.create_topic("t", 1)
    done = init(world, "done")
    world.add("done", done, ["t-0"])
    world.settle()
    world.end("done", done, Outcome.COMMIT)
    world.settle()
    world.tick(4_000)
    init(world, "empty")
    world.add("open", init(world, "open"), ["t-0"])
    world.settle()
    world.tick(1_000)
    return world


def init(world: World, transactional_id: str) -> Identity:
    identity = world.init(transactional_id)
    world.settle()
    return identity.result()


def listed(world: World, wanted: TransactionFilter) -> list[str]:
    listing: Listing = world.inside.reader.list(wanted, CallContext())
    return [transaction.transactional_id for transaction in listing.transactions]


def test_everything_is_listed_by_id(world: World) -> None:
    assert listed(world, TransactionFilter()) == ["done", "empty", "open"]


def test_states_are_matched_by_their_names(world: World) -> None:
    assert listed(world, TransactionFilter(states=["Ongoing", "Empty"])) == ["empty", "open"]
    assert listed(world, TransactionFilter(states=["ongoing"])) == [], "names are case-sensitive"


def test_unknown_states_are_named_and_match_nothing(world: World) -> None:
    listing = world.inside.reader.list(TransactionFilter(states=["Opne", "Dead"]), CallContext())
    assert listing.unknown_states == ["Opne"], "Dead is a name, of a state that nothing is ever in"
    assert listing.transactions == []


def test_producer_ids(world: World) -> None:
    producer_id = world.describe("open").producer_id
    assert listed(world, TransactionFilter(producer_ids=[producer_id, 12345])) == ["open"]


def test_a_duration_is_about_transactions_that_are_open(world: World) -> None:
    """In Kafka an idle id looks infinitely old (spec transactions 11, defect 7)."""
    assert listed(world, TransactionFilter(open_longer_than_ms=999)) == ["open"]
    assert listed(world, TransactionFilter(open_longer_than_ms=1_000)) == [], "strictly longer"
    assert listed(world, TransactionFilter(open_longer_than_ms=0)) == ["open"]


def test_patterns_match_the_whole_id(world: World) -> None:
    assert listed(world, TransactionFilter(id_pattern="e.*")) == ["empty"]
    assert listed(world, TransactionFilter(id_pattern="pen")) == []
    with pytest.raises(Refused) as refused:
        listed(world, TransactionFilter(id_pattern="("))
    assert refused.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION


def test_all_filters_must_hold(world: World) -> None:
    assert listed(world, TransactionFilter(states=["Ongoing"], id_pattern="e.*")) == []


def test_what_is_not_durable_is_not_shown(world: World) -> None:
    world.init("new")
    world.end("open", world.describe("open").identity, Outcome.ABORT)
    assert "new" not in listed(world, TransactionFilter())
    assert world.describe("open").state.api_name == "Ongoing"
    with pytest.raises(Refused) as refused:
        world.describe("new")
    assert refused.value.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


def test_an_empty_id_is_the_callers_mistake(world: World) -> None:
    with pytest.raises(Refused) as refused:
        world.describe("")
    assert refused.value.code is ErrorCode.INVALID_REQUEST


def test_a_decided_transaction_counts_as_open_until_it_is_complete() -> None:
    world = World(WorldOptions(two_phase=TwoPhase.SPLIT))
    world.create_topic("t", 1)
    identity = init(world, "orders")
    world.add("orders", identity, ["t-0"])
    world.settle()
    world.tick(10)
    world.end("orders", identity, Outcome.COMMIT)
    world.flush()
    assert listed(world, TransactionFilter(states=["PrepareCommit"], open_longer_than_ms=5)) == ["orders"]
    world.settle()
    assert listed(world, TransactionFilter(open_longer_than_ms=5)) == []
