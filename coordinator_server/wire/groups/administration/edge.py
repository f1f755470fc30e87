"""Between the messages of administrators and the values of this package."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from coordinator_api.v1 import group_pb2
from coordinator_protocol.errors import ErrorCode, Refused
from group_coordinator.administration.service import GroupFilter, ListedGroup
from group_coordinator.classic.state import ClassicGroup, ClassicState

DEAD: Final = "Dead"
"""The state of a group that is not there."""


def group_filter(message: group_pb2.ListGroupsRequest) -> GroupFilter:
    """Case and space around the names mean nothing."""
    return GroupFilter(_names(message.states_filter), _names(message.types_filter))


def _names(names: Iterable[str]) -> frozenset[str]:
    return frozenset(name.strip().lower() for name in names)


def list_response(listed: Iterable[ListedGroup]) -> group_pb2.ListGroupsResponse:
    return group_pb2.ListGroupsResponse(
        groups=[
            group_pb2.GroupListing(
                group_id=group.group_id,
                protocol_type=group.protocol_type,
                group_state=group.state_name,
                group_type=group.kind,
            )
            for group in listed
        ]
    )


def fill_description(description: group_pb2.GroupDescription, group: ClassicGroup) -> None:
    """What the members agreed on, and what each brought and got, is shown of a stable group only: while it rebalances
    that is changing (spec groups 4.8)."""
    is_stable = group.state is ClassicState.STABLE
    description.group_state = group.state_name
    description.protocol_type = group.protocol_type
    description.protocol_name = (group.protocol_name or "") if is_stable else ""
    description.generation_id = group.generation_id
    description.leader = group.leader or ""
    for member in group.members.values():
        description.members.add(
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            metadata=member.metadata(group.protocol_name) if is_stable else b"",
            assignment=member.assignment if is_stable else b"",
        )


def named(group_id: str, result: group_pb2.DeletedGroup) -> group_pb2.DeletedGroup:
    """The result, for this group."""
    result.group_id = group_id
    return result


def wanted_configs(message: group_pb2.AlterGroupConfigsRequest) -> Mapping[str, int]:
    """Raises Refused INVALID_CONFIG for a name that comes twice: nobody can say which value was meant."""
    wanted: dict[str, int] = {}
    for config in message.set:
        if config.name in wanted:
            raise Refused(ErrorCode.INVALID_CONFIG, f"{config.name!a:.80} is set twice in one request; set it once")
        wanted[config.name] = config.value
    return wanted


def configs_response(overrides: Mapping[str, int]) -> group_pb2.DescribeGroupConfigsResponse:
    configs = [group_pb2.GroupConfig(name=name, value=value) for name, value in sorted(overrides.items())]
    return group_pb2.DescribeGroupConfigsResponse(configs=configs)
