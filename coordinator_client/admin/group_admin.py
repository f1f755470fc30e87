"""Administration of groups: their members, their offsets, and where they continue reading.

All returned values are durable. A call that concerns several parts of the server makes several requests, and the group
may have moved in between.

Source: spec groups 3.12, 4.3, 4.6, 4.8; docs/tour.md (lag); KIP-122, KIP-496.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from types import MappingProxyType
from typing import Final, NamedTuple

from coordinator_api.v1 import group_pb2 as group
from coordinator_api.v1 import log_pb2 as log
from coordinator_client.admin.offset_reset import OffsetReset, ResetTo, planned
from coordinator_client.asking import BlockingAsker
from coordinator_client.calls import (
    ALTER_GROUP_CONFIGS,
    CONSUMER_GROUP_DESCRIBE,
    CONSUMER_GROUP_HEARTBEAT,
    COUNT_RECORDS,
    DELETE_GROUPS,
    DESCRIBE_GROUP_CONFIGS,
    DESCRIBE_GROUPS,
    DESCRIBE_TOPICS,
    LEAVE_GROUP,
    LIST_GROUPS,
    LIST_OFFSETS,
    OFFSET_COMMIT,
    OFFSET_DELETE,
    OFFSET_FETCH,
    SHARE_GROUP_DESCRIBE,
    SHARE_GROUP_HEARTBEAT,
    STREAMS_GROUP_DESCRIBE,
    STREAMS_GROUP_HEARTBEAT,
)
from coordinator_client.consumer.commits import fill_topics
from coordinator_client.descriptions.group_offsets import (
    GroupLag,
    GroupOffset,
    PartitionPositions,
    PlannedOffset,
    RecordCount,
    group_offset,
    topic_partitions,
)
from coordinator_client.descriptions.groups import (
    GroupDescription,
    GroupListing,
    GroupMember,
    described_classic,
    described_consumer,
    described_share,
)
from coordinator_client.descriptions.streams import described_streams
from coordinator_client.errors import (
    TOPIC_GONE,
    Misconfigured,
    Rejected,
    ReplyFields,
    TransactionError,
    check_here,
    rejected,
)
from coordinator_client.settings import isolation_level
from coordinator_client.values import OffsetAndMetadata, TopicPartition
from coordinator_protocol.errors import ErrorCode
from coordinator_protocol.methods import Method
from coordinator_protocol.names import check_group_id

_COUNTED_AT_ONCE_MAX: Final = 400
"""Maximum partitions in one request; about as many as the server counts before it yields to other calls."""

_GROUPS_AT_ONCE_MAX: Final = 50
"""Maximum groups in one request, so that the answer stays small when they have many partitions."""

_LEAVING_EPOCH: Final = -1
"""Member epoch of the heartbeat with which a member leaves."""


class _CountStart(NamedTuple):
    """Place from which records are counted."""

    partition: TopicPartition
    topic_id: bytes
    """Empty: not known."""
    offset: int


class GroupCalls:
    """Administrator calls about groups; users create an `Admin`."""

    _asker: BlockingAsker

    # Groups and their members

    async def list_groups(self, *, states: Sequence[str] = (), types: Sequence[str] = ()) -> list[GroupListing]:
        """Return the groups whose state is in `states` and whose type is in `types`, sorted by id. An empty filter
        matches all groups. A name that the server does not know matches none."""
        request = group.ListGroupsRequest(header=self._asker.header(), state_filters=states, type_filters=types)
        reply = await self._asker.ask(LIST_GROUPS, request)
        return [
            GroupListing(
                group_id=found.group_id,
                group_type=found.group_type,
                state=found.group_state,
                protocol_type=found.protocol_type,
            )
            for found in reply.groups
        ]

    async def describe_group(self, group_id: str) -> GroupDescription:
        """Return a group of any type.

        Raises: Rejected (GROUP_ID_NOT_FOUND).
        """
        check_here(check_group_id, group_id, Method.CONSUMER_GROUP_DESCRIBE)
        request = group.ConsumerGroupDescribeRequest(header=self._asker.header(), group_ids=[group_id])
        try:
            reply = await self._asker.ask(CONSUMER_GROUP_DESCRIBE, request, items=lambda reply: reply.groups)
        except Rejected as error:
            if error.code != ErrorCode.GROUP_ID_NOT_FOUND:
                raise
            return await self._describe_other_group(group_id)
        return described_consumer(reply.groups[0])

    async def _describe_other_group(self, group_id: str) -> GroupDescription:
        try:
            return await self._describe_classic_group(group_id)
        except Rejected as error:
            if error.code != ErrorCode.GROUP_ID_NOT_FOUND:
                raise
            not_found = error
        for describe in (self._describe_share_group, self._describe_streams_group):
            try:
                return await describe(group_id)
            except Misconfigured as error:
                if error.code != ErrorCode.UNSUPPORTED_VERSION:
                    raise
                # A server older than groups of this kind.
                raise not_found from None
            except Rejected as error:
                if error.code != ErrorCode.GROUP_ID_NOT_FOUND:
                    raise
        raise not_found

    async def _describe_share_group(self, group_id: str) -> GroupDescription:
        request = group.ShareGroupDescribeRequest(header=self._asker.header(), group_ids=[group_id])
        reply = await self._asker.ask(SHARE_GROUP_DESCRIBE, request, items=lambda reply: reply.groups)
        return described_share(reply.groups[0])

    async def _describe_streams_group(self, group_id: str) -> GroupDescription:
        request = group.StreamsGroupDescribeRequest(header=self._asker.header(), group_ids=[group_id])
        reply = await self._asker.ask(STREAMS_GROUP_DESCRIBE, request, items=lambda reply: reply.groups)
        return described_streams(reply.groups[0])

    async def _describe_classic_group(self, group_id: str) -> GroupDescription:
        request = group.DescribeGroupsRequest(header=self._asker.header(), group_ids=[group_id])
        reply = await self._asker.ask(DESCRIBE_GROUPS, request, items=lambda reply: reply.groups)
        return described_classic(reply.groups[0])

    async def delete_group(self, group_id: str) -> None:
        """Delete a group with all its offsets.

        Raises: Rejected (NON_EMPTY_GROUP; GROUP_ID_NOT_FOUND).
        """
        check_here(check_group_id, group_id, Method.DELETE_GROUPS)
        request = group.DeleteGroupsRequest(header=self._asker.mutation(), group_ids=[group_id])
        try:
            await self._asker.ask(DELETE_GROUPS, request, items=lambda reply: reply.groups)
        except Rejected as error:
            # The first attempt may have deleted the group, and its answer was lost.
            if error.code != ErrorCode.GROUP_ID_NOT_FOUND or not error.lost_attempts:
                raise

    async def remove_members(self, group_id: str, member_ids: Collection[str]) -> None:
        """Remove members from a group of any type, as if they had left it. Their partitions go to others. A member that
        is alive learns of it with its next heartbeat and joins again. Members that are gone already are no error.

        Raises: Rejected (GROUP_ID_NOT_FOUND).
        """
        described = await self.describe_group(group_id)
        for member in described.members:
            if member.member_id not in member_ids:
                continue
            try:
                await self._remove_member(described, member)
            except TransactionError as error:
                if error.code != ErrorCode.UNKNOWN_MEMBER_ID:
                    raise

    async def _remove_member(self, described: GroupDescription, member: GroupMember) -> None:
        group_id, member_id = described.group_id, member.member_id
        if described.group_type == "share":
            share_leave = group.ShareGroupHeartbeatRequest(
                header=self._asker.header(), group_id=group_id, member_id=member_id, member_epoch=_LEAVING_EPOCH
            )
            await self._asker.ask(SHARE_GROUP_HEARTBEAT, share_leave)
        elif described.group_type == "streams":
            streams_leave = group.StreamsGroupHeartbeatRequest(
                header=self._asker.header(),
                group_id=group_id,
                member_id=member_id,
                member_epoch=_LEAVING_EPOCH,
                instance_id=member.instance_id,
            )
            await self._asker.ask(STREAMS_GROUP_HEARTBEAT, streams_leave)
        elif described.group_type == "consumer" and not member.is_classic:
            leave = group.ConsumerGroupHeartbeatRequest(
                header=self._asker.header(),
                group_id=group_id,
                member_id=member_id,
                member_epoch=_LEAVING_EPOCH,
                instance_id=member.instance_id,
            )
            await self._asker.ask(CONSUMER_GROUP_HEARTBEAT, leave)
        else:
            leaving = group.LeavingMember(
                member_id=member_id, group_instance_id=member.instance_id, reason="removed by an administrator"
            )
            request = group.LeaveGroupRequest(header=self._asker.header(), group_id=group_id, members=[leaving])
            await self._asker.ask(LEAVE_GROUP, request, items=lambda reply: reply.members)

    # Offsets of groups

    async def group_offsets(self, group_id: str) -> list[GroupOffset]:
        """Return the committed and pending offsets of a group by partition. Empty for a group that does not exist."""
        return (await self._offsets_of([group_id]))[group_id]

    async def _offsets_of(self, group_ids: Sequence[str]) -> dict[str, list[GroupOffset]]:
        for group_id in group_ids:
            check_here(check_group_id, group_id, Method.OFFSET_FETCH)
        committed = await self._fetch_offsets(group_ids, require_stable=False)
        stable = await self._fetch_offsets(group_ids, require_stable=True)
        return {group_id: _with_pending(committed[group_id], stable[group_id]) for group_id in group_ids}

    async def _fetch_offsets(self, group_ids: Sequence[str], *, require_stable: bool) -> dict[str, list[GroupOffset]]:
        request = group.OffsetFetchRequest(
            header=self._asker.header(),
            groups=[group.OffsetFetchGroup(group_id=group_id) for group_id in group_ids],
            require_stable=require_stable,
        )

        def verdicts(reply: group.OffsetFetchResponse) -> Iterable[ReplyFields]:
            # Pending offsets are requested here, so UNSTABLE_OFFSET_COMMIT is no reason to retry.
            offsets = [each for found in reply.groups for each in found.offsets]
            return [*reply.groups, *_without(offsets, {ErrorCode.UNSTABLE_OFFSET_COMMIT})]

        reply = await self._asker.ask(OFFSET_FETCH, request, items=verdicts)
        return {
            group_id: [group_offset(each) for each in found.offsets]
            for group_id, found in zip(group_ids, reply.groups, strict=True)
        }

    async def group_lag(self, group_id: str) -> list[GroupLag]:
        """Return `group_offsets`, each with the number of records from the committed offset on."""
        return (await self.lag_of_groups([group_id]))[group_id]

    async def lag_of_groups(self, group_ids: Collection[str]) -> dict[str, list[GroupLag]]:
        """Return `group_lag` of each group, in few requests. Empty for one that does not exist."""
        offsets: dict[str, list[GroupOffset]] = {}
        names = iter(dict.fromkeys(group_ids))
        while asked := list(islice(names, _GROUPS_AT_ONCE_MAX)):
            offsets |= await self._offsets_of(asked)
        starts = {group_id: [*map(_start, found)] for group_id, found in offsets.items()}
        # Groups at the same place share its count.
        counts = await self._count(dict.fromkeys(start for found in starts.values() for start in found if start))
        return {
            group_id: [
                GroupLag(offset=each, lag=None if start is None else counts.get(start))
                for each, start in zip(found, starts[group_id], strict=True)
            ]
            for group_id, found in offsets.items()
        }

    async def count_records(
        self,
        start_offsets: Mapping[TopicPartition, int],
        *,
        topic_ids: Mapping[TopicPartition, bytes] = MappingProxyType({}),
    ) -> dict[TopicPartition, RecordCount]:
        """Return the number of records from each offset on. Partitions that do not exist, or whose topic has another id
        than in `topic_ids`, are left out.

        A long count takes several requests, and counts up to the end of the log at the last of them.
        """
        starts = {name: _CountStart(name, topic_ids.get(name, b""), at) for name, at in start_offsets.items()}
        counts = await self._count(starts.values())
        return {name: counts[start] for name, start in starts.items() if start in counts}

    async def _count(self, starts: Iterable[_CountStart]) -> dict[_CountStart, RecordCount]:
        counts: dict[_CountStart, RecordCount] = {}
        # The place where the next request continues each count.
        missing = {start: start for start in starts}
        while missing:
            asked = list(islice(missing.items(), _COUNTED_AT_ONCE_MAX))
            request = log.CountRecordsRequest(header=self._asker.header())
            for _, ((topic, partition), topic_id, at) in asked:
                request.partitions.add(topic=topic, topic_id=topic_id, partition=partition, start_offset=at)
            reply = await self._asker.ask(
                COUNT_RECORDS,
                request,
                items=lambda reply: _without(reply.results, TOPIC_GONE),
            )
            for (start, _), result in zip(asked, reply.results, strict=True):
                del missing[start]
                if result.error_code:
                    counts.pop(start, None)
                    continue
                counts[start] = _added(counts.get(start), result)
                if result.next_offset < result.high_watermark:
                    missing[start] = _CountStart(start.partition, result.topic_id, result.next_offset)
        return counts

    # Offset resets

    async def plan_offset_resets(
        self, group_id: str, resets: Mapping[TopicPartition, OffsetReset]
    ) -> list[PlannedOffset]:
        """Return the offset from which the group would continue in each partition; nothing is changed.

        Raises: Rejected (UNKNOWN_TOPIC_OR_PARTITION; INVALID_REQUEST for a shift if nothing is committed).
        """
        return await self._planned(resets, {each.partition: each for each in await self.group_offsets(group_id)})

    async def _planned(
        self, resets: Mapping[TopicPartition, OffsetReset], committed: Mapping[TopicPartition, GroupOffset]
    ) -> list[PlannedOffset]:
        positions = await self._positions(resets, committed)
        times_ms = {name: reset.number for name, reset in resets.items() if reset.to is ResetTo.TIME}
        times = await self._offsets_at(times_ms, positions)
        return [planned(name, reset, positions[name], times.get(name)) for name, reset in sorted(resets.items())]

    async def _positions(
        self, partitions: Iterable[TopicPartition], committed: Mapping[TopicPartition, GroupOffset]
    ) -> dict[TopicPartition, PartitionPositions]:
        names = sorted({name.topic for name in partitions})
        if not names:
            return {}
        request = log.DescribeTopicsRequest(
            header=self._asker.header(), topics=[log.TopicName(name=name) for name in names]
        )
        reply = await self._asker.ask(DESCRIBE_TOPICS, request, items=lambda reply: reply.topics)
        found: dict[TopicPartition, PartitionPositions] = {}
        for topic in reply.topics:
            for described in topic.partitions:
                name = TopicPartition(topic.name, described.partition)
                known = committed.get(name)
                # An offset committed in an earlier topic of the same name is ignored.
                offset = known.committed if known is not None and known.topic_id in (b"", topic.topic_id) else None
                found[name] = PartitionPositions(
                    log_start_offset=described.log_start_offset,
                    last_stable_offset=described.last_stable_offset,
                    high_watermark=described.high_watermark,
                    committed_offset=None if offset is None else offset.offset,
                    topic_id=topic.topic_id,
                )
        for name in partitions:
            if name not in found:
                raise rejected(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name.topic} has no partition {name.partition}"
                )
        return found

    async def _offsets_at(
        self, times_ms: Mapping[TopicPartition, int], positions: Mapping[TopicPartition, PartitionPositions]
    ) -> dict[TopicPartition, int]:
        """Return the first offset of a committed record at each time or later; partitions without so new a record are
        left out."""
        if not times_ms:
            return {}
        request = log.ListOffsetsRequest(header=self._asker.header(), isolation_level=isolation_level("read_committed"))
        for (topic, partition), time_ms in times_ms.items():
            topic_id = positions[TopicPartition(topic, partition)].topic_id
            request.partitions.add(topic=topic, topic_id=topic_id, partition=partition, timestamp_ms=time_ms)
        reply = await self._asker.ask(LIST_OFFSETS, request, items=lambda reply: reply.results)
        found = zip(times_ms, reply.results, strict=True)
        return {name: result.offset for name, result in found if result.offset >= 0}

    async def alter_group_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, int | OffsetAndMetadata],
        *,
        topic_ids: Mapping[TopicPartition, bytes] = MappingProxyType({}),
    ) -> None:
        """Set the offsets from which a group without members continues; they are durable when this returns. The group
        is created if it does not exist.

        An offset of a transaction that is still open does not replace these when it commits. `topic_ids`: ids of the
        topics of the offsets, as far as known. The offset of a topic that was recreated since is refused.

        Raises: Rejected (NON_EMPTY_GROUP; UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID, INCONSISTENT_TOPIC_ID).
        Partitions that were not refused are changed.
        """
        check_here(check_group_id, group_id, Method.OFFSET_COMMIT)
        request = group.OffsetCommitRequest(header=self._asker.mutation(), group_id=group_id)
        wanted = {
            TopicPartition(*name): OffsetAndMetadata(offset) if isinstance(offset, int) else offset
            for name, offset in offsets.items()
        }
        fill_topics(request.topics, wanted, topic_ids)
        try:
            await self._asker.ask(OFFSET_COMMIT, request, items=lambda reply: reply.results)
        except TransactionError as error:
            if error.code == ErrorCode.UNKNOWN_MEMBER_ID:
                raise _in_use(group_id) from error
            raise

    async def delete_group_offsets(self, group_id: str, partitions: Iterable[TopicPartition]) -> None:
        """Delete the committed and pending offsets of a group in these partitions.

        Raises: Rejected (GROUP_SUBSCRIBED_TO_TOPIC, NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND). Offsets in partitions that
        were not refused are deleted.
        """
        check_here(check_group_id, group_id, Method.OFFSET_DELETE)
        request = group.OffsetDeleteRequest(
            header=self._asker.mutation(), group_id=group_id, topics=topic_partitions(partitions)
        )
        await self._asker.ask(OFFSET_DELETE, request, items=lambda reply: reply.results)

    # Settings

    async def group_configs(self, group_id: str) -> dict[str, int | str]:
        """Return the settings of a group that differ from the server's, by name: numbers, or words."""
        check_here(check_group_id, group_id, Method.DESCRIBE_GROUP_CONFIGS)
        request = group.DescribeGroupConfigsRequest(header=self._asker.header(), group_id=group_id)
        reply = await self._asker.ask(DESCRIBE_GROUP_CONFIGS, request)
        return {each.name: each.text if each.HasField("text") else each.value for each in reply.configs}

    async def alter_group_configs(
        self, group_id: str, set_to: Mapping[str, int | str], *, unset: Sequence[str] = (), validate_only: bool = False
    ) -> None:
        """Change settings of one group, which need not exist yet; settings in `unset` follow the server's again.
        Members learn of the change with their next heartbeats.

        Raises: Misconfigured (INVALID_CONFIG); then nothing was changed.
        """
        check_here(check_group_id, group_id, Method.ALTER_GROUP_CONFIGS)
        request = group.AlterGroupConfigsRequest(
            header=self._asker.mutation(),
            group_id=group_id,
            set=[_group_config(name, value) for name, value in set_to.items()],
            unset=unset,
            validate_only=validate_only,
        )
        await self._asker.ask(ALTER_GROUP_CONFIGS, request)


