"""Resources that one caller can take from the others: connections, open files, streams, memory. Counted, never
timed."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import grpc
import pytest
import structlog
from grpc import aio

from bench.processes import resident_mib
from bench.raw_http2 import ACK, SETTINGS, RawPeer, call, floods, frame
from coordinator_api.v1 import admin_pb2, admin_pb2_grpc, log_pb2, log_pb2_grpc, transaction_pb2
from coordinator_api.v1.transaction_pb2_grpc import TransactionServiceStub
from coordinator_protocol.limits import MEBI
from coordinator_runtime.clock import SystemClock
from coordinator_runtime.pending import Pending, settled
from coordinator_runtime.ports import CallContext
from coordinator_server.exits import ExitStatus
from coordinator_server.grpc_front.transport_choice import open_transport
from coordinator_server.grpc_front.transports import ServerTransport, TransportName, TransportOptions
from tests.harness.one_by_one import OneByOne
from tests.harness.patience import DEADLINE_SECONDS, looks, until
from tests.harness.server_process import ServerProcess
from tests.harness.transports import wanted_transport
from tests.server.test_grpc_transport import at_full_speed

HOST = "127.0.0.1"
UNARY = "/a.B/Unary"
LIMITS = "/coordinator_api.v1.AdminService/DescribeLimits"
FETCH = "/coordinator_api.v1.LogService/Fetch"
FLOOD_SECONDS = {TransportName.GRPC: 0.3, TransportName.NATIVE: DEADLINE_SECONDS}
"""Duration of a flood that is not ended. The compiled transport ends each."""

FLOODS_LAST_SECONDS = 2.0

GROWTH_MIB_MAX = 100
"""Memory left by readers that did not read, or by floods, once the server had a quiet second. Without limits one flood
took from 600 MiB to 2 GiB, and the next as much."""
FLOODED_GROWTH_MIB_MAX = {TransportName.GRPC: 900, TransportName.NATIVE: GROWTH_MIB_MAX}
"""Memory for all floods together. grpc.aio does not free what endless header blocks took."""

READERS, FETCHES = 20, 90
ANSWERS_GROWTH_MIB_MAX = 2 * 256 + 150
"""Room for unread answers (`answer_bytes_max`, twice), and the calls that ask for them."""


@asynccontextmanager
async def serving(options: TransportOptions) -> AsyncIterator[tuple[ServerTransport, int, list[CallContext]]]:
    at_full_speed()
    calls: list[CallContext] = []

    def handle(_method: str, _body: bytes, context: CallContext) -> Pending[bytes]:
        calls.append(context)
        return settled(b"")

    transport = open_transport(wanted_transport(), [], SystemClock(), options)
    port = transport.bind(HOST, 0)
    await transport.start(OneByOne(handle))
    try:
        yield transport, port, calls
    finally:
        await transport.stop(0)


async def answers(port: int) -> bool:
    """Return whether a new connection is served. A caller that is refused tries again; this one says so instead."""
    async with aio.insecure_channel(
        f"{HOST}:{port}", [("grpc.enable_retries", 0), ("grpc.use_local_subchannel_pool", 1)]
    ) as channel:
        call = channel.unary_unary(UNARY)(b"", timeout=DEADLINE_SECONDS)
        code = await call.code()
        assert code in {grpc.StatusCode.OK, grpc.StatusCode.UNAVAILABLE}
        return code is grpc.StatusCode.OK


async def test_a_connection_beyond_the_most_is_closed_and_one_that_leaves_makes_room(transport: TransportName) -> None:
    with structlog.testing.capture_logs() as lines:
        async with serving(TransportOptions(1 << 20, connections_max=5)) as (served, port, _):
            peers = [RawPeer(port) for _ in range(5)]
            numbers = served.numbers()
            await until(lambda: served.numbers().open_connections in {5, None})
            assert numbers.connections_max == 5
            for _ in range(3):
                assert not await answers(port)
            peers.pop().close()
            for _ in looks("the place that became free"):
                if await answers(port):
                    break
            for peer in peers:
                peer.close()
            abuses = served.numbers().abuses
    if transport is TransportName.NATIVE:
        assert abuses["connections"] >= 3
        (line,) = (line for line in lines if line["event"] == "harm")
        assert (line["kind"], line["details"]) == ("connections", HOST)


async def test_grpc_says_when_all_connections_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coordinator_server.grpc_front.grpc_transport._WATCH_SECONDS", 0.01)
    monkeypatch.setenv("TXN_TRANSPORT", TransportName.GRPC)
    with structlog.testing.capture_logs() as lines:
        async with serving(TransportOptions(1 << 20, connections_max=2)) as (served, port, _):
            if served.numbers().open_connections is None:
                pytest.skip("this system has no table of its connections")
            with RawPeer(port), RawPeer(port):
                await until(lambda: any(line["event"] == "harm" for line in lines))


@pytest.mark.usefixtures("transport")
async def test_a_connection_has_no_more_streams_than_it_may() -> None:
    held: list[Pending[bytes]] = []

    def handle(method: str, _body: bytes, _context: CallContext) -> Pending[bytes]:
        if method == UNARY:
            return settled(b"")
        held.append(Pending())
        return held[-1]

    transport = open_transport(wanted_transport(), [], SystemClock(), TransportOptions(1 << 20, streams_max=100))
    port = transport.bind(HOST, 0)
    await transport.start(OneByOne(handle))
    with RawPeer(port) as peer:
        # A session without notice of the limit may go beyond it; this one has it.
        peer.send(frame(SETTINGS, ACK, 0) + b"".join(call(2 * n + 1, "/a.B/Held", b"") for n in range(150)))
        await until(lambda: len(held) >= 100)
        for _ in range(5):
            assert await answers(port)
        assert len(held) == 100
    await transport.stop(0)


@pytest.mark.parametrize("kind", floods(UNARY))
async def test_a_flood_is_ended_or_held_back_while_others_are_served(kind: str, transport: TransportName) -> None:
    async with serving(TransportOptions(1 << 20)) as (_, port, _):
        with RawPeer(port) as peer:
            seconds = FLOOD_SECONDS[transport]
            flooding = asyncio.ensure_future(asyncio.to_thread(peer.flood, floods(UNARY)[kind], seconds))
            served_others = 0
            while not flooding.done():
                assert await answers(port)
                served_others += 1
            was_closed = await flooding
        assert served_others > 0
        assert was_closed or transport is TransportName.GRPC
        assert await answers(port)


@pytest.mark.parametrize(
    ("kind", "limits"),
    [
        ("window updates", {"control_frames"}),
        ("pings", {"control_frames"}),
        # On a busy machine it may come to the limit on refused calls first.
        ("streams without data", {"unfinished_calls", "refused_calls"}),
        ("calls that are not read", {"refused_calls"}),
        ("continuations", {"rules"}),
        ("small pieces", {"rules"}),
    ],
)
async def test_a_flood_that_was_ended_is_counted_and_told_once(
    kind: str, limits: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("txn_native_transport", reason="the compiled transport is not installed (make native)")
    monkeypatch.setenv("TXN_TRANSPORT", TransportName.NATIVE)
    with structlog.testing.capture_logs() as lines:
        async with serving(TransportOptions(1 << 20)) as (served, port, _):
            for _ in range(3):
                with RawPeer(port) as peer:
                    assert await asyncio.to_thread(peer.flood, floods(UNARY)[kind], DEADLINE_SECONDS)
            abuses = {name: count for name, count in served.numbers().abuses.items() if count}
            assert sum(abuses.values()) == 3, abuses
            assert abuses.keys() <= limits
            await until(lambda: served.numbers().open_connections == 0)
            assert await answers(port)
    assert sorted(line["kind"] for line in lines if line["event"] == "harm") == sorted(abuses)


async def test_a_kafka_client_that_connects_here_is_told_of_in_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("txn_native_transport", reason="the compiled transport is not installed (make native)")
    monkeypatch.setenv("TXN_TRANSPORT", TransportName.NATIVE)
    api_versions = bytes.fromhex("0000000e 0012 0000 00000001 0004") + b"java"
    with structlog.testing.capture_logs() as lines:
        async with serving(TransportOptions(1 << 20)) as (served, port, _):
            for _ in range(3):
                reader, writer = await asyncio.open_connection(HOST, port)
                writer.write(api_versions)
                # HTTP/2 begins with the settings of the server. Nothing follows them.
                settings = await reader.read()
                assert len(settings) == 9 + int.from_bytes(settings[:3], "big")
                writer.close()
            assert {name: count for name, count in served.numbers().abuses.items() if count} == {"kafka_client": 3}
            assert await answers(port)
    (line,) = (line for line in lines if line["event"] == "harm")
    assert line["kind"] == "kafka_client"
    assert "set kafka_listen" in line["advice"]


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.usefixtures("transport")
async def test_a_client_with_many_short_calls_is_no_flood() -> None:
    """For each answer gRPC's client opens two windows: that was once taken for a flood after some 8,000 calls."""
    async with (
        serving(TransportOptions(1 << 20)) as (served, port, _),
        aio.insecure_channel(f"{HOST}:{port}", [("grpc.enable_retries", 0)]) as channel,
    ):
        unary = channel.unary_unary(UNARY)

        async def calls_in_a_row() -> None:
            for _ in range(400):
                assert await unary(b"", timeout=DEADLINE_SECONDS) == b""

        await asyncio.gather(*(calls_in_a_row() for _ in range(50)))
        assert not any(served.numbers().abuses.values())


