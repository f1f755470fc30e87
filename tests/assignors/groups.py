"""Groups to try assignors on: small and odd ones for properties, and what happens to a group in its life."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import and_
from typing import Any, TypeAlias, TypeVar

from hypothesis import strategies as st

from coordinator_protocol.assignors.cooperative_sticky import assign_cooperative_sticky
from coordinator_protocol.assignors.range import assign_range, assign_range_by_rack
from coordinator_protocol.assignors.round_robin import assign_round_robin
from coordinator_protocol.assignors.sticky import assign_sticky
from coordinator_protocol.assignors.values import MemberSpec, Shares, TopicSpec

ValueT = TypeVar("ValueT")
Members: TypeAlias = Mapping[str, MemberSpec[str]]
Topics: TypeAlias = Mapping[str, TopicSpec]
Rule: TypeAlias = Callable[[Members, Topics], Shares[str]]

RULES: dict[str, Rule] = {
    "range": assign_range,
    "range by rack": assign_range_by_rack,
    "round robin": assign_round_robin,
    "sticky": assign_sticky,
    "cooperative sticky": assign_cooperative_sticky,
}

NAMES = [f"topic{number}" for number in range(6)]
MEMBER_IDS = [f"m{number}" for number in range(8)]
RACKS = ["a", "b", "c"]


@dataclass(frozen=True)
class Group:
    """Members and topics of one moment."""

    members: Members
    topics: Topics

    def with_owned(self, shares: Shares[str], generation: int = 1) -> Group:
        """The same group once everybody has what it was given."""
        members = {
            member_id: replace(member, owned=shares[member_id], generation=generation)
            if member_id in shares
            else member
            for member_id, member in self.members.items()
        }
        return replace(self, members=members)


def member(*topics: str, **more: Any) -> MemberSpec[str]:
    """A member that subscribes to these."""
    return replace(MemberSpec(topics=frozenset(topics)), **more)


def topics_of(**partition_counts: int) -> Topics:
    return {name: TopicSpec(count) for name, count in partition_counts.items()}


def owned_pairs(shares: Shares[str]) -> dict[str, set[tuple[str, int]]]:
    """By member id, partition by partition."""
    return {
        member_id: {(topic, partition) for topic, partitions in share.items() for partition in partitions}
        for member_id, share in shares.items()
    }


def sizes(shares: Shares[str]) -> list[int]:
    return sorted(sum(map(len, share.values())) for share in shares.values())


def owners(shares: Shares[str]) -> dict[tuple[str, int], str]:
    """Owner by partition; fails where there are two."""
    found: dict[tuple[str, int], str] = {}
    for member_id, pairs in owned_pairs(shares).items():
        for pair in pairs:
            assert found.setdefault(pair, member_id) == member_id, f"{pair} has two owners"
    return found


def assignable(group: Group) -> set[tuple[str, int]]:
    """Every partition with a subscriber."""
    wanted = frozenset().union(*(member.topics for member in group.members.values()))
    return {
        (name, partition)
        for name, topic in group.topics.items()
        if name in wanted
        for partition in range(topic.partition_count)
    }


# Strategies that draw few numbers and use every bit of them, because drawing takes most of the time.

_sets_of_names = st.integers(0, 2 ** len(NAMES) - 1)
_small_sets_of_names = st.builds(and_, _sets_of_names, _sets_of_names)
_PARTITION_COUNT_MAX = 9


def _chosen(bits: int, values: Sequence[ValueT]) -> frozenset[ValueT]:
    return frozenset(value for at, value in enumerate(values) if bits >> at & 1)


def _claims(bits: int) -> Mapping[str, tuple[int, ...]]:
    """Six bits for each topic: partitions from -1 to 4, so also some that never exist."""
    found = {name: _chosen(bits >> 6 * at, range(-1, 5)) for at, name in enumerate(NAMES)}
    return {name: tuple(sorted(partitions)) for name, partitions in found.items() if partitions}


def _racks(bits: int, partition_count: int) -> tuple[frozenset[str], ...]:
    """Three bits for each partition; the last ones are not known."""
    return tuple(_chosen(bits >> 3 * partition, RACKS) for partition in range(partition_count - bits % 2))


@st.composite
def topic_maps(draw: st.DrawFn, *, with_racks: bool = False) -> Topics:
    """Some of the topics exist, some are empty; replicas stand in any racks."""
    counts = {name: draw(st.integers(-2, _PARTITION_COUNT_MAX)) for name in NAMES}
    bits = st.integers(0, 2 ** (3 * _PARTITION_COUNT_MAX) - 1)
    return {
        name: TopicSpec(count, _racks(draw(bits), count) if with_racks else ())
        for name, count in counts.items()
        if count >= 0
    }


@st.composite
def groups(draw: st.DrawFn, *, are_equal: bool = False, with_claims: bool = True, with_racks: bool = False) -> Group:
    """Any group, also with claims that contradict each other and themselves."""
    topics = draw(topic_maps(with_racks=with_racks))
    common = draw(_sets_of_names)
    members = {}
    for number in range(draw(st.integers(1, len(MEMBER_IDS)))):
        kind = draw(st.integers(0, 31))
        members[MEMBER_IDS[number]] = MemberSpec(
            topics=_chosen(common if are_equal else draw(_small_sets_of_names), NAMES),
            instance_id=f"i{9 - number}" if kind & 1 else None,
            rack_id=[None, *RACKS][kind >> 1 & 3] if with_racks else None,
            owned=_claims(draw(st.integers(0, 2**36 - 1)) & draw(st.integers(0, 2**36 - 1))) if with_claims else {},
            generation=(kind >> 3) - 1 if with_claims else -1,
        )
    return Group(members, topics)


@st.composite
def lives(draw: st.DrawFn, *, are_equal: bool) -> list[Group]:
    """Draw the history of a group, one change after the other, without the partitions that members own."""
    group = draw(groups(are_equal=are_equal, with_claims=False))
    life = [group]
    for _ in range(draw(st.integers(1, 4))):
        members, topics = dict(group.members), dict(group.topics)
        common = next(iter(members.values())).topics
        wanted = _chosen(draw(_small_sets_of_names), NAMES)
        who, name = draw(st.sampled_from(MEMBER_IDS)), draw(st.sampled_from(NAMES))
        match draw(st.sampled_from(["join", "leave", "grow", "delete", "subscribe"])):
            case "join":
                members[who] = MemberSpec(topics=common if are_equal else wanted)
            case "leave" if members.keys() - {who}:
                members.pop(who, None)
            case "grow":
                known = topics.get(name, TopicSpec(0)).partition_count
                topics[name] = TopicSpec(known + draw(st.integers(0, 5)))
            case "delete":
                topics.pop(name, None)
            case "subscribe":
                changed = members.keys() if are_equal else members.keys() & {who}
                members.update({member_id: replace(members[member_id], topics=wanted) for member_id in changed})
        group = Group(members, topics)
        life.append(group)
    return life


def lived(life: list[Group], rule: Rule) -> list[tuple[Group, Shares[str]]]:
    """Return each moment with the rule's assignment, each starting from the assignment of the moment before."""
    told: list[tuple[Group, Shares[str]]] = []
    shares: Shares[str] = {}
    for generation, moment in enumerate(life):
        group = moment.with_owned(shares, generation)
        shares = rule(group.members, group.topics)
        told.append((group, shares))
    return told
