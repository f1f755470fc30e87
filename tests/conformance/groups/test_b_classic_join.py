"""B. Classic join and initial delay."""

from __future__ import annotations

from coordinator_protocol.errors import ErrorCode
from tests.conformance.groups.cases import case
from tests.harness.classic_members import DELAY_MS, protocols, subscribed
from tests.harness.group_world import classic_world
from tests.harness.groups import GROUP, OK, code


@case(13)
def test_an_unknown_id_is_no_member() -> None:
    world = classic_world()
    world.classic.stable(world.classic.member())
    assert code(world.classic.member(member_id="other-member-id").joins()) is ErrorCode.UNKNOWN_MEMBER_ID


@case(14)
def test_who_joins_brings_a_type_and_protocols() -> None:
    world = classic_world()
    (member,) = world.classic.stable(world.classic.member())
    member.leaves()
    assert world.classic.state() == "Empty"
    for without in (world.classic.member(protocol_type=""), world.classic.member(protocols=[])):
        assert code(without.joins()) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@case(15)
def test_all_members_are_of_one_type() -> None:
    world = classic_world()
    (member,) = world.classic.stable(world.classic.member())
    assert code(world.classic.member(protocol_type="connect").joins()) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert (member.beats(), world.classic.state(), world.classic.generation()) == (OK, "Stable", 1)


@case(17)
def test_a_refusal_names_no_protocol() -> None:
    world = classic_world()
    refused = world.classic.member(member_id="nobody").joins()
    assert not refused.HasField("protocol_type")
    assert not refused.HasField("protocol_name")
    joining = world.classic.member().join_as_new()
    world.pass_time(DELAY_MS)
    joined = joining.result()
    assert (joined.protocol_type, joined.protocol_name) == ("consumer", "range")


@case(18)
def test_a_new_dynamic_member_is_first_told_its_id() -> None:
    world = classic_world()
    answer = world.classic.member(client_id="client-7").joins()
    assert code(answer) is ErrorCode.MEMBER_ID_REQUIRED
    assert answer.member_id.startswith("client-7-")
    assert (world.classic.state(), world.classic.size(), world.groups.timers()) == ("Empty", 0, {"session": 1})


@case(19)
def test_the_first_rebalance_waits_for_more_members() -> None:
    world = classic_world()
    member = world.classic.member()
    joining = member.join_as_new()
    world.pass_time(1_500)
    assert not joining.is_settled
    world.pass_time(1_501)
    joined = joining.result()
    assert (joined.generation_id, joined.leader) == (1, member.member_id)
    assert [each.member_id for each in joined.members] == [member.member_id]


@case(21)
def test_the_wait_never_exceeds_the_rebalance_timeout() -> None:
    world = classic_world()
    joining = [world.classic.member(rebalance_timeout_ms=6_000).join_as_new() for _ in range(2)]
    world.pass_time(3_001)
    joining.append(world.classic.member(rebalance_timeout_ms=6_000).join_as_new())
    world.pass_time(5_999 - 3_001)
    assert not any(reply.is_settled for reply in joining)
    world.pass_time(2)
    assert [code(reply.result()) for reply in joining] == [OK] * 3


@case(22)
def test_who_begins_the_rebalance_does_not_extend_its_wait() -> None:
    world = classic_world()
    joining = world.classic.member(rebalance_timeout_ms=60_000).join_as_new()
    world.pass_time(2_999)
    assert not joining.is_settled
    world.pass_time(1)
    assert code(joining.result()) is OK


@case(23)
def test_who_comes_while_it_waits_extends_it_once() -> None:
    world = classic_world()
    joining = [world.classic.member().join_as_new() for _ in range(2)]
    world.pass_time(5_999)
    assert not any(reply.is_settled for reply in joining)
    world.pass_time(1)
    assert [code(reply.result()) for reply in joining] == [OK] * 2


@case(25)
def test_an_unused_member_id_expires() -> None:
    world = classic_world()
    member = world.classic.member(session_timeout_ms=1_000)
    member.asked_for_id()
    world.pass_time(1_000)
    assert code(member.joins()) is ErrorCode.UNKNOWN_MEMBER_ID


@case(26)
def test_a_new_member_waits_five_minutes_at_most() -> None:
    world = classic_world(initial_rebalance_delay_ms=600_000)
    joining = world.classic.member().join_as_new()
    world.pass_time(299_999)
    assert not joining.is_settled
    world.pass_time(1)
    answer = joining.result()
    assert (code(answer), answer.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "")
    assert (world.classic.state(), world.classic.generation(), world.groups.timers()) == ("Empty", 1, {})


@case(27)
def test_the_session_timeout_of_a_new_member_does_not_count() -> None:
    world = classic_world()
    (stays,) = world.classic.stable(world.classic.member(session_timeout_ms=305_000, rebalance_timeout_ms=600_000))
    joining = world.classic.member(one_step=True).joining()
    world.pass_time(299_999)
    assert not joining.is_settled
    world.pass_time(1)
    assert code(joining.result()) is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.classic.member_ids() == [stays.member_id]


