"""A caller's credential counts no more: its open sessions end within a minute, whatever it was and however it ended,
and a client with a new one goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import pytest
from grpc import aio

from coordinator_api.v1 import session_pb2
from coordinator_client import (
    Acl,
    Admin,
    AsyncProducer,
    Connection,
    Misconfigured,
    Permission,
    PermissionType,
    ResourceType,
    Tls,
    read,
)
from coordinator_client.transport.grpc_transport import SESSION_PATH
from coordinator_client.transport.transport import SESSION, UNARY
from coordinator_runtime.clock import SystemClock
from coordinator_server.listeners import Identities, Listener, Listeners
from coordinator_server.security.authentication import AGAIN_SECONDS, NameRule, NameSource
from coordinator_server.security.jwt_tokens import CLOCK_SKEW_SECONDS, ReloadingKeySet
from coordinator_server.security.reloading_credentials import LOOK_SECONDS
from coordinator_server.security.tls import ClientAuth
from coordinator_server.security.tokens import ReloadingTokens
from tests.harness.certificates import DAY, Authority, Pair
from tests.harness.in_process import InProcessServer, in_process_server
from tests.harness.manual_clock import ManualClock
from tests.harness.web_tokens import Issuer
from tests.server.asking_server import Tokens, channel_to, end_txn, find, serving, with_tls

pytestmark = pytest.mark.usefixtures("transport")
HOUR_S = 3_600


@dataclass
class Credential:
    """A credential that a caller shows to a listener, and its end."""

    directory: Path
    clock: ManualClock = field(default_factory=lambda: ManualClock(wall_ms=SystemClock().wall_ms()))
    pair: Pair | None = None
    token: str = ""
    identities: Identities = field(default_factory=Identities)
    end: Callable[[], object] = lambda: None

    def __post_init__(self) -> None:
        self.authority = Authority(self.directory, "ca")
        self.server = self.authority.issue("server", lasts=3 * DAY)

    @property
    def listener(self) -> Listener:
        if self.pair is None:
            return with_tls(self.server, authentication="token,jwt")
        return with_tls(
            self.server,
            tls_client_ca_file=self.authority.ca_file,
            tls_client_auth=ClientAuth.REQUIRED,
            authentication="certificate",
        )


def _web_token(directory: Path) -> tuple[Credential, Issuer]:
    shown = Credential(directory)
    issuer = Issuer(directory, shown.clock)
    issuer.add_key("old")
    shown.identities = Identities(jwts=ReloadingKeySet(issuer.rules, shown.clock))
    shown.token = issuer.token("old", "etl", lasts_s=HOUR_S)
    return shown, issuer


def a_web_token_expires(directory: Path) -> Credential:
    shown, _ = _web_token(directory)
    shown.end = lambda: shown.clock.advance((HOUR_S + CLOCK_SKEW_SECONDS) * 1_000)
    return shown


def the_key_of_a_web_token_is_removed(directory: Path) -> Credential:
    shown, issuer = _web_token(directory)
    issuer.add_key("new")
    shown.end = lambda: issuer.remove_key("old")
    return shown


def a_token_is_withdrawn(directory: Path) -> Credential:
    shown, tokens = Credential(directory), Tokens(directory)
    shown.token, shown.end = tokens.add("User:etl"), tokens.withdraw_all
    shown.identities = Identities(ReloadingTokens(tokens.file, shown.clock))
    return shown


def _certificate(directory: Path) -> Credential:
    shown = Credential(directory, identities=Identities(names=NameRule(NameSource.CN)))
    shown.pair = shown.authority.issue("etl")
    return shown


def a_certificate_expires(directory: Path) -> Credential:
    shown = _certificate(directory)
    shown.end = lambda: shown.clock.advance(25 * HOUR_S * 1_000)
    return shown


def the_ca_of_a_certificate_is_replaced(directory: Path) -> Credential:
    shown = _certificate(directory)
    shown.end = lambda: Authority(directory, "ca")
    return shown


ENDS = (
    a_web_token_expires,
    the_key_of_a_web_token_is_removed,
    a_token_is_withdrawn,
    a_certificate_expires,
    the_ca_of_a_certificate_is_replaced,
)


def let_pass(seconds: int, listeners: Listeners, clock: ManualClock) -> None:
    """All that the server does of itself in that time, as often as it does it."""
    for second in range(seconds):
        clock.advance(1_000)
        if second % LOOK_SECONDS == 0:
            for kept in (*listeners.identities.reloading, *listeners.credentials):
                kept.look()
        if second % AGAIN_SECONDS == 0:
            listeners.check_credentials()


async def end_of(stream: aio.StreamStreamCall[bytes, bytes]) -> grpc.StatusCode:
    while await stream.read() is not aio.EOF:
        pass
    code: grpc.StatusCode = await stream.code()
    return code


@pytest.mark.parametrize("make", ENDS)
async def test_open_sessions_end_within_a_minute_of_their_credential(
    tmp_path: Path, make: Callable[[Path], Credential]
) -> None:
    shown = make(tmp_path)
    async with (
        serving(shown.listener, shown.identities, clock=shown.clock) as (listeners, servicer),
        channel_to(listeners, shown.authority, shown.pair, shown.token) as channel,
    ):
        idle, busy = (channel.stream_stream(SESSION_PATH)() for _ in range(2))
        assert await idle.read()
        # A call without an answer: the session is not let go on for its sake.
        await busy.write(session_pb2.SessionRequest(calls=[end_txn(1)]).SerializeToString())
        await servicer.arrived.wait()
        assert servicer.contexts[-1].principal == "User:etl"
        let_pass(60, listeners, shown.clock)
        await find(channel)
        assert not idle.done()
        assert not busy.done()
        shown.end()
        let_pass(10, listeners, shown.clock)
        # The client is asked to leave, and has nothing to wait for.
        assert await end_of(idle) is grpc.StatusCode.OK
        let_pass(50, listeners, shown.clock)
        with pytest.raises(aio.AioRpcError) as refused:
            await end_of(busy)
        assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
        again = channel.stream_stream(SESSION_PATH)()
        with pytest.raises(aio.AioRpcError) as refused:
            await end_of(again)
        assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED


# A client of the SDK


def settings(authority: Authority, issuer: Issuer, super_user: str = "etl") -> dict[str, object]:
    pair = authority.issue("server")
    mine = {"tls_certificate_file": pair.certificate, "tls_key_file": pair.key, "super_users": f"User:{super_user}"}
    return issuer.settings | mine


def rule(kind: ResourceType, name: str, permission_type: PermissionType = PermissionType.ALLOW) -> Acl:
    """A rule about writing, for the client."""
    return Acl(
        principal="User:etl",
        resource_type=kind,
        resource_name=name,
        operation=Permission.WRITE,
        permission_type=permission_type,
    )


def take_up(server: InProcessServer) -> None:
    """Do the server's work of every second and of every few seconds."""
    for kept in server.listeners.identities.reloading:
        kept.look()
    server.listeners.check_credentials()


