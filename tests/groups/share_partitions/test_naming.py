"""A request that names many partitions is done in several turns of the loop, between which anything may happen."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from coordinator_protocol.errors import ErrorCode
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import CallContext, PartitionName
from group_coordinator.share_partitions import naming, places
from group_coordinator.share_partitions.requests import PartitionAcks, ShareAcknowledge
from group_coordinator.share_partitions.rules import AckBatch
from group_coordinator.share_partitions.sessions import MemberKey
from tests.groups.share_partitions.pictures import picture
from tests.harness.group_world import group_world
from tests.harness.groups import GROUP, OK, code
from tests.harness.share_consumers import (
    ACCEPT,
    RELEASE,
    RENEW,
    ShareConsumer,
    alter_shares,
    response_of,
    share_consumer,
)
from tests.harness.share_partitions import Shares
from tests.harness.world import World

PARTITIONS = [f"t-{number}" for number in range(5)]
HELD, DONE, FREE = "0: a1", "1:", "0: .1"


@pytest.fixture(autouse=True)
def _small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(naming, "NAMED_PER_STEP", 2)
    monkeypatch.setattr(naming, "ACKNOWLEDGED_PER_STEP", 2)
    monkeypatch.setattr(places, "RELEASED_PER_STEP", 2)


def reader() -> tuple[World, ShareConsumer]:
    """The member of a group that reads five partitions from the beginning, one record in each."""
    world = group_world(topics={"t": len(PARTITIONS)})
    alter_shares(world, auto_offset_reset="earliest", renew_acknowledge_enable="true")
    member = share_consumer(world, "a", "t")
    for partition in PARTITIONS:
        Shares(world, partition, GROUP).produce(1)
    return world, member


def holder() -> tuple[World, ShareConsumer]:
    """Such a member that holds all records."""
    world, member = reader()
    asked = member.fetching()
    answered(world, asked)
    assert pictures(world) == [HELD] * 5
    return world, member


def pictures(world: World) -> list[str]:
    return [picture(Shares(world, partition, GROUP).state) for partition in PARTITIONS]


def turn(world: World) -> None:
    """The next turn of the loop: one more step."""
    world.inside.runtime.run_due_timers()
    world.settle()


def answered(world: World, asked: Pending[Any]) -> Any:
    """The answer, some turns later."""
    world.settle()
    for _turn in range(10):
        world.tick(1)
        world.settle()
    return response_of(asked)


def all_as(kind: int) -> dict[str, list[tuple[int, int, int]]]:
    return {partition: [(0, 0, kind)] for partition in PARTITIONS}


def acknowledge_codes(response: Any) -> list[ErrorCode]:
    assert [f"{each.topic}-{each.partition}" for each in response.results] == PARTITIONS
    return [code(each) for each in response.results]


def test_partitions_join_a_session_a_few_at_a_time() -> None:
    world, a = reader()
    asked = a.fetching()
    session = world.inside.core.groups.share_records.sessions.take(MemberKey(GROUP, "a"), 1)
    session.next_epoch = 1
    sizes = [len(session.partitions)]
    while not asked.is_settled:
        turn(world)
        sizes.append(len(session.partitions))
    assert sizes == [2, 4, 5]
    assert a.acquired(response_of(asked)) == {partition: [0] for partition in PARTITIONS}


def test_records_are_acknowledged_a_few_partitions_at_a_time() -> None:
    world, a = holder()
    asked = a.acknowledging(all_as(ACCEPT))
    world.settle()
    assert (pictures(world), asked.is_settled) == ([DONE] * 2 + [HELD] * 3, False)
    turn(world)
    assert (pictures(world), asked.is_settled) == ([DONE] * 4 + [HELD], False)
    turn(world)
    assert acknowledge_codes(asked.result()) == [OK] * 5
    assert pictures(world) == [DONE] * 5
    world.check_replay()


def test_a_slow_disk_has_the_acknowledgements_of_two_steps_at_most() -> None:
    world, a = holder()
    asked = a.acknowledging(all_as(ACCEPT))
    for _turn in range(5):
        world.inside.runtime.run_due_timers()
    assert pictures(world) == [DONE] * 4 + [HELD]
    assert acknowledge_codes(answered(world, asked)) == [OK] * 5


def test_another_call_is_served_between_two_steps() -> None:
    world, a = holder()
    b = share_consumer(world, "b", "t")
    asked = a.acknowledging(all_as(ACCEPT))
    assert code(b.member.beats()) is OK
    assert (pictures(world), asked.is_settled) == ([DONE] * 2 + [HELD] * 3, False)
    assert acknowledge_codes(answered(world, asked)) == [OK] * 5


def test_acknowledgements_are_converted_a_few_partitions_at_a_time() -> None:
    world, _a = holder()
    converted: list[int] = []

    def batches(number: int) -> tuple[AckBatch, ...]:
        converted.append(number)
        return (AckBatch(0, 0, (ACCEPT,)),)

    named = tuple(
        PartitionAcks(PartitionName("t", b"", number), partial(batches, number)) for number in range(len(PARTITIONS))
    )
    asked = world.inside.core.groups.share_records.acknowledge(ShareAcknowledge(GROUP, "a", 1, named), CallContext())
    assert (converted, asked.is_settled) == ([0, 1], False)
    for _turn in range(2):
        turn(world)
    assert converted == [0, 1, 2, 3, 4]
    assert [each.error for each in asked.result().results] == [None] * 5


def test_a_fetch_acknowledges_everything_before_it_acquires() -> None:
    world, a = holder()
    response = answered(world, a.fetching(all_as(RELEASE)))
    assert a.acquired(response) == {partition: [0] for partition in PARTITIONS}
    assert a.counts() == {0: 2}


@pytest.mark.parametrize("turns", [0, 1])
def test_a_caller_that_gives_up_has_acknowledged_everything(turns: int) -> None:
    world, a = holder()
    asked = a.acknowledging(all_as(ACCEPT))
    for _turn in range(turns):
        turn(world)
    asked.cancel()
    for _turn in range(3):
        turn(world)
    assert pictures(world) == [DONE] * 5


@pytest.mark.parametrize("turns", [0, 1])
def test_a_caller_that_gives_up_fetches_nothing(turns: int) -> None:
    world, a = reader()
    asked = a.fetching()
    for _turn in range(turns):
        turn(world)
    asked.cancel()
    for _turn in range(3):
        turn(world)
    assert all("a" not in each for each in pictures(world))
    a.epoch = 1
    assert a.acquired(answered(world, a.fetching(partitions=[]))) == {partition: [0] for partition in PARTITIONS}


@pytest.mark.parametrize(("turns", "done"), [(0, 2), (1, 4)])
def test_a_new_session_ends_a_request_of_the_old_one_and_says_where(turns: int, done: int) -> None:
    world, a = holder()
    asked = a.acknowledging(all_as(ACCEPT))
    for _turn in range(turns):
        turn(world)
    begun = a.fetching(epoch=0)
    response = answered(world, asked)
    assert acknowledge_codes(response) == [OK] * done + [ErrorCode.SHARE_SESSION_NOT_FOUND] * (5 - done)
    assert pictures(world) == [DONE] * done + [HELD] * (5 - done)
    assert a.acquired(answered(world, begun)) == {}
    a.epoch = 1
    left = {partition: [(0, 0, ACCEPT)] for partition in PARTITIONS[done:]}
    assert {code(each) for each in answered(world, a.acknowledging(left)).results} == {OK}
    assert pictures(world) == [DONE] * 5


def test_a_member_that_leaves_meanwhile_has_its_records_released_once() -> None:
    world, a = holder()
    asked = a.acknowledging(all_as(ACCEPT))
    a.member.leaves()
    response = answered(world, asked)
    assert acknowledge_codes(response)[:2] == [OK] * 2
    assert OK not in acknowledge_codes(response)[2:]
    assert pictures(world) == [DONE] * 2 + [FREE] * 3


def test_the_partitions_of_a_topic_that_is_deleted_meanwhile_are_refused() -> None:
    world, a = holder()
    asked = a.acknowledging(all_as(ACCEPT))
    world.delete_topic("t")
    response = answered(world, asked)
    assert acknowledge_codes(response) == [OK] * 2 + [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 3


def test_a_shard_that_goes_meanwhile_refuses_its_own_records() -> None:
    world, a = holder()
    asked = a.acknowledging(all_as(ACCEPT))
    world.unload("share:t-4")
    response = answered(world, asked)
    assert acknowledge_codes(response)[:2] == [OK] * 2
    assert acknowledge_codes(response)[4] is not OK


def test_the_next_request_begins_when_all_partitions_of_the_one_before_are_done() -> None:
    world, a = holder()
    renewing = a.acknowledging(all_as(RENEW))
    accepting = a.acknowledging({"t-4": [(0, 0, ACCEPT)]}, epoch=2)
    assert acknowledge_codes(answered(world, renewing)) == [OK] * 5
    assert [code(each) for each in accepting.result().results] == [OK]
    assert pictures(world)[4] == DONE


def test_many_requests_that_wait_for_one_are_all_answered() -> None:
    world, a = holder()
    asked = [a.acknowledging(all_as(RENEW))]
    asked += [a.acknowledging({}, epoch=2 + number) for number in range(500)]
    assert not any(each.is_settled for each in asked)
    answered(world, asked[0])
    assert {code(each.result()) for each in asked} == {OK}


# The last request of a session


def test_the_last_request_acknowledges_everything_before_it_releases_the_rest() -> None:
    world, a = holder()
    asked = a.acknowledging({partition: [(0, 0, ACCEPT)] for partition in PARTITIONS[:3]}, epoch=-1)
    world.settle()
    assert pictures(world) == [DONE] * 2 + [HELD] * 3
    assert [code(each) for each in answered(world, asked).results] == [OK] * 3
    assert pictures(world) == [DONE] * 3 + [FREE] * 2


@pytest.mark.parametrize("turns", range(4))
def test_a_caller_that_gives_up_has_closed_its_session(turns: int) -> None:
    world, a = holder()
    asked = a.acknowledging({partition: [(0, 0, ACCEPT)] for partition in PARTITIONS[:2]}, epoch=-1)
    for _turn in range(turns):
        turn(world)
    asked.cancel()
    for _turn in range(5):
        turn(world)
    assert pictures(world) == [DONE] * 2 + [FREE] * 3
    assert code(a.asks(epoch=2)) is ErrorCode.SHARE_SESSION_NOT_FOUND


def test_a_session_that_begins_meanwhile_keeps_the_records() -> None:
    world, a = holder()
    asked = a.acknowledging(all_as(ACCEPT), epoch=-1)
    begun = a.fetching(epoch=0)
    assert acknowledge_codes(answered(world, asked)) == [OK] * 2 + [ErrorCode.SHARE_SESSION_NOT_FOUND] * 3
    assert a.acquired(answered(world, begun)) == {}
    assert pictures(world) == [DONE] * 2 + [HELD] * 3
    a.epoch = 1
    assert code(answered(world, a.acknowledging({"t-4": [(0, 0, ACCEPT)]})).results[0]) is OK
