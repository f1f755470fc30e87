"""Properties of a good assignment, counted partition by partition: slow, plain, and none of the product's code."""

from __future__ import annotations

from collections import Counter

from coordinator_protocol.assignors.values import Shares
from coordinator_protocol.consumer_protocol import Assignment, encode_assignment
from tests.assignors.groups import Group, assignable, owned_pairs, owners


def is_valid(group: Group, shares: Shares[str]) -> bool:
    """P1 to P4: every subscribed partition has one owner, who subscribes, and all members are named."""
    return (
        shares.keys() == group.members.keys()
        and owners(shares).keys() == assignable(group)
        and all(share.keys() <= group.members[member_id].topics for member_id, share in shares.items())
    )


def as_bytes(shares: Shares[str]) -> dict[str, bytes]:
    return {member_id: encode_assignment(Assignment(partitions=shares[member_id])) for member_id in sorted(shares)}


def helpful_moves(group: Group, shares: Shares[str]) -> list[tuple[str, str, str]]:
    """(topic, owner, subscriber) where the owner has two more than the subscriber: what H1 forbids."""
    loads = Counter({member_id: len(pairs) for member_id, pairs in owned_pairs(shares).items()})
    return [
        (topic, owner, other)
        for (topic, _), owner in owners(shares).items()
        for other, known in group.members.items()
        if topic in known.topics and loads[owner] - loads[other] >= 2
    ]


def helpful_chains(group: Group, shares: Shares[str]) -> list[tuple[str, str]]:
    """(start, end) where a chain of members who each hand one partition on ends at one with two less: then another
    assignment would be more even. Chains of one step are the helpful moves."""
    loads = {member_id: len(pairs) for member_id, pairs in owned_pairs(shares).items()}
    reach = {
        owner: {other for other, known in group.members.items() if known.topics & shares[owner].keys()}
        for owner in shares
    }
    for _ in loads:
        reach = {owner: near.union(*(reach[other] for other in near)) for owner, near in reach.items()}
    return [(owner, end) for owner, near in reach.items() for end in near if loads[owner] - loads[end] >= 2]


def believed_claims(group: Group) -> Shares[str]:
    """Return the partitions that each member may keep: the newest generation's claim wins, and of two in it,
    neither."""
    claims: dict[tuple[str, int], list[tuple[int, str]]] = {}
    for member_id, pairs in _owned(group).items():
        for pair in pairs & _wanted(group, member_id):
            claims.setdefault(pair, []).append((group.members[member_id].generation, member_id))
    kept: dict[str, dict[str, tuple[int, ...]]] = {member_id: {} for member_id in group.members}
    for (topic, partition), claimed in sorted(claims.items()):
        newest = max(claimed)[0]
        winners = [member_id for generation, member_id in claimed if generation == newest]
        if len(winners) == 1:
            share = kept[winners[0]]
            share[topic] = (*share.get(topic, ()), partition)
    return kept


def moves(group: Group, shares: Shares[str]) -> int:
    """Count the partitions that left an owner who could have kept them."""
    after = owners(shares)
    held = _owned(group)
    return sum(after[pair] != who for who in held for pair in held[who] & _wanted(group, who))


def fewest_moves(group: Group) -> int:
    """K3: what balance costs at least with equal subscriptions. Everything above what is due to each, and the larger
    dues go to those who hold most."""
    due, larger = divmod(len(assignable(group)), len(group.members))
    held = _owned(group)
    most_first = sorted((len(held[who] & _wanted(group, who)) for who in held), reverse=True)
    return sum(max(0, size - due - (at < larger)) for at, size in enumerate(most_first))


def _owned(group: Group) -> dict[str, set[tuple[str, int]]]:
    return owned_pairs({member_id: known.owned for member_id, known in group.members.items()})


def _wanted(group: Group, member_id: str) -> set[tuple[str, int]]:
    return {pair for pair in assignable(group) if pair[0] in group.members[member_id].topics}
