"""Assignors as members of classic groups use them: names, what goes into subscriptions, strategies of one's own."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from coordinator_protocol.assignors.classic import (
    CLASSIC_ASSIGNORS,
    COOPERATIVE_STICKY,
    RANGE,
    ROUND_ROBIN,
    STICKY,
    Assignor,
    RebalanceProtocol,
    SubscribedMember,
    common_rebalance_protocol,
)
from coordinator_protocol.assignors.values import Share, TopicSpec
from coordinator_protocol.consumer_protocol import (
    Assignment,
    Subscription,
    decode_subscription,
    encode_cooperative_user_data,
    encode_sticky_user_data,
    encode_subscription,
)
from coordinator_protocol.errors import ErrorCode, Refused
from tests.assignors.groups import topics_of

EAGER, COOPERATIVE = RebalanceProtocol.EAGER, RebalanceProtocol.COOPERATIVE


class Alphabetical:
    """A custom strategy: everything to the first member in the alphabet."""

    name = "alphabetical"
    rebalance_protocols = frozenset({EAGER})

    def user_data(self, owned: Share[str], generation: int) -> bytes | None:
        return f"{len(owned)} in {generation}".encode()

    def assign(
        self, members: Mapping[str, SubscribedMember], topics: Mapping[str, TopicSpec]
    ) -> Mapping[str, Assignment]:
        everything = {name: tuple(range(topic.partition_count)) for name, topic in topics.items()}
        first = min(members)
        return {
            member_id: Assignment(partitions=everything if member_id == first else {}, user_data=b"mine")
            for member_id in members
        }


def joined(assignor: Assignor, *topics: str, owned: Share[str] | None = None, generation: int = -1) -> SubscribedMember:
    """A member after its subscription went through the coordinator, with what it was assigned last."""
    had = owned or {}
    kept = had if COOPERATIVE in assignor.rebalance_protocols else {}
    subscription = Subscription(
        topics=topics, user_data=assignor.user_data(had, generation), owned=kept, generation=generation
    )
    return SubscribedMember(subscription=decode_subscription(encode_subscription(subscription)))


def test_the_names_are_those_on_the_wire() -> None:
    assert {*CLASSIC_ASSIGNORS} == {"range", "roundrobin", "sticky", "cooperative-sticky"}
    assert all(assignor.name == name for name, assignor in CLASSIC_ASSIGNORS.items())


@pytest.mark.parametrize("assignor", [STICKY, COOPERATIVE_STICKY], ids=lambda assignor: assignor.name)
def test_what_a_member_had_comes_back_through_its_subscription(assignor: Assignor) -> None:
    members = {
        "a": joined(assignor, "t", owned={"t": (2, 3)}, generation=5),
        "b": joined(assignor, "t", owned={"t": (0, 3)}, generation=4),
    }
    plan = assignor.assign(members, topics_of(t=4))
    assert plan["a"].partitions == {"t": (2, 3)}
    assert plan["b"].partitions == {"t": (0, 1)}


@pytest.mark.parametrize("assignor", [RANGE, ROUND_ROBIN], ids=lambda assignor: assignor.name)
def test_range_and_round_robin_remember_nothing(assignor: Assignor) -> None:
    assert assignor.user_data({"t": (1,)}, 7) is None
    members = {"a": joined(assignor, "t", owned={"t": (1,)}), "b": joined(assignor, "t")}
    plan = assignor.assign(members, topics_of(t=2))
    assert {name: part.partitions for name, part in plan.items()} == {"a": {"t": (0,)}, "b": {"t": (1,)}}


def test_an_eager_member_is_believed_by_its_user_data_alone() -> None:
    # It gave everything up before it joined, so "owns nothing" says nothing of what it had.
    subscription = Subscription(
        topics=("t",), owned={}, generation=9, user_data=encode_sticky_user_data({"t": (1,)}, 3)
    )
    members = {
        "a": SubscribedMember(subscription=subscription),
        "b": joined(STICKY, "t", owned={"t": (1,)}, generation=2),
    }
    assert STICKY.assign(members, topics_of(t=2))["a"].partitions == {"t": (1,)}


@pytest.mark.parametrize(("said", "keeper"), [(6, "a"), (4, "b")])
def test_the_generation_of_a_cooperative_member_comes_from_its_user_data_where_its_version_has_none(
    said: int, keeper: str
) -> None:
    old = Subscription(topics=("t",), owned={"t": (0,)}, user_data=encode_cooperative_user_data(said))
    members = {
        "a": SubscribedMember(subscription=decode_subscription(encode_subscription(old, version=1))),
        "b": joined(COOPERATIVE_STICKY, "t", owned={"t": (0,)}, generation=5),
    }
    plan = COOPERATIVE_STICKY.assign(members, topics_of(t=1))
    assert plan[keeper].partitions == {"t": (0,)}


def test_the_generation_of_a_cooperative_member_needs_no_user_data_where_its_version_has_one() -> None:
    members = {
        name: SubscribedMember(subscription=Subscription(topics=("t",), owned={"t": (0,)}, generation=generation))
        for name, generation in (("a", 4), ("b", 5))
    }
    assert COOPERATIVE_STICKY.assign(members, topics_of(t=1))["b"].partitions == {"t": (0,)}


def test_racks_count_for_range() -> None:
    topics = {"t": TopicSpec(2, (frozenset("b"), frozenset("a")))}
    members = {rack: SubscribedMember(subscription=Subscription(topics=("t",), rack_id=rack)) for rack in ("a", "b")}
    plan = RANGE.assign(members, topics)
    assert plan["a"].partitions == {"t": (1,)}


def test_static_members_take_their_turns_by_instance_id() -> None:
    subscription = Subscription(topics=("t",))
    members = {
        "a": SubscribedMember(subscription=subscription, instance_id="2"),
        "b": SubscribedMember(subscription=subscription, instance_id="1"),
    }
    assert RANGE.assign(members, topics_of(t=1))["b"].partitions == {"t": (0,)}


def test_a_strategy_of_ones_own_is_an_assignor_like_any_other() -> None:
    own: Assignor = Alphabetical()
    members = {"b": joined(own, "t"), "a": joined(own, "t", owned={"t": (0,)}, generation=3)}
    assert members["a"].subscription.user_data == b"1 in 3"
    plan = own.assign(members, topics_of(t=2))
    assert plan == {
        "a": Assignment(partitions={"t": (0, 1)}, user_data=b"mine"),
        "b": Assignment(partitions={}, user_data=b"mine"),
    }


@pytest.mark.parametrize(
    ("assignors", "protocol"),
    [
        ([COOPERATIVE_STICKY], COOPERATIVE),
        ([RANGE, COOPERATIVE_STICKY], EAGER),
        ([STICKY, Alphabetical()], EAGER),
    ],
)
def test_the_most_advanced_protocol_that_all_can_do_is_used(
    assignors: list[Assignor], protocol: RebalanceProtocol
) -> None:
    assert common_rebalance_protocol(assignors) is protocol


def test_assignors_that_cannot_be_used_together_are_refused() -> None:
    only_cooperative = Alphabetical()
    only_cooperative.rebalance_protocols = frozenset({COOPERATIVE})
    for assignors in ([RANGE, only_cooperative], []):
        with pytest.raises(Refused, match="no rebalance protocol in common") as refusal:
            common_rebalance_protocol(assignors)
        assert refusal.value.code is ErrorCode.INVALID_CONFIG
