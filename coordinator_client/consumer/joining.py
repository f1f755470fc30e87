"""One rebalance of a classic member, from JoinGroup to the assignment: its own metadata, and the leader's plan for all
members. The plan has no state.

Source: spec groups 5.7 (X1), 7.2 (the columns Join and Sync), 7.3; KIP-394.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from coordinator_api.v1 import group_pb2 as group
from coordinator_api.v1 import log_pb2 as log
from coordinator_client.calls import JOIN_GROUP, SYNC_GROUP, Deadlines, RetryingCall
from coordinator_client.consumer.context import ConsumerContext
from coordinator_client.errors import PASSING, TransactionError, misconfigured
from coordinator_client.groups.backoff import Backoff
from coordinator_client.groups.topics import ask_topics, topics_in
from coordinator_client.values import NO_GENERATION, TopicPartition, TopicPartitionCount
from coordinator_protocol.assignors.classic import (
    CLASSIC_ASSIGNORS,
    Assignor,
    RebalanceProtocol,
    SubscribedMember,
    common_rebalance_protocol,
    member_spec,
)
from coordinator_protocol.assignors.cooperative_sticky import handed_over_too_early
from coordinator_protocol.assignors.values import Share, TopicSpec
from coordinator_protocol.consumer_protocol import (
    PROTOCOL_TYPE,
    Assignment,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
    version_of,
)
from coordinator_protocol.errors import ErrorClass, ErrorCode, Refused


@dataclass(frozen=True, slots=True)
class Assignors:
    """The assignors that this consumer can use, the preferred one first."""

    by_name: Mapping[str, Assignor]
    protocol: RebalanceProtocol

    @property
    def is_cooperative(self) -> bool:
        """True if members keep their partitions while the group rebalances."""
        return self.protocol is RebalanceProtocol.COOPERATIVE


def chosen_assignors(chosen: Sequence[str | Assignor]) -> Assignors:
    """Return the assignors with these names, and the application's own objects. Raises: Misconfigured."""
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
    """The state of a member that joins a rebalance."""

    topics: frozenset[str]
    owned: Share[str]
    """Partitions that it keeps while it joins: none for eager members."""
    last_share: Share[str]
    """Its last assignment, kept or not."""
    generation: int = NO_GENERATION
    rack_id: str | None = None


def join_protocols(assignors: Assignors, member: JoiningMember) -> list[group.JoinGroupProtocol]:
    """Return the member's assignors, each with its metadata for the leader."""
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
    """The members as the leader knows them, and the assignment that it computes for them."""

    def __init__(self, assignors: Assignors, chosen: Assignor, members: Iterable[group.JoinGroupMember]) -> None:
        """Decode the metadata of the members. Raises: Misconfigured if a member's metadata is not the consumer
        protocol's."""
        self._assignors = assignors
        self._chosen = chosen
        self._members: dict[str, SubscribedMember] = {}
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
            self._members[member.member_id] = SubscribedMember(subscription=subscription, instance_id=instance_id)

    @property
    def topics(self) -> frozenset[str]:
        """Topics that the group subscribes to."""
        return frozenset(topic for member in self._members.values() for topic in member.subscription.topics)

    def assignments(self, partition_counts: Mapping[str, int]) -> list[group.SyncGroupAssignment]:
        """Return the assignment of every member.

        Raises: Misconfigured if, under the cooperative protocol, a custom assignor assigns a partition that another
        member still owns.
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
    """Return the partitions that the leader's plan gives to this member. Raises: Misconfigured if the plan does not
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


JOIN_MARGIN_MS: Final = 5_000
"""Margin for the network (ms). It is added to the rebalance timeout, which is the longest wait of JoinGroup."""

_NEVER_MS: Final = 2**62


class Joiner(Protocol):
    """The member that joins, notified of every step."""

    member_id: str
    generation: int

    def joining_member(self) -> JoiningMember:
        """Return the state that the member joins with."""

    def on_join_sent(self) -> None:
        """Note that JoinGroup is in flight."""

    def on_joined(self, reply: group.JoinGroupResponse, now_ms: int) -> None:
        """Note that the member is in a new generation."""

    def on_synced(self, share: Share[str], now_ms: int) -> None:
        """Take the assignment."""

    def watch(self, known: Mapping[str, TopicPartitionCount] | None, topics: frozenset[str], now_ms: int) -> None:
        """Note that the member leads: `topics` are those of the group, `known` those that the assignment was computed
        for."""

    def reset(self, *, keeps_id: bool, now_ms: int) -> None:
        """Note that the group does not know the member, or not in this generation."""

    def refuse(self, error: TransactionError, now_ms: int) -> None:
        """Note that the group refuses the member."""


