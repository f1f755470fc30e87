"""Groups of whatever kind, as administrators see them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from coordinator_api.v1 import group_pb2
from coordinator_protocol.errors import ErrorCode
from coordinator_runtime.decision import Coordinator

if TYPE_CHECKING:
    from tests.harness.world import World

OK = ErrorCode.NONE
GROUP = "g"
TIMERS = ("session", "rebalance", "join", "sync", "target", "regex")


def code(response: Any) -> ErrorCode:
    """The error of a whole response, or of one of its items."""
    return ErrorCode(response.error_code)


@dataclass(frozen=True, slots=True)
class Groups:
    """All groups of a world."""

    world: World

    def listed(self) -> dict[str, tuple[str, str, str]]:
        """Protocol type, state and kind of every group."""
        groups = self.world.ask(group_pb2.ListGroupsRequest()).groups
        return {each.group_id: (each.protocol_type, each.group_state, each.group_type) for each in groups}

    def kind(self, group_id: str = GROUP) -> str:
        return self.listed()[group_id][2]

    def delete(self, group_id: str = GROUP) -> ErrorCode:
        """DeleteGroups."""
        (group,) = self.world.ask(group_pb2.DeleteGroupsRequest(group_ids=[group_id])).groups
        return code(group)

    def has(self, group_id: str = GROUP) -> bool:
        return any(group_id in shard.groups for shard in self.world.inside.runtime.shards(Coordinator.GROUPS))

    def live(self, group_id: str = GROUP) -> Any:
        """The group itself, for state without an API."""
        inside = self.world.inside
        return inside.runtime.shard(inside.groups.router.shard_key(group_id)).groups.get(group_id)

    def timers(self) -> dict[str, int]:
        """Return the number of armed timers of groups, by their kind."""
        kinds = self.world.inside.runtime.timers.by_kind()
        return {kind: kinds[kind] for kind in TIMERS if kinds.get(kind)}
