"""Sticky: balanced as well as can be, and nothing moves that need not, whatever becomes of the group."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings

from coordinator_protocol.assignors.sticky import assign_sticky
from coordinator_protocol.assignors.values import TopicSpec
from tests.assignors.groups import Group, assignable, groups, lived, lives, member, sizes, topics_of
from tests.assignors.oracles import believed_claims, fewest_moves, helpful_chains, moves

few = settings(max_examples=80, deadline=None)


@few
@given(lives(are_equal=True))
def test_equal_subscriptions_are_balanced_and_move_the_least(life: list[Group]) -> None:
    """K1, K2 and K3, through a group's life. For K4: case C-278."""
    for group, shares in lived(life, assign_sticky):
        due, larger = divmod(len(assignable(group)), len(group.members))
        assert sizes(shares) == [due] * (len(group.members) - larger) + [due + 1] * larger
        assert moves(group, shares) == fewest_moves(group)


@few
@given(groups(are_equal=True, with_racks=True))
def test_contradicting_claims_and_racks_cost_neither_balance_nor_a_move(group: Group) -> None:
    """K1 and K3; for the moves those claims count that are believed."""
    shares = assign_sticky(group.members, group.topics)
    assert sizes(shares)[-1] - sizes(shares)[0] <= 1
    believed = group.with_owned(believed_claims(group))
    assert moves(believed, shares) == fewest_moves(believed)


@few
@given(groups(with_racks=True))
def test_contradicting_claims_and_racks_cost_no_balance_with_unequal_subscriptions(group: Group) -> None:
    """More than H1, which is one chain long. Through a group's life: case C-279."""
    assert helpful_chains(group, assign_sticky(group.members, group.topics)) == []


@few
@given(lives(are_equal=False))
def test_a_run_on_the_result_changes_nothing(life: list[Group]) -> None:
    """H2, and not even an object is new."""
    for group, shares in lived(life, assign_sticky):
        again = assign_sticky(group.with_owned(shares).members, group.topics)
        assert all(again[member_id] is shares[member_id] for member_id in shares)


# By hand


def test_two_claims_of_the_same_generation_are_both_void() -> None:
    members = {
        "a": member("t", owned={"t": (0, 1)}, generation=4),
        "b": member("t", owned={"t": (1, 2)}, generation=4),
        "c": member("t", owned={"t": (3,)}, generation=4),
    }
    shares = assign_sticky(members, topics_of(t=6))
    assert {0} < {*shares["a"]["t"]}
    assert {2} < {*shares["b"]["t"]}
    assert {3} < {*shares["c"]["t"]}
    assert sizes(shares) == [2, 2, 2]


def test_the_older_of_two_claims_counts_for_nothing_even_if_the_newer_ones_cancel_each_other() -> None:
    members = {
        "a": member("t", owned={"t": (0,)}, generation=2),
        "b": member("t", owned={"t": (0,)}, generation=2),
        "c": member("t", owned={"t": (0, 1, 2)}, generation=1),
    }
    shares = assign_sticky(members, topics_of(t=3))
    assert shares == {"a": {"t": (0,)}, "b": {"t": (2,)}, "c": {"t": (1,)}}


def test_a_share_is_not_copied_where_nothing_changes() -> None:
    before = {"a": {"s": (0, 1), "t": (0,)}, "b": {"s": (2,), "t": (1, 2)}}
    members = {name: member("s", "t", owned=share) for name, share in before.items()}
    kept = assign_sticky(members, topics_of(s=3, t=3))
    assert all(kept[name] is before[name] for name in before)
    grown = assign_sticky(members, topics_of(s=4, t=3))
    assert grown["a"] == {"s": (0, 1, 3), "t": (0,)}
    assert grown["b"] is before["b"]


def test_an_assignor_changes_nothing_that_it_was_given() -> None:
    owned = {"t": (0, 1, 2, 3)}
    members = {"a": member("t", owned=owned), "b": member("t")}
    assign_sticky(members, topics_of(t=5))
    assert members["a"].owned is owned
    assert owned == {"t": (0, 1, 2, 3)}


