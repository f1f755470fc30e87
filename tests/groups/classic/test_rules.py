"""The rules of classic groups, each as a table."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
from msgspec.structs import replace

from coordinator_protocol.errors import Refused
from coordinator_runtime.decision import ArmTimer
from coordinator_runtime.ports import Committer
from group_coordinator.classic.state import (
    LEGAL_STEPS,
    ClassicGroup,
    ClassicMember,
    ClassicProtocol,
    ClassicState,
    rebuilt_group,
    step,
    with_member,
    without_members,
)
from group_coordinator.registry import CLASSIC
from tests.harness.classic_members import subscribed

EMPTY, PREPARING, COMPLETING, STABLE = ClassicState
FOO_0 = ((b"f" * 16, 0),)


def member(member_id: str, *names: str, instance_id: str | None = None, metadata: bytes = b"") -> ClassicMember:
    return ClassicMember(
        member_id=member_id,
        instance_id=instance_id,
        session_timeout_ms=5_000,
        rebalance_timeout_ms=10_000,
        protocols=tuple(ClassicProtocol(name, metadata) for name in names or ("range",)),
    )


def group(*members: ClassicMember, state: ClassicState = STABLE, protocol_type: str = "consumer") -> ClassicGroup:
    bare = ClassicGroup(
        group_id="g",
        state_timestamp_ms=1_000,
        generation_id=7,
        protocol_type=protocol_type,
        protocol_name="range" if members else None,
        leader=members[0].member_id if members else None,
    )
    return replace(rebuilt_group(bare, members), state=state)


A, B = member("a"), member("b")


@pytest.mark.parametrize(
    ("state", "parked", "asking", "has_it"),
    [
        (EMPTY, [], "", True),
        (PREPARING, ["a"], "", True),
        (PREPARING, ["a"], "b", True),
        (PREPARING, ["a", "b"], "", False),
        (PREPARING, ["a", "b"], "b", True),
        (PREPARING, ["a", "c"], "b", False),
        (COMPLETING, [], "a", True),
        (COMPLETING, [], "new", False),
        (STABLE, [], "a", True),
        (STABLE, [], "new", False),
    ],
)
def test_a_group_of_two_has_room_for(state: ClassicState, parked: list[str], asking: str, *, has_it: bool) -> None:
    parked_joins = {member_id: number for number, member_id in enumerate(parked)}
    full = replace(group(A, B, state=state), parked_joins=parked_joins)
    assert full.has_capacity(asking, 2) == has_it


@pytest.mark.parametrize(
    ("members", "protocol_type", "names", "is_accepted"),
    [
        ([], "anything", ("any",), True),
        ([], "", ("range",), False),
        ([], "consumer", (), False),
        ([("range",)], "consumer", ("range",), True),
        ([("range",)], "connect", ("range",), False),
        ([("range",)], "consumer", ("sticky",), False),
        ([("range",)], "consumer", (), False),
        ([("range", "sticky"), ("sticky",)], "consumer", ("range", "sticky"), True),
        ([("range", "sticky"), ("sticky",)], "consumer", ("range",), False),
    ],
)
def test_who_joins_must_go_with_the_others(
    members: list[tuple[str, ...]], protocol_type: str, names: tuple[str, ...], *, is_accepted: bool
) -> None:
    there = group(
        *(member(f"m{number}", *listed) for number, listed in enumerate(members)), state=STABLE if members else EMPTY
    )
    expected: Any = nullcontext() if is_accepted else pytest.raises(Refused, match="INCONSISTENT_GROUP_PROTOCOL")
    with expected:
        there.check_protocols(protocol_type, [ClassicProtocol(name, b"") for name in names])


@pytest.mark.parametrize(("names", "is_accepted"), [(("range",), True), ((), False)])
def test_a_rebalance_that_everybody_left_takes_any_protocol(names: tuple[str, ...], *, is_accepted: bool) -> None:
    """Members may be gone while ids that were given away keep the join phase open."""
    expected: Any = nullcontext() if is_accepted else pytest.raises(Refused, match="INCONSISTENT_GROUP_PROTOCOL")
    with expected:
        group(state=PREPARING).check_protocols("consumer", [ClassicProtocol(name, b"") for name in names])


@pytest.mark.parametrize(
    ("lists", "leader", "elected"),
    [
        ([("x", "y")], 0, "x"),
        ([("x", "y"), ("y", "x"), ("y", "x")], 0, "y"),
        ([("x", "y"), ("y", "x")], 0, "x"),
        ([("x", "y"), ("y", "x")], 1, "y"),
        ([("z", "x", "y"), ("y", "x"), ("x", "y")], 2, "x"),
        ([("z", "y"), ("y",)], 0, "y"),
    ],
)
def test_the_most_votes_win_and_the_leader_breaks_ties(lists: list[tuple[str, ...]], leader: int, elected: str) -> None:
    members = [member(f"m{number}", *names) for number, names in enumerate(lists)]
    assert replace(group(*members), leader=f"m{leader}").elect_protocol() == elected


NO_MEMBER = Committer()


@pytest.mark.parametrize(
    ("there", "committer", "answers"),
    [
        (group(state=EMPTY), NO_MEMBER, [0, 0]),
        (group(state=EMPTY), Committer("m", -1, "i"), [0, 0]),
        (group(state=EMPTY), Committer("m", 7), [25, 25]),
        (group(A), NO_MEMBER, [25, 0]),
        (group(A), Committer("a", 7), [0, 0]),
        (group(A), Committer("a", 6), [22, 22]),
        (group(A), Committer("a", -1), [22, 22]),
        (group(A), Committer("b", 7), [25, 25]),
        (group(member("a", instance_id="i")), Committer("a", 7, "i"), [0, 0]),
        (group(member("a", instance_id="i")), Committer("b", 7, "i"), [82, 82]),
        (group(member("a", instance_id="i")), Committer("a", 7, "j"), [25, 25]),
        (group(A, state=PREPARING), Committer("a", 7), [0, 0]),
        (group(A, state=COMPLETING), Committer("a", 7), [27, 0]),
        (group(A, state=COMPLETING), Committer("a", 6), [22, 22]),
        (group(A, state=COMPLETING), NO_MEMBER, [25, 0]),
    ],
)
def test_who_may_commit_outside_and_inside_a_transaction(
    there: ClassicGroup, committer: Committer, answers: list[int]
) -> None:
    assert [commit_code(there, committer, is_transactional=each) for each in (False, True)] == answers


def commit_code(there: ClassicGroup, committer: Committer, *, is_transactional: bool) -> int:
    try:
        there.check_commit(committer, FOO_0, is_transactional=is_transactional)
    except Refused as refusal:
        return int(refusal.code)
    return 0


def test_a_commit_of_a_member_counts_as_a_heartbeat() -> None:
    commit_effects = CLASSIC.in_shard.commit_effects
    assert commit_effects is not None
    (timer,) = commit_effects(group(A, B), Committer("b", 7))
    assert isinstance(timer, ArmTimer)
    assert (timer.key, timer.delay_ms) == (("session", "g", "b"), 5_000)
    assert commit_effects(group(A), NO_MEMBER) == ()


FOO = member("a", metadata=subscribed("foo"))
TORN = member("b", metadata=b"\0")


@pytest.mark.parametrize(
    ("there", "is_subscribed_to_foo", "to_bar", "base_of_bar"),
    [
        (group(FOO), True, False, 500),
        (group(FOO, state=PREPARING), True, False, None),
        (group(FOO, TORN), True, True, None),
        (group(state=EMPTY), False, False, 1_000),
        (group(state=EMPTY, protocol_type=""), False, False, 500),
        (group(A, protocol_type="connect"), False, False, None),
    ],
)
def test_offsets_expire_that_no_member_can_want(
    there: ClassicGroup, base_of_bar: int | None, *, is_subscribed_to_foo: bool, to_bar: bool
) -> None:
    assert there.is_subscribed_to("foo") == is_subscribed_to_foo
    assert there.is_subscribed_to("bar") == to_bar
    assert there.retention_base_ms("bar", 500) == base_of_bar


def test_offsets_of_members_that_subscribe_to_nothing_are_not_deleted() -> None:
    group(FOO).check_offset_delete()
    group(state=EMPTY, protocol_type="connect").check_offset_delete()
    with pytest.raises(Refused, match="NON_EMPTY_GROUP"):
        group(A, protocol_type="connect").check_offset_delete()


@pytest.mark.parametrize("before", ClassicState)
@pytest.mark.parametrize("after", ClassicState)
def test_only_legal_steps_are_taken(before: ClassicState, after: ClassicState) -> None:
    there = group(A, state=before)
    if after in LEGAL_STEPS[before]:
        assert step(there, after, 2_000).state_timestamp_ms == 2_000
    else:
        with pytest.raises(AssertionError, match="is no legal step"):
            step(there, after, 2_000)


def test_what_is_counted_of_members_follows_them() -> None:
    one = with_member(group(state=EMPTY), member("a", "x", "y", instance_id="i"))
    two = with_member(one, member("b", "y"))
    assert (two.supporters, two.static_members) == ({"x": 1, "y": 2}, {"i": "a"})
    changed = with_member(two, member("a", "y", instance_id="i"))
    assert changed.supporters == {"y": 2}
    gone = without_members(replace(changed, leader="a"), ["a", "nobody"])
    assert (gone.supporters, gone.static_members, gone.leader) == ({"y": 1}, {}, "b")
