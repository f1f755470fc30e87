"""One consumer group: its members and all lookups about them, live and durable.

Each member, target and assignment is a value of its own, so a heartbeat costs as much as the one member it changes.
Lookups that would need a walk over all members have an index, kept up to date in `replay`. They are the owner of a
partition, the holder of an instance id, and the current subscriptions.

Source: spec groups 3.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from coordinator_protocol.assignors.values import Share
from coordinator_protocol.consumer_protocol import PROTOCOL_TYPE
from coordinator_runtime.decision import CancelTimer
from coordinator_runtime.ports import Committer
from coordinator_runtime.timeline import Journal, TimelineMap
from group_coordinator.classic.state import session_key
from group_coordinator.consumer import records, rules
from group_coordinator.consumer.state import (
    NO_SHARE,
    NOT_YET,
    ClassicMetadata,
    ConsumerMember,
    CurrentAssignment,
    Held,
    MemberSubscription,
    ResolvedRegex,
)
from group_coordinator.epoch_group import ONLY, GroupsOfKind, RebalancedGroup
from group_coordinator.members import Epochs
from group_coordinator.state import GroupKind, PartitionKey

MemberTimer = tuple[str, str, str]
"""Name of a member's timer: its kind, the group and the member. `removal` describes the timers."""


@dataclass(frozen=True, slots=True)
class MemberView:
    """One member as it is on disk."""

    member: ConsumerMember
    assignment: CurrentAssignment
    target: Share[bytes]


