"""Records that members of share groups have acquired and not acknowledged."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from bench.curves.growths.appending import append, create
from bench.curves.growths.growth import Growth, Place
from bench.load.stubs import checked, open_channel
from bench.results import LoadFailed
from coordinator_api.v1 import group_pb2 as group
from coordinator_api.v1 import share_pb2 as share
from coordinator_api.v1.group_pb2_grpc import GroupServiceStub
from coordinator_api.v1.share_pb2_grpc import ShareServiceStub

if TYPE_CHECKING:
    from grpc import aio

    from coordinator_api.v1.group_pb2_grpc import GroupServiceAsyncStub
    from coordinator_api.v1.share_pb2_grpc import ShareServiceAsyncStub

_TOPIC: Final = "shared"
_PARTITIONS: Final = 50
_HELD: Final = 2_000
"""Records that a group may hold of one partition, by the server's default."""
_BATCH_RECORDS: Final = 500
_VALUE_BYTES: Final = 32
_AT_ONCE: Final = 5_000
"""Records of one ShareFetch."""
_TRIES_MAX: Final = 500
_PAUSE_S: Final = 0.02
_LONG_MS: Final = 3_600_000


class SharedRecords(Growth):
    """Groups of one member, which holds so many records of each partition. All groups read the same ones: one more
    group begins when the others hold as much as they may."""

    settings = (
        f"group_share_session_timeout_ms={_LONG_MS}",
        f"group_share_session_timeout_ms_max={_LONG_MS}",
        f"group_share_record_lock_duration_ms={_LONG_MS}",
        f"group_share_record_lock_duration_ms_max={_LONG_MS}",
    )

    def __init__(self, partitions: int = _PARTITIONS, held: int = _HELD) -> None:
        self._partitions = partitions
        self._of_a_group = partitions * held
        self._members: list[_Member] = []

    async def grow(self, place: Place, have: int, to: int) -> None:
        async with open_channel(place.endpoint) as channel:
            if not have:
                await self._fill(channel)
            while have < to:
                if have % self._of_a_group == 0:
                    self._members.append(_Member(f"workers-{len(self._members)}", self._partitions))
                    await self._members[-1].join(channel)
                wanted = min(to - have, self._of_a_group - have % self._of_a_group)
                await self._members[-1].acquire(channel, wanted)
                have += wanted

    async def _fill(self, channel: aio.Channel) -> None:
        await create(channel, _TOPIC, self._partitions)
        batches = self._of_a_group // self._partitions // _BATCH_RECORDS
        # One partition after the other, so that each gets the same number of records.
        for each in range(self._partitions):
            await append(channel, _TOPIC, [each], batches, value_bytes=_VALUE_BYTES, records=_BATCH_RECORDS)


class _Member:
    """The only member of a group, with its share session."""

    def __init__(self, group_id: str, partitions: int) -> None:
        self._group_id, self._partitions = group_id, partitions
        self._session_epoch = 0

    async def join(self, channel: aio.Channel) -> None:
        """Join, and return once all partitions are assigned. Raises: Refusal, LoadFailed."""
        groups: GroupServiceAsyncStub = GroupServiceStub(channel)
        earliest = group.GroupConfig(name="share_auto_offset_reset", text="earliest")
        checked(await groups.AlterGroupConfigs(group.AlterGroupConfigsRequest(group_id=self._group_id, set=[earliest])))
        request = group.ShareGroupHeartbeatRequest(group_id=self._group_id, member_id="member", member_epoch=0)
        request.subscribed_topic_names.names.append(_TOPIC)
        assigned = 0
        for _try in range(_TRIES_MAX):
            answer = checked(await groups.ShareGroupHeartbeat(request))
            request.member_epoch = answer.member_epoch
            if answer.HasField("assignment"):
                assigned = sum(len(topic.partitions) for topic in answer.assignment.topics)
            if assigned == self._partitions:
                return
            await asyncio.sleep(_PAUSE_S)
        raise LoadFailed(f"{self._group_id} has {assigned} of {self._partitions} partitions")

    async def acquire(self, channel: aio.Channel, records: int) -> None:
        """Acquire exactly so many more records. Raises: Refusal, LoadFailed."""
        shares: ShareServiceAsyncStub = ShareServiceStub(channel)
        tries = 0
        while records:
            request = share.ShareFetchRequest(
                group_id=self._group_id,
                member_id="member",
                session_epoch=self._session_epoch,
                max_bytes=8 << 20,
                max_records=min(records, _AT_ONCE),
                strict_max_records=True,
            )
            if not self._session_epoch:
                request.partitions.extend(
                    share.SharePartition(topic=_TOPIC, partition=partition) for partition in range(self._partitions)
                )
            acquired = _count(checked(await shares.ShareFetch(request)))
            self._session_epoch += 1
            records -= acquired
            tries = 0 if acquired else tries + 1
            if tries == _TRIES_MAX:
                raise LoadFailed(f"{self._group_id} gets no more records, {records:,} are missing")
            if not acquired:
                await asyncio.sleep(_PAUSE_S)


def _count(answer: share.ShareFetchResponse) -> int:
    return sum(
        acquired.last_offset - acquired.first_offset + 1
        for result in answer.results
        for acquired in checked(result).acquired
    )
