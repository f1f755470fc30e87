"""Administration of groups: listing, describing, deleting and settings. Everything read here is on disk."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Final

from coordinator_protocol.acls import CLUSTER_NAME
from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.names import check_group_id
from coordinator_runtime.decision import Coordinator, Operation, ShardRouter
from coordinator_runtime.pending import Pending, all_of, settled
from coordinator_runtime.ports import Authorizer, CallContext, Permission, ResourceType, require
from coordinator_runtime.runtime import Runtime
from group_coordinator.administration.decisions import decide_alter_config, decide_delete
from group_coordinator.administration.requests import (
    AlterGroupConfig,
    DeletedGroup,
    DescribedGroup,
    DescribedMember,
    GroupFilter,
    ListedGroup,
)
from group_coordinator.administration.settings import SHARE_DEAD_LETTER_TOPIC, GroupSettings, shown
from group_coordinator.classic.state import ClassicGroup, ClassicState
from group_coordinator.committed.offsets import Offsets
from group_coordinator.shard import GroupShard
from group_coordinator.state import Group

_DEAD: Final = "Dead"
"""State shown for a group that does not exist."""


class AdministrationService:
    """Use cases over groups of all kinds. Each checks the caller's permission and the command."""

    def __init__(self, runtime: Runtime, router: ShardRouter, authorizer: Authorizer) -> None:
        self._runtime = runtime
        self._router = router
        self._authorizer = authorizer

    def describe(self, group_ids: Iterable[str], context: CallContext) -> list[DescribedGroup]:
        """Describe classic groups, in the given order. A group that only has offsets is Empty. Source: spec groups 4.8.

        Each group is refused on its own: GROUP_AUTHORIZATION_FAILED; GROUP_ID_NOT_FOUND, also for a group of another
        kind; NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS.
        """
        described = []
        for group_id in group_ids:
            try:
                require(self._authorizer, context, Permission.DESCRIBE, ResourceType.GROUP, group_id)
                described.append(_described(self._classic_group(group_id)))
            except Refused as refusal:
                described.append(DescribedGroup(group_id, _DEAD, refusal))
        return described

    def _classic_group(self, group_id: str) -> ClassicGroup:
        shard: GroupShard = self._runtime.shard(self._router.shard_key(group_id))
        group = shard.durable_group(group_id)
        if not isinstance(group, ClassicGroup):
            what = "there is no group" if group is None else f"{group.kind} is the kind of group"
            raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"{what} {group_id!a:.300}; list the groups")
        return group

    def delete(self, group_ids: Iterable[str], context: CallContext) -> Pending[list[DeletedGroup]]:
        """Delete groups without members, with all their offsets; durable when answered.

        Each group is deleted or refused on its own: GROUP_AUTHORIZATION_FAILED, INVALID_GROUP_ID, and as
        `decisions.decide_delete`.
        """
        return all_of([self._delete(group_id, context) for group_id in group_ids])

    def _delete(self, group_id: str, context: CallContext) -> Pending[DeletedGroup]:
        try:
            require(self._authorizer, context, Permission.DELETE, ResourceType.GROUP, group_id)
            check_group_id(group_id)
        except Refused as refusal:
            return settled(DeletedGroup(group_id, refusal))

        operation = Operation(self._router.shard_key(group_id), lambda shard, _turn: decide_delete(shard, group_id))
        written = self._runtime.write(operation, context)
        deleted = written.map(lambda _nothing: DeletedGroup(group_id))
        return deleted.answer_error(lambda error: DeletedGroup(group_id, error))

    def list(self, wanted: GroupFilter, context: CallContext) -> list[ListedGroup]:
        """Return the groups of all shards served here that the caller may describe, sorted by id.

        Raises Refused COORDINATOR_LOAD_IN_PROGRESS while a shard is being loaded.
        """
        shards: list[GroupShard] = self._runtime.table.listable(Coordinator.GROUPS)
        states = {name.strip().lower() for name in wanted.states}
        kinds = {name.strip().lower() for name in wanted.kinds}
        may = partial(self._authorizer.is_allowed, context, Permission.DESCRIBE)
        sees_all = may(ResourceType.CLUSTER, CLUSTER_NAME)
        listed = [_listed(group) for shard in shards for group in _durable_groups(shard)]
        return sorted(
            group
            for group in listed
            if (not states or group.state_name.lower() in states)
            and (not kinds or group.kind in kinds)
            and (sees_all or may(ResourceType.GROUP, group.group_id))
        )

    def describe_config(self, group_id: str, context: CallContext) -> Mapping[str, int | str]:
        """Return the settings of a group that differ from the server's. Raises Refused: GROUP_AUTHORIZATION_FAILED,
        INVALID_GROUP_ID."""
        require(self._authorizer, context, Permission.DESCRIBE_CONFIGS, ResourceType.GROUP, group_id)
        check_group_id(group_id)
        shard: GroupShard = self._runtime.shard(self._router.shard_key(group_id))
        overrides = shard.part(GroupSettings).overrides.durable(group_id) or {}
        return {name: shown(name, value) for name, value in overrides.items()}

    def alter_config(self, command: AlterGroupConfig, context: CallContext) -> Pending[None]:
        """Change settings of one group. The server writes to its dead-letter topic, so the caller must be allowed to.

        Errors: GROUP_AUTHORIZATION_FAILED, INVALID_GROUP_ID, TOPIC_AUTHORIZATION_FAILED, INVALID_CONFIG."""
        require(self._authorizer, context, Permission.ALTER_CONFIGS, ResourceType.GROUP, command.group_id)
        check_group_id(command.group_id)
        for name, value in command.wanted:
            if name == SHARE_DEAD_LETTER_TOPIC and value and isinstance(value, str):
                require(self._authorizer, context, Permission.WRITE, ResourceType.TOPIC, value)
        decide = partial(decide_alter_config, command=command)
        return self._runtime.write(Operation(self._router.shard_key(command.group_id), decide), context)


def _described(group: ClassicGroup) -> DescribedGroup:
    is_stable = group.state is ClassicState.STABLE
    members = [
        DescribedMember(
            member_id=member.member_id,
            instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            metadata=member.metadata(group.protocol_name) if is_stable else b"",
            assignment=member.assignment if is_stable else b"",
        )
        for member in group.members.values()
    ]
    return DescribedGroup(
        group_id=group.group_id,
        state_name=group.state_name,
        protocol_type=group.protocol_type,
        protocol_name=(group.protocol_name or "") if is_stable else "",
        generation_id=group.generation_id,
        leader=group.leader or "",
        members=tuple(members),
    )


def _durable_groups(shard: GroupShard) -> Iterator[Group]:
    group_ids = {group_id for group_id, _group in shard.groups.durable_items()}
    group_ids.update(shard.part(Offsets).durable_group_ids())
    return (group for group_id in group_ids if (group := shard.durable_group(group_id)) is not None)


def _listed(group: Group) -> ListedGroup:
    return ListedGroup(group.group_id, group.protocol_type, group.state_name, group.kind.value)
