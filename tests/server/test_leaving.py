"""Callers that leave while they wait: nothing of them stays, neither a place among the calls under way nor memory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import product

import pytest

from coordinator_api.v1 import group_pb2, group_pb2_grpc, log_pb2, log_pb2_grpc, session_pb2, session_pb2_grpc
from coordinator_server.build import SERVICES
from tests.harness.garbage import nothing_left_to_the_collector
from tests.harness.in_process import InProcessServer, in_process_server
from tests.harness.patience import DEADLINE_SECONDS, until

pytestmark = pytest.mark.usefixtures("transport")


@pytest.fixture
async def server() -> AsyncIterator[InProcessServer]:
    async with in_process_server() as running:
        yield running


async def test_a_member_that_leaves_while_it_waits_for_the_others_gives_its_place_back(server: InProcessServer) -> None:
    stub = group_pb2_grpc.GroupServiceStub(server.channel)
    request = group_pb2.JoinGroupRequest(
        group_id="g",
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        protocol_type="consumer",
        protocols=[group_pb2.JoinGroupProtocol(name="range")],
    )
    request.member_id = (await stub.JoinGroup(request, timeout=DEADLINE_SECONDS)).member_id
    gatekeeper = server.parts.gatekeeper
    for _time in range(3):
        joining = stub.JoinGroup(request, timeout=DEADLINE_SECONDS)
        await until(lambda: gatekeeper.unanswered_calls == 1)
        joining.cancel()
        await until(lambda: gatekeeper.unanswered_calls == 0)


async def test_a_session_that_ends_while_a_call_of_it_waits_leaves_nothing_to_the_collector(
    server: InProcessServer,
) -> None:
    log = log_pb2_grpc.LogServiceStub(server.channel)
    topics = log_pb2.CreateTopicsRequest(topics=[log_pb2.NewTopic(name="t", partition_count=1)])
    await log.CreateTopics(topics, timeout=DEADLINE_SECONDS)
    stub = session_pb2_grpc.SessionServiceStub(server.channel)
    with nothing_left_to_the_collector():
        session = stub.Session()
        assert (await session.read()).hello.calls_in_flight_max
        await session.write(session_pb2.SessionRequest(calls=[_fetch(1, "nowhere"), _fetch(2, "t")]))
        (answer,) = (await session.read()).answers
        assert answer.correlation_id == 1
        await until(lambda: server.parts.gatekeeper.unanswered_calls == 1)
        session.cancel()
        await until(lambda: server.parts.gatekeeper.unanswered_calls == 0)
        del session, answer


async def test_calls_that_are_refused_leave_nothing_to_the_collector(server: InProcessServer) -> None:
    # Nearly all are refused, whole or in a part of them.
    calls = [
        session_pb2.SessionCall(correlation_id=number, method=method, body=body)
        for number, (method, body) in enumerate(product(_methods(), (b"", b"\x12\0", b"\x32\0")))
    ]
    stub = session_pb2_grpc.SessionServiceStub(server.channel)
    session = stub.Session()
    await session.read()
    with nothing_left_to_the_collector():
        await session.write(session_pb2.SessionRequest(calls=calls))
        answered = 0
        while answered < len(calls):
            answered += len((await session.read()).answers)
    session.cancel()


def _methods() -> list[str]:
    return [f"/{service.full_name}/{method.name}" for service in SERVICES for method in service.methods]


def _fetch(correlation_id: int, topic: str) -> session_pb2.SessionCall:
    request = log_pb2.FetchRequest(max_wait_ms=600_000, partitions=[log_pb2.FetchPartition(topic=topic)])
    return session_pb2.SessionCall(
        correlation_id=correlation_id,
        method="/coordinator_api.v1.LogService/Fetch",
        body=request.SerializeToString(),
        timeout_ms=600_000,
    )
