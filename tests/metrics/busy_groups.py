"""The same for groups: rebalances of every fate, members that wait, offsets that wait, settle, go and are forgotten."""

from __future__ import annotations

import asyncio
from typing import Any

from coordinator_api.v1 import common_pb2, group_pb2, group_pb2_grpc
from coordinator_protocol.consumer_protocol import Subscription, encode_subscription
from coordinator_protocol.errors import ErrorCode
from tests.harness.patience import DEADLINE_SECONDS
from tests.metrics.busy_server import BusyServer

CLASSIC, MODERN, SIMPLE, LATE = "classic", "modern", "simple", "late"


class BusyGroups:
    """Drives the groups of one server over the wire."""

    def __init__(self, busy: BusyServer) -> None:
        self.busy = busy
        self.groups = group_pb2_grpc.GroupServiceStub(busy.server.channel)

    # Calls of members

    async def join(self, member_id: str = "") -> Any:
        """JoinGroup, with the id that the server gives if there is none."""
        request = group_pb2.JoinGroupRequest(
            group_id=CLASSIC,
            session_timeout_ms=30_000,
            rebalance_timeout_ms=30_000,
            member_id=member_id,
            protocol_type="consumer",
            protocols=[
                group_pb2.JoinGroupProtocol(name="range", metadata=encode_subscription(Subscription(topics=("t",))))
            ],
        )
        answer = await self.groups.JoinGroup(request, timeout=DEADLINE_SECONDS)
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            return await self.join(answer.member_id)
        assert answer.error_code == 0, answer
        return answer

    async def sync(self, joined: Any) -> int:
        """Returns the error code."""
        request = group_pb2.SyncGroupRequest(
            group_id=CLASSIC, generation_id=joined.generation_id, member_id=joined.member_id
        )
        return int((await self.groups.SyncGroup(request, timeout=DEADLINE_SECONDS)).error_code)

    async def beat(self, group_id: str, member_id: str, epoch: int, **said: Any) -> Any:
        """ConsumerGroupHeartbeat."""
        request = group_pb2.ConsumerGroupHeartbeatRequest(
            group_id=group_id, member_id=member_id, member_epoch=epoch, **said
        )
        answer = await self.groups.ConsumerGroupHeartbeat(request, timeout=DEADLINE_SECONDS)
        assert answer.error_code == 0, answer
        return answer

    async def enter(self, group_id: str, member_id: str) -> Any:
        """Join a consumer group as a new member."""
        return await self.beat(
            group_id,
            member_id,
            0,
            rebalance_timeout_ms=30_000,
            subscribed_topic_names=group_pb2.TopicNames(names=["t"]),
            topic_partitions=group_pb2.PartitionSet(),
        )

    async def commit(self, group_id: str = SIMPLE, *, topic: str = "t", offset: int = 7) -> None:
        request = group_pb2.OffsetCommitRequest(group_id=group_id, topics=_offset_of(0, topic=topic, offset=offset))
        answer = await self.groups.OffsetCommit(request, timeout=DEADLINE_SECONDS)
        assert answer.results[0].error_code == 0, answer

    # The story

    async def rebalances(self) -> None:
        """One that fails because a member joins, one that is completed, and a group that changes its protocol."""
        await self.busy.topic("t")
        first = await self.join()
        second = asyncio.ensure_future(self.join())
        await self.busy.until(lambda readings: readings["txn_group_waiting_calls"]["members",] == 1)
        await self.busy.until(lambda readings: readings["txn_group_rebalances_failed_total"]["classic",] == 1)
        first, other = await asyncio.gather(self.join(first.member_id), second)
        assert [await self.sync(each) for each in sorted((first, other), key=lambda each: not each.members)] == [0, 0]
        await self.enter(CLASSIC, "modern-member")
        self.busy.note()
        entered = await self.enter(MODERN, "m")
        waiting = asyncio.ensure_future(self.beat(MODERN, "m", entered.member_epoch, max_wait_ms=20_000))
        await self.busy.until(lambda readings: readings["txn_group_waiting_calls"]["news",] == 1)
        await self.beat(MODERN, "m", -1)
        waiting.cancel()

    async def offsets(self) -> None:
        """Offsets outside of transactions and in them."""
        await self.commit()
        producer_id, producer_epoch = identity = await self.busy.init("a")
        request = group_pb2.TxnOffsetCommitRequest(
            header=common_pb2.RequestHeader(client_txn_version=2),
            transactional_id="a",
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            group_id=SIMPLE,
            topics=_offset_of(1),
        )
        answer = await self.groups.TxnOffsetCommit(request, timeout=DEADLINE_SECONDS)
        assert answer.results[0].error_code == 0, answer
        age = "txn_group_oldest_pending_offset_age_seconds"
        await self.busy.until(lambda readings: readings[age][()] != 0)
        assert await self.busy.end("a", identity, committed=True) == 0
        self.busy.note()

    async def lags(self) -> None:
        """A group that is behind, and two topics of which only one is watched."""
        identity = await self.busy.opened("writer")
        assert await self.busy.end("writer", identity, committed=True) == 0
        await self.busy.topic("other")
        await self.commit(LATE, offset=0)
        await self.commit(LATE, topic="other", offset=0)
        parts = self.busy.server.parts
        # The rounds that the server makes by itself are seconds apart.
        parts.readings.lags.start()
        await self.busy.until(lambda readings: readings["txn_group_lag_omitted"][()] == 1)
        await self.busy.until(lambda readings: any(readings["txn_group_lag_seconds"].values()))

    async def administration(self) -> None:
        """Delete a group with its offsets."""
        request = group_pb2.DeleteGroupsRequest(group_ids=[SIMPLE])
        (deleted,) = (await self.groups.DeleteGroups(request, timeout=DEADLINE_SECONDS)).groups
        assert deleted.error_code == 0, deleted
        self.busy.note()

    async def forgotten(self) -> None:
        """A long time without commits."""
        await self.busy.topic("t")
        await self.commit()
        await self.busy.until(lambda readings: readings["txn_group_offset_expirations_total"][()] == 1)


def _offset_of(partition: int, *, topic: str = "t", offset: int = 7) -> list[group_pb2.TopicOffsets]:
    return [
        group_pb2.TopicOffsets(
            topic=topic, partitions=[group_pb2.PartitionOffset(partition=partition, committed_offset=offset)]
        )
    ]
