"""Cooperative sticky: no member reads what another still owns. How rounds end: case C-275."""

from __future__ import annotations

from hypothesis import given, settings

from coordinator_protocol.assignors.cooperative_sticky import assign_cooperative_sticky, handed_over_too_early
from coordinator_protocol.assignors.sticky import assign_sticky
from tests.assignors.groups import Group, groups, member, owned_pairs, topics_of
from tests.assignors.oracles import believed_claims

few = settings(max_examples=80, deadline=None)


@few
@given(groups(with_racks=True))
def test_only_a_believed_claimant_gets_what_is_claimed(group: Group) -> None:
    """X1 where claims contradict each other, and nothing else is held back."""
    believed = owned_pairs(believed_claims(group))
    claimed = set().union(*owned_pairs({name: known.owned for name, known in group.members.items()}).values())
    wanted = owned_pairs(assign_sticky(group.members, group.topics))
    shares = assign_cooperative_sticky(group.members, group.topics)
    for name, pairs in owned_pairs(shares).items():
        assert pairs == (wanted[name] & believed[name]) | (wanted[name] - claimed)
    assert handed_over_too_early(group.with_owned(believed_claims(group)).members, shares) == []


def test_what_was_never_owned_is_handed_out_at_once() -> None:
    members = {"a": member("t", owned={"t": (0, 1, 2)}), "b": member("t")}
    assert assign_cooperative_sticky(members, topics_of(t=4)) == {"a": {"t": (0, 1)}, "b": {"t": (3,)}}


def test_what_two_claim_is_given_up_by_both_before_anybody_gets_it() -> None:
    members = {"a": member("t", owned={"t": (0,)}, generation=1), "b": member("t", owned={"t": (0,)}, generation=1)}
    assert assign_cooperative_sticky(members, topics_of(t=1)) == {"a": {}, "b": {}}


def test_a_foreign_plan_that_hands_over_at_once_is_found_out() -> None:
    members = {"a": member("t", owned={"t": (0, 1)}), "b": member("t", owned={"t": (2,)})}
    assert handed_over_too_early(members, {"a": {"t": (0, 2)}, "b": {"t": (1, 3)}}) == [("t", 1), ("t", 2)]
    assert handed_over_too_early(members, {"a": {"t": (0,)}, "b": {"t": (2, 3)}}) == []
