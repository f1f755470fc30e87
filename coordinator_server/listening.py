"""Listening sockets, made here so that a refusal says in the system's words what is wrong."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import structlog

_BACKLOG: Final = 4_096
"""Connections that may wait to be taken; the system may allow fewer."""

_NOT_HERE: Final = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})
"""A name may stand for an address that this machine does not have, as `localhost` does without IPv6."""


_TCP_TABLES: Final = (Path("/proc/self/net/tcp"), Path("/proc/self/net/tcp6"))
_ESTABLISHED: Final = "01"

_log = structlog.get_logger("transport")


class AddressRefused(Exception):
    """The server cannot listen where it was told to. The message says why."""


def tcp_sockets(host: str, port: int) -> list[socket.socket]:
    """A bound socket for every address of this machine that the host stands for, all with the same port; a free one if
    it is 0. Raises AddressRefused."""
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    bound: list[socket.socket] = []
    missing: OSError | None = None
    try:
        for family, kind, protocol, _, resolved in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
            try:
                bound.append(_bound(family, kind, protocol, (resolved[0], port, *resolved[2:])))
            except OSError as error:
                if error.errno not in _NOT_HERE:
                    raise
                missing = error
            else:
                port = bound[-1].getsockname()[1]
        if missing is not None and not bound:
            raise missing
    except OSError as error:
        close(bound)
        hint = f": choose another port, or stop what listens on {address}" if error.errno == errno.EADDRINUSE else ""
        raise AddressRefused(f"cannot listen on {address}: {error.strerror}{hint}") from error
    return bound


def _bound(family: int, kind: int, protocol: int, address: tuple[str | int, ...]) -> socket.socket:
    made = socket.socket(family, kind, protocol)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
    except OSError:
        made.close()
        raise
    return made


def listen(sockets: Iterable[socket.socket]) -> None:
    """Let callers connect; they wait until somebody serves the sockets."""
    for each in sockets:
        each.listen(_BACKLOG)


def close(sockets: Iterable[socket.socket]) -> None:
    """Give the addresses back."""
    for each in sockets:
        each.close()


def established_connections(port: int) -> int | None:
    """Return how many TCP connections this machine has on the port, as Linux counts them; None where that cannot be
    found out."""
    if port == 0 or not _TCP_TABLES[0].exists():
        return None
    ours = f":{port:04X}"
    count = 0
    for table in _TCP_TABLES:
        if table.exists():
            lines = table.read_text(encoding="ascii").splitlines()[1:]
            count += sum(fields[1].endswith(ours) and fields[3] == _ESTABLISHED for fields in map(str.split, lines))
    return count


def log_harm(kind: str, **details: object) -> None:
    """Log one line about something that was refused or cut so that others are served. Called seldom, however often it
    happens."""
    _log.warning("harm", kind=kind, advice=_ADVICE[kind], **details)


_ADVICE: Final = {
    "connections": "as many connections are open as may be: find out whose they are, or raise connections_max",
    "not_taken": "the system gives no connection: look at the limit of open files",
    "resets": "a connection that began calls only to reset them was cut: look at the program on that host",
    "control_frames": "a connection that sent HTTP/2 frames without calls was cut: look at the program on that host",
    "unfinished_calls": "a connection that began calls and sent no requests was cut: look at the program on that host",
}
