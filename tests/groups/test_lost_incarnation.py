"""A store that lost something gives no generation and no group epoch of the lost incarnation once more."""

from __future__ import annotations

import pytest

from coordinator_api.v1 import group_pb2
from coordinator_protocol.errors import ErrorCode
from coordinator_runtime.incarnation import LineCause
from tests.groups.classic.members import ClassicRoom
from tests.groups.classic.members import code as classic_code
from tests.groups.consumer.members import OK, ConsumerRoom, all_of, code, of
from tests.groups.consumer.mixed import MixedRoom
from tests.groups.room import GroupRoom
from tests.harness.memory_store import MemoryStore
from txnctl.stopped.store_verify import verify_store

RESTORED_MS = 1_735_689_600_000 + 5_000_000
LEAST = 5_000
"""The incarnation of a line that begins then: seconds since 2025."""


def restore(room: GroupRoom, backup: MemoryStore, wall_ms: int = RESTORED_MS) -> None:
    """The backup takes the place of the store, and the server starts."""
    room.settle()
    room.store = backup.copy()
    room.store.begin_line(LineCause.RESTORE, wall_ms)
    room.crash()
    assert [check.violations for check in verify_store(room.store) if check.violation_count] == []


def test_classic_members_are_gone_and_generations_go_on_above_the_lost_line() -> None:
    room = ClassicRoom()
    (static, dynamic) = room.stable(room.member("i1"), room.member())
    room.settle()
    backup = room.store.copy()
    (late,) = room.stable(room.member(group_id="only in the lost incarnation"))
    restore(room, backup)
    assert (room.state(), room.generation(), room.member_ids()) == ("Empty", LEAST, [])
    assert static.beats() is ErrorCode.UNKNOWN_MEMBER_ID
    assert dynamic.beats() is ErrorCode.UNKNOWN_MEMBER_ID
    assert classic_code(dynamic.joins()) is ErrorCode.UNKNOWN_MEMBER_ID
    assert room.timers() == {}
    room.stable(static, dynamic, late)
    assert static.generation == LEAST + 1
    assert late.generation == LEAST + 1, "a group of which nothing is left begins there too"
    room.restart()
    assert room.generation() == LEAST + 1, "a plain restart removes nobody"
    assert static.beats() is OK


def test_consumers_are_gone_and_group_epochs_go_on_above_the_lost_line() -> None:
    room = ConsumerRoom()
    first, second = room.stable(*room.members("first", "second"))
    room.settle()
    backup = room.store.copy()
    restore(room, backup)
    assert (room.state(), room.epoch(), room.member_ids()) == ("Empty", LEAST, [])
    assert code(first.beats()) is ErrorCode.UNKNOWN_MEMBER_ID
    assert room.timers() == {}
    for member in (first, second):
        member.epoch, member.assigned = 0, frozenset()
    room.stable(first, second)
    assert first.epoch > LEAST
    assert first.assigned | second.assigned == all_of(foo=6, bar=3)
    other = room.member("m")
    other.group_id = "made in this line"
    assert code(other.joins("foo")) is OK
    assert other.epoch > LEAST
    epoch = room.epoch()
    room.restart()
    assert (room.epoch(), room.member_ids()) == (epoch, ["first", "second"]), "a plain restart removes nobody"


def test_two_restores_of_one_backup_give_different_epochs() -> None:
    room = ConsumerRoom()
    room.stable(*room.members("first"))
    room.settle()
    backup = room.store.copy()
    restore(room, backup)
    seen = room.epoch()
    restore(room, backup, RESTORED_MS + 60_000)
    assert room.epoch() == seen + 60


def test_committed_offsets_stay_and_old_epochs_commit_no_more() -> None:
    room = ConsumerRoom()
    (member,) = room.stable(*room.members("first"))
    commit = group_pb2.OffsetCommitRequest(
        group_id="g",
        member_id="first",
        generation_id_or_member_epoch=member.epoch,
        topics=[group_pb2.TopicOffsets(topic="foo", partitions=[group_pb2.PartitionOffset(committed_offset=7)])],
    )
    assert [code(result) for result in room.told(commit).results] == [OK]
    restore(room, room.store.copy())
    asked = group_pb2.OffsetFetchRequest(groups=[group_pb2.OffsetFetchGroup(group_id="g")])
    (group,) = room.told(asked).groups
    assert [offset.committed_offset for offset in group.offsets] == [7]
    refused = room.told(commit)
    assert {code(refused), *(code(result) for result in refused.results)} - {OK} == {ErrorCode.UNKNOWN_MEMBER_ID}


@pytest.mark.parametrize("first_back", ["classic", "consumer"])
def test_a_group_of_both_kinds_begins_anew_whoever_comes_back_first(first_back: str) -> None:
    room = MixedRoom()
    old = room.classic("i1", topics=("foo",))
    room.classic_group(old, plan={0: of("foo", 0)})
    new = room.member("new")
    assert code(new.joins("foo")) is OK
    assert (room.kind(), len(room.member_ids())) == ("consumer", 2)
    room.settle()
    backup = room.store.copy()
    assert code(room.member("only in the lost incarnation").joins("foo")) is OK
    lost_epoch = room.epoch()
    restore(room, backup)
    assert (room.member_ids(), room.timers()) == ([], {})
    assert old.beats() is ErrorCode.UNKNOWN_MEMBER_ID
    assert code(new.beats()) is ErrorCode.UNKNOWN_MEMBER_ID
    assert room.epoch() >= LEAST > lost_epoch
    again = room.classic("i1", topics=("foo",))
    if first_back == "classic":
        room.classic_group(again, plan={0: all_of(foo=6)})
        assert (room.kind(), again.generation > LEAST) == ("classic", True)
    new.epoch, new.assigned = 0, frozenset()
    assert code(new.joins("foo")) is OK
    if first_back == "consumer":
        joined = again.join_as_new()
        room.settle()
        assert code(joined.result()) is OK
    assert (room.kind(), len(room.member_ids())) == ("consumer", 2)
    assert new.epoch > LEAST
    assert room.epoch() > LEAST
    epoch = room.epoch()
    room.restart()
    assert (room.epoch(), len(room.member_ids())) == (epoch, 2), "a plain restart removes nobody"


def test_groups_of_each_kind_in_one_store_begin_in_the_new_line() -> None:
    room = MixedRoom()
    classic = room.classic(group_id="classics")
    room.completing(classic)
    room.assign([classic], {})
    consumer = room.member("m")
    assert code(consumer.joins("foo")) is OK
    room.settle()
    restore(room, room.store.copy())
    assert classic.beats() is ErrorCode.UNKNOWN_MEMBER_ID
    assert code(consumer.beats()) is ErrorCode.UNKNOWN_MEMBER_ID
    consumer.epoch, consumer.assigned = 0, frozenset()
    assert code(consumer.joins("foo")) is OK
    anew = room.classic(group_id="classics")
    room.completing(anew)
    assert anew.generation == LEAST + 1
    assert consumer.epoch > LEAST
