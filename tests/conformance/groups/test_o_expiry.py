"""O. Expiry and removal."""

from __future__ import annotations

import pytest

from coordinator_protocol.errors import ErrorCode
from coordinator_runtime.decision import Operation
from group_coordinator.committed.expiry import decide_expire
from tests.conformance.groups.cases import case
from tests.harness.committed_offsets import ABORT, COMMIT
from tests.harness.group_world import group_world
from tests.harness.groups import GROUP, OK
from tests.harness.world import World

MINUTE_MS = 60_000


def world_that_looks(every_ms: int = 1_000, *, retention_ms: int = MINUTE_MS) -> World:
    return group_world(offsets_retention_check_interval_ms=every_ms, offsets_retention_ms=retention_ms)


@case(247)
def test_offsets_expire_one_by_one_and_then_their_group() -> None:
    world = world_that_looks()
    world.offsets.commits({"foo-0": 1})
    world.pass_time(MINUTE_MS // 2)
    world.offsets.commits({"foo-1": 2})
    world.pass_time(MINUTE_MS // 2 - 1_000)
    assert world.offsets.fetches() == {"foo-0": 1, "foo-1": 2}
    world.pass_time(1_000)
    assert world.offsets.fetches() == {"foo-1": 2}
    world.pass_time(MINUTE_MS // 2)
    assert world.offsets.fetches() == {}
    assert world.groups.listed() == {}
    world.restart()
    assert (world.offsets.state(), world.groups.listed()) == ({}, {})


@case(249)
@pytest.mark.parametrize("outcome", [COMMIT, ABORT])
def test_nothing_expires_where_a_transaction_holds_an_offset(outcome: int) -> None:
    world = group_world(offsets_retention_check_interval_ms=1_000, offsets_retention_ms=10_000)
    world.offsets.commits({"foo-0": 1})
    producer = world.offsets.producer()
    world.pass_time(9_000)
    producer.commits({"foo-0": 2})
    world.pass_time(15_000)
    assert world.offsets.fetches() == {"foo-0": 1}
    assert world.groups.listed() == {GROUP: ("", "Empty", "classic")}
    producer.ends(COMMIT if outcome == COMMIT else ABORT)
    world.pass_time(1_000)
    assert (world.offsets.fetches(), world.groups.listed()) == ({}, {})


@case(250)
def test_a_group_that_rebalances_keeps_its_offsets_and_one_that_is_gone_disturbs_no_other() -> None:
    world = world_that_looks(retention_ms=1_000)
    (member,) = world.classic.completing(
        world.classic.subscriber(session_timeout_ms=600_000, rebalance_timeout_ms=600_000)
    )
    world.classic.assign([member], {})
    world.offsets.committed_by(member, 1)
    world.classic.subscriber().join_as_new()
    assert world.classic.describe().group_state == "PreparingRebalance"
    world.pass_time(10_000)
    assert world.offsets.fetches() == {"foo-0": 1}
    key = world.inside.groups.router.shard_key(GROUP)
    look = Operation(key, lambda shard, turn: decide_expire(shard, ("who", GROUP), turn))
    looked = world.inside.runtime.write(look)
    world.settle()
    assert looked.result() is None
    assert world.offsets.fetches() == {"foo-0": 1}


@case(251)
def test_an_empty_group_without_offsets_is_removed_unless_a_transaction_is_open() -> None:
    world = world_that_looks()
    member = world.classic.subscriber()
    world.classic.form(member, plan={})
    producer = world.offsets.producer()
    producer.commits({"foo-0": 1})
    member.leaves()
    assert world.groups.listed() == {GROUP: ("consumer", "Empty", "classic")}
    world.pass_time(10_000)
    assert world.groups.listed() == {GROUP: ("consumer", "Empty", "classic")}
    producer.ends(ABORT)
    world.pass_time(1_000)
    assert world.groups.listed() == {}
    world.restart()
    assert world.groups.listed() == {}
    assert world.groups.delete() is ErrorCode.GROUP_ID_NOT_FOUND


@case(253)
def test_a_topic_takes_the_offsets_of_all_groups_with_it() -> None:
    world = group_world()
    producer = world.offsets.producer()
    for group_id in ("g", "h", "i"):
        assert world.offsets.commits({"foo-0": 1, "bar-0": 2}, group_id=group_id) == {"foo-0": OK, "bar-0": OK}
        assert producer.commits({"foo-1": 3, "bar-1": 4}, group_id=group_id) == {"foo-1": OK, "bar-1": OK}
    world.delete_topic("foo")
    world.settle()
    world.create_topic("foo", 6)
    producer.ends(COMMIT)
    for group_id in ("g", "h", "i"):
        assert world.offsets.fetches(group_id=group_id, stable=True) == {"bar-0": 2, "bar-1": 4}
        assert world.offsets.fetches("foo-0", "foo-1", group_id=group_id) == {"foo-0": -1, "foo-1": -1}
