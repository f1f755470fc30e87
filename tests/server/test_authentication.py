"""Callers on a listener with authentication: their principals, open sessions, and calls of strangers."""

from __future__ import annotations

from pathlib import Path

import grpc
import pytest
from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from pydantic import ValidationError

from coordinator_api.v1 import session_pb2, transaction_pb2
from coordinator_client.transport.grpc_transport import SESSION_PATH
from coordinator_protocol.acls import ANONYMOUS
from coordinator_protocol.errors import ErrorClass, ErrorCode
from coordinator_server.grpc_front.transports import TransportName
from coordinator_server.listeners import Identities, Listener
from coordinator_server.security.authentication import (
    LEFT_TO_END_SECONDS,
    AuthenticationMethod,
    Authenticator,
    NameRule,
    NameSource,
    Presented,
    Reason,
    SessionCredentials,
)
from coordinator_server.security.tls import ClientAuth
from coordinator_server.security.tokens import ReloadingTokens
from coordinator_server.settings.config import Config
from tests.harness.certificates import Authority
from tests.harness.manual_clock import ManualClock
from tests.harness.transports import skip_what_is_missing
from tests.server.asking_server import (
    CLOCK,
    HOST,
    Tokens,
    bearer,
    channel_to,
    end_txn,
    find,
    names,
    reason,
    serving,
    with_tls,
)
from tests.server.fake_servicer import FIND_COORDINATOR


def test_a_token_is_not_taken_where_only_certificates_are(tokens: Tokens, authority: Authority) -> None:
    pair = authority.issue("client")
    who = Authenticator(CLOCK, certificates=names(authority))
    shown = Presented(f"Bearer {tokens.add('User:etl')}", (pair.certificate.read_bytes(),))
    assert reason(who, shown) is Reason.NO_TOKEN_TAKEN
    both = Authenticator(CLOCK, tokens=ReloadingTokens(tokens.file, CLOCK), certificates=names(authority))
    assert both.principal(shown, HOST) == "User:etl"
    assert reason(both, Presented("Bearer no", shown.certificates)) is Reason.UNKNOWN_TOKEN


# Sessions


class FakeSession:
    def __init__(self) -> None:
        self.told: list[str] = []

    def announce_stop(self) -> None:
        self.told.append("ends")

    def cut(self) -> None:
        self.told.append("cut")


def test_a_session_ends_with_its_credential_and_is_cut_where_it_lingers(tokens: Tokens) -> None:
    clock, token, other = ManualClock(), tokens.add("User:etl"), tokens.add("User:other")
    kept = ReloadingTokens(tokens.file, clock)
    sessions = SessionCredentials(Authenticator(clock, tokens=kept), clock)
    mine, left, stays = FakeSession(), FakeSession(), FakeSession()
    for session, shown in ((mine, token), (left, token), (stays, other)):
        sessions.watch(session, bearer(shown), HOST, kept.of_token(shown))
    sessions.check_again()
    tokens.file.write_text(tokens.file.read_text().replace("User:etl", "User:somebody"))
    kept.look()
    sessions.check_again()
    sessions.check_again()
    assert [mine.told, left.told, stays.told] == [["ends"], ["ends"], []]
    sessions.forget(left)
    clock.advance(int(LEFT_TO_END_SECONDS * 1_000))
    sessions.check_again()
    sessions.check_again()
    assert [mine.told, left.told, stays.told] == [["ends", "cut"], ["ends"], []]


# On the wire

on_both = pytest.mark.usefixtures("transport")


@on_both
async def test_the_principal_of_a_call_is_that_of_its_token(tokens: Tokens, authority: Authority) -> None:
    etl, kept = tokens.add("User:etl"), ReloadingTokens(tokens.file, CLOCK)
    listener = with_tls(authority.issue("server"), authentication="token")
    async with serving(listener, Identities(kept)) as (listeners, servicer):
        async with channel_to(listeners, authority, token=etl) as channel:
            await find(channel)
        assert servicer.contexts[-1].principal == "User:etl"
        for token in ("", "txl_no_such"):
            async with channel_to(listeners, authority, token=token) as channel:
                for method, body in ((FIND_COORDINATOR, b""), (FIND_COORDINATOR, b"\xff"), ("/no/Method", b"")):
                    with pytest.raises(aio.AioRpcError) as refused:
                        await find(channel, method, body)
                    status = refused.value.code(), refused.value.details()
                    assert status == (grpc.StatusCode.UNAUTHENTICATED, "authentication required")
                stream = channel.stream_stream(SESSION_PATH)()
                with pytest.raises(aio.AioRpcError) as refused:
                    await stream.read()
                assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
        assert len(servicer.contexts) == 1
        assert {name: number for name, number in listeners.numbers().unauthenticated.items() if number} == {
            "nothing_shown": 4,
            "unknown_token": 4,
        }


