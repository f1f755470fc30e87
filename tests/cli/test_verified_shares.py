"""`txnctl store verify` on share partitions: silent on what the server writes, loud on what no log has."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from msgspec.structs import replace

from coordinator_runtime.own_rows import FEATURES_KEY
from coordinator_runtime.ports import OutcomeNumber
from coordinator_runtime.store import CommitGroup, Family, Mutation, Store
from group_coordinator.share_partitions import rules
from group_coordinator.share_partitions.codec import share_codec
from group_coordinator.share_partitions.records import ShareKey, SharePartitionChanged
from group_coordinator.share_partitions.rules import AckBatch
from group_coordinator.share_partitions.state import AcknowledgingTransaction, SharePartition, Window
from tests.cli.damaged_store import violations
from tests.harness.share_partitions import Shares, share_world
from txnctl.stopped import stored


def written(found: Shares, key: ShareKey, partition: SharePartition) -> Mutation:
    row = share_codec().encode(SharePartitionChanged(key, partition, is_stored=True))
    assert row is not None
    return Family.COORDINATOR_STATE, stored.state_key(found.shard_key, row.record_type, row.key), row.value


def put(store: Store, row: Mutation) -> None:
    store.write([CommitGroup(store.version() + 1, [row])])
    store.sync()


def know_more_than_the_log(found: Shares) -> Mutation:
    return written(found, found.key, replace(found.state, window=Window(9, b"\x08" * 2, bytes(4))))


def read_what_is_not_there(found: Shares) -> Mutation:
    return written(found, ShareKey("workers", 7), found.state)


def forget_the_feature(_found: Shares) -> Mutation:
    return Family.META, FEATURES_KEY, b""


def wait_for(found: Shares, transaction: AcknowledgingTransaction) -> Mutation:
    """Offset 2 waits for a transaction."""
    asked = [AckBatch(2, 2, (1,))]
    waiting = rules.acknowledge_in_transaction(found.state, "a", asked, transaction).partition
    return written(found, found.key, waiting)


def wait_for_an_unknown_producer(found: Shares) -> Mutation:
    return wait_for(found, AcknowledgingTransaction("lost", 4_711, 0, OutcomeNumber(0, 0)))


def wait_for_an_idle_id(found: Shares) -> Mutation:
    drawn = found.world.init("worker")
    found.world.settle()
    shard = found.world.inside.transactions.shard_key("worker").number
    return wait_for(found, AcknowledgingTransaction("worker", *drawn.result(), OutcomeNumber(shard, 0)))


def wait_for_an_open_id(found: Shares, *, epochs: int = 0, shards: int = 0) -> Mutation:
    drawn = found.world.init("worker")
    found.world.settle()
    producer_id, epoch = drawn.result()
    found.world.add("worker", drawn.result(), ["t-0"])
    found.world.settle()
    shard = found.world.inside.transactions.shard_key("worker").number + shards
    return wait_for(found, AcknowledgingTransaction("worker", producer_id, epoch + epochs, OutcomeNumber(shard, 0)))


def write_a_state_of_a_newer_program(found: Shares) -> Mutation:
    return written(found, found.key, replace(found.state, window=Window(0, b"\x0f", bytes(2))))


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (know_more_than_the_log, "knows records up to 11, and the log ends at 10"),
        (read_what_is_not_there, "of group 'workers' with ordinal 7 is of no partition"),
        (forget_the_feature, "does not name the feature share_groups"),
        (wait_for_an_unknown_producer, "producer 4711, epoch 0: its producer id belongs to no transactional id"),
        (wait_for_an_idle_id, "'worker' is Empty"),
        (wait_for_an_open_id, "'worker' does not list the share partition"),
        (partial(wait_for_an_open_id, epochs=1), "'worker' is at epoch 0"),
        (partial(wait_for_an_open_id, shards=1), "'worker' belongs to coordinator shard"),
        (write_a_state_of_a_newer_program, "which this program does not know"),
    ],
)
def test_every_damage_is_named(damage: Callable[[Shares], Mutation], said: str) -> None:
    found = Shares(share_world())
    found.produce(10)
    found.begin()
    found.acquire("a")
    found.acknowledge("a", (1, 1, [2]))
    store = found.world.shelf.store
    assert violations(store) == {}
    put(store, damage(found))
    assert any(said in violation for violation in violations(store)["shares"]), violations(store)


def test_a_shard_with_a_state_of_a_newer_program_is_not_served() -> None:
    found = Shares(share_world())
    found.produce(10)
    found.begin()
    put(found.world.shelf.store, write_a_state_of_a_newer_program(found))
    found.world.crash()
    assert found.world.inside.runtime.table.failures.keys() == {found.shard_key}
