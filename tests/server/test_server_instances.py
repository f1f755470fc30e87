"""Server instances: servers of gRPC that share a port of grpc.aio, their connections, and other programs on it."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path

import pytest
from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from structlog.testing import capture_logs

from coordinator_api.v1 import transaction_pb2, transaction_pb2_grpc
from coordinator_runtime.clock import SystemClock
from coordinator_server.grpc_front import grpc_transport
from coordinator_server.grpc_front.grpc_transport import (
    INSTANCE_CONNECTIONS_MIN,
    INSTANCES_MAX,
    GrpcTransport,
    instances_of,
)
from coordinator_server.grpc_front.transports import TransportName, TransportOptions
from coordinator_server.listening import AddressRefused
from coordinator_server.traffic.admission import Admission, AdmissionLimits
from tests.harness import forked
from tests.harness.gated import GatedDispatcher
from tests.harness.patience import DEADLINE_SECONDS, until
from tests.harness.transports import VARIABLE
from tests.server.fake_servicer import SERVICE
from tests.server.test_grpc_transport import HOST, MESSAGE_BYTES_MAX, listed_services, new_transport, serve

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux spreads connections over instances")


@pytest.fixture(autouse=True)
def transport(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use grpc.aio, which alone has instances."""
    monkeypatch.setenv(VARIABLE, TransportName.GRPC)


async def test_a_port_of_another_server_is_refused_although_its_instances_share_it() -> None:
    first, second = new_transport(), new_transport()
    try:
        port = first.bind(HOST, 0)
        with pytest.raises(AddressRefused, match=r"Address already in use: choose another port"):
            second.bind(HOST, port)
    finally:
        await first.stop(0)
        await second.stop(0)


