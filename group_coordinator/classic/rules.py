"""Who may join a classic group, and with what. Each rule stands alone and can be read off its test's table.

Source: spec groups 2.4.3, 2.4.4, 2.6.1.
"""

from __future__ import annotations

from coordinator_protocol.errors import ErrorCode, Refused
from group_coordinator.classic.requests import JoinGroup, SyncGroup
from group_coordinator.classic.state import ClassicGroup, ClassicState


def unknown_member(group_id: str, member_id: str) -> Refused:
    """What somebody is told who is no member."""
    return Refused(
        ErrorCode.UNKNOWN_MEMBER_ID,
        f"group {group_id!a} has no member {member_id!a:.120}; join with an empty member id",
    )


def has_room(group: ClassicGroup, member_id: str, size_max: int) -> bool:
    """May this one join, as far as the size of the group goes? While a generation is formed those count that have
    joined it, so the last to come are put out; ids that were only given away never count."""
    match group.state:
        case ClassicState.EMPTY:
            return True
        case ClassicState.PREPARING_REBALANCE:
            return member_id in group.parked_joins or len(group.parked_joins) < size_max
        case ClassicState.COMPLETING_REBALANCE | ClassicState.STABLE:
            return member_id in group.members or len(group.members) < size_max


def check_protocols(group: ClassicGroup, request: JoinGroup) -> None:
    """Raises INCONSISTENT_GROUP_PROTOCOL unless the joiner has the group's type, and one protocol that all list."""
    names = [protocol.name for protocol in request.protocols]
    if group.supports(request.protocol_type, names):
        return
    if group.state is ClassicState.EMPTY:
        message = "a member needs a protocol_type and at least one protocol"
    else:
        message = (
            f"group {group.group_id!a} is of type {group.protocol_type!a}, and its members have in common "
            f"{_common(group)}; {request.protocol_type!a:.80} with {_shown(names)} does not go with that"
        )
    raise Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, message)


def _common(group: ClassicGroup) -> str:
    return _shown(sorted(name for name, count in group.supporters.items() if count == len(group.members)))


def _shown(names: list[str]) -> str:
    return f"{names!a:.200}"


def check_sync(group: ClassicGroup, request: SyncGroup) -> None:
    """Raises what `ClassicGroup.check_member` and `check_generation` do; INCONSISTENT_GROUP_PROTOCOL where the member
    thinks that something else was agreed on."""
    group.check_member(request.member_id, request.instance_id)
    group.check_generation(request.generation_id)
    for what, asked, agreed in (
        ("protocol_type", request.protocol_type, group.protocol_type or None),
        ("protocol_name", request.protocol_name, group.protocol_name),
    ):
        if asked is not None and agreed is not None and asked != agreed:
            raise Refused(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                f"group {group.group_id!a} agreed on the {what} {agreed!a}, and not on {asked!a:.120}",
            )
