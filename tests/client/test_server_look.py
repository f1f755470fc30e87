"""Looks at an address and the programs that may listen there; on loopback, with real sockets."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from coordinator_client.clock import SystemClock
from coordinator_client.transport.server_look import ServerLook, look_at, place_of, what_is_wrong

HTTP1 = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"
TLS_ALERT = b"\x15\x03\x01\x00\x02\x02\x46"
SETTINGS = b"\x00\x00\x06\x04\x00\x00\x00\x00\x00" + b"\x00\x05\x00\x00\x40\x00"
GENEROUS_MS = 30_000


@contextmanager
def program(answer: bytes | None, family: socket.AddressFamily = socket.AF_INET, name: str = "") -> Iterator[str]:
    """Something that answers the first bytes so, and ends the connection; None: it accepts and says nothing."""
    with socket.socket(family) as listening:
        listening.bind(name or ("127.0.0.1", 0))
        listening.listen()

        def serve() -> None:
            try:
                peer, _ = listening.accept()
            except OSError:
                return
            with peer:
                peer.recv(24)
                peer.sendall(answer or b"")

        thread = threading.Thread(target=serve, daemon=True)
        if answer is not None:
            thread.start()
        yield f"unix:{name}" if name else f"127.0.0.1:{listening.getsockname()[1]}"
        if answer is not None:
            thread.join()


def seen(endpoint: str, timeout_ms: int = GENEROUS_MS) -> str | None:
    look = look_at(endpoint, SystemClock())
    assert look is not None
    return look.now(timeout_ms)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (SETTINGS, None),
        (HTTP1, "an HTTP/1 server listens there"),
        (b"<!DOCTYPE HTML>", "an HTTP/1 server listens there"),
        (TLS_ALERT, "a TLS server listens there"),
        (b"", "closes the connection without a word"),
        (b"-ERR unknown command\r\n", "does not speak HTTP/2"),
        (b"\x00\x00", "does not speak HTTP/2"),
    ],
)
def test_what_listens_there_is_said(answer: bytes, said: str | None) -> None:
    with program(answer) as endpoint:
        problem = seen(endpoint)
    assert problem is None if said is None else said in (problem or "")


def test_a_program_that_accepts_and_says_nothing_is_given_its_time_only() -> None:
    with program(None) as endpoint:
        assert seen(endpoint, timeout_ms=50) == "something accepts connections there and says nothing"


def test_a_port_without_a_listener_refuses() -> None:
    with socket.socket() as plug:
        plug.bind(("127.0.0.1", 0))
        assert seen(f"127.0.0.1:{plug.getsockname()[1]}") == "Connection refused"


@pytest.mark.parametrize("endpoint", ["a..b:70", f"{'x' * 64}.b:70"])
def test_a_name_that_no_host_can_have_is_a_problem_and_no_defect(endpoint: str) -> None:
    assert "it is no name of a host" in (seen(endpoint) or "")


def test_a_unix_socket_is_looked_at_too(tmp_path: Path) -> None:
    assert seen(f"unix:{tmp_path / 'gone'}") == "No such file or directory"
    with program(SETTINGS, socket.AF_UNIX, str(tmp_path / "socket")) as endpoint:
        assert seen(endpoint) is None


@pytest.mark.parametrize(
    ("endpoint", "place"),
    [
        ("h:1", ("h", 1)),
        ("[::1]:70", ("::1", 70)),
        ("dns:h:1", ("h", 1)),
        ("ipv4:10.0.0.1:1", ("10.0.0.1", 1)),
        ("ipv6:[::1]:1", ("::1", 1)),
        ("unix:/run/s", "/run/s"),
        ("unix:///run/s", "/run/s"),
        ("unix-abstract:s", "\0s"),
        ("dns://8.8.8.8/h:1", None),
        ("ipv4:10.0.0.1:1,10.0.0.2:1", None),
        ("dns:h", None),
    ],
)
def test_an_endpoint_is_a_place_unless_only_grpc_can_resolve_it(endpoint: str, place: object) -> None:
    assert place_of(endpoint) == place
    found = look_at(endpoint, SystemClock())
    assert (None if found is None else ServerLook) is (None if place is None else type(found))


@pytest.mark.parametrize("length", range(9))
def test_a_frame_that_is_cut_is_none(length: int) -> None:
    assert what_is_wrong(SETTINGS[:length]) is not None
    assert what_is_wrong(SETTINGS[:9]) is None
