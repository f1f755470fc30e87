"""Limits on a principal's holdings, asked of a whole server: one more is refused and nothing is done, and a release
makes room."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest
from grpc import aio

from coordinator_api.v1 import (
    common_pb2,
    log_pb2,
    log_pb2_grpc,
    session_pb2,
    transaction_pb2,
    transaction_pb2_grpc,
)
from coordinator_client.transport.grpc_transport import SESSION_PATH
from coordinator_protocol.errors import ErrorClass, ErrorCode
from coordinator_runtime.ports import Level
from coordinator_server.traffic.quotas.budgets import LEVEL_PAUSE_MS
from tests.harness.in_process import InProcessServer, in_process_server
from tests.harness.patience import looks

pytestmark = pytest.mark.usefixtures("every_combination")

_Init = transaction_pb2.InitProducerIdRequest
OVER = ErrorCode.THROTTLING_QUOTA_EXCEEDED


@asynccontextmanager
async def bounded(tmp_path: Path, **levels: int) -> AsyncIterator[InProcessServer]:
    """A server without authentication, with a file of limits for all callers together."""
    file = tmp_path / "quotas.toml"
    values = "\n".join(f"{name} = {value}" for name, value in levels.items())
    file.write_text(f'[[quotas]]\nprincipal = "User:ANONYMOUS"\n{values}\n')
    async with in_process_server(quotas_file=file) as served:
        yield served


class Producers:
    """Producers by unary calls."""

    def __init__(self, served: InProcessServer) -> None:
        self._stub = transaction_pb2_grpc.TransactionServiceStub(served.channel)
        self._identities: dict[str, tuple[int, int]] = {}

    async def init(self, name: str) -> transaction_pb2.InitProducerIdResponse:
        answer = await self._stub.InitProducerId(_Init(transactional_id=name, transaction_timeout_ms=60_000))
        if not answer.error_code:
            self._identities[name] = (answer.producer_id, answer.producer_epoch)
        return answer

    def _who(self, name: str) -> dict[str, object]:
        producer_id, epoch = self._identities[name]
        return {"transactional_id": name, "producer_id": producer_id, "producer_epoch": epoch}

    async def begin(self, name: str) -> transaction_pb2.AddOffsetsToTxnResponse:
        return await self._stub.AddOffsetsToTxn(
            transaction_pb2.AddOffsetsToTxnRequest(group_id="g", **self._who(name))  # type: ignore[arg-type]
        )

    async def end(self, name: str) -> None:
        answer = await self._stub.EndTxn(
            transaction_pb2.EndTxnRequest(committed=False, **self._who(name))  # type: ignore[arg-type]
        )
        assert not answer.error_code
        self._identities[name] = (answer.producer_id, answer.producer_epoch)


async def test_open_transactions(tmp_path: Path) -> None:
    async with bounded(tmp_path, open_transactions=2) as served:
        producers = Producers(served)
        for name in ("a", "b", "c"):
            assert not (await producers.init(name)).error_code
        assert not (await producers.begin("a")).error_code
        assert not (await producers.begin("b")).error_code
        refused = await producers.begin("c")
        assert (refused.error_code, refused.error_class, refused.throttle_ms) == (
            OVER,
            ErrorClass.RETRY,
            LEVEL_PAUSE_MS,
        )
        assert "holds 2 of open_transactions, and may hold 2" in refused.error_message
        assert not (await producers.begin("a")).error_code, "one that is open goes on"
        await producers.end("a")
        for _ in looks("the room of a transaction that has ended"):
            if not (await producers.begin("c")).error_code:
                break
        assert served.parts.readings()["txn_quota_refusals_total"]["open_transactions",] >= 1


async def test_transactional_ids(tmp_path: Path) -> None:
    async with bounded(tmp_path, transactional_ids=2) as served:
        producers = Producers(served)
        assert [(await producers.init(name)).error_code for name in ("a", "b", "a", "c")] == [0, 0, 0, OVER]


async def test_topics(tmp_path: Path) -> None:
    async with bounded(tmp_path, topics=2) as served:
        log = log_pb2_grpc.LogServiceStub(served.channel)

        async def create(*names: str) -> list[int]:
            wanted = [log_pb2.NewTopic(name=name, partition_count=1) for name in names]
            return [
                each.error_code for each in (await log.CreateTopics(log_pb2.CreateTopicsRequest(topics=wanted))).results
            ]

        assert await create("a", "b", "c") == [0, 0, OVER]
        await log.DeleteTopics(log_pb2.DeleteTopicsRequest(topics=[log_pb2.TopicName(name="a")]))
        assert await create("c", "d") == [0, OVER]


async def test_snapshots(tmp_path: Path) -> None:
    async with bounded(tmp_path, snapshots=1) as served:
        log = log_pb2_grpc.LogServiceStub(served.channel)
        await log.CreateTopics(log_pb2.CreateTopicsRequest(topics=[log_pb2.NewTopic(name="t", partition_count=1)]))
        topics = [common_pb2.TopicPartitions(topic="t", partitions=[0])]
        request = log_pb2.TakeSnapshotRequest(topics=topics, lease_ms=60_000)
        held = await log.TakeSnapshot(request)
        assert not held.error_code
        assert (await log.TakeSnapshot(request)).error_code == OVER
        assert not (await log.TakeSnapshot(log_pb2.TakeSnapshotRequest(topics=topics))).error_code, "no lease"
        await log.ReleaseSnapshot(log_pb2.ReleaseSnapshotRequest(snapshot_id=held.snapshot_id))
        assert not (await log.TakeSnapshot(request)).error_code


async def test_sessions(tmp_path: Path) -> None:
    async with bounded(tmp_path, sessions=1) as served:

        def open_session() -> aio.StreamStreamCall[session_pb2.SessionRequest, session_pb2.SessionResponse]:
            return served.channel.stream_stream(
                SESSION_PATH,
                request_serializer=session_pb2.SessionRequest.SerializeToString,
                response_deserializer=session_pb2.SessionResponse.FromString,
            )()

        first = open_session()
        assert (await first.read()).HasField("hello")
        with pytest.raises(aio.AioRpcError) as refused:
            await open_session().read()
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "holds 1 of sessions" in (refused.value.details() or "")
        first.cancel()
        for _ in looks("the room of a session that has ended"):
            another = open_session()
            try:
                await another.read()
                break
            except aio.AioRpcError:
                continue


async def test_a_pause_comes_with_answers_of_the_fast_path_too(tmp_path: Path) -> None:
    async with bounded(tmp_path, requests_per_second=1, produce_bytes_per_second=1) as served:
        producers = Producers(served)
        assert (await producers.init("a")).throttle_ms == 0
        refused = [await producers.init("b") for _ in range(3)]
        assert {each.error_code for each in refused[1:]} <= {0, OVER}
        assert all(each.throttle_ms > 0 for each in refused)
        assert served.parts.readings()["txn_quota_throttles_total"]["requests_per_second",] >= 1


def test_levels_are_all_tried_here() -> None:
    assert set(Level) - {Level.CALLS, Level.LONG_POLLS, Level.GROUP_WAITS, Level.CONNECTIONS} == {
        Level.OPEN_TRANSACTIONS,
        Level.TRANSACTIONAL_IDS,
        Level.TOPICS,
        Level.SNAPSHOTS,
        Level.SESSIONS,
    }
