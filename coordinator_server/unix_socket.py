"""Unix sockets to listen on. The rights of the socket's file decide which users of this machine may connect."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

UNIX_PREFIX: Final = "unix:"
"""The prefix of addresses that name a Unix socket, as in gRPC."""

_PATH_BYTES_MAX: Final = 107
"""Longest path that fits into the system's structure."""

_CONNECT_SECONDS_MAX: Final = 1.0


def is_unix(address: str) -> bool:
    """True for `unix:PATH`."""
    return address.startswith(UNIX_PREFIX)


def check_unix_address(address: str) -> None:
    """Raises ValueError with what is wrong."""
    path = address.removeprefix(UNIX_PREFIX)
    if not path or "\0" in path:
        raise ValueError(f"{address!r} names no file: write unix:PATH, as in unix:/run/txn/server.sock")
    if len(os.fsencode(path)) > _PATH_BYTES_MAX:
        raise ValueError(f"{address!r} is too long: the system takes paths of at most {_PATH_BYTES_MAX} bytes")


def take_unix_address(address: str) -> None:
    """Make sure that the path is free for a new socket. What a killed server left there is; what somebody listens on is
    not, and gRPC would not notice. Raises OSError, saying why."""
    path = Path(address.removeprefix(UNIX_PREFIX))
    if not path.parent.is_dir():
        raise OSError("there is no such directory; make it first, and let in whom you trust")
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise OSError("there is a file of that name, which is no socket; choose another path")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as plug:
        plug.settimeout(_CONNECT_SECONDS_MAX)
        try:
            plug.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return
    raise OSError("a process listens on it; stop that, or choose another path")


def give_unix_address_back(address: str) -> None:
    """Remove the socket that this process has made there and does not serve."""
    Path(address.removeprefix(UNIX_PREFIX)).unlink(missing_ok=True)


@contextmanager
def only_for_the_owner() -> Iterator[None]:
    """Give files that are made within the block mode 0600: on a socket, only their owner can connect. It holds for the
    whole process, so use it only at the start."""
    before = os.umask(0o177)
    try:
        yield
    finally:
        os.umask(before)
