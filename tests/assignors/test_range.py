"""Range: neighbouring pieces, alike for topics that can be joined, and near to replicas where racks are known."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from coordinator_protocol.assignors.range import assign_range, assign_range_by_rack
from coordinator_protocol.assignors.values import MemberSpec, TopicSpec
from tests.assignors.groups import Group, groups, member, topics_of

few = settings(max_examples=80, deadline=None)


def turn(group: Group, member_id: str) -> tuple[bool, str, str]:
    """Static members first by instance id, then the others by member id: the definition, in one line."""
    instance_id = group.members[member_id].instance_id
    return instance_id is None, instance_id or "", member_id


@few
@given(groups())
def test_pieces_are_neighbours_in_the_order_of_turns_and_differ_by_one(group: Group) -> None:
    """R1, R2 and R4: the definition itself, without any hurry."""
    shares = assign_range(group.members, group.topics)
    for name, topic in group.topics.items():
        takers = sorted((m for m in group.members if name in group.members[m].topics), key=lambda m: turn(group, m))
        start = 0
        for at, taker in enumerate(takers):
            size = topic.partition_count // len(takers) + (at < topic.partition_count % len(takers))
            assert shares[taker].get(name, ()) == tuple(range(start, start + size))
            start += size


@few
@given(groups(with_racks=True))
def test_with_racks_pieces_are_as_large_and_joinable_topics_are_cut_alike(group: Group) -> None:
    """R2 and R3 hold with racks too."""
    shares = assign_range_by_rack(group.members, group.topics)
    takers = {name: {m for m in group.members if name in group.members[m].topics} for name in group.topics}
    for name, topic in group.topics.items():
        pieces = [len(shares[taker].get(name, ())) for taker in takers[name]]
        assert not pieces or max(pieces) - min(pieces) <= 1
        for other in group.topics:
            if takers[name] == takers[other] and group.topics[other].partition_count == topic.partition_count:
                assert all(shares[taker].get(name) == shares[taker].get(other) for taker in takers[name])


def placed(*racks: str) -> TopicSpec:
    """A topic whose partitions have replicas in these racks."""
    return TopicSpec(len(racks), tuple(frozenset(one) for one in racks))


def in_racks(*racks: str | None, topics: str = "t") -> dict[str, MemberSpec[str]]:
    return {f"m{number}": member(*topics, rack_id=rack) for number, rack in enumerate(racks)}


def test_a_partition_goes_where_its_replica_is() -> None:
    assert assign_range_by_rack(in_racks("a", "b", "c"), {"t": placed("c", "a", "b")}) == {
        "m0": {"t": (1,)},
        "m1": {"t": (2,)},
        "m2": {"t": (0,)},
    }


@pytest.mark.parametrize(
    ("members", "topics"),
    [
        (in_racks(None, None), {"t": placed("a", "b")}),
        (in_racks("b", None), {"t": placed("", "")}),
        (in_racks("c", None), {"t": placed("a", "b")}),
        (in_racks("c", "a"), {"t": placed("ab", "ab")}),
    ],
    ids=["no member in a rack", "no known replicas", "racks without replicas", "replicas in every rack"],
)
def test_racks_that_make_no_difference_change_nothing(
    members: dict[str, MemberSpec[str]], topics: dict[str, TopicSpec]
) -> None:
    assert assign_range_by_rack(members, topics) == {"m0": {"t": (0,)}, "m1": {"t": (1,)}}


def test_no_member_gets_more_for_being_near() -> None:
    shares = assign_range_by_rack(in_racks("a", "b"), {"t": placed("a", "a", "a", "a", "b")})
    assert shares == {"m0": {"t": (0, 1, 2)}, "m1": {"t": (3, 4)}}


def test_a_member_without_a_rack_is_near_to_everything() -> None:
    shares = assign_range_by_rack(in_racks(None, "b"), {"t": placed("b", "b", "a", "a")})
    assert shares == {"m0": {"t": (0, 1)}, "m1": {"t": (2, 3)}}


def test_topics_that_can_be_joined_stay_together_even_where_one_of_them_would_be_nearer_elsewhere() -> None:
    topics = {"s": placed("b", "a"), "t": placed("a", "a")}
    shares = assign_range_by_rack(in_racks("a", "b", topics="st"), topics)
    assert shares == {"m0": {"s": (1,), "t": (1,)}, "m1": {"s": (0,), "t": (0,)}}


def test_the_first_members_carry_the_extra_of_every_topic() -> None:
    """Not a promise but a warning (spec groups 5.2)."""
    topics = topics_of(s=1, t=1, u=1)
    shares = assign_range({name: member("s", "t", "u") for name in ("m0", "m1")}, topics)
    assert shares == {"m0": {"s": (0,), "t": (0,), "u": (0,)}, "m1": {}}
