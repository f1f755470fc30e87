"""Shards that leave a server in the middle of a storm, and come back."""

from __future__ import annotations

from random import Random

from coordinator_runtime.decision import Coordinator, ShardKey
from tests.harness.world import World

_RETRY_MS_MAX = 2_000
"""After this time everybody has tried again who waited for a shard."""


def move_one(world: World, rng: Random) -> None:
    """Unload a shard, or load it: for the first time, or over one that serves."""
    loader = world.inside.driver.loader
    key = rng.choice(_movable(world))
    if rng.random() < 0.5:
        loader.unload(key)
    else:
        loader.load(key)


def go_on(world: World) -> None:
    """Take one step of a load that is under way."""
    if world.inside.driver.loader.is_reading:
        world.inside.runtime.run_due_timers()


def bring_all_back(world: World) -> None:
    """Every shard serves, and what waited for one has gone on."""
    away = [key for key in _movable(world) if key not in world.inside.runtime.table.served]
    for key in away:
        world.inside.driver.loader.load(key)
    world.settle()
    world.tick(_RETRY_MS_MAX)
    world.settle()


def _movable(world: World) -> list[ShardKey]:
    wanted = (Coordinator.LOG, Coordinator.TRANSACTIONS, Coordinator.GROUPS, Coordinator.SHARE_PARTITIONS)
    return sorted(key for key in world.inside.runtime.table.states() if key.coordinator in wanted)
