"""Markers are owed until they are there: no refusal ends the effort, and one stuck transaction holds up no other."""

from __future__ import annotations

from itertools import pairwise

import pytest

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.marker import Marker, Outcome
from coordinator_runtime.decision import Decision, Operation
from coordinator_runtime.participants import MarkerPort, ShareKey
from coordinator_runtime.ports import CallContext
from tests.harness.inside import WorldOptions
from tests.harness.world import World
from txn_coordinator.config import TwoPhase
from txn_coordinator.marker_sender import RETRY_MS_FIRST, RETRY_MS_MAX
from txn_coordinator.shard import TransactionShard
from txn_coordinator.state import Identity


class Stubborn:
    """Participants that refuse their marker a few times before they take it."""

    def __init__(self, markers: MarkerPort) -> None:
        self._markers = markers
        self.refusals: dict[int, int] = {}
        """Number of refusals left, by partition."""
        self.seen: list[tuple[int, int]] = []
        """(ordinal, csn) of every marker that was tried."""

    def partition_marker(self, ordinal: int, marker: Marker) -> Operation:
        operation = self._markers.partition_marker(ordinal, marker)
        self.seen.append((ordinal, marker.csn))
        if not self.refusals.get(ordinal):
            return operation
        self.refusals[ordinal] -= 1

        def refuse(_shard: object, _turn: object) -> Decision:
            raise Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, "another server has this partition")

        return Operation(operation.shard, refuse)

    def partition_seal(self, ordinal: int, producer_id: int, producer_epoch: int) -> Operation:
        return self._markers.partition_seal(ordinal, producer_id, producer_epoch)

    def group_marker(self, group: str, marker: Marker) -> Operation:
        return self._markers.group_marker(group, marker)

    def share_marker(self, share: ShareKey, marker: Marker) -> Operation:
        return self._markers.share_marker(share, marker)


@pytest.fixture
def world() -> World:
    world = World(WorldOptions(two_phase=TwoPhase.SPLIT))
    world.create_topic("t", 3)
    return world


@pytest.fixture
def stubborn(world: World) -> Stubborn:
    stubborn = Stubborn(world.inside.markers)
    world.inside.sender._markers = stubborn
    return stubborn


def commit(world: World, transactional_id: str, partitions: list[str]) -> Identity:
    """Open a transaction and decide it; its markers are staged."""
    identity = world.init(transactional_id)
    world.flush()
    world.add(transactional_id, identity.result(), partitions)
    world.flush()
    ended = world.end(transactional_id, identity.result(), Outcome.COMMIT)
    world.flush()
    return ended.result().next_identity


def state_of(world: World, transactional_id: str) -> str:
    return world.describe(transactional_id).state.api_name


def test_a_refused_marker_is_sent_again_and_the_others_are_not(world: World, stubborn: Stubborn) -> None:
    stubborn.refusals[1] = 2
    commit(world, "orders", ["t-0", "t-1", "t-2"])
    world.settle()
    assert state_of(world, "orders") == "PrepareCommit"
    assert world.inside.sender.waiting_partitions("orders", 1) == frozenset({1})
    world.tick(RETRY_MS_FIRST)
    world.settle()
    assert state_of(world, "orders") == "PrepareCommit"
    world.tick(2 * RETRY_MS_FIRST)
    world.settle()
    assert state_of(world, "orders") == "CompleteCommit"
    assert stubborn.seen == [(0, 1), (1, 1), (2, 1), (1, 1), (1, 1)]
    assert world.inside.sender.failed_markers.total() == 2
    assert world.inside.sender.waiting_markers == 0


def test_the_pause_doubles_once_a_round_up_to_its_limit(world: World, stubborn: Stubborn) -> None:
    stubborn.refusals.update({0: 12, 1: 12, 2: 12})
    commit(world, "orders", ["t-0", "t-1", "t-2"])
    world.settle()
    tried_at = [world.clock.monotonic_ms()]
    while state_of(world, "orders") != "CompleteCommit":
        deadline_ms = world.inside.runtime.timers.next_deadline_ms()
        assert deadline_ms is not None
        tries = len(stubborn.seen)
        world.tick(deadline_ms - world.clock.monotonic_ms())
        if len(stubborn.seen) > tries:
            assert len(stubborn.seen) == tries + 3, "a round sends each marker once"
            tried_at.append(world.clock.monotonic_ms())
        world.settle()
    pauses = [later - earlier for earlier, later in pairwise(tried_at)]
    assert pauses[:7] == [RETRY_MS_FIRST * 2**doubling for doubling in range(7)]
    assert pauses[7:] == [RETRY_MS_MAX] * 5


def test_a_stuck_transaction_holds_up_no_other(world: World, stubborn: Stubborn) -> None:
    stubborn.refusals[0] = 1_000
    commit(world, "stuck", ["t-0", "t-1"])
    commit(world, "free", ["t-1", "t-2"])
    world.settle()
    assert state_of(world, "free") == "CompleteCommit"
    assert state_of(world, "stuck") == "PrepareCommit"


def test_a_commit_of_nothing_completes_at_once(world: World) -> None:
    identity = world.init("orders")
    world.flush()
    world.end("orders", identity.result(), Outcome.ABORT)
    world.settle()
    assert state_of(world, "orders") == "CompleteAbort"


def test_complete_is_owed_as_the_markers_are(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It cannot be refused; if a bug of ours makes it fail once, the id is not stuck until the next restart."""
    original = TransactionShard.decide_complete
    failures = iter([ZeroDivisionError("our bug")])

    def decide_complete(shard: TransactionShard, *args: object) -> Decision:
        if (failure := next(failures, None)) is not None:
            raise failure
        return original(shard, *args)  # type: ignore[arg-type]  # passed on as they came

    monkeypatch.setattr(TransactionShard, "decide_complete", decide_complete)
    commit(world, "orders", ["t-0"])
    with pytest.raises(ZeroDivisionError):
        world.settle()
    world.inside.driver.defects.clear()
    world.settle()
    assert state_of(world, "orders") == "PrepareCommit"
    world.tick(RETRY_MS_FIRST)
    world.settle()
    assert state_of(world, "orders") == "CompleteCommit"


def test_describing_a_decided_transaction_shows_what_waits(world: World, stubborn: Stubborn) -> None:
    stubborn.refusals[1] = 1
    commit(world, "orders", ["t-0", "t-1"])
    assert waiting(world, "orders") == [0, 1]
    world.settle()
    assert waiting(world, "orders") == [1]
    world.tick(RETRY_MS_FIRST)
    world.settle()
    assert waiting(world, "orders") == []


def waiting(world: World, transactional_id: str) -> list[int]:
    """The partitions that DescribeTransactions tells."""
    (described,) = world.inside.reader.describe([transactional_id], CallContext()).result()
    return sorted(ref.partition for ref in described.partitions)
