"""What members of consumer groups ask and are answered, as frozen values."""

from __future__ import annotations

from msgspec import Struct

from coordinator_protocol.errors import Refused
from coordinator_runtime.ports import PartitionName
from group_coordinator.consumer.state import JOIN_EPOCH, ConsumerMember, Held, Owned
from group_coordinator.state import OfGroup


class HeartbeatRequest(OfGroup, frozen=True, kw_only=True):
    """One ConsumerGroupHeartbeat. None is "unchanged", or "none" from who joins (spec groups 3.2)."""

    member_id: str
    member_epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int | None = None
    subscribed_topic_names: frozenset[str] | None = None
    subscribed_topic_regex: str | None = None
    """Empty: no pattern any more."""
    server_assignor: str | None = None
    owned_names: tuple[PartitionName, ...] | None = None
    """What the member owns, as it names it."""
    max_wait_ms: int = 0
    """How long the answer may wait for news."""
    owned: Owned | None = None
    """What the member owns by topic id, as `ConsumerService` looks it up."""
    crosses: bool = False
    """An older heartbeat of the member was decided and not answered when this one came: the member cannot know that
    decision, so the answer repeats the whole assignment."""

    @property
    def is_join(self) -> bool:
        return self.member_epoch == JOIN_EPOCH

    @property
    def names_subscription(self) -> bool:
        return self.subscribed_topic_names is not None or self.subscribed_topic_regex is not None

    @property
    def says_nothing(self) -> bool:
        """Nothing about the member itself: the member lives, and perhaps owns something."""
        return (
            self.rack_id is None
            and self.rebalance_timeout_ms is None
            and not self.names_subscription
            and self.server_assignor is None
        )

    @property
    def is_full(self) -> bool:
        """It repeats all that the server must know, so it is told all, too: its client may have missed something."""
        return self.rebalance_timeout_ms is not None and self.names_subscription and self.owned is not None


class HeartbeatReply(Struct, frozen=True, kw_only=True):
    """What the group replies."""

    member_id: str
    member_epoch: int
    heartbeat_interval_ms: int = 0
    assigned: Held | None = None
    """None: unchanged."""


class TopicShare(Struct, frozen=True):
    """Partitions of one topic."""

    topic: str
    """Empty for a topic that is gone."""
    topic_id: bytes
    partitions: list[int]
    """Ascending."""


class HeartbeatAnswer(Struct, frozen=True):
    """What the member is to do."""

    member_id: str
    member_epoch: int
    heartbeat_interval_ms: int
    assigned: tuple[TopicShare, ...] | None
    """None: unchanged."""


class MemberDescription(Struct, frozen=True):
    """One member of a consumer group, as it is on disk."""

    member: ConsumerMember
    member_epoch: int
    assigned: tuple[TopicShare, ...]
    target: tuple[TopicShare, ...]


class ConsumerGroupDescription(OfGroup, frozen=True):
    """One consumer group as it is on disk, or why it is not shown."""

    refusal: Refused | None = None
    state_name: str = ""
    group_epoch: int = 0
    assignment_epoch: int = 0
    assignor_name: str = ""
    members: tuple[MemberDescription, ...] = ()
    """Sorted by member id."""
