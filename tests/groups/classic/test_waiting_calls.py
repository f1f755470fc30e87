"""Calls that wait on the server: heartbeats for news, JoinGroup and SyncGroup for the others; and what becomes of those
that are given up."""

from __future__ import annotations

from coordinator_protocol.errors import ErrorCode
from group_coordinator.news import PAUSE_MS
from tests.groups.classic.members import DELAY_MS, GROUP, OK, ClassicRoom, code, protocols
from tests.harness.garbage import nothing_left_to_the_collector

REBALANCING = ErrorCode.REBALANCE_IN_PROGRESS


class TestHeartbeats:
    def test_a_newcomer_is_known_to_waiting_members_at_once(self) -> None:
        room = ClassicRoom()
        members = room.stable(room.member(), room.member())
        waiting = [member.heartbeat(max_wait_ms=4_000) for member in members]
        room.settle()
        assert not any(reply.is_settled for reply in waiting)
        newcomer = room.member()
        newcomer.join_as_new()
        room.tick(PAUSE_MS)
        assert [code(reply.result()) for reply in waiting] == [REBALANCING] * 2

    def test_without_news_it_is_answered_when_its_wait_is_over(self) -> None:
        room = ClassicRoom()
        (member,) = room.stable(room.member())
        waiting = member.heartbeat(max_wait_ms=4_000)
        room.tick(3_999)
        assert not waiting.is_settled
        room.tick(1)
        assert code(waiting.result()) is OK
        room.tick(4_999)
        assert member.beats() is OK

    def test_what_must_be_told_is_told_at_once(self) -> None:
        room = ClassicRoom()
        leader, follower = room.stable(room.member(), room.member())
        leader.joining()
        assert follower.beats(max_wait_ms=4_000) is REBALANCING

    def test_a_member_that_is_removed_hears_of_it_at_once(self) -> None:
        room = ClassicRoom()
        _leader, follower = room.stable(room.member(), room.member("i1"))
        waiting = follower.heartbeat(max_wait_ms=4_000)
        room.member("i1").joins()
        room.tick(PAUSE_MS)
        assert code(waiting.result()) is ErrorCode.FENCED_INSTANCE_ID

    def test_one_that_is_given_up_leaves_nothing_behind(self) -> None:
        room = ClassicRoom()
        (member,) = room.stable(room.member())
        waiting = member.heartbeat(max_wait_ms=4_000)
        room.settle()
        waiting.cancel()
        assert waiting.is_settled, "or it would count as under way for ever"
        assert (len(room.inside.news), room.timers()) == (0, {"session": 1})

    def test_while_the_group_is_being_loaded_members_keep_their_place(self) -> None:
        room = ClassicRoom()
        (member,) = room.stable(room.member())
        loading = room.inside.driver.loader.load(room.inside.router.shard_key(GROUP))
        answers = [code(call().result()) for call in (member.heartbeat, member.sync)]
        assert answers == [OK, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
        room.inside.driver.read_all()
        room.settle()
        assert loading.is_settled
        assert (member.beats(), room.state()) == (OK, "Stable")


class TestGivenUp:
    def test_a_newcomer_that_gives_up_is_left_out(self) -> None:
        room = ClassicRoom()
        (member,) = room.stable(room.member())
        newcomer = room.member()
        newcomer.asked_for_id()
        joining = newcomer.joining()
        joining.cancel()
        assert joining.is_settled, "or it would count as under way for ever"
        room.settle()
        assert (room.size(), room.state()) == (2, "PreparingRebalance")
        again = member.joining()
        room.tick(10_000)
        assert (again.result().generation_id, room.member_ids()) == (2, [member.member_id])
        assert len(room.inside.answers) == 0

    def test_a_wait_for_the_others_leaves_nothing_to_the_collector(self) -> None:
        """However it ends: with a generation, or without its caller."""
        room = ClassicRoom()
        (member,) = room.stable(room.member())
        newcomer = room.member()
        newcomer.asked_for_id()
        with nothing_left_to_the_collector():
            joining = newcomer.joining()
            joining.cancel()
            again = member.joining()
            room.tick(10_000)
            assert again.result().generation_id == 2
            del joining, again

    def test_a_follower_that_gives_up_its_sync_gets_its_part_later(self) -> None:
        room = ClassicRoom()
        leader, follower = room.completing(room.member(), room.member())
        follower.syncing().cancel()
        room.settle()
        leader.syncs({follower.member_id: b"mine"})
        assert follower.syncs().assignment == b"mine"

    def test_a_follower_that_gives_up_its_sync_and_is_gone_is_missed(self) -> None:
        room = ClassicRoom()
        leader, follower = room.completing(*(room.member(rebalance_timeout_ms=60_000) for _ in range(2)))
        syncing = follower.syncing()
        for _beat in range(3):
            room.tick(3_000)
            leader.beats()
        syncing.cancel()
        room.tick(3_000)
        assert leader.beats() is OK
        room.tick(2_000)
        assert leader.beats() is REBALANCING
        assert room.member_ids() == [leader.member_id]

    def test_a_follower_that_gives_up_its_sync_must_ask_again_in_time(self) -> None:
        room = ClassicRoom()
        leader, follower = room.completing(*(room.member(session_timeout_ms=60_000) for _ in range(2)))
        follower.syncing().cancel()
        leader.syncs({})
        room.tick(10_000)
        assert follower.beats() is ErrorCode.UNKNOWN_MEMBER_ID

    def test_a_static_member_that_gave_up_the_first_rebalance_is_waited_for(self) -> None:
        room = ClassicRoom()
        member = room.member("i1", session_timeout_ms=60_000)
        member.joining().cancel()
        room.tick(DELAY_MS)
        assert (room.state(), room.size()) == ("PreparingRebalance", 1)
        assert member.joins(member_id="").generation_id == 1

    def test_a_call_that_was_given_up_before_it_was_durable_is_given_up_then(self) -> None:
        room = ClassicRoom()
        leader, follower = room.stable(room.member(), room.member())
        joining = leader.join()
        joining.cancel()
        room.settle()
        follower.joining()
        again = leader.joins()
        assert code(again) is OK
        assert len(room.inside.answers) == 0

    def test_a_second_sync_takes_the_place_of_the_first(self) -> None:
        room = ClassicRoom()
        leader, follower = room.completing(room.member(), room.member())
        first, second = follower.syncing(), follower.syncing()
        assert code(first.result()) is REBALANCING
        leader.syncs({follower.member_id: b"mine"})
        assert second.result().assignment == b"mine"


class TestTimers:
    def test_a_stable_group_has_one_timer_for_each_member(self) -> None:
        room = ClassicRoom()
        members = room.stable(*(room.member() for _ in range(3)))
        assert room.timers() == {"session": 3}
        for member in members:
            member.leaves()
        room.tick(10_000)
        assert (room.state(), room.timers()) == ("Empty", {})

    def test_a_static_member_leaves_no_timer_under_its_former_id(self) -> None:
        room = ClassicRoom()
        (member,) = room.stable(room.member("i1"))
        for _time in range(3):
            member.joins(member_id="")
        assert room.timers() == {"session": 1}

    def test_one_that_runs_out_when_its_rebalance_is_over_ends_nothing(self) -> None:
        """Its cancellation waits for the disk, as the end of the rebalance does, and the next one has begun."""
        room = ClassicRoom()
        members = [room.member(session_timeout_ms=60_000, rebalance_timeout_ms=1_000) for _ in range(2)]
        leader, follower = room.stable(*members)
        leader.joining()
        follower.join()
        follower.protocols = protocols("range", metadata=b"new")
        follower.join()
        room.clock.advance(1_000)
        room.inside.runtime.run_due_timers()
        room.settle()
        assert (room.state(), room.generation(), room.size()) == ("PreparingRebalance", 2, 2)

    def test_one_that_runs_out_when_its_assignment_is_given_up_removes_nobody(self) -> None:
        room = ClassicRoom()
        leader, follower = room.completing(*(room.member(session_timeout_ms=60_000) for _ in range(2)))
        leader.protocols = protocols("range", metadata=b"new")
        leader.join()
        follower.join()
        room.clock.advance(10_000)
        room.inside.runtime.run_due_timers()
        room.settle()
        assert (room.state(), room.generation(), room.size()) == ("CompletingRebalance", 2, 2)

    def test_whatever_a_member_asks_proves_that_it_lives(self) -> None:
        room = ClassicRoom()
        leader, follower = room.stable(room.member(), room.member())
        for ask in (follower.syncs, follower.joins):
            room.tick(4_000)
            assert (leader.beats(), code(ask())) == (OK, OK)
        room.tick(4_000)
        assert [leader.beats(), follower.beats()] == [OK, OK]

    def test_a_member_that_waited_longer_than_its_session_is_still_watched(self) -> None:
        """Its timer ran out while its call waited, and a call that waits is no silence; but then it is answered, and
        silent again."""
        room = ClassicRoom()
        leader, follower = room.completing(*(room.member("L"), room.member("F")))
        syncing = follower.syncing()
        for _beat in range(3):
            room.tick(2_500)
            leader.beats()
        newcomer = room.member(one_step=True, session_timeout_ms=60_000)
        newcomer.join()
        room.settle()
        assert code(syncing.result()) is REBALANCING
        room.tick(5_000)
        assert follower.member_id not in room.member_ids()
