"""The transports on a real port: deadlines, cancellation, garbage, sizes, bursts, health and reflection."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

import grpc
import pytest
from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from coordinator_api.v1 import common_pb2, transaction_pb2, transaction_pb2_grpc
from coordinator_protocol.errors import ErrorCode
from coordinator_runtime.clock import SystemClock
from coordinator_server.grpc_front.grpc_session import host_of
from coordinator_server.grpc_front.transport_choice import open_transport
from coordinator_server.grpc_front.transports import ServerTransport, TransportName, TransportOptions
from coordinator_server.listening import AddressRefused
from coordinator_server.traffic.admission import Admission, AdmissionLimits
from tests.harness.gated import GatedDispatcher
from tests.harness.patience import DEADLINE_SECONDS
from tests.harness.transports import wanted_transport
from tests.server.fake_servicer import END_TXN, SERVICE, FakeTransactionServicer

pytestmark = pytest.mark.usefixtures("transport")

HOST = "127.0.0.1"
MESSAGE_BYTES_MAX = 100_000
BURST = 4_000


@dataclass
class Served:
    """A transport on a free port, and what is behind it."""

    transport: ServerTransport
    dispatcher: GatedDispatcher
    servicer: FakeTransactionServicer
    channel: aio.Channel
    port: int

    @property
    def stub(self) -> transaction_pb2_grpc.TransactionServiceAsyncStub:
        return transaction_pb2_grpc.TransactionServiceStub(self.channel)

    async def end_txn_arrived(self, count: int = 1) -> None:
        """Return once that many EndTxn stand in the servicer."""
        while len(self.servicer.waiting) < count:
            await self.servicer.arrived.wait()
            self.servicer.arrived.clear()


@asynccontextmanager
async def serve(
    limits: AdmissionLimits | None = None, *, has_reflection: bool = False, message_bytes_max: int = MESSAGE_BYTES_MAX
) -> AsyncIterator[Served]:
    servicer = FakeTransactionServicer()
    admission = Admission(limits or AdmissionLimits(), lambda: 0)
    dispatcher = GatedDispatcher([SERVICE], admission, SystemClock(), message_bytes_max=message_bytes_max)
    dispatcher.open([servicer])
    options = TransportOptions(message_bytes_max, has_reflection=has_reflection)
    transport = open_transport(wanted_transport(), [SERVICE.full_name], SystemClock(), options)
    port = transport.bind(HOST, 0)
    await transport.start(dispatcher)
    async with aio.insecure_channel(f"{HOST}:{port}") as channel:
        yield Served(transport, dispatcher, servicer, channel, port)
    await transport.stop(0)


@pytest.fixture
async def served(transport: TransportName) -> AsyncIterator[Served]:
    async with serve() as one:
        yield one


async def failure(call: aio.UnaryUnaryCall[bytes, bytes]) -> grpc.RpcError:
    with pytest.raises(aio.AioRpcError) as error:
        await call
    return error.value


async def test_a_call_goes_there_and_back_with_host_and_client_id(served: Served) -> None:
    request = transaction_pb2.FindCoordinatorRequest(header=common_pb2.RequestHeader(client_id="me"), keys=["a"])
    response = await served.stub.FindCoordinator(request)
    assert [found.key for found in response.coordinators] == ["a"]
    (context,) = served.servicer.contexts
    assert (context.host, context.client_id, context.deadline_ms) == (HOST, "me", None)


async def test_the_deadline_of_a_call_reaches_the_inside_on_our_clock(served: Served) -> None:
    before_ms = SystemClock().monotonic_ms()
    await served.stub.FindCoordinator(transaction_pb2.FindCoordinatorRequest(), timeout=20)
    (context,) = served.servicer.contexts
    assert context.deadline_ms is not None
    # gRPC counts a timeout of this length in steps of 100 ms, and rounds it up.
    assert before_ms + 10_000 < context.deadline_ms <= SystemClock().monotonic_ms() + 20_000 + 100


async def test_a_caller_that_gives_up_cancels_inside_and_leaves_its_neighbours_alone(served: Served) -> None:
    calls = [served.stub.EndTxn(transaction_pb2.EndTxnRequest()) for _ in range(3)]
    await served.end_txn_arrived(3)
    calls[1].cancel()
    await served.servicer.cancelled.wait()
    for csn, pending in enumerate(served.servicer.waiting):
        pending.succeed(transaction_pb2.EndTxnResponse(csn=csn + 1))
    responses = await asyncio.gather(*calls, return_exceptions=True)
    assert isinstance(responses[1], asyncio.CancelledError)
    answered = {response.csn for response in responses if isinstance(response, transaction_pb2.EndTxnResponse)}
    assert len(answered) == 2
    assert (await served.stub.FindCoordinator(transaction_pb2.FindCoordinatorRequest())) is not None


async def test_a_deadline_that_passes_cancels_inside(served: Served) -> None:
    error = await failure(served.stub.EndTxn(transaction_pb2.EndTxnRequest(), timeout=0.2))
    assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    await served.servicer.cancelled.wait()


async def test_bytes_that_are_no_message_are_an_invalid_argument(served: Served) -> None:
    error = await failure(served.channel.unary_unary(END_TXN)(b"\xff\xff\xff"))
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "no coordinator_api.v1.EndTxnRequest" in error.details()


async def test_an_unknown_method_is_unimplemented(served: Served) -> None:
    error = await failure(served.channel.unary_unary("/coordinator_api.v1.Nobody/Knows")(b""))
    assert error.code() is grpc.StatusCode.UNIMPLEMENTED
    assert "/coordinator_api.v1.Nobody/Knows" in error.details()


async def test_a_defect_is_internal_and_says_nothing_of_the_inside(served: Served) -> None:
    error = await failure(served.stub.DescribeTransactions(transaction_pb2.DescribeTransactionsRequest()))
    assert error.code() is grpc.StatusCode.INTERNAL
    assert "secret" not in error.details()
    assert "KeyError" not in error.details()


async def test_an_oversize_message_is_refused_and_the_server_goes_on(served: Served) -> None:
    request = transaction_pb2.EndTxnRequest(transactional_id="x" * (MESSAGE_BYTES_MAX + 1))
    error = await failure(served.stub.EndTxn(request))
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert str(MESSAGE_BYTES_MAX) in error.details()
    await served.stub.FindCoordinator(transaction_pb2.FindCoordinatorRequest())


@pytest.mark.parametrize("compression", [grpc.Compression.Gzip, grpc.Compression.Deflate])
async def test_a_request_may_be_compressed_but_not_become_too_large(
    served: Served, compression: grpc.Compression
) -> None:
    find = transaction_pb2.FindCoordinatorRequest(keys=["k" * (MESSAGE_BYTES_MAX - 100)])
    response = await served.stub.FindCoordinator(find, compression=compression)
    assert response.coordinators[0].key == find.keys[0]
    bomb = transaction_pb2.FindCoordinatorRequest(keys=["k" * MESSAGE_BYTES_MAX * 10])
    error = await failure(served.stub.FindCoordinator(bomb, compression=compression))
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        bytes(range(256)) * 64,
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 4096,
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 200,
    ],
    ids=["http1", "noise", "broken http2 frames", "tls hello"],
)
async def test_garbage_on_the_port_hurts_no_other(served: Served, garbage: bytes) -> None:
    reader, writer = await asyncio.open_connection(HOST, served.port)
    # The server may answer or cut the line at any moment, as long as it lets go of it.
    with suppress(OSError):
        writer.write(garbage)
        await writer.drain()
        writer.write_eof()
        await reader.read()
    writer.close()
    await served.stub.FindCoordinator(transaction_pb2.FindCoordinatorRequest(), timeout=DEADLINE_SECONDS)


def at_full_speed() -> None:
    """Without the loop's debug mode, which notes where each of some 30,000 callbacks came from."""
    asyncio.get_running_loop().set_debug(False)


