"""Commits of offsets, one after the other in each of many groups. A *driver* is a way in which the client makes
requests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Final

from grpc import aio

from bench.load.asking import Asker, SessionAsker, UnaryAsker
from bench.load.stubs import checked, new_prefix, open_channel
from bench.load.workers import Span, run_as_tasks
from bench.results import Run
from coordinator_api.v1 import group_pb2 as group
from coordinator_client import AsyncConsumer
from coordinator_client.transport.connection import Connection
from coordinator_client.values import OffsetAndMetadata, TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Settings of the load."""

    endpoint: str
    server_process_id: int
    driver: str
    groups: int
    topic: str
    warm_up_s: float
    measured_s: float

    @property
    def span(self) -> Span:
        return Span(self.warm_up_s, self.measured_s)


Driver = Callable[[Load], Run]


def measure(load: Load) -> Run:
    """Commit. Raises: LoadFailed."""
    return DRIVERS[load.driver](load)


class _SdkGroup:
    """A consumer with manually assigned partitions, which commits ever higher offsets of one of them."""

    def __init__(self, connection: Connection, group_id: str, topic: str) -> None:
        self._consumer = AsyncConsumer(connection, group_id=group_id, enable_auto_commit=False)
        self._partition = TopicPartition(topic, 0)
        self._consumer.assign([self._partition])
        self._offset = 0

    async def perform(self) -> None:
        self._offset += 1
        await self._consumer.commit({self._partition: OffsetAndMetadata(self._offset)})


def by_sdk(load: Load) -> Run:
    """Use asyncio consumers of the SDK on one loop, over one session."""

    def groups() -> list[_SdkGroup]:
        connection, prefix = Connection(load.endpoint, client_id="bench"), new_prefix("group")
        return [_SdkGroup(connection, f"{prefix}{number}", load.topic) for number in range(load.groups)]

    return run_as_tasks(groups, load.span, load.server_process_id)


class _EncodedGroup:
    """An encoded request that is sent repeatedly, with a higher offset each time."""

    def __init__(self, asker: Asker, group_id: str, topic: str) -> None:
        self._asker = asker
        partition = group.PartitionOffset(partition=0, committed_offset=0)
        offsets = group.TopicOffsets(topic=topic, partitions=[partition])
        self._request = group.OffsetCommitRequest(group_id=group_id, topics=[offsets])

    async def perform(self) -> None:
        self._request.topics[0].partitions[0].committed_offset += 1
        answer = await self._asker.ask("OffsetCommit", self._request.SerializeToString())
        checked(checked(group.OffsetCommitResponse.FromString(answer)).results[0])


def by_encoded_requests(load: Load, *, asker_on: Callable[[aio.Channel], Asker]) -> Run:
    """Send encoded requests on one loop, as unary calls or over one session."""

    def groups() -> list[_EncodedGroup]:
        asker, prefix = asker_on(open_channel(load.endpoint)), new_prefix("group")
        return [_EncodedGroup(asker, f"{prefix}{number}", load.topic) for number in range(load.groups)]

    return run_as_tasks(groups, load.span, load.server_process_id)


DRIVERS: Final[Mapping[str, Driver]] = MappingProxyType(
    {
        "SDK": by_sdk,
        "stubs": partial(by_encoded_requests, asker_on=UnaryAsker),
        "session": partial(by_encoded_requests, asker_on=SessionAsker),
    }
)
