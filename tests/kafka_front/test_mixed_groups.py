"""Members by both fronts in one group: they take each other's place, and move the group to another protocol."""

from __future__ import annotations

from typing import Any, cast

import pytest
from google.protobuf.message import Message

from coordinator_protocol.errors import ErrorCode
from coordinator_runtime.pending import Pending
from tests.groups.consumer.test_migration import rolled
from tests.harness.classic_members import subscription
from tests.harness.consumers import Consumer, all_of
from tests.harness.group_world import group_world
from tests.harness.groups import OK, code
from tests.harness.kafka_group_wire import KafkaGroupWire
from tests.harness.world import World


class ByKafka:
    """A world whose group calls go through Kafka's protocol."""

    def __init__(self, world: World, *topics: str) -> None:
        self._world = world
        self._wire = KafkaGroupWire(world)
        for topic in topics:
            self._wire.knows(topic)

    def call(self, request: Message) -> Pending[Any]:
        return self._wire.call(request)

    def ask(self, request: Message) -> Any:
        reply = self._wire.call(request)
        self._world.settle()
        return reply.result()

    def member(self, member_id: str, instance_id: str | None = None) -> Consumer:
        """A member of a consumer group by Kafka's protocol."""
        return Consumer(cast(World, self), member_id, instance_id)


@pytest.fixture
def world() -> World:
    return group_world()


@pytest.fixture
def kafka(world: World) -> ByKafka:
    return ByKafka(world, "foo", "bar")


@pytest.mark.parametrize("is_kafka_first", [True, False])
def test_a_static_member_comes_back_by_the_other_front(world: World, kafka: ByKafka, is_kafka_first: bool) -> None:
    fronts = [kafka.member, world.consumers.member]
    first, second = fronts if is_kafka_first else fronts[::-1]
    before = first("before", "i")
    assert code(before.joins("foo")) is OK
    assert before.assigned == all_of(foo=6)
    assert code(before.goes_for_a_moment()) is OK
    after = second("after", "i")
    assert code(after.joins("foo")) is OK
    assert after.assigned == all_of(foo=6)
    assert world.consumers.member_ids() == ["after"]
    assert code(before.beats()) is ErrorCode.FENCED_INSTANCE_ID


def test_a_kafka_consumer_moves_a_classic_group_and_back(world: World, kafka: ByKafka) -> None:
    old = world.classic.subscriber()
    world.classic.form(old, plan={0: all_of(foo=6, bar=3)})
    old.protocols = [("range", subscription("foo", "bar", owned=all_of(foo=6, bar=3)))]
    new = kafka.member("new")
    assert code(new.joins("foo", "bar")) is OK
    for _step in range(2):
        rolled(world, old)
        new.acknowledges()
    new.beats()
    assert new.assigned | old.has == all_of(foo=6, bar=3)
    assert not new.assigned & old.has
    assert code(new.leaves()) is OK
    assert (world.groups.kind(), old.beats()) == ("classic", ErrorCode.REBALANCE_IN_PROGRESS)
