"""What administrators ask about groups. Everything read here is durable as of the answer."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.names import check_group_id
from coordinator_runtime.decision import Coordinator, Decision, Operation, Turn
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import CallContext
from coordinator_runtime.runtime import Runtime
from group_coordinator.administration.decisions import decide_alter_config, decide_delete
from group_coordinator.administration.settings import GroupSettings
from group_coordinator.classic.state import ClassicGroup
from group_coordinator.committed.offsets import Offsets
from group_coordinator.loading import GroupRouter
from group_coordinator.shard import GroupShard
from group_coordinator.state import Group


@dataclass(frozen=True, slots=True)
class GroupFilter:
    """Which groups are listed. Names in lower case; an empty set means all."""

    states: frozenset[str] = frozenset()
    kinds: frozenset[str] = frozenset()

    def matches(self, listed: ListedGroup) -> bool:
        return (not self.states or listed.state_name.lower() in self.states) and (
            not self.kinds or listed.kind in self.kinds
        )


class ListedGroup(NamedTuple):
    """One group in a listing."""

    group_id: str
    protocol_type: str
    state_name: str
    kind: str


class AdministrationService:
    """Use cases over groups of all kinds."""

    def __init__(self, runtime: Runtime, router: GroupRouter) -> None:
        self._runtime = runtime
        self._router = router

    def describe_classic(self, group_id: str) -> ClassicGroup:
        """A classic group; one that only has offsets is Empty.

        Raises Refused: GROUP_ID_NOT_FOUND, also for a group of another kind; NOT_COORDINATOR, COORDINATOR_LOAD_IN_
        PROGRESS. Source: spec groups 4.8."""
        shard: GroupShard = self._runtime.shard(self._router.shard_key(group_id))
        group = shard.durable_group(group_id)
        if not isinstance(group, ClassicGroup):
            what = "there is no group" if group is None else f"{group.kind} is the kind of group"
            raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"{what} {group_id!a:.300}; list the groups")
        return group

    def delete(self, group_id: str, context: CallContext) -> Pending[None]:
        """Delete a group without members, with all its offsets; durable when answered.

        Errors: Refused, as `decisions.decide_delete`."""

        def decide(shard: GroupShard, _turn: Turn) -> Decision:
            return decide_delete(shard, group_id)

        return self._runtime.write(Operation(self._router.shard_key(group_id), decide), context)

    def list(self, wanted: GroupFilter) -> list[ListedGroup]:
        """The groups of every shard that is served here, by id.

        Raises Refused COORDINATOR_LOAD_IN_PROGRESS while a shard is being loaded."""
        shards: list[GroupShard] = self._runtime.table.listable(Coordinator.GROUPS)
        listed = (_listed(group) for shard in shards for group in _durable_groups(shard))
        return sorted(filter(wanted.matches, listed))

    def describe_config(self, group_id: str) -> Mapping[str, int]:
        """The settings of a group that differ from the server's. Raises Refused INVALID_GROUP_ID."""
        check_group_id(group_id)
        shard: GroupShard = self._runtime.shard(self._router.shard_key(group_id))
        return shard.part(GroupSettings).overrides.durable(group_id) or {}

    def alter_config(
        self,
        group_id: str,
        wanted: Mapping[str, int],
        unset: Collection[str],
        *,
        validate_only: bool,
        context: CallContext,
    ) -> Pending[None]:
        """Errors: INVALID_GROUP_ID, INVALID_CONFIG."""
        check_group_id(group_id)
        decide = partial(
            decide_alter_config, group_id=group_id, wanted=wanted, unset=unset, validate_only=validate_only
        )
        return self._runtime.write(Operation(self._router.shard_key(group_id), decide), context)


def _durable_groups(shard: GroupShard) -> Iterator[Group]:
    group_ids = {group_id for group_id, _group in shard.groups.durable_items()}
    group_ids.update(shard.part(Offsets).durable_group_ids())
    return (group for group_id in group_ids if (group := shard.durable_group(group_id)) is not None)


def _listed(group: Group) -> ListedGroup:
    return ListedGroup(group.group_id, group.protocol_type, group.state_name, group.kind.value)
