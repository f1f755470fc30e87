"""A group of the classic protocol: one frozen value with all its members, and the table of its legal steps.

            +---------------------------- no members ------------------------+
            v                                                                |
          Empty ----> PreparingRebalance ----> CompletingRebalance ----> Stable
            |             |       ^                     |                    |
            +--<----------+       +----------<----------+---------<----------+

Answers of each state (spec groups 2.13):
- Empty: no members. Offsets can be committed without a membership.
- PreparingRebalance: waits for the members to join; JoinGroup is parked. Members that do not know of it are answered
  REBALANCE_IN_PROGRESS, and may still commit their offsets.
- CompletingRebalance: a generation was formed and its leader computes the assignment; SyncGroup of the others is
  parked.
- Stable: the assignment is durable.
There is no Dead state: a deleted group is gone in the same step, and a shard that is unloaded answers for itself.

A rebalance lives in memory only. The last completed generation is stored and applies again after a restart. Members of
a later one learn by errors that it is gone (spec groups 2.1, 2.12). The records are here too: each holds the whole
group, so the newest stored one is enough.

Source: spec groups 2.1, 2.2, 2.11; KIP-62, KIP-345, KIP-394.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from functools import lru_cache
from typing import Any, ClassVar, Final, NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from coordinator_protocol.consumer_protocol import PROTOCOL_TYPE, subscribed_topics
from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_runtime.decision import CancelTimer, Coordinator, Effect, ShardKey
from coordinator_runtime.ports import Committer
from group_coordinator.shard import CountedGroup, GroupShard, Replays
from group_coordinator.state import GroupKind, OfGroup, PartitionKey


class ClassicState(StrEnum):
    """States of a classic group, as shown to users and used in their filters."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"


LEGAL_STEPS: Final[Mapping[ClassicState, frozenset[ClassicState]]] = {
    ClassicState.EMPTY: frozenset({ClassicState.PREPARING_REBALANCE}),
    ClassicState.PREPARING_REBALANCE: frozenset({ClassicState.COMPLETING_REBALANCE, ClassicState.EMPTY}),
    ClassicState.COMPLETING_REBALANCE: frozenset({ClassicState.STABLE, ClassicState.PREPARING_REBALANCE}),
    ClassicState.STABLE: frozenset({ClassicState.PREPARING_REBALANCE}),
}
"""Allowed transitions. Source: spec groups 2.2. Stable to Empty goes through a rebalance that no member joins."""


def session_key(group_id: str, member_id: str) -> tuple[str, str, str]:
    """Return the key of a session timer. It ends the membership of a silent member, or drops an id that no client
    joined with."""
    return ("session", group_id, member_id)


class ClassicProtocol(NamedTuple):
    """One assignor that a member can use."""

    name: str
    metadata: bytes
    """Opaque, except for type "consumer": there it is an embedded subscription, and its topics are read."""


class ClassicMember(Struct, frozen=True, kw_only=True):
    """One member. Its parked calls are in the group."""

    member_id: str
    instance_id: str | None = None
    """None for a dynamic member."""
    client_id: str = ""
    client_host: str = ""
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[ClassicProtocol, ...]
    """Protocols, the preferred one first. After a restart only the one chosen for the generation is known."""
    assignment: bytes = b""
    is_new: bool = False
    """True until its first JoinGroup is answered: until then it cannot send heartbeats."""

    def metadata(self, protocol_name: str | None) -> bytes:
        """Return the metadata under one protocol; empty if the member does not list it."""
        for name, metadata in self.protocols:
            if name == protocol_name:
                return metadata
        return b""


class InitialRebalance(Struct, frozen=True):
    """Rebalance of a group that was Empty: it waits for more members (spec groups 2.4.7)."""

    window_ms: int
    """Length of the current wait."""
    remaining_ms: int
    """Time that may still be waited after it."""
    has_newcomers: bool = False
    """True if a member came since the wait began, not counting the one that started the rebalance."""


INSTANCE_ID_LENGTH_MAX: Final = 249

