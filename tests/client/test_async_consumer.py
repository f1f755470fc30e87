"""The asyncio consumer: the same core, awaited. On a clock that moves by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

import pytest

from coordinator_client import AsyncConsumer, AsyncRebalanceListener, CorruptBatch, TopicPartition
from tests.client.consumers import T0, T1, FakeCluster, values
from tests.client.world import Fault


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()


def member(cluster: FakeCluster, listener: AsyncRebalanceListener | None = None, **options) -> AsyncConsumer:
    consumer = AsyncConsumer(
        cluster.world.connection(), **({"group_id": "g", "auto_offset_reset": "earliest"} | options)
    )
    consumer.subscribe(["t"], listener=listener)
    return consumer


def test_it_reads_commits_and_leaves(cluster: FakeCluster) -> None:
    cluster.topic.append(0, b"a", b"b")
    cluster.group.give(0)

    async def use() -> None:
        async with member(cluster) as consumer:
            assert values(await consumer.poll()) == [b"a", b"b"]
            assert not await consumer.poll(timeout_ms=1_000)
            assert await consumer.position(T0) == 2
            assert await consumer.end_offsets([T0]) == {T0: 2}
            assert await consumer.beginning_offsets([T0]) == {T0: 0}
            await consumer.commit({T0: 1})
            assert await consumer.committed([T0, T1]) == {T0: (1, "", None), T1: None}
        assert cluster.group.member_id == ""

    cluster.world.run(use())
    assert cluster.group.offsets == {T0: 2}


@pytest.mark.parametrize("is_told", [True, False], ids=["told by the server", "found by the consumer"])
class TestWhatCannotBeRead:
    """Offset 0 is good, 1 and 2 cannot be read, 3 is good."""

    @pytest.fixture
    def cluster(self, is_told: bool) -> FakeCluster:
        cluster = FakeCluster()
        cluster.topic.append(0, b"a")
        cluster.topic.append_unreadable(0, 2)
        cluster.topic.append(0, b"b")
        if is_told:
            cluster.topic.partitions[0].damaged.add(1)
        cluster.group.give(0)
        return cluster

    def test_it_is_raised_in_its_turn_and_can_be_passed(self, cluster: FakeCluster) -> None:
        async def use() -> None:
            async with member(cluster) as consumer:
                assert values(await consumer.poll()) == [b"a"]
                with pytest.raises(CorruptBatch, match=r"t-0 at offset 1: .*seek\(\) behind") as caught:
                    await consumer.poll(timeout_ms=10_000)
                error = caught.value
                assert (error.topic, error.partition, error.offset, error.next_offset) == ("t", 0, 1, 3)
                assert await consumer.position(T0) == 1
                consumer.seek(T0, error.next_offset)
                assert values(await consumer.poll()) == [b"b"]
                assert consumer.skipped.batches == 0

        cluster.world.run(use())

    def test_it_may_be_skipped_and_is_counted(self, cluster: FakeCluster) -> None:
        async def use() -> list[bytes | None]:
            seen: list[bytes | None] = []
            async with member(cluster, on_corrupt_batch="skip") as consumer:
                while batch := await consumer.poll(timeout_ms=1_000):
                    seen += values(batch)
                assert (consumer.skipped.batches, consumer.skipped.offsets) == (1, 2)
                assert await consumer.position(T0) == 4
            return seen

        assert cluster.world.run(use()) == [b"a", b"b"]
        assert cluster.group.offsets == {T0: 4}


def test_records_come_one_by_one(cluster: FakeCluster) -> None:
    cluster.topic.append(0, b"a", b"b", b"c")
    cluster.group.give(0)

    async def use() -> list[bytes | None]:
        seen = []
        async with member(cluster) as consumer:
            async for record in consumer:
                seen.append(record.value)
                if len(seen) == 2:
                    break
            async for batch in consumer.batches():
                return seen + values(batch)
        raise AssertionError("the records ended")

    assert cluster.world.run(use()) == [b"a", b"b", b"c"]
    assert cluster.group.offsets == {T0: 3}


def test_its_listener_is_awaited_and_may_ask(cluster: FakeCluster) -> None:
    told: list[tuple[str, list[TopicPartition]]] = []

    class Listener(AsyncRebalanceListener):
        consumer: AsyncConsumer

        async def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
            told.append(("assigned", sorted(partitions)))
            for name, end in (await self.consumer.end_offsets(partitions)).items():
                self.consumer.seek(name, end - 1)

        async def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
            told.append(("revoked", sorted(partitions)))
            await self.consumer.commit()

    cluster.topic.append(0, b"a", b"b", b"c")
    cluster.group.give(0)

    async def use() -> None:
        listener = Listener()
        listener.consumer = consumer = member(cluster, listener, enable_auto_commit=False)
        assert values(await consumer.poll()) == [b"c"]
        cluster.group.give()
        await consumer.poll(timeout_ms=1_000)
        assert cluster.group.offsets == {T0: 3}
        cluster.group.give(0)
        assert values(await consumer.poll(timeout_ms=100)) == [b"c"]
        cluster.group.remove()
        assert values(await consumer.poll(timeout_ms=1_000)) == [b"c"]
        await consumer.close()

    cluster.world.run(use())
    # The last revocation but one is for what was lost.
    words = [word for word, names in told if names]
    assert words == ["assigned", "revoked", "assigned", "revoked", "assigned", "revoked"]


def test_callbacks_may_be_coroutines(cluster: FakeCluster) -> None:
    cluster.group.give(0)
    told = []

    async def use() -> None:
        async with member(cluster, enable_auto_commit=False) as consumer:
            await consumer.poll(timeout_ms=100)

            async def callback(offsets, error) -> None:
                told.append((offsets, error))

            consumer.commit_async({T0: 5}, callback)
            await consumer.commit()
            assert told == [({T0: (5, "", None)}, None)]

    cluster.world.run(use())


def test_a_poll_that_is_cancelled_loses_nothing(cluster: FakeCluster) -> None:
    cluster.group.give(0)

    async def use() -> None:
        async with member(cluster) as consumer:
            waiting = asyncio.create_task(consumer.poll(timeout_ms=60_000))
            for _ in range(3):
                await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            cluster.topic.append(0, b"a")
            assert values(await consumer.poll()) == [b"a"]

    cluster.world.run(use())


def test_a_server_that_is_away_does_not_keep_it_from_closing(cluster: FakeCluster) -> None:
    cluster.group.give(0)

    async def use() -> None:
        consumer = member(cluster)
        await consumer.poll(timeout_ms=100)
        cluster.world.weather = lambda _: Fault.LOST_REQUEST
        await consumer.close(timeout_ms=2_000)

    cluster.world.run(use())
    assert cluster.world.now_ms < 2_200