@pytest.mark.parametrize("subscribers_of_more", [frozenset({"a", "b"}), frozenset({"a"})], ids=["equal", "unequal"])
def test_new_partitions_start_where_their_replicas_are(subscribers_of_more: frozenset[str]) -> None:
    members = {
        name: member("t", *(["more"] if name in subscribers_of_more else []), rack_id=name) for name in ("a", "b")
    }
    racks = tuple(frozenset(rack) for rack in "baab")
    shares = assign_sticky(members, {"t": TopicSpec(4, racks), "more": TopicSpec(0)})
    assert shares == {"a": {"t": (1, 2)}, "b": {"t": (0, 3)}}


def test_a_member_that_must_give_up_gives_up_what_is_far() -> None:
    racks = tuple(frozenset(rack) for rack in "bba")
    members = {"a": member("t", rack_id="a", owned={"t": (0, 1, 2)}), "b": member("t", rack_id="b")}
    shares = assign_sticky(members, {"t": TopicSpec(3, racks)})
    assert shares == {"a": {"t": (0, 2)}, "b": {"t": (1,)}}


def test_nothing_moves_to_be_nearer() -> None:
    racks = tuple(frozenset(rack) for rack in "ab")
    members = {
        "a": member("t", rack_id="a", owned={"t": (1,)}),
        "b": member("t", rack_id="b", owned={"t": (0,)}),
    }
    assert assign_sticky(members, {"t": TopicSpec(2, racks)}) == {"a": {"t": (1,)}, "b": {"t": (0,)}}


def test_of_several_that_have_least_the_first_in_turn_gets_the_next() -> None:
    members = {"a": member("t"), "b": member("s", "t", owned={"s": (0,)})}
    assert assign_sticky(members, topics_of(s=1, t=4)) == {"a": {"t": (0, 1, 3)}, "b": {"s": (0,), "t": (2,)}}


def test_where_no_single_move_helps_a_chain_does() -> None:
    members = {
        "a": member("s", owned={"s": (0, 1, 2, 3, 4, 5)}),
        "b": member("s", "t", owned={"t": (0, 1, 2, 3, 4)}),
        "c": member("t", "u", owned={"u": (0, 1, 2, 3)}),
    }
    shares = assign_sticky(members, topics_of(s=6, t=5, u=4))
    assert shares == {
        "a": {"s": (0, 1, 2, 3, 4)},
        "b": {"s": (5,), "t": (0, 1, 2, 3)},
        "c": {"t": (4,), "u": (0, 1, 2, 3)},
    }


def test_several_chains_may_start_at_one_member() -> None:
    members = {
        "a": member("s", owned={"s": (0, 1, 2, 3, 4)}),
        "b": member("s", "t", owned={"t": (0, 1, 2, 3)}),
        "c": member("t", "u", owned={"u": (0, 1, 2)}),
        "d": member("s", "v", owned={"v": (0, 1, 2, 3)}),
        "e": member("v"),
    }
    assert sizes(assign_sticky(members, topics_of(s=5, t=4, u=3, v=4))) == [3, 3, 3, 3, 4]


def test_a_long_chain_of_overlapping_subscriptions_becomes_even() -> None:
    """Each shares one topic with the next; everything starts at one end, and must be handed on from one to the next."""
    names = [f"m{number:02}" for number in range(12)]
    topics = {f"t{at:02}": TopicSpec(8) for at in range(len(names) - 1)}
    members = {
        name: member(*(topic for topic in (f"t{at - 1:02}", f"t{at:02}") if topic in topics))
        for at, name in enumerate(names)
    }
    owned = {f"t{at:02}": tuple(range(8)) for at in range(len(names) - 1)}
    for at, name in enumerate(names[:-1]):
        members[name] = replace(members[name], owned={f"t{at:02}": owned[f"t{at:02}"]})
    group = Group(members, topics)
    assert helpful_chains(group, assign_sticky(members, topics)) == []
