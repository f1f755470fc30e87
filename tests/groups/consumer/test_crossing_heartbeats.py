"""Heartbeats of one member that cross: on a slow disk one is decided and not answered when the next comes.

What a heartbeat says that the member owns was true when it was sent. A decision that the member has not heard of makes
it untrue only once the member hears of it, so nothing may rest on both."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator_api.v1 import group_pb2
from coordinator_protocol.errors import ErrorCode
from coordinator_runtime.pending import Pending
from tests.groups.consumer.plans import PlannedAssignor, planned_world
from tests.harness.consumers import Consumer, of, partition_set, partitions_of
from tests.harness.decided_once import DecidedOnce
from tests.harness.garbage import nothing_left_to_the_collector
from tests.harness.groups import OK, code
from tests.harness.world import World

FOO = of("foo", 0)
NOTHING = partition_set(())
WAIT_MS = 50


class HeldHeartbeats:
    """`first` waits for a partition, and is given it. That is decided and not durable yet, and the group has a newer
    target by now, which gives the partition to `third`, unless `third` is late."""

    def __init__(self, *, wait_ms: int, is_third_late: bool = False) -> None:
        self.world, self._plan = planned_world()
        self.first, self.second, self.third = self.world.consumers.members("first", "second", "third")
        self._give(FOO, to=self.second)
        self.second.joins("foo")
        self._give(FOO, to=self.first)
        self.first.joins("foo")
        self.second.beats()
        assert self.second.assigned == self.first.assigned == frozenset()
        self.witness = DecidedOnce(self.world.inside.runtime)
        self.waiting = self.first.waits(5_000 if wait_ms == 0 else wait_ms, topic_partitions=NOTHING)
        self.world.settle()
        assert not self.waiting.is_settled
        giving = self.world.call(self.second.request(topic_partitions=NOTHING))
        if wait_ms == 0:
            # It asks itself, and waits for nothing but the disk.
            self.waiting.cancel()
            self.waiting = self.first.waits(0, topic_partitions=NOTHING)
        else:
            self.world.flush()
            self.passes(5)
        assert self.owner() == "first"
        if not is_third_late:
            self._give(FOO, to=self.third)
            joining = self.world.call(self.third.request(**self.third.join_fields("foo")))
            joining.on_settled(lambda reply: self.third.hears(reply.result()))
        assert giving.is_settled == (wait_ms > 0)
        assert not self.waiting.is_settled

    def _give(self, partitions: Any, *, to: Consumer) -> None:
        plan: PlannedAssignor = self._plan
        plan(**{to.member_id: partitions})

    def passes(self, elapsed_ms: int) -> None:
        """Time passes and timers expire, and nothing reaches the disk."""
        self.world.clock.advance(elapsed_ms)
        self.world.inside.runtime.run_due_timers()

    def owner(self) -> str | None:
        """Return the owner of the partition, on disk or not."""
        shape = self.world.inside.catalog.shape("foo")
        assert shape is not None
        return self.world.consumers.group().owner(shape.topic_id, 0)

    def hands_over(self) -> None:
        """The owner gives the partition up when it is asked to, and only then the other one gets it."""
        assert self.first.assigned == FOO
        assert self.third.beats().member_epoch == 3
        assert self.third.assigned == frozenset()
        assert self.first.acknowledges().HasField("assignment")
        assert (self.first.assigned, self.owner()) == (frozenset(), "first")
        assert code(self.first.acknowledges()) is OK
        self.third.beats()
        assert self.third.assigned == FOO


def test_one_that_waits_is_not_decided_again_when_something_happens_before_its_answer_is_durable() -> None:
    held = HeldHeartbeats(wait_ms=WAIT_MS)
    held.world.inside.core.news.tell("g")
    held.passes(5)
    assert held.owner() == "first"
    held.world.settle()
    assert partitions_of(held.waiting.result().assignment.topics) == FOO
    held.hands_over()


def test_one_that_waits_is_not_decided_again_when_its_wait_ends_before_its_answer_is_durable() -> None:
    held = HeldHeartbeats(wait_ms=WAIT_MS)
    held.passes(WAIT_MS)
    assert (held.owner(), held.waiting.is_settled) == ("first", False)
    held.world.settle()
    assert partitions_of(held.waiting.result().assignment.topics) == FOO
    held.hands_over()


@pytest.mark.parametrize("wait_ms", [0, WAIT_MS])
@pytest.mark.parametrize("newer_wait_ms", [0, WAIT_MS])
def test_the_older_one_is_answered_as_the_newer_one_and_tells_nothing_that_is_over(
    wait_ms: int, newer_wait_ms: int
) -> None:
    """The newer one says that the member does not own the partition, so it goes on: the older one must not give it."""
    held = HeldHeartbeats(wait_ms=wait_ms)
    newer = held.first.waits(newer_wait_ms, topic_partitions=NOTHING)
    assert held.owner() is None
    assert len(held.world.inside.core.news) == (newer_wait_ms > 0)
    held.world.settle()
    assert held.waiting.result() == newer.result()
    assert (newer.result().member_epoch, newer.result().HasField("assignment")) == (3, True)
    assert held.first.assigned == frozenset()
    held.third.beats()
    assert held.third.assigned == FOO
    assert code(held.first.acknowledges()) is OK
    assert len(held.world.inside.core.news) == 0


def test_of_three_that_cross_all_get_the_newest_answer() -> None:
    held = HeldHeartbeats(wait_ms=WAIT_MS)
    calls = [held.waiting, *(held.first.waits(wait_ms, topic_partitions=NOTHING) for wait_ms in (WAIT_MS, 0))]
    held.world.settle()
    assert [call.result() for call in calls] == [calls[-1].result()] * 3


@pytest.mark.parametrize("wait_ms", [0, WAIT_MS])
def test_after_one_that_was_given_up_the_next_is_told_everything(wait_ms: int) -> None:
    """Its client never hears what was decided on the one that it gave up, so nothing of it goes without saying."""
    held = HeldHeartbeats(wait_ms=wait_ms, is_third_late=True)
    held.waiting.cancel()
    newer = held.world.call(held.first.request())
    held.world.settle()
    held.first.hears(newer.result())
    assert (held.first.epoch, held.first.assigned) == (2, FOO)
    assert not held.first.beats().HasField("assignment"), "and then nothing is new"


def test_what_was_given_and_never_heard_of_is_taken_back_once_the_member_says_that_it_does_not_own_it() -> None:
    held = HeldHeartbeats(wait_ms=WAIT_MS)
    held.waiting.cancel()
    held.first.hears(held.world.ask(held.first.request()))
    assert (held.first.assigned, held.owner()) == (frozenset(), "first")
    assert code(held.first.acknowledges()) is OK
    held.third.beats()
    assert held.third.assigned == FOO


def test_one_that_crosses_a_new_epoch_need_not_say_what_the_member_owns() -> None:
    world, plan = planned_world()
    first, second = world.consumers.members("first", "second")
    plan(first=of("foo", 0))
    first.joins("foo")
    plan(first=of("foo", 0, 1))
    second.joins("foo")
    older, newer = (world.call(first.request()) for _time in range(2))
    world.settle()
    assert older.result() == newer.result()
    assert (code(newer.result()), newer.result().member_epoch) == (OK, 2)
    assert partitions_of(newer.result().assignment.topics) == of("foo", 0, 1)
    assert code(world.ask(first.request(1))) is ErrorCode.FENCED_MEMBER_EPOCH, "it has been answered since"


@pytest.mark.parametrize("wait_ms", [0, WAIT_MS])
def test_who_leaves_while_one_waits_for_the_disk_has_left(wait_ms: int) -> None:
    """The older one is answered as decided: librdkafka takes an answer with the epoch of a leave for its own."""
    held = HeldHeartbeats(wait_ms=wait_ms)
    leaving = held.world.call(held.first.request(-1))
    held.world.settle()
    older = held.waiting.result()
    assert (code(older), older.member_epoch, partitions_of(older.assignment.topics)) == (OK, 2, FOO)
    assert leaving.result().member_epoch == -1
    assert held.world.consumers.member_ids() == ["second", "third"]
    assert len(held.world.inside.core.news) == 0


def test_who_leaves_while_one_waits_for_news_is_answered_at_once() -> None:
    world, plan = planned_world()
    (first,) = world.consumers.members("first")
    plan(first=FOO)
    first.joins("foo")
    waiting = first.waits(WAIT_MS)
    world.settle()
    assert not waiting.is_settled
    first.leaves()
    assert (code(waiting.result()), waiting.result().member_epoch) == (OK, 1)


class TestRepetition:
    """A heartbeat whose answer was lost comes again, with the epoch before."""

    @pytest.fixture
    def world(self) -> World:
        world, self.plan = planned_world()
        self.first, self.second = world.consumers.members("first", "second")
        self.plan(first=of("foo", 0))
        self.first.joins("foo")
        self.plan(first=of("foo", 0, 1))
        self.second.joins("foo")
        return world

    def again(self, world: World) -> Any:
        return world.ask(self.first.request(1, topic_partitions=partition_set(of("foo", 0))))

    def test_it_gets_the_answer_again_with_all_that_it_told(self, world: World) -> None:
        lost = self.again(world)
        assert (lost.member_epoch, partitions_of(lost.assignment.topics)) == (2, of("foo", 0, 1))
        assert self.again(world) == lost

    def test_nothing_is_decided_on_it(self, world: World) -> None:
        """It may be late instead, and its member know the answer: that member owns the partitions in it."""
        self.first.hears(self.again(world))
        self.plan(first=of("foo", 0), second=of("foo", 1))
        self.second.subscribes("foo", "bar")
        late = self.again(world)
        assert (late.member_epoch, partitions_of(late.assignment.topics)) == (2, of("foo", 0, 1))
        self.second.beats()
        assert self.second.assigned == frozenset()
        self.first.acknowledges()
        assert self.first.assigned == of("foo", 0)
        assert code(self.first.acknowledges()) is OK
        self.second.beats()
        assert self.second.assigned == of("foo", 1)

    def test_it_is_heard_and_what_it_says_of_the_member_counts(self, world: World) -> None:
        self.again(world)
        world.pass_time(40_000)
        topics = group_pb2.TopicNames(names=["foo", "bar"])
        owned = partition_set(of("foo", 0))
        world.ask(self.first.request(1, topic_partitions=owned, subscribed_topic_names=topics))
        world.pass_time(40_000)
        assert world.consumers.member_ids() == ["first"]
        assert world.consumers.epoch() > 2


def test_heartbeats_that_cross_leave_nothing_to_the_collector() -> None:
    held = HeldHeartbeats(wait_ms=WAIT_MS)
    with nothing_left_to_the_collector():
        calls: list[Pending[Any]] = [held.first.waits(WAIT_MS, topic_partitions=NOTHING)]
        calls[0].cancel()
        calls.append(held.first.waits(0, topic_partitions=NOTHING))
        held.world.settle()
        assert all(call.is_settled for call in calls)
        del calls
