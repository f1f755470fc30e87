"""A task that fails aborts what it wrote, and nothing else: its batch goes on with the other members, and no reader
waits for it."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator_protocol.errors import ErrorCode
from coordinator_protocol.marker import Outcome
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import CallContext
from tests.harness.calls import called
from tests.harness.sinks import Task
from tests.harness.world import World
from tests.sinks.world import sink_world
from txn_coordinator.config import TwoPhase


def ask_to_leave(world: World, task: Task, outcome: Outcome = Outcome.ABORT) -> Pending[Any]:
    return called(lambda: world.end(task.transactional_id, task.identity, outcome, CallContext()))


def leave(world: World, task: Task) -> None:
    world.sinks.answer(ask_to_leave(world, task))
    world.sinks.settle()


@pytest.fixture(params=list(TwoPhase))
def world(request: pytest.FixtureRequest) -> World:
    return sink_world(two_phase=request.param)


@pytest.mark.parametrize("is_sealed", [False, True])
def test_readers_go_on_behind_a_member_that_left_before_its_batch_is_decided(world: World, *, is_sealed: bool) -> None:
    failed = world.sinks.member(0)
    assert world.sinks.write(failed, "t-0", "failed") is None
    if is_sealed:
        world.sinks.seal(failed)
    plain = world.sinks.answer(world.init_plain())
    world.sinks.answer(world.produce(None, plain, "t-0", ["others"], sequence=0))
    assert world.sinks.seen("t-0") == []

    leave(world, failed)

    assert world.sinks.seen("t-0") == ["others"]
    assert world.sinks.describe().members == []
    assert world.sinks.members_in_memory() == 0


def test_the_other_members_of_the_batch_commit_without_it(world: World) -> None:
    failed, sibling = world.sinks.member(0), world.sinks.written(0, "sibling")
    assert world.sinks.write(failed, "t-0", "failed") is None
    leave(world, failed)
    again = world.sinks.written(0, "again")

    world.sinks.commit(0, sibling, again)

    assert world.sinks.seen("t-0") == ["sibling", "again"]


def test_a_member_that_left_writes_no_more_and_cannot_be_committed(world: World) -> None:
    failed, sibling = world.sinks.written(0, "failed"), world.sinks.written(0, "sibling")
    leave(world, failed)

    assert world.sinks.write(failed, "t-0", "late") is ErrorCode.INVALID_PRODUCER_EPOCH
    assert world.sinks.refusal(world.sinks.ask_seal(failed)) is ErrorCode.PRODUCER_FENCED
    assert world.sinks.refusal(world.sinks.ask_commit(0, [failed, sibling])) is ErrorCode.TRANSACTION_ABORTABLE
    assert world.sinks.seen() == []
    world.sinks.commit(0, sibling)
    assert world.sinks.seen("t-0") == ["sibling"]


def test_a_member_that_leaves_twice_or_too_late_is_refused(world: World) -> None:
    failed, chosen = world.sinks.written(0, "failed"), world.sinks.written(0, "chosen")
    leave(world, failed)
    assert world.sinks.refusal(ask_to_leave(world, failed)) is ErrorCode.PRODUCER_FENCED

    decided = world.sinks.ask_commit(0, [chosen])
    late = ask_to_leave(world, chosen)

    assert world.sinks.refusal(late) is ErrorCode.PRODUCER_FENCED, "the decision stands, carried out or not"
    world.sinks.answer(decided)
    world.sinks.settle()
    assert world.sinks.refusal(ask_to_leave(world, chosen)) is ErrorCode.PRODUCER_FENCED
    assert world.sinks.seen("t-0") == ["chosen"]


def test_a_member_leaves_with_its_own_identity_and_never_commits_by_itself(world: World) -> None:
    task = world.sinks.written(0, "a")
    strange = Task(task.transactional_id, task.identity._replace(producer_id=task.identity.producer_id + 1))
    assert world.sinks.refusal(ask_to_leave(world, strange)) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert world.sinks.refusal(ask_to_leave(world, task, Outcome.COMMIT)) is ErrorCode.INVALID_REQUEST
    world.sinks.commit(0, task)
    assert world.sinks.seen("t-0") == ["a"]
