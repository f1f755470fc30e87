"""The questions that an application may ask about partitions, as requests and their answers; and its arguments,
checked."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TypeAlias

from coordinator_api.v1 import group_pb2 as group
from coordinator_api.v1 import log_pb2 as log
from coordinator_client.consumer.core import ConsumerCore
from coordinator_client.consumer.future import Future
from coordinator_client.consumer.positions import offset_fetch_request
from coordinator_client.consumer.state import OffsetAndMetadata, TopicPartition
from coordinator_client.errors import Verdict, check_here, rejected
from coordinator_client.isolation import isolation_level
from coordinator_client.methods import LIST_OFFSETS, OFFSET_FETCH
from coordinator_client.retrying_call import Deadlines, RetryingCall
from coordinator_protocol.errors import ErrorCode
from coordinator_protocol.names import check_topic_name

Partitions: TypeAlias = Iterable[tuple[str, int]]

Offsets: TypeAlias = Mapping[TopicPartition, int | OffsetAndMetadata] | Mapping[tuple[str, int], int | tuple[int, str]]
"""Offsets to commit by partition: a number, or a number and a text."""


def ask_committed(
    core: ConsumerCore, partitions: Collection[TopicPartition], *, now_ms: int, timeout_ms: int
) -> Future[dict[TopicPartition, OffsetAndMetadata | None]]:
    """Ask for committed offsets; one that waits for its transaction is waited for."""
    asked = sorted(partitions)
    request = offset_fetch_request(core.context, core.reader(), ((name, b"") for name in asked))

    def verdicts(reply: group.OffsetFetchResponse) -> Iterable[Verdict]:
        return [*reply.groups, *(offset for found in reply.groups for offset in found.offsets)]

    def convert(reply: group.OffsetFetchResponse) -> dict[TopicPartition, OffsetAndMetadata | None]:
        return {
            name: OffsetAndMetadata(found.committed_offset, found.metadata) if found.committed_offset >= 0 else None
            for name, found in zip(asked, reply.groups[0].offsets, strict=True)
        }

    deadlines = Deadlines(total_ms=timeout_ms)
    return core.ask(RetryingCall(OFFSET_FETCH, request, deadlines=deadlines, now_ms=now_ms, items=verdicts), convert)


def ask_offsets(
    core: ConsumerCore, times_ms: Mapping[TopicPartition, int], *, now_ms: int, timeout_ms: int
) -> Future[dict[TopicPartition, int]]:
    """Ask for the offset of each partition at a time, or at `EARLIEST_MS` or `LATEST_MS`; all are taken at the same
    moment."""
    request = log.ListOffsetsRequest(
        header=core.context.header(), isolation_level=isolation_level(core.config.isolation)
    )
    for (topic, partition), time_ms in times_ms.items():
        request.partitions.add(topic=topic, partition=partition, timestamp_ms=time_ms)

    def convert(reply: log.ListOffsetsResponse) -> dict[TopicPartition, int]:
        return {name: found.offset for name, found in zip(times_ms, reply.results, strict=True)}

    deadlines = Deadlines(total_ms=timeout_ms)
    call = RetryingCall(LIST_OFFSETS, request, deadlines=deadlines, now_ms=now_ms, items=lambda reply: reply.results)
    return core.ask(call, convert)


def checked_partitions(partitions: Partitions) -> list[TopicPartition]:
    """Return the partitions, each once, in order. Raises: Rejected where a topic name or a number is impossible."""
    found: dict[TopicPartition, None] = {}
    for topic, number in partitions:
        check_here(check_topic_name, topic)
        if number < 0:
            raise rejected(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic} has no partition {number}")
        found[TopicPartition(topic, number)] = None
    return list(found)


def checked_offsets(offsets: Offsets) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return the offsets to commit. Raises: Rejected where one is below 0."""
    checked = {}
    for name, wanted in zip(checked_partitions(offsets), offsets.values(), strict=True):
        offset = OffsetAndMetadata(wanted) if isinstance(wanted, int) else OffsetAndMetadata(*wanted)
        if offset.offset < 0:
            raise rejected(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{name.topic}-{name.partition}: the offset to commit is {offset.offset} and must not be below 0",
            )
        checked[name] = offset
    return checked