@on_both
async def test_the_principal_of_a_call_is_that_of_its_certificate(authority: Authority) -> None:
    listener = with_tls(
        authority.issue("server"),
        tls_client_ca_file=authority.ca_file,
        tls_client_auth=ClientAuth.REQUIRED,
        authentication="certificate",
    )
    async with serving(listener, Identities(names=NameRule(NameSource.CN))) as (listeners, servicer):
        for name in ("etl", "other"):
            async with channel_to(listeners, authority, authority.issue(name)) as channel:
                await find(channel)
            assert servicer.contexts[-1].principal == f"User:{name}"


async def test_where_certificates_are_only_requested_a_token_will_do(tokens: Tokens, authority: Authority) -> None:
    skip_what_is_missing(TransportName.NATIVE)
    listener = with_tls(
        authority.issue("server"),
        tls_client_ca_file=authority.ca_file,
        tls_client_auth=ClientAuth.REQUESTED,
        authentication="certificate,token",
    )
    etl, pair = tokens.add("User:etl"), authority.issue("other")
    identities = Identities(ReloadingTokens(tokens.file, CLOCK), names=NameRule(NameSource.CN))
    async with serving(listener, identities, TransportName.NATIVE) as (listeners, servicer):
        for shown, token, principal in ((None, etl, "User:etl"), (pair, "", "User:other"), (pair, etl, "User:etl")):
            async with channel_to(listeners, authority, shown, token) as channel:
                await find(channel)
            assert servicer.contexts[-1].principal == principal
        for shown, token in ((None, ""), (pair, "txl_no_such")):
            async with channel_to(listeners, authority, shown, token) as channel:
                with pytest.raises(aio.AioRpcError) as refused:
                    await find(channel)
                assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED


@on_both
async def test_a_listener_without_authentication_names_every_caller(tmp_path: Path) -> None:
    for given, principal in (({}, ANONYMOUS), ({"principal": "User:local"}, "User:local")):
        listener = Listener.model_validate({"listen": f"{HOST}:0"} | given)
        async with serving(listener, Identities()) as (listeners, servicer):
            async with aio.insecure_channel(str(listeners.first.address)) as channel:
                await find(channel)
            assert servicer.contexts[-1].principal == principal


@on_both
async def test_a_revoked_session_is_answered_and_then_ends(tokens: Tokens, authority: Authority) -> None:
    etl, kept = tokens.add("User:etl"), ReloadingTokens(tokens.file, CLOCK)
    listener = with_tls(authority.issue("server"), authentication="token")
    async with (
        serving(listener, Identities(kept)) as (listeners, servicer),
        channel_to(listeners, authority, token=etl) as channel,
    ):
        stream = channel.stream_stream(SESSION_PATH)()
        await stream.write(session_pb2.SessionRequest(calls=[end_txn(1)]).SerializeToString())
        await servicer.arrived.wait()
        tokens.withdraw_all()
        kept.look()
        listeners.check_credentials()
        response = session_pb2.SessionResponse.FromString(await stream.read())
        while not response.is_draining:
            response = session_pb2.SessionResponse.FromString(await stream.read())
        servicer.waiting[0].succeed(transaction_pb2.EndTxnResponse())
        answered = session_pb2.SessionResponse.FromString(await stream.read())
        assert [answer.correlation_id for answer in answered.answers] == [1]
        assert await stream.read() is aio.EOF
        again = channel.stream_stream(SESSION_PATH)()
        with pytest.raises(aio.AioRpcError) as refused:
            await again.read()
        assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED


