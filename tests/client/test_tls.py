"""TLS errors of a client: wrong files before anything is opened, and faults of the other side at first contact, in
words; certificates of its own that change while it runs."""

from __future__ import annotations

import asyncio
import pickle
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import grpc
import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from grpc import aio

from coordinator_api.v1 import log_pb2
from coordinator_client import Connection, Misconfigured, Tls
from coordinator_client.calls import DESCRIBE_TOPICS
from coordinator_client.clock import SystemClock
from coordinator_client.transport.cached_channel import CachedChannel, ChannelOptions
from coordinator_client.transport.known_servers import KnownServers
from coordinator_client.transport.server_look import look_at
from coordinator_client.transport.transport import UNARY
from tests.client.test_several import naming
from tests.harness.certificates import DAY, Authority, Pair

HOST = "127.0.0.1"
GENEROUS_MS = 30_000


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "ca")


# Files


def test_files_that_cannot_be_used_are_named_when_the_client_is_made(authority: Authority, tmp_path: Path) -> None:
    one, other, gone = authority.issue("one"), authority.issue("other"), tmp_path / "gone"
    encrypted = tmp_path / "encrypted"
    key = load_pem_private_key(one.key.read_bytes(), None)
    encrypted.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")))
    ca = authority.ca_file
    for settings, said in (
        ({"ca_file": gone}, f"{gone} cannot be read: No such file or directory"),
        ({"ca_file": one.key}, f"{one.key} holds no CA certificate in PEM"),
        ({"ca_file": ca, "certificate_file": one.certificate}, "certificate_file and key_file go together"),
        (
            {"ca_file": ca, "certificate_file": one.certificate, "key_file": other.key},
            f"the key in {other.key} is not that of the certificate in {one.certificate}",
        ),
        ({"ca_file": ca, "certificate_file": one.certificate, "key_file": encrypted}, f"{encrypted} is encrypted"),
        ({"ca_file": ca, "certificate_file": one.certificate, "key_file": gone}, f"{gone} cannot be read"),
        ({"ca_file": ca, "certificate_file": ca, "key_file": ca}, "do not hold a certificate and its key"),
    ):
        with pytest.raises(Misconfigured) as refused:
            Tls(**settings)
        assert said in refused.value.reason


def test_what_is_no_tls_or_has_none_is_refused(authority: Authority) -> None:
    with pytest.raises(TypeError, match="tls must be a Tls"):
        Connection("h:1", tls=True)  # type: ignore[arg-type]
    with pytest.raises(Misconfigured, match="a Unix socket has no TLS"):
        Connection("unix:/run/txn.sock", tls=Tls(ca_file=authority.ca_file))


def test_it_is_names_only_wherever_it_travels(authority: Authority) -> None:
    pair = authority.issue("client")
    tls = Tls(ca_file=authority.ca_file, certificate_file=pair.certificate, key_file=pair.key)
    secret = b"".join(pair.key.read_bytes().splitlines()[1:-1])[:20]
    for seen in (pickle.dumps(tls), repr(tls).encode()):
        assert secret not in seen
    assert str(pair.key) in repr(tls)
    assert pickle.loads(pickle.dumps(tls)) == tls


# First contact


@asynccontextmanager
async def server(pair: Pair | None, client_ca: Path | None = None) -> AsyncIterator[str]:
    """A gRPC server without services; with TLS if there is a certificate, which may be a wrong one."""
    running = aio.server()
    if pair is None:
        port = running.add_insecure_port(f"{HOST}:0")
    else:
        pairs = [(pair.key.read_bytes(), pair.certificate.read_bytes())]
        ca = None if client_ca is None else client_ca.read_bytes()
        port = running.add_secure_port(
            f"{HOST}:0", grpc.ssl_server_credentials(pairs, ca, require_client_auth=ca is not None)
        )
    await running.start()
    try:
        yield f"{HOST}:{port}"
    finally:
        await running.stop(0)


async def seen(endpoint: str, tls: Tls | None) -> str | None:
    look = look_at(endpoint, SystemClock(), tls)
    assert look is not None
    return await asyncio.to_thread(look.now, GENEROUS_MS)


async def test_a_server_that_is_what_it_should_be_is_no_problem(authority: Authority) -> None:
    pair = authority.issue("client")
    async with server(authority.issue("server"), authority.ca_file) as endpoint:
        shown = Tls(ca_file=authority.ca_file, certificate_file=pair.certificate, key_file=pair.key)
        assert await seen(endpoint, shown) is None


async def test_a_server_with_another_name_is_found_by_the_name_to_expect(authority: Authority) -> None:
    async with server(authority.issue("server", "txn.example")) as endpoint:
        said = await seen(endpoint, Tls(ca_file=authority.ca_file))
        assert said is not None
        assert f"its certificate is not for {HOST}" in said
        assert await seen(endpoint, Tls(ca_file=authority.ca_file, server_name="txn.example")) is None


async def test_a_server_of_another_ca_is_refused(authority: Authority, tmp_path: Path) -> None:
    async with server(Authority(tmp_path, "other").issue("server")) as endpoint:
        said = await seen(endpoint, Tls(ca_file=authority.ca_file))
    assert said is not None
    assert "its certificate is not signed by the CA in the file given for it" in said