UNPLACED: Final = ShardKey(Coordinator.GROUPS, -1)
"""Placeholder for the shard of a group that was just decoded. Its bytes do not name the shard; replay sets it."""


class ClassicGroup(Struct, frozen=True, kw_only=True):
    """One classic group. Implements `group_coordinator.state.Group`. Mappings are never changed, only replaced."""

    kind: ClassVar[GroupKind] = GroupKind.CLASSIC
    outlives_members: ClassVar[bool] = False

    shard: ShardKey = UNPLACED
    group_id: str
    state: ClassicState = ClassicState.EMPTY
    state_timestamp_ms: int
    """Wall time at which the state was reached."""
    generation_id: int = 0
    protocol_type: str = ""
    """Empty until a member has joined: a group that only has offsets is "simple"."""
    protocol_name: str | None = None
    """Protocol of the generation, chosen by its members; None without members."""
    leader: str | None = None
    members: Mapping[str, ClassicMember] = field(default_factory=dict)
    """Members by id, the oldest first."""
    static_members: Mapping[str, str] = field(default_factory=dict)
    """Member ids by instance id."""
    supporters: Mapping[str, int] = field(default_factory=dict)
    """Number of members that list a protocol, by its name."""
    subscriptions: frozenset[bytes] | None = None
    """Metadata of the members under the generation's protocol, as of its formation; None if they are no subscriptions
    to topics."""

    given_ids: frozenset[str] = frozenset()
    """Member ids that were handed out with MEMBER_ID_REQUIRED and have not joined yet."""
    parked_joins: Mapping[str, int] = field(default_factory=dict)
    """Tickets of JoinGroups that wait for the end of the join phase, by member id."""
    parked_syncs: Mapping[str, int] = field(default_factory=dict)
    """Tickets of SyncGroups that wait for the leader's assignment, by member id."""
    unsynced: frozenset[str] = frozenset()
    """Members that have not asked for their part of the generation's assignment."""
    initial: InitialRebalance | None = None
    rebalance_started_ms: int | None = None
    """Wall time at which the current rebalance began; None if there is none."""

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def live_state_name(self) -> str:
        return self.state.value

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def uses_consumer_protocol(self) -> bool:
        """True if the metadata of the members are subscriptions to topics."""
        return self.protocol_type == PROTOCOL_TYPE

    @property
    def subscribed_topics(self) -> frozenset[str] | None:
        """Topics that the members of the generation subscribe to; None if unknown."""
        return None if self.subscriptions is None else _topics_of(self.subscriptions)

    @property
    def have_all_joined(self) -> bool:
        """True if all members have joined, and no handed-out id is still unused."""
        return len(self.parked_joins) == len(self.members) and not self.given_ids

    @property
    def rebalance_timeout_ms(self) -> int:
        """Time that a rebalance waits: the longest rebalance timeout of its members."""
        longest_ms = 0
        for member in self.members.values():
            longest_ms = max(longest_ms, member.rebalance_timeout_ms)
        return longest_ms

    def is_parked(self, member_id: str) -> bool:
        """True if a call of the member waits on the server, which proves that it lives."""
        return member_id in self.parked_joins or member_id in self.parked_syncs

    def has_capacity(self, member_id: str, size_max: int) -> bool:
        """Return True if the group's size allows this member to join.

        While a generation is formed only members that have joined it count, so the last to join are removed. Ids that
        were only handed out never count (spec groups 2.4.3).
        """
        match self.state:
            case ClassicState.EMPTY:
                return True
            case ClassicState.PREPARING_REBALANCE:
                return member_id in self.parked_joins or len(self.parked_joins) < size_max
            case ClassicState.COMPLETING_REBALANCE | ClassicState.STABLE:
                return member_id in self.members or len(self.members) < size_max

    def common_protocols(self) -> dict[str, int]:
        """Return the protocols that all members list, each with 0."""
        common: dict[str, int] = {}
        for name, count in self.supporters.items():
            if count == len(self.members):
                common[name] = 0
        return common

    def elect_protocol(self) -> str:
        """Return the protocol that most members prefer among those that all list; at a tie the leader's preferred one.

        Source: spec groups 2.4.4. The group must have members; `check_protocols` made sure that they share a protocol.
        """
        votes = self.common_protocols()
        for member in self.members.values():
            for name, _metadata in member.protocols:
                if name in votes:
                    votes[name] += 1
                    break
        leader = self.members.get(self.leader or "") or next(iter(self.members.values()))
        elected, most = "", 0
        for name, _metadata in leader.protocols:
            if votes.get(name, 0) > most:
                elected, most = name, votes[name]
        return elected

    # Checks. Each raises Refused and changes nothing.

    def check_member(self, member_id: str, instance_id: str | None) -> None:
        """Raise Refused unless this is a member, and the current one of its instance: UNKNOWN_MEMBER_ID,
        FENCED_INSTANCE_ID."""
        if instance_id is not None:
            holder = self.static_members.get(instance_id)
            if holder is None:
                raise Refused(
                    ErrorCode.UNKNOWN_MEMBER_ID,
                    f"group {self.group_id!a} has no member with instance id {instance_id!a}; join again",
                )
            if holder != member_id:
                raise Refused(
                    ErrorCode.FENCED_INSTANCE_ID,
                    f"instance id {instance_id!a} of group {self.group_id!a} belongs to a newer member; stop, or use "
                    "another instance id",
                )
        if member_id not in self.members:
            raise unknown_member(self.group_id, member_id)

    def check_protocols(self, protocol_type: str, protocols: Sequence[ClassicProtocol]) -> None:
        """Raise Refused INCONSISTENT_GROUP_PROTOCOL unless the joining member fits the group.

        It needs the group's type, and one protocol that all current members list (spec groups 2.4.4).
        """
        if self.state is ClassicState.EMPTY:
            if not protocol_type or not protocols:
                message = "a member needs a protocol_type and at least one protocol"
                raise Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, message)
            return
        common = self.common_protocols()
        has_common = not self.members or any(name in common for name, _metadata in protocols)
        if not protocols or not has_common or protocol_type != self.protocol_type:
            names = [protocol.name for protocol in protocols]
            raise Refused(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                f"group {self.group_id!a} is of type {self.protocol_type!a}, and its members have in common "
                f"{sorted(common)!a:.200}; {protocol_type!a:.80} with {names!a:.200} does not go with that",
            )

    def check_generation(self, generation_id: int) -> None:
        """Raise Refused ILLEGAL_GENERATION unless this is the current generation."""
        if generation_id != self.generation_id:
            raise Refused(
                ErrorCode.ILLEGAL_GENERATION,
                f"generation {generation_id} of group {self.group_id!a} is not the current one, {self.generation_id}; "
                "join again",
            )

    def check_commit(self, committer: Committer, partitions: Sequence[PartitionKey], *, is_transactional: bool) -> None:
        """Raise Refused: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION (spec groups 4.2).

        Between the end of the join phase and the assignment also REBALANCE_IN_PROGRESS, but not for a transaction: that
        may commit.
        """
        if committer.generation_or_epoch < 0 and self.state is ClassicState.EMPTY:
            return
        if committer.generation_or_epoch >= 0 or committer.member_id or committer.instance_id is not None:
            self.check_member(committer.member_id, committer.instance_id)
            self.check_generation(committer.generation_or_epoch)
        elif not is_transactional:
            raise Refused(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"group {self.group_id!a} has members, so only they may commit; send member id and generation",
            )
        if self.state is ClassicState.COMPLETING_REBALANCE and not is_transactional:
            raise Refused(
                ErrorCode.REBALANCE_IN_PROGRESS,
                f"group {self.group_id!a} is being assigned anew; finish the rebalance, then commit",
            )

    def check_fetch(self, committer: Committer) -> None:
        """Allow every caller: classic members do not identify themselves in OffsetFetch (spec groups 4.3)."""

    def check_offset_delete(self) -> None:
        """Raise Refused NON_EMPTY_GROUP if the topics that the members read cannot be known."""
        if self.members and not self.uses_consumer_protocol:
            raise Refused(
                ErrorCode.NON_EMPTY_GROUP,
                f"group {self.group_id!a} has members of type {self.protocol_type!a}, which subscribe to nothing that "
                "could be checked; stop them first",
            )

    # Queries of other parts

    def is_subscribed_to(self, topic: str) -> bool:
        if self.subscribed_topics is None:
            return self.uses_consumer_protocol
        return topic in self.subscribed_topics

    def retention_base_ms(self, topic: str, committed_ms: int) -> int | None:
        if not self.protocol_type:
            return committed_ms
        if self.state is ClassicState.EMPTY:
            return self.state_timestamp_ms
        is_known = self.state is ClassicState.STABLE and self.subscribed_topics is not None
        return committed_ms if is_known and not self.is_subscribed_to(topic) else None

    def tombstones(self) -> tuple[object, ...]:
        return (ClassicGroupForgotten(self.group_id),)

    def removal_effects(self) -> tuple[Effect, ...]:
        return tuple(CancelTimer(session_key(self.group_id, member_id)) for member_id in sorted(self.given_ids))


