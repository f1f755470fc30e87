"""Counts of partitions, and the metrics that a look at them shows."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from coordinator_protocol.marker import Outcome
from coordinator_runtime.store_readers import ReadsAtOnce
from coordinator_server.metrics.instruments import Histogram
from coordinator_server.metrics.topic_sizes import TopicSizes
from partition_log.requests import DeleteRecords, RecordsToDelete
from partition_log.state import HIGH_WATERMARK, Isolation
from tests.harness.group_calls import ANYBODY
from tests.harness.inside import WorldOptions
from tests.harness.world import partition_name
from tests.metrics.observed import PARTITION, TOPIC, ObservedWorld
from txn_coordinator.state import Identity

APPENDED = "txn_partition_appended_records_total"
READ = "txn_read_records_total"


@pytest.fixture
def world() -> Iterator[ObservedWorld]:
    world = ObservedWorld()
    world.create_topic(TOPIC, 2)
    yield world
    world.check_states()


def position(world: ObservedWorld, name: str, partition: int = 0) -> float:
    value = world.survey().readings(world.clock.wall_ms())[f"txn_partition_{name}"][TOPIC, str(partition)]
    assert not isinstance(value, Histogram)
    return value


def test_records_and_markers_are_counted_by_topic(world: ObservedWorld) -> None:
    identity = world.initialised()
    world.produce("a", identity, PARTITION, ["x", "y", "z"], sequence=0)
    assert world.non_zero(APPENDED) == {}
    world.settle()
    world.ended(identity, Outcome.COMMIT)
    assert world.non_zero(APPENDED) == {(TOPIC, "data"): 3, (TOPIC, "control"): 1}
    assert world.value("txn_partition_appended_bytes_total", TOPIC, "data") > 3


def test_a_repeated_batch_is_not_appended_twice(world: ObservedWorld) -> None:
    identity = world.initialised()
    for _ in range(3):
        world.produce("a", identity, PARTITION, ["x"], sequence=0)
        world.settle()
    assert world.non_zero(APPENDED) == {(TOPIC, "data"): 1}
    world.ended(identity, Outcome.COMMIT)


def test_reads_are_counted_by_what_they_show_and_hide(world: ObservedWorld) -> None:
    world.ended(world.opened("a"), Outcome.ABORT, "a")
    world.ended(world.opened("b"), Outcome.COMMIT, "b")
    world.read(PARTITION)
    assert world.non_zero(READ) == {
        (TOPIC, "read_committed", "served"): 1,
        (TOPIC, "read_committed", "aborted_skipped"): 1,
        (TOPIC, "read_committed", "control_skipped"): 2,
    }
    world.read(PARTITION, isolation=Isolation.READ_UNCOMMITTED)
    assert world.value(READ, TOPIC, "read_uncommitted", "served") == 2


def test_a_deleted_topic_is_forgotten(world: ObservedWorld) -> None:
    world.create_topic("other", 1)
    world.opened()
    world.produce(None, Identity(-1, -1), "other-0", ["y"], sequence=-1)
    world.settle()
    world.read(PARTITION)
    # Still on its way when the topic goes.
    world.produce(None, Identity(-1, -1), PARTITION, ["z"], sequence=-1)
    world.delete_topic(TOPIC)
    world.settle()
    assert world.non_zero(APPENDED) == {("other", "data"): 1}
    assert world.non_zero(READ) == {}
    assert not world.survey().readings(0)["txn_partition_high_watermark"].keys() - {("other", "0")}


def test_positions_are_the_durable_ones(world: ObservedWorld) -> None:
    identity = world.opened()
    world.clock.advance(4_000)
    world.produce("a", identity, PARTITION, ["y", "z"], sequence=1)
    assert (position(world, "high_watermark"), position(world, "last_stable_offset")) == (1, 0)
    world.settle()
    assert (position(world, "high_watermark"), position(world, "last_stable_offset")) == (3, 0)
    assert (position(world, "lso_lag_records"), position(world, "open_transactions")) == (3, 1)
    assert (position(world, "oldest_open_age_seconds"), position(world, "oldest_open_age_seconds", 1)) == (4.0, 0)
    world.ended(identity, Outcome.COMMIT)
    assert (position(world, "high_watermark"), position(world, "last_stable_offset")) == (4, 4)
    assert (position(world, "lso_lag_records"), position(world, "oldest_open_age_seconds")) == (0, 0)
    assert position(world, "log_start_offset") == 0


def test_aborted_transactions_are_counted_where_they_have_records(world: ObservedWorld) -> None:
    for name in ("a", "b"):
        world.ended(world.opened(name), Outcome.ABORT, name)
    world.ended(world.opened("c"), Outcome.COMMIT, "c")
    assert (position(world, "aborted_index_entries"), position(world, "aborted_index_entries", 1)) == (2, 0)
    world.crash()
    assert position(world, "aborted_index_entries") == 2


def test_beyond_the_limit_partitions_are_not_looked_at_and_counted_as_omitted(world: ObservedWorld) -> None:
    world.create_topic("u", 3)
    found = world.survey(partitions_max=3).readings(0)
    assert sorted(found["txn_partition_high_watermark"]) == [(TOPIC, "0"), (TOPIC, "1"), ("u", "0")]
    assert found["txn_partitions_omitted"] == {(): 2}
    assert world.survey().readings(0)["txn_partitions_omitted"] == {(): 0}
    assert world.survey(partitions_max=0).readings(0)["txn_partitions_omitted"] == {(): 5}


def test_topics_are_counted_by_their_cleanup_policy(world: ObservedWorld) -> None:
    for name, policy in (("u", "compact"), ("v", "compact,delete"), ("w", "compact")):
        world.create_topic(name, 2, config={"cleanup_policy": policy})
    found = world.survey(partitions_max=1).readings(0)["txn_topics"]
    assert found == {("delete",): 1, ("compact",): 2, ("compact,delete",): 1}


def test_producers_that_were_forgotten_are_counted() -> None:
    world = ObservedWorld(WorldOptions(producer_expiration_ms=1_000))
    world.create_topic(TOPIC, 1)
    world.ended(world.opened("a"), Outcome.COMMIT, "a")
    world.opened("b")
    for _ in range(2):
        world.tick(1_000)
        world.settle()
    assert world.value("txn_partition_expired_producers_total") == 1


def test_offsets_that_the_log_start_passed_are_counted(world: ObservedWorld) -> None:
    world.ended(world.opened("a"), Outcome.COMMIT, "a")
    wanted = RecordsToDelete(partition_name(f"{TOPIC}-0"), HIGH_WATERMARK)
    deleted = world.inside.log.delete_records(DeleteRecords([wanted]), ANYBODY)
    world.settle()
    end = deleted.result()[0].low_watermark
    assert end > 0
    counted = world.readings()["txn_partition_deleted_offsets_total"]
    assert counted == {(TOPIC, "request"): end}
    world.delete_topic(TOPIC)
    world.settle()
    assert world.readings()["txn_partition_deleted_offsets_total"] == {}


# Sizes of topics.


def sizes(world: ObservedWorld, known: TopicSizes | None = None, **options) -> dict[str, dict]:
    found = world.survey(**options)
    return (known or TopicSizes(ReadsAtOnce(world.shelf.store))).readings(
        found.standings, is_last_cut=found.omitted > 0
    )


def written(world: ObservedWorld, *values: str, partition: str = PARTITION) -> None:
    world.produce(None, Identity(-1, -1), partition, list(values), sequence=-1)
    world.settle()


def delete_before(world: ObservedWorld, offset: int) -> None:
    wanted = RecordsToDelete(partition_name(PARTITION), offset)
    world.inside.log.delete_records(DeleteRecords((wanted,)), ANYBODY)
    world.settle()


def test_a_topic_has_the_size_of_its_partitions(world: ObservedWorld) -> None:
    assert sizes(world) == {"txn_topic_bytes": {(TOPIC,): 0}, "txn_topic_records": {(TOPIC,): 0}}
    written(world, "x", "y")
    one = sizes(world)["txn_topic_bytes"][TOPIC,]
    assert one > 2
    written(world, "x", "y", partition="t-1")
    world.ended(world.opened(), Outcome.ABORT)
    both = sizes(world)
    assert both["txn_topic_bytes"][TOPIC,] > 2 * one
    assert both["txn_topic_records"] == {(TOPIC,): 5}, "markers are no records, and aborted records are"


def test_what_is_before_the_log_start_does_not_count(world: ObservedWorld) -> None:
    known = TopicSizes(ReadsAtOnce(world.shelf.store))
    written(world, "aaaa", "bbbb")
    world.ended(world.opened(), Outcome.COMMIT)
    before = sizes(world, known)
    written(world, "x", "y")
    added = {name: found[TOPIC,] - before[name][TOPIC,] for name, found in sizes(world, known).items()}
    delete_before(world, 4)
    left = {name: found[TOPIC,] for name, found in sizes(world, known).items()}
    assert left == added == {**added, "txn_topic_records": 2}
    delete_before(world, HIGH_WATERMARK)
    assert sizes(world, known) == {"txn_topic_bytes": {(TOPIC,): 0}, "txn_topic_records": {(TOPIC,): 0}}
    world.crash()
    assert sizes(world)["txn_topic_records"] == {(TOPIC,): 0}


def test_a_topic_that_was_looked_at_in_part_is_left_out(world: ObservedWorld) -> None:
    world.create_topic("u", 3)
    assert sizes(world, partitions_max=3)["txn_topic_bytes"].keys() == {(TOPIC,)}


def test_log_starts_are_looked_up_in_turns(world: ObservedWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coordinator_server.metrics.topic_sizes.LOOKS_MAX", 1)
    known = TopicSizes(ReadsAtOnce(world.shelf.store))
    for partition in ("t-0", "t-1"):
        written(world, "x", partition=partition)
        wanted = RecordsToDelete(partition_name(partition), HIGH_WATERMARK)
        world.inside.log.delete_records(DeleteRecords((wanted,)), ANYBODY)
        world.settle()
    assert [sizes(world, known)["txn_topic_records"][TOPIC,] for _ in range(3)] == [1, 0, 0]
