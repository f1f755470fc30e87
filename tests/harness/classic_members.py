"""Classic consumers as the tests speak of them: each remembers what it was answered, as a client does.

world = classic_world()
leader, follower = world.classic.stable(world.classic.member(), world.classic.member())
joining = leader.join()               # a Pending response
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from coordinator_api.v1 import common_pb2, group_pb2
from coordinator_protocol.consumer_protocol import (
    Assignment,
    Subscription,
    decode_assignment,
    encode_assignment,
    encode_subscription,
)
from coordinator_protocol.errors import ErrorCode
from coordinator_runtime.pending import Pending
from group_coordinator.classic.state import ClassicGroup
from tests.harness.consumers import Partitions
from tests.harness.groups import GROUP, OK, code

if TYPE_CHECKING:
    from tests.harness.world import World

DELAY_MS = 3_000
"""Time that a group that was Empty waits for more members."""
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
    """Return the assignment in an answer to SyncGroup."""
    decoded = decode_assignment(encoded)
    return frozenset((topic, number) for topic, numbers in decoded.partitions.items() for number in numbers)


def subscribed(*topics: str) -> bytes:
    """Metadata of a member that subscribes to these topics."""
    return encode_subscription(Subscription(topics=topics))


def protocols(*names: str, metadata: bytes | None = None) -> list[tuple[str, bytes]]:
    """Assignors in order of preference, all with the same metadata."""
    return [(name, subscribed("foo") if metadata is None else metadata) for name in names]


@dataclass(frozen=True, slots=True)
class ClassicGroups:
    """The classic groups of a world, and their members."""

    world: World

    def member(self, instance_id: str | None = None, **settings: Any) -> Member:
        """A member that has not joined yet."""
        return Member(self.world, instance_id, **settings)

    def subscriber(
        self, instance_id: str | None = None, *, topics: tuple[str, ...] = FOO_AND_BAR, **settings: Any
    ) -> Member:
        """A member that has not joined yet, with topics in its metadata."""
        settings.setdefault("protocols", [("range", subscription(*topics))])
        return Member(self.world, instance_id, **settings)

    def stable(self, *members: Member, plan: Mapping[int, bytes] | None = None) -> list[Member]:
        """Let them form a generation. `plan`: the assignment of each, by its number; "part-<number>" by default."""
        self.completing(*members)
        self.assign(members, plan)
        return list(members)

    def group(self, group_id: str = GROUP) -> ClassicGroup:
        """Return the live group of the shard: for facts that no answer shows."""
        group = self.world.groups.live(group_id)
        assert isinstance(group, ClassicGroup)
        return group

    def describe(self, group_id: str = GROUP) -> Any:
        return self.world.ask(group_pb2.DescribeGroupsRequest(group_ids=[group_id])).groups[0]

    def state(self, group_id: str = GROUP) -> str:
        return str(self.describe(group_id).group_state)

    def generation(self, group_id: str = GROUP) -> int:
        return int(self.describe(group_id).generation_id)

    def member_ids(self, group_id: str = GROUP) -> list[str]:
        return [member.member_id for member in self.describe(group_id).members]

    def size(self, group_id: str = GROUP) -> int:
        return len(self.member_ids(group_id))

    def form(self, *members: Member, plan: Mapping[int, Partitions]) -> None:
        """These members form a Stable group, with what a consumer is assigned."""
        self.completing(*members)
        self.assign(members, {number: assignment(partitions) for number, partitions in plan.items()})

    def completing(self, *members: Member) -> list[Member]:
        """They join a group that was Empty, the first one first, and are answered; there is no assignment yet."""
        joining = [member.join_as_new() for member in members]
        for _window in range(4):
            self.world.pass_time(DELAY_MS)
            if all(reply.is_settled for reply in joining):
                break
        assert [code(reply.result()) for reply in joining] == [OK] * len(members)
        return list(members)

    def assign(self, members: Iterable[Member], plan: Mapping[int, bytes] | None = None) -> None:
        """The leader brings the assignment, and everybody asks for its part."""
        members = list(members)
        parts = {number: f"part-{number}".encode() for number in range(len(members))} if plan is None else plan
        leader = next(member for member in members if member.is_leader)
        replies = [leader.sync({members[number].member_id: part for number, part in parts.items()})]
        replies += [member.sync() for member in members if member is not leader]
        self.world.settle()
        assert [code(reply.result()) for reply in replies] == [OK] * len(members)

    def leave(self, *entries: group_pb2.LeavingMember, group_id: str = GROUP) -> list[ErrorCode]:
        """Return the answer for each entry."""
        response = self.world.ask(group_pb2.LeaveGroupRequest(group_id=group_id, members=entries))
        assert code(response) is OK
        return [code(member) for member in response.members]


@dataclass
class Member:
    """One client."""

    world: World
    instance_id: str | None = None
    group_id: str = GROUP
    member_id: str = ""
    generation: int = -1
    leader: str = ""
    protocols: list[tuple[str, bytes]] = field(default_factory=lambda: protocols("range"))
    protocol_type: str = "consumer"
    session_timeout_ms: int = 5_000
    rebalance_timeout_ms: int = 10_000
    client_id: str = "client"
    one_step: bool = False
    """A client from before KIP-394."""
    supports_skip_assignment: bool = True

    @property
    def is_leader(self) -> bool:
        return self.leader == self.member_id

    @property
    def header(self) -> common_pb2.RequestHeader:
        return common_pb2.RequestHeader(client_id=self.client_id)

    def join(self, *, member_id: str | None = None) -> Pending[Any]:
        """JoinGroup with what the member knows; `member_id`: with this id."""
        request = group_pb2.JoinGroupRequest(
            header=self.header,
            group_id=self.group_id,
            session_timeout_ms=self.session_timeout_ms,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            member_id=self.member_id if member_id is None else member_id,
            group_instance_id=self.instance_id,
            protocol_type=self.protocol_type,
            protocols=[group_pb2.JoinGroupProtocol(name=name, metadata=data) for name, data in self.protocols],
            skip_member_id_required=self.one_step,
            supports_skip_assignment=self.supports_skip_assignment,
        )
        reply = self.world.call(request)
        reply.on_settled(self._on_joined)
        return reply

    def join_as_new(self) -> Pending[Any]:
        """JoinGroup as a new member: in two steps, where the server wants it so."""
        reply = self.join(member_id="")
        self.world.settle()
        if reply.is_settled and code(reply.result()) is ErrorCode.MEMBER_ID_REQUIRED:
            reply = self.join()
            self.world.settle()
        return reply

    def asked_for_id(self) -> str:
        """The first of two steps."""
        reply = self.join(member_id="")
        self.world.settle()
        assert code(reply.result()) is ErrorCode.MEMBER_ID_REQUIRED
        return self.member_id

    def joins(self, *, member_id: str | None = None) -> Any:
        """The answer of a JoinGroup that does not wait."""
        reply = self.join(member_id=member_id)
        self.world.settle()
        return reply.result()

    def joining(self, *, member_id: str | None = None) -> Pending[Any]:
        """A JoinGroup that is parked."""
        reply = self.join(member_id=member_id)
        self.world.settle()
        assert not reply.is_settled, reply.result()
        return reply

    def _on_joined(self, reply: Pending[Any]) -> None:
        response = reply.result()
        if code(response) in (OK, ErrorCode.MEMBER_ID_REQUIRED):
            self.member_id = response.member_id
        if code(response) is OK:
            self.generation, self.leader = response.generation_id, response.leader

    def sync(self, plan: Mapping[str, bytes] | None = None, **fields: Any) -> Pending[Any]:
        """SyncGroup; `fields` replace what the member would say."""
        said = {
            "group_id": self.group_id,
            "generation_id": self.generation,
            "member_id": self.member_id,
            "group_instance_id": self.instance_id,
        }
        parts = [
            group_pb2.SyncGroupAssignment(member_id=member_id, assignment=part)
            for member_id, part in (plan or {}).items()
        ]
        return self.world.call(group_pb2.SyncGroupRequest(**{**said, **fields}, assignments=parts))

    def syncs(self, plan: Mapping[str, bytes] | None = None, **fields: Any) -> Any:
        """The answer of a SyncGroup that does not wait."""
        reply = self.sync(plan, **fields)
        self.world.settle()
        return reply.result()

    def syncing(self) -> Pending[Any]:
        """A SyncGroup that is parked."""
        reply = self.sync()
        self.world.settle()
        assert not reply.is_settled, reply.result()
        return reply

    def heartbeat(self, *, max_wait_ms: int = 0, **fields: Any) -> Pending[Any]:
        """Heartbeat; `fields` replace what the member would say."""
        said = {
            "group_id": self.group_id,
            "generation_id": self.generation,
            "member_id": self.member_id,
            "group_instance_id": self.instance_id,
        }
        return self.world.call(group_pb2.HeartbeatRequest(**{**said, **fields}, max_wait_ms=max_wait_ms))

    def beats(self, **fields: Any) -> ErrorCode:
        """Return the answer to a heartbeat."""
        reply = self.heartbeat(**fields)
        self.world.settle()
        return code(reply.result())

    def leaves(self) -> ErrorCode:
        """Return the answer to a LeaveGroup of the member."""
        (answer,) = self.world.classic.leave(self.leaving, group_id=self.group_id)
        return answer

    @property
    def leaving(self) -> group_pb2.LeavingMember:
        return group_pb2.LeavingMember(member_id=self.member_id, group_instance_id=self.instance_id)
