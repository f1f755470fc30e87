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
from tests.sinks.room import SinkRoom, Task
from txn_coordinator.config import TwoPhase


def ask_to_leave(room: SinkRoom, task: Task, outcome: Outcome = Outcome.ABORT) -> Pending[Any]:
    return called(lambda: room.world.end(task.transactional_id, task.identity, outcome, CallContext()))


def leave(room: SinkRoom, task: Task) -> None:
    room.answer(ask_to_leave(room, task))
    room.settle()


@pytest.fixture(params=list(TwoPhase))
def room(request: pytest.FixtureRequest) -> SinkRoom:
    return SinkRoom(two_phase=request.param)


@pytest.mark.parametrize("is_sealed", [False, True])
def test_readers_go_on_behind_a_member_that_left_before_its_batch_is_decided(
    room: SinkRoom, *, is_sealed: bool
) -> None:
    failed = room.member(0)
    assert room.write(failed, "t-0", "failed") is None
    if is_sealed:
        room.seal(failed)
    plain = room.answer(room.world.init_plain())
    room.answer(room.world.produce(None, plain, "t-0", ["others"], sequence=0))
    assert room.seen("t-0") == []

    leave(room, failed)

    assert room.seen("t-0") == ["others"]
    assert room.describe().members == []
    assert room.members_in_memory() == 0


def test_the_other_members_of_the_batch_commit_without_it(room: SinkRoom) -> None:
    failed, sibling = room.member(0), room.written(0, "sibling")
    assert room.write(failed, "t-0", "failed") is None
    leave(room, failed)
    again = room.written(0, "again")

    room.commit(0, sibling, again)

    assert room.seen("t-0") == ["sibling", "again"]


def test_a_member_that_left_writes_no_more_and_cannot_be_committed(room: SinkRoom) -> None:
    failed, sibling = room.written(0, "failed"), room.written(0, "sibling")
    leave(room, failed)

    assert room.write(failed, "t-0", "late") is ErrorCode.INVALID_PRODUCER_EPOCH
    assert room.refusal(room.ask_seal(failed)) is ErrorCode.PRODUCER_FENCED
    assert room.refusal(room.ask_commit(0, [failed, sibling])) is ErrorCode.TRANSACTION_ABORTABLE
    assert room.seen() == []
    room.commit(0, sibling)
    assert room.seen("t-0") == ["sibling"]


def test_whoever_leaves_twice_or_too_late_is_told_that_it_is_over(room: SinkRoom) -> None:
    failed, chosen = room.written(0, "failed"), room.written(0, "chosen")
    leave(room, failed)
    assert room.refusal(ask_to_leave(room, failed)) is ErrorCode.PRODUCER_FENCED

    decided = room.ask_commit(0, [chosen])
    late = ask_to_leave(room, chosen)

    assert room.refusal(late) is ErrorCode.PRODUCER_FENCED, "the decision stands, carried out or not"
    room.answer(decided)
    room.settle()
    assert room.refusal(ask_to_leave(room, chosen)) is ErrorCode.PRODUCER_FENCED
    assert room.seen("t-0") == ["chosen"]


def test_a_member_leaves_with_its_own_identity_and_never_commits_by_itself(room: SinkRoom) -> None:
    task = room.written(0, "a")
    strange = Task(task.transactional_id, task.identity._replace(producer_id=task.identity.producer_id + 1))
    assert room.refusal(ask_to_leave(room, strange)) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert room.refusal(ask_to_leave(room, task, Outcome.COMMIT)) is ErrorCode.INVALID_REQUEST
    room.commit(0, task)
    assert room.seen("t-0") == ["a"]