class ClassicGroupChanged(Struct, frozen=True):
    """Record: new value of the group."""

    group: ClassicGroup
    is_stored: bool
    """True if a generation was completed or changed, so that the record must survive a restart. False for a step of a
    rebalance, which lives in memory: the stored value still applies."""


class ClassicGroupForgotten(OfGroup, frozen=True):
    """Tombstone: the group was deleted, or changed its kind."""


class ClassicGroups:
    """Classic groups of a shard. Implements `group_coordinator.shard.PartState`."""

    def __init__(self, shard: GroupShard) -> None:
        self._shard = shard

    def replays(self) -> Replays:
        return {ClassicGroupChanged: self._change, ClassicGroupForgotten: self._forget}

    def _change(self, record: ClassicGroupChanged) -> None:
        group, shard = record.group, self._shard
        shard.groups.put(group.group_id, group if group.shard == shard.key else replace(group, shard=shard.key))
        shard.standings.place(group.group_id, CountedGroup(GroupKind.CLASSIC, group.state.value))

    def _forget(self, record: ClassicGroupForgotten) -> None:
        self._shard.groups.remove(record.group_id)
        self._shard.standings.look(record.group_id)


def rebuilt_group(bare: ClassicGroup, members: Sequence[ClassicMember]) -> ClassicGroup:
    """Return the group with these members and no rebalance under way: Stable, or Empty without members."""
    supporters: dict[str, int] = {}
    for member in members:
        for name, _metadata in member.protocols:
            supporters[name] = supporters.get(name, 0) + 1
    group = replace(
        bare,
        state=ClassicState.STABLE if members else ClassicState.EMPTY,
        members={member.member_id: member for member in members},
        static_members={member.instance_id: member.member_id for member in members if member.instance_id is not None},
        supporters=supporters,
    )
    return replace(group, subscriptions=generation_subscriptions(group))


