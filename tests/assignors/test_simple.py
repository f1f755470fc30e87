"""Simple: everything to everybody, and in large groups balanced, with as few moves as possible."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator_protocol.assignors import simple
from coordinator_protocol.assignors.simple import PAIRS_MAX, assign_simple
from coordinator_protocol.assignors.values import MemberSpec, Shares
from tests.assignors.groups import member, owned_pairs

Members = dict[str, MemberSpec[str]]
Partitions = Mapping[str, tuple[int, ...]]

many = settings(max_examples=150, deadline=None)
partitions_of = st.dictionaries(
    st.sampled_from(["t", "u", "v"]), st.sets(st.integers(0, 9), min_size=1).map(lambda found: tuple(sorted(found)))
)
subscriptions = st.sets(st.sampled_from(["t", "u", "v", "gone"]), min_size=1).map(frozenset)
groups = st.dictionaries(
    st.integers(0, 30).map(lambda number: f"m{number:02}"), subscriptions.map(lambda found: member(*found)), min_size=1
)


@pytest.fixture(autouse=True)
def _every_group_is_large(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "plain" not in request.node.name:
        monkeypatch.setattr(simple, "PAIRS_MAX", 0)


def with_owned(members: Members, shares: Shares[str]) -> Members:
    return {
        member_id: replace(each, owned=shares[member_id]) if member_id in shares else each
        for member_id, each in members.items()
    }


def equal(count: int) -> Members:
    subscription = frozenset({"t", "u"})
    return {f"m{number:03}": MemberSpec(topics=subscription) for number in range(count)}


def counts(shares: Shares[str]) -> tuple[list[int], list[int]]:
    """Number of partitions of each member, and of members of each partition, ascending."""
    pairs = owned_pairs(shares)
    return sorted(map(len, pairs.values())), sorted(Counter(pair for mine in pairs.values() for pair in mine).values())


def spread(numbers: list[int]) -> int:
    return numbers[-1] - numbers[0]


def life(sizes: list[tuple[int, int]]) -> Iterator[tuple[Members, Partitions, Shares[str]]]:
    """A group whose members and partitions change; members with the least names go first."""
    shares: Shares[str] = {}
    born = 0
    alive: list[str] = []
    for members, partitions in sizes:
        while len(alive) < members:
            alive.append(f"m{born:03}")
            born += 1
        alive = alive[len(alive) - members :]
        group = {member_id: member("t", "u") for member_id in alive}
        numbers = {"t": tuple(range(partitions)), "u": tuple(range(0, 2 * partitions, 2))}
        group = with_owned(group, shares)
        shares = assign_simple(group, numbers)
        yield group, numbers, shares


@many
@given(groups, partitions_of)
def test_every_partition_has_a_subscriber_and_every_subscriber_a_partition(
    members: Members, partitions: Partitions
) -> None:
    shares = assign_simple(members, partitions)
    pairs = owned_pairs(shares)
    subscribed = {topic for each in members.values() for topic in each.topics}
    for topic, numbers in partitions.items():
        if topic in subscribed:
            assert {(topic, number) for number in numbers} <= set().union(*pairs.values())
    for member_id, each in members.items():
        assert {topic for topic, _number in pairs[member_id]} <= each.topics
        assert bool(pairs[member_id]) == bool(each.topics & partitions.keys())


@many
@given(st.lists(st.tuples(st.integers(1, 12), st.integers(1, 6)), min_size=1, max_size=6))
def test_members_and_partitions_are_balanced_through_the_life_of_a_group(sizes: list[tuple[int, int]]) -> None:
    for members, partitions, shares in life(sizes):
        of_members, of_partitions = counts(shares)
        count = sum(map(len, partitions.values()))
        assert spread(of_members) <= 1
        assert spread(of_partitions) <= 1
        assert of_members[0] >= 1
        assert len(of_partitions) == count
        if len(members) >= count:
            assert of_members[-1] == 1
        else:
            assert of_partitions[-1] == 1


@many
@given(st.lists(st.tuples(st.integers(1, 12), st.integers(1, 6)), min_size=1, max_size=6))
def test_a_run_on_the_result_changes_nothing(sizes: list[tuple[int, int]]) -> None:
    for members, partitions, shares in life(sizes):
        again = assign_simple(with_owned(members, shares), partitions)
        assert all(again[member_id] is shares[member_id] for member_id in shares)


@many
@given(groups, partitions_of, st.randoms(use_true_random=False))
def test_the_order_of_the_mappings_means_nothing(members: Members, partitions: Partitions, random: Random) -> None:
    def shuffled(mapping: Mapping[str, object]) -> dict[str, object]:
        items = list(mapping.items())
        random.shuffle(items)
        return dict(items)

    assert assign_simple(members, partitions) == assign_simple(shuffled(members), shuffled(partitions))  # type: ignore[arg-type]


@many
@given(st.integers(2, 40), st.integers(1, 8))
def test_one_that_joins_or_leaves_moves_no_more_than_the_balance_needs(count: int, partitions: int) -> None:
    numbers = {"t": tuple(range(partitions))}
    members = {member_id: replace(each, topics=frozenset({"t"})) for member_id, each in equal(count).items()}
    shares = assign_simple(members, numbers)
    joined = with_owned(members, shares) | {"new": member("t")}
    left = {member_id: each for member_id, each in with_owned(members, shares).items() if member_id != "m000"}
    for after in (joined, left):
        kept = owned_pairs(assign_simple(after, numbers))
        before = owned_pairs(shares)
        lost = sum(len(before[member_id] - kept[member_id]) for member_id in before if member_id in kept)
        assert lost <= max(1, -(-partitions // count))


def test_more_members_than_partitions_share_them() -> None:
    shares = assign_simple(equal(7), {"t": (0, 5), "u": (3,)})
    assert counts(shares) == ([1] * 7, [2, 2, 3])


def test_partitions_that_two_held_go_to_one_when_the_form_changes() -> None:
    members = {name: member("t", owned={"t": (0, 1, 2, 3)}) for name in ("a", "b")}
    assert counts(assign_simple(members, {"t": (0, 1, 2, 3)})) == ([2, 2], [1, 1, 1, 1])


def test_plain_everybody_gets_everything_that_it_subscribes_to() -> None:
    members = {"a": member("t", "gone"), "b": member("t", "u"), "c": member("gone")}
    shares = assign_simple(members, {"t": (0, 2), "u": (1,), "unsubscribed": (0,)})
    assert shares == {"a": {"t": (0, 2)}, "b": {"t": (0, 2), "u": (1,)}, "c": {}}
    again = assign_simple(with_owned(members, shares), {"t": (0, 2), "u": (1,)})
    assert all(again[member_id] is shares[member_id] for member_id in shares)


def test_plain_the_form_is_balanced_above_ten_thousand_pairs() -> None:
    numbers = {"t": tuple(range(PAIRS_MAX // 10))}
    few, more = ({f"m{number}": member("t") for number in range(count)} for count in (10, 11))
    assert counts(assign_simple(few, numbers))[1][0] == 10
    assert counts(assign_simple(more, numbers))[1][-1] == 1
