"""Groups whose members speak both protocols, and groups on their way from one to the other."""

from __future__ import annotations

from typing import Any

from coordinator_api.v1 import group_pb2
from coordinator_protocol.consumer_protocol import (
    Assignment,
    Subscription,
    decode_assignment,
    encode_assignment,
    encode_subscription,
)
from tests.groups.classic.members import ClassicVerbs, Member
from tests.groups.consumer.members import GROUP, ConsumerRoom, Partitions

FOO_AND_BAR = ("foo", "bar")


def by_topic(partitions: Partitions) -> dict[str, tuple[int, ...]]:
    numbers: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        numbers.setdefault(topic, []).append(number)
    return {topic: tuple(found) for topic, found in numbers.items()}


def subscription(*topics: str, owned: Partitions = frozenset(), version: int = 3) -> bytes:
    return encode_subscription(Subscription(topics=topics, owned=by_topic(owned)), version)


def assignment(partitions: Partitions) -> bytes:
    return encode_assignment(Assignment(partitions=by_topic(partitions)))


def assigned(encoded: bytes) -> Partitions:
    """What a SyncGroup was answered."""
    decoded = decode_assignment(encoded)
    return frozenset((topic, number) for topic, numbers in decoded.partitions.items() for number in numbers)


class MixedRoom(ConsumerRoom, ClassicVerbs):
    """A server with topics, for members of both kinds."""

    def classic(self, instance_id: str | None = None, *, topics: tuple[str, ...] = FOO_AND_BAR, **settings: Any) -> Any:
        """A classic consumer that has not joined yet."""
        settings.setdefault("protocols", [("range", subscription(*topics))])
        return Member(self, instance_id, **settings)

    def classic_group(self, *members: Any, plan: dict[int, Partitions]) -> None:
        """These classic members form a Stable group."""
        self.completing(*members)
        self.assign(members, {number: assignment(partitions) for number, partitions in plan.items()})

    def classic_state(self, group_id: str = GROUP) -> Any:
        return self.told(group_pb2.DescribeGroupsRequest(group_ids=[group_id])).groups[0]

    def kind(self, group_id: str = GROUP) -> str:
        listed = self.told(group_pb2.ListGroupsRequest()).groups
        return next(str(group.group_type) for group in listed if group.group_id == group_id)
