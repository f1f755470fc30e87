"""Share groups as the tests speak of them, with states of share partitions that only remember what was asked.

shares = share_groups()
first = shares.member("first")
first.joins("foo")
shares.states.held                     # which partitions have a state, and of which epoch
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from coordinator_api.v1 import group_pb2
from coordinator_core.assembly import Core
from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_runtime.decision import CATALOG_KEY, Decision, Operation, Turn
from coordinator_runtime.pending import Pending
from coordinator_runtime.share_ports import ReleaseShares
from group_coordinator.members import LEAVE_EPOCH
from group_coordinator.share.requests import ShareHeartbeat
from tests.harness.consumers import Partitions, partitions_of
from tests.harness.group_calls import ANYBODY
from tests.harness.group_world import group_world
from tests.harness.groups import GROUP, OK, code
from tests.harness.world import World

ShareKey = tuple[str, bytes, int]
"""Group id, topic id and partition."""


@dataclass
class FakeShareStates:
    """Implements `coordinator_runtime.share_ports.ShareStates`. Its shards are no shards: they remember at once."""

    held: dict[ShareKey, int] = field(default_factory=dict)
    """State epoch of each share partition."""
    unserved: set[int] = field(default_factory=set)
    """Partitions, of whatever topic, whose shards are not served."""
    refusal: Refused | None = None
    """Refusal of every operation."""
    released: list[ReleaseShares] = field(default_factory=list)

    def initialize(self, group_id: str, topic_id: bytes, partition: int, state_epoch: int) -> Operation:
        assert self.is_served(topic_id, partition), "asked for what is served"
        return self._operation(partial(self.held.__setitem__, (group_id, topic_id, partition), state_epoch))

    def alter_start(self, group_id: str, topic_id: bytes, partition: int, state_epoch: int, _offset: int) -> Operation:
        return self._operation(partial(self.held.__setitem__, (group_id, topic_id, partition), state_epoch))

    def delete(self, group_id: str, topic_id: bytes, partition: int) -> Operation:
        return self._operation(partial(self.held.pop, (group_id, topic_id, partition), None))

    def is_served(self, _topic_id: bytes, partition: int) -> bool:
        return partition not in self.unserved

    def _operation(self, remember: Callable[[], object]) -> Operation:
        def decide(_shard: object, _turn: Turn) -> Decision:
            if self.refusal is not None:
                raise self.refusal
            remember()
            return Decision()

        return Operation(CATALOG_KEY, decide)

    def listen(self, core: Core) -> None:
        """Hear of members whose records are to be released."""
        core.runtime.handle_effect(ReleaseShares, self.released.append)


@dataclass
class ShareGroups:
    """The share groups of a world, and their members."""

    world: World
    states: FakeShareStates

    def member(self, member_id: str = "m", **settings: Any) -> ShareMember:
        """A member that has not joined yet."""
        return ShareMember(self.world, member_id, **settings)

    def members(self, *member_ids: str) -> list[ShareMember]:
        return [self.member(member_id) for member_id in member_ids]

    def describe(self, group_id: str = GROUP) -> Any:
        return self.world.ask(group_pb2.ShareGroupDescribeRequest(group_ids=[group_id])).groups[0]

    def state(self, group_id: str = GROUP) -> str:
        return str(self.describe(group_id).group_state)

    def epoch(self, group_id: str = GROUP) -> int:
        return int(self.describe(group_id).group_epoch)

    def member_ids(self, group_id: str = GROUP) -> list[str]:
        return [member.member_id for member in self.describe(group_id).members]

    def initialized(self, group_id: str = GROUP) -> set[tuple[bytes, int]]:
        """Return the partitions that the group counts as initialised."""
        return set(self.world.groups.live(group_id).initialized_partitions())

    def alter(self, group_id: str = GROUP, **values: int | str) -> ErrorCode:
        """Set settings of the group."""
        configs = [
            group_pb2.GroupConfig(name=name, text=value)
            if isinstance(value, str)
            else group_pb2.GroupConfig(name=name, value=value)
            for name, value in values.items()
        ]
        return code(self.world.ask(group_pb2.AlterGroupConfigsRequest(group_id=group_id, set=configs)))


def share_groups(**settings: Any) -> ShareGroups:
    """A server whose share groups have such states. The settings are those of `group_world`."""
    states = FakeShareStates()
    world = group_world(share_states=lambda: states, on_assembled=states.listen, **settings)
    return ShareGroups(world, states)


@dataclass
class ShareMember:
    """One client."""

    world: World
    member_id: str = "m"
    group_id: str = GROUP
    epoch: int = 0
    assigned: Partitions = frozenset()
    """Partitions in the last assignment that it was sent."""

    def request(self, member_epoch: int | None = None, **fields: Any) -> group_pb2.ShareGroupHeartbeatRequest:
        return group_pb2.ShareGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=self.epoch if member_epoch is None else member_epoch,
            **fields,
        )

    def hears(self, response: Any) -> Any:
        """Take up what was answered."""
        if code(response) is OK:
            self.member_id = response.member_id
            self.epoch = response.member_epoch
            if response.HasField("assignment"):
                self.assigned = partitions_of(response.assignment.topics)
        return response

    def beats(self, member_epoch: int | None = None, **fields: Any) -> Any:
        return self.hears(self.world.ask(self.request(member_epoch, **fields)))

    def waits(self, max_wait_ms: int = 5_000) -> Pending[Any]:
        """A heartbeat that waits for news."""
        waiting = self.world.call(self.request(max_wait_ms=max_wait_ms))
        waiting.on_settled(lambda reply: self.hears(reply.result()))
        return waiting

    def joins(self, *topics: str, **fields: Any) -> Any:
        return self.beats(0, subscribed_topic_names=group_pb2.TopicNames(names=topics), **fields)

    def subscribes(self, *topics: str) -> Any:
        return self.beats(subscribed_topic_names=group_pb2.TopicNames(names=topics))

    def leaves(self) -> Any:
        return self.beats(-1)

    def leaves_as_in_kafka(self) -> Pending[Any]:
        """Leave, and keep the share session, as over Kafka's protocol. The answer comes once it is durable."""
        request = ShareHeartbeat(
            group_id=self.group_id, member_id=self.member_id, member_epoch=LEAVE_EPOCH, keeps_session=True
        )
        return self.world.inside.core.groups.share.heartbeat(request, ANYBODY)
