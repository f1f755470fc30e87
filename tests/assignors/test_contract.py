"""The contract of every assignor: P1 to P6 of the specification (spec groups 5.1), and the order of turns.

P5 between processes is case C-281.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator_protocol.assignors.audiences import in_order
from tests.assignors.groups import RULES, Group, Members, Rule, Topics, ValueT, groups, member, topics_of
from tests.assignors.oracles import as_bytes, is_valid

every_rule = pytest.mark.parametrize("rule", RULES.values(), ids=RULES.keys())
few = settings(max_examples=100, deadline=None)


@few
@given(groups(with_racks=True))
def test_every_wanted_partition_has_one_owner_who_wants_it(group: Group) -> None:
    """P1 to P4, and P6: no group is too odd."""
    for name, rule in RULES.items():
        shares = rule(group.members, group.topics)
        if name == "cooperative sticky":
            # It holds back what is still owned: a round later everything is there.
            shares = rule(group.with_owned(shares).members, group.topics)
        assert is_valid(group, shares), name
        assert all(partitions == tuple(sorted(partitions)) != () for s in shares.values() for partitions in s.values())


@few
@given(groups(with_racks=True), st.integers(0, 2**30))
def test_the_order_of_the_input_does_not_matter(group: Group, seed: int) -> None:
    """P5, within a process."""
    mixed = Group(shuffled(group.members, seed), shuffled(group.topics, seed))
    for name, rule in RULES.items():
        assert as_bytes(rule(group.members, group.topics)) == as_bytes(rule(mixed.members, mixed.topics)), name


def shuffled(mapping: Mapping[str, ValueT], seed: int) -> dict[str, ValueT]:
    return dict(random.Random(seed).sample([*mapping.items()], len(mapping)))


@every_rule
@pytest.mark.parametrize(
    ("members", "topics"),
    [
        ({}, {}),
        ({}, topics_of(t=3)),
        ({"m": member()}, topics_of(t=3)),
        ({"m": member("t")}, {}),
        ({"m": member("t")}, topics_of(t=0)),
        ({"m": member("t", owned={"t": (0,), "gone": (1,)})}, {}),
    ],
    ids=["an empty group", "no members", "no subscription", "no topic", "no partition", "deleted topic"],
)
def test_where_there_is_nothing_to_assign_everybody_gets_nothing(rule: Rule, members: Members, topics: Topics) -> None:
    assert rule(members, topics) == {member_id: {} for member_id in members}


def test_static_members_take_their_turns_first_by_instance_id() -> None:
    members = {
        "a": member("t"),
        "b": member("t", instance_id="2"),
        "c": member("t", instance_id="1"),
        "A": member("t"),
    }
    assert in_order(members) == ["c", "b", "A", "a"]


@every_rule
def test_static_members_keep_their_share_under_new_member_ids(rule: Rule) -> None:
    topics = topics_of(s=5, t=7)
    shares = []
    for ids in ("abcd", "dbca"):
        members = {member_id: member("s", "t", instance_id=f"i{turn}") for turn, member_id in enumerate(ids)}
        found = rule(members, topics)
        shares.append([found[member_id] for member_id in ids])
    assert shares[0] == shares[1]
