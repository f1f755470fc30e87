"""Assignors for members of classic groups: each member sends its assignors' user data, and the leader's assignor
decides.

A consumer is given one assignor or more, in the order of its preference; the coordinator picks one that all members
have. Kafka's four are here under Kafka's names. An application's own is any object with the members of `Assignor`.

Source: spec groups 5.4, 7.3; Kafka's `ConsumerPartitionAssignor`, KIP-429.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from types import MappingProxyType
from typing import Final, Protocol

from coordinator_protocol.assignors.cooperative_sticky import assign_cooperative_sticky
from coordinator_protocol.assignors.range import assign_range_by_rack
from coordinator_protocol.assignors.round_robin import assign_round_robin
from coordinator_protocol.assignors.sticky import assign_sticky
from coordinator_protocol.assignors.values import NO_GENERATION, MemberSpec, Share, Shares, TopicSpec
from coordinator_protocol.consumer_protocol import (
    Assignment,
    Subscription,
    decode_cooperative_user_data,
    decode_sticky_user_data,
    encode_cooperative_user_data,
    encode_sticky_user_data,
)
from coordinator_protocol.errors import ErrorCode, Refused


class RebalanceProtocol(IntEnum):
    """Handling of owned partitions when a rebalance begins. The higher the number, the more keeps running."""

    EAGER = 0
    """Members give up all their partitions."""
    COOPERATIVE = 1
    """Members keep their partitions. They give up afterwards those that they were not assigned again, and then join
    once more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscribedMember:
    """A member as the leader sees it in the answer to its JoinGroup."""

    subscription: Subscription
    instance_id: str | None = None


class Assignor(Protocol):
    """A strategy of classic groups. Its methods are pure: another member may be the leader next time."""

    @property
    def name(self) -> str:
        """Name by which members agree on the assignor. A change that old leaders would not understand needs a new
        name."""

    @property
    def rebalance_protocols(self) -> frozenset[RebalanceProtocol]:
        """Protocols that it supports. A cooperative assignor never assigns a partition that another member still
        owns."""

    def user_data(self, owned: Share[str], generation: int) -> bytes | None:
        """Return the user data for the member's own subscription.

        `owned` is the member's last assignment, received in `generation`; -1 if that generation is lost."""

    def assign(
        self, members: Mapping[str, SubscribedMember], topics: Mapping[str, TopicSpec]
    ) -> Mapping[str, Assignment]:
        """Return the assignment of every member, by member id. Called on the leader only."""


def common_rebalance_protocol(assignors: Sequence[Assignor]) -> RebalanceProtocol:
    """Return the most advanced protocol that all assignors of a consumer support.

    Raises: Refused (INVALID_CONFIG) if there is none."""
    common = frozenset(RebalanceProtocol).intersection(*(assignor.rebalance_protocols for assignor in assignors))
    if not assignors or not common:
        names = ", ".join(assignor.name for assignor in assignors)
        raise Refused(
            ErrorCode.INVALID_CONFIG,
            f"the assignors ({names}) have no rebalance protocol in common; use only eager or only cooperative ones",
        )
    return max(common)


@dataclass(frozen=True, slots=True)
class _KafkaAssignor:
    """A strategy of Kafka: the functions that find the members' previous partitions, and the function that decides."""

    name: str
    rebalance_protocols: frozenset[RebalanceProtocol]
    rule: Callable[[Mapping[str, MemberSpec[str]], Mapping[str, TopicSpec]], Shares[str]]
    remember: Callable[[Share[str], int], bytes | None]
    recall: Callable[[Subscription], tuple[Share[str], int]]

    def user_data(self, owned: Share[str], generation: int) -> bytes | None:
        return self.remember(owned, generation)

    def assign(
        self, members: Mapping[str, SubscribedMember], topics: Mapping[str, TopicSpec]
    ) -> Mapping[str, Assignment]:
        specs = {}
        for member_id, member in members.items():
            owned, generation = self.recall(member.subscription)
            specs[member_id] = replace(member_spec(member), owned=owned, generation=generation)
        shares = self.rule(specs, topics)
        return {member_id: Assignment(partitions=share) for member_id, share in shares.items()}


def member_spec(member: SubscribedMember) -> MemberSpec[str]:
    """Return the input of an assignor for a member, with the owned partitions of its subscription."""
    subscription = member.subscription
    return MemberSpec(
        topics=frozenset(subscription.topics),
        instance_id=member.instance_id,
        rack_id=subscription.rack_id,
        owned=subscription.owned,
        generation=subscription.generation,
    )


def _remember_nothing(_owned: Share[str], _generation: int) -> None:
    return None


def _recall_nothing(_subscription: Subscription) -> tuple[Share[str], int]:
    return {}, NO_GENERATION


def _recall_sticky(subscription: Subscription) -> tuple[Share[str], int]:
    # An eager member owns nothing any more when it joins, so its subscription does not have its previous partitions.
    return decode_sticky_user_data(subscription.user_data)


def _recall_cooperative(subscription: Subscription) -> tuple[Share[str], int]:
    if subscription.generation != NO_GENERATION:
        return subscription.owned, subscription.generation
    return subscription.owned, decode_cooperative_user_data(subscription.user_data)


def _remember_cooperative(_owned: Share[str], generation: int) -> bytes:
    return encode_cooperative_user_data(generation)


_EAGER: Final = frozenset({RebalanceProtocol.EAGER})

RANGE: Final[Assignor] = _KafkaAssignor("range", _EAGER, assign_range_by_rack, _remember_nothing, _recall_nothing)
ROUND_ROBIN: Final[Assignor] = _KafkaAssignor(
    "roundrobin", _EAGER, assign_round_robin, _remember_nothing, _recall_nothing
)
STICKY: Final[Assignor] = _KafkaAssignor("sticky", _EAGER, assign_sticky, encode_sticky_user_data, _recall_sticky)
COOPERATIVE_STICKY: Final[Assignor] = _KafkaAssignor(
    "cooperative-sticky",
    frozenset(RebalanceProtocol),
    assign_cooperative_sticky,
    _remember_cooperative,
    _recall_cooperative,
)

CLASSIC_ASSIGNORS: Final[Mapping[str, Assignor]] = MappingProxyType(
    {assignor.name: assignor for assignor in (RANGE, ROUND_ROBIN, STICKY, COOPERATIVE_STICKY)}
)
"""Kafka's assignors, by their names on the wire."""