class ConsumerGroup(RebalancedGroup[Epochs, ConsumerMember, CurrentAssignment, Share[bytes]]):
    """One consumer group. Implements `group_coordinator.state.Group`. Reads are live unless named durable; only replay
    writes."""

    before_all = Epochs()
    not_yet = NOT_YET
    no_target = NO_SHARE

    def __init__(self, group_id: str, journal: Journal) -> None:
        super().__init__(group_id, journal)
        self._journal = journal
        self.regexes: TimelineMap[str, ResolvedRegex] = TimelineMap(journal)
        self.classic: TimelineMap[str, ClassicMetadata] = TimelineMap(journal)
        """Members that speak the classic protocol."""
        self.awaited: TimelineMap[str, None] = TimelineMap(journal)
        """Classic members that must join again, and have not yet."""
        self._checked_ms: TimelineMap[None, int | None] = TimelineMap(journal)
        self._regexes_checked_ms: TimelineMap[None, int | None] = TimelineMap(journal)
        self._regex_users: TimelineMap[str, int] = TimelineMap(journal)
        self._subscriptions: TimelineMap[MemberSubscription, tuple[MemberSubscription, int]] = TimelineMap(journal)
        """Each subscription with the one object that all its members share, and their number."""
        self._owners: dict[bytes, TimelineMap[int, str]] = {}
        """Member that holds a partition, or must still revoke it, by topic id and partition."""

    # Interface of all kinds of groups

    @property
    def kind(self) -> GroupKind:
        return GroupKind.CONSUMER

    @property
    def protocol_type(self) -> str:
        return PROTOCOL_TYPE

    @property
    def state_name(self) -> str:
        """Durable state: Empty, Assigning, Reconciling or Stable (spec groups 3.1)."""
        assignments = (view.assignment for view in self.durable_members())
        return rules.group_state(self.durable_epochs(), assignments).value

    @property
    def live_state_name(self) -> str:
        return rules.counted_group_state(self.epochs, len(self.members), self.settled_count).value

    def check_commit(self, committer: Committer, partitions: Sequence[PartitionKey], *, is_transactional: bool) -> None:
        """Raise Refused: UNKNOWN_MEMBER_ID; STALE_MEMBER_EPOCH, or ILLEGAL_GENERATION for a classic member or in a
        transaction."""
        if committer.generation_or_epoch < 0:
            is_unnamed = not committer.member_id and committer.instance_id is None
            if self.is_empty or (is_transactional and is_unnamed):
                return
        member = self.members.get(committer.member_id)
        assignment = self.assignment(committer.member_id)
        rules.check_commit(member, assignment, committer, partitions, is_transactional=is_transactional)

    def check_fetch(self, committer: Committer) -> None:
        """Raise Refused: UNKNOWN_MEMBER_ID; STALE_MEMBER_EPOCH, or ILLEGAL_GENERATION for a classic member."""
        if not committer.member_id and committer.generation_or_epoch < 0:
            return
        member = self.members.get(committer.member_id)
        rules.check_fetch(member, self.assignment(committer.member_id), committer)

    def check_offset_delete(self) -> None:
        """Allow every deletion. Subscribed topics are refused one by one."""

    def is_subscribed_to(self, topic: str) -> bool:
        return any(topic in self.topics_of(subscription) for subscription in self.subscriptions())

    def tombstones(self) -> tuple[object, ...]:
        """Return the records that remove the group with all its members (spec groups 3.3)."""
        member_ids = [member_id for member_id, _member in self.members.items()]
        values: list[object] = [records.AssignmentForgotten(self.group_id, each) for each in member_ids]
        values += [records.TargetForgotten(self.group_id, each) for each in member_ids]
        values.append(records.TargetEpochForgotten(self.group_id))
        values += [records.MemberForgotten(self.group_id, each) for each in member_ids]
        values += [records.RegexForgotten(self.group_id, regex) for regex, _resolved in self.regexes.items()]
        values.append(records.ConsumerGroupForgotten(self.group_id))
        return tuple(values)

    # Looking up

    @property
    def checked_ms(self) -> int | None:
        """Wall time of the last comparison of the epoch's hash with the topics; None if it is due."""
        return self._checked_ms.get(ONLY)

    def owner(self, topic_id: bytes, partition: int) -> str | None:
        """Return the member that holds a partition, or has not confirmed its revocation yet."""
        owners = self._owners.get(topic_id)
        return None if owners is None else owners.get(partition)

    def subscriptions(self) -> Iterator[MemberSubscription]:
        """Return the subscriptions of the members, each once."""
        return iter(self._subscriptions.keys())

    def subscription_counts(self) -> Iterator[tuple[MemberSubscription, int]]:
        """Return each subscription once, with the number of its members."""
        return self._subscriptions.values()

    def users_of(self, regex: str) -> int:
        """Return the number of members that use the pattern."""
        return self._regex_users.get(regex) or 0

    @property
    def uses_regexes(self) -> bool:
        return len(self._regex_users) > 0

    @property
    def has_unresolved_regex(self) -> bool:
        # A resolved pattern is removed with its last user, so comparing the numbers is enough.
        return len(self._regex_users) > len(self.regexes)

    @property
    def regexes_checked_ms(self) -> int | None:
        """Wall time at which all patterns were last matched against the topics; None if that is due."""
        return self._regexes_checked_ms.get(ONLY)

    def topics_of(self, subscription: MemberSubscription) -> frozenset[str]:
        """Return the named topics, and those that the pattern matches as far as it is resolved."""
        if subscription.regex is None:
            return subscription.names
        resolved = self.regexes.get(subscription.regex)
        return subscription.names if resolved is None else subscription.names | resolved.topics

    def subscribed_topics(self) -> frozenset[str]:
        """Return the topics that any member subscribes to, existing or not."""
        return frozenset[str]().union(*map(self.topics_of, self.subscriptions()))

    def regexes_in_use(self) -> frozenset[str]:
        return frozenset(self._regex_users.keys())

    @property
    def consumer_protocol_count(self) -> int:
        """Number of members that speak the consumer protocol."""
        return len(self.members) - len(self.classic)

    # Reading what is on disk

    def durable_members(self) -> Iterable[MemberView]:
        for member_id, member in self.members.durable_items():
            yield MemberView(member, self.durable_assignment(member_id), self.durable_target(member_id))

    # Replay

    def replay(self, value: object) -> None:
        match value:
            case records.AssignmentChanged(_, member_id, assignment):
                self._put_assignment(member_id, assignment)
            case records.AssignmentForgotten(_, member_id):
                self._release(member_id, NOT_YET)
                self._count_settled(self.assignments.get(member_id), None)
                self.assignments.remove(member_id)
            case records.MemberChanged(_, member):
                self._put_member(member)
            case records.MemberForgotten(_, member_id):
                self._remove_member(member_id)
            case records.TargetChanged(_, member_id, share):
                self.targets.put(member_id, share)
            case records.TargetForgotten(_, member_id):
                self._remove_target(member_id)
            case records.RegexResolved(_, regex, resolved):
                self.regexes.put(regex, resolved)
            case records.RegexForgotten(_, regex):
                self.regexes.remove(regex)
            case _:
                self._replay_epochs(value)
                self._replay_memory(value)

    def _replay_epochs(self, value: object) -> None:
        match value:
            case records.GroupEpochBumped(_, group_epoch, metadata_hash):
                assert group_epoch >= self.epochs.group_epoch, "group epochs never decrease"
                self._epochs.put(ONLY, replace(self.epochs, group_epoch=group_epoch, metadata_hash=metadata_hash))
            case records.TargetEpochReached(_, assignment_epoch, computed_ms, assignor_name):
                reached = replace(
                    self.epochs,
                    assignment_epoch=assignment_epoch,
                    computed_ms=computed_ms,
                    assignor_name=assignor_name,
                )
                self._epochs.put(ONLY, reached)
            case records.TargetEpochForgotten():
                self._epochs.put(ONLY, replace(self.epochs, assignment_epoch=0, computed_ms=None, assignor_name=""))

    def _replay_memory(self, value: object) -> None:
        """Replay records that live in memory only."""
        match value:
            case records.MetadataChecked(_, checked_ms):
                self._checked_ms.put(ONLY, checked_ms)
            case records.RegexesChecked(_, checked_ms):
                self._regexes_checked_ms.put(ONLY, checked_ms)
            case records.RebalanceNoted(_, started_ms):
                self._rebalance_started_ms.put(ONLY, started_ms)
            case records.RejoinAwaited(_, member_id, is_awaited):
                if is_awaited:
                    self.awaited.put(member_id, None)
                else:
                    self.awaited.remove(member_id)

    def _put_member(self, member: ConsumerMember) -> None:
        before = self.members.get(member.member_id)
        if before is None or before.subscription != member.subscription:
            if before is not None:
                self._count(before.subscription, -1)
            self._count(member.subscription, 1)
        shared, _count = self._subscriptions.get(member.subscription) or (member.subscription, 0)
        if shared is not member.subscription:
            member = replace(member, subscription=shared)
        self.members.put(member.member_id, member)
        self._put_instance(before, member)
        if member.classic is not None:
            self.classic.put(member.member_id, member.classic)
        else:
            self.classic.remove(member.member_id)

    def _remove_member(self, member_id: str) -> None:
        assert member_id not in self.targets, "the target of a member goes before the member"
        member = self.members.get(member_id)
        if member is None:
            return
        self.members.remove(member_id)
        self.classic.remove(member_id)
        self.awaited.remove(member_id)
        self._count(member.subscription, -1)
        self._remove_instance(member)

    def _count(self, subscription: MemberSubscription, change: int) -> None:
        shared, count = self._subscriptions.get(subscription) or (subscription, 0)
        if count + change:
            self._subscriptions.put(subscription, (shared, count + change))
        else:
            self._subscriptions.remove(subscription)
        if subscription.regex is not None:
            users = self.users_of(subscription.regex) + change
            if users:
                self._regex_users.put(subscription.regex, users)
            else:
                self._regex_users.remove(subscription.regex)

    def _put_assignment(self, member_id: str, assignment: CurrentAssignment) -> None:
        self._release(member_id, assignment)
        for topic_id, partition in _partitions(assignment.assigned, assignment.pending_revocation):
            owners = self._owners.get(topic_id)
            if owners is None:
                owners = self._owners[topic_id] = TimelineMap(self._journal)
            owner = owners.get(partition)
            assert owner in {None, member_id}, f"partition {partition} is held by {owner}, and now by {member_id}"
            if owner is None:
                owners.put(partition, member_id)
        self._count_settled(self.assignments.get(member_id), assignment)
        self.assignments.put(member_id, assignment)

    def _release(self, member_id: str, after: CurrentAssignment) -> None:
        """Remove the member as owner of the partitions that it no longer holds."""
        before = self.assignments.get(member_id)
        if before is None:
            return
        for topic_id, partition in _partitions(before.assigned, before.pending_revocation):
            if after.assignment_epoch(topic_id, partition) is None:
                self._owners[topic_id].remove(partition)


