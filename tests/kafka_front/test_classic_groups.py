"""Members of classic groups over Kafka's protocol, in every version of its calls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_runtime.pending import Pending
from coordinator_server.kafka_front.apis import ApiKey
from coordinator_server.kafka_front.messages.heartbeat_request import HeartbeatRequest
from coordinator_server.kafka_front.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from coordinator_server.kafka_front.messages.join_group_response import JoinGroupResponse
from coordinator_server.kafka_front.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from coordinator_server.kafka_front.messages.leave_group_response import LeaveGroupResponse
from coordinator_server.kafka_front.messages.sync_group_request import SyncGroupRequest, SyncGroupRequestAssignment
from coordinator_server.kafka_front.messages.sync_group_response import SyncGroupResponse
from tests.harness.classic_members import DELAY_MS
from tests.harness.group_world import classic_world
from tests.harness.kafka_caller import KafkaCaller
from tests.harness.world import World

RANGE = (JoinGroupRequestProtocol(name="range", metadata=b"foo"),)
SESSION_MS, REBALANCE_MS = 10_000, 60_000


@dataclass
class Joiner:
    """One client of a group, with all its calls of one version."""

    world: World
    version: int = 9
    instance_id: str | None = None
    member_id: str = ""
    generation_id: int = -1

    def begin(self, key: ApiKey, version: int, request: Any) -> Pending[Any]:
        reply = KafkaCaller(self.world).begin(key, version, request)
        self.world.settle()
        return reply

    def join(self, **fields: Any) -> Pending[JoinGroupResponse]:
        said = {"rebalance_timeout_ms": REBALANCE_MS if self.version else -1, **fields}
        request = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=SESSION_MS,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocols=RANGE,
            **said,
        )
        joining = self.begin(ApiKey.JOIN_GROUP, self.version, request)
        joining.on_settled(self._joined)
        return joining

    def _joined(self, reply: Pending[JoinGroupResponse]) -> None:
        self.member_id, self.generation_id = reply.result().member_id, reply.result().generation_id

    def joins(self) -> JoinGroupResponse:
        """Join as a client does: from version 4 on with the id of the first refusal."""
        joining = self.join()
        if joining.is_settled and joining.result().error_code == ErrorCode.MEMBER_ID_REQUIRED:
            joining = self.join()
        self.world.pass_time(2 * DELAY_MS)
        assert joining.result().error_code == ErrorCode.NONE
        return joining.result()

    def sync(self, version: int = 5, **fields: Any) -> Pending[SyncGroupResponse]:
        named = {"protocol_type": "consumer", "protocol_name": "range"} if version >= 5 else {}
        said = {"group_id": "g", "generation_id": self.generation_id, "member_id": self.member_id}
        return self.begin(ApiKey.SYNC_GROUP, version, SyncGroupRequest(**{**said, **named, **fields}))

    def assigns(self, *parts: tuple[str, bytes], version: int = 5) -> SyncGroupResponse:
        assignments = tuple(SyncGroupRequestAssignment(member_id=each, assignment=part) for each, part in parts)
        return self.sync(version, assignments=assignments).result()

    def beats(self, version: int = 4) -> ErrorCode:
        request = HeartbeatRequest(group_id="g", generation_id=self.generation_id, member_id=self.member_id)
        return ErrorCode(self.begin(ApiKey.HEARTBEAT, version, request).result().error_code)

    def leave(self, version: int, *members: MemberIdentity) -> LeaveGroupResponse:
        request = LeaveGroupRequest(group_id="g", member_id="" if members else self.member_id, members=members)
        response: LeaveGroupResponse = self.begin(ApiKey.LEAVE_GROUP, version, request).result()
        return response


@pytest.fixture
def world() -> World:
    return classic_world()


@pytest.mark.parametrize("version", range(10))
def test_a_member_of_every_version_leads_a_group(world: World, version: int) -> None:
    member = Joiner(world, version)
    joined = member.joins()
    assert (joined.generation_id, joined.leader, joined.protocol_name) == (1, member.member_id, "range")
    assert joined.protocol_type == "consumer"
    assert [(each.member_id, each.metadata) for each in joined.members] == [(member.member_id, b"foo")]
    assert joined.skip_assignment is False


@pytest.mark.parametrize("version", range(10))
def test_a_new_member_first_gets_its_id_from_version_4_on(world: World, version: int) -> None:
    member = Joiner(world, version)
    joining = member.join()
    assert joining.is_settled is (version >= 4)
    if version >= 4:
        refused = joining.result()
        assert refused.error_code == ErrorCode.MEMBER_ID_REQUIRED
        assert refused.member_id.startswith("a-kafka-client-")
        assert (refused.generation_id, refused.leader, refused.members) == (-1, "", ())


@pytest.mark.parametrize(("version", "name"), [(0, ""), (6, ""), (7, None), (9, None)])
def test_a_refused_join_names_no_protocol(world: World, version: int, name: str | None) -> None:
    member = Joiner(world, version, member_id="unknown")
    refused = member.join().result()
    assert refused.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert (refused.protocol_name, refused.protocol_type) == (name, None)


def test_a_refused_join_repeats_the_member_id_where_kafka_does(world: World) -> None:
    """Kafka leaves it out if a consumer group refuses, or the coordinator cannot serve."""
    refused = Joiner(world, member_id="unknown").join().result()
    assert (refused.error_code, refused.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "unknown")
    world.consumers.stable(world.consumers.member())
    # What it subscribes to cannot be read.
    refused = Joiner(world, member_id="unknown").join().result()
    assert (refused.error_code, refused.member_id) == (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "")
    request = JoinGroupRequest(group_id="g", member_id="m")
    loading = Refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "loading")
    assert KafkaCaller(world).refused(ApiKey.JOIN_GROUP, 9, request, loading).member_id == ""


def test_a_join_of_version_0_waits_for_others_as_long_as_its_session(world: World) -> None:
    old, new = Joiner(world, 0), Joiner(world, 0)
    old.joins()
    old.assigns((old.member_id, b"all"))
    joining = new.join()
    for _beat in range(3):
        world.pass_time(SESSION_MS // 4)
        assert old.beats() is ErrorCode.REBALANCE_IN_PROGRESS
        assert not joining.is_settled
    world.pass_time(SESSION_MS // 4)
    assert joining.result().error_code == ErrorCode.NONE
    assert [each.member_id for each in joining.result().members] == [new.member_id]


def test_an_impossible_session_timeout_is_refused() -> None:
    refused = Joiner(classic_world(session_timeout_ms_min=SESSION_MS + 1)).join().result()
    assert refused.error_code == ErrorCode.INVALID_SESSION_TIMEOUT


@pytest.mark.parametrize(("version", "is_skipped"), [(8, False), (9, True)])
def test_a_static_leader_that_comes_back_skips_the_assignment(world: World, version: int, is_skipped: bool) -> None:
    first = Joiner(world, version, instance_id="i")
    first.joins()
    assert first.assigns((first.member_id, b"all")).assignment == b"all"
    again = Joiner(world, version, instance_id="i")
    joined = again.join().result()
    assert joined.error_code == ErrorCode.NONE
    assert joined.skip_assignment is is_skipped
    # A leader of an older client takes itself for a follower, and does not assign either.
    assert (joined.leader == again.member_id) is is_skipped
    assert again.sync().result().assignment == b"all"


@pytest.mark.parametrize("version", range(6))
def test_a_sync_of_every_version_waits_for_the_leader(world: World, version: int) -> None:
    leader, follower = Joiner(world, 3), Joiner(world, 3)
    joining = [leader.join(), follower.join()]
    world.pass_time(2 * DELAY_MS)
    assert [each.result().generation_id for each in joining] == [1, 1]
    waiting = follower.sync(version)
    assert not waiting.is_settled
    world.pass_time(SESSION_MS - 1)
    assert not waiting.is_settled
    led = leader.assigns((leader.member_id, b"a"), (follower.member_id, b"b"), version=version)
    assert (led.assignment, waiting.result().assignment) == (b"a", b"b")
    assert (led.protocol_type, led.protocol_name) == ("consumer", "range")


@pytest.mark.parametrize("named", [{"protocol_type": None}, {"protocol_name": None}, {"protocol_name": "sticky"}])
def test_a_sync_must_name_the_protocol_from_version_5_on(world: World, named: dict[str, str | None]) -> None:
    member = Joiner(world)
    member.joins()
    assert member.sync(5, **named).result().error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize("version", range(5))
def test_a_heartbeat_is_answered_at_once_in_every_version(world: World, version: int) -> None:
    member = Joiner(world)
    member.joins()
    member.assigns((member.member_id, b"all"))
    assert member.beats(version) is ErrorCode.NONE
    Joiner(world, 3).join()
    assert member.beats(version) is ErrorCode.REBALANCE_IN_PROGRESS
    assert Joiner(world, member_id="unknown").beats(version) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_without_heartbeats_is_removed(world: World) -> None:
    member = Joiner(world)
    member.joins()
    member.assigns((member.member_id, b"all"))
    world.pass_time(SESSION_MS)
    assert member.beats() is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", range(3))
def test_one_member_leaves_before_version_3(world: World, version: int) -> None:
    member = Joiner(world)
    member.joins()
    left = member.leave(version)
    assert (left.error_code, left.members) == (ErrorCode.NONE, ())
    assert member.leave(version).error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", [3, 4, 5])
def test_several_members_leave_from_version_3_on(world: World, version: int) -> None:
    member = Joiner(world, instance_id="i")
    member.joins()
    named = MemberIdentity(member_id="", group_instance_id="i", reason="rolling restart" if version == 5 else None)
    left = member.leave(version, named, MemberIdentity(member_id="unknown"))
    assert left.error_code == ErrorCode.NONE
    assert [(each.member_id, each.group_instance_id, each.error_code) for each in left.members] == [
        ("", "i", ErrorCode.NONE),
        ("unknown", None, ErrorCode.UNKNOWN_MEMBER_ID),
    ]


def test_a_caller_that_is_gone_is_no_member(world: World) -> None:
    joining = Joiner(world, 3).join()
    joining.cancel()
    world.settle()
    assert joining.is_settled
    other = Joiner(world, 3)
    assert len(other.joins().members) == 1


def test_members_of_both_doors_are_in_one_group(world: World) -> None:
    kafka, grpc = Joiner(world, 3), world.classic.member()
    joining = [kafka.join(), grpc.join_as_new()]
    world.pass_time(2 * DELAY_MS)
    assert [each.result().error_code for each in joining] == [0, 0]
    assert kafka.generation_id == grpc.generation == 1
    assert {each.member_id for each in joining[0].result().members} == {kafka.member_id, grpc.member_id}


def test_an_empty_group_id_is_refused_at_every_call(world: World) -> None:
    caller = KafkaCaller(world)
    for key, version, request in (
        (ApiKey.JOIN_GROUP, 9, JoinGroupRequest(session_timeout_ms=SESSION_MS, rebalance_timeout_ms=1)),
        (ApiKey.SYNC_GROUP, 4, SyncGroupRequest()),
        (ApiKey.HEARTBEAT, 4, HeartbeatRequest()),
        (ApiKey.LEAVE_GROUP, 2, LeaveGroupRequest()),
        (ApiKey.LEAVE_GROUP, 5, LeaveGroupRequest()),
    ):
        assert caller.call(key, version, request).error_code == ErrorCode.INVALID_GROUP_ID
