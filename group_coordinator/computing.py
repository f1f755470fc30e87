"""Parts of every computation of a target, from values to values, in any process.

The worker process imports only this module, that of a kind of group, and the needs of an assignor. So it starts quickly
and stays small.

Source: spec groups 3.5; design 8.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from coordinator_protocol.assignors.values import MemberSpec, Share, Shares
from coordinator_protocol.errors import ErrorCode, Refused

MemberRow: TypeAlias = tuple[str, frozenset[bytes], str | None, str | None, Share[bytes], int]
"""A member on its way to another process. Plain tuples pickle several times as fast as frozen classes, and the loop is
blocked meanwhile."""


@dataclass(frozen=True, slots=True)
class TargetResult:
    """Result of an assignor, limited to its changes."""

    group_id: str
    group_epoch: int
    assignor_name: str
    changed: Mapping[str, Share[bytes]]
    """New shares by member id. A member that is missing keeps its share."""


def member_rows(members: Mapping[str, MemberSpec[bytes]]) -> list[MemberRow]:
    """Return the members as rows."""
    return [
        (member_id, each.topics, each.instance_id, each.rack_id, each.owned, each.generation)
        for member_id, each in members.items()
    ]


def members_of(rows: Iterable[MemberRow]) -> dict[str, MemberSpec[bytes]]:
    """Return the members of rows."""
    return {
        member_id: MemberSpec(
            topics=wanted, instance_id=instance_id, rack_id=rack_id, owned=owned, generation=generation
        )
        for member_id, wanted, instance_id, rack_id, owned, generation in rows
    }


def changed_shares(
    members: Mapping[str, MemberSpec[bytes]], assign: Callable[[], Shares[bytes]], *, group_id: str, assignor_name: str
) -> Mapping[str, Share[bytes]]:
    """Call an assignor for these members. Raises Refused UNKNOWN_SERVER_ERROR if it fails, or leaves one out."""
    try:
        shares = assign()
        return {
            member_id: shares[member_id] for member_id, known in members.items() if shares[member_id] != known.owned
        }
    except Exception as error:
        # An assignor may be third-party code: its group fails, and nothing else.
        raise Refused(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"the assignor {assignor_name} failed on the group {group_id!a:.80}: {error!r:.300}; choose another one",
        ) from error