def rebalance_key(group_id: str, member_id: str) -> MemberTimer:
    return "rebalance", group_id, member_id


def join_key(group_id: str, member_id: str) -> MemberTimer:
    return "join", group_id, member_id


def sync_key(group_id: str, member_id: str) -> MemberTimer:
    return "sync", group_id, member_id


def cancelled_timers(group_id: str, member_ids: Iterable[str]) -> tuple[CancelTimer, ...]:
    """Return effects that cancel all timers of members that are gone."""
    keys = (session_key, rebalance_key, join_key, sync_key)
    return tuple(CancelTimer(key(group_id, member_id)) for member_id in member_ids for key in keys)


def _partitions(*held: Held) -> Iterator[PartitionKey]:
    for each in held:
        for topic_id, partitions in each.items():
            for partition in partitions:
                yield topic_id, partition


class ConsumerGroups(GroupsOfKind):
    """Consumer groups of a shard."""

    group_class = ConsumerGroup
    makes = (records.GroupEpochBumped, records.MemberChanged)
    moves = (
        records.MemberForgotten,
        records.TargetEpochReached,
        records.TargetEpochForgotten,
        records.AssignmentChanged,
        records.AssignmentForgotten,
    )
    changes = (
        records.TargetChanged,
        records.TargetForgotten,
        records.RegexResolved,
        records.RegexForgotten,
        records.MetadataChecked,
        records.RegexesChecked,
        records.RebalanceNoted,
        records.RejoinAwaited,
    )
    forgets = records.ConsumerGroupForgotten
