"""How many sessions there are, and which of them end."""

from __future__ import annotations

from functools import partial

import pytest

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_runtime.ports import PartitionRef
from group_coordinator.share_partitions.sessions import MemberKey, ShareSession, ShareSessions
from tests.harness.group_world import group_world
from tests.harness.groups import GROUP, code
from tests.harness.share_consumers import alter_shares, share_consumer
from tests.harness.share_partitions import Shares


def key(member_id: str) -> MemberKey:
    return MemberKey("g", member_id)


def ref(ordinal: int) -> PartitionRef:
    return PartitionRef("t", b"t" * 16, ordinal, ordinal)


def refusal(sessions: ShareSessions, member_id: str, epoch: int) -> ErrorCode:
    with pytest.raises(Refused) as refused:
        sessions.take(key(member_id), epoch)
    return refused.value.code


def test_no_session_is_begun_beyond_the_limit() -> None:
    sessions = ShareSessions(2)
    sessions.open(key("a"))
    sessions.open(key("b"))
    with pytest.raises(Refused) as refused:
        sessions.open(key("c"))
    assert refused.value.code is ErrorCode.SHARE_SESSION_LIMIT_REACHED
    assert sessions.take(key("a"), 1).next_epoch == 2
    sessions.open(key("a"))
    sessions.end(key("b"))
    sessions.open(key("c"))
    assert len(sessions) == 2


def test_a_member_beyond_the_limit_is_told_and_comes_in_when_another_one_leaves() -> None:
    world = group_world(topics={"t": 1}, share_sessions_max=1)
    alter_shares(world, auto_offset_reset="earliest")
    first, second = share_consumer(world, "a", "t"), share_consumer(world, "b", "t")
    Shares(world, "t-0", GROUP).produce(1)
    assert first.fetch() == {"t-0": [0]}
    assert code(second.asks()) is ErrorCode.SHARE_SESSION_LIMIT_REACHED
    first.closes()
    assert second.fetch() == {"t-0": [0]}


def test_a_session_with_a_fetch_that_waits_stays_if_another_is_idle() -> None:
    sessions = ShareSessions(10, partitions_max=2)
    told: list[str] = []
    for name in ("a", "b", "c"):
        sessions.add(sessions.open(key(name)), ref(0))
        if name != "b":
            sessions.take(key(name), 1).on_end["fetch"] = partial(told.append, name)
    assert refusal(sessions, "b", 1) is ErrorCode.SHARE_SESSION_NOT_FOUND
    assert not told


def test_a_session_never_ends_for_a_partition_of_its_own() -> None:
    sessions = ShareSessions(10, partitions_max=2)
    waiting, growing = sessions.open(key("a")), sessions.open(key("b"))
    waiting.on_end["fetch"] = lambda: None
    for number in range(3):
        sessions.add(growing, ref(number))
    assert sessions.is_current(growing)
    assert [*growing.partitions] == [0, 1, 2]
    assert not sessions.is_current(waiting), "the only other one"


def test_a_session_that_has_ended_takes_no_partition() -> None:
    sessions = ShareSessions(10, partitions_max=2)
    ended = sessions.open(key("a"))
    sessions.end(key("a"))
    for number in range(3):
        sessions.add(ended, ref(number))
    assert not ended.partitions
    first, second = sessions.open(key("b")), sessions.open(key("c"))
    sessions.add(first, ref(0))
    sessions.add(second, ref(0))
    assert sessions.is_current(first), "what has ended counts no more"


def test_the_partitions_of_all_sessions_are_bounded_too() -> None:
    sessions = ShareSessions(10, partitions_max=3)
    first, second = sessions.open(key("a")), sessions.open(key("b"))
    for number in range(2):
        sessions.add(first, ref(number))
    for number in range(2):
        sessions.add(second, ref(number))
    assert not sessions.is_current(first)
    assert sessions.is_current(second)
    sessions.remove(second, 0)
    sessions.remove(second, 0)
    for number in range(2, 10):
        sessions.add(second, ref(number))
    assert sessions.is_current(second), "the last one stays, whatever it has"


def test_the_epoch_after_the_greatest_is_one() -> None:
    sessions = ShareSessions(10)
    session = sessions.open(key("a"))
    session.next_epoch = 0x7FFF_FFFF
    sessions.take(key("a"), 0x7FFF_FFFF)
    assert session.next_epoch == 1


def test_a_partition_that_brought_records_is_read_last() -> None:
    session = ShareSession(key("a"))
    session.partitions = {number: ref(number) for number in range(3)}
    session.give_way(0)
    session.give_way(7)
    assert [*session.partitions] == [1, 2, 0]
