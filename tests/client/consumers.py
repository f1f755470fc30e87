"""A fake cluster for the tests of consumers, and what they do with it again and again."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from coordinator_api.v1 import group_pb2 as group
from coordinator_client import Consumer, RebalanceListener, TopicPartition
from coordinator_protocol.methods import Method
from tests.client.fake_classic import FakeClassicGroup
from tests.client.fake_group import FakeGroup
from tests.client.fake_log import FakeLog
from tests.client.world import World

T0, T1, T2 = (TopicPartition("t", number) for number in range(3))


class FakeCluster:
    """A topic "t" with three partitions, a group that the test leads, and a consumer."""

    def __init__(self, world: World | None = None) -> None:
        self.world = World() if world is None else world
        self.topic = FakeLog(self.world, partition_count=3)
        self.topic.hold_fetches()
        self.group = FakeGroup(self.world)

    def consumer(self, **options: Any) -> Consumer:
        options.setdefault("group_id", "g")
        options.setdefault("auto_offset_reset", "earliest")
        return Consumer(self.world.connection(), **options)

    def member(self, listener: RebalanceListener | None = None, **options: Any) -> Consumer:
        """A consumer that subscribes to "t"."""
        consumer = self.consumer(**options)
        consumer.subscribe(["t"], listener=listener)
        return consumer

    def beats(self) -> list[group.ConsumerGroupHeartbeatRequest]:
        return self.world.requests(Method.CONSUMER_GROUP_HEARTBEAT)

    def owned_in(self, beat: group.ConsumerGroupHeartbeatRequest) -> list[int] | None:
        """Return the partitions that a heartbeat names as owned by its member; None if it names none."""
        if not beat.HasField("topic_partitions"):
            return None
        return [number for topic in beat.topic_partitions.topics for number in topic.partitions]


class ClassicCluster(FakeCluster):
    """The same with a classic group."""

    def __init__(self) -> None:
        super().__init__()
        self.group: FakeClassicGroup = FakeClassicGroup(self.world)

    def consumer(self, **options: Any) -> Consumer:
        return super().consumer(**({"group_protocol": "classic"} | options))

    def cooperative(self, listener: RebalanceListener | None = None, **options: Any) -> Consumer:
        """A member that keeps its partitions while it joins."""
        return self.member(listener, partition_assignors=["cooperative-sticky"], **options)


class Diary(RebalanceListener):
    """Listener that writes down its calls, and raises the error given for a word."""

    def __init__(self, **raises: Exception) -> None:
        self.told: list[tuple[str, list[int]]] = []
        self.raises = raises

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        self._note("assigned", partitions)

    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        self._note("revoked", partitions)

    def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        self._note("lost", partitions)

    def _note(self, word: str, partitions: Collection[TopicPartition]) -> None:
        self.told.append((word, sorted(number for _, number in partitions)))
        if word in self.raises:
            raise self.raises[word]


def values(records: Any) -> list[bytes | None]:
    return [record.value for record in records]


def poll_all(consumer: Consumer, count: int) -> list[bytes | None]:
    """Poll until this many records came."""
    found: list[bytes | None] = []
    while len(found) < count:
        batch = consumer.poll(timeout_ms=10_000)
        assert batch, f"{found} came, and then nothing"
        found += values(batch)
    return found