def step(group: ClassicGroup, to: ClassicState, now_ms: int, **changes: Any) -> ClassicGroup:  # noqa: ANN401  for replace
    """Move the group to another state. No other code changes `state`."""
    assert to in LEGAL_STEPS[group.state], f"{group.state} -> {to} is no legal step"
    return replace(group, state=to, state_timestamp_ms=now_ms, **changes)


def with_member(group: ClassicGroup, member: ClassicMember) -> ClassicGroup:
    """Return the group with this member added, or replaced in place."""
    static_members = group.static_members
    if member.instance_id is not None and static_members.get(member.instance_id) != member.member_id:
        static_members = {**static_members, member.instance_id: member.member_id}
    before = group.members.get(member.member_id)
    return replace(
        group,
        members={**group.members, member.member_id: member},
        static_members=static_members,
        supporters=_recounted(group, before.protocols if before else (), member.protocols),
        given_ids=group.given_ids - {member.member_id},
    )


def without_members(group: ClassicGroup, member_ids: Iterable[str]) -> ClassicGroup:
    """Return the group without these members and their parked calls. If the leader is gone, the oldest remaining member
    leads."""
    members, static_members = dict(group.members), dict(group.static_members)
    supporters = dict(group.supporters)
    gone = set(member_ids)
    for member_id in gone & members.keys():
        member = members.pop(member_id)
        if member.instance_id is not None:
            del static_members[member.instance_id]
        for name, _metadata in member.protocols:
            supporters[name] -= 1
    return replace(
        group,
        members=members,
        static_members=static_members,
        supporters={name: count for name, count in supporters.items() if count},
        leader=next(iter(members), None) if group.leader in gone else group.leader,
        given_ids=group.given_ids - gone,
        parked_joins={key: ticket for key, ticket in group.parked_joins.items() if key not in gone},
        parked_syncs={key: ticket for key, ticket in group.parked_syncs.items() if key not in gone},
        unsynced=group.unsynced - gone,
    )


