"""The endpoint over TLS: scrapers check it and may have to show a certificate, a rotation is taken up, and one scraper
that says nothing delays no other."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest
from prometheus_client import CollectorRegistry, Gauge
from structlog.testing import capture_logs

from coordinator_runtime.clock import SystemClock
from coordinator_server.metrics.endpoint import listen_for_scrapes
from coordinator_server.security.reloading_credentials import ReloadingCredentials
from coordinator_server.security.tls import ClientAuth, TlsFiles
from tests.harness.certificates import Authority, Pair
from tests.harness.patience import DEADLINE_SECONDS, looks

HOST = "127.0.0.1"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "ca")


def kept(authority: Authority, auth: ClientAuth = ClientAuth.NONE) -> ReloadingCredentials:
    pair = authority.issue("server")
    ca = None if auth is ClientAuth.NONE else authority.ca_file
    return ReloadingCredentials(TlsFiles(pair.certificate, pair.key, ca, auth), SystemClock())


@contextmanager
def endpoint(credentials: ReloadingCredentials) -> Iterator[int]:
    """The port of an endpoint with one metric."""
    serving = listen_for_scrapes(HOST, 0, credentials)
    registry = CollectorRegistry()
    Gauge("txn_one", "One.", registry=registry).set(1)
    serving.publish(registry)
    try:
        yield serving.port
    finally:
        serving.close()


def scrape(port: int, authority: Authority, shown: Pair | None = None) -> str:
    context = ssl.create_default_context(cafile=authority.ca_file)
    if shown is not None:
        context.load_cert_chain(shown.certificate, shown.key)
    with urlopen(f"https://{HOST}:{port}/metrics", timeout=DEADLINE_SECONDS, context=context) as response:
        return str(response.read().decode())


def test_a_scraper_checks_the_endpoint(authority: Authority, tmp_path: Path) -> None:
    with endpoint(kept(authority)) as port:
        assert "txn_one 1.0" in scrape(port, authority)
        with pytest.raises(URLError, match="CERTIFICATE_VERIFY_FAILED"):
            scrape(port, Authority(tmp_path, "other"))


def test_a_scraper_shows_a_certificate_where_one_is_required(authority: Authority, tmp_path: Path) -> None:
    stranger = Authority(tmp_path, "other").issue("stranger")
    with endpoint(kept(authority, ClientAuth.REQUIRED)) as port, capture_logs() as lines:
        assert "txn_one 1.0" in scrape(port, authority, authority.issue("client"))
        reasons: list[str] = []
        for number, shown in enumerate((None, stranger), 1):
            with pytest.raises(OSError):
                scrape(port, authority, shown)
            # The scraper hears of it before the server's thread has logged it.
            for _ in looks("the log of the server"):
                reasons = [line["reason"] for line in lines if line["event"] == "scrape_refused"]
                if len(reasons) == number:
                    break
    assert "PEER_DID_NOT_RETURN_A_CERTIFICATE" in reasons[0]
    assert "CERTIFICATE_VERIFY_FAILED" in reasons[1]


def test_a_scraper_may_show_one_where_one_is_requested(authority: Authority, tmp_path: Path) -> None:
    stranger = Authority(tmp_path, "other").issue("stranger")
    with endpoint(kept(authority, ClientAuth.REQUESTED)) as port:
        assert "txn_one 1.0" in scrape(port, authority)
        assert "txn_one 1.0" in scrape(port, authority, authority.issue("client"))
        with pytest.raises(OSError):
            scrape(port, authority, stranger)


def test_a_caller_without_tls_or_words_delays_no_other_and_learns_nothing(authority: Authority) -> None:
    with (
        endpoint(kept(authority)) as port,
        socket.create_connection((HOST, port)),
        socket.create_connection((HOST, port)) as plain,
    ):
        plain.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        with suppress(ConnectionResetError):
            assert b"txn_one" not in plain.recv(4096)
        assert "txn_one 1.0" in scrape(port, authority)


def test_scrapes_after_a_rotation_get_what_is_new(authority: Authority, tmp_path: Path) -> None:
    credentials, later = kept(authority), Authority(tmp_path, "later")
    files = credentials.files
    with endpoint(credentials) as port:
        assert "txn_one 1.0" in scrape(port, authority)
        Pair(files.certificate_file, files.key_file).replace_by(later.issue("next"))
        assert "txn_one 1.0" in scrape(port, authority), "no scrape was made yet"
        credentials.look()
        assert "txn_one 1.0" in scrape(port, later)
        with pytest.raises(URLError, match="CERTIFICATE_VERIFY_FAILED"):
            scrape(port, authority)
