"""Cooperative sticky: the sticky assignment, reached without any member reading a partition that another still owns.

A partition that is to change hands is left out of the first assignment. Its owner sees that it is gone, gives it up and
joins again; the rebalance after that assigns it to its new owner.

Source: spec groups 5.7 (X1, X2); KIP-429.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from typing import TypeAlias

from coordinator_protocol.assignors.audiences import in_order
from coordinator_protocol.assignors.sticky import balance
from coordinator_protocol.assignors.values import MemberSpec, Share, Shares, TopicSpec, TopicT

_Partitions: TypeAlias = dict[TopicT, set[int]]


def assign_cooperative_sticky(
    members: Mapping[str, MemberSpec[TopicT]], topics: Mapping[TopicT, TopicSpec]
) -> Shares[TopicT]:
    """Return the sticky shares without the partitions that members would get while another member still claims them.

    A member whose claim is believed (see `settle_claims`) keeps the partition, even if others claim it."""
    turns = in_order(members)
    holdings, balanced = balance([members[member_id] for member_id in turns], topics)
    shares = dict(zip(turns, balanced, strict=True))
    changed = zip(turns, holdings.shares, balanced, strict=True)
    gains = {member_id: _gain(share, kept) for member_id, kept, share in changed if share is not kept}
    for member_id, transfers in _claimed_parts(gains, members.values()).items():
        shares[member_id] = _without(shares[member_id], transfers)
    return shares


def handed_over_too_early(
    members: Mapping[str, MemberSpec[TopicT]], shares: Shares[TopicT]
) -> list[tuple[TopicT, int]]:
    """Return the partitions, ascending, that a member would get while another one still owns them.

    Empty for every assignor that is cooperative. The leader checks assignors of applications with this."""
    gains = {member_id: _gain(share, members[member_id].owned) for member_id, share in shares.items()}
    return sorted(
        (topic, partition)
        for transfers in _claimed_parts(gains, members.values()).values()
        for topic, partitions in transfers.items()
        for partition in partitions
    )


def _gain(share: Share[TopicT], before: Share[TopicT]) -> _Partitions[TopicT]:
    """Return the partitions that are new in a share."""
    gain = {}
    for topic, partitions in share.items():
        had = before.get(topic, ())
        if partitions != had:
            gain[topic] = {*partitions}.difference(had)
    return gain


def _claimed_parts(
    gains: Mapping[str, _Partitions[TopicT]], members: Iterable[MemberSpec[TopicT]]
) -> dict[str, _Partitions[TopicT]]:
    """Return, for each member, the new partitions that any member claims; members without any are left out."""
    claimed: _Partitions[TopicT] = {topic: set() for gain in gains.values() for topic in gain}
    for member in members:
        for topic in member.owned.keys() & claimed.keys():
            claimed[topic].update(member.owned[topic])
    parts = {
        member_id: {topic: transfers for topic in gain if (transfers := gain[topic] & claimed[topic])}
        for member_id, gain in gains.items()
    }
    return {member_id: part for member_id, part in parts.items() if part}


def _without(share: Share[TopicT], transfers: Mapping[TopicT, Set[int]]) -> Share[TopicT]:
    safe = {}
    for topic, partitions in share.items():
        barred = transfers.get(topic, frozenset())
        if len(barred) < len(partitions):
            safe[topic] = (
                tuple(partition for partition in partitions if partition not in barred) if barred else partitions
            )
    return safe
