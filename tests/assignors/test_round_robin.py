"""Round robin against its definition: one row of partitions, one pointer around the group."""

from __future__ import annotations

from itertools import cycle

from hypothesis import given, settings

from coordinator_protocol.assignors.audiences import in_order
from coordinator_protocol.assignors.round_robin import assign_round_robin
from tests.assignors.groups import Group, assignable, groups, owned_pairs, sizes

few = settings(max_examples=100, deadline=None)


@few
@given(groups())
def test_the_pointer_passes_over_those_who_do_not_subscribe(group: Group) -> None:
    assert owned_pairs(assign_round_robin(group.members, group.topics)) == one_by_one(group)


@few
@given(groups(are_equal=True))
def test_with_equal_subscriptions_sizes_differ_by_one(group: Group) -> None:
    """RR1."""
    found = sizes(assign_round_robin(group.members, group.topics))
    assert found[-1] - found[0] <= 1


def one_by_one(group: Group) -> dict[str, set[tuple[str, int]]]:
    found: dict[str, set[tuple[str, int]]] = {member_id: set() for member_id in group.members}
    pointer = cycle(in_order(group.members))
    for topic, partition in sorted(assignable(group)):
        taker = next(member_id for member_id in pointer if topic in group.members[member_id].topics)
        found[taker].add((topic, partition))
    return found
