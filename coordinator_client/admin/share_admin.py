"""Administration of share groups: their start offsets and lag, and where they begin anew.

Source: KIP-932, KIP-1226 (lag).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from coordinator_api.v1 import group_pb2 as group
from coordinator_client.admin.group_admin import GroupCalls
from coordinator_client.admin.offset_reset import OffsetReset
from coordinator_client.calls import (
    ALTER_SHARE_GROUP_OFFSETS,
    DELETE_SHARE_GROUP_OFFSETS,
    DESCRIBE_SHARE_GROUP_OFFSETS,
)
from coordinator_client.descriptions.group_offsets import (
    GroupOffset,
    PlannedOffset,
    ShareGroupOffset,
    share_group_offset,
)
from coordinator_client.errors import check_here
from coordinator_client.values import OffsetAndMetadata, TopicPartition
from coordinator_protocol.methods import Method
from coordinator_protocol.names import check_group_id


class ShareAdminCalls(GroupCalls):
    """Administrator calls about groups, also share groups; users create an `Admin`."""

    async def share_group_offsets(self, group_id: str) -> list[ShareGroupOffset]:
        """Return the progress of a share group in each partition that it reads.

        Raises: Rejected (GROUP_ID_NOT_FOUND, also for a group of another type).
        """
        check_here(check_group_id, group_id, Method.DESCRIBE_SHARE_GROUP_OFFSETS)
        request = group.DescribeShareGroupOffsetsRequest(header=self._asker.header(), group_id=group_id)
        reply = await self._asker.ask(DESCRIBE_SHARE_GROUP_OFFSETS, request, items=lambda reply: reply.offsets)
        return [share_group_offset(found) for found in reply.offsets]

    async def plan_share_offset_resets(
        self, group_id: str, resets: Mapping[TopicPartition, OffsetReset]
    ) -> list[PlannedOffset]:
        """Return the offset from which the share group would begin anew in each partition; nothing is changed. Its
        present start offset takes the place of a committed one.

        Raises: Rejected (GROUP_ID_NOT_FOUND, UNKNOWN_TOPIC_OR_PARTITION; INVALID_REQUEST for a shift if the group has
        not begun).
        """
        begun = {each.partition: _as_committed(each) for each in await self.share_group_offsets(group_id)}
        return await self._planned(resets, begun)

    async def alter_share_group_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, int],
        *,
        topic_ids: Mapping[TopicPartition, bytes] = MappingProxyType({}),
    ) -> None:
        """Let a share group without members begin anew at these offsets; durable when this returns. An offset outside
        the log is moved to its nearer end. What is known of single records is dropped.

        Raises: Rejected (NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND, UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID,
        INCONSISTENT_TOPIC_ID). Partitions that were not refused are changed.
        """
        check_here(check_group_id, group_id, Method.ALTER_SHARE_GROUP_OFFSETS)
        request = group.AlterShareGroupOffsetsRequest(header=self._asker.mutation(), group_id=group_id)
        for name, offset in offsets.items():
            topic, partition = name
            request.offsets.add(topic=topic, topic_id=topic_ids.get(name), partition=partition, start_offset=offset)
        await self._asker.ask(ALTER_SHARE_GROUP_OFFSETS, request, items=lambda reply: reply.results)

    async def delete_share_group_offsets(self, group_id: str, topics: Iterable[str]) -> None:
        """Drop what a share group without members knows of the records of topics. If it reads them again, it begins
        where its settings say.

        Raises: Rejected (NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND, UNKNOWN_TOPIC_OR_PARTITION). Topics that were not refused
        are dropped.
        """
        check_here(check_group_id, group_id, Method.DELETE_SHARE_GROUP_OFFSETS)
        request = group.DeleteShareGroupOffsetsRequest(header=self._asker.mutation(), group_id=group_id, topics=topics)
        await self._asker.ask(DELETE_SHARE_GROUP_OFFSETS, request, items=lambda reply: reply.topics)


def _as_committed(found: ShareGroupOffset) -> GroupOffset:
    committed = None if found.start_offset is None else OffsetAndMetadata(found.start_offset)
    return GroupOffset(
        partition=found.partition, committed=committed, commit_timestamp_ms=None, pending=(), topic_id=found.topic_id
    )
