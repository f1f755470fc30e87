"""Peers on a real socket that are no clients: closed, counted by one line in the log, and nothing is held for them.

The loop is the one that servers have, because it makes the TLS handshakes.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import structlog
import uvloop

from coordinator_runtime.clock import SystemClock
from coordinator_server.kafka_front.apis import ApiKey
from coordinator_server.kafka_front.listeners import CoreOfConnections, KafkaListeners, KafkaOptions
from coordinator_server.listeners import UNAUTHENTICATED, Identities, KafkaListener
from coordinator_server.security.authentication import NameRule, NameSource
from coordinator_server.security.tls import ClientAuth
from coordinator_server.security.tokens import ReloadingTokens, new_token
from tests.harness.certificates import Authority, Pair
from tests.harness.kafka_line import Line, frame, heartbeat
from tests.harness.patience import until

HOST = "127.0.0.1"
API_VERSIONS = frame(ApiKey.API_VERSIONS, 0, 7)
CLIENT_HELLO = bytes.fromhex("16030100c8010000c40303")

Scenario = Callable[[], Coroutine[Any, Any, None]]


def run(scenario: Scenario) -> None:
    """Run a scenario on the loop of servers."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(scenario())


class Served:
    """A listener that is served, and the line whose handlers it has."""

    def __init__(self, listeners: KafkaListeners, line: Line) -> None:
        self.listeners = listeners
        self.line = line
        self._peers: list[Peer] = []

    @property
    def abuses(self) -> dict[str, int]:
        return dict(self.listeners.numbers().abuses)

    @property
    def open_connections(self) -> int | None:
        return self.listeners.numbers().open_connections

    async def connect(self, context: ssl.SSLContext | None = None) -> Peer:
        port = self.listeners.addresses[0].port
        peer = Peer(*await asyncio.open_connection(HOST, port, ssl=context))
        self._peers.append(peer)
        return peer

    def close(self) -> None:
        for peer in self._peers:
            peer.close()


