"""Share groups and the states of their partitions, in one server: both are made, released and dropped together."""

from __future__ import annotations

from coordinator_api.v1 import group_pb2
from coordinator_runtime.decision import Coordinator
from group_coordinator.share_partitions.acquiring import Terms
from group_coordinator.share_partitions.shard import ShareShard
from tests.groups.share_partitions.pictures import picture
from tests.harness.group_world import group_world
from tests.harness.share_groups import ShareMember
from tests.harness.share_partitions import Shares
from tests.harness.world import World


def states(world: World) -> list[str]:
    """The partitions of which a share group has a state, on disk."""
    shards: list[ShareShard] = world.inside.runtime.shards(Coordinator.SHARE_PARTITIONS)
    return sorted(world.partition_of(key.ordinal) for shard in shards for key in shard.durable_state())


def initialized(world: World, member: ShareMember) -> list[str]:
    """The partitions of which the member's group knows that they have a state."""
    catalog = world.inside.core.catalog
    partitions = world.groups.live(member.group_id).initialized_partitions()
    return sorted(f"{catalog.shape_of_id(topic_id).topic}-{partition}" for topic_id, partition in partitions)


def test_a_member_gets_partitions_whose_states_are_made_with_its_heartbeat() -> None:
    world = group_world(topics={"t": 3})
    member = ShareMember(world, "a")
    member.joins("t")
    assert len(member.assigned) == 3
    assert states(world) == ["t-0", "t-1", "t-2"]
    world.check_replay()
    world.check_stored()


def test_a_member_that_leaves_releases_its_records() -> None:
    world = group_world(topics={"t": 1})
    member = ShareMember(world, "a")
    member.joins("t")
    shares = Shares(world, group_id=member.group_id)
    shares.produce(3)
    shares.resolve(0)
    assert shares.acquire("a") == [0, 1, 2]
    member.leaves()
    world.settle()
    assert picture(shares.state) == "0: .1 .1 .1"


def test_a_member_that_is_silent_for_too_long_releases_its_records() -> None:
    world = group_world(topics={"t": 1})
    member = ShareMember(world, "a")
    member.joins("t")
    shares = Shares(world, group_id=member.group_id)
    shares.terms = Terms(lock_duration_ms=600_000)
    shares.produce(3)
    shares.resolve(0)
    shares.acquire("a")
    world.pass_time(world.options.group_config.share_session_timeout_ms)
    assert picture(shares.state) == "0: .1 .1 .1"


def test_a_deleted_group_and_a_deleted_topic_leave_no_state() -> None:
    world = group_world(topics={"t": 2, "u": 1})
    member = ShareMember(world, "a")
    member.joins("t", "u")
    assert states(world) == ["t-0", "t-1", "u-0"]
    world.delete_topic("u")
    world.settle()
    assert states(world) == ["t-0", "t-1"]
    assert initialized(world, member) == states(world)
    member.leaves()
    world.ask(group_pb2.DeleteGroupsRequest(group_ids=[member.group_id]))
    assert states(world) == []
    world.check_replay()
    world.check_stored()


def test_the_states_that_all_groups_have_of_a_topic_go_with_it() -> None:
    world = group_world(topics={"t": 2, "u": 1})
    one, other = ShareMember(world, "a"), ShareMember(world, "b", group_id="other")
    one.joins("t", "u")
    other.joins("t")
    assert states(world) == ["t-0", "t-0", "t-1", "t-1", "u-0"]
    world.delete_topic("t")
    world.settle()
    assert states(world) == ["u-0"]
    assert (initialized(world, one), initialized(world, other)) == (["u-0"], [])
    world.check_replay()
    world.check_stored()


def test_a_topic_stays_as_long_as_a_state_of_its_partitions_is_not_served() -> None:
    world = group_world(topics={"t": 1})
    member = ShareMember(world, "a")
    member.joins("t")
    shard = Shares(world, group_id=member.group_id).shard_key
    world.inside.driver.loader.unload(shard)
    world.settle()
    deleted = world.delete_topic("t")
    world.settle()
    assert deleted.result().error is not None
    assert initialized(world, member) == ["t-0"]
    world.inside.driver.loader.load(shard)
    world.settle()
    world.delete_topic("t")
    world.settle()
    assert (states(world), initialized(world, member)) == ([], [])


def test_partitions_whose_states_are_not_served_are_assigned_later() -> None:
    world = group_world(topics={"t": 1})
    shares = Shares(world, group_id="g")
    loader = world.inside.driver.loader
    shard = shares.shard_key
    loader.unload(shard)
    world.settle()
    member = ShareMember(world, "a")
    member.joins("t")
    assert not member.assigned
    loader.load(shard)
    world.settle()
    for _ in range(8):
        world.pass_time(5_000)
        member.beats()
    assert len(member.assigned) == 1