@pytest.mark.slow
async def test_none_of_4000_calls_at_once_is_cancelled_by_the_transport(served: Served) -> None:
    at_full_speed()
    calls = [served.stub.FindCoordinator(transaction_pb2.FindCoordinatorRequest()) for _ in range(BURST)]
    responses = await asyncio.gather(*calls, return_exceptions=True)
    assert [response for response in responses if isinstance(response, BaseException)] == []


@pytest.mark.long
@pytest.mark.slow
async def test_4000_calls_that_wait_at_once_are_taken_or_told_in_band_to_come_again() -> None:
    at_full_speed()
    limits = AdmissionLimits(calls_in_work_max=900, reserved_calls=100)
    async with serve(limits) as served:
        calls = [served.stub.EndTxn(transaction_pb2.EndTxnRequest()) for _ in range(BURST)]
        for _, answered in zip(range(BURST - 1000), asyncio.as_completed(calls), strict=False):
            response = await answered
            assert response.error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
        assert len(served.servicer.waiting) == 1000
        for pending in served.servicer.waiting:
            pending.succeed(transaction_pb2.EndTxnResponse(csn=1))
        responses = await asyncio.gather(*calls)
    assert sum(response.csn == 1 for response in responses) == 1000


async def test_health_tells_alive_from_ready_and_says_when_the_server_goes(served: Served) -> None:
    health = health_pb2_grpc.HealthStub(served.channel)
    status = health_pb2.HealthCheckResponse

    async def ask(service: str) -> int:
        return (await health.Check(health_pb2.HealthCheckRequest(service=service))).status

    assert (await ask(""), await ask(SERVICE.full_name)) == (status.SERVING, status.NOT_SERVING)
    await served.transport.set_ready(True)
    assert (await ask(""), await ask(SERVICE.full_name)) == (status.SERVING, status.SERVING)
    await served.transport.announce_stop()
    assert (await ask(""), await ask(SERVICE.full_name)) == (status.NOT_SERVING, status.NOT_SERVING)


