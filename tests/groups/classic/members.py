"""Classic consumers as the tests speak of them: each remembers what it was answered, as a client does.

room = ClassicRoom()
leader, follower = room.stable(room.member(), room.member())
joining = leader.join()               # a Pending response
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from coordinator_api.v1 import common_pb2, group_pb2
from coordinator_protocol.consumer_protocol import Subscription, encode_subscription
from coordinator_protocol.errors import ErrorCode
from coordinator_runtime.pending import Pending
from group_coordinator.classic.state import ClassicGroup
from tests.groups.room import KAFKA, GroupRoom, RoomOptions

OK = ErrorCode.NONE
GROUP = "g"
DELAY_MS = KAFKA.initial_rebalance_delay_ms


def code(response: Any) -> ErrorCode:
    """The error of a whole response, or of one of its items."""
    return ErrorCode(response.error_code)


def subscribed(*topics: str) -> bytes:
    """Metadata of a member that subscribes to these topics."""
    return encode_subscription(Subscription(topics=topics))


def protocols(*names: str, metadata: bytes | None = None) -> list[tuple[str, bytes]]:
    """Assignors in order of preference, all with the same metadata."""
    return [(name, subscribed("foo") if metadata is None else metadata) for name in names]


class ClassicVerbs(GroupRoom):
    """What classic members do together, in any room."""

    def completing(self, *members: Member) -> list[Member]:
        """They join a group that was Empty, the first one first, and are answered; nobody has brought an assignment."""
        joining = [member.join_as_new() for member in members]
        for _window in range(4):
            self.tick(DELAY_MS)
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
        self.settle()
        assert [code(reply.result()) for reply in replies] == [OK] * len(members)

    def leave(self, *entries: group_pb2.LeavingMember, group_id: str = GROUP) -> list[ErrorCode]:
        """What each entry is answered."""
        response = self.told(group_pb2.LeaveGroupRequest(group_id=group_id, members=entries))
        assert code(response) is OK
        return [code(member) for member in response.members]


class ClassicRoom(ClassicVerbs):
    """A server with classic groups; no topics, they are the clients' business."""

    def __init__(self, **config: Any) -> None:
        super().__init__(RoomOptions(config=replace(KAFKA, **config), topics={}))

    def member(self, instance_id: str | None = None, **settings: Any) -> Member:
        """Somebody who has not joined yet."""
        return Member(self, instance_id, **settings)

    def stable(self, *members: Member, plan: Mapping[int, bytes] | None = None) -> list[Member]:
        """They form a generation. `plan`: what each is assigned, by its number; "part-<number>" unless told."""
        self.completing(*members)
        self.assign(members, plan)
        return list(members)

    def group(self, group_id: str = GROUP) -> ClassicGroup:
        """What the shard holds, live: for what no answer shows."""
        shard = self.inside.runtime.shard(self.inside.router.shard_key(group_id))
        group = shard.groups.get(group_id)
        assert isinstance(group, ClassicGroup)
        return group

    def describe(self, group_id: str = GROUP) -> Any:
        return self.told(group_pb2.DescribeGroupsRequest(group_ids=[group_id])).groups[0]

    def state(self, group_id: str = GROUP) -> str:
        return str(self.describe(group_id).group_state)

    def generation(self, group_id: str = GROUP) -> int:
        return int(self.describe(group_id).generation_id)

    def member_ids(self, group_id: str = GROUP) -> list[str]:
        return [member.member_id for member in self.describe(group_id).members]

    def size(self, group_id: str = GROUP) -> int:
        return len(self.member_ids(group_id))

    def timers(self) -> dict[str, int]:
        """How many timers of groups are armed, by what they end."""
        kinds = self.inside.runtime.timers.by_kind()
        return {kind: count for kind, count in kinds.items() if kind in ("session", "join", "sync") and count}


@dataclass
class Member:
    """One client."""

    room: ClassicVerbs
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
        reply = self.room.call(request)
        reply.on_settled(self._on_joined)
        return reply

    def join_as_new(self) -> Pending[Any]:
        """JoinGroup as somebody new: in two steps, where the server wants it so."""
        reply = self.join(member_id="")
        self.room.settle()
        if reply.is_settled and code(reply.result()) is ErrorCode.MEMBER_ID_REQUIRED:
            reply = self.join()
            self.room.settle()
        return reply

    def asked_for_id(self) -> str:
        """The first of two steps."""
        reply = self.join(member_id="")
        self.room.settle()
        assert code(reply.result()) is ErrorCode.MEMBER_ID_REQUIRED
        return self.member_id

    def joins(self, *, member_id: str | None = None) -> Any:
        """The answer of a JoinGroup that waits for nobody."""
        reply = self.join(member_id=member_id)
        self.room.settle()
        return reply.result()

    def joining(self, *, member_id: str | None = None) -> Pending[Any]:
        """A JoinGroup that is parked."""
        reply = self.join(member_id=member_id)
        self.room.settle()
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
        return self.room.call(group_pb2.SyncGroupRequest(**{**said, **fields}, assignments=parts))

    def syncs(self, plan: Mapping[str, bytes] | None = None, **fields: Any) -> Any:
        """The answer of a SyncGroup that waits for nobody."""
        reply = self.sync(plan, **fields)
        self.room.settle()
        return reply.result()

    def syncing(self) -> Pending[Any]:
        """A SyncGroup that is parked."""
        reply = self.sync()
        self.room.settle()
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
        return self.room.call(group_pb2.HeartbeatRequest(**{**said, **fields}, max_wait_ms=max_wait_ms))

    def beats(self, **fields: Any) -> ErrorCode:
        """What a heartbeat is answered."""
        reply = self.heartbeat(**fields)
        self.room.settle()
        return code(reply.result())

    def leaves(self) -> ErrorCode:
        """What a LeaveGroup of the member is answered."""
        (answer,) = self.room.leave(self.leaving, group_id=self.group_id)
        return answer

    @property
    def leaving(self) -> group_pb2.LeavingMember:
        return group_pb2.LeavingMember(member_id=self.member_id, group_instance_id=self.instance_id)
