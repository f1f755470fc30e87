"""Who calls: certificates and tokens on a listener, what strangers learn, and what becomes of open sessions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest
from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from pydantic import ValidationError
from structlog.testing import capture_logs

from coordinator_api.v1 import session_pb2, transaction_pb2
from coordinator_client.transport.grpc_transport import SESSION_PATH
from coordinator_protocol.acls import ANONYMOUS
from coordinator_protocol.errors import ErrorClass, ErrorCode
from coordinator_runtime.clock import Clock, SystemClock
from coordinator_server.grpc_front.transports import TransportName, TransportOptions
from coordinator_server.listeners import Identities, Listener, Listeners
from coordinator_server.security.authentication import (
    LEFT_TO_END_SECONDS,
    AuthenticationMethod,
    Authenticator,
    NameRule,
    NameSource,
    Presented,
    Reason,
    SessionCredentials,
    Unauthenticated,
)
from coordinator_server.security.certificates import CertificateNames
from coordinator_server.security.tls import ClientAuth
from coordinator_server.security.tokens import ReloadingTokens, TokensRefused, new_token, read_tokens
from coordinator_server.settings.config import Config
from coordinator_server.traffic.admission import Admission, AdmissionLimits
from tests.cli.terminal import Terminal
from tests.harness.certificates import DAY, Authority, Pair
from tests.harness.gated import GatedDispatcher
from tests.harness.manual_clock import ManualClock
from tests.harness.transports import skip_what_is_missing, wanted_transport
from tests.server.fake_servicer import FIND_COORDINATOR, SERVICE, FakeTransactionServicer

CLOCK = SystemClock()
HOST = "127.0.0.1"
HOUR_MS = 3_600_000


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "ca")


class Tokens:
    """A tokens file, and the tokens that were put into it."""

    def __init__(self, directory: Path) -> None:
        self.file = directory / "tokens.toml"
        self.file.write_text("")
        self._made = 0

    def add(self, principal: str, *, expires: str = "") -> str:
        self._made += 1
        token, table = new_token(f"t{self._made}", bytes([self._made]) * 32, principal, None)
        self.file.write_text(self.file.read_text() + table + (f"expires = {expires}\n" if expires else ""))
        return token

    def withdraw_all(self) -> None:
        self.file.write_text("# nobody\n")


def secret_of(token: str) -> str:
    """What of a token is a secret, behind its prefix and its id; it may hold underscores of its own."""
    _prefix, _id, secret = token.split("_", 2)
    return secret


@pytest.fixture
def tokens(tmp_path: Path) -> Tokens:
    return Tokens(tmp_path)


def reason(authenticator: Authenticator, shown: Presented) -> Reason:
    with pytest.raises(Unauthenticated) as refused:
        authenticator.principal(shown, "10.0.0.7")
    assert refused.value.message == "authentication required"
    return refused.value.reason


def bearer(token: str) -> Presented:
    return Presented(f"Bearer {token}")


# Tokens


def test_a_token_names_its_principal(tokens: Tokens) -> None:
    etl, other = tokens.add("User:etl"), tokens.add('User:a "b" c')
    who = Authenticator(CLOCK, tokens=ReloadingTokens(tokens.file, CLOCK))
    assert who.principal(bearer(etl), HOST) == "User:etl"
    assert who.principal(Presented(f"bearer {other}"), HOST) == 'User:a "b" c'


def test_every_stranger_is_told_the_same_and_the_operator_why(tokens: Tokens) -> None:
    etl, old = tokens.add("User:etl"), tokens.add("User:old", expires="2020-01-01T00:00:00Z")
    who = Authenticator(CLOCK, tokens=ReloadingTokens(tokens.file, CLOCK))
    with capture_logs() as log:
        assert reason(who, Presented()) is Reason.NOTHING_SHOWN
        assert reason(who, Presented(etl)) is Reason.NO_BEARER
        assert reason(who, bearer(etl[:-1])) is Reason.UNKNOWN_TOKEN
        assert reason(who, bearer("txl_t9_" + secret_of(etl))) is Reason.UNKNOWN_TOKEN
        assert reason(who, bearer("tyl" + etl[3:])) is Reason.UNKNOWN_TOKEN
        assert reason(who, bearer("")) is Reason.UNKNOWN_TOKEN
        assert reason(who, bearer("x" * 100_000)) is Reason.UNKNOWN_TOKEN
        assert reason(who, bearer(old)) is Reason.EXPIRED_TOKEN
        assert reason(who, bearer(old)) is Reason.EXPIRED_TOKEN
    assert who.refusals == {"nothing_shown": 1, "no_bearer": 1, "unknown_token": 5, "expired_token": 2}
    # One line a second for each reason.
    assert [line["reason"] for line in log] == ["nothing_shown", "no_bearer", "unknown_token", "expired_token"]
    assert log[-1]["details"] == "token t2 of User:old"
    for secret in (etl, old, secret_of(etl)):
        assert secret not in repr(log)
        assert secret not in repr(bearer(secret))


def test_a_token_is_not_taken_where_only_certificates_are(tokens: Tokens, authority: Authority) -> None:
    pair = authority.issue("client")
    who = Authenticator(CLOCK, certificates=names(authority))
    shown = Presented(f"Bearer {tokens.add('User:etl')}", (pair.certificate.read_bytes(),))
    assert reason(who, shown) is Reason.NO_TOKEN_TAKEN
    both = Authenticator(CLOCK, tokens=ReloadingTokens(tokens.file, CLOCK), certificates=names(authority))
    assert both.principal(shown, HOST) == "User:etl"
    assert reason(both, Presented("Bearer no", shown.certificates)) is Reason.UNKNOWN_TOKEN


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("[[tokens]", "is no TOML"),
        ("[[token]]\nid = 'a'", "token is unknown; did you mean tokens?"),
        ("[[tokens]]\nid = 'a b'\nprincipal = 'User:a'\nsha256 = '" + "0" * 64 + "'", "tokens.0.id"),
        ("[[tokens]]\nid = 'a'\nprincipal = 'a'\nsha256 = '" + "0" * 64 + "'", "write User:NAME"),
        ("[[tokens]]\nid = 'a'\nprincipal = 'User:*'\nsha256 = '" + "0" * 64 + "'", "a token is one caller's"),
        ("[[tokens]]\nid = 'a'\nprincipal = 'User:a'\nsha256 = 'secret'", "tokens.0.sha256"),
        (2 * ("[[tokens]]\nid = 'a'\nprincipal = 'User:a'\nsha256 = '" + "0" * 64 + "'\n"), "two tokens of one id"),
    ],
)
def test_half_a_file_is_refused_and_the_old_tokens_count(tokens: Tokens, content: str, said: str) -> None:
    etl = tokens.add("User:etl")
    kept = ReloadingTokens(tokens.file, CLOCK)
    tokens.file.write_text(content)
    with pytest.raises(TokensRefused, match=said) as refused:
        read_tokens(tokens.file)
    assert "'secret'" not in str(refused.value)
    with capture_logs() as log:
        kept.look()
        kept.look()
    assert [line["event"] for line in log] == ["tokens_refused"]
    assert kept.refusal is not None
    assert kept.of_token(etl) == "User:etl"


def test_a_withdrawn_token_counts_no_more_and_a_new_one_does(tokens: Tokens) -> None:
    old = tokens.add("User:etl")
    kept = ReloadingTokens(tokens.file, CLOCK)
    tokens.withdraw_all()
    new = tokens.add("User:etl")
    kept.look()
    assert kept.of_token(new) == "User:etl"
    with pytest.raises(Unauthenticated):
        kept.of_token(old)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(TokensRefused, match="gone cannot be read: No such file"):
        ReloadingTokens(tmp_path / "gone", CLOCK)


# Certificates


def names(authority: Authority, rule: NameRule | None = None, clock: ManualClock | None = None) -> CertificateNames:
    return CertificateNames(authority.ca_file.read_bytes, rule or NameRule(), clock or CLOCK)


def of_certificate(found: CertificateNames, pair: Pair) -> str:
    return found.of_certificates((pair.certificate.read_bytes(),))


@pytest.mark.parametrize(
    ("rule", "principal"),
    [
        (NameRule(), "User:CN=etl"),
        (NameRule(NameSource.CN), "User:etl"),
        (NameRule(NameSource.DNS, r"(.+)\.jobs\.example"), "User:nightly"),
        (NameRule(NameSource.DNS, r"nightly.*"), "User:nightly.jobs.example"),
    ],
)
def test_a_certificate_names_its_principal_by_the_rule(authority: Authority, rule: NameRule, principal: str) -> None:
    pair = authority.issue("etl", "nightly.jobs.example", "etl.example", is_server=False)
    assert of_certificate(names(authority, rule), pair) == principal


@pytest.mark.parametrize(
    "rule",
    [
        NameRule(NameSource.URI),
        NameRule(NameSource.DNS),
        NameRule(NameSource.CN, "other"),
        NameRule(NameSource.DNS, "()e.*"),
    ],
)
def test_no_name_several_names_and_an_empty_one_are_refused(authority: Authority, rule: NameRule) -> None:
    pair = authority.issue("etl", "nightly.jobs.example", "etl.example")
    with pytest.raises(Unauthenticated) as refused:
        of_certificate(names(authority, rule), pair)
    assert refused.value.reason is Reason.NO_PRINCIPAL


def test_a_certificate_called_everybody_is_nobody(authority: Authority) -> None:
    with pytest.raises(Unauthenticated) as refused:
        of_certificate(names(authority, NameRule(NameSource.CN)), authority.issue("*", "a"))
    assert refused.value.reason is Reason.NO_PRINCIPAL


def test_what_expires_or_loses_its_ca_after_the_handshake_counts_no_more(authority: Authority, tmp_path: Path) -> None:
    pair, clock = authority.issue("etl", lasts=DAY), ManualClock(wall_ms=CLOCK.wall_ms())
    found = names(authority, clock=clock)
    assert of_certificate(found, pair) == "User:CN=etl"
    clock.advance(25 * HOUR_MS)
    with pytest.raises(Unauthenticated) as refused:
        of_certificate(found, pair)
    assert refused.value.reason is Reason.EXPIRED_CERTIFICATE
    found = names(authority)
    of_certificate(found, pair)
    Authority(tmp_path, "ca")
    with pytest.raises(Unauthenticated) as refused:
        of_certificate(found, pair)
    assert refused.value.reason is Reason.UNKNOWN_CA


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


@asynccontextmanager
async def serving(
    listener: Listener,
    identities: Identities,
    name: TransportName | None = None,
    *,
    clock: Clock = CLOCK,
    options: TransportOptions | None = None,
) -> AsyncIterator[tuple[Listeners, FakeTransactionServicer]]:
    listeners, servicer = Listeners(), FakeTransactionServicer()
    try:
        options = options or TransportOptions(1 << 20)
        listeners.open([listener], name or wanted_transport(), [SERVICE.full_name], clock, options, identities)
        dispatcher = GatedDispatcher(
            [SERVICE], Admission(AdmissionLimits(), lambda: 0), CLOCK, message_bytes_max=1 << 20
        )
        dispatcher.open([servicer])
        await listeners.start(dispatcher)
        yield listeners, servicer
    finally:
        await listeners.give_back()


def with_tls(pair: Pair, **more: object) -> Listener:
    return Listener.model_validate(
        {"listen": f"{HOST}:0", "tls_certificate_file": pair.certificate, "tls_key_file": pair.key} | more
    )


def channel_to(listeners: Listeners, authority: Authority, shown: Pair | None = None, token: str = "") -> aio.Channel:
    pair = () if shown is None else (shown.key.read_bytes(), shown.certificate.read_bytes())
    credentials = grpc.ssl_channel_credentials(authority.ca_file.read_bytes(), *pair)
    if token:
        credentials = grpc.composite_channel_credentials(credentials, grpc.access_token_call_credentials(token))
    return aio.secure_channel(str(listeners.first.address), credentials)


async def find(channel: aio.Channel, method: str = FIND_COORDINATOR, body: bytes = b"") -> bytes:
    answer: bytes = await channel.unary_unary(method)(body)
    return answer


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
async def test_a_listener_that_asks_nobody_names_everybody(tmp_path: Path) -> None:
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


def end_txn(correlation_id: int) -> session_pb2.SessionCall:
    return session_pb2.SessionCall(
        correlation_id=correlation_id,
        method=f"/{SERVICE.full_name}/EndTxn",
        body=transaction_pb2.EndTxnRequest().SerializeToString(),
    )


@pytest.mark.parametrize("transport", [TransportName.GRPC, TransportName.NATIVE])
async def test_nothing_of_a_strangers_call_is_read(
    tokens: Tokens, authority: Authority, transport: TransportName
) -> None:
    skip_what_is_missing(transport)
    etl, kept = tokens.add("User:etl"), ReloadingTokens(tokens.file, CLOCK)
    listener = with_tls(authority.issue("server"), authentication="token")
    async with serving(listener, Identities(kept), transport) as (listeners, servicer):
        # Larger than the server takes, which only who is known is told.
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
            "principal is for listeners that ask nobody",
        ),
        ({"principal": "somebody"}, "write User:NAME"),
        ({"principal_pattern": "("}, "principal_pattern is no regular expression"),
        ({"super_users": "User:a; b"}, "super_users = User:a; b: 'b' is no principal: write User:NAME"),
        (SAFE | {"listen": "10.0.0.1:7070"}, "asks nobody who they are; set authentication"),
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


# The command


def test_tokens_are_made_and_listed_without_their_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    txnctl, file = Terminal(monkeypatch), tmp_path / "tokens.toml"
    made = txnctl("token", "create", str(file), "--principal", "User:etl", "--id", "etl-1", "--expires", "90d").well()
    token = made.stdout.strip()
    assert ReloadingTokens(file, CLOCK).of_token(token) == "User:etl"
    assert file.stat().st_mode & 0o777 == 0o600
    other = txnctl("token", "create", str(file), "--principal", "User:b", "--id", "b").well().stdout.strip()
    assert ReloadingTokens(file, CLOCK).of_token(other) == "User:b"
    shown = txnctl("token", "list", str(file), "-o", "json").well().document
    assert [(row["id"], row["principal"], row["expires"] is None) for row in shown] == [
        ("etl-1", "User:etl", False),
        ("b", "User:b", True),
    ]
    assert secret_of(token) not in file.read_text()
    txnctl("token", "create", str(file), "--principal", "User:c", "--id", "b").refused(2, "has a token b already")
    txnctl("token", "create", str(file), "--principal", "c", "--id", "c").refused(
        2, "--principal: 'c' is no principal: write User:NAME"
    )
    txnctl("token", "create", str(file), "--principal", "User:c", "--id", "c c").refused(2, "--id")