def _group_config(name: str, value: int | str) -> group.GroupConfig:
    return (
        group.GroupConfig(name=name, text=value)
        if isinstance(value, str)
        else group.GroupConfig(name=name, value=value)
    )


def _with_pending(committed: Sequence[GroupOffset], stable: Sequence[GroupOffset]) -> list[GroupOffset]:
    """Return the committed offsets by partition, with the pending ones that the stable offsets name."""
    offsets = {found.partition: found for found in committed}
    for found in stable:
        if found.pending:
            known = offsets.get(found.partition)
            is_same = known is not None and known.topic_id == found.topic_id
            offsets[found.partition] = replace(known, pending=found.pending) if known and is_same else found
    return [offsets[name] for name in sorted(offsets)]


def _start(found: GroupOffset) -> _CountStart | None:
    """Return the place where the lag begins; None if nothing is committed."""
    return None if found.committed is None else _CountStart(found.partition, found.topic_id, found.committed.offset)


def _added(known: RecordCount | None, result: log.CountResult) -> RecordCount:
    """Return the sum of the earlier count and this result."""
    return RecordCount(
        to_last_stable_offset=result.committed_records + (known.to_last_stable_offset if known else 0),
        to_high_watermark=result.records + (known.to_high_watermark if known else 0),
        log_start_offset=result.log_start_offset,
        last_stable_offset=result.last_stable_offset,
        high_watermark=result.high_watermark,
    )


def _without(verdicts: Iterable[ReplyFields], codes: Collection[ErrorCode]) -> list[ReplyFields]:
    return [verdict for verdict in verdicts if verdict.error_code not in codes]


def _in_use(group_id: str) -> Rejected:
    return rejected(
        ErrorCode.NON_EMPTY_GROUP,
        f"group {group_id!r} has members, who would not hear of it and commit their own offsets: stop them first",
    )
