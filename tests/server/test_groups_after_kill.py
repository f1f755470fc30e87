"""A real server is killed (SIGKILL) with groups in it: its answers to their members still hold when it is back, and the
members go on from where they were."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest

from coordinator_api.v1 import common_pb2, group_pb2, group_pb2_grpc
from coordinator_client import Admin
from coordinator_protocol.errors import ErrorCode
from tests.harness.patience import DEADLINE_SECONDS
from tests.harness.server_process import ServerProcess

pytestmark = [pytest.mark.slow, pytest.mark.kill, pytest.mark.usefixtures("every_combination")]

TOPIC, PARTITIONS = "t", 4
ROUNDS_MAX = 20
OK = ErrorCode.NONE


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path / "data") as running:
        with Admin(running.address) as admin:
            admin.create_topic(TOPIC, PARTITIONS)
        yield running


class Wire:
    """Calls of members, on one channel."""

    def __init__(self, server: ServerProcess) -> None:
        self._channel = grpc.insecure_channel(server.address)
        self._stub = group_pb2_grpc.GroupServiceStub(self._channel)

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        self._channel.close()

    def ask(self, method: str, **fields: Any) -> Any:
        return self.start(method, **fields).result()

    def start(self, method: str, **fields: Any) -> Any:
        request = getattr(group_pb2, f"{method}Request")(**fields)
        return getattr(self._stub, method).future(request, timeout=DEADLINE_SECONDS)

    def commit(self, group_id: str, epoch: int, member_id: str, offset: int) -> ErrorCode:
        offsets = [group_pb2.PartitionOffset(partition=0, committed_offset=offset)]
        (result,) = self.ask(
            "OffsetCommit",
            group_id=group_id,
            generation_id_or_member_epoch=epoch,
            member_id=member_id,
            topics=[group_pb2.TopicOffsets(topic=TOPIC, partitions=offsets)],
        ).results
        return ErrorCode(result.error_code)

    def committed(self, group_id: str) -> int:
        fetched = self.ask("OffsetFetch", groups=[group_pb2.OffsetFetchGroup(group_id=group_id)])
        (offset,) = fetched.groups[0].offsets
        return int(offset.committed_offset)

    # Classic members

    def join(self, group_id: str, member_id: str = "") -> Any:
        """A JoinGroup under way, after the one that asks for an id."""
        said = {
            "group_id": group_id,
            "session_timeout_ms": 45_000,
            "rebalance_timeout_ms": 60_000,
            "protocol_type": "consumer",
            "protocols": [group_pb2.JoinGroupProtocol(name="range", metadata=b"subscription")],
        }
        known = member_id or self.ask("JoinGroup", **said).member_id
        return self.start("JoinGroup", **said, member_id=known)

    def sync(self, group_id: str, joined: Any, plan: dict[str, bytes]) -> Any:
        parts = [group_pb2.SyncGroupAssignment(member_id=member, assignment=part) for member, part in plan.items()]
        generation_id, member_id = joined.generation_id, joined.member_id
        return self.start(
            "SyncGroup", group_id=group_id, generation_id=generation_id, member_id=member_id, assignments=parts
        )

    def heartbeat(self, group_id: str, joined: Any) -> ErrorCode:
        generation_id, member_id = joined.generation_id, joined.member_id
        beat = self.ask("Heartbeat", group_id=group_id, generation_id=generation_id, member_id=member_id)
        return ErrorCode(beat.error_code)

    def classic_group(self, group_id: str) -> list[Any]:
        """Two members that form a Stable group; what their JoinGroups were answered."""
        joined = [joining.result() for joining in [self.join(group_id), self.join(group_id)]]
        plan = {each.member_id: each.member_id.encode() for each in joined}
        synced = [self.sync(group_id, each, plan if each.leader == each.member_id else {}) for each in joined]
        assert [each.result().assignment for each in synced] == [*plan.values()]
        return joined

    def described(self, group_id: str) -> tuple[str, int, dict[str, bytes]]:
        """State, generation, and assignments by member."""
        (group,) = self.ask("DescribeGroups", group_ids=[group_id]).groups
        members = {member.member_id: member.assignment for member in group.members}
        return group.group_state, group.generation_id, members


@dataclass
class Consumer:
    """A member of a consumer group, which owns at once what it is assigned."""

    group_id: str
    member_id: str
    epoch: int = 0
    owned: frozenset[int] = frozenset()

    def beat(self, wire: Wire, max_wait_ms: int = 0) -> Any:
        topics = [common_pb2.TopicPartitions(topic=TOPIC, partitions=sorted(self.owned))] if self.owned else []
        fields: dict[str, Any] = {"topic_partitions": group_pb2.PartitionSet(topics=topics)}
        if self.epoch == 0:
            fields |= {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": group_pb2.TopicNames(names=[TOPIC])}
        response = wire.ask(
            "ConsumerGroupHeartbeat",
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=self.epoch,
            max_wait_ms=max_wait_ms,
            **fields,
        )
        assert response.error_code == OK, response.error_message
        self.epoch = response.member_epoch
        if response.HasField("assignment"):
            self.owned = frozenset(number for topic in response.assignment.topics for number in topic.partitions)
        return response


def consumer_group(wire: Wire, group_id: str) -> list[Consumer]:
    """Two consumers that share the topic."""
    members = [Consumer(group_id, f"{group_id}-{number}") for number in range(2)]
    for _round in range(ROUNDS_MAX):
        for member in members:
            member.beat(wire, max_wait_ms=100)
        first, second = (member.owned for member in members)
        if len(first) == len(second) == PARTITIONS // 2 and not first & second:
            return members
    raise AssertionError(f"no balance after {ROUNDS_MAX} rounds: {members}")


def consumer_state(wire: Wire, group_id: str) -> Any:
    (group,) = wire.ask("ConsumerGroupDescribe", group_ids=[group_id]).groups
    return group


def test_members_of_both_kinds_go_on_without_a_rebalance(server: ServerProcess) -> None:
    with Wire(server) as wire:
        classic = wire.classic_group("classic")
        consumers = consumer_group(wire, "consumer")
        assert wire.commit("classic", classic[0].generation_id, classic[0].member_id, 5) is OK
        assert wire.commit("consumer", consumers[0].epoch, consumers[0].member_id, 7) is OK
        before = wire.described("classic"), consumer_state(wire, "consumer")
    server.kill()
    server.start()
    with Wire(server) as wire:
        assert [wire.heartbeat("classic", each) for each in classic] == [OK, OK]
        for member in consumers:
            known = member.epoch, member.owned
            member.beat(wire)
            assert (member.epoch, member.owned) == known
        assert (wire.described("classic"), consumer_state(wire, "consumer")) == before
        assert (wire.committed("classic"), wire.committed("consumer")) == (5, 7)
        assert wire.commit("classic", classic[1].generation_id, classic[1].member_id, 6) is OK
        assert wire.commit("consumer", consumers[1].epoch, consumers[1].member_id, 8) is OK


@pytest.mark.long
def test_a_rebalance_under_way_is_forgotten_and_the_last_generation_stands(server: ServerProcess) -> None:
    with Wire(server) as wire:
        settled = wire.classic_group("g")
        before = wire.described("g")
        joining = [wire.join("g", each.member_id) for each in settled]
        again = [each.result() for each in joining]
        assert {each.generation_id for each in again} == {settled[0].generation_id + 1}
    server.kill()
    server.start()
    with Wire(server) as wire:
        assert wire.described("g") == before
        assert [wire.heartbeat("g", each) for each in again] == [ErrorCode.ILLEGAL_GENERATION] * 2
        assert [wire.heartbeat("g", each) for each in settled] == [OK, OK]
