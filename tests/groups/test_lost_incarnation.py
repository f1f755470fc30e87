"""A store that lost something gives no generation and no group epoch of the lost incarnation once more."""

from __future__ import annotations

import pytest

from coordinator_api.v1 import group_pb2
from coordinator_protocol.errors import ErrorCode
from coordinator_runtime.incarnation import IncarnationCause
from tests.harness.consumers import all_of, of
from tests.harness.group_world import classic_world, group_world
from tests.harness.groups import OK, code
from tests.harness.memory_store import MemoryStore
from tests.harness.share_groups import share_groups
from tests.harness.streams_groups import streams_groups, tasks
from tests.harness.world import World
from txnctl.stopped.store_verify import verify_store

RESTORED_MS = 1_735_689_600_000 + 5_000_000
LEAST = 5_000
"""The incarnation of a line that begins then: seconds since 2025."""


pytestmark = pytest.mark.copies_store


def restore(world: World, backup: MemoryStore, wall_ms: int = RESTORED_MS) -> None:
    """The backup takes the place of the store, and the server starts."""
    world.settle()
    world.shelf.store = backup.copy()
    world.shelf.store.begin_incarnation(IncarnationCause.RESTORE, wall_ms)
    world.crash()
    world.settle()
    assert [check.violations for check in verify_store(world.shelf.store) if check.violation_count] == []


def test_classic_members_are_gone_and_generations_go_on_above_the_lost_line() -> None:
    world = classic_world()
    (static, dynamic) = world.classic.stable(world.classic.member("i1"), world.classic.member())
    world.settle()
    backup = world.shelf.store.copy()
    (late,) = world.classic.stable(world.classic.member(group_id="only in the lost incarnation"))
    restore(world, backup)
    assert (world.classic.state(), world.classic.generation(), world.classic.member_ids()) == ("Empty", LEAST, [])
    assert static.beats() is ErrorCode.UNKNOWN_MEMBER_ID
    assert dynamic.beats() is ErrorCode.UNKNOWN_MEMBER_ID
    assert code(dynamic.joins()) is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.groups.timers() == {}
    world.classic.stable(static, dynamic, late)
    assert static.generation == LEAST + 1
    assert late.generation == LEAST + 1, "a group of which nothing is left begins there too"
    world.restart()
    assert world.classic.generation() == LEAST + 1, "a plain restart removes no member"
    assert static.beats() is OK


def test_consumers_are_gone_and_group_epochs_go_on_above_the_lost_line() -> None:
    world = group_world()
    first, second = world.consumers.stable(*world.consumers.members("first", "second"))
    world.settle()
    backup = world.shelf.store.copy()
    restore(world, backup)
    assert (world.consumers.state(), world.consumers.epoch(), world.consumers.member_ids()) == ("Empty", LEAST, [])
    assert code(first.beats()) is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.groups.timers() == {}
    for member in (first, second):
        member.epoch, member.assigned = 0, frozenset()
    world.consumers.stable(first, second)
    assert first.epoch > LEAST
    assert first.assigned | second.assigned == all_of(foo=6, bar=3)
    other = world.consumers.member("m")
    other.group_id = "made in this line"
    assert code(other.joins("foo")) is OK
    assert other.epoch > LEAST
    epoch = world.consumers.epoch()
    world.restart()
    assert (world.consumers.epoch(), world.consumers.member_ids()) == (epoch, ["first", "second"]), (
        "a plain restart removes no member"
    )


def test_members_of_share_groups_are_gone_and_the_states_of_their_partitions_stay() -> None:
    shares = share_groups()
    first, second = shares.members("first", "second")
    first.joins("foo")
    second.joins("foo")
    shares.world.settle()
    held = shares.initialized()
    restore(shares.world, shares.world.shelf.store.copy())
    assert (shares.state(), shares.epoch(), shares.member_ids()) == ("Empty", LEAST, [])
    assert code(first.beats()) is ErrorCode.UNKNOWN_MEMBER_ID
    assert (shares.world.groups.timers(), shares.initialized()) == ({}, held)
    first.joins("foo")
    assert (first.epoch, first.assigned) == (LEAST + 1, all_of(foo=6))
    assert set(shares.states.held.values()) == {1}, "no state was made again"


