"""What of a group changes with its members, and what stays."""

from __future__ import annotations

from tests.groups.classic.members import OK, ClassicRoom, code, protocols, subscribed


def test_an_empty_group_may_change_its_type() -> None:
    room = ClassicRoom()
    (member,) = room.stable(room.member())
    member.leaves()
    room.completing(room.member(protocol_type="connect"))
    assert (room.describe().protocol_type, room.generation()) == ("connect", 3)


def test_a_rebalance_that_fails_takes_the_assignments_with_it() -> None:
    room = ClassicRoom()
    leader, follower = room.stable(room.member(), room.member())
    leader.join()
    follower.joins()
    assert [member.assignment for member in room.group().members.values()] == [b"part-0", b"part-1"]
    room.member(one_step=True).joining()
    assert [member.assignment for member in room.group().members.values()] == [b"", b"", b""]


def test_a_static_member_that_comes_back_brings_its_own_subscription() -> None:
    room = ClassicRoom()
    room.stable(room.member("i1"))
    assert [room.group().is_subscribed_to(topic) for topic in ("foo", "bar")] == [True, False]
    room.member("i1", protocols=protocols("range", metadata=subscribed("bar"))).joins()
    assert [room.group().is_subscribed_to(topic) for topic in ("foo", "bar")] == [False, True]


def test_an_old_static_leader_that_comes_back_does_not_learn_that_it_leads() -> None:
    """It knows nothing of skip_assignment, and would assign."""
    room = ClassicRoom()
    (member,) = room.stable(room.member("i1"))
    former = member.member_id
    back = room.member("i1", supports_skip_assignment=False)
    answer = back.joins()
    assert (code(answer), answer.leader, list(answer.members)) == (OK, former, [])
    assert (answer.skip_assignment, room.describe().leader) == (False, back.member_id)


def test_a_static_member_that_comes_back_before_it_asked_for_its_part_may_take_its_time() -> None:
    room = ClassicRoom()
    leader, static = room.completing(*(room.member(name, session_timeout_ms=60_000) for name in ("L", "F")))
    leader.syncs({static.member_id: b"mine"})
    static.joins(member_id="")
    assert room.timers() == {"session": 2}
    room.tick(20_000)
    assert static.syncs().assignment == b"mine"
