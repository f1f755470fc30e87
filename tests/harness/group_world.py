"""A world for groups: the settings of the acceptance cases, and topics.

world = group_world()
joined = world.call(group_pb2.JoinGroupRequest(group_id="g", ...))     # a Pending response
world.flush()
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any, Final

from coordinator_core.assembly import Core
from group_coordinator.config import GroupConfig
from tests.harness.inside import WorldOptions
from tests.harness.world import World
from txn_coordinator.config import TwoPhase

KAFKA: Final = GroupConfig(
    initial_rebalance_delay_ms=3_000, session_timeout_ms_min=1, consumer_assignment_interval_ms=0
)
"""The settings that the acceptance cases use (docs/reference/conformance.md)."""
TOPICS: Final = {"foo": 6, "bar": 3, "zar": 1}
"""Topics, and how many partitions each has."""

_OPTIONS: Final = WorldOptions(two_phase=TwoPhase.FUSED, lane=True, group_config=KAFKA, removal_interval_ms=86_400_000)
_OF_SERVER: Final = {field.name for field in fields(WorldOptions)}


def group_world(
    *,
    topics: Mapping[str, int] = TOPICS,
    on_assembled: Callable[[Core], None] | None = None,
    **settings: Any,
) -> World:
    """A server with topics. The settings are those of the server (`WorldOptions`) and of its groups (`GroupConfig`)."""
    options = replace(_OPTIONS, **{name: value for name, value in settings.items() if name in _OF_SERVER})
    of_groups = {name: value for name, value in settings.items() if name not in _OF_SERVER}
    config = replace(options.group_config, **of_groups)
    world = World(replace(options, group_config=config), on_assembled=on_assembled)
    world.settle()
    for name, partition_count in topics.items():
        world.create_topic(name, partition_count)
    return world


def classic_world(**settings: Any) -> World:
    """A server for classic groups; no topics, they are the clients' business."""
    return group_world(topics={}, **settings)
