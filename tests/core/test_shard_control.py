"""Permissions of administrators on shards, asked of the core itself."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from coordinator_core.shards import ShardControl
from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_runtime.ports import AllowAll, CallContext, Permission, ResourceType
from coordinator_runtime.shard_table import ShardState
from tests.harness.group_calls import ANYBODY
from tests.harness.inside import WorldOptions
from tests.harness.world import World


class Reader(AllowAll):
    """May look at everything, and change nothing."""

    def is_allowed(self, context: CallContext, permission: Permission, resource: ResourceType, name: str) -> bool:
        return permission is Permission.DESCRIBE


class WithoutRights(AllowAll):
    """May do nothing."""

    def is_allowed(self, context: CallContext, permission: Permission, resource: ResourceType, name: str) -> bool:
        return False


def states(world: World) -> list[ShardState]:
    return [each.state for each in world.inside.core.loader.standings()]


@pytest.mark.parametrize("act", [ShardControl.load, ShardControl.unload])
def test_who_may_only_look_lets_no_shard_go_and_reads_none_back(act: Callable[..., object]) -> None:
    world = World(WorldOptions(authorizer=Reader()))
    shards, before = world.inside.core.admin.shards, states(world)
    asked: list[object] = []
    shards.on_asked = lambda *told: asked.append(told)
    assert len(shards.list_shards("groups", ANYBODY)) == 2
    with pytest.raises(Refused) as refusal:
        act(shards, "groups", 0, ANYBODY)
    assert refusal.value.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert (states(world), asked) == (before, [])


def test_who_may_not_look_learns_nothing_of_shards() -> None:
    shards = World(WorldOptions(authorizer=WithoutRights())).inside.core.admin.shards
    with pytest.raises(Refused) as refusal:
        shards.list_shards("", ANYBODY)
    assert refusal.value.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_a_shard_goes_and_comes_back_and_its_callers_are_reported() -> None:
    world = World()
    shards = world.inside.core.admin.shards
    asked: list[object] = []
    shards.on_asked = lambda key, context: asked.append((key.coordinator.name, key.number, context))
    unloaded = shards.unload("groups", 1, ANYBODY)
    world.settle()
    assert unloaded.result().state is ShardState.UNLOADED
    loaded = shards.load("groups", 1, ANYBODY)
    world.settle()
    assert loaded.result().state is ShardState.ACTIVE
    assert asked == [("GROUPS", 1, ANYBODY)] * 2


def test_a_coordinator_that_there_is_none_of_is_refused_by_name() -> None:
    shards = World().inside.core.admin.shards
    with pytest.raises(Refused, match="there is no coordinator 'grups'; there are counters, catalog") as refusal:
        shards.load("grups", 0, ANYBODY)
    assert refusal.value.code is ErrorCode.INVALID_REQUEST
