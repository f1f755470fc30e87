"""A kind of group is added by its folder and one line of registration.

A *queue* stands for a kind that is still to come: one value with a list of members, one record, its bytes, and what it
owes after a load. Nothing else of the group coordinator knows of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import cast

import pytest
from msgspec import Struct

from coordinator_api.v1 import group_pb2
from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_runtime.decision import ArmTimer, Decision, Effect, Operation, Record, ShardKey, Turn
from coordinator_runtime.ports import Committer
from coordinator_runtime.rows import EncodedRecord
from group_coordinator.codec import CLASSIC_GROUP
from group_coordinator.registry import PARTS, GroupPart
from group_coordinator.shard import GroupShard, Replays, ShardPart
from group_coordinator.state import GroupKind, PartitionKey
from tests.harness.classic_members import protocols
from tests.harness.group_world import group_world
from tests.harness.world import World

QUEUE_GROUP = 200
"""Record type of queues."""


class Kind(StrEnum):
    QUEUE = "queue"


QUEUE_KIND = cast("GroupKind", Kind.QUEUE)


class Queue(Struct, frozen=True):
    """Implements `group_coordinator.state.Group`."""

    group_id: str
    members: tuple[str, ...]

    kind = QUEUE_KIND
    protocol_type = "queue"
    outlives_members = False

    @property
    def state_name(self) -> str:
        return "Waiting" if self.members else "Empty"

    live_state_name = state_name

    @property
    def is_empty(self) -> bool:
        return not self.members

    def check_commit(self, committer: Committer, partitions: Sequence[PartitionKey], *, is_transactional: bool) -> None:
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, "queues commit no offsets")

    def check_fetch(self, committer: Committer) -> None: ...

    def check_offset_delete(self) -> None: ...

    def is_subscribed_to(self, topic: str) -> bool:
        return False

    def retention_base_ms(self, topic: str, committed_ms: int) -> int | None:
        return committed_ms

    def tombstones(self) -> tuple[object, ...]:
        return (QueueForgotten(self.group_id),)

    def removal_effects(self) -> tuple[Effect, ...]:
        return ()


class QueueChanged(Struct, frozen=True):
    queue: Queue


class QueueForgotten(Struct, frozen=True):
    group_id: str


class Queues:
    """Implements `group_coordinator.shard.PartState`."""

    def __init__(self, shard: GroupShard) -> None:
        self._shard = shard

    def replays(self) -> Replays:
        return {QueueChanged: self._change, QueueForgotten: self._forget}

    def _change(self, record: QueueChanged) -> None:
        self._shard.groups.put(record.queue.group_id, record.queue)
        self._shard.standings.look(record.queue.group_id)

    def _forget(self, record: QueueForgotten) -> None:
        self._shard.groups.remove(record.group_id)
        self._shard.standings.look(record.group_id)


def put(shard: ShardKey, *members: str) -> Operation:
    record = Record(shard, QueueChanged(Queue("q", members)))
    return Operation(shard, lambda _shard, _turn: Decision(records=(record,)))


def decide_owed(shard: GroupShard, _turn: Turn) -> Decision:
    """After a load every queue is emptied after a second."""
    queues = [group for group in shard.groups.values() if isinstance(group, Queue)]
    return Decision(effects=tuple(ArmTimer(("queue", each.group_id), 1_000, put(shard.key)) for each in queues))


def encode(record: QueueChanged) -> EncodedRecord:
    return EncodedRecord(QUEUE_GROUP, record.queue.group_id.encode(), ",".join(record.queue.members).encode())


def encode_forgotten(record: QueueForgotten) -> EncodedRecord:
    return EncodedRecord(QUEUE_GROUP, record.group_id.encode(), None)


def decode(key: bytes, value: bytes) -> QueueChanged:
    return QueueChanged(Queue(key.decode(), tuple(filter(None, value.decode().split(",")))))


QUEUE = GroupPart(
    in_shard=ShardPart(make=Queues, owed=decide_owed, kind=QUEUE_KIND),
    encoders={QueueChanged: encode, QueueForgotten: encode_forgotten},
    decoders={QUEUE_GROUP: decode},
    timers=("queue",),
    state_names=("Waiting", "Empty"),
)


@pytest.fixture
def world() -> World:
    """A server with one more kind of group, and a queue `q` with a member."""
    world = group_world(group_parts=(*PARTS, QUEUE))
    world.inside.runtime.write(put(world.inside.groups.router.shard_key("q"), "m"))
    world.settle()
    return world


def listed(world: World) -> list[tuple[str, str, str]]:
    groups = world.ask(group_pb2.ListGroupsRequest()).groups
    return [(group.group_id, group.group_type, group.group_state) for group in groups]


def test_a_registered_kind_is_listed_stored_and_loaded(world: World) -> None:
    assert listed(world) == [("q", "queue", "Waiting")]
    world.restart()
    assert listed(world) == [("q", "queue", "Waiting")]


def test_what_a_registered_kind_owes_after_a_load_is_done(world: World) -> None:
    world.restart()
    world.pass_time(1_000)
    assert listed(world) == [("q", "queue", "Empty")]


def test_groups_of_a_registered_kind_are_deleted_like_all_others(world: World) -> None:
    request = group_pb2.DeleteGroupsRequest(group_ids=["q"])
    (refused,) = world.ask(request).groups
    assert refused.error_code == ErrorCode.NON_EMPTY_GROUP
    world.inside.runtime.write(put(world.inside.groups.router.shard_key("q")))
    (deleted,) = world.ask(request).groups
    assert (deleted.error_code, listed(world)) == (ErrorCode.NONE, [])


def test_its_own_rules_say_who_commits_offsets(world: World) -> None:
    offset = group_pb2.PartitionOffset(partition=0, committed_offset=1)
    topics = [group_pb2.TopicOffsets(topic="foo", partitions=[offset])]
    answer = world.ask(group_pb2.OffsetCommitRequest(group_id="q", topics=topics))
    assert answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_members_of_another_protocol_take_no_others_group(world: World) -> None:
    """Only an empty group changes its kind; one with members of a protocol that the caller does not speak stays."""
    join = group_pb2.JoinGroupRequest(
        group_id="q",
        session_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[group_pb2.JoinGroupProtocol(name=name, metadata=metadata) for name, metadata in protocols("range")],
        skip_member_id_required=True,
    )
    heartbeat = group_pb2.ConsumerGroupHeartbeatRequest(
        group_id="q",
        member_epoch=0,
        rebalance_timeout_ms=1_000,
        subscribed_topic_names=group_pb2.TopicNames(names=["foo"]),
        topic_partitions=group_pb2.PartitionSet(),
    )
    assert world.ask(join).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert world.ask(heartbeat).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert listed(world) == [("q", "queue", "Waiting")]
    world.inside.runtime.write(put(world.inside.groups.router.shard_key("q")))
    assert world.ask(heartbeat).error_code == ErrorCode.NONE
    assert [kind for _group_id, kind, _state in listed(world)] == ["consumer"]


def test_two_parts_cannot_claim_one_record_type() -> None:
    rival = GroupPart(in_shard=ShardPart(make=Queues), encoders={}, decoders={CLASSIC_GROUP: decode})
    with pytest.raises(AssertionError, match="one part"):
        group_world(group_parts=(*PARTS, rival))
