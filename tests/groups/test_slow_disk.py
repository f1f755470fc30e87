"""A slow disk costs time, and no member its membership.

While a flush is under way the answers that wait for it are in our hands, and so are their timers: a member that was
heard of is not missed, and one that gets an answer has the whole time for it from then on.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from coordinator_protocol.errors import ErrorCode
from coordinator_runtime.decision import Turn
from coordinator_runtime.pending import Pending
from group_coordinator.events import LeaveReason, MemberLeft
from tests.harness.classic_members import Member, protocols
from tests.harness.consumers import Consumer, partition_set
from tests.harness.group_world import KAFKA, classic_world, group_world
from tests.harness.groups import OK, code
from tests.harness.world import World

SESSION_MS = 5_000
REBALANCING = ErrorCode.REBALANCE_IN_PROGRESS


def passes(world: World, elapsed_ms: int) -> None:
    """Time passes and timers expire, and nothing reaches the disk."""
    world.clock.advance(elapsed_ms)
    world.inside.runtime.run_due_timers()


class TestClassic:
    def test_when_the_leader_is_missed_the_followers_that_wait_for_it_are_not(self) -> None:
        """All sessions run from the same moment. The end of the leader's gives up the assignment that the follower
        waits for, and the follower's silence until then was none."""
        world = classic_world()
        leader, follower = world.classic.completing(world.classic.member(), world.classic.member())
        syncing = follower.syncing()
        passes(world, SESSION_MS)
        world.settle()
        assert code(syncing.result()) is REBALANCING
        assert world.classic.member_ids() == [follower.member_id]
        passes(world, SESSION_MS - 1)
        follower.join()
        world.settle()
        assert (world.classic.member_ids(), world.classic.state()) == ([follower.member_id], "CompletingRebalance")
        assert leader.beats() is ErrorCode.UNKNOWN_MEMBER_ID

    def test_the_only_one_left_leads_and_is_not_missed_in_the_same_instant(self) -> None:
        world = classic_world()
        _leader, follower = world.classic.stable(world.classic.member(), world.classic.member())
        follower.protocols = protocols("range", metadata=b"new")
        joining = follower.joining()
        passes(world, SESSION_MS)
        world.settle()
        assert (code(joining.result()), follower.is_leader) == (OK, True)
        assert world.classic.member_ids() == [follower.member_id]
        assert code(follower.syncs({})) is OK

    @pytest.mark.parametrize("elapsed_ms", [1, SESSION_MS, 100 * SESSION_MS])
    def test_a_heartbeat_that_waits_for_the_disk_was_heard(self, elapsed_ms: int) -> None:
        world = classic_world()
        (member,) = world.classic.stable(world.classic.member())
        passes(world, SESSION_MS - 1)
        world.classic.member("somebody else").join()
        beating = member.heartbeat()
        passes(world, elapsed_ms)
        assert not beating.is_settled
        world.flush()
        assert code(beating.result()) in (OK, REBALANCING)
        passes(world, SESSION_MS - 1)
        world.settle()
        assert member.member_id in world.classic.member_ids()

    def test_a_sync_that_came_too_late_was_heard_too(self) -> None:
        world = classic_world()
        leader, follower = world.classic.completing(world.classic.member(), world.classic.member())
        passes(world, SESSION_MS - 1)
        leader.protocols = protocols("range", metadata=b"new")
        leader.join()
        syncing = follower.sync()
        passes(world, SESSION_MS)
        world.settle()
        assert code(syncing.result()) is REBALANCING
        assert follower.member_id in world.classic.member_ids()

    def test_a_new_group_waits_for_more_members_as_long_as_is_set_and_not_for_the_disk_as_well(self) -> None:
        world = classic_world()
        member = world.classic.member(one_step=True)
        world.classic.member("somebody else", group_id="another").join()
        joining = member.join()
        passes(world, KAFKA.initial_rebalance_delay_ms - 1)
        world.flush()
        assert not joining.is_settled
        passes(world, 1)
        world.settle()
        assert code(joining.result()) is OK

    def test_who_is_silent_is_missed_whatever_the_disk_does(self) -> None:
        world = classic_world()
        (member,) = world.classic.stable(world.classic.member())
        world.classic.member("somebody else").join()
        passes(world, SESSION_MS)
        world.settle()
        assert member.beats() is ErrorCode.UNKNOWN_MEMBER_ID


