"""An assignor that does as the test says, so that a scenario can move single partitions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from coordinator_protocol.assignors.values import MemberSpec, Shares, TopicSpec
from tests.harness.consumers import Partitions
from tests.harness.group_world import group_world
from tests.harness.world import World


class PlannedAssignor:
    """plan(first=of("foo", 0)) is what the next computation returns, and every one after it."""

    def __init__(self) -> None:
        self.world: World | None = None
        self._shares: dict[str, Partitions] = {}

    def __call__(self, **shares: Partitions) -> None:
        self._shares = shares

    def assign(self, members: Mapping[str, MemberSpec[bytes]], topics: Mapping[bytes, TopicSpec]) -> Shares[bytes]:
        return {member_id: self._share(member_id) for member_id in members}

    def _share(self, member_id: str) -> Mapping[bytes, tuple[int, ...]]:
        assert self.world is not None
        numbers: dict[bytes, list[int]] = {}
        for topic, number in sorted(self._shares.get(member_id, ())):
            shape = self.world.inside.catalog.shape(topic)
            assert shape is not None
            numbers.setdefault(shape.topic_id, []).append(number)
        return {topic_id: tuple(found) for topic_id, found in numbers.items()}


def planned_world(**config: Any) -> tuple[World, PlannedAssignor]:
    """A world with that assignor. It may assign what its members do not subscribe to yet."""
    plan = PlannedAssignor()
    world = group_world(assignors={"planned": plan.assign}, consumer_assignors=("planned",), **config)
    plan.world = world
    return world, plan