async def test_who_watches_the_health_is_told_of_changes(served: Served) -> None:
    status = health_pb2.HealthCheckResponse
    health = health_pb2_grpc.HealthStub(served.channel)
    watching = health.Watch(health_pb2.HealthCheckRequest(service=SERVICE.full_name))
    assert (await watching.read()).status == status.NOT_SERVING
    await served.transport.set_ready(True)
    assert (await watching.read()).status == status.SERVING
    await served.transport.announce_stop()
    assert (await watching.read()).status == status.NOT_SERVING
    watching.cancel()
    unknown = health.Check(health_pb2.HealthCheckRequest(service="nobody"))
    assert await unknown.code() is grpc.StatusCode.NOT_FOUND


async def test_a_server_that_stops_finishes_what_it_began_and_cuts_what_lasts_too_long() -> None:
    async with serve() as served:
        calls = [served.stub.EndTxn(transaction_pb2.EndTxnRequest()) for _ in range(2)]
        await served.end_txn_arrived(2)
        stopping = asyncio.ensure_future(served.transport.stop(500))
        await asyncio.sleep(0)
        served.servicer.waiting[0].succeed(transaction_pb2.EndTxnResponse(csn=1))
        assert grpc.StatusCode.OK in [await call.code() for call in calls]
        await stopping
        await served.servicer.cancelled.wait()
        with socket.create_server((HOST, served.port)):
            pass


async def test_reflection_lists_the_services_only_if_switched_on(served: Served) -> None:
    assert await listed_services(served.channel) is None
    async with serve(has_reflection=True) as reflecting:
        names = await listed_services(reflecting.channel)
    assert names is not None
    assert SERVICE.full_name in names


async def listed_services(channel: aio.Channel) -> set[str] | None:
    stub = reflection_pb2_grpc.ServerReflectionStub(channel)

    def requests() -> Iterator[reflection_pb2.ServerReflectionRequest]:
        yield reflection_pb2.ServerReflectionRequest(list_services="")

    try:
        answers = [answer async for answer in stub.ServerReflectionInfo(requests())]
    except aio.AioRpcError as error:
        if error.code() is not grpc.StatusCode.UNIMPLEMENTED:
            raise
        return None
    return {service.name for service in answers[0].list_services_response.service}


def new_transport() -> ServerTransport:
    return open_transport(wanted_transport(), [], SystemClock(), TransportOptions(MESSAGE_BYTES_MAX))


async def test_a_port_in_use_is_refused_with_the_reason() -> None:
    with socket.create_server((HOST, 0)) as taken:
        transport = new_transport()
        with pytest.raises(AddressRefused, match=r"Address already in use: choose another port"):
            transport.bind(HOST, taken.getsockname()[1])


async def test_an_address_of_another_machine_is_refused_with_the_reason() -> None:
    transport = new_transport()
    with pytest.raises(AddressRefused, match="Cannot assign requested address"):
        transport.bind("192.0.2.1", 7070)


@pytest.mark.parametrize(
    ("peer", "host"),
    [
        ("ipv4:10.0.0.1:5000", "10.0.0.1"),
        ("ipv6:%5B::1%5D:5000", "::1"),
        ("ipv6:[fe80::1]:5000", "fe80::1"),
        ("unix:/tmp/socket", "unix"),
    ],
)
def test_the_host_is_read_from_the_name_of_a_peer(peer: str, host: str) -> None:
    assert host_of(peer) == host
