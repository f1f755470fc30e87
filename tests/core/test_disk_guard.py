"""The disk guard: with too little room nothing grows the log, and everything else goes on; with room, all does."""

from __future__ import annotations

import pytest

from coordinator_protocol.errors import CoordinatorError, ErrorClass, ErrorCode, Refused, error_class
from coordinator_protocol.marker import Outcome
from coordinator_protocol.methods import Method
from coordinator_runtime.disk_guard import PAUSE_MS, DiskGuard
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import CallContext
from coordinator_server.grpc_front.wire.edge import throttle_ms_of
from partition_log.requests import ProduceResult
from tests.harness.inside import WorldOptions
from tests.harness.world import TransactContents, World
from txn_coordinator.config import TwoPhase
from txn_coordinator.state import Identity

LEAST = 800
NO_PRODUCER = Identity(-1, -1)
CALLER = CallContext(client_id="test", request_id=b"r" * 16)
BATCH = TransactContents(batches=[("t-0", ["x"], 0)])


@pytest.fixture(params=list(TwoPhase))
def world(request: pytest.FixtureRequest) -> World:
    world = World(WorldOptions(two_phase=request.param))
    world.inside.core.checks.disk = DiskGuard(LEAST)
    world.create_topic("t", 2)
    return world


def free(world: World, free_bytes: int) -> None:
    world.inside.core.checks.disk.looked(free_bytes)


def answered(world: World, reply: Pending[ProduceResult]) -> ProduceResult:
    world.settle()
    return reply.result()


def is_refused(error: CoordinatorError | None) -> bool:
    if error is None:
        return False
    assert isinstance(error, Refused), "nothing was written"
    assert error.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert "the disk of the server is nearly full" in error.message
    return True


def opened(world: World) -> Identity:
    """A producer with a transaction in t-0."""
    initialised = world.init("a")
    world.settle()
    identity = initialised.result()
    assert answered(world, world.produce("a", identity, "t-0", ["before"], sequence=0)).error is None
    return identity


@pytest.mark.parametrize("method", [Method.PRODUCE, Method.TRANSACT])
def test_the_code_says_come_again(method: Method) -> None:
    assert error_class(method, ErrorCode.THROTTLING_QUOTA_EXCEEDED) is ErrorClass.RETRY


def test_plain_records_are_refused_below_the_least_and_taken_at_it(world: World) -> None:
    free(world, LEAST)
    assert answered(world, world.produce(None, NO_PRODUCER, "t-0", ["x"], sequence=-1)).error is None
    free(world, LEAST - 1)
    assert is_refused(answered(world, world.produce(None, NO_PRODUCER, "t-0", ["y"], sequence=-1)).error)
    assert world.read("t-0").values == ["x"]
    assert world.inside.core.checks.disk.refused_count == 1


def test_a_refused_batch_takes_no_partition_into_the_transaction(world: World) -> None:
    identity = opened(world)
    free(world, 0)
    assert is_refused(answered(world, world.produce("a", identity, "t-1", ["x"], sequence=0)).error)
    assert len(world.describe("a").partitions) == 1
    assert world.read("t-1", is_raw=True).entries == ()


@pytest.mark.parametrize("outcome", list(Outcome))
def test_an_open_transaction_ends(world: World, outcome: Outcome) -> None:
    identity = opened(world)
    free(world, 0)
    ended = world.end("a", identity, outcome)
    world.settle()
    ended.result()
    assert world.read("t-0").values == (["before"] if outcome is Outcome.COMMIT else [])
    assert not world.read("t-0").last_stable_offset < world.read("t-0").high_watermark


def test_a_transaction_times_out_and_a_new_instance_takes_over(world: World) -> None:
    opened(world)
    free(world, 0)
    world.tick(120_000)
    world.settle()
    assert world.read("t-0").last_stable_offset == world.read("t-0").high_watermark
    again = world.init("a")
    world.settle()
    assert again.result().producer_epoch > 0


