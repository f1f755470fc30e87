"""One share group: its members, the partitions whose states exist, and all lookups about them, live and durable.

Source: spec groups 6.1.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from coordinator_protocol.assignors.values import Share
from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_runtime.decision import Effect
from coordinator_runtime.ports import Committer
from coordinator_runtime.timeline import Journal, TimelineMap
from group_coordinator.epoch_group import ONLY, EpochGroup, GroupsOfKind
from group_coordinator.members import Epochs
from group_coordinator.shard import GroupShard
from group_coordinator.share import records
from group_coordinator.share.state import (
    NO_SHARE,
    NOT_YET,
    PROTOCOL_TYPE,
    ShareAssignment,
    ShareGroupState,
    ShareMember,
    TopicsLook,
)
from group_coordinator.state import GroupKind, PartitionKey

_NONE_OF_TOPIC: Final[frozenset[int]] = frozenset()


@dataclass(frozen=True, slots=True)
class ShareMemberView:
    """One member as it is on disk."""

    member: ShareMember
    assignment: ShareAssignment


class ShareGroup(EpochGroup[Epochs, ShareMember, ShareAssignment, Share[bytes]]):
    """One share group. Implements `group_coordinator.state.Group`. Reads are live unless named durable; only replay
    writes."""

    before_all = Epochs()
    not_yet = NOT_YET
    no_target = NO_SHARE

    def __init__(self, group_id: str, journal: Journal) -> None:
        super().__init__(group_id, journal)
        self.initialized: TimelineMap[bytes, frozenset[int]] = TimelineMap(journal)
        """Partitions whose states exist, by topic id. No others are assigned."""
        self._look: TimelineMap[None, TopicsLook] = TimelineMap(journal)
        self._subscriptions: TimelineMap[frozenset[str], tuple[frozenset[str], int]] = TimelineMap(journal)
        """Each subscription with the one object that all its members share, and their number."""

    # Interface of all kinds of groups

    @property
    def kind(self) -> GroupKind:
        return GroupKind.SHARE

    @property
    def protocol_type(self) -> str:
        return PROTOCOL_TYPE

    @property
    def state_name(self) -> str:
        has_members = next(self.members.durable_items(), None) is not None
        return (ShareGroupState.STABLE if has_members else ShareGroupState.EMPTY).value

    @property
    def live_state_name(self) -> str:
        return (ShareGroupState.STABLE if self.members else ShareGroupState.EMPTY).value

    @property
    def outlives_members(self) -> bool:
        """True while states of partitions exist: they say what was acknowledged."""
        return len(self.initialized) > 0

    def check_commit(self, committer: Committer, partitions: Sequence[PartitionKey], *, is_transactional: bool) -> None:
        """Raise Refused, as for a group that does not exist: share groups acknowledge records instead (C-307)."""
        raise self._without_offsets(ErrorCode.ILLEGAL_GENERATION if is_transactional else ErrorCode.GROUP_ID_NOT_FOUND)

    def check_fetch(self, committer: Committer) -> None:
        """Allow every fetch. There are no offsets."""

    def check_offset_delete(self) -> None:
        """Raise Refused GROUP_ID_NOT_FOUND."""
        raise self._without_offsets(ErrorCode.GROUP_ID_NOT_FOUND)

    def _without_offsets(self, code: ErrorCode) -> Refused:
        return Refused(
            code, f"{self.group_id!a:.80} is a share group, which has no committed offsets: acknowledge its records"
        )

    def is_subscribed_to(self, topic: str) -> bool:
        return any(topic in topics for topics in self.subscriptions())

    def retention_base_ms(self, topic: str, committed_ms: int) -> int | None:
        return committed_ms

    def tombstones(self) -> tuple[object, ...]:
        """Return the records that remove the group with all its members."""
        return (
            *member_tombstones(self.group_id, [*self.members.keys()]),
            records.ShareTargetEpochForgotten(self.group_id),
            *(
                records.SharePartitionsForgotten(self.group_id, topic_id)
                for topic_id, _partitions in self.initialized.items()
            ),
            records.ShareGroupForgotten(self.group_id),
        )

    def removal_effects(self) -> tuple[Effect, ...]:
        return ()

    # Looking up

    @property
    def look(self) -> TopicsLook | None:
        """Last comparison with the topics; None if one is due."""
        return self._look.get(ONLY)

    @property
    def is_target_due(self) -> bool:
        """True while members follow the target of an older epoch."""
        return not self.is_empty and super().is_target_due

    def subscriptions(self) -> Iterator[frozenset[str]]:
        """Return the subscriptions of the members, each once."""
        return iter(self._subscriptions.keys())

    def subscribed_topics(self) -> frozenset[str]:
        """Return the topics that any member subscribes to, existing or not."""
        return frozenset[str]().union(*self._subscriptions.keys())

    def initialized_of(self, topic_id: bytes) -> frozenset[int]:
        """Return the partitions of the topic whose states exist."""
        return self.initialized.get(topic_id) or _NONE_OF_TOPIC

    def initialized_partitions(self) -> Iterator[PartitionKey]:
        """Return the partitions whose states exist."""
        for topic_id, partitions in self.initialized.items():
            for partition in sorted(partitions):
                yield topic_id, partition

    # Reading what is on disk

    def durable_members(self) -> Iterable[ShareMemberView]:
        for member_id, member in self.members.durable_items():
            yield ShareMemberView(member, self.durable_assignment(member_id))

    # Replay

    def replay(self, value: object) -> None:
        match value:
            case records.ShareAssignmentChanged(_, member_id, assignment):
                self.assignments.put(member_id, assignment)
            case records.ShareAssignmentForgotten(_, member_id):
                self.assignments.remove(member_id)
            case records.ShareMemberChanged(_, member):
                self._put_member(member)
            case records.ShareMemberForgotten(_, member_id):
                self._remove_member(member_id)
            case records.ShareTargetChanged(_, member_id, share):
                self.targets.put(member_id, share)
            case records.ShareTargetForgotten(_, member_id):
                self._remove_target(member_id)
            case records.SharePartitionsInitialized(_, topic_id, partitions):
                self.initialized.put(topic_id, partitions)
            case records.SharePartitionsForgotten(_, topic_id):
                self.initialized.remove(topic_id)
            case records.ShareTopicsLooked(_, look):
                self._look.put(ONLY, look)
            case _:
                self._replay_epochs(value)

    def _replay_epochs(self, value: object) -> None:
        match value:
            case records.ShareGroupEpochBumped(_, group_epoch, metadata_hash):
                assert group_epoch >= self.epochs.group_epoch, "group epochs never decrease"
                self._epochs.put(ONLY, replace(self.epochs, group_epoch=group_epoch, metadata_hash=metadata_hash))
            case records.ShareTargetEpochReached(_, assignment_epoch, computed_ms, assignor_name):
                reached = replace(
                    self.epochs,
                    assignment_epoch=assignment_epoch,
                    computed_ms=computed_ms,
                    assignor_name=assignor_name,
                )
                self._epochs.put(ONLY, reached)
            case records.ShareTargetEpochForgotten():
                self._epochs.put(ONLY, replace(self.epochs, assignment_epoch=0, computed_ms=None, assignor_name=""))

    def _put_member(self, member: ShareMember) -> None:
        before = self.members.get(member.member_id)
        if before is None or before.topics != member.topics:
            if before is not None:
                self._count(before.topics, -1)
            self._count(member.topics, 1)
        shared, _count = self._subscriptions.get(member.topics) or (member.topics, 0)
        if shared is not member.topics:
            member = replace(member, topics=shared)
        self.members.put(member.member_id, member)

    def _remove_member(self, member_id: str) -> None:
        assert member_id not in self.targets, "the target of a member goes before the member"
        member = self.members.get(member_id)
        if member is not None:
            self.members.remove(member_id)
            self._count(member.topics, -1)

    def _count(self, topics: frozenset[str], change: int) -> None:
        shared, count = self._subscriptions.get(topics) or (topics, 0)
        if count + change:
            self._subscriptions.put(topics, (shared, count + change))
        else:
            self._subscriptions.remove(topics)


def member_tombstones(group_id: str, member_ids: Sequence[str]) -> list[object]:
    """Return the records that remove members, in the order that replay demands."""
    values: list[object] = []
    for member_id in member_ids:
        values += (
            records.ShareAssignmentForgotten(group_id, member_id),
            records.ShareTargetForgotten(group_id, member_id),
            records.ShareMemberForgotten(group_id, member_id),
        )
    return values


class ShareGroups(GroupsOfKind):
    """Share groups of a shard."""

    group_class = ShareGroup
    makes = (records.ShareGroupEpochBumped, records.ShareMemberChanged, records.SharePartitionsInitialized)
    moves = (
        records.ShareMemberForgotten,
        records.ShareTargetChanged,
        records.ShareTargetForgotten,
        records.ShareTargetEpochReached,
        records.ShareTargetEpochForgotten,
        records.ShareAssignmentChanged,
        records.ShareAssignmentForgotten,
        records.SharePartitionsForgotten,
        records.ShareTopicsLooked,
    )
    forgets = records.ShareGroupForgotten


def find_group(shard: GroupShard, group_id: str) -> ShareGroup | None:
    """Return the share group; None if it does not exist or is of another kind."""
    group = shard.groups.get(group_id)
    return group if isinstance(group, ShareGroup) else None


def the_group(shard: GroupShard, group_id: str) -> ShareGroup:
    """Return a group that an earlier step of the same operation found or made."""
    group = find_group(shard, group_id)
    assert group is not None, f"the share group {group_id!r} is there"
    return group