@on_both
async def test_a_revoked_session_begins_nothing_more_and_answers_all_the_same(
    tokens: Tokens, authority: Authority
) -> None:
    etl, kept = tokens.add("User:etl"), ReloadingTokens(tokens.file, CLOCK)
    listener = with_tls(authority.issue("server"), authentication="token")
    async with (
        serving(listener, Identities(kept)) as (listeners, servicer),
        channel_to(listeners, authority, token=etl) as channel,
    ):
        stream = channel.stream_stream(SESSION_PATH)()
        await stream.write(session_pb2.SessionRequest(calls=[end_txn(1)]).SerializeToString())
        await servicer.arrived.wait()
        tokens.withdraw_all()
        kept.look()
        listeners.check_credentials()
        await stream.write(session_pb2.SessionRequest(calls=[end_txn(2)]).SerializeToString())
        answers = {}
        while isinstance(body := await stream.read(), bytes):
            for answer in session_pb2.SessionResponse.FromString(body).answers:
                response = transaction_pb2.EndTxnResponse.FromString(answer.body)
                answers[answer.correlation_id] = (response.error_code, response.error_class)
                servicer.waiting[0].succeed(transaction_pb2.EndTxnResponse())
        refused = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorClass.REFRESH)
        assert (answers, list(answers)) == ({2: refused, 1: (0, 0)}, [2, 1])
        assert len(servicer.waiting) == 1
        assert await stream.code() is grpc.StatusCode.OK


@pytest.mark.parametrize("transport", [TransportName.GRPC, TransportName.NATIVE])
async def test_nothing_of_a_strangers_call_is_read(
    tokens: Tokens, authority: Authority, transport: TransportName
) -> None:
    skip_what_is_missing(transport)
    etl, kept = tokens.add("User:etl"), ReloadingTokens(tokens.file, CLOCK)
    listener = with_tls(authority.issue("server"), authentication="token")
    async with serving(listener, Identities(kept), transport) as (listeners, servicer):
        # Larger than the server takes, which only a known caller learns.
        for token, code in (("", "UNAUTHENTICATED"), ("txl_no_such", "UNAUTHENTICATED"), (etl, "RESOURCE_EXHAUSTED")):
            async with channel_to(listeners, authority, token=token) as channel:
                with pytest.raises(aio.AioRpcError) as refused:
                    await find(channel, body=bytes(2 << 20))
                assert refused.value.code().name == code
                health = health_pb2_grpc.HealthStub(channel)
                assert (await health.Check(health_pb2.HealthCheckRequest())).status
        assert not servicer.contexts


async def test_a_call_without_a_request_is_refused(tokens: Tokens, authority: Authority) -> None:
    etl, kept = tokens.add("User:etl"), ReloadingTokens(tokens.file, CLOCK)
    listener = with_tls(authority.issue("server"), authentication="token")
    async with (
        serving(listener, Identities(kept), TransportName.GRPC) as (listeners, servicer),
        channel_to(listeners, authority, token=etl) as channel,
    ):
        call = channel.stream_unary(FIND_COORDINATOR)(iter(()))
        with pytest.raises(aio.AioRpcError, match="the call ended without a request"):
            await call
        assert not servicer.contexts


# Settings


SAFE = {"tls_certificate_file": "c", "tls_key_file": "k"}


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"authentication": "password"}, "'password' is no way to authenticate; there are certificate, token, jwt"),
        (SAFE | {"authentication": "certificate"}, "tls_client_auth = required or requested"),
        ({"authentication": "token", "tokens_file": "t"}, "a token that travels without TLS is everybody's"),
        (SAFE | {"authentication": "token"}, "authentication = token needs tokens_file"),
        (
            SAFE | {"authentication": "token", "tokens_file": "t", "principal": "User:a"},
            "principal is for listeners without authentication",
        ),
        ({"principal": "somebody"}, "write User:NAME"),
        ({"principal_pattern": "("}, "principal_pattern is no regular expression"),
        ({"super_users": "User:a; b"}, "super_users = User:a; b: 'b' is no principal: write User:NAME"),
        (SAFE | {"listen": "10.0.0.1:7070"}, "it authenticates no caller; set authentication"),
    ],
)
def test_settings_that_protect_nothing_are_refused(settings: dict[str, str], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        Config.model_validate({"data_dir": "d"} | settings)


def test_rules_of_access_hold_as_soon_as_one_listener_asks() -> None:
    open_to_all = Config.model_validate({"data_dir": "d"})
    asking = Config.model_validate(
        {
            "data_dir": "d",
            "tokens_file": "t",
            "super_users": "User:root;User:CN=ops,O=Example",
            "listeners": [
                {"listen": "0.0.0.0:7071", "tls_certificate_file": "c", "tls_key_file": "k", "authentication": "token"}
            ],
        }
    )
    assert not open_to_all.core_config().enforces_acls
    assert asking.core_config().enforces_acls
    assert asking.core_config().super_users == ("User:root", "User:CN=ops,O=Example")
    assert asking.all_listeners()[1].methods == {AuthenticationMethod.TOKEN}
