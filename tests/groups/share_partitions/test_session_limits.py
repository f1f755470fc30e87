"""How many sessions there are, and which of them end."""

from __future__ import annotations

import pytest

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_runtime.ports import PartitionRef
from group_coordinator.share_partitions.sessions import MemberKey, ShareSession, ShareSessions


def key(member_id: str) -> MemberKey:
    return MemberKey("g", member_id)


def ref(ordinal: int) -> PartitionRef:
    return PartitionRef("t", b"t" * 16, ordinal, ordinal)


def refusal(sessions: ShareSessions, member_id: str, epoch: int) -> ErrorCode:
    with pytest.raises(Refused) as refused:
        sessions.take(key(member_id), epoch)
    return refused.value.code


def test_the_session_that_was_idle_for_longest_goes_first() -> None:
    sessions = ShareSessions(sessions_max=2)
    sessions.open(key("a"))
    sessions.open(key("b"))
    sessions.take(key("a"), 1)
    sessions.open(key("c"))
    assert refusal(sessions, "b", 1) is ErrorCode.SHARE_SESSION_NOT_FOUND
    assert sessions.take(key("a"), 2).next_epoch == 3
    assert len(sessions) == 2


def test_a_session_with_a_fetch_that_waits_stays_if_another_is_idle() -> None:
    sessions = ShareSessions(sessions_max=2)
    told: list[str] = []
    sessions.open(key("a")).on_end["fetch"] = lambda: told.append("a")
    sessions.open(key("b"))
    sessions.open(key("c")).on_end["fetch"] = lambda: told.append("c")
    assert refusal(sessions, "b", 1) is ErrorCode.SHARE_SESSION_NOT_FOUND
    assert not told
    sessions.open(key("d"))
    assert told == ["a"]


def test_the_partitions_of_all_sessions_are_bounded_too() -> None:
    sessions = ShareSessions(partitions_max=3)
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
    sessions = ShareSessions()
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
