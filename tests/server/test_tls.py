"""TLS on a listener: the view of a stranger, the callers kept out, and the effect of a rotation on connections."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.request import urlopen

import grpc
import pytest
from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from pydantic import ValidationError
from structlog.testing import capture_logs

from coordinator_runtime.clock import SystemClock
from coordinator_server.grpc_front.grpc_transport import INSTANCES_MAX
from coordinator_server.grpc_front.transport_choice import TransportMissing
from coordinator_server.grpc_front.transports import TransportName, TransportOptions
from coordinator_server.listeners import Listener, Listeners
from coordinator_server.security.tls import ClientAuth, TlsRefused
from coordinator_server.settings.config import Config
from coordinator_server.traffic.admission import Admission, AdmissionLimits
from tests.cli.terminal import Terminal
from tests.harness.certificates import Authority, Pair
from tests.harness.gated import GatedDispatcher
from tests.harness.patience import DEADLINE_SECONDS
from tests.harness.server_process import ServerProcess
from tests.harness.transports import skip_what_is_missing
from tests.server.fake_servicer import SERVICE
from tests.server.test_grpc_transport import listed_services

CLOCK = SystemClock()
HOST = "127.0.0.1"
OPTIONS = TransportOptions(1 << 20)
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\x04\0\0\0\0\0"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "ca")


# Settings


def config(**settings: object) -> Config:
    return Config.model_validate({"data_dir": Path("d")} | settings)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"tls_certificate_file": "c"}, "tls_certificate_file is set and tls_key_file is not"),
        ({"tls_key_file": "k"}, "tls_key_file is set and tls_certificate_file is not"),
        ({"tls_client_ca_file": "a"}, "tls_client_ca_file and tls_client_auth = requested or required go together"),
        ({"tls_client_auth": "required"}, "tls_client_ca_file and tls_client_auth = requested or required go together"),
        ({"tls_client_auth": "required", "tls_client_ca_file": "a"}, "set tls_certificate_file and tls_key_file"),
        (
            {"listen": "unix:s", "tls_certificate_file": "c", "tls_key_file": "k"},
            "a Unix socket has no TLS",
        ),
    ],
)
def test_half_of_what_tls_needs_is_refused(settings: dict[str, object], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        config(**settings)
    with pytest.raises(ValidationError, match=said):
        config(listeners=[{"listen": "127.0.0.1:1"} | settings])


def test_more_listeners_come_as_tables_or_as_json() -> None:
    wanted = (
        Listener(listen="unix:/run/txn.sock"),
        Listener(listen="127.0.0.1:7071", tls_certificate_file=Path("c"), tls_key_file=Path("k")),
    )
    tables = [
        {"listen": "unix:/run/txn.sock"},
        {"listen": "127.0.0.1:7071", "tls_certificate_file": "c", "tls_key_file": "k"},
    ]
    text = json.dumps(tables)
    for given in (tables, text):
        assert config(listeners=given).all_listeners() == (Listener(listen="127.0.0.1:7070"), *wanted)
    with pytest.raises(ValidationError, match="no list in JSON"):
        config(listeners="unix:/run/txn.sock")


# Listening


@asynccontextmanager
async def serving(
    *wanted: Listener, name: TransportName = TransportName.GRPC, options: TransportOptions = OPTIONS
) -> AsyncIterator[Listeners]:
    listeners = Listeners()
    try:
        listeners.open(wanted, name, [SERVICE.full_name], CLOCK, options)
        dispatcher = GatedDispatcher(
            [SERVICE], Admission(AdmissionLimits(), lambda: 0), CLOCK, message_bytes_max=1 << 20
        )
        await listeners.start(dispatcher)
        yield listeners
    finally:
        await listeners.give_back()


def with_tls(pair: Pair, **more: object) -> Listener:
    return Listener.model_validate(
        {"listen": f"{HOST}:0", "tls_certificate_file": pair.certificate, "tls_key_file": pair.key} | more
    )


def channel_to(port: int, authority: Authority, shown: Pair | None = None) -> aio.Channel:
    pair = () if shown is None else (shown.key.read_bytes(), shown.certificate.read_bytes())
    return aio.secure_channel(f"{HOST}:{port}", grpc.ssl_channel_credentials(authority.ca_file.read_bytes(), *pair))


async def is_alive(channel: aio.Channel) -> bool:
    response = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
    return bool(response.status == health_pb2.HealthCheckResponse.SERVING)


async def test_each_listener_has_protection_of_its_own(authority: Authority, tmp_path: Path) -> None:
    plain, unix = Listener(listen=f"{HOST}:0"), Listener(listen=f"unix:{tmp_path / 's'}")
    async with serving(plain, with_tls(authority.issue("server")), unix) as listeners:
        first, second, third = listeners.opened
        assert [each.protection for each in listeners.opened] == ["plaintext", "TLS", "plaintext"]
        async with (
            aio.insecure_channel(str(first.address)) as by_plain,
            channel_to(second.address.port, authority) as by_tls,
            aio.insecure_channel(str(third.address)) as by_unix,
        ):
            assert [await is_alive(each) for each in (by_plain, by_tls, by_unix)] == [True] * 3
        assert listeners.numbers().connections_max == 9_999, "a third of 10,000 for each"
    assert not (tmp_path / "s").exists()


async def test_a_file_that_cannot_serve_is_told_with_its_setting_and_its_listener(
    tmp_path: Path, authority: Authority
) -> None:
    good, other, no_pem = authority.issue("server"), authority.issue("other"), tmp_path / "no.pem"
    no_pem.write_text("nothing")
    asking = {"tls_client_auth": ClientAuth.REQUIRED}
    for listener, setting, why in (
        (with_tls(Pair(tmp_path / "gone", good.key)), "tls_certificate_file", "cannot be read: No such file"),
        (with_tls(Pair(no_pem, good.key)), "tls_certificate_file", "holds no certificate in PEM"),
        (with_tls(Pair(good.certificate, no_pem)), "tls_key_file", "holds no private key in PEM"),
        (with_tls(Pair(good.certificate, other.key)), "tls_key_file", "is not that of the certificate in"),
        (with_tls(good, tls_client_ca_file=no_pem, **asking), "tls_client_ca_file", "holds no certificate in PEM"),
    ):
        with pytest.raises(TlsRefused, match=rf"^listen = {HOST}:0: {setting}: .*{why}"):
            async with serving(listener):
                pass
        with pytest.raises(TlsRefused, match=rf"^metrics_listen = {HOST}:0: metrics_{setting}: .*{why}"):
            listener.credentials(CLOCK, "metrics_")


async def test_addresses_are_given_back_if_one_of_them_is_refused(tmp_path: Path, authority: Authority) -> None:
    missing = with_tls(Pair(tmp_path / "gone", tmp_path / "gone"))
    unix = Listener(listen=f"unix:{tmp_path / 's'}")
    with pytest.raises(TlsRefused, match="cannot be read"):
        async with serving(unix, missing):
            pass
    assert not (tmp_path / "s").exists()


async def test_a_stranger_without_tls_learns_nothing(authority: Authority, transport: TransportName) -> None:
    async with serving(with_tls(authority.issue("server")), name=transport) as listeners:
        said = await asyncio.to_thread(first_words, listeners.first.address.port)
    # The compiled transport answers with an alert of TLS, which says no more than that this is TLS.
    assert said[:1] in {b"", b"\x15"}


def first_words(port: int) -> bytes:
    with socket.create_connection((HOST, port)) as plug:
        try:
            plug.sendall(PREFACE)
            return plug.recv(9)
        except ConnectionError:
            return b""


async def test_tls_1_2_is_the_least(authority: Authority, transport: TransportName) -> None:
    async with serving(with_tls(authority.issue("server")), name=transport) as listeners:
        port = listeners.first.address.port
        assert await asyncio.to_thread(version_spoken, port, authority, ssl.TLSVersion.TLSv1_3) == "TLSv1.3"
        assert await asyncio.to_thread(version_spoken, port, authority, ssl.TLSVersion.TLSv1_2) == "TLSv1.2"
        with pytest.raises((ssl.SSLError, ConnectionResetError)):
            await asyncio.to_thread(version_spoken, port, authority, ssl.TLSVersion.TLSv1_1)


def version_spoken(port: int, authority: Authority, only: ssl.TLSVersion) -> str | None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(authority.ca_file)
    context.set_alpn_protocols(["h2"])
    # Any cipher that this machine's library still knows, so that the refusal is the server's.
    context.set_ciphers("ALL:@SECLEVEL=0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version = context.maximum_version = only
    with socket.create_connection((HOST, port)) as plug, context.wrap_socket(plug, server_hostname=HOST) as spoken:
        return spoken.version()


async def test_who_shows_no_certificate_is_kept_out_where_one_is_required(
    tmp_path: Path, authority: Authority, transport: TransportName
) -> None:
    required = with_tls(
        authority.issue("server"), tls_client_ca_file=authority.ca_file, tls_client_auth=ClientAuth.REQUIRED
    )
    stranger = Authority(tmp_path, "strangers").issue("stranger")
    async with serving(required, name=transport) as listeners:
        port = listeners.first.address.port
        async with channel_to(port, authority, authority.issue("client")) as channel:
            assert await is_alive(channel)
        for shown in (None, stranger):
            async with channel_to(port, authority, shown) as channel:
                with pytest.raises(aio.AioRpcError) as error:
                    await is_alive(channel)
            assert error.value.code() is grpc.StatusCode.UNAVAILABLE
        # A client that is refused may try again of itself.
        assert listeners.numbers().handshakes >= 3


async def test_grpc_cannot_ask_for_certificates_that_may_be_left_out(authority: Authority) -> None:
    requested = with_tls(
        authority.issue("server"), tls_client_ca_file=authority.ca_file, tls_client_auth=ClientAuth.REQUESTED
    )
    with pytest.raises(TransportMissing, match="tls_client_auth = requested: the transport grpc cannot"):
        async with serving(requested):
            pass


async def test_the_compiled_transport_asks_for_certificates_that_may_be_left_out(
    tmp_path: Path, authority: Authority
) -> None:
    skip_what_is_missing(TransportName.NATIVE)
    requested = with_tls(
        authority.issue("server"), tls_client_ca_file=authority.ca_file, tls_client_auth=ClientAuth.REQUESTED
    )
    stranger = Authority(tmp_path, "strangers").issue("stranger")
    async with serving(requested, name=TransportName.NATIVE) as listeners:
        port = listeners.first.address.port
        for shown in (None, authority.issue("client")):
            async with channel_to(port, authority, shown) as channel:
                assert await is_alive(channel)
        async with channel_to(port, authority, stranger) as channel:
            with pytest.raises(aio.AioRpcError):
                await is_alive(channel)


async def test_the_compiled_transport_tells_the_operator_of_handshakes_that_fail(authority: Authority) -> None:
    skip_what_is_missing(TransportName.NATIVE)
    async with serving(with_tls(authority.issue("server")), name=TransportName.NATIVE) as listeners:
        port = listeners.first.address.port
        with capture_logs() as lines:
            await asyncio.to_thread(first_words, port)
            async with channel_to(port, authority) as channel:
                assert await is_alive(channel)
        assert listeners.numbers().abuses["handshakes"] == 1
        assert listeners.numbers().handshakes == 2
    (line,) = (line for line in lines if line["event"] == "harm")
    assert line["kind"] == "handshakes"
    assert line["details"].startswith(f"{HOST}: ")


async def test_a_host_whose_handshakes_fail_all_the_time_is_not_heard_for_moments(authority: Authority) -> None:
    skip_what_is_missing(TransportName.NATIVE)
    async with serving(with_tls(authority.issue("server")), name=TransportName.NATIVE) as listeners:
        port = listeners.first.address.port

        def fail_until_it_is_cut() -> int:
            failed = 0
            while not listeners.numbers().abuses["strangers"]:
                first_words(port)
                failed += 1
            return failed

        assert await asyncio.to_thread(fail_until_it_is_cut) > 200
        async with channel_to(port, authority) as channel:
            await channel.channel_ready()
            assert await is_alive(channel)


async def test_silent_callers_delay_no_other(authority: Authority, transport: TransportName) -> None:
    async with serving(with_tls(authority.issue("server")), name=transport) as listeners:
        port = listeners.first.address.port
        silent = [socket.create_connection((HOST, port)) for _ in range(50)]
        try:
            async with channel_to(port, authority) as channel:
                assert await is_alive(channel)
        finally:
            for each in silent:
                each.close()


async def test_connections_after_a_rotation_get_what_is_new(
    tmp_path: Path, authority: Authority, transport: TransportName
) -> None:
    pair, later = authority.issue("server"), Authority(tmp_path, "later")
    async with serving(with_tls(pair), name=transport) as listeners:
        port = listeners.first.address.port
        async with channel_to(port, authority) as before:
            assert await is_alive(before)
            pair.replace_by(later.issue("next"))
            kept = listeners.first.credentials
            assert kept is not None
            kept.look()
            async with channel_to(port, later) as after:
                assert await is_alive(after)
            assert await is_alive(before), "an open connection goes on"
        async with channel_to(port, authority) as late:
            with pytest.raises(aio.AioRpcError):
                await is_alive(late)


async def test_every_connection_after_a_rotation_gets_the_new_certificate(
    authority: Authority, transport: TransportName
) -> None:
    pair = authority.issue("server")
    async with serving(with_tls(pair), name=transport) as listeners:
        address = HOST, listeners.first.address.port
        old = await asyncio.to_thread(ssl.get_server_certificate, address)
        pair.replace_by(authority.issue("next"))
        kept = listeners.first.credentials
        assert kept is not None
        kept.look()
        # More than share the port: the system chooses which of them takes a connection.
        for _ in range(4 * INSTANCES_MAX):
            assert await asyncio.to_thread(ssl.get_server_certificate, address) != old


# Beyond this machine


SAFE = {"tls_certificate_file": "c", "tls_key_file": "k"}
ASKING = {"authentication": "token"}


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "[::]", "txn.example"])
def test_beyond_this_machine_it_serves_with_all_protection_or_with_the_word_insecure(host: str) -> None:
    listen, scrapes = {"listen": f"{host}:7070"}, {"metrics_listen": f"{host}:9464"}
    safe_scrapes = scrapes | {f"metrics_{name}": value for name, value in SAFE.items()}
    no_tls = "others can reach it, read along and change everything, because it has no TLS; set .* --insecure"
    without_authentication = "it authenticates no caller; set authentication, .* --insecure"
    for settings, said, address in (
        (listen, no_tls, f"{host}:7070"),
        ({"listeners": [listen]}, no_tls, f"{host}:7070"),
        (scrapes, no_tls, f"{host}:9464"),
        (listen | SAFE, without_authentication, f"{host}:7070"),
        ({"listeners": [listen | SAFE]}, without_authentication, f"{host}:7070"),
    ):
        with pytest.raises(ValidationError, match=said):
            config(**settings)
        assert [str(each.address) for each in config(**settings, insecure=True).insecure_listeners()] == [address]
    for settings in (
        listen | SAFE | ASKING | {"tokens_file": "t"},
        {"listeners": [listen | SAFE | ASKING], "tokens_file": "t"},
        safe_scrapes,
    ):
        assert config(**settings).insecure_listeners() == ()


@pytest.mark.parametrize("listen", ["127.0.0.1:0", "[::1]:0", "localhost:0", "unix:/run/txn.sock"])
def test_on_this_machine_nothing_is_asked_for(listen: str) -> None:
    assert config(listen=listen).insecure_listeners() == ()


def test_a_refused_start_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    txnctl = Terminal(monkeypatch)
    words = ("config", "show", "--data-dir", str(tmp_path / "d"), "--listen", "0.0.0.0:7070")
    txnctl(*words).refused(
        2, "listen = 0.0.0.0:7070: others can reach it", "set tls_certificate_file and tls_key_file", "--insecure"
    )
    shown = txnctl(*words, "--insecure", "-o", "json").well().document
    assert {row["name"]: row["value"] for row in shown}["insecure"] is True


async def test_reflection_is_off_beyond_this_machine(authority: Authority, transport: TransportName) -> None:
    everywhere = with_tls(authority.issue("server"), listen="0.0.0.0:0")
    options = TransportOptions(1 << 20, has_reflection=True)
    async with serving(Listener(listen=f"{HOST}:0"), everywhere, options=options, name=transport) as listeners:
        here, there = listeners.opened
        async with (
            aio.insecure_channel(str(here.address)) as by_plain,
            channel_to(there.address.port, authority) as by_tls,
        ):
            assert await listed_services(by_plain) is not None
            assert await listed_services(by_tls) is None


@pytest.mark.slow
def test_a_server_says_how_it_is_protected_and_counts_what_is_not(tmp_path: Path, authority: Authority) -> None:
    pair = authority.issue("server")
    files = ("--set", f"tls_certificate_file={pair.certificate}", "--set", f"tls_key_file={pair.key}")
    metrics = ("--set", "metrics_listen=0.0.0.0:0", "--insecure", "--set", "log_format=json")
    with ServerProcess(tmp_path / "data", *files, *metrics) as server:
        lines = [json.loads(line) for line in server.output.splitlines() if line.startswith("{")]
        told = {line["event"]: line for line in lines}
        assert told["serving"]["protection"] == "TLS"
        assert told["insecure_listener"]["listen"] == "0.0.0.0:0"
        port = str(told["serving_metrics"]["listen"]).rpartition(":")[2]
        with urlopen(f"http://{HOST}:{port}/metrics", timeout=DEADLINE_SECONDS) as response:
            text = response.read().decode()
        assert "txn_insecure_listeners 1.0" in text
        assert f'txn_tls_files_refused{{listen="{server.address}"}} 0.0' in text
        assert f'txn_tls_certificate_expiry_timestamp_seconds{{listen="{server.address}"}}' in text
        assert server.terminate() == 0
