"""Sticky: balanced, and every member keeps as much as possible.

One implementation for three strategies: the client's sticky and cooperative-sticky, and the server's uniform.

Source: spec groups 5.4 to 5.6; KIP-54, KIP-341, KIP-429, KIP-848.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from coordinator_protocol.assignors.audiences import audiences, in_order
from coordinator_protocol.assignors.equal_subscriptions import balance_equal
from coordinator_protocol.assignors.ownership import Holdings, settle_claims
from coordinator_protocol.assignors.racks import racks_that_matter
from coordinator_protocol.assignors.unequal_subscriptions import balance_unequal
from coordinator_protocol.assignors.values import MemberSpec, Share, Shares, TopicSpec, TopicT


def assign_sticky(members: Mapping[str, MemberSpec[TopicT]], topics: Mapping[TopicT, TopicSpec]) -> Shares[TopicT]:
    """Return the shares. An unchanged share is the same object that the member came with (`owned`), so that the caller
    may look for changes by identity."""
    turns = in_order(members)
    _, shares = balance([members[member_id] for member_id in turns], topics)
    return dict(zip(turns, shares, strict=True))


def balance(
    members: Sequence[MemberSpec[TopicT]], topics: Mapping[TopicT, TopicSpec]
) -> tuple[Holdings[TopicT], Sequence[Share[TopicT]]]:
    """Return the partitions that each member may keep, and its share, in the order of turns."""
    wanted = audiences(members, topics)
    holdings = settle_claims(members, topics, wanted)
    if not wanted:
        return holdings, holdings.shares
    racks = racks_that_matter(members, topics)
    if all(len(audience.places) == len(members) for audience in wanted.values()):
        return holdings, balance_equal(holdings, racks)
    return holdings, balance_unequal(holdings, topics, wanted, racks)
