"""B. Classic join and initial delay."""

from __future__ import annotations

from coordinator_protocol.errors import ErrorCode
from tests.conformance.groups.cases import case
from tests.groups.classic.members import DELAY_MS, GROUP, OK, ClassicRoom, code, protocols, subscribed


@case(13)
def test_an_unknown_id_is_no_member() -> None:
    room = ClassicRoom()
    room.stable(room.member())
    assert code(room.member(member_id="other-member-id").joins()) is ErrorCode.UNKNOWN_MEMBER_ID


@case(14)
def test_who_joins_brings_a_type_and_protocols() -> None:
    room = ClassicRoom()
    (member,) = room.stable(room.member())
    member.leaves()
    assert room.state() == "Empty"
    for without in (room.member(protocol_type=""), room.member(protocols=[])):
        assert code(without.joins()) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@case(15)
def test_all_members_are_of_one_type() -> None:
    room = ClassicRoom()
    (member,) = room.stable(room.member())
    assert code(room.member(protocol_type="connect").joins()) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert (member.beats(), room.state(), room.generation()) == (OK, "Stable", 1)


@case(17)
def test_a_refusal_names_no_protocol() -> None:
    room = ClassicRoom()
    refused = room.member(member_id="nobody").joins()
    assert not refused.HasField("protocol_type")
    assert not refused.HasField("protocol_name")
    joining = room.member().join_as_new()
    room.tick(DELAY_MS)
    joined = joining.result()
    assert (joined.protocol_type, joined.protocol_name) == ("consumer", "range")


@case(18)
def test_a_new_dynamic_member_is_first_told_its_id() -> None:
    room = ClassicRoom()
    answer = room.member(client_id="client-7").joins()
    assert code(answer) is ErrorCode.MEMBER_ID_REQUIRED
    assert answer.member_id.startswith("client-7-")
    assert (room.state(), room.size(), room.timers()) == ("Empty", 0, {"session": 1})


@case(19)
def test_the_first_rebalance_waits_for_more_members() -> None:
    room = ClassicRoom()
    member = room.member()
    joining = member.join_as_new()
    room.tick(1_500)
    assert not joining.is_settled
    room.tick(1_501)
    joined = joining.result()
    assert (joined.generation_id, joined.leader) == (1, member.member_id)
    assert [each.member_id for each in joined.members] == [member.member_id]


@case(21)
def test_the_wait_never_exceeds_the_rebalance_timeout() -> None:
    room = ClassicRoom()
    joining = [room.member(rebalance_timeout_ms=6_000).join_as_new() for _ in range(2)]
    room.tick(3_001)
    joining.append(room.member(rebalance_timeout_ms=6_000).join_as_new())
    room.tick(5_999 - 3_001)
    assert not any(reply.is_settled for reply in joining)
    room.tick(2)
    assert [code(reply.result()) for reply in joining] == [OK] * 3


@case(22)
def test_who_begins_the_rebalance_does_not_extend_its_wait() -> None:
    room = ClassicRoom()
    joining = room.member(rebalance_timeout_ms=60_000).join_as_new()
    room.tick(2_999)
    assert not joining.is_settled
    room.tick(1)
    assert code(joining.result()) is OK


@case(23)
def test_who_comes_while_it_waits_extends_it_once() -> None:
    room = ClassicRoom()
    joining = [room.member().join_as_new() for _ in range(2)]
    room.tick(5_999)
    assert not any(reply.is_settled for reply in joining)
    room.tick(1)
    assert [code(reply.result()) for reply in joining] == [OK] * 2


@case(25)
def test_an_id_that_nobody_joins_with_expires() -> None:
    room = ClassicRoom()
    member = room.member(session_timeout_ms=1_000)
    member.asked_for_id()
    room.tick(1_000)
    assert code(member.joins()) is ErrorCode.UNKNOWN_MEMBER_ID


@case(26)
def test_a_new_member_waits_five_minutes_at_most() -> None:
    room = ClassicRoom(initial_rebalance_delay_ms=600_000)
    joining = room.member().join_as_new()
    room.tick(299_999)
    assert not joining.is_settled
    room.tick(1)
    answer = joining.result()
    assert (code(answer), answer.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "")
    assert (room.state(), room.generation(), room.timers()) == ("Empty", 1, {})


@case(27)
def test_the_session_timeout_of_a_new_member_does_not_count() -> None:
    room = ClassicRoom()
    (stays,) = room.stable(room.member(session_timeout_ms=305_000, rebalance_timeout_ms=600_000))
    joining = room.member(one_step=True).joining()
    room.tick(299_999)
    assert not joining.is_settled
    room.tick(1)
    assert code(joining.result()) is ErrorCode.UNKNOWN_MEMBER_ID
    assert room.member_ids() == [stays.member_id]


