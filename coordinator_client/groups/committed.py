"""Offsets of groups as members name, commit and look them up.

Committed offsets are asked with `require_stable`, so the answer waits for the transaction of a pending offset.
Otherwise the records before it would be processed twice (KIP-447).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from coordinator_api.v1 import group_pb2 as group
from coordinator_client.descriptions.group_offsets import committed_in
from coordinator_client.errors import ReplyFields, check_here, rejected
from coordinator_client.groups.context import MemberContext
from coordinator_client.values import OffsetAndMetadata, TopicPartition
from coordinator_protocol.errors import ErrorCode
from coordinator_protocol.names import check_topic_name

Partitions: TypeAlias = Iterable[tuple[str, int]]

Offsets: TypeAlias = Mapping[TopicPartition, int | OffsetAndMetadata] | Mapping[tuple[str, int], int | tuple[int, str]]
"""Offsets to commit by partition: a number, or a number and a text."""


Committed: TypeAlias = dict[TopicPartition, OffsetAndMetadata | None]
"""Committed offsets by partition; None if nothing is committed."""


@dataclass(frozen=True, slots=True)
class Reader:
    """The identity for requests of committed offsets. The server checks members with epochs (spec groups 4.3)."""

    group_id: str
    member_id: str = ""
    member_epoch: int | None = None


def offset_fetch_request(
    context: MemberContext, reader: Reader, partitions: Iterable[tuple[TopicPartition, bytes]]
) -> group.OffsetFetchRequest:
    """Return the request for stable committed offsets. The answer has them in the order of `partitions`, which must be
    grouped by topic."""
    request = group.OffsetFetchRequest(header=context.header(), require_stable=True)
    asked = request.groups.add(group_id=reader.group_id, member_id=reader.member_id, member_epoch=reader.member_epoch)
    asked.topics.SetInParent()
    topics = asked.topics.topics
    for (topic, partition), topic_id in partitions:
        if not topics or topics[-1].topic != topic:
            topics.add(topic=topic, topic_id=topic_id)
        topics[-1].partitions.append(partition)
    return request


def committed_verdicts(reply: group.OffsetFetchResponse) -> Iterable[ReplyFields]:
    """Return the verdicts in an answer: on each group, and on each partition."""
    return [*reply.groups, *(offset for found in reply.groups for offset in found.offsets)]


def committed_of(asked: Sequence[TopicPartition], reply: group.OffsetFetchResponse) -> Committed:
    """Return the offsets in an answer without errors."""
    return {
        name: committed_in(found) if found.committed_offset >= 0 else None
        for name, found in zip(asked, reply.groups[0].offsets, strict=True)
    }


def checked_partitions(partitions: Partitions) -> list[TopicPartition]:
    """Return the partitions, each once, in order. Raises: Rejected for an impossible topic name or number."""
    found: dict[TopicPartition, None] = {}
    for topic, number in partitions:
        check_here(check_topic_name, topic)
        if number < 0:
            raise rejected(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic} has no partition {number}")
        found[TopicPartition(topic, number)] = None
    return list(found)


def checked_offsets(offsets: Offsets) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return the offsets to commit. Raises: Rejected if one is below 0."""
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
