"""Requests of members of consumer groups and their answers, as frozen values."""

from __future__ import annotations

from msgspec import Struct

from coordinator_protocol.errors import Refused
from coordinator_runtime.ports import PartitionName
from group_coordinator.consumer.state import ConsumerMember, Owned
from group_coordinator.members import Beat
from group_coordinator.state import OfGroup
from group_coordinator.topics import TopicShare


class HeartbeatRequest(Beat, frozen=True, kw_only=True):
    """One ConsumerGroupHeartbeat. None means unchanged, or none in a join (spec groups 3.2)."""

    instance_id: str | None = None
    rebalance_timeout_ms: int | None = None
    subscribed_topic_regex: str | None = None
    """Empty if the member no longer uses a pattern."""
    server_assignor: str | None = None
    owned_names: tuple[PartitionName, ...] | None = None
    """Partitions that the member owns, as it names them."""
    owned: Owned | None = None
    """Partitions that the member owns by topic id, as `ConsumerService` looks them up."""

    @property
    def names_subscription(self) -> bool:
        return self.subscribed_topic_names is not None or self.subscribed_topic_regex is not None

    @property
    def says_nothing(self) -> bool:
        """True if the request has nothing new about the member: a sign of life, perhaps with owned partitions."""
        return (
            self.rack_id is None
            and self.rebalance_timeout_ms is None
            and not self.names_subscription
            and self.server_assignor is None
        )

    @property
    def is_full(self) -> bool:
        """True if the request repeats everything that the server needs. Its client may have missed something, so the
        reply repeats everything too."""
        return self.rebalance_timeout_ms is not None and self.names_subscription and self.owned is not None


class MemberDescription(Struct, frozen=True):
    """One member of a consumer group, as it is on disk."""

    member: ConsumerMember
    member_epoch: int
    assigned: tuple[TopicShare, ...]
    target: tuple[TopicShare, ...]


class ConsumerGroupDescription(OfGroup, frozen=True):
    """One consumer group as it is on disk, or the refusal to show it."""

    refusal: Refused | None = None
    state_name: str = ""
    group_epoch: int = 0
    assignment_epoch: int = 0
    assignor_name: str = ""
    members: tuple[MemberDescription, ...] = ()
    """Sorted by member id."""
