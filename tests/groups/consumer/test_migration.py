"""Groups on their way from one protocol to the other, where the cases of Kafka say nothing."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator_api.v1 import group_pb2
from coordinator_protocol.consumer_protocol import Assignment, encode_assignment
from coordinator_protocol.errors import ErrorCode
from group_coordinator.config import MigrationPolicy
from tests.harness.classic_members import assigned, assignment, subscription
from tests.harness.consumers import all_of, of
from tests.harness.group_world import group_world
from tests.harness.groups import OK, code
from tests.harness.world import World


@pytest.mark.parametrize(
    ("metadata", "plan"),
    [
        (b"\0", assignment(of("foo", 0))),
        (subscription("foo"), b"\0"),
        (subscription("foo"), encode_assignment(Assignment(partitions={"foo": (0,)}, user_data=b"more"))),
    ],
)
def test_a_group_that_cannot_be_read_stays_as_it_is(metadata: bytes, plan: bytes) -> None:
    world = group_world()
    old = world.classic.subscriber(protocols=[("range", metadata)])
    world.classic.completing(old)
    world.classic.assign([old], {0: plan})
    assert code(world.consumers.member("new").joins("foo")) is ErrorCode.GROUP_ID_NOT_FOUND
    assert (world.groups.kind(), old.beats()) == ("classic", OK)


def test_what_a_leader_gave_to_two_members_stays_with_the_first() -> None:
    world = group_world()
    first, second = members = [world.classic.subscriber(), world.classic.subscriber()]
    world.classic.form(*members, plan={0: of("foo", 0, 1), 1: of("foo", 1, 2, 77)})
    world.consumers.member("new").joins("foo")
    group = world.consumers.group()
    assert {
        member.member_id: sum(map(len, group.assignment(member.member_id).assigned.values())) for member in members
    } == {first.member_id: 2, second.member_id: 1}


def test_an_empty_group_changes_its_kind_freely() -> None:
    world = group_world(consumer_migration_policy=MigrationPolicy.DISABLED)
    old = world.classic.subscriber()
    world.classic.form(old, plan={})
    assert old.leaves() is OK
    new = world.consumers.member("new")
    assert (new.joins("foo").member_epoch, world.groups.kind()) == (1, "consumer")
    new.leaves()
    again = world.classic.subscriber()
    assert not again.join_as_new().is_settled
    assert world.groups.kind() == "classic"


def test_an_id_that_was_only_given_away_is_no_member() -> None:
    world = group_world()
    world.classic.subscriber().asked_for_id()
    assert world.groups.timers() == {"session": 1}
    new = world.consumers.member("new")
    assert code(new.joins("foo")) is OK
    assert (world.groups.kind(), world.groups.timers()) == ("consumer", {"session": 1})


def rolled(world: World, *members: Any) -> None:
    """Let classic members follow their answers until they hold their assignments."""
    for _round in range(6):
        for member in members:
            if member.beats() is ErrorCode.REBALANCE_IN_PROGRESS:
                joined = member.joins()
                assert code(joined) is OK
            synced = member.syncs()
            if code(synced) is OK:
                owned = assigned(synced.assignment)
                member.protocols = [("range", subscription("foo", "bar", owned=owned))]
                member.has = owned


def test_a_rolling_upgrade_and_back_loses_no_partition() -> None:
    world = group_world()
    old = world.classic.subscriber()
    world.classic.form(old, plan={0: all_of(foo=6, bar=3)})
    old.protocols = [("range", subscription("foo", "bar", owned=all_of(foo=6, bar=3)))]
    new = world.consumers.member("new")
    assert code(new.joins("foo", "bar")) is OK
    rolled(world, old)
    new.acknowledges()
    rolled(world, old)
    new.acknowledges()
    assert new.assigned | old.has == all_of(foo=6, bar=3)
    assert not new.assigned & old.has
    assert world.consumers.state() == "Stable"
    new.leaves()
    assert (world.groups.kind(), old.beats()) == ("classic", ErrorCode.REBALANCE_IN_PROGRESS)
    generation = old.generation
    assert code(old.joins()) is OK
    assert (old.is_leader, old.generation) == (True, generation + 1)


def test_both_kinds_hear_at_once() -> None:
    world = group_world()
    (new,) = world.consumers.stable(world.consumers.member("new"))
    old = world.classic.subscriber()
    assert code(old.join_as_new().result()) is OK
    old.syncs()
    waiting = old.heartbeat(max_wait_ms=4_000)
    world.settle()
    assert not waiting.is_settled
    new.subscribes("foo")
    world.pass_time(10)
    assert code(waiting.result()) is ErrorCode.REBALANCE_IN_PROGRESS


def test_offsets_of_a_mixed_group_are_checked_by_the_kind_of_the_member() -> None:
    world = group_world()
    (new,) = world.consumers.stable(world.consumers.member("new"))
    old = world.classic.subscriber()
    old.join_as_new()

    def commit(member_id: str, epoch: int) -> ErrorCode:
        offset = group_pb2.PartitionOffset(partition=0, committed_offset=1)
        request = group_pb2.OffsetCommitRequest(
            group_id="g",
            member_id=member_id,
            generation_id_or_member_epoch=epoch,
            topics=[group_pb2.TopicOffsets(topic="foo", partitions=[offset])],
        )
        return code(world.ask(request))

    assert commit(new.member_id, new.epoch) is OK
    assert commit(new.member_id, new.epoch + 1) is ErrorCode.STALE_MEMBER_EPOCH
    assert commit(old.member_id, old.generation) is OK
    assert commit(old.member_id, old.generation - 1) is ErrorCode.ILLEGAL_GENERATION
    assert commit("nobody", 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_an_administrator_removes_members_of_the_consumer_protocol_too() -> None:
    world = group_world()
    dynamic, static, stays = world.consumers.stable(
        world.consumers.member("dynamic"), world.consumers.member("static", "host"), world.consumers.member("stays")
    )
    leaving = [
        group_pb2.LeavingMember(member_id="dynamic"),
        group_pb2.LeavingMember(group_instance_id="host"),
        group_pb2.LeavingMember(member_id="dynamic"),
        group_pb2.LeavingMember(member_id="stays", group_instance_id="unknown"),
    ]
    group_id = world.consumers.group().group_id
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert world.classic.leave(*leaving, group_id=group_id) == [OK, OK, unknown, unknown]
    assert code(dynamic.beats()) is unknown
    assert code(static.beats()) is unknown
    assert code(stays.beats()) is OK
