"""Lag of a watched group: in records and in time, and up to both ends."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from coordinator_protocol.marker import Outcome
from coordinator_runtime.store import Family
from coordinator_runtime.store_readers import ReadsAtOnce
from coordinator_server.metrics.instruments import Sample
from coordinator_server.metrics.lag import ROUND_PAUSE_MS, GroupLags, LagConfig
from partition_log import codec
from tests.harness.memory_store import Damage, MemoryStore
from tests.harness.world import World
from txn_coordinator.state import Identity

COMMIT, ABORT = Outcome.COMMIT, Outcome.ABORT
TOPIC = "t"
GROUP = "billing"


class WatchedWorld(World):
    """A world in which the lag of chosen groups is measured."""

    def watch(self, *groups: str, topics_max: int = 100) -> None:
        self.lags = GroupLags(
            self.inside.runtime, ReadsAtOnce(self.shelf.store), self.inside.catalog, LagConfig(groups, topics_max)
        )
        self.lags.start()

    def round(self) -> None:
        """Let one round pass."""
        self.tick(ROUND_PAUSE_MS)

    def measured(self, name: str) -> Mapping[tuple[str, ...], Sample]:
        return self.lags.readings(self.clock.wall_ms())[f"txn_group_lag_{name}"]

    def lag(self, group: str = GROUP, topic: str = TOPIC) -> tuple[Sample, Sample]:
        """Records up to the last stable offset, and up to the high watermark."""
        records = self.measured("records")
        return records[group, topic, "read_committed"], records[group, topic, "read_uncommitted"]

    def age(self, group: str = GROUP, topic: str = TOPIC) -> tuple[Sample, Sample]:
        seconds = self.measured("seconds")
        return seconds[group, topic, "read_committed"], seconds[group, topic, "read_uncommitted"]

    def damage(self, partition: int, last_offset: int, damage: Damage) -> None:
        placed = self.inside.catalog.find(TOPIC, b"", partition)
        assert placed is not None
        assert isinstance(self.shelf.store, MemoryStore)
        self.shelf.store.damage(Family.LOG, codec.log_key(placed.ref.ordinal, last_offset), damage)

    # Calls of clients, in short

    def producer(self, transactional_id: str) -> Identity:
        initialised = self.init(transactional_id)
        self.settle()
        return initialised.result()

    def writes(self, transactional_id: str, *, count: int = 1, partition: str = "t-0") -> Identity:
        """Records in a transaction that stays open."""
        identity = self.producer(transactional_id)
        self.produce(transactional_id, identity, partition, ["x"] * count, sequence=0)
        self.settle()
        return identity

    def written(self, transactional_id: str, outcome: Outcome, *, count: int = 1, partition: str = "t-0") -> None:
        self.end(transactional_id, self.writes(transactional_id, count=count, partition=partition), outcome)
        self.settle()

    def has_read(self, offset: int, group: str = GROUP, partition: str = "t-0") -> None:
        """The group commits how far it is, in a transaction of its own."""
        identity = self.producer("reader")
        self.commit_offset("reader", identity, group, offset, partition=partition)
        self.settle()
        self.end("reader", identity, COMMIT)
        self.settle()


@pytest.fixture
def world() -> Iterator[WatchedWorld]:
    world = WatchedWorld()
    world.create_topic(TOPIC, 2)
    world.settle()
    yield world
    world.check_replay()


def test_records_are_counted_up_to_both_ends_and_markers_never(world: WatchedWorld) -> None:
    world.written("a", COMMIT, count=3)
    world.has_read(1)
    world.writes("b", count=4)
    world.watch(GROUP)
    world.round()
    assert world.lag() == (2, 6)


def test_aborted_records_hold_up_no_committed_reader(world: WatchedWorld) -> None:
    world.has_read(0)
    world.written("a", ABORT, count=5)
    world.watch(GROUP)
    world.round()
    assert world.lag() == (0, 5)
    assert world.age()[0] == 0


def test_the_age_is_that_of_the_oldest_record_that_a_reader_would_get(world: WatchedWorld) -> None:
    world.has_read(0)
    world.written("a", ABORT)
    world.tick(7_000)
    world.written("b", COMMIT)
    world.tick(5_000)
    world.written("c", COMMIT)
    world.watch(GROUP)
    world.round()
    waited_seconds = 5 + ROUND_PAUSE_MS / 1_000
    assert world.age() == (waited_seconds, waited_seconds + 7)


def test_partitions_of_a_topic_are_added_up_and_the_oldest_tells_the_age(world: WatchedWorld) -> None:
    world.has_read(0)
    world.has_read(0, partition="t-1")
    world.written("a", COMMIT, count=2)
    world.tick(1_000)
    world.written("b", COMMIT, count=3, partition="t-1")
    world.watch(GROUP)
    world.round()
    assert (world.lag(), world.age()[0]) == ((5, 5), 1 + ROUND_PAUSE_MS / 1_000)


def test_a_group_that_has_read_everything_has_no_lag_and_no_age(world: WatchedWorld) -> None:
    world.written("a", COMMIT, count=3)
    world.has_read(4)
    world.watch(GROUP)
    world.round()
    assert (world.lag(), world.age()) == ((0, 0), (0, 0))


def test_rounds_follow_each_other_and_a_scrape_in_between_shows_the_last_one(world: WatchedWorld) -> None:
    world.has_read(0)
    world.watch(GROUP)
    world.round()
    world.written("a", COMMIT)
    assert world.lag() == (0, 0)
    world.round()
    assert world.lag() == (1, 1)


def test_only_chosen_groups_are_looked_at(world: WatchedWorld) -> None:
    for group in ("billing", "billing-eu", "audit"):
        world.has_read(0, group)
    for groups, seen in {
        (): set(),
        ("audit", "nobody"): {"audit"},
        ("billing*",): {"billing", "billing-eu"},
        ("*",): {"audit", "billing", "billing-eu"},
    }.items():
        world.watch(*groups)
        world.round()
        assert {labels[0] for labels in world.measured("records")} == seen


def test_what_is_beyond_the_limit_is_counted(world: WatchedWorld) -> None:
    for group in ("a", "b", "c"):
        world.has_read(0, group)
    world.watch("*", topics_max=2)
    world.round()
    assert len(world.measured("records")) == 2 * 2
    assert world.measured("omitted") == {(): 1}


def test_a_deleted_topic_has_no_lag_any_more(world: WatchedWorld) -> None:
    world.has_read(0)
    world.watch(GROUP)
    world.round()
    deleted = world.delete_topic(TOPIC)
    world.settle()
    assert deleted.result().error is None
    world.round()
    assert world.measured("records") == {}


def test_a_round_gives_way_after_every_partition(world: WatchedWorld) -> None:
    """Each turn of the loop looks at one partition, so that others are served however many there are."""
    world.has_read(0)
    world.has_read(0, partition="t-1")
    world.watch(GROUP)
    turns = 0
    while not world.measured("records"):
        world.inside.runtime.run_due_timers()
        turns += 1
    # Both partitions, and every shard of groups.
    assert turns >= 2 + world.options.shard_count


@pytest.mark.parametrize("damage", list(Damage))
def test_damage_ends_the_look_at_its_partition_and_no_more(world: WatchedWorld, damage: Damage) -> None:
    """A round is a step of a timer, and a defect in one would end the process: at every start anew."""
    world.has_read(0)
    world.has_read(0, partition="t-1")
    world.written("a", ABORT, count=5)
    world.written("b", COMMIT, count=3, partition="t-1")
    world.damage(0, last_offset=4, damage=damage)
    world.watch(GROUP)
    world.round()
    # A damaged value is its readers' business: its header, which is all that counts, lies in the row.
    aborted = 5 if damage in {Damage.HEALTHY_IN_BLOCK, Damage.VALUE} else 0
    assert world.lag() == (3, 3 + aborted)
    world.written("c", COMMIT, count=2, partition="t-1")
    world.round()
    assert world.lag() == (5, 5 + aborted)
