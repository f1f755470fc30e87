"""Members of consumer groups: many groups of one member, or one group of many."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from bench.curves.growths.appending import create
from bench.curves.growths.growth import Growth, Place, ask_all
from bench.epoch_heartbeats import TOPIC, Consumer
from bench.load.stubs import checked, open_channel
from bench.results import LoadFailed
from coordinator_api.v1 import group_pb2 as group
from coordinator_api.v1.group_pb2_grpc import GroupServiceStub

if TYPE_CHECKING:
    from coordinator_api.v1.group_pb2_grpc import GroupServiceAsyncStub

_LONG_MS: Final = 3_600_000
PATIENT: Final = (
    f"group_consumer_session_timeout_ms={_LONG_MS}",
    f"group_consumer_session_timeout_ms_max={_LONG_MS}",
)
"""Settings by which members stay without heartbeats while others join and a point is measured."""
_GROUP_PARTITIONS: Final = 3
_MEMBER_PARTITIONS: Final = 1_000
_ROUNDS_MAX: Final = 200
_PAUSE_S: Final = 0.05


class Groups(Growth):
    """Groups of one member with a committed offset. All of them read one topic of three partitions."""

    settings = PATIENT

    async def grow(self, place: Place, have: int, to: int) -> None:
        if not have:
            await _create(place, _GROUP_PARTITIONS)
        members = [Consumer(f"group-{number}", f"member-{number}") for number in range(have, to)]
        await settle(place.endpoint, members)
        await ask_all(
            place.endpoint,
            (("OffsetCommit", _first_offset(f"group-{number}", f"member-{number}")) for number in range(have, to)),
            lambda answer: checked(checked(group.OffsetCommitResponse.FromString(answer)).results[0]),
        )


class Members(Growth):
    """Members of one group, who share the 1,000 partitions of a topic."""

    settings = PATIENT

    def __init__(self) -> None:
        self._members: list[Consumer] = []

    async def grow(self, place: Place, have: int, to: int) -> None:
        if not have:
            await _create(place, _MEMBER_PARTITIONS)
        self._members += (Consumer("crowd", f"member-{number}") for number in range(have, to))
        await settle(place.endpoint, self._members)


async def settle(endpoint: str, members: Sequence[Consumer]) -> None:
    """Send heartbeats of all members until no answer has anything new and the last group is stable.

    Raises: LoadFailed, Refusal."""
    for _round in range(_ROUNDS_MAX):
        answered = iter(members)
        await ask_all(
            endpoint,
            (("ConsumerGroupHeartbeat", member.request().SerializeToString()) for member in members),
            lambda answer, whose=answered: next(whose).note(  # type: ignore[misc]
                checked(group.ConsumerGroupHeartbeatResponse.FromString(answer))
            ),
        )
        if not any(member.is_changed for member in members):
            if await _is_stable(endpoint, members[-1].group_id):
                return
            await asyncio.sleep(_PAUSE_S)
    raise LoadFailed("the groups do not settle")


async def _is_stable(endpoint: str, group_id: str) -> bool:
    """Return False while the target of a group is computed: heartbeats bring nothing new meanwhile."""
    async with open_channel(endpoint) as channel:
        groups: GroupServiceAsyncStub = GroupServiceStub(channel)
        described = checked(
            await groups.ConsumerGroupDescribe(group.ConsumerGroupDescribeRequest(group_ids=[group_id]))
        )
    return checked(described.groups[0]).group_state == "Stable"


async def _create(place: Place, partitions: int) -> None:
    async with open_channel(place.endpoint) as channel:
        await create(channel, TOPIC, partitions)


def _first_offset(group_id: str, member_id: str) -> bytes:
    offsets = group.TopicOffsets(topic=TOPIC, partitions=[group.PartitionOffset(partition=0, committed_offset=0)])
    request = group.OffsetCommitRequest(
        group_id=group_id, member_id=member_id, generation_id_or_member_epoch=1, topics=[offsets]
    )
    return request.SerializeToString()
