"""Addresses as an operator writes them: HOST:PORT, or also unix:PATH for listeners."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import Annotated, Final, NamedTuple

from pydantic import AfterValidator

from coordinator_server.listening import check_unix_address, is_unix

PORT_MAX: Final = 65_535


class Address(NamedTuple):
    """Address to listen on or to connect to."""

    host: str
    """`unix:PATH` for a Unix socket."""
    port: int
    """0 for a Unix socket, which has none."""

    def __str__(self) -> str:
        if is_unix(self.host):
            return self.host
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class NodeAddress:
    """Address by which clients reach this server."""

    node_id: int
    host: str
    port: int


def parse_address(text: str) -> Address:
    """Parse HOST:PORT, with an IPv6 host in brackets. Raises ValueError with the reason."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > PORT_MAX:
        raise ValueError(f"{text!r} is no HOST:PORT with a port from 0 to {PORT_MAX}")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(f"{text!r} is no HOST:PORT: write an IPv6 host in brackets, as in [::1]:{port}")
    if not host:
        raise ValueError(f"{text!r} names no host: write 127.0.0.1:{port} for this machine, 0.0.0.0:{port} for all")
    return Address(host, int(port))


def parse_listen(text: str) -> Address:
    """Parse HOST:PORT or unix:PATH. Raises ValueError with the reason."""
    if not is_unix(text):
        return parse_address(text)
    check_unix_address(text)
    return Address(text, 0)


def _checked_address(text: str) -> str:
    parse_address(text)
    return text


def _checked_listen(text: str) -> str:
    parse_listen(text)
    return text


AddressText = Annotated[str, AfterValidator(_checked_address)]
ListenText = Annotated[str, AfterValidator(_checked_listen)]


def is_local(host: str) -> bool:
    """Return True if only this machine can reach the host: a loopback address or a Unix socket."""
    if is_unix(host):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
