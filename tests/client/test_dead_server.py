"""Real clients and no server, or one that is gone: every transport, every kind of client."""

from __future__ import annotations

import asyncio
import importlib.util
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from queue import SimpleQueue

import pytest

from coordinator_client import (
    Admin,
    AsyncProducer,
    Connection,
    Consumer,
    Producer,
    Retriable,
    Unreachable,
    read,
)
from coordinator_client.calls import CREATE_TOPICS
from coordinator_client.errors import Loss, OutcomeUnknown
from coordinator_client.loops import AsyncioLoop
from coordinator_client.transport.grpc_transport import GrpcChannel, UnaryTransport
from tests.harness.long_cases import long_but
from tests.harness.server_process import ServerProcess

needs_compiled = pytest.mark.skipif(
    importlib.util.find_spec("txn_native_transport") is None,
    reason="the compiled transport is not installed (make native)",
)
TRANSPORTS = ["grpc_session", "unary", pytest.param("session", marks=needs_compiled)]


@pytest.fixture
def refused() -> Iterator[str]:
    """An address that nothing listens on, and that nothing else gets meanwhile."""
    with socket.socket() as plug:
        plug.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{plug.getsockname()[1]}"


@pytest.fixture
def http1() -> Iterator[str]:
    """A web server."""
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def use_producer(connection: Connection) -> None:
    with Producer(connection, transactional_id="p") as producer:
        producer.init()


def use_async_producer(connection: Connection) -> None:
    async def work() -> None:
        async with AsyncProducer(connection, transactional_id="p") as producer:
            await producer.init()

    asyncio.run(work())


def use_admin(connection: Connection) -> None:
    Admin(connection).create_topic("t")


def use_consumer(connection: Connection) -> None:
    with Consumer(connection, group_id="g") as consumer:
        consumer.subscribe(["t"])
        consumer.poll(timeout_ms=100_000)


def use_read(connection: Connection) -> None:
    list(read("t", connection))


@pytest.mark.slow
@pytest.mark.parametrize("transport", long_but(lambda transport: transport != "unary", TRANSPORTS))
@pytest.mark.parametrize(
    ("kind", "use"),
    [
        ("http1", use_producer),
        *(("refused", use) for use in (use_producer, use_async_producer, use_admin, use_consumer, use_read)),
    ],
)
def test_a_client_that_was_never_connected_says_what_is_wrong_long_before_its_deadline(
    request: pytest.FixtureRequest, kind: str, transport: str, use: Callable[[Connection], None]
) -> None:
    endpoint = request.getfixturevalue(kind)
    said = "Connection refused" if kind == "refused" else "an HTTP/1 server listens there"
    with (
        Connection(endpoint, transport=transport) as connection,
        pytest.raises(Unreachable, match=f"no server answers at {endpoint} .*{said}"),
    ):
        use(connection)


@pytest.mark.slow
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_client_that_waits_finds_the_server_that_comes_later(tmp_path: Path, transport: str) -> None:
    with socket.socket() as plug:
        plug.bind(("127.0.0.1", 0))
        port = plug.getsockname()[1]
    server = ServerProcess(tmp_path / "data")
    server.port = port
    ended: SimpleQueue[object] = SimpleQueue()

    def client() -> None:
        with Producer(server.address, transactional_id="p", transport=transport, wait_ms=None) as producer:
            producer.init()
            ended.put(producer.identity)

    thread = threading.Thread(target=client, daemon=True)
    thread.start()
    with server:
        assert ended.get() is not None
    thread.join()


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("transport", long_but(lambda transport: transport != "unary", TRANSPORTS))
def test_what_a_connected_client_could_not_send_is_not_unknown(tmp_path: Path, transport: str) -> None:
    with ServerProcess(tmp_path / "data") as server, Connection(server.address, transport=transport) as connection:
        with Admin(connection) as admin:
            admin.create_topic("t")
        with Producer(connection, transactional_id="p", delivery_timeout_ms=3_000) as producer:
            producer.init()
            server.kill()
            # A call that meets the broken connection was handed to it, and may have come any way.
            with pytest.raises(Retriable):
                Admin(connection, deadline_ms=1_000).describe_topic("t")
            with pytest.raises(Retriable, match="no definite answer within") as failed:
                Admin(connection, deadline_ms=3_000).create_topic("u")
            assert failed.value.lost_attempts == 0
            with pytest.raises(Retriable):
                Producer(connection, transactional_id="q", delivery_timeout_ms=3_000).init()


def _logged_by_client(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Messages of the SDK. grpc.aio logs errors of event loops that earlier tests closed."""
    return [record.getMessage() for record in caplog.records if record.name == "coordinator_client"]


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("group_protocol", ["consumer", "classic"])
def test_a_consumer_says_that_its_server_is_gone_and_closes_all_the_same(
    tmp_path: Path, group_protocol: str, caplog: pytest.LogCaptureFixture
) -> None:
    with ServerProcess(tmp_path / "data") as server:
        with Admin(server.address) as admin:
            admin.create_topic("t")
        consumer = Consumer(server.address, group_id="g", group_protocol=group_protocol)
        consumer.subscribe(["t", "ordres"])
        while not consumer.assignment():
            consumer.poll(timeout_ms=100)
        server.kill()
        while len(_logged_by_client(caplog)) < 2:
            assert not consumer.poll(timeout_ms=100)
        # Without a bound it would be the half minute that a server has for an answer.
        consumer.close(timeout_ms=3_600_000)
    absent, gone = _logged_by_client(caplog)
    assert "subscribes to the topic 'ordres', which does not exist" in absent
    assert gone.startswith(f"the server at {server.address} does not answer (UNAVAILABLE")


def test_grpc_says_of_a_call_that_found_no_connection_that_it_was_not_sent(refused: str) -> None:
    """A call counts as lost if a version of gRPC words it differently: safe, and reported here."""
    request = CREATE_TOPICS.request_type()
    unary = UnaryTransport(refused)
    answers: SimpleQueue[object] = SimpleQueue()
    try:
        unary.start(CREATE_TOPICS, request, timeout_ms=60_000, on_done=answers.put)
        found = [unary.ask(CREATE_TOPICS, request, timeout_ms=60_000), answers.get()]
    finally:
        unary.close()

    async def on_a_channel() -> None:
        channel = GrpcChannel(refused, AsyncioLoop())
        done: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        channel.call(CREATE_TOPICS, request, timeout_ms=60_000, on_done=done.set_result)
        found.append(await done)
        channel.close()

    asyncio.run(on_a_channel())
    for loss in found:
        assert isinstance(loss, Loss)
        assert (loss.status, loss.is_without_effect) == ("UNAVAILABLE", True)


def test_unreachable_is_no_unknown_outcome() -> None:
    assert issubclass(Unreachable, Retriable)
    assert not issubclass(Unreachable, OutcomeUnknown)
