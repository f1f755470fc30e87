"""A. Service checks, routing, recovery."""

from __future__ import annotations

from typing import Any

from coordinator_api.v1 import group_pb2, transaction_pb2
from coordinator_protocol.errors import ErrorCode
from coordinator_protocol.hashing import java_string_hash, shard_of
from coordinator_runtime.ports import CallContext
from coordinator_server.addresses import NodeAddress
from coordinator_server.grpc_front.wire.transactions.servicer import TransactionServicer
from tests.conformance.groups.cases import case
from tests.harness.classic_members import DELAY_MS
from tests.harness.group_world import classic_world
from tests.harness.groups import GROUP, OK, code
from tests.harness.world import World


@case(1, differs="nothing listens before the server has started; one that stops answers as the row has it")
def test_a_server_that_stops_answers_in_the_body() -> None:
    world = classic_world()
    member = world.classic.member()
    world.inside.runtime.fail(OSError("disk gone"))
    answers = [
        member.joins(),
        member.syncs(),
        member.heartbeat().result(),
        world.call(group_pb2.LeaveGroupRequest(group_id=GROUP)).result(),
    ]
    assert {code(answer) for answer in answers} == {ErrorCode.COORDINATOR_NOT_AVAILABLE}


@case(2)
def test_a_group_needs_an_id() -> None:
    """Null and empty are the same on our wire."""
    world = classic_world()
    nameless = world.classic.member(group_id="", member_id="m")
    joined = nameless.joins()
    assert (code(joined), joined.member_id) == (ErrorCode.INVALID_GROUP_ID, "m")
    assert code(nameless.syncs()) is nameless.beats() is ErrorCode.INVALID_GROUP_ID


@case(3)
def test_session_timeouts_have_bounds() -> None:
    world = classic_world(session_timeout_ms_min=6_000, session_timeout_ms_max=1_800_000)
    answers = [
        code(world.classic.member(session_timeout_ms=asked_ms).joins())
        for asked_ms in (5_999, 1_800_001, 6_000, 1_800_000)
    ]
    refused, accepted = ErrorCode.INVALID_SESSION_TIMEOUT, ErrorCode.MEMBER_ID_REQUIRED
    assert answers == [refused, refused, accepted, accepted]


HASHES_TO_MINIMUM = "polygenelubricants"


def found_shards(world: World, group_ids: list[str]) -> list[Any]:
    inside = world.inside
    servicer = TransactionServicer(inside.transactions, inside.reader, NodeAddress(1, "here", 7070))
    request = transaction_pb2.FindCoordinatorRequest(
        key_type=transaction_pb2.COORDINATOR_KEY_TYPE_GROUP, keys=group_ids
    )
    return list(servicer.FindCoordinator(request, CallContext()).result().coordinators)


@case(5, differs="an empty group id is refused here as everywhere: ids have 1 to 1,000 bytes (design 6)")
def test_a_group_lives_where_its_hash_says() -> None:
    assert java_string_hash(HASHES_TO_MINIMUM) == -(2**31)
    group_ids = ["a", HASHES_TO_MINIMUM, *(f"group-{number}" for number in range(1_000))]
    world = classic_world()
    for _life in range(2):
        empty, *found = found_shards(world, ["", *group_ids])
        assert code(empty) is ErrorCode.INVALID_GROUP_ID
        assert [each.coordinator_shard for each in found] == [
            world.inside.groups.router.shard_key(each).number for each in group_ids
        ]
        assert found[1].coordinator_shard == 0
        world.restart()
    assert [shard_of(each, 50) for each in ("a", HASHES_TO_MINIMUM)] == [97 % 50, 0]


@case(6)
def test_calls_that_wait_are_answered_when_their_shard_leaves() -> None:
    world = classic_world()
    leader, follower = world.classic.completing(world.classic.member(), world.classic.member())
    joining = world.classic.member(group_id="c").join_as_new()
    syncing, waiting = follower.syncing(), leader.heartbeat(max_wait_ms=4_000)
    written = world.shelf.store.version()
    for group_id in ("c", GROUP):
        world.unload(f"group:{group_id}")
    answers = [code(reply.result()) for reply in (joining, syncing)]
    assert answers == [ErrorCode.NOT_COORDINATOR] * 2
    world.pass_time(5)
    assert code(waiting.result()) is ErrorCode.NOT_COORDINATOR
    assert world.shelf.store.version() == written


@case(7)
def test_after_a_restart_every_member_has_a_whole_session() -> None:
    world = classic_world()
    members = world.classic.stable(*(world.classic.member(session_timeout_ms=4_000) for _ in range(2)))
    world.pass_time(3_000)
    before = world.classic.describe()
    world.restart()
    assert (world.classic.describe(), before.group_state) == (before, "Stable")
    world.pass_time(3_999)
    assert world.classic.size() == 2
    world.pass_time(1)
    assert (world.classic.state(), world.classic.generation(), world.classic.size()) == ("Empty", 2, 0)
    assert {member.beats() for member in members} == {ErrorCode.UNKNOWN_MEMBER_ID}


@case(9)
def test_an_id_that_was_only_given_away_is_forgotten_by_a_restart() -> None:
    world = classic_world()
    member = world.classic.member()
    member.asked_for_id()
    world.restart()
    assert code(member.joins()) is ErrorCode.UNKNOWN_MEMBER_ID
    assert code(member.joins(member_id="")) is ErrorCode.MEMBER_ID_REQUIRED


@case(10)
def test_a_rebalance_that_was_not_completed_is_forgotten_by_a_restart() -> None:
    world = classic_world()
    leader, follower = world.classic.stable(world.classic.member(), world.classic.member())
    leader.join()
    follower.join()
    world.settle()
    assert (world.classic.state(), leader.generation) == ("CompletingRebalance", 2)
    world.restart()
    assert [leader.beats(generation_id=1), leader.beats()] == [OK, ErrorCode.ILLEGAL_GENERATION]
    assert (world.classic.state(), world.classic.generation()) == ("Stable", 1)


@case(11)
def test_a_call_that_is_given_up_costs_no_membership() -> None:
    world = classic_world()
    leader, follower = world.classic.stable(world.classic.member(), world.classic.member())
    first = leader.joining()
    first.cancel()
    world.settle()
    assert (world.classic.size(), world.classic.state()) == (2, "PreparingRebalance")
    again = leader.joining()
    world.pass_time(DELAY_MS)
    follower.joins()
    assert code(again.result()) is OK
    assert sorted(world.classic.member_ids()) == sorted((leader.member_id, follower.member_id))
