"""Stored rows of a classic group: a restart reads back everything but the progress of a rebalance."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from group_coordinator.classic.codec import DECODERS, ENCODERS
from group_coordinator.classic.state import (
    ClassicGroup,
    ClassicGroupChanged,
    ClassicGroupForgotten,
    ClassicMember,
    ClassicProtocol,
    ClassicState,
    rebuilt_group,
)
from group_coordinator.codec import CLASSIC_GROUP

texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=8)
numbers = st.integers(0, 2**31 - 1)


@st.composite
def members(draw: st.DrawFn, number: int) -> ClassicMember:
    return ClassicMember(
        member_id=f"m{number}",
        instance_id=draw(st.none() | st.just(f"i{number}")),
        client_id=draw(texts),
        client_host=draw(texts),
        session_timeout_ms=draw(numbers),
        rebalance_timeout_ms=draw(numbers),
        protocols=(ClassicProtocol("range", draw(st.binary(max_size=8))),),
        assignment=draw(st.binary(max_size=8)),
    )


@st.composite
def settled_groups(draw: st.DrawFn) -> ClassicGroup:
    count = draw(st.integers(0, 4))
    bare = ClassicGroup(
        group_id=draw(texts),
        state_timestamp_ms=draw(st.integers(0, 2**62)),
        generation_id=draw(numbers),
        protocol_type=draw(st.sampled_from(("consumer", "connect"))),
        protocol_name="range" if count else None,
        leader="m0" if count else None,
    )
    return rebuilt_group(bare, [draw(members(number)) for number in range(count)])


def stored(group: ClassicGroup) -> ClassicGroup:
    row = ENCODERS[ClassicGroupChanged](ClassicGroupChanged(group, is_stored=True))
    assert row is not None
    assert row.value is not None
    record = DECODERS[row.record_type](row.key, row.value)
    assert isinstance(record, ClassicGroupChanged)
    return record.group


@settings(max_examples=30)
@given(settled_groups())
def test_a_group_comes_back_as_it_was(group: ClassicGroup) -> None:
    assert stored(group) == group


@settings(max_examples=30)
@given(settled_groups().filter(lambda group: bool(group.members)))
def test_a_rebalance_does_not_come_back(group: ClassicGroup) -> None:
    rebalancing = replace(
        group,
        state=ClassicState.PREPARING_REBALANCE,
        given_ids=frozenset({"p"}),
        parked_joins={"m0": 1},
        rebalance_started_ms=5,
    )
    assert stored(rebalancing) == group
    assert ENCODERS[ClassicGroupChanged](ClassicGroupChanged(rebalancing, is_stored=False)) is None


def test_a_group_that_is_forgotten_leaves_no_value() -> None:
    row = ENCODERS[ClassicGroupForgotten](ClassicGroupForgotten("g"))
    assert row is not None
    assert (row.record_type, row.key, row.value) == (CLASSIC_GROUP, b"g", None)
