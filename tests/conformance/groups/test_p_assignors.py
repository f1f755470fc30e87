"""P. Assignors. More properties of each, by module: tests/assignors."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings

from coordinator_protocol.assignors.cooperative_sticky import assign_cooperative_sticky
from coordinator_protocol.assignors.range import assign_range
from coordinator_protocol.assignors.round_robin import assign_round_robin
from coordinator_protocol.assignors.sticky import assign_sticky
from coordinator_protocol.assignors.values import MemberSpec, Shares, TopicSpec
from group_coordinator.assignors import RANGE, SERVER_ASSIGNORS, UNIFORM, ServerAssignor
from tests.assignors.groups import Group, Rule, groups, lived, lives, member, owned_pairs, sizes, topics_of
from tests.assignors.oracles import helpful_moves, is_valid
from tests.conformance.groups.cases import case

ROUNDS_MAX = 3
T1, T2, T3 = b"\x01" * 16, b"\x02" * 16, b"\x03" * 16
few = settings(max_examples=80, deadline=None)

Owned = Mapping[bytes, tuple[int, ...]]


def static_group(*member_ids: str) -> dict[str, MemberSpec[str]]:
    """Members of t1 and t2 with the instance ids i1, i2, ..."""
    return {member_id: member("t1", "t2", instance_id=f"i{turn}") for turn, member_id in enumerate(member_ids, start=1)}


def by_instance(rule: Rule, *member_ids: str) -> list[dict[str, tuple[int, ...]]]:
    """Shares of the static group in the order of instance ids; topics of five partitions."""
    shares = rule(static_group(*member_ids), topics_of(t1=5, t2=5))
    return [dict(shares[member_id]) for member_id in member_ids]


def on_server(
    assignor: ServerAssignor, members: Mapping[str, Owned], **partition_counts: int
) -> Mapping[str, Mapping[bytes, tuple[int, ...]]]:
    """Run the server's assignor for members that all subscribe to all topics, with these previous targets."""
    topics = dict(zip((T1, T2, T3), map(TopicSpec, partition_counts.values()), strict=False))
    subscription = frozenset(topics)
    specs = {name: MemberSpec(topics=subscription, owned=target) for name, target in members.items()}
    return assignor(specs, topics)


def moves(before: Mapping[str, Owned], after: Shares[bytes]) -> dict[str, int]:
    """Count the partitions that each gave up."""
    return {
        name: sum(len({*partitions} - {*after[name].get(topic, ())}) for topic, partitions in target.items())
        for name, target in before.items()
    }


@case(254)
def test_range_cuts_two_topics_alike() -> None:
    shares = assign_range({"c1": member("t1", "t2"), "c2": member("t1", "t2")}, topics_of(t1=3, t2=3))
    assert shares == {"c1": {"t1": (0, 1), "t2": (0, 1)}, "c2": {"t1": (2,), "t2": (2,)}}


@case(255)
def test_range_with_mixed_subscriptions() -> None:
    members = {"c1": member("t1"), "c2": member("t1", "t2"), "c3": member("t1")}
    shares = assign_range(members, topics_of(t1=3, t2=2))
    assert shares == {"c1": {"t1": (0,)}, "c2": {"t1": (1,), "t2": (0, 1)}, "c3": {"t1": (2,)}}


@case(257)
def test_range_follows_instance_ids() -> None:
    expected = [{"t1": piece, "t2": piece} for piece in ((0, 1), (2, 3), (4,))]
    assert by_instance(assign_range, "a", "b", "c") == expected
    assert by_instance(assign_range, "z", "x", "y") == expected


@case(258)
def test_the_servers_range_with_more_members_than_partitions() -> None:
    shares = on_server(SERVER_ASSIGNORS[RANGE], {"A": {}, "B": {}, "C": {}}, t1=3, t3=2)
    assert shares == {"A": {T1: (0,), T2: (0,)}, "B": {T1: (1,), T2: (1,)}, "C": {T1: (2,)}}


@case(259)
def test_the_servers_range_cuts_anew_when_a_member_joins() -> None:
    before: dict[str, Owned] = {"A": {T1: (0, 1), T2: (0, 1)}, "B": {T1: (2,), T2: (2,)}, "C": {}}
    shares = on_server(SERVER_ASSIGNORS[RANGE], before, t1=3, t2=3)
    assert shares == {name: {T1: (at,), T2: (at,)} for at, name in enumerate("ABC")}


@case(261)
def test_round_robin_with_mixed_subscriptions() -> None:
    members = {"c1": member("t1"), "c2": member("t1", "t2"), "c3": member("t1")}
    shares = assign_round_robin(members, topics_of(t1=3, t2=2))
    assert shares == {"c1": {"t1": (0,)}, "c2": {"t1": (1,), "t2": (0, 1)}, "c3": {"t1": (2,)}}