class Peer:
    """One connection to a listener."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def ask(self, sent: bytes) -> bytes:
        """Send bytes. Return the answer without its size; b"" if the server closed the connection."""
        self._writer.write(sent)
        return await self.answer()

    async def answer(self) -> bytes:
        try:
            size = await self._reader.readexactly(4)
            return await self._reader.readexactly(int.from_bytes(size, "big"))
        except (asyncio.IncompleteReadError, OSError):
            return b""

    def send(self, sent: bytes) -> None:
        self._writer.write(sent)

    def close(self) -> None:
        self._writer.transport.abort()


@asynccontextmanager
async def serving(
    listener: KafkaListener, *, identities: Identities = UNAUTHENTICATED, connections_max: int = 100
) -> AsyncIterator[Served]:
    line, clock = Line(), SystemClock()
    listeners = KafkaListeners(
        clock, KafkaOptions(1, 1 << 20, connections_max, begun_bytes_max=1 << 25, begun_calls_max=2_048)
    )
    listeners.open([listener], identities)
    await listeners.serve(line.service.endpoints, line.gatekeeper, CoreOfConnections(line.answers, line.lost.append))
    served = Served(listeners, line)
    try:
        yield served
    finally:
        served.close()
        listeners.announce_stop()
        await listeners.stop(0)


def plain() -> KafkaListener:
    return KafkaListener(listen=f"{HOST}:0")


def with_tls(pair: Pair, **settings: Any) -> KafkaListener:
    return KafkaListener(listen=f"{HOST}:0", tls_certificate_file=pair.certificate, tls_key_file=pair.key, **settings)


def trusting(authority: Authority, shown: Pair | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(authority.ca_file))
    if shown is not None:
        context.load_cert_chain(shown.certificate, shown.key)
    return context


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "ca")


@pytest.mark.parametrize("sent", [CLIENT_HELLO, b"GET / HTTP/1.1\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"])
def test_other_protocols_are_closed_and_logged_once_a_second(sent: bytes) -> None:
    async def scenario() -> None:
        with structlog.testing.capture_logs() as lines:
            async with serving(plain()) as served:
                for _ in range(20):
                    assert await (await served.connect()).ask(sent) == b""
                await until(lambda: served.open_connections == 0)
                assert served.abuses == {"not_kafka": 20}
        kinds = [line["kind"] for line in lines if line["event"] == "harm"]
        # A slow machine may need longer than the second of one line.
        assert set(kinds) == {"not_kafka"}
        assert len(kinds) < 20

    run(scenario)


def test_what_is_no_handshake_of_tls_is_closed_and_counted(authority: Authority) -> None:
    async def scenario() -> None:
        async with serving(with_tls(authority.issue("server"))) as served:
            for sent in (API_VERSIONS, b"GET / HTTP/1.1\r\n\r\n"):
                peer = await served.connect()
                peer.send(sent)
                # The server may tell of the error in TLS before it closes.
                await peer.answer()
            (await served.connect()).close()
            await until(lambda: served.open_connections == 0)
            assert served.abuses == {"handshakes": 3}
            assert (await (await served.connect(trusting(authority))).ask(API_VERSIONS))[:4] == b"\0\0\0\7"

    run(scenario)


def test_answers_leave_over_tls_one_by_one(authority: Authority) -> None:
    async def scenario() -> None:
        async with serving(with_tls(authority.issue("server"))) as served:
            client = await served.connect(trusting(authority))
            client.send(b"".join(heartbeat(number) for number in range(7)))
            await until(lambda: len(served.line.begun) == 7)
            for number in range(7):
                served.line.answer(number)
                assert (await client.answer())[:4] == number.to_bytes(4, "big")

    run(scenario)


def test_a_handshake_that_stalls_ends_in_time(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coordinator_server.kafka_front.entrance.HANDSHAKE_SECONDS_MAX", 0.05)

    async def scenario() -> None:
        async with serving(with_tls(authority.issue("server"))) as served:
            silent, begun = await served.connect(), await served.connect()
            begun.send(CLIENT_HELLO)
            await until(lambda: served.open_connections == 2)
            assert [await silent.answer(), await begun.answer()] == [b"", b""]
            await until(lambda: served.open_connections == 0)
            assert served.abuses == {"handshakes": 2}

    run(scenario)


def test_stalled_handshakes_of_one_host_are_bounded_and_hold_nothing(authority: Authority) -> None:
    async def scenario() -> None:
        async with serving(with_tls(authority.issue("server")), connections_max=64) as served:
            stalled = [await served.connect() for _ in range(40)]
            await until(lambda: served.abuses.get("unauthenticated") == 32)
            assert served.open_connections == 8
            for peer in stalled:
                peer.close()
            await until(lambda: served.open_connections == 0)
            client = await served.connect(trusting(authority))
            assert (await client.ask(API_VERSIONS))[:4] == b"\0\0\0\7"

    run(scenario)


def test_connections_beyond_the_most_are_closed_and_the_others_served() -> None:
    async def scenario() -> None:
        async with serving(plain(), connections_max=50) as served:
            peers = [await served.connect() for _ in range(200)]
            await until(lambda: served.abuses.get("connections") == 150)
            answers = [await peer.ask(API_VERSIONS) for peer in peers]
            assert [bool(answer) for answer in answers] == [True] * 50 + [False] * 150
            for peer in peers:
                peer.close()
            await until(lambda: served.open_connections == 0)
            assert await (await served.connect()).ask(API_VERSIONS) != b""

    run(scenario)


def test_a_request_byte_by_byte_is_one_and_a_peer_that_leaves_within_one_leaves_nothing() -> None:
    async def scenario() -> None:
        async with serving(plain()) as served:
            peer = await served.connect()
            for byte in API_VERSIONS:
                peer.send(bytes([byte]))
                await asyncio.sleep(0)
            assert (await peer.answer())[:4] == b"\0\0\0\7"
            peer.send(heartbeat(1)[:-1])
            peer.close()
            await until(lambda: served.open_connections == 0)
            assert served.abuses == {}

    run(scenario)


def test_a_certificate_names_the_principal(authority: Authority, tmp_path: Path) -> None:
    listener = with_tls(
        authority.issue("server"),
        tls_client_ca_file=authority.ca_file,
        tls_client_auth=ClientAuth.REQUIRED,
        authentication="certificate",
    )
    stranger = Authority(tmp_path, "strangers").issue("stranger")

    async def scenario() -> None:
        identities = Identities(names=NameRule(NameSource.CN))
        async with serving(listener, identities=identities) as served:
            client = await served.connect(trusting(authority, authority.issue("etl")))
            client.send(heartbeat(1))
            await until(lambda: len(served.line.begun) == 1)
            _request, exchange, _reply = served.line.begun[0]
            assert exchange.context.principal == "User:etl"
            for shown in (None, stranger):
                refused = False
                try:
                    refused = await (await served.connect(trusting(authority, shown))).ask(API_VERSIONS) == b""
                except OSError:
                    refused = True
                assert refused
            await until(lambda: served.open_connections == 1)
            assert served.abuses == {"handshakes": 2}

    run(scenario)


def test_a_token_takes_precedence_over_a_certificate_that_may_be_left_out(authority: Authority, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.toml"
    token, table = new_token("etl", bytes(range(32)), "User:etl", None)
    tokens.write_text(table, encoding="utf-8")
    listener = with_tls(
        authority.issue("server"),
        tls_client_ca_file=authority.ca_file,
        tls_client_auth=ClientAuth.REQUESTED,
        authentication="certificate,token",
    )
    password = b"\0user\0" + token.encode()
    handshake = frame(ApiKey.SASL_HANDSHAKE, 1, 1, b"\0\5PLAIN")
    authenticate = frame(ApiKey.SASL_AUTHENTICATE, 0, 2, len(password).to_bytes(4, "big") + password)

    async def scenario() -> None:
        identities = Identities(ReloadingTokens(tokens, SystemClock()), names=NameRule(NameSource.CN))
        async with serving(listener, identities=identities) as served:
            pair = authority.issue("from-certificate")
            for shown, asks_by_sasl in ((pair, False), (pair, True), (None, True)):
                client = await served.connect(trusting(authority, shown))
                if asks_by_sasl:
                    assert (await client.ask(handshake))[4:6] == b"\0\0"
                    assert (await client.ask(authenticate))[4:6] == b"\0\0"
                client.send(heartbeat(3))
            await until(lambda: len(served.line.begun) == 3)
            found = sorted(exchange.context.principal for _request, exchange, _reply in served.line.begun)
            assert found == ["User:etl", "User:etl", "User:from-certificate"]

    run(scenario)


def test_a_server_that_stops_ends_handshakes_that_are_under_way(authority: Authority) -> None:
    async def scenario() -> None:
        async with serving(with_tls(authority.issue("server"))) as served:
            peer = await served.connect()
            await until(lambda: served.open_connections == 1)
            served.listeners.announce_stop()
            assert await peer.answer() == b""
            await until(lambda: served.open_connections == 0)
            assert served.abuses == {}

    run(scenario)
