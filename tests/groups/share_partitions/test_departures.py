"""Members that leave and keep their share session, as over Kafka's protocol: they may still acknowledge."""

from __future__ import annotations

from coordinator_api.v1 import group_pb2
from coordinator_protocol.errors import ErrorCode
from group_coordinator.share_partitions.places import DEPARTURE_MS
from group_coordinator.share_partitions.sessions import MemberKey
from tests.groups.share_partitions.pictures import picture
from tests.harness.group_world import group_world
from tests.harness.groups import GROUP, OK, code
from tests.harness.share_consumers import ACCEPT, ShareConsumer, alter_shares, share_consumer
from tests.harness.share_partitions import Shares
from tests.harness.world import World


def departing(*names: str) -> tuple[World, list[ShareConsumer]]:
    """A world with three records, the first member of which holds them all."""
    world = group_world(topics={"t": 1})
    alter_shares(world, auto_offset_reset="earliest")
    consumers = [share_consumer(world, name, "t") for name in names]
    Shares(world, "t-0", GROUP).produce(3)
    assert consumers[0].fetch() == {"t-0": [0, 1, 2]}
    return world, consumers


def departs(consumer: ShareConsumer) -> None:
    consumer.member.leaves_as_in_kafka()
    consumer.world.settle()


def state(world: World) -> str:
    return picture(Shares(world, "t-0", GROUP).state)


def test_it_acknowledges_until_its_final_epoch_which_releases_the_rest() -> None:
    world, (a, b) = departing("a", "b")
    departs(a)
    assert b.fetch() == {}
    assert a.acknowledge("t-0", (0, 0, ACCEPT)) is OK
    assert a.fetch({"t-0": [(1, 1, ACCEPT)]}) == {}
    assert [code(each) for each in a.closes().results] == []
    assert b.fetch() == {"t-0": [2]}
    assert code(a.asks(epoch=3)) is ErrorCode.SHARE_SESSION_NOT_FOUND
    assert code(a.asks(epoch=0)) is ErrorCode.UNKNOWN_MEMBER_ID
    world.pass_time(DEPARTURE_MS)
    assert state(world) == "2: b2"


def test_what_it_acknowledges_before_its_leave_is_durable_counts() -> None:
    world, (a,) = departing("a")
    left = a.member.leaves_as_in_kafka()
    acknowledged = a.acknowledging({"t-0": [(0, 2, ACCEPT)]}, epoch=-1)
    assert not left.is_settled
    world.settle()
    assert code(acknowledged.result().results[0]) is OK
    assert state(world) == "3:"


def test_it_acquires_nothing_more() -> None:
    world, (a,) = departing("a")
    departs(a)
    Shares(world, "t-0", GROUP).produce(1)
    assert a.fetch() == {}
    assert a.acknowledge("t-0", (0, 2, ACCEPT)) is OK
    assert state(world) == "3:"


def test_a_fetch_of_it_that_waits_is_answered() -> None:
    world, (a,) = departing("a")
    waiting = a.fetching(max_wait_ms=60_000)
    world.settle()
    assert not waiting.is_settled
    departs(a)
    assert waiting.is_settled
    assert a.acknowledge("t-0", (0, 2, ACCEPT)) is OK


def test_it_releases_all_after_a_while() -> None:
    world, (a, b) = departing("a", "b")
    departs(a)
    world.pass_time(DEPARTURE_MS - 1)
    assert b.fetch() == {}
    waiting = b.fetching(max_wait_ms=60_000)
    world.pass_time(1)
    world.settle()
    assert waiting.is_settled
    assert b.counts() == {0: 2, 1: 2, 2: 2}
    assert code(a.asks()) is ErrorCode.SHARE_SESSION_NOT_FOUND


def test_one_that_has_no_session_releases_at_once() -> None:
    world, (a,) = departing("a")
    world.inside.core.groups.share_records.sessions.end(MemberKey(GROUP, "a"))
    departs(a)
    assert state(world) == "0: .1 .1 .1"


def test_one_that_joins_again_keeps_its_session_and_its_records() -> None:
    world, (a,) = departing("a")
    departs(a)
    a.member.joins("t")
    world.pass_time(DEPARTURE_MS)
    assert a.acknowledge("t-0", (0, 1, ACCEPT)) is OK
    Shares(world, "t-0", GROUP).produce(1)
    assert a.fetch() == {"t-0": [3]}
    a.member.leaves()
    assert state(world) == "2: .1 .1"


def test_its_session_goes_on_after_its_group_was_deleted_and_knows_no_record() -> None:
    world, (a,) = departing("a")
    departs(a)
    world.ask(group_pb2.DeleteGroupsRequest(group_ids=[GROUP]))
    assert a.acknowledge("t-0", (0, 2, ACCEPT)) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
