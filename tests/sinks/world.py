"""A world for sinks: a server with a topic that one writes to."""

from __future__ import annotations

from typing import Any

from tests.harness.inside import WorldOptions
from tests.harness.world import World


def sink_world(*, partition_count: int = 2, **settings: Any) -> World:
    """A server with a topic that a sink writes to. The settings are those of `WorldOptions`."""
    world = World(WorldOptions(**settings))
    world.create_topic("t", partition_count)
    return world
