"""Counts of transactions, each thing once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from coordinator_protocol.errors import Refused
from coordinator_protocol.marker import Outcome
from coordinator_runtime.decision import Decision, Operation
from coordinator_runtime.ports import PartitionName
from coordinator_server.metrics.transactions import TransactionNumbers
from tests.harness.inside import WorldOptions
from tests.metrics.observed import INTRUDER, LOADER, PARTITION, TOPIC, ObservedWorld
from txn_coordinator.config import TwoPhase
from txn_coordinator.requests import AddPartitions
from txn_coordinator.state import Identity, Transaction, TransactionState, step

COMPLETED = "txn_coordinator_completed_total"
FENCED = "txn_coordinator_fenced_total"
INITS = "txn_coordinator_init_total"
MARKERS = "txn_coordinator_markers_total"


def world_of(**options: object) -> ObservedWorld:
    world = ObservedWorld(WorldOptions(**options))  # type: ignore[arg-type]  # the names are those of WorldOptions
    world.create_topic(TOPIC, 2)
    return world


@pytest.fixture
def world() -> Iterator[ObservedWorld]:
    world = world_of()
    yield world
    world.check_states()


@pytest.fixture
def split() -> Iterator[ObservedWorld]:
    world = world_of(two_phase=TwoPhase.SPLIT)
    yield world
    world.check_states()


@pytest.mark.parametrize("outcome", list(Outcome))
def test_an_outcome_that_the_client_wanted(world: ObservedWorld, outcome: Outcome) -> None:
    identity = world.opened()
    world.produce("a", identity, "t-1", ["y"], sequence=0)
    world.settle()
    world.clock.advance(3_000)
    world.ended(identity, outcome)
    name = outcome.name.lower()
    assert world.non_zero(COMPLETED) == {(name, "client"): 1}
    assert world.non_zero(MARKERS) == {(name, "log"): 2}
    assert world.non_zero(FENCED) == {}
    assert world.histogram("txn_coordinator_open_to_end_seconds", name).total == 3.0
    assert world.histogram("txn_coordinator_partitions_per_txn").total == 2


@pytest.mark.parametrize("outcome", list(Outcome))
def test_a_whole_transaction_in_one_request(world: ObservedWorld, outcome: Outcome) -> None:
    world.transacted(world.initialised(), outcome)
    name = outcome.name.lower()
    assert world.non_zero(COMPLETED) == {(name, "client"): 1}
    assert world.non_zero(MARKERS) == {(name, "log"): 1}
    assert world.histogram("txn_coordinator_open_to_end_seconds", name).count == 1
    assert world.histogram("txn_coordinator_end_to_complete_seconds", name).count == 1
    assert world.histogram("txn_coordinator_partitions_per_txn").total == 1


def test_nothing_is_counted_before_it_is_durable(world: ObservedWorld) -> None:
    identity = world.opened()
    world.end("a", identity, Outcome.COMMIT)
    assert world.non_zero(COMPLETED) == {}
    assert world.non_zero("txn_coordinator_transactions") == {("Ongoing",): 1}
    world.settle()
    assert world.non_zero(COMPLETED) == {("commit", "client"): 1}


def test_a_refused_end_counts_as_nothing(world: ObservedWorld) -> None:
    identity = world.opened()
    refused = world.end("a", identity, Outcome.COMMIT, last_sequences=[(PARTITION, 7)])
    world.settle()
    with pytest.raises(Refused):
        refused.result()
    assert world.non_zero(COMPLETED) == {}
    world.ended(identity, Outcome.ABORT)


def test_an_abort_of_nothing_is_no_transaction_of_any_size(world: ObservedWorld) -> None:
    world.ended(world.initialised(), Outcome.ABORT)
    assert world.non_zero(COMPLETED) == {("abort", "client"): 1}
    assert world.histogram("txn_coordinator_partitions_per_txn").count == 0
    assert world.histogram("txn_coordinator_open_to_end_seconds", "abort").count == 0


def test_a_newer_instance_fences_the_one_whose_transaction_it_aborts(world: ObservedWorld) -> None:
    world.opened()
    world.initialised(context=INTRUDER)
    assert world.non_zero(COMPLETED) == {("abort", "fence"): 1}
    assert world.non_zero(FENCED) == {("newer_init",): 1}
    assert world.non_zero(INITS) == {("new",): 1, ("bump",): 1}


def test_a_timeout_fences(world: ObservedWorld) -> None:
    world.opened()
    world.tick(60_001)
    world.settle()
    assert world.non_zero(COMPLETED) == {("abort", "timeout"): 1}
    assert world.non_zero(FENCED) == {("timeout",): 1}


def test_the_deletion_of_its_topic_aborts_a_transaction(world: ObservedWorld) -> None:
    world.opened()
    world.delete_topic(TOPIC)
    world.settle()
    assert world.non_zero(COMPLETED) == {("abort", "topic_deleted"): 1}
    assert world.non_zero(FENCED) == {("topic_deleted",): 1}


def test_an_initialisation_whose_answer_was_lost_is_a_reuse(world: ObservedWorld) -> None:
    first = world.initialised()
    second = world.initialised(expected=first)
    assert world.initialised(expected=first) == second
    assert world.non_zero(INITS) == {("new",): 1, ("bump",): 1, ("reuse",): 1}


def test_epochs_that_are_used_up_rotate_the_producer_id() -> None:
    world = world_of(producer_epoch_max=3)
    for _ in range(4):
        world.initialised()
    assert world.non_zero(INITS) == {("new",): 1, ("bump",): 2, ("rotate",): 1}
    assert world.value("txn_coordinator_epoch_rotations_total") == 1
    identity = world.opened("b")
    for _ in range(4):
        identity = world.ended(identity, Outcome.COMMIT, "b")
        world.produce("b", identity, PARTITION, ["x"], sequence=0)
        world.settle()
    assert world.value("txn_coordinator_epoch_rotations_total") == 2
    world.check_states()


def test_the_two_phases_take_the_time_until_complete_is_durable(split: ObservedWorld) -> None:
    identity = split.opened()
    split.end("a", identity, Outcome.COMMIT)
    split.flush()
    split.clock.advance(2_000)
    assert split.non_zero("txn_coordinator_transactions") == {("PrepareCommit",): 1}
    assert split.value("txn_coordinator_oldest_prepare_age_seconds") == 2.0
    assert split.transactions.pending_since_ms(split.inside.sender.unfinished_ids()) == split.clock.wall_ms() - 2_000
    split.flush()
    assert list(split.inside.sender.unfinished_ids()) == []
    split.clock.advance(500)
    split.settle()
    assert split.histogram("txn_coordinator_end_to_complete_seconds", "commit").total == 2.5
    assert split.value("txn_coordinator_oldest_prepare_age_seconds") == 0
    assert split.transactions.pending_since_ms(["a"]) is None


def test_ages_are_those_of_the_oldest(world: ObservedWorld) -> None:
    assert world.value("txn_coordinator_oldest_open_age_seconds") == 0
    first = world.opened("a")
    world.clock.advance(5_000)
    second = world.opened("b")
    world.clock.advance(1_000)
    world.produce("a", first, "t-1", ["y"], sequence=0)
    world.settle()
    assert world.value("txn_coordinator_oldest_open_age_seconds") == 6.0
    world.ended(first, Outcome.COMMIT, "a")
    assert world.value("txn_coordinator_oldest_open_age_seconds") == 1.0
    world.ended(second, Outcome.COMMIT, "b")
    assert world.value("txn_coordinator_oldest_open_age_seconds") == 0


def test_a_clock_that_was_set_back_gives_no_negative_age(world: ObservedWorld) -> None:
    identity = world.opened()
    world.clock.step_wall(-3_600_000)
    assert world.value("txn_coordinator_oldest_open_age_seconds") == 0
    world.ended(identity, Outcome.COMMIT)
    assert world.histogram("txn_coordinator_end_to_complete_seconds", "commit").total == 0


def test_what_waits_for_an_outside_decision_has_an_age_of_its_own(world: ObservedWorld) -> None:
    name = "txn_coordinator_oldest_prepared_2pc_age_seconds"
    identity = world.opened()
    world.clock.advance(4_000)
    assert world.value(name) == 0
    world.prepare("a", identity)
    world.settle()
    world.clock.advance(7_000)
    assert world.value(name) == 7.0
    world.crash(down_ms=1_000)
    assert world.value(name) == 8.0
    kept = world.recover("a", INTRUDER, keep_prepared=True)
    world.settle()
    assert world.non_zero(INITS) == {("keep",): 1}
    assert world.value(name) == 8.0
    world.ended(kept.result().identity, Outcome.COMMIT)
    assert world.value(name) == 0
    assert world.non_zero(COMPLETED) == {("commit", "client"): 1}


def test_unused_ids_are_counted_out(world: ObservedWorld) -> None:
    world.initialised("a")
    world.opened("b")
    world.tick(8 * 24 * 3_600_000)
    world.settle()
    world.tick(8 * 24 * 3_600_000)
    world.settle()
    assert world.value("txn_coordinator_expired_ids_total") >= 1
    assert world.value("txn_coordinator_transactional_ids") == 0


def test_a_restart_begins_with_what_the_store_holds(split: ObservedWorld) -> None:
    decided = split.opened("decided")
    split.opened("open")
    split.initialised("idle")
    split.end("decided", decided, Outcome.COMMIT)
    split.flush()
    split.crash()
    split.check_states()
    assert split.non_zero(COMPLETED) == {}
    split.settle()
    assert split.non_zero(COMPLETED) == {("commit", "client"): 1}


def test_a_step_that_no_table_allows_is_counted(world: ObservedWorld) -> None:
    decided = Transaction(
        transactional_id="a", producer_id=0, txn_timeout_ms=1, last_update_ms=0, state=TransactionState.PREPARE_COMMIT
    )

    def decide(_shard: object, _turn: object) -> Decision:
        step(decided, TransactionState.ONGOING)
        return Decision()

    broken = world.inside.runtime.write(Operation(world.inside.transactions.shard_key("a"), decide), LOADER)
    with pytest.raises(AssertionError, match="PrepareCommit -> Ongoing is no legal step") as defect:
        broken.result()
    numbers = TransactionNumbers()
    numbers.met_defect(defect.value)
    numbers.met_defect(KeyError("another bug"))
    assert numbers.readings(0)["txn_coordinator_invalid_transitions_total"] == {("PrepareCommit", "Ongoing"): 1}


def test_a_verification_is_counted_by_what_it_found(world: ObservedWorld) -> None:
    identity = world.opened()
    service = world.inside.transactions
    own, other = (PartitionName(TOPIC, b"", number) for number in (0, 1))
    stale = Identity(identity.producer_id, identity.producer_epoch + 1)
    for shown, names in ((identity, [own]), (identity, [own, other]), (identity, [other]), (stale, [own])):
        command = AddPartitions(transactional_id="a", identity=shown, partitions=names, verify_only=True)
        service.add_partitions(command, LOADER)
        world.settle()
    assert service.verifications == {"all": 1, "missing": 2, "refused": 1}