@case(262)
def test_round_robin_follows_instance_ids() -> None:
    expected = [{"t1": (0, 3), "t2": (1, 4)}, {"t1": (1, 4), "t2": (2,)}, {"t1": (2,), "t2": (0, 3)}]
    assert by_instance(assign_round_robin, "a", "b", "c") == expected
    assert by_instance(assign_round_robin, "z", "x", "y") == expected


@case(263)
def test_where_round_robin_is_poor_sticky_is_even() -> None:
    names = [f"topic{number}" for number in range(1, 6)]
    topics = {name: TopicSpec(count) for name, count in zip(names, (2, 1, 2, 1, 2), strict=True)}
    members = {name: member(*(names if name in ("c1", "c4") else names[::2])) for name in ("c1", "c2", "c3", "c4")}
    dealt = assign_round_robin(members, topics)
    assert [sum(map(len, dealt[name].values())) for name in sorted(members)] == [3, 3, 0, 2]
    assert sizes(assign_sticky(members, topics)) == [2, 2, 2, 2]


@case(265)
def test_one_partition_moves_to_a_newcomer_and_no_more() -> None:
    members = {
        "c1": member("t1", "t2", owned={"t1": (0,), "t2": (0,)}),
        "c2": member("t1", "t2", owned={"t1": (1,), "t2": (1,)}),
        "c3": member("t1", "t2"),
    }
    shares = assign_sticky(members, topics_of(t1=2, t2=2))
    assert sizes(shares) == [1, 1, 2]
    assert len(owned_pairs(shares)["c3"]) == 1


@case(266)
def test_nothing_moves_where_everybody_has_too_little() -> None:
    members = {
        "c1": member("t1", "t2", owned={"t1": (0,)}),
        "c2": member("t1", "t2", owned={"t1": (1,)}),
        "c3": member("t1", "t2"),
    }
    shares = assign_sticky(members, topics_of(t1=2, t2=3))
    assert ("t1", 0) in owned_pairs(shares)["c1"]
    assert ("t1", 1) in owned_pairs(shares)["c2"]
    assert sizes(shares) == [1, 2, 2]


@case(267)
def test_who_has_the_larger_due_keeps_it() -> None:
    members = {"c1": member("t", owned={"t": (0, 1)}), "c2": member("t", owned={"t": (2,)}), "c3": member("t")}
    assert assign_sticky(members, topics_of(t=4)) == {"c1": {"t": (0, 1)}, "c2": {"t": (2,)}, "c3": {"t": (3,)}}


@case(269)
@pytest.mark.parametrize("stale", [9, -1], ids=["older", "none"])
def test_a_stale_generation_owns_nothing(stale: int) -> None:
    claims = {"t": (0, 2), "t2": (1,)}
    members = {
        "c1": member("t", "t2", owned=claims, generation=10),
        "c2": member("t", "t2", owned=claims, generation=stale),
    }
    shares = assign_sticky(members, topics_of(t=3, t2=3))
    assert shares == {"c1": claims, "c2": {"t": (1,), "t2": (0, 2)}}


@case(270)
def test_a_contested_partition_stays_with_the_newest_generation() -> None:
    members = {
        "c1": member("t1", "t2", "t3", owned={"t1": (0,), "t2": (0,), "t3": (0,)}, generation=10),
        "c2": member("t1", "t2", "t3", owned={"t1": (1,), "t2": (1,), "t3": (1,)}, generation=9),
        "c3": member("t1", "t2", "t3", owned={"t2": (1,), "t3": (0, 2)}, generation=8),
    }
    shares = assign_sticky(members, topics_of(t1=3, t2=3, t3=3))
    assert sizes(shares) == [3, 3, 3]
    assert shares["c1"] == members["c1"].owned
    assert shares["c2"] == members["c2"].owned
    assert ("t3", 2) in owned_pairs(shares)["c3"]


@case(271)
def test_claims_of_an_older_generation_lose_to_those_of_a_newer_one() -> None:
    members = {
        "c1": member("t1", "t2", "t3", owned={"t1": (0, 1, 2), "t2": (0, 3), "t3": (1,)}, generation=1),
        "c2": member("t1", "t2", "t3", owned={"t1": (0, 1), "t2": (0,), "t3": (0, 2)}, generation=2),
        "c3": member("t1", "t2", "t3", owned={"t1": (2,), "t2": (1, 2), "t3": (1, 3)}, generation=2),
    }
    shares = assign_sticky(members, topics_of(t1=4, t2=4, t3=4))
    assert sizes(shares) == [4, 4, 4]
    had = owned_pairs({name: known.owned for name, known in members.items()})
    got = owned_pairs(shares)
    assert got["c2"] < had["c2"]
    assert got["c3"] < had["c3"]


