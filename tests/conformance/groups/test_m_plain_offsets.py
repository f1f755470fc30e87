"""M. Plain offsets."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator_protocol.errors import ErrorCode
from tests.conformance.groups.cases import case, not_drivable
from tests.harness.classic_members import FOO_AND_BAR, protocols
from tests.harness.committed_offsets import COMMIT, identity
from tests.harness.group_world import group_world
from tests.harness.groups import GROUP, OK, code
from tests.harness.world import World

HOUR_MS = 3_600_000


def classic_members(world: World, count: int = 1, **settings: Any) -> list[Any]:
    """A Stable classic group."""
    members = [world.classic.subscriber(**settings) for _ in range(count)]
    world.classic.form(*members, plan={})
    return members


def consumer_member(world: World) -> Any:
    """A consumer group that has seen ten epochs, and its one member."""
    member = world.consumers.member("m")
    member.joins("foo")
    for number in range(9):
        member.subscribes(*(FOO_AND_BAR if number % 2 == 0 else ("foo",)))
        world.consumers.quiet(member)
    assert member.epoch == 10
    return member


@case(202)
def test_a_group_that_does_not_exist_is_made_by_a_commit_without_membership() -> None:
    world = group_world()
    assert world.offsets.commits({"foo-0": 1}, generation_id_or_member_epoch=10) == {
        "foo-0": ErrorCode.GROUP_ID_NOT_FOUND
    }
    assert world.groups.listed() == {}
    assert world.offsets.commits({"foo-0": 1}, generation_id_or_member_epoch=-1) == {"foo-0": OK}
    assert world.groups.listed() == {GROUP: ("", "Empty", "classic")}


not_drivable(203, "a group is deleted in one step, and a shard that leaves answers for itself: nothing is ever Dead")


@case(205)
def test_no_member_commits_between_the_join_phase_and_the_assignment() -> None:
    world = group_world()
    world.offsets.commits({"foo-0": 3})
    (member,) = world.classic.completing(world.classic.subscriber())
    assert world.offsets.committed_by(member, 7) is ErrorCode.REBALANCE_IN_PROGRESS
    assert world.offsets.fetches("foo-0") == {"foo-0": 3}


@case(206)
def test_members_commit_what_they_read_before_they_join_again_and_a_commit_is_a_heartbeat() -> None:
    world = group_world()
    (member,) = classic_members(world, rebalance_timeout_ms=60_000)
    joining = world.classic.subscriber().join_as_new()
    assert world.classic.describe().group_state == "PreparingRebalance"
    for offset in range(1, 4):
        world.pass_time(member.session_timeout_ms - 1)
        assert world.offsets.committed_by(member, offset) is OK
    assert len(world.classic.describe().members) == 2
    assert not joining.is_settled
    assert world.offsets.fetches("foo-0") == {"foo-0": 3}
    world.pass_time(member.session_timeout_ms)
    assert len(world.classic.describe().members) == 1


@case(207)
def test_who_says_nothing_commits_to_no_group_with_members() -> None:
    world = group_world()
    classic_members(world)
    assert world.offsets.commits({"foo-0": 1}) == {"foo-0": ErrorCode.UNKNOWN_MEMBER_ID}


@case(209)
def test_a_commit_may_say_how_long_it_is_kept() -> None:
    world = group_world(offsets_retention_check_interval_ms=1)
    world.offsets.commits({"foo-0": 1}, retention_time_ms=1_234)
    world.offsets.commits({"foo-1": 1})
    world.pass_time(1_233)
    assert world.offsets.fetches() == {"foo-0": 1, "foo-1": 1}
    world.pass_time(1)
    assert world.offsets.fetches() == {"foo-1": 1}


@case(210)
@pytest.mark.parametrize("fields", [{}, {"group_instance_id": "i1"}], ids=["nobody", "an instance"])
def test_a_group_without_members_takes_the_commits_of_anybody(fields: dict[str, str]) -> None:
    world = group_world()
    for offset in (1, 2):
        assert world.offsets.commits({"foo-0": offset}, generation_id_or_member_epoch=-1, **fields) == {"foo-0": OK}
    assert world.groups.listed() == {GROUP: ("", "Empty", "classic")}
    assert world.offsets.fetches("foo-0") == {"foo-0": 2}


@case(211)
def test_members_of_a_consumer_group_commit_under_the_epoch_they_hold() -> None:
    world = group_world()
    member = consumer_member(world)
    assert world.offsets.committed_by(member, 1, member_id="who") is ErrorCode.UNKNOWN_MEMBER_ID
    late = world.consumers.member("late")
    late.joins("foo")
    world.consumers.quiet(late, member)
    assert late.epoch == 11
    held = min(number for _topic, number in late.assigned)
    assert world.offsets.commits({f"foo-{held}": 1}, member_id="late", generation_id_or_member_epoch=9) == {
        f"foo-{held}": ErrorCode.STALE_MEMBER_EPOCH
    }
    assert world.offsets.committed_by(member, 1, generation_id_or_member_epoch=12) is ErrorCode.STALE_MEMBER_EPOCH
    assert (
        world.offsets.committed_by(member, 1, member_id="", generation_id_or_member_epoch=-1)
        is ErrorCode.UNKNOWN_MEMBER_ID
    )
    for each in (late, member):
        each.leaves()
    assert world.offsets.committed_by(member, 1, member_id="", generation_id_or_member_epoch=-1) is OK


@case(213)
def test_classic_members_of_a_consumer_group_are_held_to_their_generation() -> None:
    world = group_world()
    (classic,) = classic_members(world)
    world.consumers.member("new").joins(*FOO_AND_BAR)
    assert world.groups.kind() == "consumer"
    wrong = classic.generation + 7
    assert world.offsets.committed_by(classic, 1, generation_id_or_member_epoch=wrong) is ErrorCode.ILLEGAL_GENERATION
    group = world.offsets.fetched("foo-0", member_id=classic.member_id, member_epoch=wrong)
    assert code(group) is ErrorCode.ILLEGAL_GENERATION


@case(214)
def test_metadata_that_is_too_long_costs_its_own_partition_only() -> None:
    world = group_world(offset_metadata_length_max=5)
    assert world.offsets.commits({"foo-0": 1}, metadata="toolarge") == {"foo-0": ErrorCode.OFFSET_METADATA_TOO_LARGE}
    request = world.offsets.commit_of(consumer_member(world), 1)
    request.topics[0].partitions[0].metadata = "toolarge"
    request.topics[0].partitions.add(partition=1, committed_offset=2, metadata="small")
    response = world.ask(request)
    assert [code(each) for each in response.results] == [ErrorCode.OFFSET_METADATA_TOO_LARGE, OK]
    (_first, second) = world.offsets.fetched("foo-0", "foo-1").offsets
    assert (second.committed_offset, second.metadata) == (2, "small")
    assert world.offsets.fetches("foo-0") == {"foo-0": -1}


@case(215)
def test_an_offset_may_go_back() -> None:
    world = group_world()
    assert world.offsets.commits({"foo-0": 100}) == world.offsets.commits({"foo-0": 50}) == {"foo-0": OK}
    assert world.offsets.fetches("foo-0") == {"foo-0": 50}


@case(217)
@pytest.mark.parametrize("stable", [False, True])
def test_a_group_that_does_not_exist_has_no_offsets(stable: bool) -> None:
    world = group_world()
    group = world.offsets.fetched("foo-0", "foo-1", stable=stable)
    assert code(group) is OK
    for each in group.offsets:
        assert (code(each), each.committed_offset, each.metadata) == (OK, -1, "")
        assert not each.HasField("committed_leader_epoch")
    assert len(group.offsets) == 2
    assert world.offsets.fetches(stable=stable) == {}


@case(218)
def test_a_commit_is_read_once_it_is_durable() -> None:
    world = group_world()
    world.offsets.commits({"foo-0": 1})
    committing = world.offsets.commit({"foo-0": 2, "foo-1": 7})
    for names in (("foo-0", "foo-1"), ()):
        reading = world.offsets.fetch(*names)
        assert reading.is_settled
        found = {each.partition: each.committed_offset for each in reading.result().groups[0].offsets}
        assert found == ({0: 1, 1: -1} if names else {0: 1})
    waiting = world.offsets.fetch("foo-0", stable=True)
    assert not waiting.is_settled
    assert not committing.is_settled
    world.flush()
    assert code(committing.result()) is OK
    assert waiting.result().groups[0].offsets[0].committed_offset == 2
    assert world.offsets.fetches() == {"foo-0": 2, "foo-1": 7}


@case(219)
def test_who_says_which_member_of_a_consumer_group_it_is_must_be_it() -> None:
    world = group_world()
    member = consumer_member(world)
    world.offsets.committed_by(member, 5)

    def told(**fields: Any) -> ErrorCode:
        assert code(world.offsets.fetched("foo-0", stable=True, **fields)) is code(
            world.offsets.fetched("foo-0", **fields)
        )
        return code(world.offsets.fetched("foo-0", **fields))

    assert told(member_id="m", member_epoch=10) is OK
    assert told() is OK
    assert told(member_id="who", member_epoch=10) is ErrorCode.UNKNOWN_MEMBER_ID
    assert told(member_id="m", member_epoch=9) is ErrorCode.STALE_MEMBER_EPOCH
    assert world.offsets.fetches("foo-0", member_id="m", member_epoch=10) == {"foo-0": 5}


@case(221)
@pytest.mark.parametrize("kind", ["classic", "consumer"])
def test_offsets_of_unread_topics_are_deleted(kind: str) -> None:
    world = group_world()
    if kind == "classic":
        member = classic_members(world, topics=("bar",))[0]
    else:
        member = world.consumers.member("m")
        member.joins("bar")
    assert world.offsets.committed_by(member, 5) is OK
    assert world.offsets.deletes("foo-0", "foo-1") == {"foo-0": OK, "foo-1": OK}
    assert world.offsets.fetches("foo-0") == {"foo-0": -1}
    world.restart()
    assert world.offsets.fetches() == {}


@case(222)
@pytest.mark.parametrize("kind", ["classic", "consumer"])
def test_offsets_of_topics_that_members_read_stay(kind: str) -> None:
    world = group_world()
    if kind == "classic":
        member = classic_members(world, topics=("foo",))[0]
    else:
        member = world.consumers.member("m")
        member.joins("foo")
    assert world.offsets.committed_by(member, 5) is OK
    assert world.offsets.deletes("foo-0", "bar-0") == {"foo-0": ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, "bar-0": OK}
    assert world.offsets.fetches("foo-0") == {"foo-0": 5}


@case(223)
def test_an_offset_that_waits_for_its_transaction_is_deleted_too() -> None:
    world = group_world()
    member = world.consumers.member("m")
    member.joins("bar")
    producer = world.offsets.producer()
    assert producer.commits({"foo-0": 5}, **identity(member)) == {"foo-0": OK}
    assert world.offsets.deletes("foo-0") == {"foo-0": OK}
    assert world.offsets.fetches("foo-0", stable=True) == {"foo-0": -1}
    producer.ends(COMMIT)
    assert world.offsets.fetches("foo-0", stable=True) == {"foo-0": -1}


@case(225)
def test_offsets_of_a_group_that_cannot_be_asked_what_it_reads_stay() -> None:
    world = group_world()
    classic_members(world, protocol_type="connect", protocols=protocols("any", metadata=b"mine"))
    assert code(world.offsets.deleted("foo-0")) is ErrorCode.NON_EMPTY_GROUP
    assert code(world.offsets.deleted("foo-0", group_id="who")) is ErrorCode.GROUP_ID_NOT_FOUND
