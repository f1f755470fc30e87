"""The whole server in one loop: no answer before the disk, no neighbour harmed, everybody answered at the end."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator

import pytest

from coordinator_api.v1 import common_pb2, log_pb2, log_pb2_grpc, transaction_pb2, transaction_pb2_grpc
from coordinator_protocol.errors import ErrorClass, ErrorCode
from coordinator_runtime.commit_groups import CommitThread
from tests.harness.in_process import InProcessServer, in_process_server
from tests.harness.patience import DEADLINE_SECONDS, TRANSACTION_TIMEOUT_MS, until

pytestmark = pytest.mark.usefixtures("transport")


@pytest.fixture
async def server() -> AsyncIterator[InProcessServer]:
    async with in_process_server() as running:
        yield running


class Calls:
    """InitProducerId for many ids over the wire."""

    def __init__(self, server: InProcessServer) -> None:
        self._server = server
        self._stub = transaction_pb2_grpc.TransactionServiceStub(server.channel)
        self.started: list[asyncio.Future[transaction_pb2.InitProducerIdResponse]] = []

    def init(self, transactional_id: str) -> None:
        request = transaction_pb2.InitProducerIdRequest(
            transactional_id=transactional_id, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS
        )
        call = self._stub.InitProducerId(request, timeout=DEADLINE_SECONDS)
        self.started.append(asyncio.ensure_future(_answer_of(call)))

    async def arrived(self) -> None:
        """Return once every call waits inside for its answer."""
        await until(lambda: self._server.parts.gatekeeper.unanswered_calls == len(self.started))


async def _answer_of(call: object) -> transaction_pb2.InitProducerIdResponse:
    return await call  # type: ignore[misc]


async def test_no_answer_before_the_flush(server: InProcessServer) -> None:
    held = server.store.hold_sync()
    calls = Calls(server)
    for number in range(3):
        calls.init(f"id-{number}")
    await calls.arrived()
    assert not any(call.done() for call in calls.started)
    held.release()
    answers = await asyncio.gather(*calls.started)
    assert [answer.error_code for answer in answers] == [0, 0, 0]


async def test_a_caller_that_gives_up_while_its_batch_is_flushed_harms_no_neighbour(server: InProcessServer) -> None:
    held = server.store.hold_sync()
    calls = Calls(server)
    for number in range(3):
        calls.init(f"id-{number}")
    await calls.arrived()
    calls.started[1].cancel()
    await until(calls.started[1].done)
    held.release()
    assert (await calls.started[0]).error_code == 0
    assert (await calls.started[2]).error_code == 0
    # The staged change goes on without its caller: the id exists.
    stub = transaction_pb2_grpc.TransactionServiceStub(server.channel)
    described = await stub.DescribeTransactions(
        transaction_pb2.DescribeTransactionsRequest(transactional_ids=["id-1"]), timeout=DEADLINE_SECONDS
    )
    assert described.transactions[0].state == "Empty"


async def test_the_disk_begins_with_the_next_group_before_the_last_one_is_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answered_when_begun: list[list[bool]] = []
    waiting: list[asyncio.Future[transaction_pb2.InitProducerIdResponse]] = []

    def let_begin(thread: CommitThread) -> None:
        wait_for(thread)
        answered_when_begun.append([call.done() for call in waiting])

    wait_for = CommitThread.let_begin
    monkeypatch.setattr(CommitThread, "let_begin", let_begin)
    async with in_process_server() as server:
        calls = Calls(server)
        held = server.store.hold_sync()
        calls.init("a")
        await asyncio.to_thread(held.wait_until_arrived)
        calls.init("b")
        await calls.arrived()
        waiting += calls.started
        answered_when_begun.clear()
        held.release()
        await asyncio.gather(*calls.started)
    assert answered_when_begun[0] == [False, False]


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
async def test_a_failed_flush_answers_that_the_outcome_is_unknown(server: InProcessServer, number: int) -> None:
    held = server.store.hold_sync()
    calls = Calls(server)
    for name in ("a", "b"):
        calls.init(name)
    await calls.arrived()
    server.store.fail_next_sync(OSError(number, "the disk"))
    held.release()
    for answer in await asyncio.gather(*calls.started):
        assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT
        assert answer.error_class == ErrorClass.UNKNOWN_OUTCOME
    assert len(server.failures) == 1
    assert "the disk" in str(server.failures[0])

    late = Calls(server)
    late.init("c")
    assert (await late.started[0]).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_beyond_the_bound_the_answer_is_to_come_again_and_the_rest_is_served() -> None:
    async with in_process_server(calls_in_work_max=10, reserved_calls=5) as server:
        held = server.store.hold_sync()
        calls = Calls(server)
        for number in range(30):
            calls.init(f"id-{number}")
        await until(lambda: sum(call.done() for call in calls.started) == 20)
        assert server.parts.gatekeeper.unanswered_calls == 10
        held.release()
        answers = await asyncio.gather(*calls.started)
    assert sorted(answer.error_code for answer in answers) == [0] * 10 + [ErrorCode.THROTTLING_QUOTA_EXCEEDED] * 20
    assert all(answer.throttle_ms > 0 for answer in answers if answer.error_code != 0)


async def test_a_reader_that_waits_is_answered_when_the_server_stops(server: InProcessServer) -> None:
    log = log_pb2_grpc.LogServiceStub(server.channel)
    await log.CreateTopics(
        log_pb2.CreateTopicsRequest(topics=[log_pb2.NewTopic(name="t", partition_count=1)]), timeout=DEADLINE_SECONDS
    )
    fetch = log.Fetch(
        log_pb2.FetchRequest(max_wait_ms=600_000, partitions=[log_pb2.FetchPartition(topic="t")]),
        timeout=DEADLINE_SECONDS,
    )
    waiting = asyncio.ensure_future(_answer_of(fetch))
    await until(lambda: server.parts.gatekeeper.unanswered_calls == 1)
    server.parts.gatekeeper.close()
    server.parts.gatekeeper.answer_unanswered()
    answer = await waiting
    assert (answer.error_code, answer.error_class) == (
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        common_pb2.ERROR_CLASS_REFRESH,
    )


async def test_draining_waits_for_the_disk(server: InProcessServer) -> None:
    held = server.store.hold_sync()
    calls = Calls(server)
    calls.init("a")
    await calls.arrived()
    draining = asyncio.ensure_future(server.parts.driver.drain())
    await asyncio.sleep(0)
    assert not draining.done()
    held.release()
    await draining
    assert (await calls.started[0]).error_code == 0


async def test_a_defect_between_two_operations_stops_the_server_instead_of_being_passed_over(
    server: InProcessServer,
) -> None:
    def break_down(_shards: object) -> None:
        raise KeyError("ours")

    server.parts.core.runtime.on_durable_change(break_down)
    calls = Calls(server)
    calls.init("a")
    assert (await calls.started[0]).error_code == 0
    assert [type(failure) for failure in server.failures] == [KeyError]
    calls.init("b")
    assert (await calls.started[1]).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
