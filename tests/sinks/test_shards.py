"""A sink and its members are one shard's, whatever is asked, so that one decision can be on all of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from coordinator_protocol.errors import CoordinatorError, ErrorCode
from coordinator_protocol.marker import Outcome
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import CallContext
from tests.harness.calls import called
from tests.harness.sinks import SINK
from tests.harness.world import World
from tests.sinks.world import sink_world
from txn_coordinator.sinks.rules import check_name

MEMBERS = 20
AWAY = {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR}


def answer_to(world: World, ask: Callable[[], Any]) -> object:
    """Return the answer, or the code of the refusal, of the call or of its only item."""
    try:
        asked = ask()
        world.settle()
        answer = asked.result() if isinstance(asked, Pending) else asked
    except CoordinatorError as error:
        return error.code
    refusal = getattr(answer, "error", None)
    return answer if refusal is None else refusal.code


def test_every_call_on_a_member_goes_to_the_shard_of_its_sink() -> None:
    world = sink_world(shard_count=16)
    tasks = [world.sinks.member(0) for _ in range(MEMBERS)]
    assert len({task.transactional_id for task in tasks}) == MEMBERS
    world.unload(SINK)
    world.settle()
    for task in tasks:
        calls: dict[str, Callable[[], Any]] = {
            "Produce": partial(world.produce, task.transactional_id, task.identity, "t-1", ["x"], sequence=0),
            "DescribeTransactions": partial(world.describe, task.transactional_id),
            "JoinBatch": partial(world.sinks.ask_join, 0),
            "SealMember": partial(world.sinks.ask_seal, task),
            "CommitBatch": partial(world.sinks.ask_commit, 0, [task]),
            "DescribeSinks": world.sinks.describe,
        }
        for method, ask in calls.items():
            assert answer_to(world, ask) in AWAY, method


def test_what_is_for_transactions_of_applications_takes_no_member() -> None:
    """A member commits by the decision on its batch alone."""
    world = sink_world()
    task = world.sinks.member(0)
    named = task.transactional_id, task.identity
    calls: dict[str, Callable[[], Any]] = {
        "InitProducerId": partial(called, partial(world.init, task.transactional_id)),
        "AddPartitionsToTxn": partial(called, partial(world.add, *named, ["t-0"], CallContext())),
        "TxnOffsetCommit": partial(called, partial(world.commit_offset, *named, "g", 1, CallContext())),
        "PrepareTransaction": partial(called, partial(world.prepare, *named, CallContext())),
        "EndTxn": partial(called, partial(world.end, *named, Outcome.COMMIT)),
    }
    for method, ask in calls.items():
        assert answer_to(world, ask) is ErrorCode.INVALID_REQUEST, method
    assert world.sinks.write(task, "t-0", "a") is None
    world.sinks.seal(task)
    world.sinks.commit(0, task)
    assert world.sinks.seen() == ["a"]


def test_a_sink_without_a_name_is_not_called_a_transactional_id() -> None:
    with pytest.raises(CoordinatorError, match="the name of the sink is empty"):
        check_name("")
