"""Cooperative sticky: the sticky assignment, reached without anybody reading what another still owns.

A partition that is to change hands is left out of the first assignment. Its owner sees that it is gone, gives it up and
joins again; the rebalance after that hands it to its new owner.

Source: spec groups 5.7 (X1, X2); KIP-429.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from coordinator_protocol.assignors.audiences import in_order
from coordinator_protocol.assignors.sticky import balance
from coordinator_protocol.assignors.values import MemberSpec, Share, Shares, TopicSpec, TopicT


def assign_cooperative_sticky(
    members: Mapping[str, MemberSpec[TopicT]], topics: Mapping[TopicT, TopicSpec]
) -> Shares[TopicT]:
    """Return the sticky shares without what members would get while anybody else claims it.

    Somebody whose claim is believed (see `settle_claims`) keeps the partition, whoever else claims it.
    """
    turns = in_order(members)
    holdings, shares = balance([members[member_id] for member_id in turns], topics)
    claimed = _claims(members.values())
    safe = {}
    for member_id, kept, share in zip(turns, holdings.shares, shares, strict=True):
        safe[member_id] = share if share is kept else _without_transfers(share, kept, claimed)
    return safe


def handed_over_too_early(
    members: Mapping[str, MemberSpec[TopicT]], shares: Shares[TopicT]
) -> list[tuple[TopicT, int]]:
    """Return the partitions, ascending, that somebody would get while another member still owns them.

    Empty for every assignor that may call itself cooperative. The leader asks this of assignors that are not ours.
    """
    claimed = _claims(members.values())
    return sorted(
        (topic, partition)
        for member_id, share in shares.items()
        for topic, partitions in share.items()
        for partition in _transfers(topic, partitions, members[member_id].owned, claimed)
    )


def _claims(members: Iterable[MemberSpec[TopicT]]) -> dict[TopicT, set[int]]:
    claimed: dict[TopicT, set[int]] = {}
    for member in members:
        for topic, partitions in member.owned.items():
            claimed.setdefault(topic, set()).update(partitions)
    return claimed


def _transfers(
    topic: TopicT, partitions: Iterable[int], kept: Share[TopicT], claimed: Mapping[TopicT, set[int]]
) -> set[int]:
    """Those of the partitions that are new to whoever kept `kept`, and claimed by somebody."""
    return {*partitions}.difference(kept.get(topic, ())).intersection(claimed.get(topic, ()))


def _without_transfers(share: Share[TopicT], kept: Share[TopicT], claimed: Mapping[TopicT, set[int]]) -> Share[TopicT]:
    safe = {}
    for topic, partitions in share.items():
        transfers = _transfers(topic, partitions, kept, claimed)
        if len(transfers) < len(partitions):
            safe[topic] = tuple(partition for partition in partitions if partition not in transfers)
    return safe