def test_members_of_streams_groups_are_gone_and_their_topology_stays() -> None:
    streams = streams_groups()
    first, second = streams.members("first", "second")
    streams.runs(first, second)
    streams.world.settle()
    restore(streams.world, streams.world.shelf.store.copy())
    assert (streams.state(), streams.epoch(), streams.member_ids()) == ("Empty", LEAST, [])
    assert code(first.beats()) is ErrorCode.UNKNOWN_MEMBER_ID
    assert streams.world.groups.timers() == {}
    first.joins()
    streams.settles(first)
    assert (first.epoch, first.active) == (LEAST + 1, tasks("0", *range(6)))


def test_two_restores_of_one_backup_give_different_epochs() -> None:
    world = group_world()
    world.consumers.stable(*world.consumers.members("first"))
    world.settle()
    backup = world.shelf.store.copy()
    restore(world, backup)
    seen = world.consumers.epoch()
    restore(world, backup, RESTORED_MS + 60_000)
    assert world.consumers.epoch() == seen + 60


def test_committed_offsets_stay_and_old_epochs_commit_no_more() -> None:
    world = group_world()
    (member,) = world.consumers.stable(*world.consumers.members("first"))
    commit = group_pb2.OffsetCommitRequest(
        group_id="g",
        member_id="first",
        generation_id_or_member_epoch=member.epoch,
        topics=[group_pb2.TopicOffsets(topic="foo", partitions=[group_pb2.PartitionOffset(committed_offset=7)])],
    )
    assert [code(result) for result in world.ask(commit).results] == [OK]
    restore(world, world.shelf.store.copy())
    asked = group_pb2.OffsetFetchRequest(groups=[group_pb2.OffsetFetchGroup(group_id="g")])
    (group,) = world.ask(asked).groups
    assert [offset.committed_offset for offset in group.offsets] == [7]
    refused = world.ask(commit)
    assert {code(refused), *(code(result) for result in refused.results)} - {OK} == {ErrorCode.UNKNOWN_MEMBER_ID}


@pytest.mark.parametrize("first_back", ["classic", "consumer"])
def test_a_group_of_both_kinds_begins_anew_with_either_kind_back_first(first_back: str) -> None:
    world = group_world()
    old = world.classic.subscriber("i1", topics=("foo",))
    world.classic.form(old, plan={0: of("foo", 0)})
    new = world.consumers.member("new")
    assert code(new.joins("foo")) is OK
    assert (world.groups.kind(), len(world.consumers.member_ids())) == ("consumer", 2)
    world.settle()
    backup = world.shelf.store.copy()
    assert code(world.consumers.member("only in the lost incarnation").joins("foo")) is OK
    lost_epoch = world.consumers.epoch()
    restore(world, backup)
    assert (world.consumers.member_ids(), world.groups.timers()) == ([], {})
    assert old.beats() is ErrorCode.UNKNOWN_MEMBER_ID
    assert code(new.beats()) is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.consumers.epoch() >= LEAST > lost_epoch
    again = world.classic.subscriber("i1", topics=("foo",))
    if first_back == "classic":
        world.classic.form(again, plan={0: all_of(foo=6)})
        assert (world.groups.kind(), again.generation > LEAST) == ("classic", True)
    new.epoch, new.assigned = 0, frozenset()
    assert code(new.joins("foo")) is OK
    if first_back == "consumer":
        joined = again.join_as_new()
        world.settle()
        assert code(joined.result()) is OK
    assert (world.groups.kind(), len(world.consumers.member_ids())) == ("consumer", 2)
    assert new.epoch > LEAST
    assert world.consumers.epoch() > LEAST
    epoch = world.consumers.epoch()
    world.restart()
    assert (world.consumers.epoch(), len(world.consumers.member_ids())) == (epoch, 2), (
        "a plain restart removes no member"
    )


def test_groups_of_each_kind_in_one_store_begin_in_the_new_line() -> None:
    world = group_world()
    classic = world.classic.subscriber(group_id="classics")
    world.classic.completing(classic)
    world.classic.assign([classic], {})
    consumer = world.consumers.member("m")
    assert code(consumer.joins("foo")) is OK
    world.settle()
    restore(world, world.shelf.store.copy())
    assert classic.beats() is ErrorCode.UNKNOWN_MEMBER_ID
    assert code(consumer.beats()) is ErrorCode.UNKNOWN_MEMBER_ID
    consumer.epoch, consumer.assigned = 0, frozenset()
    assert code(consumer.joins("foo")) is OK
    anew = world.classic.subscriber(group_id="classics")
    world.classic.completing(anew)
    assert anew.generation == LEAST + 1
    assert consumer.epoch > LEAST
