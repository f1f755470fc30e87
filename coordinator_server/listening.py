"""Listening sockets. They are made here, so that an error has the system's reason. The file mode of a Unix socket
decides which users of this machine may connect."""

from __future__ import annotations

import errno
import os
import socket
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import structlog

_BACKLOG: Final = 4_096
"""Maximum number of connections that wait to be accepted; the system may allow fewer."""

_NOT_HERE: Final = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})
"""Errors for an address that this machine does not have. `localhost` has one such address without IPv6."""


_TCP_TABLES: Final = (Path("/proc/self/net/tcp"), Path("/proc/self/net/tcp6"))
_ESTABLISHED: Final = "01"
_LISTENING: Final = "0A"
_IPV4_DIGITS: Final = 8
_IPV4_MAPPED: Final = "0000000000000000FFFF0000"
"""Prefix of an IPv4 address in the table of IPv6."""
_OWN_FILES: Final = Path("/proc/self/fd")

_log = structlog.get_logger("transport")


class AddressRefused(Exception):
    """The server cannot listen on a configured address. The message has the reason."""


def tcp_sockets(host: str, port: int) -> list[socket.socket]:
    """Return a bound socket for every address of this machine that the host stands for. All have the same port, a free
    one if it is 0. Raises AddressRefused."""
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
    """Let callers connect. They wait until the sockets are served."""
    for each in sockets:
        each.listen(_BACKLOG)


def close(sockets: Iterable[socket.socket]) -> None:
    """Release the addresses."""
    for each in sockets:
        each.close()


def established_connections(port: int) -> int | None:
    """Return the number of TCP connections of this machine on the port, as Linux counts them; None if it is unknown."""
    if port == 0 or not _TCP_TABLES[0].exists():
        return None
    return sum(1 for _ in _sockets_on(port, _ESTABLISHED))


def is_shared(port: int) -> bool:
    """Return True if another process listens on an address and port of ours. Linux allows this for programs of one user
    that all set SO_REUSEPORT, and gives each some of the connections. Return False if it cannot be determined."""
    try:
        own = {_target(file) for file in _OWN_FILES.iterdir()}
    except OSError:
        # Another system, or one that lets no program look.
        return False
    listening = [(address, f"socket:[{inode}]") for address, inode in _sockets_on(port, _LISTENING)]
    ours = {address for address, file in listening if file in own}
    return any(address in ours for address, file in listening if file not in own)


def _target(file: Path) -> str:
    try:
        return str(file.readlink())
    except OSError:
        # The file was closed meanwhile, by another thread or by the listing of the directory.
        return ""


def _sockets_on(port: int, state: str) -> Iterator[tuple[str, str]]:
    """Yield local address and inode of each TCP socket of this machine that has the port and is in this state."""
    ours = f":{port:04X}"
    for table in _TCP_TABLES:
        if table.exists():
            for fields in map(str.split, table.read_text(encoding="ascii").splitlines()[1:]):
                if fields[1].endswith(ours) and fields[3] == state:
                    yield _address(fields[1].removesuffix(ours)), fields[9]


def _address(host: str) -> str:
    """Normalise an address from a table. IPv4 addresses, and the wildcard, are shown as in the table of IPv4."""
    is_ipv4 = host.startswith(_IPV4_MAPPED) or not host.strip("0")
    return host[-_IPV4_DIGITS:] if is_ipv4 else host


def log_abuse(kind: str, **details: object) -> None:
    """Log one line about something that was refused or cut to protect other callers. The callers of this function limit
    its rate."""
    _log.warning("harm", kind=kind, advice=_ADVICE[kind], **details)


_ADVICE: Final = {
    "connections": "as many connections are open as may be: find out whose they are, or raise connections_max",
    "not_taken": "the system gives no connection: look at the limit of open files",
    "handshakes": "a caller made no TLS connection: it speaks no TLS, or its certificate does not count here",
    "strangers": "a host is not heard for moments, because its handshakes failed again and again (handshakes)",
    "unauthenticated": "there was one connection too many on which no caller was authenticated yet: look at that host",
    "messages": "a message was larger than message_bytes_max, once it was decompressed, and was not taken",
    "requests": "requests that had come in part held too much: look at the program on that host that does not end them",
    "rules": "a connection that broke the rules of HTTP/2, or had headers without end, was cut: look at that host",
    "unknown_calls": "a connection that called again and again with no credential that counts was cut: look there",
    "resets": "a connection that began calls only to reset them was cut: look at the program on that host",
    "control_frames": "a connection that sent HTTP/2 frames without calls was cut: look at the program on that host",
    "refused_calls": "a connection that began more calls than it may have open was cut: look at the program there",
    "unfinished_calls": "a connection that began calls and sent no requests was cut: look at the program on that host",
    "kafka_client": "this port speaks gRPC: set kafka_listen, and give clients of Kafka's protocol that address",
    "not_kafka": "a connection sent bytes that are no request of Kafka's protocol: look which program connects there",
    "kafka_versions": "a client asked for an API or version that ApiVersions does not list: look at its version",
    "kafka_large": "a request of Kafka's protocol was too large: look at that client, or raise message_bytes_max",
    "kafka_silent": "a connection did not authenticate in time and was closed: look at that host",
    "kafka_stalled": "a connection sent a request in part and was closed: look at the program on that host",
}


UNIX_PREFIX: Final = "unix:"
"""Prefix of addresses that name a Unix socket, as in gRPC."""

_PATH_BYTES_MAX: Final = 107
"""Longest path that fits into the system's structure."""

_CONNECT_SECONDS_MAX: Final = 1.0


def is_unix(address: str) -> bool:
    """True for `unix:PATH`."""
    return address.startswith(UNIX_PREFIX)


def check_unix_address(address: str) -> None:
    """Check the path. Raises ValueError with the reason."""
    path = address.removeprefix(UNIX_PREFIX)
    if not path or "\0" in path:
        raise ValueError(f"{address!r} names no file: write unix:PATH, as in unix:/run/txn/server.sock")
    if len(os.fsencode(path)) > _PATH_BYTES_MAX:
        raise ValueError(f"{address!r} is too long: the system takes paths of at most {_PATH_BYTES_MAX} bytes")


def take_unix_address(address: str) -> None:
    """Make sure that the path is free for a new socket. A socket that a killed server left counts as free. One that a
    process listens on does not, and gRPC would not notice that. Raises OSError with the reason."""
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
    """Remove the socket that this process has created there and does not serve."""
    Path(address.removeprefix(UNIX_PREFIX)).unlink(missing_ok=True)


@contextmanager
def only_for_the_owner() -> Iterator[None]:
    """Create files within the block with mode 0600, so that only their owner can connect to a socket. It applies to the
    whole process, so use it only at the start."""
    before = os.umask(0o177)
    try:
        yield
    finally:
        os.umask(before)