@case(273)
def test_a_deleted_topic_is_forgotten() -> None:
    kept = {"c1": member("gone", "t", owned={"gone": (0, 1), "t": (0,)}), "c2": member("gone", "t")}
    shares = assign_sticky(kept, topics_of(t=3))
    assert sizes(shares) == [1, 2]
    assert all("gone" not in share for share in shares.values())
    only = {"c1": member("gone", owned={"gone": (0, 1)}), "c2": member("gone")}
    assert assign_sticky(only, {}) == {"c1": {}, "c2": {}}


@case(274)
def test_cooperative_hands_over_in_two_rounds() -> None:
    topics = topics_of(t=3)
    first = assign_cooperative_sticky({"c1": member("t", owned={"t": (0, 1, 2)}), "c2": member("t")}, topics)
    assert first == {"c1": {"t": (0, 1)}, "c2": {}}
    second = assign_cooperative_sticky({name: member("t", owned=share) for name, share in first.items()}, topics)
    assert second == {"c1": {"t": (0, 1)}, "c2": {"t": (2,)}}


@case(275)
@few
@given(lives(are_equal=False))
def test_cooperative_rounds_are_safe_and_end(life: list[Group]) -> None:
    """X1 and X2; the changes of a group's life come when the rebalance before is over."""
    owned: Shares[str] = {}
    for moment in life:
        group = moment.with_owned(owned)
        wanted = assign_sticky(group.members, group.topics)
        for _ in range(ROUNDS_MAX):
            shares = assign_cooperative_sticky(group.members, group.topics)
            held = owned_pairs({name: known.owned for name, known in group.members.items()})
            for name, pairs in owned_pairs(shares).items():
                assert not any(pairs & held[other] for other in held if other != name), "handed over while owned"
            group = group.with_owned(shares)
        owned = {name: known.owned for name, known in group.members.items()}
        assert is_valid(group, owned)
        assert sizes(owned) == sizes(wanted)


@case(277)
def test_uniform_moves_one_partition_to_be_even_and_two_for_a_newcomer() -> None:
    uniform = SERVER_ASSIGNORS[UNIFORM]
    before: dict[str, Owned] = {"A": {T1: (0, 1), T2: (0, 1)}, "B": {T1: (2,), T2: (2,)}}
    even = on_server(uniform, before, t1=3, t2=3)
    assert moves(before, even) == {"A": 1, "B": 0}
    grown = on_server(uniform, {**even, "C": {}}, t1=3, t2=3)
    assert moves(even, grown) == {"A": 1, "B": 1}
    assert [sum(map(len, grown[name].values())) for name in "ABC"] == [2, 2, 2]


@case(278)
@few
@given(groups(are_equal=True, with_racks=True))
def test_a_second_run_with_equal_subscriptions_changes_nothing(group: Group) -> None:
    """K4. Not even an object is new."""
    shares = SERVER_ASSIGNORS[UNIFORM](group.members, group.topics)
    again = SERVER_ASSIGNORS[UNIFORM](group.with_owned(shares).members, group.topics)
    assert all(again[member_id] is shares[member_id] for member_id in shares)


@case(279)
@few
@given(lives(are_equal=False))
def test_no_move_helps_where_subscriptions_differ(life: list[Group]) -> None:
    """H1, through a group's life."""
    for group, shares in lived(life, assign_sticky):
        assert is_valid(group, shares)
        assert helpful_moves(group, shares) == []


PROCESS = """
import random, sys
from tests.assignors.groups import NAMES, RACKS, RULES, MemberSpec, TopicSpec
from tests.assignors.oracles import as_bytes

draw = random.Random(7)
for _ in range(30):
    topics = {
        name: TopicSpec(draw.randrange(20), tuple(frozenset(draw.sample(RACKS, 2)) for _ in range(9)))
        for name in draw.sample(NAMES, 5)
    }
    members = {
        f"m{number}": MemberSpec(
            topics=frozenset(draw.sample(NAMES, 4)),
            rack_id=draw.choice(RACKS),
            owned={name: tuple(sorted(draw.sample(range(20), 3))) for name in draw.sample(NAMES, 2)},
            generation=draw.randrange(3),
        )
        for number in range(9)
    }
    members = dict(random.sample([*members.items()], len(members)))
    for rule in RULES.values():
        sys.stdout.write(repr(as_bytes(rule(members, topics))))
"""


@case(281)
@pytest.mark.slow
def test_three_processes_with_different_hash_seeds_agree_on_every_byte() -> None:
    root = Path(__file__).parents[3]
    told = {
        subprocess.run(
            [sys.executable, "-c", PROCESS],
            cwd=root,
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": f"{root}{os.pathsep}{root / 'proto'}"},
            check=True,
            capture_output=True,
        ).stdout
        for seed in ("0", "1", "4711")
    }
    assert len(told) == 1
    assert told != {b""}