class Joining:
    """Joins one member to its group, once per rebalance."""

    def __init__(self, context: ConsumerContext, assignors: Assignors, joiner: Joiner) -> None:
        self._context = context
        self._assignors = assignors
        self._joiner = joiner
        self._backoff = Backoff(context.random_source)
        self._flight: int | None = None
        self._due_ms = _NEVER_MS
        self._reason = ""

    def begin(self, reason: str, now_ms: int) -> None:
        """Join now; `reason` is for the server's log."""
        self.cancel()
        self._reason = reason
        self._due_ms = now_ms

    def cancel(self) -> None:
        """Stop joining."""
        self._due_ms = _NEVER_MS
        self._context.flights.cancel(self._flight)
        self._flight = None

    def advance(self, now_ms: int) -> None:
        """Send JoinGroup, if it is due."""
        if now_ms >= self._due_ms:
            self._due_ms = _NEVER_MS
            self._join(now_ms)

    def wake_ms(self) -> int | None:
        """Return the time at which JoinGroup is due; None if it is not planned."""
        return None if self._due_ms == _NEVER_MS else self._due_ms

    def _join(self, now_ms: int) -> None:
        config, joiner = self._context.config, self._joiner
        joiner.on_join_sent()
        request = group.JoinGroupRequest(
            header=self._context.header(),
            group_id=self._context.group_id,
            session_timeout_ms=config.session_timeout_ms,
            rebalance_timeout_ms=config.max_poll_interval_ms,
            member_id=joiner.member_id,
            group_instance_id=config.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=join_protocols(self._assignors, joiner.joining_member()),
            reason=self._reason,
            supports_skip_assignment=True,
        )
        attempt_ms = max(config.request_timeout_ms, config.max_poll_interval_ms + JOIN_MARGIN_MS)
        deadlines = Deadlines(total_ms=attempt_ms, attempt_ms=attempt_ms, attempts_max=1)
        accepted = frozenset({ErrorCode.MEMBER_ID_REQUIRED})
        call = RetryingCall(JOIN_GROUP, request, deadlines=deadlines, now_ms=now_ms, accepted=accepted)
        self._flight = self._context.flights.start(call, self._joined)

    def _joined(self, end: group.JoinGroupResponse | TransactionError, now_ms: int) -> None:
        self._flight = None
        if isinstance(end, TransactionError):
            self._join_failed(end, now_ms)
            return
        if end.error_code:
            # The server chose an id for this member (MEMBER_ID_REQUIRED): join again under it.
            self._joiner.member_id, self._due_ms = end.member_id, now_ms
            return
        self._backoff.reset()
        self._joiner.on_joined(end, now_ms)
        chosen = self._assignors.by_name.get(end.protocol_name)
        if chosen is None:
            self._joiner.refuse(unknown_assignor(end.protocol_name, self._assignors), now_ms)
        elif end.leader != end.member_id:
            self._sync(end, [], now_ms)
        else:
            try:
                self._lead(end, Plan(self._assignors, chosen, end.members), now_ms)
            except TransactionError as why:
                self._joiner.refuse(why, now_ms)

    def _join_failed(self, error: TransactionError, now_ms: int) -> None:
        if error.code == ErrorCode.UNKNOWN_MEMBER_ID:
            self._joiner.reset(keeps_id=False, now_ms=now_ms)
        elif error.error_class in PASSING or error.error_class is ErrorClass.REJOIN:
            self._due_ms = now_ms + self._backoff.next_ms()
        else:
            self._joiner.refuse(error, now_ms)

    def _lead(self, joined: group.JoinGroupResponse, plan: Plan, now_ms: int) -> None:
        if joined.skip_assignment:
            self._joiner.watch(None, plan.topics, now_ms)
            self._sync(joined, [], now_ms)
            return

        def described(end: log.DescribeTopicsResponse | TransactionError, at_ms: int) -> None:
            self._flight = None
            if isinstance(end, TransactionError):
                # The other members wait for a plan, so the group restarts the rebalance.
                self._due_ms = at_ms + self._backoff.next_ms()
                return
            known = topics_in(end)
            try:
                assignments = plan.assignments({name: topic.partition_count for name, topic in known.items()})
            except TransactionError as why:
                self._joiner.refuse(why, at_ms)
                return
            self._joiner.watch(known, plan.topics, at_ms)
            self._sync(joined, assignments, at_ms)

        if plan.topics:
            self._flight = ask_topics(self._context, plan.topics, described, now_ms)
        else:
            described(log.DescribeTopicsResponse(), now_ms)

    def _sync(self, joined: group.JoinGroupResponse, assignments: list[group.SyncGroupAssignment], now_ms: int) -> None:
        request = group.SyncGroupRequest(
            header=self._context.header(),
            group_id=self._context.group_id,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            group_instance_id=self._context.config.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=joined.protocol_name,
            assignments=assignments,
        )
        wait_ms = self._context.config.max_poll_interval_ms
        call = RetryingCall(SYNC_GROUP, request, deadlines=self._context.once(wait_ms=wait_ms), now_ms=now_ms)
        self._flight = self._context.flights.start(call, self._synced)

    def _synced(self, end: group.SyncGroupResponse | TransactionError, now_ms: int) -> None:
        self._flight = None
        if isinstance(end, TransactionError):
            self._sync_failed(end, now_ms)
            return
        try:
            share = assigned_partitions(end.assignment)
        except TransactionError as why:
            self._joiner.refuse(why, now_ms)
        else:
            self._joiner.on_synced(share, now_ms)

    def _sync_failed(self, error: TransactionError, now_ms: int) -> None:
        if error.code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
            self._joiner.reset(keeps_id=error.code == ErrorCode.ILLEGAL_GENERATION, now_ms=now_ms)
        elif error.error_class is ErrorClass.REJOIN:
            self._due_ms = now_ms
        elif error.error_class in PASSING:
            self._due_ms = now_ms + self._backoff.next_ms()
        else:
            self._joiner.refuse(error, now_ms)