class TestConsumer:
    @pytest.mark.parametrize("elapsed_ms", [1, SESSION_MS, 100 * SESSION_MS])
    def test_a_heartbeat_that_waits_for_the_disk_was_heard(self, elapsed_ms: int) -> None:
        world = slow_world()
        (member,) = world.consumers.stable(world.consumers.member("m"))
        passes(world, SESSION_MS - 1)
        joining = world.call(world.consumers.member("n").request(**member.join_fields("foo")))
        beating = world.call(member.request())
        passes(world, elapsed_ms)
        assert not joining.is_settled
        assert not beating.is_settled
        world.flush()
        assert code(beating.result()) is OK
        passes(world, SESSION_MS - 1)
        world.settle()
        assert world.consumers.member_ids() == ["m", "n"]

    def test_what_was_given_up_in_time_is_no_reason_to_go(self) -> None:
        """The rebalance timer of the member runs out while its word that it gave up its part waits for the disk."""
        world = slow_world(consumer_session_timeout_ms=60_000, consumer_session_timeout_ms_max=60_000)
        (first,) = world.consumers.stable(world.consumers.member("m"))
        world.consumers.member("n").joins("foo", "bar")
        first.beats()
        assert world.groups.timers()["rebalance"] == 1
        passes(world, first.rebalance_timeout_ms - 1)
        giving = world.call(first.request(topic_partitions=partition_set(first.assigned)))
        passes(world, 2)
        world.settle()
        assert code(giving.result()) is OK
        assert world.consumers.member_ids() == ["m", "n"]


def test_a_classic_member_that_asks_for_its_part_of_an_old_epoch_was_heard() -> None:
    """The answer is to join again. Neither its session nor the time it had to ask ends while that waits for the
    disk."""
    world = slow_world()
    world.consumers.stable(world.consumers.member("m"))
    classic = world.classic.subscriber(group_id="g")
    assert code(classic.joins(member_id=classic.asked_for_id())) is OK
    assert world.groups.timers() == {"session": 2, "sync": 1}
    world.consumers.member("n").joins("foo", "bar")
    syncing = classic.sync()
    world.call(world.consumers.member("o").request(**world.consumers.member("o").join_fields("foo")))
    passes(world, classic.rebalance_timeout_ms)
    world.settle()
    assert code(syncing.result()) is REBALANCING
    assert classic.member_id in world.consumers.member_ids()