@case(29)
def test_after_its_first_answer_the_session_timeout_counts() -> None:
    room = ClassicRoom()
    (first,) = room.stable(room.member())
    second = room.member()
    joining = second.join_as_new()
    first.joins()
    assert code(joining.result()) is OK
    room.tick(4_999)
    assert room.size() == 2
    room.tick(1)
    assert (room.state(), room.size(), room.timers()) == ("Empty", 0, {})


@case(
    30, differs="a group that is deleted is gone at once, and a shard that left answers NOT_COORDINATOR: none is Dead"
)
def test_a_group_that_left_must_be_found_again() -> None:
    room = ClassicRoom()
    (known,) = room.stable(room.member())
    room.unload(GROUP)
    assert {code(known.joins()), code(room.member().joins())} == {ErrorCode.NOT_COORDINATOR}


@case(31)
def test_who_left_an_empty_group_is_no_member() -> None:
    room = ClassicRoom()
    (member,) = room.stable(room.member())
    member.leaves()
    assert code(member.joins()) is ErrorCode.UNKNOWN_MEMBER_ID


@case(33)
def test_the_leader_may_start_a_rebalance_with_nothing_new() -> None:
    room = ClassicRoom()
    leader, follower = room.stable(room.member(), room.member())
    joining = leader.joining()
    assert room.state() == "PreparingRebalance"
    assert follower.joins().generation_id == joining.result().generation_id == 2


@case(34)
def test_a_follower_with_nothing_new_gets_its_answer_again() -> None:
    room = ClassicRoom()
    leader, follower = room.stable(room.member(), room.member())
    answer = follower.joins()
    assert (answer.generation_id, answer.leader, list(answer.members)) == (1, leader.member_id, [])
    assert (room.state(), room.generation()) == ("Stable", 1)


@case(35)
def test_new_metadata_of_a_follower_rebalances() -> None:
    room = ClassicRoom()
    _leader, follower = room.stable(room.member(), room.member())
    follower.protocols = protocols("range", metadata=subscribed("bar"))
    follower.joining()
    assert room.state() == "PreparingRebalance"


@case(37)
def test_who_does_not_join_in_time_is_left_out() -> None:
    room = ClassicRoom()
    leader, follower = room.stable(*(room.member(rebalance_timeout_ms=1_000) for _ in range(2)))
    joining = leader.joining()
    room.tick(1_000)
    assert (joining.result().generation_id, room.member_ids()) == (2, [leader.member_id])
    assert follower.beats() is ErrorCode.UNKNOWN_MEMBER_ID


@case(38)
def test_a_rebalance_that_all_have_joined_does_not_wait() -> None:
    room = ClassicRoom()
    (leader,) = room.stable(room.member())
    assert leader.joins().generation_id == 2


@case(39)
def test_a_rebalance_waits_for_ids_that_were_given_away() -> None:
    room = ClassicRoom()
    leader, follower, third = *room.stable(room.member(), room.member()), room.member()
    third.asked_for_id()
    joining = [leader.joining(), follower.joining(), third.join()]
    room.settle()
    assert [reply.result().generation_id for reply in joining] == [2, 2, 2]
    assert room.size() == 3


@case(41)
def test_an_id_that_nobody_joins_with_disturbs_nobody() -> None:
    room = ClassicRoom()
    (member,) = room.stable(room.member("i1"))
    room.member().asked_for_id()
    beats = []
    for _half in range(2):
        room.tick(2_500)
        beats.append(member.beats())
    assert (beats, room.generation(), room.size()) == ([OK, OK], 1, 1)


@case(42)
def test_the_protocol_is_voted_for_among_those_that_all_have() -> None:
    room = ClassicRoom()
    preferred = (("range", "roundrobin"), ("roundrobin", "range"), ("roundrobin", "sticky"))
    tied = [room.member(protocols=protocols(*names)) for names in preferred[:2]]
    room.completing(*tied)
    assert tied[0].syncs().protocol_name == "range"
    three = [room.member(group_id="three", protocols=protocols(*names)) for names in preferred]
    room.completing(*three)
    assert three[0].syncs().protocol_name == "roundrobin"


@case(43)
def test_who_joins_needs_a_protocol_that_all_have() -> None:
    room = ClassicRoom()
    room.completing(
        room.member(protocols=protocols("range", "sticky")), room.member(protocols=protocols("sticky", "roundrobin"))
    )
    refused = room.member(one_step=True, protocols=protocols("roundrobin", "foo")).joins()
    assert code(refused) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    room.member(one_step=True, protocols=protocols("sticky")).joining()


@case(45)
def test_a_static_member_that_comes_again_takes_its_own_place() -> None:
    room = ClassicRoom()
    first, second = room.member("i1"), room.member("i1")
    fenced, joining = first.joining(), second.joining()
    assert code(fenced.result()) is ErrorCode.FENCED_INSTANCE_ID
    room.tick(DELAY_MS)
    assert (code(joining.result()), room.member_ids()) == (OK, [second.member_id])