@pytest.fixture
def intruder() -> Iterator[int]:
    """The port of another program, which would share it."""
    with forked.Popen([sys.executable, "-c", _LISTEN_TOO], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        yield int(program.stdout.readline())
        program.kill()


async def test_a_program_that_came_to_the_port_at_the_same_time_is_noticed(
    intruder: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It comes between the look at the port and the instances.
    monkeypatch.setattr(grpc_transport, "tcp_sockets", lambda _host, _port: [socket.socket()])
    transport = GrpcTransport([], SystemClock(), TransportOptions(MESSAGE_BYTES_MAX))
    try:
        with pytest.raises(AddressRefused, match=f"cannot listen on {HOST}:{intruder}: another program does"):
            transport.bind(HOST, intruder)
    finally:
        await transport.stop(0)


_LISTEN_TOO = f"""
import socket, sys
with socket.socket() as taken:
    taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    taken.bind(("{HOST}", 0))
    taken.listen()
    print(taken.getsockname()[1], flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("connections_max", [1, 7, 511, 512, 2_047, 2_048, 10_000, 1_000_000])
def test_no_more_connections_than_may_be_come_through_all_instances(connections_max: int) -> None:
    instances = instances_of(connections_max)
    assert 1 <= instances <= INSTANCES_MAX
    assert instances == 1 or connections_max // instances >= INSTANCE_CONNECTIONS_MIN
    assert instances_of(INSTANCE_CONNECTIONS_MIN * 2 - 1) == 1
    assert instances_of(INSTANCE_CONNECTIONS_MIN * INSTANCES_MAX) == INSTANCES_MAX


Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def connections_taken(connect: Callable[[], Awaitable[Connection]], count: int) -> int:
    """Count the connections taken of so many. gRPC greets each of those, and closes the others."""
    connections = [await connect() for _ in range(count)]
    try:
        return sum([await is_greeted(reader) for reader, _ in connections])
    finally:
        for _, writer in connections:
            writer.close()


async def is_greeted(reader: asyncio.StreamReader) -> bool:
    with suppress(ConnectionError):
        return bool(await reader.read(1))
    return False


@asynccontextmanager
async def opened(connections_max: int, address: str = HOST) -> AsyncIterator[int]:
    """The port of a transport of grpc.aio, which alone has instances, on which so many connections may be open."""
    options = TransportOptions(MESSAGE_BYTES_MAX, connections_max=connections_max)
    transport = GrpcTransport([], SystemClock(), options)
    try:
        port = transport.bind(address, 0)
        admission = Admission(AdmissionLimits(), lambda: 0)
        await transport.start(GatedDispatcher([], admission, SystemClock(), message_bytes_max=MESSAGE_BYTES_MAX))
        yield port
    finally:
        await transport.stop(0)


@pytest.fixture
def small_instances(monkeypatch: pytest.MonkeyPatch) -> int:
    """The fewest connections of a server instance, so few that a test can open more than all may have."""
    monkeypatch.setattr(grpc_transport, "INSTANCE_CONNECTIONS_MIN", 4)
    return 4


async def test_the_instances_of_a_free_port_share_it_and_its_connections(small_instances: int) -> None:
    # So many come that none of the instances has room left.
    async with opened(2 * small_instances) as port:
        connect = partial(asyncio.open_connection, HOST, port)
        assert await connections_taken(connect, 20 * small_instances) == 2 * small_instances


async def test_each_address_of_a_host_has_its_share_of_the_connections(
    small_instances: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A host with two addresses, of which gRPC listens on one.
    monkeypatch.setattr(grpc_transport, "tcp_sockets", lambda _host, _port: [socket.socket() for _ in range(2)])
    async with opened(4 * small_instances) as port:
        connect = partial(asyncio.open_connection, HOST, port)
        assert await connections_taken(connect, 20 * small_instances) == 2 * small_instances


async def test_all_connections_may_come_through_a_unix_socket(small_instances: int, tmp_path: Path) -> None:
    path = tmp_path / "socket"
    async with opened(2 * small_instances, f"unix:{path}"):
        connect = partial(asyncio.open_unix_connection, path)
        assert await connections_taken(connect, 3 * small_instances) == 2 * small_instances


async def test_no_other_program_can_share_the_port_of_a_single_entrance() -> None:
    async with opened(INSTANCE_CONNECTIONS_MIN) as port:
        with socket.socket() as other:
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            with pytest.raises(OSError, match="Address already in use"):
                other.bind((HOST, port))


async def test_every_connection_finds_health_and_reflection() -> None:
    async with serve(has_reflection=True) as served:
        # More than share the port: the system chooses which of them takes a connection.
        for _ in range(4 * INSTANCES_MAX):
            async with another_connection(served.port) as channel:
                await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
                assert SERVICE.full_name in (await listed_services(channel) or ())


def another_connection(port: int) -> aio.Channel:
    return aio.insecure_channel(f"{HOST}:{port}", [("grpc.use_local_subchannel_pool", 1)])


async def test_a_server_that_stops_takes_no_connection_while_it_finishes_calls_of_any() -> None:
    def is_closed(port: int) -> bool:
        with socket.socket() as late:
            return late.connect_ex((HOST, port)) != 0

    async with serve() as served, AsyncExitStack() as leaving:
        count = 4 * INSTANCES_MAX
        channels = [await leaving.enter_async_context(another_connection(served.port)) for _ in range(count)]
        calls = [
            transaction_pb2_grpc.TransactionServiceStub(channel).EndTxn(transaction_pb2.EndTxnRequest())
            for channel in channels
        ]
        await served.end_txn_arrived(count)
        stopping = asyncio.ensure_future(served.transport.stop(int(DEADLINE_SECONDS) * 1000))
        await until(lambda: is_closed(served.port))
        assert not stopping.done()
        for pending in served.servicer.waiting:
            pending.succeed(transaction_pb2.EndTxnResponse(csn=1))
        assert [response.csn for response in await asyncio.gather(*calls)] == [1] * count
        await stopping


@pytest.mark.parametrize(
    ("connections_max", "are_open", "is_told"),
    [(10, 9, False), (10, 10, True), (4_000, 3_599, False), (4_000, 3_600, True)],
)
async def test_connections_are_told_where_an_instance_may_be_full(
    connections_max: int, are_open: int, is_told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grpc_transport, "established_connections", lambda _port: are_open)
    with capture_logs() as lines:
        async with opened(connections_max):
            pass
        # The look at them, on another thread, is done.
        await asyncio.get_running_loop().shutdown_default_executor()
    assert [line["kind"] for line in lines if line["event"] == "harm"] == ["connections"] * is_told