def test_a_classic_member_has_the_whole_time_to_ask_for_its_part_from_the_answer_on() -> None:
    world = slow_world()
    world.consumers.stable(world.consumers.member("m"))
    classic = world.classic.subscriber(group_id="g", rebalance_timeout_ms=SESSION_MS // 2)
    member_id = classic.asked_for_id()
    joining = classic.join(member_id=member_id)
    passes(world, classic.rebalance_timeout_ms)
    assert not joining.is_settled
    world.flush()
    assert code(joining.result()) is OK
    passes(world, classic.rebalance_timeout_ms - 1)
    world.settle()
    assert member_id in world.consumers.member_ids()
    assert code(classic.syncs()) is OK


def slow_world(**config: Any) -> World:
    """A server on which sessions of both kinds are short."""
    short: dict[str, Any] = {
        "consumer_session_timeout_ms": SESSION_MS,
        "consumer_session_timeout_ms_min": 1,
        "consumer_heartbeat_interval_ms": 1_000,
        "consumer_heartbeat_interval_ms_min": 1,
    }
    return group_world(group_config=replace(KAFKA, **(short | config)))


# All kinds of groups at once

TICK_MS = 1_000
"""Everything happens at whole ticks, so that timers of all kinds fall due together."""
HELD_TICKS_MAX = 12
"""Longer than sessions."""
REBALANCE_MS = 30_000
"""Longer than that: a member that learns of a rebalance by a call of its own must make the call in time."""
POPULATION = 4


class Client:
    """Does what it must as soon as it hears of it, and is heard of once a tick, unless its call waits."""

    def __init__(self, world: World, member: Member | Consumer) -> None:
        self.world = world
        self.member = member
        self.is_alive = True
        self._next = self._join
        self._waiting: Pending[Any] | None = None

    def go_on(self) -> None:
        if self.is_alive and (self._waiting is None or self._waiting.is_settled):
            self._next()

    def _ask(self, reply: Pending[Any]) -> None:
        self._waiting = reply
        reply.on_settled(lambda settled: self._hears(settled.result()))

    def _join(self) -> None:
        if isinstance(self.member, Consumer):
            self._ask(self.world.call(self.member.request(**self.member.join_fields("foo", "bar"))))
        else:
            self._ask(self.member.join())

    def _sync(self) -> None:
        assert isinstance(self.member, Member)
        self._ask(self.member.sync({self.member.member_id: b""} if self.member.is_leader else None))

    def _beat(self) -> None:
        if isinstance(self.member, Consumer):
            self._ask(self.world.call(self.member.request(topic_partitions=partition_set(self.member.assigned))))
        else:
            self._ask(self.member.heartbeat())

    def _hears(self, response: Any) -> None:
        if isinstance(self.member, Consumer):
            self.member.hears(response)
            assert code(response) is OK, response
            self._next = self._beat
        elif code(response) in (REBALANCING, ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.ILLEGAL_GENERATION):
            self._next = self._join
        else:
            assert code(response) is OK, response
            has_joined = self._next == self._join
            self._next = self._sync if has_joined else self._beat
        if self._next != self._beat:
            self.world.inside.runtime.arm(("client", id(self)), 0, self.go_on)


class SlowDisk:
    """Groups of all kinds, whose members come, work, and die; on a disk that stops now and then."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.world = slow_world()
        self.clients: list[Client] = []
        self.held_ticks = 0
        self.missed: set[str] = set()
        self.kinds: set[str] = set()
        self.world.inside.runtime.on_event = self.on_event
        self._number = 0

    def on_event(self, event: object, _turn: Turn) -> None:
        if isinstance(event, MemberLeft) and event.reason is not LeaveReason.LEAVE:
            living = {client.member.member_id for client in self.clients if client.is_alive}
            assert event.member_id not in living, event
            self.missed.add(event.reason)

    def tick(self) -> None:
        if self.held_ticks == 0 and self.random.random() < 0.1:
            self.held_ticks = self.random.randrange(HELD_TICKS_MAX)
        self.populate()
        self.random.shuffle(self.clients)
        for client in self.clients:
            client.go_on()
        if self.held_ticks > 0:
            self.held_ticks -= 1
        else:
            self.world.settle()
        self.kinds |= {kind for kind, count in self.world.inside.runtime.timers.by_kind().items() if count}
        passes(self.world, TICK_MS)

    def populate(self) -> None:
        for group_id in ("classic", "consumer", "mixed"):
            living = [each for each in self.clients if each.is_alive and each.member.group_id == group_id]
            if len(living) < POPULATION and self.random.random() < 0.3:
                self.clients.append(Client(self.world, self.newcomer(group_id)))
            if living and self.random.random() < 0.05:
                self.random.choice(living).is_alive = False

    def newcomer(self, group_id: str) -> Member | Consumer:
        self._number += 1
        if group_id == "consumer" or (group_id == "mixed" and self.random.random() < 0.5):
            return self.world.consumers.member(f"m{self._number}", group_id=group_id, rebalance_timeout_ms=REBALANCE_MS)
        one_step = self.random.random() < 0.3
        member: Member = self.world.classic.subscriber(
            group_id=group_id, one_step=one_step, rebalance_timeout_ms=REBALANCE_MS
        )
        return member


@pytest.mark.parametrize("seed", range(4))
def test_no_member_expires_that_does_what_it_must(seed: int) -> None:
    disk = SlowDisk(seed)
    for _tick in range(400):
        disk.tick()
    assert disk.missed >= {LeaveReason.SESSION}
    assert disk.kinds >= {"session", "join", "sync", "rebalance"}
    for client in disk.clients:
        client.is_alive = False
    disk.world.pass_time(120_000)
    disk.world.pass_time(600_000)
    assert disk.world.groups.timers() == {}