@case(29)
def test_after_its_first_answer_the_session_timeout_counts() -> None:
    world = classic_world()
    (first,) = world.classic.stable(world.classic.member())
    second = world.classic.member()
    joining = second.join_as_new()
    first.joins()
    assert code(joining.result()) is OK
    world.pass_time(4_999)
    assert world.classic.size() == 2
    world.pass_time(1)
    assert (world.classic.state(), world.classic.size(), world.groups.timers()) == ("Empty", 0, {})


@case(
    30, differs="a group that is deleted is gone at once, and a shard that left answers NOT_COORDINATOR: none is Dead"
)
def test_a_group_that_left_must_be_found_again() -> None:
    world = classic_world()
    (known,) = world.classic.stable(world.classic.member())
    world.unload(f"group:{GROUP}")
    assert {code(known.joins()), code(world.classic.member().joins())} == {ErrorCode.NOT_COORDINATOR}


@case(31)
def test_who_left_an_empty_group_is_no_member() -> None:
    world = classic_world()
    (member,) = world.classic.stable(world.classic.member())
    member.leaves()
    assert code(member.joins()) is ErrorCode.UNKNOWN_MEMBER_ID


@case(33)
def test_the_leader_may_start_a_rebalance_with_nothing_new() -> None:
    world = classic_world()
    leader, follower = world.classic.stable(world.classic.member(), world.classic.member())
    joining = leader.joining()
    assert world.classic.state() == "PreparingRebalance"
    assert follower.joins().generation_id == joining.result().generation_id == 2


@case(34)
def test_a_follower_with_nothing_new_gets_its_answer_again() -> None:
    world = classic_world()
    leader, follower = world.classic.stable(world.classic.member(), world.classic.member())
    answer = follower.joins()
    assert (answer.generation_id, answer.leader, list(answer.members)) == (1, leader.member_id, [])
    assert (world.classic.state(), world.classic.generation()) == ("Stable", 1)


@case(35)
def test_new_metadata_of_a_follower_rebalances() -> None:
    world = classic_world()
    _leader, follower = world.classic.stable(world.classic.member(), world.classic.member())
    follower.protocols = protocols("range", metadata=subscribed("bar"))
    follower.joining()
    assert world.classic.state() == "PreparingRebalance"


@case(37)
def test_who_does_not_join_in_time_is_left_out() -> None:
    world = classic_world()
    leader, follower = world.classic.stable(*(world.classic.member(rebalance_timeout_ms=1_000) for _ in range(2)))
    joining = leader.joining()
    world.pass_time(1_000)
    assert (joining.result().generation_id, world.classic.member_ids()) == (2, [leader.member_id])
    assert follower.beats() is ErrorCode.UNKNOWN_MEMBER_ID


@case(38)
def test_a_rebalance_that_all_have_joined_does_not_wait() -> None:
    world = classic_world()
    (leader,) = world.classic.stable(world.classic.member())
    assert leader.joins().generation_id == 2


@case(39)
def test_a_rebalance_waits_for_ids_that_were_given_away() -> None:
    world = classic_world()
    leader, follower, third = (
        *world.classic.stable(world.classic.member(), world.classic.member()),
        world.classic.member(),
    )
    third.asked_for_id()
    joining = [leader.joining(), follower.joining(), third.join()]
    world.settle()
    assert [reply.result().generation_id for reply in joining] == [2, 2, 2]
    assert world.classic.size() == 3


@case(41)
def test_an_unused_member_id_disturbs_no_other() -> None:
    world = classic_world()
    (member,) = world.classic.stable(world.classic.member("i1"))
    world.classic.member().asked_for_id()
    beats = []
    for _half in range(2):
        world.pass_time(2_500)
        beats.append(member.beats())
    assert (beats, world.classic.generation(), world.classic.size()) == ([OK, OK], 1, 1)


@case(42)
def test_the_protocol_is_voted_for_among_those_that_all_have() -> None:
    world = classic_world()
    preferred = (("range", "roundrobin"), ("roundrobin", "range"), ("roundrobin", "sticky"))
    tied = [world.classic.member(protocols=protocols(*names)) for names in preferred[:2]]
    world.classic.completing(*tied)
    assert tied[0].syncs().protocol_name == "range"
    three = [world.classic.member(group_id="three", protocols=protocols(*names)) for names in preferred]
    world.classic.completing(*three)
    assert three[0].syncs().protocol_name == "roundrobin"


@case(43)
def test_who_joins_needs_a_protocol_that_all_have() -> None:
    world = classic_world()
    world.classic.completing(
        world.classic.member(protocols=protocols("range", "sticky")),
        world.classic.member(protocols=protocols("sticky", "roundrobin")),
    )
    refused = world.classic.member(one_step=True, protocols=protocols("roundrobin", "foo")).joins()
    assert code(refused) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    world.classic.member(one_step=True, protocols=protocols("sticky")).joining()


@case(45)
def test_a_static_member_that_comes_again_takes_its_own_place() -> None:
    world = classic_world()
    first, second = world.classic.member("i1"), world.classic.member("i1")
    fenced, joining = first.joining(), second.joining()
    assert code(fenced.result()) is ErrorCode.FENCED_INSTANCE_ID
    world.pass_time(DELAY_MS)
    assert (code(joining.result()), world.classic.member_ids()) == (OK, [second.member_id])
