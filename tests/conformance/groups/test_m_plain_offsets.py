"""M. Plain offsets."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator_protocol.errors import ErrorCode
from tests.conformance.groups.cases import case, not_drivable
from tests.groups.classic.members import protocols
from tests.groups.committed.room import COMMIT, GROUP, OK, OffsetRoom, code, identity
from tests.groups.consumer.mixed import FOO_AND_BAR

HOUR_MS = 3_600_000


def classic_members(room: OffsetRoom, count: int = 1, **settings: Any) -> list[Any]:
    """A Stable classic group."""
    members = [room.classic(**settings) for _ in range(count)]
    room.classic_group(*members, plan={})
    return members


def consumer_member(room: OffsetRoom) -> Any:
    """A consumer group that has seen ten epochs, and its one member."""
    member = room.member("m")
    member.joins("foo")
    for number in range(9):
        member.subscribes(*(FOO_AND_BAR if number % 2 == 0 else ("foo",)))
        room.quiet(member)
    assert member.epoch == 10
    return member


@case(202)
def test_a_group_that_does_not_exist_is_made_by_a_commit_without_membership() -> None:
    room = OffsetRoom()
    assert room.commits({"foo-0": 1}, generation_id_or_member_epoch=10) == {"foo-0": ErrorCode.GROUP_ID_NOT_FOUND}
    assert room.listed() == {}
    assert room.commits({"foo-0": 1}, generation_id_or_member_epoch=-1) == {"foo-0": OK}
    assert room.listed() == {GROUP: ("", "Empty", "classic")}


not_drivable(203, "a group is deleted in one step, and a shard that leaves answers for itself: nothing is ever Dead")


@case(205)
def test_nobody_commits_between_the_join_phase_and_the_assignment() -> None:
    room = OffsetRoom()
    room.commits({"foo-0": 3})
    (member,) = room.completing(room.classic())
    assert room.committed_by(member, 7) is ErrorCode.REBALANCE_IN_PROGRESS
    assert room.fetches("foo-0") == {"foo-0": 3}


@case(206)
def test_members_commit_what_they_read_before_they_join_again_and_a_commit_is_a_heartbeat() -> None:
    room = OffsetRoom()
    (member,) = classic_members(room, rebalance_timeout_ms=60_000)
    joining = room.classic().join_as_new()
    assert room.classic_state().group_state == "PreparingRebalance"
    for offset in range(1, 4):
        room.tick(member.session_timeout_ms - 1)
        assert room.committed_by(member, offset) is OK
    assert len(room.classic_state().members) == 2
    assert not joining.is_settled
    assert room.fetches("foo-0") == {"foo-0": 3}
    room.tick(member.session_timeout_ms)
    assert len(room.classic_state().members) == 1


@case(207)
def test_who_says_nothing_commits_to_no_group_with_members() -> None:
    room = OffsetRoom()
    classic_members(room)
    assert room.commits({"foo-0": 1}) == {"foo-0": ErrorCode.UNKNOWN_MEMBER_ID}


@case(209)
def test_a_commit_may_say_how_long_it_is_kept() -> None:
    room = OffsetRoom(offsets_retention_check_interval_ms=1)
    room.commits({"foo-0": 1}, retention_time_ms=1_234)
    room.commits({"foo-1": 1})
    room.tick(1_233)
    assert room.fetches() == {"foo-0": 1, "foo-1": 1}
    room.tick(1)
    assert room.fetches() == {"foo-1": 1}


@case(210)
@pytest.mark.parametrize("fields", [{}, {"group_instance_id": "i1"}], ids=["nobody", "an instance"])
def test_a_group_without_members_takes_the_commits_of_anybody(fields: dict[str, str]) -> None:
    room = OffsetRoom()
    for offset in (1, 2):
        assert room.commits({"foo-0": offset}, generation_id_or_member_epoch=-1, **fields) == {"foo-0": OK}
    assert room.listed() == {GROUP: ("", "Empty", "classic")}
    assert room.fetches("foo-0") == {"foo-0": 2}


@case(211)
def test_members_of_a_consumer_group_commit_under_the_epoch_they_hold() -> None:
    room = OffsetRoom()
    member = consumer_member(room)
    assert room.committed_by(member, 1, member_id="who") is ErrorCode.UNKNOWN_MEMBER_ID
    late = room.member("late")
    late.joins("foo")
    room.quiet(late, member)
    assert late.epoch == 11
    held = min(number for _topic, number in late.assigned)
    assert room.commits({f"foo-{held}": 1}, member_id="late", generation_id_or_member_epoch=9) == {
        f"foo-{held}": ErrorCode.STALE_MEMBER_EPOCH
    }
    assert room.committed_by(member, 1, generation_id_or_member_epoch=12) is ErrorCode.STALE_MEMBER_EPOCH
    assert room.committed_by(member, 1, member_id="", generation_id_or_member_epoch=-1) is ErrorCode.UNKNOWN_MEMBER_ID
    for each in (late, member):
        each.leaves()
    assert room.committed_by(member, 1, member_id="", generation_id_or_member_epoch=-1) is OK


@case(213)
def test_classic_members_of_a_consumer_group_are_held_to_their_generation() -> None:
    room = OffsetRoom()
    (classic,) = classic_members(room)
    room.member("new").joins(*FOO_AND_BAR)
    assert room.kind() == "consumer"
    wrong = classic.generation + 7
    assert room.committed_by(classic, 1, generation_id_or_member_epoch=wrong) is ErrorCode.ILLEGAL_GENERATION
    group = room.fetched("foo-0", member_id=classic.member_id, member_epoch=wrong)
    assert code(group) is ErrorCode.ILLEGAL_GENERATION


@case(214)
def test_metadata_that_is_too_long_costs_its_own_partition_only() -> None:
    room = OffsetRoom(offset_metadata_length_max=5)
    assert room.commits({"foo-0": 1}, metadata="toolarge") == {"foo-0": ErrorCode.OFFSET_METADATA_TOO_LARGE}
    request = room.commit_of(consumer_member(room), 1)
    request.topics[0].partitions[0].metadata = "toolarge"
    request.topics[0].partitions.add(partition=1, committed_offset=2, metadata="small")
    response = room.told(request)
    assert [code(each) for each in response.results] == [ErrorCode.OFFSET_METADATA_TOO_LARGE, OK]
    (_first, second) = room.fetched("foo-0", "foo-1").offsets
    assert (second.committed_offset, second.metadata) == (2, "small")
    assert room.fetches("foo-0") == {"foo-0": -1}


@case(215)
def test_an_offset_may_go_back() -> None:
    room = OffsetRoom()
    assert room.commits({"foo-0": 100}) == room.commits({"foo-0": 50}) == {"foo-0": OK}
    assert room.fetches("foo-0") == {"foo-0": 50}


@case(217)
@pytest.mark.parametrize("stable", [False, True])
def test_a_group_that_does_not_exist_has_no_offsets(stable: bool) -> None:
    room = OffsetRoom()
    group = room.fetched("foo-0", "foo-1", stable=stable)
    assert code(group) is OK
    for each in group.offsets:
        assert (code(each), each.committed_offset, each.metadata) == (OK, -1, "")
        assert not each.HasField("committed_leader_epoch")
    assert len(group.offsets) == 2
    assert room.fetches(stable=stable) == {}


@case(218)
def test_a_commit_is_read_once_it_is_durable() -> None:
    room = OffsetRoom()
    room.commits({"foo-0": 1})
    committing = room.commit({"foo-0": 2, "foo-1": 7})
    for names in (("foo-0", "foo-1"), ()):
        reading = room.fetch(*names)
        assert reading.is_settled
        found = {each.partition: each.committed_offset for each in reading.result().groups[0].offsets}
        assert found == ({0: 1, 1: -1} if names else {0: 1})
    waiting = room.fetch("foo-0", stable=True)
    assert not waiting.is_settled
    assert not committing.is_settled
    room.flush()
    assert code(committing.result()) is OK
    assert waiting.result().groups[0].offsets[0].committed_offset == 2
    assert room.fetches() == {"foo-0": 2, "foo-1": 7}


@case(219)
def test_who_says_which_member_of_a_consumer_group_it_is_must_be_it() -> None:
    room = OffsetRoom()
    member = consumer_member(room)
    room.committed_by(member, 5)

    def told(**fields: Any) -> ErrorCode:
        assert code(room.fetched("foo-0", stable=True, **fields)) is code(room.fetched("foo-0", **fields))
        return code(room.fetched("foo-0", **fields))

    assert told(member_id="m", member_epoch=10) is OK
    assert told() is OK
    assert told(member_id="who", member_epoch=10) is ErrorCode.UNKNOWN_MEMBER_ID
    assert told(member_id="m", member_epoch=9) is ErrorCode.STALE_MEMBER_EPOCH
    assert room.fetches("foo-0", member_id="m", member_epoch=10) == {"foo-0": 5}


@case(221)
@pytest.mark.parametrize("kind", ["classic", "consumer"])
def test_offsets_of_topics_that_nobody_reads_are_deleted(kind: str) -> None:
    room = OffsetRoom()
    if kind == "classic":
        member = classic_members(room, topics=("bar",))[0]
    else:
        member = room.member("m")
        member.joins("bar")
    assert room.committed_by(member, 5) is OK
    assert room.deletes("foo-0", "foo-1") == {"foo-0": OK, "foo-1": OK}
    assert room.fetches("foo-0") == {"foo-0": -1}
    room.restart()
    assert room.fetches() == {}


@case(222)
@pytest.mark.parametrize("kind", ["classic", "consumer"])
def test_offsets_of_topics_that_members_read_stay(kind: str) -> None:
    room = OffsetRoom()
    if kind == "classic":
        member = classic_members(room, topics=("foo",))[0]
    else:
        member = room.member("m")
        member.joins("foo")
    assert room.committed_by(member, 5) is OK
    assert room.deletes("foo-0", "bar-0") == {"foo-0": ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, "bar-0": OK}
    assert room.fetches("foo-0") == {"foo-0": 5}


@case(223)
def test_an_offset_that_waits_for_its_transaction_is_deleted_too() -> None:
    room = OffsetRoom()
    member = room.member("m")
    member.joins("bar")
    producer = room.producer()
    assert producer.commits({"foo-0": 5}, **identity(member)) == {"foo-0": OK}
    assert room.deletes("foo-0") == {"foo-0": OK}
    assert room.fetches("foo-0", stable=True) == {"foo-0": -1}
    producer.ends(COMMIT)
    assert room.fetches("foo-0", stable=True) == {"foo-0": -1}


@case(225)
def test_offsets_of_a_group_that_cannot_be_asked_what_it_reads_stay() -> None:
    room = OffsetRoom()
    classic_members(room, protocol_type="connect", protocols=protocols("any", metadata=b"mine"))
    assert code(room.deleted("foo-0")) is ErrorCode.NON_EMPTY_GROUP
    assert code(room.deleted("foo-0", group_id="who")) is ErrorCode.GROUP_ID_NOT_FOUND