def test_offsets_are_committed_in_transactions_and_topics_are_deleted(world: World) -> None:
    identity = opened(world)
    free(world, 0)
    offset = world.commit_offset("a", identity, "g", 7)
    world.settle()
    offset.result()
    ended = world.end("a", identity, Outcome.COMMIT)
    world.settle()
    ended.result()
    deleted = world.delete_topic("t")
    world.settle()
    assert deleted.result().error is None


def test_a_transact_with_records_is_refused_and_one_with_offsets_only_is_not(world: World) -> None:
    initialised = world.init("a")
    world.settle()
    identity = initialised.result()
    free(world, 0)
    refused = world.transact("a", identity, BATCH, Outcome.COMMIT, CALLER)
    world.settle()
    with pytest.raises(Refused) as refusal:
        refused.result()
    assert is_refused(refusal.value)
    assert throttle_ms_of(refusal.value) == PAUSE_MS
    assert world.read("t-0", is_raw=True).entries == ()
    contents = TransactContents(offsets=[("g", "t-0", 1)])
    taken = world.transact("a", identity, contents, Outcome.COMMIT, CALLER)
    world.settle()
    assert taken.result()


def test_what_is_in_the_log_already_is_answered_as_ever(world: World) -> None:
    """A lost answer is not made unknown for the lack of room: a repetition writes nothing."""
    identity = opened(world)
    initialised = world.init("b")
    world.settle()
    whole = initialised.result()
    ended = world.transact("b", whole, TransactContents(batches=[("t-1", ["x"], 0)]), Outcome.COMMIT, CALLER)
    world.settle()
    free(world, 0)
    assert answered(world, world.produce("a", identity, "t-0", ["before"], sequence=0)).is_duplicate
    again = world.transact("b", whole, TransactContents(batches=[("t-1", ["x"], 0)]), Outcome.COMMIT, CALLER)
    world.settle()
    assert again.result() == ended.result()


@pytest.mark.parametrize("partition", ["t-0", "t-1"])
def test_who_is_fenced_hears_that_and_not_to_come_again(world: World, partition: str) -> None:
    """From the partition that knows it, and from the coordinator where the partition has never heard of it."""
    old = opened(world)
    initialised = world.init("a")
    world.settle()
    initialised.result()
    free(world, 0)
    error = answered(world, world.produce("a", old, partition, ["late"], sequence=0)).error
    assert error is not None
    assert error.code is not ErrorCode.THROTTLING_QUOTA_EXCEEDED


def test_records_are_taken_again_without_a_restart(world: World) -> None:
    identity = opened(world)
    free(world, 0)
    assert is_refused(answered(world, world.produce("a", identity, "t-0", ["x"], sequence=1)).error)
    free(world, 2 * LEAST)
    assert answered(world, world.produce("a", identity, "t-0", ["x"], sequence=1)).error is None
    ended = world.end("a", identity, Outcome.COMMIT)
    world.settle()
    ended.result()
    assert world.read("t-0").values == ["before", "x"]
    world.check_replay()


def test_room_that_comes_and_goes_at_the_limit_is_told_once() -> None:
    guard = DiskGuard(LEAST)
    changes = []
    guard.on_change = lambda told: changes.append(told.refusal is not None)
    for free_bytes in (LEAST, LEAST - 1, LEAST, LEAST - 1, LEAST * 9 // 8 - 1, LEAST - 1):
        guard.looked(free_bytes)
    assert changes == [True]
    guard.looked(LEAST * 9 // 8)
    assert changes == [True, False]
    guard.looked(LEAST)
    assert changes == [True, False]


@pytest.mark.parametrize("free_mib", [511, 540, 575])
def test_a_refusal_says_how_much_must_be_free_before_records_are_taken_again(free_mib: int) -> None:
    guard = DiskGuard(512 << 20)
    guard.looked(0)
    guard.looked(free_mib << 20)
    assert f"{free_mib} MiB are free, and no records are taken until 576 MiB are" in guard.refuse().message
    guard.looked(576 << 20)
    assert guard.refusal is None


def test_a_guard_that_is_off_takes_everything() -> None:
    guard = DiskGuard(0)
    guard.looked(0)
    assert guard.refusal is None
