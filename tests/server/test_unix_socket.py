"""A server on a Unix socket: only its owner gets in, and no socket in use is taken away."""

from __future__ import annotations

import os
import re
import socket
import stat
from pathlib import Path

import pytest

from coordinator_runtime.clock import SystemClock
from coordinator_server.addresses import Address, parse_address, parse_listen
from coordinator_server.exits import ExitStatus
from coordinator_server.grpc_front.grpc_transport import GrpcTransport
from coordinator_server.grpc_front.transports import TransportName, TransportOptions
from coordinator_server.listening import AddressRefused
from coordinator_server.settings.config import Config
from tests.cli.terminal import Terminal
from tests.harness.server_process import ServerProcess


@pytest.mark.parametrize("text", ["unix:/run/txn.sock", "unix:here.sock", "unix:a:b"])
def test_a_path_is_an_address_to_listen_on(text: str) -> None:
    assert parse_listen(text) == Address(text, 0)
    assert str(parse_listen(text)) == text
    assert Config(data_dir=Path("d"), listen=text).listen == text


@pytest.mark.parametrize(("text", "said"), [("unix:", "names no file"), (f"unix:/{'x' * 107}", "at most 107 bytes")])
def test_a_path_that_cannot_be_one_is_refused(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse_listen(text)


def test_a_path_is_no_address_to_be_found_at() -> None:
    with pytest.raises(ValueError, match="is no HOST:PORT"):
        parse_address("unix:/run/txn.sock")


def test_the_compiled_transport_refuses_one() -> None:
    with pytest.raises(ValueError, match="the compiled transport does not serve Unix sockets"):
        Config(data_dir=Path("d"), listen="unix:here.sock", transport=TransportName.NATIVE)


async def bind(path: Path) -> GrpcTransport:
    transport = GrpcTransport([], SystemClock(), TransportOptions(1 << 20))
    assert transport.bind(f"unix:{path}", 0) == 0
    return transport


async def refusal(path: Path) -> str:
    transport = GrpcTransport([], SystemClock(), TransportOptions(1 << 20))
    with pytest.raises(AddressRefused) as refused:
        transport.bind(f"unix:{path}", 0)
    await transport.stop(0)
    return str(refused.value)


async def test_only_the_owner_may_connect_and_other_files_keep_their_mode(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        transport = await bind(tmp_path / "socket")
        (tmp_path / "other").touch()
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "socket").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "other").stat().st_mode) == 0o644
    await transport.stop(0)


async def test_a_socket_with_a_listener_is_not_taken(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
        other.bind(str(path))
        other.listen()
        assert "a process listens on it" in await refusal(path)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as plug:
            plug.connect(str(path))
    transport = await bind(path)
    await transport.stop(0)


async def test_what_is_no_socket_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("mine")
    assert "is no socket" in await refusal(path)
    assert path.read_text() == "mine"
    assert "there is no such directory" in await refusal(tmp_path / "none" / "socket")


class OnSocket(ServerProcess):
    """`txnctl serve` on a Unix socket beside its directory."""

    @property
    def address(self) -> str:
        return f"unix:{self.data_dir.with_suffix('.sock')}"


@pytest.mark.slow
def test_a_server_is_asked_through_its_socket(txnctl: Terminal, tmp_path: Path) -> None:
    server = OnSocket(tmp_path / "data")
    server.launch()
    try:
        for _life in range(2):
            server.read_until(re.compile("gRPC on unix:"))
            txnctl("topic", "create", "t", "--if-not-exists", "--server", server.address).well()
            txnctl("produce", "t", "--server", server.address, stdin="a\n").well()
            assert "insecure_listener" not in server.output
            server.kill()
            assert server.data_dir.with_suffix(".sock").exists(), "a killed server leaves its socket, and finds it"
            server.launch()
        server.read_until(re.compile("gRPC on unix:"))
        consumed = txnctl("consume", "t", "--server", server.address, "-o", "json").well().objects
        assert [record["value"] for record in consumed] == ["a", "a"]
        assert server.terminate() == ExitStatus.OK
        txnctl("topic", "list", "--server", server.address).refused(5, "no server answers at unix:")
    finally:
        server.kill()


@pytest.fixture
def txnctl(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    return Terminal(monkeypatch)