def commits(channel: grpc.Channel, name: str) -> None:
    """A transaction over the wire, begun and ended."""
    stub = TransactionServiceStub(channel)
    request = transaction_pb2.InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
    assert stub.InitProducerId(request, timeout=DEADLINE_SECONDS).error_code == 0


def grown_mib(server: ServerProcess, before_mib: float) -> float:
    resident = resident_mib(server.process_id)
    assert resident is not None
    return resident - before_mib


def gives_back(server: ServerProcess, before_mib: float, growth_mib_max: float = GROWTH_MIB_MAX) -> None:
    """Wait until what it took is given back."""
    for _ in looks("the memory that was freed"):
        if grown_mib(server, before_mib) < growth_mib_max:
            return


@pytest.mark.slow
@pytest.mark.long
def test_floods_leave_little_memory_behind(tmp_path: Path, transport: TransportName) -> None:
    with ServerProcess(tmp_path / "data") as server, grpc.insecure_channel(server.address) as channel:
        commits(channel, "before")
        before_mib = grown_mib(server, 0)
        for kind, frames in floods(LIMITS).items():
            with RawPeer(server.port) as peer:
                peer.flood(frames, FLOODS_LAST_SECONDS)
            commits(channel, kind)
            admin_pb2_grpc.AdminServiceStub(channel).DescribeLimits(
                admin_pb2.DescribeLimitsRequest(), timeout=DEADLINE_SECONDS
            )
        gives_back(server, before_mib, FLOODED_GROWTH_MIB_MAX[transport])


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.usefixtures("transport")
def test_readers_that_stood_still_leave_little_memory_behind(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data") as server, grpc.insecure_channel(server.address) as channel:
        fill(channel)
        before_mib = grown_mib(server, 0)
        fetch = log_pb2.FetchRequest(max_bytes=15 * MEBI)
        fetch.partitions.add(topic="t", partition=0, fetch_offset=0)
        body = fetch.SerializeToString()
        with ExitStack() as leaving:
            for _ in range(READERS):
                peer = leaving.enter_context(RawPeer(server.port))
                peer.send(b"".join(call(2 * number + 1, FETCH, body) for number in range(FETCHES)))
            for _ in looks("answers that wait"):
                if grown_mib(server, before_mib) > GROWTH_MIB_MAX:
                    break
        commits(channel, "after")
        gives_back(server, before_mib)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.usefixtures("transport")
def test_fifty_blocked_readers_cause_no_refusal_and_hold_what_they_may(tmp_path: Path) -> None:
    """One after the other, so that each may take what those before it left."""
    large = [("grpc.max_receive_message_length", 16 * MEBI)]
    with ServerProcess(tmp_path / "data") as server, grpc.insecure_channel(server.address, large) as channel:
        fill(channel)
        log = log_pb2_grpc.LogServiceStub(channel)
        fetch = log_pb2.FetchRequest(max_bytes=15 * MEBI)
        fetch.partitions.add(topic="t", partition=0, fetch_offset=0)
        body = fetch.SerializeToString()
        before_mib = grown_mib(server, 0)
        with ExitStack() as leaving:
            for _ in range(50):
                peer = leaving.enter_context(RawPeer(server.port))
                peer.send(b"".join(call(2 * number + 1, FETCH, body) for number in range(FETCHES)))
                # Each turn of reads has one of the peer and one of this.
                for _ in range(5):
                    assert read(log, fetch)
            assert GROWTH_MIB_MAX < grown_mib(server, before_mib) < ANSWERS_GROWTH_MIB_MAX
        commits(channel, "after")
        gives_back(server, before_mib)


def read(log: log_pb2_grpc.LogServiceStub, fetch: log_pb2.FetchRequest) -> int:
    """Return how many batches there are, once the answer before was taken: gRPC tells it a little late."""
    for _ in looks("an answer"):
        answer = log.Fetch(fetch, timeout=DEADLINE_SECONDS)
        if not answer.error_code:
            return len(answer.results[0].batches)
        assert "on this connection" in answer.error_message
    return 0


def fill(channel: grpc.Channel) -> None:
    """A topic of one partition with some mebibytes."""
    log = log_pb2_grpc.LogServiceStub(channel)
    log.CreateTopics(log_pb2.CreateTopicsRequest(topics=[log_pb2.NewTopic(name="t", partition_count=1)]))
    payload = log_pb2.Records(records=[log_pb2.Record(value=bytes(900_000))]).SerializeToString()
    batch = log_pb2.RecordBatch(record_count=1, encoding=log_pb2.ENCODING_RECORDS_V1, payload=payload)
    for _ in range(8):
        request = log_pb2.ProduceRequest()
        request.batches.add(topic="t", partition=0).batch.CopyFrom(batch)
        assert not log.Produce(request, timeout=DEADLINE_SECONDS).results[0].error_code


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.usefixtures("transport")
def test_more_connections_than_open_files_end_no_session(tmp_path: Path) -> None:
    small_files = ("--set", "write_buffer_bytes=100000", "--set", "wal_bytes_max=1000000")
    with (
        ServerProcess(tmp_path / "data", *small_files, handles_max=300) as server,
        grpc.insecure_channel(server.address) as channel,
        ExitStack() as leaving,
    ):
        commits(channel, "before")
        for _ in range(400):
            idle = leaving.enter_context(socket.socket())
            idle.setblocking(False)
            idle.connect_ex((HOST, server.port))
        for number in range(200):
            commits(channel, f"meanwhile-{number}-" + "x" * 900)
        assert server.is_running
        leaving.close()
        with grpc.insecure_channel(server.address, [("grpc.use_local_subchannel_pool", 1)]) as another:
            grpc.channel_ready_future(another).result(DEADLINE_SECONDS)
            commits(another, "after")
        assert server.terminate() == ExitStatus.OK
        assert '"connections_max": 65' in server.output


@pytest.mark.slow
def test_too_few_open_files_are_a_clear_refusal(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path / "data", handles_max=200)
    server.launch()
    assert server.wait() == ExitStatus.USAGE
    assert re.search(r"may open 200 files and needs at least 240: raise the limit with `ulimit -n`", server.output)
    assert not (tmp_path / "data" / "store").exists()
