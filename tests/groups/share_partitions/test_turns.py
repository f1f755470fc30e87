"""Work on many share partitions is done in several turns of the loop."""

from __future__ import annotations

import pytest

from coordinator_api.v1 import group_pb2
from coordinator_runtime.stepping import STEP_TIMER
from group_coordinator.share_partitions import fetching, offset_admin, places
from tests.groups.share_partitions.pictures import picture
from tests.harness.group_world import group_world
from tests.harness.groups import GROUP, OK, code
from tests.harness.share_consumers import ShareConsumer, alter_shares, response_of, share_consumer
from tests.harness.share_partitions import Shares
from tests.harness.world import World

PARTITIONS = [f"t-{number}" for number in range(5)]


@pytest.fixture(autouse=True)
def _small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "RELEASED_PER_STEP", 2)
    monkeypatch.setattr(fetching, "PLANS_PER_LOOK", 2)
    monkeypatch.setattr(offset_admin, "DESCRIBED_PER_STEP", 2)


def reader() -> tuple[World, ShareConsumer]:
    """The member of a group that reads five partitions from the beginning, one record in each."""
    world = group_world(topics={"t": len(PARTITIONS)})
    alter_shares(world, auto_offset_reset="earliest")
    member = share_consumer(world, "a", "t")
    for partition in PARTITIONS:
        Shares(world, partition, GROUP).produce(1)
    return world, member


def pictures(world: World) -> list[str]:
    return [picture(Shares(world, partition, GROUP).state) for partition in PARTITIONS]


def take_all(member: ShareConsumer) -> None:
    """Take the records while there are some in the partitions that one look considers."""
    found: list[str] = []
    while len(found) < len(PARTITIONS):
        found += member.fetch()


def later(world: World) -> None:
    """The next turn of the loop."""
    world.tick(1)
    world.settle()


def test_the_records_of_a_member_that_left_are_released_a_few_at_a_time() -> None:
    world, a = reader()
    take_all(a)
    assert pictures(world) == ["0: a1"] * 5
    a.member.leaves()
    world.settle()
    assert sorted(pictures(world)) == ["0: .1"] * 2 + ["0: a1"] * 3
    later(world)
    assert pictures(world) == ["0: .1"] * 5
    world.check_replay()


def test_what_a_member_acquires_anew_meanwhile_stays_held() -> None:
    world, a = reader()
    take_all(a)
    a.member.leaves()
    world.settle()
    first = [each for each, found in zip(PARTITIONS, pictures(world), strict=True) if found == "0: .1"]
    for partition in first:
        Shares(world, partition, GROUP).acquire("a")
    for _turn in range(3):
        later(world)
    assert sorted(pictures(world)) == ["0: .1"] * 3 + ["0: a2"] * 2


def test_a_shard_that_went_meanwhile_has_nothing_to_release() -> None:
    world, a = reader()
    take_all(a)
    a.member.leaves()
    world.settle()
    held = next(each for each, found in zip(PARTITIONS, pictures(world), strict=True) if found == "0: a1")
    world.unload(f"share:{held}")
    world.settle()
    for _turn in range(3):
        later(world)
    world.load(f"share:{held}")
    world.settle()
    assert all("a" not in each for each in pictures(world))


def test_a_fetch_finds_a_record_in_the_last_of_many_partitions() -> None:
    world, a = reader()
    take_all(a)
    waiting = a.fetching(max_wait_ms=5_000)
    for _turn in range(3):
        later(world)
    assert not waiting.is_settled
    Shares(world, PARTITIONS[4], GROUP).produce(1)
    world.settle()
    assert waiting.is_settled


def test_a_fetch_without_a_wait_looks_at_every_partition() -> None:
    world, a = reader()
    take_all(a)
    Shares(world, PARTITIONS[4], GROUP).produce(1)
    asked = a.fetching(max_wait_ms=0)
    for _turn in range(3):
        later(world)
    assert a.acquired(response_of(asked)) == {PARTITIONS[4]: [1]}


def test_a_topic_that_is_deleted_while_its_offsets_are_described_is_refused_from_there_on() -> None:
    world, a = reader()
    take_all(a)
    asked = world.call(group_pb2.DescribeShareGroupOffsetsRequest(group_id=GROUP))
    world.delete_topic("t")
    for _turn in range(5):
        later(world)
    offsets = asked.result().offsets
    assert [each.partition for each in offsets] == [*range(5)]
    assert [code(each) is OK for each in offsets] == [True] * 2 + [False] * 3


def test_a_caller_that_gives_up_while_offsets_are_described_leaves_nothing_behind() -> None:
    world, a = reader()
    take_all(a)
    asked = world.call(group_pb2.DescribeShareGroupOffsetsRequest(group_id=GROUP))
    later(world)
    asked.cancel()
    later(world)
    assert STEP_TIMER not in world.inside.runtime.timers.by_kind()


def test_records_are_released_to_the_last_though_their_member_is_gone() -> None:
    world, a = reader()
    take_all(a)
    asked = a.acknowledging({}, epoch=-1)
    asked.cancel()
    for _turn in range(3):
        later(world)
    assert pictures(world) == ["0: .1"] * 5
