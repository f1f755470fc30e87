"""Connections in the assembly besides services: a core without observers acts as one behind a server does."""

from __future__ import annotations

from coordinator_runtime.decision import ShardKey
from coordinator_runtime.shard_table import ShardState
from tests.harness.world import World


def fenced(world: World, shard: ShardKey, coordinator_epoch: int) -> ShardState:
    """Report from a partition that a newer coordinator of the shard exists; return the shard's state afterwards."""
    core = world.inside.core
    core.sender.on_fenced(shard, coordinator_epoch)
    world.tick(0)
    world.settle()
    return core.loader.standing(shard).state


def test_a_zombie_serves_no_longer() -> None:
    world = World()
    shard = world.shard_of("orders")
    epoch = world.inside.core.loader.standing(shard).coordinator_epoch
    assert epoch is not None
    assert fenced(world, shard, epoch) is ShardState.UNLOADED


def test_a_shard_that_was_loaded_again_under_a_later_epoch_goes_on() -> None:
    world = World()
    shard = world.shard_of("orders")
    epoch = world.inside.core.loader.standing(shard).coordinator_epoch
    assert epoch is not None
    world.load("orders")
    world.settle()
    assert fenced(world, shard, epoch) is ShardState.ACTIVE