@pytest.mark.parametrize("way", [SESSION, UNARY])
async def test_a_client_goes_on_while_the_issuer_changes_its_keys(tmp_path: Path, way: str) -> None:
    authority, issuer, file = Authority(tmp_path, "ca"), Issuer(tmp_path, SystemClock()), tmp_path / "mine.jwt"
    issuer.add_key("0")
    file.write_text(issuer.token("0", "etl"))
    async with in_process_server(**settings(authority, issuer)) as server:
        connection = Connection(str(server.address), transport=way, tls=Tls(ca_file=authority.ca_file, token_file=file))
        await asyncio.to_thread(Admin(connection).create_topic, "t")
        async with AsyncProducer(connection, transactional_id="p") as producer:
            for number in range(3):
                async with producer.transaction() as txn:
                    await txn.send("t", b"%d" % number)
                issuer.add_key(f"{number + 1}")
                take_up(server)
                file.write_text(issuer.token(f"{number + 1}", "etl"))
                issuer.remove_key(f"{number}")
                take_up(server)
            issuer.add_key("4")
            issuer.remove_key("3")
            take_up(server)
            with pytest.raises(Misconfigured, match="authentication required"):
                async with producer.transaction() as txn:
                    await txn.send("t", b"3")
        file.write_text(issuer.token("4", "etl"))
        records = await asyncio.to_thread(lambda: [record.value for record in read("t", connection)])
        assert records == [b"0", b"1", b"2"]
        connection.close()


@pytest.mark.parametrize("way", [SESSION, UNARY])
async def test_a_principal_that_is_denied_is_refused_in_the_session_that_it_has(tmp_path: Path, way: str) -> None:
    authority, issuer = Authority(tmp_path, "ca"), Issuer(tmp_path, SystemClock())
    issuer.add_key("a")
    async with in_process_server(**settings(authority, issuer, "root")) as server:

        def connected(name: str) -> Connection:
            file = tmp_path / f"{name}.jwt"
            file.write_text(issuer.token("a", name))
            return Connection(str(server.address), transport=way, tls=Tls(ca_file=authority.ca_file, token_file=file))

        root, etl = connected("root"), connected("etl")
        admin = Admin(root)
        await asyncio.to_thread(admin.create_topic, "t")
        rights = [rule(ResourceType.TOPIC, "t"), rule(ResourceType.TRANSACTIONAL_ID, "p")]
        await asyncio.to_thread(admin.create_acls, rights)
        async with AsyncProducer(etl, transactional_id="p") as producer:
            async with producer.transaction() as txn:
                await txn.send("t", b"0")
            denied = rule(ResourceType.TOPIC, "*", permission_type=PermissionType.DENY)
            await asyncio.to_thread(admin.create_acls, [denied])
            with pytest.raises(Misconfigured, match="may not write"):
                async with producer.transaction() as txn:
                    await txn.send("t", b"1")
        records = await asyncio.to_thread(lambda: [record.value for record in read("t", root)])
        assert records == [b"0"]
        root.close()
        etl.close()
