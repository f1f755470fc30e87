"""The decisions of the leader of a classic group, and what a member says of itself when it joins. Without state.

Source: spec groups 5.7 (X1) and 7.3.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from coordinator_api.v1 import group_pb2 as group
from coordinator_client.consumer.state import NO_GENERATION, TopicPartition
from coordinator_client.errors import TransactionError, misconfigured
from coordinator_protocol.assignors.classic import (
    CLASSIC_ASSIGNORS,
    Assignor,
    ClassicMember,
    RebalanceProtocol,
    common_rebalance_protocol,
    member_spec,
)
from coordinator_protocol.assignors.cooperative_sticky import handed_over_too_early
from coordinator_protocol.assignors.values import Share, TopicSpec
from coordinator_protocol.consumer_protocol import (
    Assignment,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
    version_of,
)
from coordinator_protocol.errors import ErrorCode, Refused


@dataclass(frozen=True, slots=True)
class Assignors:
    """The assignors that this consumer can use, the preferred one first."""

    by_name: Mapping[str, Assignor]
    protocol: RebalanceProtocol

    @property
    def is_cooperative(self) -> bool:
        """Whether partitions stay while the group rebalances."""
        return self.protocol is RebalanceProtocol.COOPERATIVE


def chosen_assignors(chosen: Sequence[str | Assignor]) -> Assignors:
    """Return the assignors for these names, and for objects of the application's own. Raises: Misconfigured."""
    found: list[Assignor] = []
    for one in chosen:
        if isinstance(one, str) and one not in CLASSIC_ASSIGNORS:
            known = ", ".join(CLASSIC_ASSIGNORS)
            raise misconfigured(ErrorCode.INVALID_CONFIG, f"partition_assignors names {one!r}, and there are: {known}")
        found.append(CLASSIC_ASSIGNORS[one] if isinstance(one, str) else one)
    try:
        protocol = common_rebalance_protocol(found)
    except Refused as why:
        raise misconfigured(why.code, why.message) from None
    return Assignors({assignor.name: assignor for assignor in found}, protocol)


@dataclass(frozen=True, slots=True, kw_only=True)
class JoiningMember:
    """What a member brings into a rebalance."""

    topics: frozenset[str]
    owned: Share[str]
    """The partitions that it keeps while it joins: none for eager members."""
    last_share: Share[str]
    """Its last assignment, kept or not."""
    generation: int = NO_GENERATION
    rack_id: str | None = None


def join_protocols(assignors: Assignors, member: JoiningMember) -> list[group.JoinGroupProtocol]:
    """Return the member's assignors, each with the metadata that it wants the leader to have."""
    protocols = []
    for name, assignor in assignors.by_name.items():
        subscription = Subscription(
            topics=tuple(sorted(member.topics)),
            user_data=assignor.user_data(member.last_share, member.generation),
            owned=member.owned,
            generation=member.generation,
            rack_id=member.rack_id,
        )
        protocols.append(group.JoinGroupProtocol(name=name, metadata=encode_subscription(subscription)))
    return protocols


class Plan:
    """The members as the leader knows them, and the assignment that it makes for them."""

    def __init__(self, assignors: Assignors, chosen: Assignor, members: Iterable[group.JoinGroupMember]) -> None:
        """Raises: Misconfigured where a member's metadata is not the consumer protocol's."""
        self._assignors = assignors
        self._chosen = chosen
        self._members: dict[str, ClassicMember] = {}
        self._versions: dict[str, int] = {}
        for member in members:
            try:
                subscription = decode_subscription(member.metadata)
                self._versions[member.member_id] = version_of(member.metadata)
            except Refused as why:
                raise misconfigured(
                    ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"the member {member.member_id} joined with: {why.message}"
                ) from None
            instance_id = member.group_instance_id if member.HasField("group_instance_id") else None
            self._members[member.member_id] = ClassicMember(subscription=subscription, instance_id=instance_id)

    @property
    def topics(self) -> frozenset[str]:
        """The topics that the group subscribes to."""
        return frozenset(topic for member in self._members.values() for topic in member.subscription.topics)

    def assignments(self, partition_counts: Mapping[str, int]) -> list[group.SyncGroupAssignment]:
        """Return the assignment of every member.

        Raises: Misconfigured where an assignor of the application's own hands out, under the cooperative protocol, what
        another member still owns.
        """
        topics = {topic: TopicSpec(count) for topic, count in partition_counts.items()}
        decided = self._chosen.assign(self._members, topics)
        is_ours = CLASSIC_ASSIGNORS.get(self._chosen.name) is self._chosen
        if self._assignors.is_cooperative and not is_ours:
            self._check_handover(decided)
        return [
            group.SyncGroupAssignment(
                member_id=member_id, assignment=encode_assignment(assignment, self._versions.get(member_id, 0))
            )
            for member_id, assignment in sorted(decided.items())
        ]

    def _check_handover(self, decided: Mapping[str, Assignment]) -> None:
        members = {member_id: member_spec(member) for member_id, member in self._members.items()}
        early = handed_over_too_early(
            members, {member_id: assignment.partitions for member_id, assignment in decided.items()}
        )
        if early:
            shown = ", ".join(f"{topic}-{partition}" for topic, partition in early[:5])
            raise misconfigured(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                f"the assignor {self._chosen.name!r} is used as a cooperative one and gives away what other members "
                f"still own ({shown}); it must leave such partitions out, until they were given up",
            )


def assigned_partitions(encoded: bytes) -> Share[str]:
    """Return the partitions that the leader's plan gives to this member. Raises: Misconfigured where the plan does not
    name it."""
    if not encoded:
        raise misconfigured(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            "the leader's plan has no part for this member: its assignor must name every member, be it with nothing",
        )
    try:
        return decode_assignment(encoded).partitions
    except Refused as why:
        raise misconfigured(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, why.message) from None


def as_share(names: Iterable[TopicPartition]) -> Share[str]:
    """Return the partitions grouped by topic."""
    share: dict[str, tuple[int, ...]] = {}
    for topic, partition in sorted(names):
        share[topic] = (*share.get(topic, ()), partition)
    return share


def as_names(share: Share[str]) -> frozenset[TopicPartition]:
    """Return the partitions one by one."""
    return frozenset(TopicPartition(topic, number) for topic, numbers in share.items() for number in numbers)


def unknown_assignor(name: str, assignors: Assignors) -> TransactionError:
    """Return the failure of a group that agreed on an assignor that this consumer does not have."""
    return misconfigured(
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        f"the group agreed on the assignor {name!r}, and this consumer has {', '.join(assignors.by_name)}",
    )
