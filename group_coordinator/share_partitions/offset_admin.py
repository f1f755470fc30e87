"""Use cases of administrators: the start offsets of share groups and their lag, and changes of them.

Source: spec groups 6.2 (Admin); KIP-932, KIP-1226 (lag).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from msgspec import Struct

from coordinator_protocol.errors import CoordinatorError, ErrorCode, Refused
from coordinator_protocol.names import check_group_id, check_partitions
from coordinator_runtime.decision import CATALOG_KEY, Decision, Operation, once_durable
from coordinator_runtime.pending import Pending, settled
from coordinator_runtime.ports import (
    Authorizer,
    CallContext,
    PartitionName,
    PartitionRef,
    Permission,
    ResourceType,
    TopicMetadata,
    require,
)
from coordinator_runtime.runtime import Runtime
from coordinator_runtime.stepping import AnswerSteps, in_steps
from group_coordinator.shard import GroupShard
from group_coordinator.share.altering import StartOffset, check_group, decide_alter_offsets, decide_delete_offsets
from group_coordinator.share.group import ShareGroup
from group_coordinator.share_partitions.decisions import described
from group_coordinator.share_partitions.fetching import ShareParts
from group_coordinator.share_partitions.places import shard_beside
from group_coordinator.share_partitions.records import ShareKey
from group_coordinator.share_partitions.requests import DescribedShare
from group_coordinator.share_partitions.shard import ShareShard
from group_coordinator.share_partitions.state import UNRESOLVED

UNKNOWN_LAG: Final = -1

DESCRIBED_PER_STEP: Final = 64
"""Number of partitions that are described in one turn of the loop."""


class DescribedOffset(Struct, frozen=True):
    """Progress of a share group in a partition."""

    name: PartitionName
    start_offset: int = UNRESOLVED
    leader_epoch: int = 0
    lag: int = UNKNOWN_LAG
    """Number of offsets from `start_offset` on that are not done."""
    letters_due: int = 0
    """Number of records that were given up, and whose letters are to be written."""
    error: CoordinatorError | None = None


class WantedOffset(Struct, frozen=True):
    """The offset from which a share group is to read a partition."""

    name: PartitionName
    offset: int


class OffsetAdmin:
    """Describes and changes the offsets of share groups."""

    def __init__(self, runtime: Runtime, parts: ShareParts, topics: TopicMetadata, authorizer: Authorizer) -> None:
        self._runtime = runtime
        self._log = parts.log
        self._homes = parts.homes
        self._members = parts.members
        self._topics = topics
        self._authorizer = authorizer

    def describe(
        self, group_id: str, names: Sequence[PartitionName] | None, context: CallContext
    ) -> Pending[list[DescribedOffset]]:
        """Return the progress of a group on disk in these partitions. None: in all that it reads and the caller sees.

        Raises Refused: GROUP_AUTHORIZATION_FAILED, INVALID_GROUP_ID, INVALID_REQUEST, GROUP_ID_NOT_FOUND; and if the
        shard of the group is not served."""
        require(self._authorizer, context, Permission.DESCRIBE, ResourceType.GROUP, group_id)
        check_group_id(group_id)
        if names is not None:
            check_partitions(names)
        shard: GroupShard = self._runtime.shard(self._members.shard_key(group_id))
        group = check_group(shard.durable_group(group_id), group_id)
        wanted = self._of_group(group, context) if names is None else names
        described_all = in_steps(self._runtime, self._describe_steps(group_id, wanted, context))
        return described_all.then(self._when_catalog_durable)

    def _of_group(self, group: ShareGroup, context: CallContext) -> list[PartitionName]:
        """Return the partitions that a group reads, of the topics that the caller sees, by topic and number."""
        found = []
        for topic_id, partitions in group.initialized.items():
            shape = self._topics.shape_of_id(topic_id)
            if shape is not None and self._may_see(shape.topic, context):
                found.append((shape.topic, topic_id, sorted(partitions)))
        return [
            PartitionName(topic, topic_id, number) for topic, topic_id, numbers in sorted(found) for number in numbers
        ]

    def _describe_steps(
        self, group_id: str, names: Sequence[PartitionName], context: CallContext
    ) -> AnswerSteps[list[DescribedOffset]]:
        offsets: list[DescribedOffset] = []
        for name in names:
            if offsets and len(offsets) % DESCRIBED_PER_STEP == 0:
                yield None
            offsets.append(self._described(group_id, name, self._log.find(name, context, Permission.DESCRIBE)))
        if len(offsets) > DESCRIBED_PER_STEP:
            # A long answer is made in a turn of its own.
            yield None
        return offsets

    def _when_catalog_durable(self, offsets: list[DescribedOffset]) -> Pending[list[DescribedOffset]]:
        """Return the offsets. With an error, which may rest on the live catalog, they wait until that is on disk."""
        if any(each.error is not None for each in offsets):
            return self._runtime.write(once_durable(CATALOG_KEY, offsets), is_urgent=True)
        return settled(offsets)

    def alter(
        self, group_id: str, wanted: Sequence[WantedOffset], context: CallContext
    ) -> Pending[list[CoordinatorError | None]]:
        """Let a group without members begin anew at these offsets. One result for each, durable when answered.

        Errors of the whole request: GROUP_AUTHORIZATION_FAILED, INVALID_GROUP_ID, INVALID_REQUEST, GROUP_ID_NOT_FOUND,
        NON_EMPTY_GROUP; and if the shard of the group is not served."""
        require(self._authorizer, context, Permission.READ, ResourceType.GROUP, group_id)
        check_group_id(group_id)
        check_partitions([each.name for each in wanted])
        offsets = [self._start_offset(each, group_id, context) for each in wanted]
        decide = partial(decide_alter_offsets, group_id=group_id, offsets=offsets)
        return self._write(group_id, decide, context)

    def delete(
        self, group_id: str, topics: Sequence[str], context: CallContext
    ) -> Pending[list[CoordinatorError | None]]:
        """Drop what a group without members knows of the records of topics. One result for each topic, durable when
        answered.

        Errors of the whole request: as `alter`, and GROUP_AUTHORIZATION_FAILED for the permission to delete."""
        require(self._authorizer, context, Permission.DELETE, ResourceType.GROUP, group_id)
        check_group_id(group_id)
        names = [PartitionName(topic, b"", 0) for topic in topics]
        check_partitions(names)
        found = [self._log.find(name, context) for name in names]
        topic_ids = [ref if isinstance(ref, Refused) else ref.topic_id for ref in found]
        decide = partial(decide_delete_offsets, group_id=group_id, topic_ids=topic_ids)
        return self._write(group_id, decide, context)

    def _write(
        self, group_id: str, decide: partial[Decision], context: CallContext
    ) -> Pending[list[CoordinatorError | None]]:
        return self._runtime.write(Operation(self._members.shard_key(group_id), decide), context)

    def _start_offset(self, wanted: WantedOffset, group_id: str, context: CallContext) -> StartOffset | Refused:
        """Return the offset within the log. The refusal of a partition alone is returned."""
        try:
            if wanted.offset < 0:
                raise Refused(ErrorCode.INVALID_REQUEST, f"{wanted.offset} is no offset: name one from 0 on")
            ref = self._log.find(wanted.name, context)
            if isinstance(ref, Refused):
                return ref
            settings = self._members.settings(group_id)
            view = self._log.view(ref, is_committed=settings.is_read_committed)
            self._shard(ref)
        except Refused as refusal:
            return refusal
        offset = min(max(wanted.offset, view.log_start_offset), view.log_end_offset)
        return StartOffset(ref.topic_id, ref.partition, offset)

    def _described(self, group_id: str, name: PartitionName, ref: PartitionRef | Refused) -> DescribedOffset:
        if isinstance(ref, Refused):
            return DescribedOffset(name, error=ref)
        try:
            share = described(self._shard(ref), ShareKey(group_id, ref.ordinal))
            settings = self._members.settings(group_id)
            view = self._log.view(ref, is_committed=settings.is_read_committed)
        except Refused as refusal:
            return DescribedOffset(name, error=refusal)
        if share is None or share.start_offset == UNRESOLVED:
            return DescribedOffset(_name(ref))
        return DescribedOffset(
            _name(ref),
            share.start_offset,
            share.leader_epoch,
            _lag(share, view.log_start_offset, view.bound_offset),
            share.letters_due,
        )

    def _shard(self, ref: PartitionRef) -> ShareShard:
        shard: ShareShard = self._runtime.shard(shard_beside(ref, self._homes))
        return shard

    def _may_see(self, topic: str, context: CallContext) -> bool:
        return self._authorizer.is_allowed(context, Permission.DESCRIBE, ResourceType.TOPIC, topic)


def _lag(share: DescribedShare, log_start_offset: int, bound_offset: int) -> int:
    """Return the number of offsets that are not done (KIP-1226). Records below the log start are gone."""
    start_offset = max(share.start_offset, log_start_offset)
    done = share.delivery_complete_count if start_offset == share.start_offset else 0
    return max(0, bound_offset - start_offset - done)


def _name(ref: PartitionRef) -> PartitionName:
    return PartitionName(ref.topic, ref.topic_id, ref.partition)