def with_replaced_member(group: ClassicGroup, old_id: str, member: ClassicMember) -> ClassicGroup:
    """Return the group after a static member came back under a new id and took the old one's place, leadership
    included."""
    assert member.instance_id is not None, "only static members keep their place"
    before = group.members[old_id]
    members = {member.member_id if key == old_id else key: known for key, known in group.members.items()}
    members[member.member_id] = member
    return replace(
        group,
        members=members,
        static_members={**group.static_members, member.instance_id: member.member_id},
        supporters=_recounted(group, before.protocols, member.protocols),
        leader=member.member_id if group.leader == old_id else group.leader,
        parked_joins={key: ticket for key, ticket in group.parked_joins.items() if key != old_id},
        parked_syncs={key: ticket for key, ticket in group.parked_syncs.items() if key != old_id},
        unsynced=group.unsynced - {old_id},
    )


def generation_subscriptions(group: ClassicGroup) -> frozenset[bytes] | None:
    """Return the members' metadata for `ClassicGroup.subscriptions`. A set, since most members send the same bytes."""
    if group.protocol_type != PROTOCOL_TYPE:
        return None
    return frozenset([member.metadata(group.protocol_name) for member in group.members.values()])


@lru_cache(maxsize=64)
def _topics_of(subscriptions: frozenset[bytes]) -> frozenset[str] | None:
    """Parse the subscriptions. They are needed rarely, but then for every offset of the group; hence the cache."""
    topics: set[str] = set()
    for metadata in subscriptions:
        try:
            topics |= subscribed_topics(metadata)
        except Refused:
            # Unknown format: the group then counts as subscribed to everything (spec groups 2.4.4), so that none of its
            # offsets is deleted.
            return None
    return frozenset(topics)


def check_instance_id(instance_id: str) -> None:
    """Raise Refused INVALID_REQUEST unless this can name a static member."""
    if instance_id and "\0" not in instance_id and len(instance_id) <= INSTANCE_ID_LENGTH_MAX:
        return
    raise Refused(
        ErrorCode.INVALID_REQUEST,
        f"group_instance_id {instance_id!a:.60} is no name: leave it out, or send 1 to {INSTANCE_ID_LENGTH_MAX} "
        "characters without NUL",
    )


def unknown_member(group_id: str, member_id: str) -> Refused:
    """Return the refusal for a caller that is no member."""
    return Refused(
        ErrorCode.UNKNOWN_MEMBER_ID,
        f"group {group_id!a} has no member {member_id!a:.120}; join again with an empty member id",
    )


def _recounted(
    group: ClassicGroup, before: tuple[ClassicProtocol, ...], after: tuple[ClassicProtocol, ...]
) -> Mapping[str, int]:
    """Return the supporters after a member replaced its protocols."""
    if before == after:
        return group.supporters
    supporters = dict(group.supporters)
    for name, _metadata in after:
        supporters[name] = supporters.get(name, 0) + 1
    for name, _metadata in before:
        supporters[name] -= 1
        if not supporters[name]:
            del supporters[name]
    return supporters