async def test_a_server_that_another_one_named_is_verified_like_that_one(authority: Authority, tmp_path: Path) -> None:
    async with server(authority.issue("server")) as given, server(Authority(tmp_path, "other").issue("b")) as named:
        known = KnownServers([given], 0)
        known.learn(naming(given, named))
        known.answered(named)
        tls = Tls(ca_file=authority.ca_file)
        with Connection(given, tls=tls, transport=UNARY, servers=known) as connection:
            ask = partial(connection.transport.ask, DESCRIBE_TOPICS, log_pb2.DescribeTopicsRequest(), timeout_ms=2_000)
            # The first contact passes it by.
            met = await asyncio.to_thread(ask)
            assert (met.status, known.current) == ("UNIMPLEMENTED", given)
            known.answered(named)
            refused = await asyncio.to_thread(ask)
            assert (refused.status, known.current) == ("UNAVAILABLE", given)


async def test_a_server_whose_certificate_has_expired_is_refused(authority: Authority) -> None:
    async with server(authority.issue("server", lasts=-DAY)) as endpoint:
        assert await seen(endpoint, Tls(ca_file=authority.ca_file)) == (
            "its certificate has expired: the server needs a new one"
        )
    async with server(authority.issue("early", since=DAY)) as endpoint:
        assert await seen(endpoint, Tls(ca_file=authority.ca_file)) == (
            "its certificate is not valid yet: compare the clocks"
        )


async def test_a_server_that_demands_a_certificate_says_nothing_and_the_client_says_why(
    authority: Authority, tmp_path: Path
) -> None:
    stranger = Authority(tmp_path, "other").issue("stranger")
    async with server(authority.issue("server"), authority.ca_file) as endpoint:
        said = await seen(endpoint, Tls(ca_file=authority.ca_file))
        assert said is not None
        assert "it demands a certificate of its clients" in said
        shown = Tls(ca_file=authority.ca_file, certificate_file=stranger.certificate, key_file=stranger.key)
        said = await seen(endpoint, shown)
        assert said is not None
        assert f"it does not accept the certificate in {stranger.certificate}" in said


async def test_plaintext_and_tls_notice_each_other(authority: Authority) -> None:
    async with server(None) as endpoint:
        said = await seen(endpoint, Tls(ca_file=authority.ca_file))
        assert said is not None
        assert "what listens there does not speak TLS" in said
    async with server(authority.issue("server")) as endpoint:
        said = await seen(endpoint, None)
        assert said is not None
        assert "it may want TLS (name a CA file)" in said


async def test_a_program_that_says_nothing_in_the_handshake_is_given_its_time_only(authority: Authority) -> None:
    with socket.create_server((HOST, 0)) as silent:
        port = silent.getsockname()[1]
        look = look_at(f"{HOST}:{port}", SystemClock(), Tls(ca_file=authority.ca_file))
        assert look is not None
        said = await asyncio.to_thread(look.now, 50)
    assert said == "something accepts connections there and says nothing"


async def test_files_that_vanish_after_the_client_was_made_are_named(authority: Authority) -> None:
    tls = Tls(ca_file=authority.ca_file)
    authority.ca_file.unlink()
    async with server(None) as endpoint:
        assert await seen(endpoint, tls) == f"{authority.ca_file} cannot be read: No such file or directory"


# Channels


class Opened:
    """Notes what was opened and closed."""

    def __init__(self) -> None:
        self.opened: list[int] = []
        self.closed: list[int] = []
        self.options: list[ChannelOptions] = []

    def open(self, _credentials: grpc.ChannelCredentials | None, options: ChannelOptions) -> int:
        self.opened.append(len(self.opened))
        self.options.append(options)
        return self.opened[-1]


def test_a_channel_takes_over_when_files_change_and_the_last_one_goes_on(authority: Authority) -> None:
    pair = authority.issue("client")
    opened = Opened()
    tls = Tls(
        ca_file=authority.ca_file, certificate_file=pair.certificate, key_file=pair.key, server_name="txn.example"
    )
    kept = CachedChannel(tls, opened.open, opened.closed.append)
    assert (kept.current(), kept.current()) == (0, 0)
    assert ("grpc.ssl_target_name_override", "txn.example") in opened.options[0]
    following = authority.issue("next")
    following.key.replace(pair.key)
    assert kept.current() == 0, "half of a rotation"
    following.certificate.replace(pair.certificate)
    assert (kept.current(), opened.closed) == (1, []), "its calls are under way"
    pair.replace_by(authority.issue("third"))
    assert (kept.current(), opened.closed) == (2, [0])
    kept.close()
    assert opened.closed == [0, 1, 2]


def test_a_channel_whose_files_are_gone_is_not_opened(authority: Authority) -> None:
    tls = Tls(ca_file=authority.ca_file)
    authority.ca_file.unlink()
    with pytest.raises(Misconfigured, match="cannot be read"):
        CachedChannel(tls, Opened().open, lambda _: None)
