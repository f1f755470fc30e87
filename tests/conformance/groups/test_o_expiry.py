"""O. Expiry and removal."""

from __future__ import annotations

import pytest

from coordinator_protocol.errors import ErrorCode
from coordinator_runtime.decision import Operation
from group_coordinator.committed.expiry import decide_expire
from tests.conformance.groups.cases import case
from tests.groups.committed.room import ABORT, COMMIT, GROUP, OK, OffsetRoom

MINUTE_MS = 60_000


def room_that_looks(every_ms: int = 1_000, *, retention_ms: int = MINUTE_MS) -> OffsetRoom:
    return OffsetRoom(offsets_retention_check_interval_ms=every_ms, offsets_retention_ms=retention_ms)


@case(247)
def test_offsets_expire_one_by_one_and_then_their_group() -> None:
    room = room_that_looks()
    room.commits({"foo-0": 1})
    room.tick(MINUTE_MS // 2)
    room.commits({"foo-1": 2})
    room.tick(MINUTE_MS // 2 - 1_000)
    assert room.fetches() == {"foo-0": 1, "foo-1": 2}
    room.tick(1_000)
    assert room.fetches() == {"foo-1": 2}
    room.tick(MINUTE_MS // 2)
    assert room.fetches() == {}
    assert room.listed() == {}
    room.restart()
    assert (room.offsets_state(), room.listed()) == ({}, {})


@case(249)
@pytest.mark.parametrize("outcome", [COMMIT, ABORT])
def test_nothing_expires_where_a_transaction_holds_an_offset(outcome: int) -> None:
    room = OffsetRoom(offsets_retention_check_interval_ms=1_000, offsets_retention_ms=10_000)
    room.commits({"foo-0": 1})
    producer = room.producer()
    room.tick(9_000)
    producer.commits({"foo-0": 2})
    room.tick(15_000)
    assert room.fetches() == {"foo-0": 1}
    assert room.listed() == {GROUP: ("", "Empty", "classic")}
    producer.ends(COMMIT if outcome == COMMIT else ABORT)
    room.tick(1_000)
    assert (room.fetches(), room.listed()) == ({}, {})


@case(250)
def test_a_group_that_rebalances_keeps_its_offsets_and_one_that_is_gone_disturbs_nobody() -> None:
    room = room_that_looks(retention_ms=1_000)
    (member,) = room.completing(room.classic(session_timeout_ms=600_000, rebalance_timeout_ms=600_000))
    room.assign([member], {})
    room.committed_by(member, 1)
    room.classic().join_as_new()
    assert room.classic_state().group_state == "PreparingRebalance"
    room.tick(10_000)
    assert room.fetches() == {"foo-0": 1}
    key = room.inside.router.shard_key(GROUP)
    look = Operation(key, lambda shard, turn: decide_expire(shard, ("who", GROUP), turn))
    looked = room.inside.runtime.write(look)
    room.settle()
    assert looked.result() is None
    assert room.fetches() == {"foo-0": 1}


@case(251)
def test_an_empty_group_without_offsets_is_removed_unless_a_transaction_is_open() -> None:
    room = room_that_looks()
    member = room.classic()
    room.classic_group(member, plan={})
    producer = room.producer()
    producer.commits({"foo-0": 1})
    member.leaves()
    assert room.listed() == {GROUP: ("consumer", "Empty", "classic")}
    room.tick(10_000)
    assert room.listed() == {GROUP: ("consumer", "Empty", "classic")}
    producer.ends(ABORT)
    room.tick(1_000)
    assert room.listed() == {}
    room.restart()
    assert room.listed() == {}
    assert room.deletes_group() is ErrorCode.GROUP_ID_NOT_FOUND


@case(253)
def test_a_topic_takes_the_offsets_of_all_groups_with_it() -> None:
    room = OffsetRoom()
    producer = room.producer()
    for group_id in ("g", "h", "i"):
        assert room.commits({"foo-0": 1, "bar-0": 2}, group_id=group_id) == {"foo-0": OK, "bar-0": OK}
        assert producer.commits({"foo-1": 3, "bar-1": 4}, group_id=group_id) == {"foo-1": OK, "bar-1": OK}
    room.delete_topic("foo")
    room.create_topic("foo", 6)
    producer.ends(COMMIT)
    for group_id in ("g", "h", "i"):
        assert room.fetches(group_id=group_id, stable=True) == {"bar-0": 2, "bar-1": 4}
        assert room.fetches("foo-0", "foo-1", group_id=group_id) == {"foo-0": -1, "foo-1": -1}
