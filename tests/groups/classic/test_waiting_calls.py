"""Calls that wait on the server: heartbeats for news, JoinGroup and SyncGroup for the others; and what becomes of those
that are given up."""

from __future__ import annotations

from coordinator_protocol.errors import ErrorCode
from group_coordinator.news import PAUSE_MS
from tests.harness.classic_members import DELAY_MS, protocols
from tests.harness.garbage import nothing_left_to_the_collector
from tests.harness.group_world import classic_world
from tests.harness.groups import GROUP, OK, code

REBALANCING = ErrorCode.REBALANCE_IN_PROGRESS


class TestHeartbeats:
    def test_a_newcomer_is_known_to_waiting_members_at_once(self) -> None:
        world = classic_world()
        members = world.classic.stable(world.classic.member(), world.classic.member())
        waiting = [member.heartbeat(max_wait_ms=4_000) for member in members]
        world.settle()
        assert not any(reply.is_settled for reply in waiting)
        newcomer = world.classic.member()
        newcomer.join_as_new()
        world.pass_time(PAUSE_MS)
        assert [code(reply.result()) for reply in waiting] == [REBALANCING] * 2

    def test_without_news_it_is_answered_when_its_wait_is_over(self) -> None:
        world = classic_world()
        (member,) = world.classic.stable(world.classic.member())
        waiting = member.heartbeat(max_wait_ms=4_000)
        world.pass_time(3_999)
        assert not waiting.is_settled
        world.pass_time(1)
        assert code(waiting.result()) is OK
        world.pass_time(4_999)
        assert member.beats() is OK

    def test_what_must_be_told_is_told_at_once(self) -> None:
        world = classic_world()
        leader, follower = world.classic.stable(world.classic.member(), world.classic.member())
        leader.joining()
        assert follower.beats(max_wait_ms=4_000) is REBALANCING

    def test_a_member_that_is_removed_hears_of_it_at_once(self) -> None:
        world = classic_world()
        _leader, follower = world.classic.stable(world.classic.member(), world.classic.member("i1"))
        waiting = follower.heartbeat(max_wait_ms=4_000)
        world.classic.member("i1").joins()
        world.pass_time(PAUSE_MS)
        assert code(waiting.result()) is ErrorCode.FENCED_INSTANCE_ID

    def test_one_that_is_given_up_leaves_nothing_behind(self) -> None:
        world = classic_world()
        (member,) = world.classic.stable(world.classic.member())
        waiting = member.heartbeat(max_wait_ms=4_000)
        world.settle()
        waiting.cancel()
        assert waiting.is_settled, "or it would count as under way for ever"
        assert (len(world.inside.core.news), world.groups.timers()) == (0, {"session": 1})

    def test_while_the_group_is_being_loaded_members_keep_their_place(self) -> None:
        world = classic_world()
        (member,) = world.classic.stable(world.classic.member())
        loading = world.inside.driver.loader.load(world.inside.groups.router.shard_key(GROUP))
        answers = [code(call().result()) for call in (member.heartbeat, member.sync)]
        assert answers == [OK, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
        world.inside.driver.read_all()
        world.settle()
        assert loading.is_settled
        assert (member.beats(), world.classic.state()) == (OK, "Stable")


class TestGivenUp:
    def test_a_newcomer_that_gives_up_is_left_out(self) -> None:
        world = classic_world()
        (member,) = world.classic.stable(world.classic.member())
        newcomer = world.classic.member()
        newcomer.asked_for_id()
        joining = newcomer.joining()
        joining.cancel()
        assert joining.is_settled, "or it would count as under way for ever"
        world.settle()
        assert (world.classic.size(), world.classic.state()) == (2, "PreparingRebalance")
        again = member.joining()
        world.pass_time(10_000)
        assert (again.result().generation_id, world.classic.member_ids()) == (2, [member.member_id])
        assert len(world.inside.core.answers) == 0

    def test_a_wait_for_the_others_leaves_nothing_to_the_collector(self) -> None:
        """However it ends: with a generation, or without its caller."""
        world = classic_world()
        (member,) = world.classic.stable(world.classic.member())
        newcomer = world.classic.member()
        newcomer.asked_for_id()
        with nothing_left_to_the_collector():
            joining = newcomer.joining()
            joining.cancel()
            again = member.joining()
            world.pass_time(10_000)
            assert again.result().generation_id == 2
            del joining, again

    def test_a_follower_that_gives_up_its_sync_gets_its_part_later(self) -> None:
        world = classic_world()
        leader, follower = world.classic.completing(world.classic.member(), world.classic.member())
        follower.syncing().cancel()
        world.settle()
        leader.syncs({follower.member_id: b"mine"})
        assert follower.syncs().assignment == b"mine"

    def test_a_follower_that_gives_up_its_sync_and_is_gone_is_missed(self) -> None:
        world = classic_world()
        leader, follower = world.classic.completing(
            *(world.classic.member(rebalance_timeout_ms=60_000) for _ in range(2))
        )
        syncing = follower.syncing()
        for _beat in range(3):
            world.pass_time(3_000)
            leader.beats()
        syncing.cancel()
        world.pass_time(3_000)
        assert leader.beats() is OK
        world.pass_time(2_000)
        assert leader.beats() is REBALANCING
        assert world.classic.member_ids() == [leader.member_id]

    def test_a_follower_that_gives_up_its_sync_must_ask_again_in_time(self) -> None:
        world = classic_world()
        leader, follower = world.classic.completing(
            *(world.classic.member(session_timeout_ms=60_000) for _ in range(2))
        )
        follower.syncing().cancel()
        leader.syncs({})
        world.pass_time(10_000)
        assert follower.beats() is ErrorCode.UNKNOWN_MEMBER_ID

    def test_a_static_member_that_gave_up_the_first_rebalance_is_waited_for(self) -> None:
        world = classic_world()
        member = world.classic.member("i1", session_timeout_ms=60_000)
        member.joining().cancel()
        world.pass_time(DELAY_MS)
        assert (world.classic.state(), world.classic.size()) == ("PreparingRebalance", 1)
        assert member.joins(member_id="").generation_id == 1

    def test_a_call_that_was_given_up_before_it_was_durable_is_given_up_then(self) -> None:
        world = classic_world()
        leader, follower = world.classic.stable(world.classic.member(), world.classic.member())
        joining = leader.join()
        joining.cancel()
        world.settle()
        follower.joining()
        again = leader.joins()
        assert code(again) is OK
        assert len(world.inside.core.answers) == 0

    def test_a_second_sync_takes_the_place_of_the_first(self) -> None:
        world = classic_world()
        leader, follower = world.classic.completing(world.classic.member(), world.classic.member())
        first, second = follower.syncing(), follower.syncing()
        assert code(first.result()) is REBALANCING
        leader.syncs({follower.member_id: b"mine"})
        assert second.result().assignment == b"mine"


class TestTimers:
    def test_a_stable_group_has_one_timer_for_each_member(self) -> None:
        world = classic_world()
        members = world.classic.stable(*(world.classic.member() for _ in range(3)))
        assert world.groups.timers() == {"session": 3}
        for member in members:
            member.leaves()
        world.pass_time(10_000)
        assert (world.classic.state(), world.groups.timers()) == ("Empty", {})

    def test_a_static_member_leaves_no_timer_under_its_former_id(self) -> None:
        world = classic_world()
        (member,) = world.classic.stable(world.classic.member("i1"))
        for _time in range(3):
            member.joins(member_id="")
        assert world.groups.timers() == {"session": 1}

    def test_one_that_runs_out_when_its_rebalance_is_over_ends_nothing(self) -> None:
        """Its cancellation waits for the disk, as the end of the rebalance does, and the next one has begun."""
        world = classic_world()
        members = [world.classic.member(session_timeout_ms=60_000, rebalance_timeout_ms=1_000) for _ in range(2)]
        leader, follower = world.classic.stable(*members)
        leader.joining()
        follower.join()
        follower.protocols = protocols("range", metadata=b"new")
        follower.join()
        world.clock.advance(1_000)
        world.inside.runtime.run_due_timers()
        world.settle()
        assert (world.classic.state(), world.classic.generation(), world.classic.size()) == ("PreparingRebalance", 2, 2)

    def test_one_that_runs_out_when_its_assignment_is_given_up_removes_no_member(self) -> None:
        world = classic_world()
        leader, follower = world.classic.completing(
            *(world.classic.member(session_timeout_ms=60_000) for _ in range(2))
        )
        leader.protocols = protocols("range", metadata=b"new")
        leader.join()
        follower.join()
        world.clock.advance(10_000)
        world.inside.runtime.run_due_timers()
        world.settle()
        assert (world.classic.state(), world.classic.generation(), world.classic.size()) == (
            "CompletingRebalance",
            2,
            2,
        )

    def test_whatever_a_member_asks_proves_that_it_lives(self) -> None:
        world = classic_world()
        leader, follower = world.classic.stable(world.classic.member(), world.classic.member())
        for ask in (follower.syncs, follower.joins):
            world.pass_time(4_000)
            assert (leader.beats(), code(ask())) == (OK, OK)
        world.pass_time(4_000)
        assert [leader.beats(), follower.beats()] == [OK, OK]

    def test_a_member_that_waited_longer_than_its_session_is_still_watched(self) -> None:
        """Its timer ran out while its call waited, and a call that waits is no silence; but then it is answered, and
        silent again."""
        world = classic_world()
        leader, follower = world.classic.completing(*(world.classic.member("L"), world.classic.member("F")))
        syncing = follower.syncing()
        for _beat in range(3):
            world.pass_time(2_500)
            leader.beats()
        newcomer = world.classic.member(one_step=True, session_timeout_ms=60_000)
        newcomer.join()
        world.settle()
        assert code(syncing.result()) is REBALANCING
        world.pass_time(5_000)
        assert follower.member_id not in world.classic.member_ids()
