"""A Transact that brings acknowledgements: a worker's results and its acknowledgements in one request.

Source: spec groups 6.5; design 6 (`Transact`).
"""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from msgspec.structs import replace

from coordinator_api.v1 import transaction_pb2
from coordinator_protocol.errors import ErrorClass, ErrorCode, Refused
from coordinator_protocol.marker import Outcome
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import CallContext, Committer, GroupAcknowledgements
from coordinator_server.grpc_front.wire.transactions.servicer import transact_refused
from tests.groups.share_partitions.transactional_worker import (
    ACCEPT,
    ALL_HELD,
    GROUP,
    ID,
    OK,
    REJECT,
    RELEASE,
    Worker,
    code_of,
)
from tests.harness.calls import called, partition_name
from tests.harness.group_world import group_world
from txn_coordinator.config import TwoPhase
from txn_coordinator.requests import Transact

NUMBERS = iter(range(1, 1_000))


@pytest.fixture(params=[*product(TwoPhase, (True, False))], ids=lambda each: f"{each[0].value}-{each[1]}")
def worker(request: pytest.FixtureRequest) -> Worker:
    two_phase, lane = request.param
    return Worker(group_world(topics={"t": 2, "results": 1}, two_phase=two_phase, lane=lane))


@pytest.fixture
def plain() -> Worker:
    return Worker(group_world(topics={"t": 2, "results": 1}))


def brought(worker: Worker, *partitions: str, first: int = 0, types: tuple[int, ...] = (ACCEPT,)) -> Any:
    """Acknowledgements of the first two records of each partition."""
    committer = Committer(worker.member.member_id, worker.member.epoch)
    acks = tuple((partition_name(each), ((first, first + 1, types),)) for each in partitions)
    return GroupAcknowledgements(GROUP, committer, acks)


def transacting(
    worker: Worker, *shares: GroupAcknowledgements, outcome: Outcome = Outcome.COMMIT, number: int | None = None
) -> Pending[Any]:
    """The answer to a Transact with these acknowledgements and one result."""
    batch = worker.world._client_batch("results-0", ["r"], 0, worker.world.clock.wall_ms())
    context = CallContext(request_id=(next(NUMBERS) if number is None else number).to_bytes(16, "big"))
    command = Transact(ID, worker.identity, outcome, [batch], (), shares)
    return called(lambda: worker.world.inside.transactions.transact(command, context))


def results(worker: Worker) -> list[str]:
    return worker.world.read("results-0").values


@pytest.mark.parametrize(
    ("outcome", "after", "written"),
    [(Outcome.COMMIT, ["2: w1 w1", "2: w1 w1"], ["r"]), (Outcome.ABORT, ["0: .1 .1 w1 w1"] * 2, [])],
    ids=["commit", "abort"],
)
def test_results_and_acknowledgements_have_one_outcome(
    worker: Worker, outcome: Outcome, after: list[str], written: list[str]
) -> None:
    asked = transacting(worker, brought(worker, "t-0", "t-1"), outcome=outcome)
    worker.world.settle()
    assert (code_of(asked), worker.pictures, results(worker)) == (OK, after, written)
    assert not worker.is_open
    worker.check()


def test_a_rejection_is_settled_too(worker: Worker) -> None:
    transacting(worker, brought(worker, "t-0", types=(ACCEPT, REJECT)))
    worker.world.settle()
    assert worker.pictures == ["2: w1 w1", ALL_HELD]


@pytest.mark.parametrize("kept", range(4))
def test_no_crash_parts_results_and_acknowledgements(worker: Worker, kept: int) -> None:
    transacting(worker, brought(worker, "t-0"))
    worker.world.seal()
    for _step in range(kept):
        worker.world.flush(1)
    worker.world.crash()
    worker.world.settle()
    worker.world.pass_time(60_001)
    is_done = worker.pictures[0].startswith("2:")
    assert results(worker) == (["r"] if is_done else [])
    worker.check()


def test_a_repetition_has_the_same_answer_and_changes_nothing(worker: Worker) -> None:
    first = transacting(worker, brought(worker, "t-0"), number=7)
    worker.world.settle()
    again = transacting(worker, brought(worker, "t-0"), number=7)
    worker.world.settle()
    assert again.result() == first.result()
    assert (worker.pictures[0], results(worker)) == ("2: w1 w1", ["r"])


REFUSED: dict[str, tuple[Any, ErrorCode]] = {
    "a lost lock": (lambda worker: brought(worker, "t-0", first=10), ErrorCode.INVALID_REQUEST),
    "no type of a transaction": (lambda worker: brought(worker, "t-0", types=(RELEASE,)), ErrorCode.INVALID_REQUEST),
    "no partition": (lambda worker: brought(worker, "t-9"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    "a stale epoch": (
        lambda worker: replace(brought(worker, "t-0"), committer=Committer("w", worker.member.epoch - 1)),
        ErrorCode.ILLEGAL_GENERATION,
    ),
    "no member": (
        lambda worker: replace(brought(worker, "t-0"), committer=Committer("x", 1)),
        ErrorCode.UNKNOWN_MEMBER_ID,
    ),
    "no group": (lambda worker: replace(brought(worker, "t-0"), group_id="none"), ErrorCode.GROUP_ID_NOT_FOUND),
    "no name of a group": (lambda worker: replace(brought(worker, "t-0"), group_id=""), ErrorCode.INVALID_GROUP_ID),
}


@pytest.mark.parametrize("why", REFUSED)
def test_a_refusal_leaves_nothing_and_names_the_group(plain: Worker, why: str) -> None:
    make, code = REFUSED[why]
    share = make(plain)
    asked = transacting(plain, share)
    plain.world.settle()
    assert (code_of(asked), plain.pictures, results(plain)) == (code, [ALL_HELD, ALL_HELD], [])
    with pytest.raises(Refused, match=f"group '{share.group_id}'"):
        asked.result()
    assert not plain.is_open
    plain.check()


def test_a_group_is_named_once(plain: Worker) -> None:
    asked = transacting(plain, brought(plain, "t-0"), brought(plain, "t-1"))
    assert code_of(asked) is ErrorCode.INVALID_REQUEST


def test_a_record_that_another_member_holds_by_now_aborts_the_transaction(plain: Worker) -> None:
    plain.world.pass_time(30_001)
    asked = transacting(plain, brought(plain, "t-0"))
    plain.world.settle()
    assert code_of(asked) is ErrorCode.INVALID_RECORD_STATE
    request = transaction_pb2.TransactRequest(shares=[transaction_pb2.TransactShares(group_id=GROUP)])
    response = transact_refused(request, asked.error or ValueError())
    (told,) = response.group_results
    assert (told.group_id, told.error_code, told.error_class) == (GROUP, response.error_code, ErrorClass.ABORT)
