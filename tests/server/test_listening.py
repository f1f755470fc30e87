"""Other programs that listen on a port of ours, read from the system's table."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest

from coordinator_server import listening
from coordinator_server.listening import established_connections, is_shared

ONLY_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="the table is Linux's")
HOST = "127.0.0.1"


@ONLY_LINUX
def test_own_listeners_share_a_port_with_no_other() -> None:
    with socket.create_server((HOST, 0), reuse_port=True) as one:
        port = one.getsockname()[1]
        with socket.create_server((HOST, port), reuse_port=True):
            assert not is_shared(port)


@ONLY_LINUX
def test_without_the_right_to_look_nothing_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(listening, "_OWN_FILES", tmp_path / "none")
    with socket.create_server((HOST, 0)) as one:
        assert not is_shared(one.getsockname()[1])


@ONLY_LINUX
@pytest.mark.parametrize(
    ("ours", "theirs", "shared"),
    [
        ("0100007F", "0100007F", True),
        ("0100007F", "0000000000000000FFFF00000100007F", True),
        ("00000000", "00000000000000000000000000000000", True),
        ("0100007F", "0200007F", False),
        ("0100007F", "00000000000000000000000001000000", False),
    ],
)
def test_an_address_is_the_same_in_both_tables(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ours: str, theirs: str, shared: bool
) -> None:
    own, table = tmp_path / "fd", tmp_path / "tcp"
    own.mkdir()
    (own / "7").symlink_to("socket:[11]")
    rows = ((ours, "1F90", "0A", 11), (theirs, "1F90", "0A", 12), (ours, "1F91", "0A", 13), (ours, "1F90", "01", 14))
    lines = [f"0: {host}:{port} 0:0 {state} 0:0 0:0 0 0 0 {inode}" for host, port, state, inode in rows]
    table.write_text("\n".join(["head", *lines]))
    monkeypatch.setattr(listening, "_OWN_FILES", own)
    monkeypatch.setattr(listening, "_TCP_TABLES", (table,))
    assert is_shared(0x1F90) == shared
    assert not is_shared(0x1F91), "it is another's alone"
    assert established_connections(0x1F90) == 1
