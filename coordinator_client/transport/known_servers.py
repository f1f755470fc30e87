"""The servers of one store that a client knows: at the addresses that it was given, and at those that servers named.

Two servers with one store have one owner at a time, and the owner names both. So a client that was given only one of
them finds the other when the first is lost. It asks for them beside its other requests, at first when it is two seconds
old. A server that waits for the store is asked at once.

Named addresses never replace a given one, and none is taken that could lead to a program on the machine of the client.
Their servers are verified in the same way, by TLS with the same files.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Sequence
from typing import Final

from coordinator_api.v1 import transaction_pb2 as txn
from coordinator_client.errors import Loss, ReplyFields
from coordinator_client.tls import Tls
from coordinator_client.transport.transport import TARGET_SCHEMES, UNIX_SCHEMES
from coordinator_protocol.errors import ErrorCode

PORT_MAX: Final = 65_535

FIRST_QUESTION_MS: Final = 2_000
"""Time until a client asks for the servers (ms). Programs that end sooner never ask."""

QUESTION_MS: Final = 30_000
"""Time between two such questions while a server answers (ms)."""

REFUSED_QUESTION_MS: Final = 500
"""Time between two such questions to servers that wait (ms)."""

NAMED_MAX: Final = 8
"""Maximum number of named addresses that a client takes."""

_HOST_PORT: Final = re.compile(r"(?P<host>[^\s/:,]+|\[[0-9a-fA-F:.%]+\]):(?P<port>\d{1,5})")

_GONE: Final = frozenset({"UNAVAILABLE", "DEADLINE_EXCEEDED"})
"""Statuses after which another address is tried. A host that was lost answers nothing at all."""


def addresses_of(endpoint: str) -> list[str]:
    """Return the addresses that an endpoint names, HOST:PORT,HOST:PORT. gRPC's targets have commas of their own."""
    return [endpoint] if endpoint.startswith(TARGET_SCHEMES) else [each.strip() for each in endpoint.split(",")]


def host_of(address: str) -> str | None:
    """Return the host of HOST:PORT; None for anything else."""
    found = _HOST_PORT.fullmatch(address)
    return found["host"] if found is not None and 0 < int(found["port"]) <= PORT_MAX else None


class KnownServers:
    """The known addresses of one store and the one in use, for all users of a connection. On any thread."""

    def __init__(self, given: Sequence[str], now_ms: int) -> None:
        """`given`: the addresses in the order in which to try them."""
        self._given = tuple(given)
        self.addresses = self._given
        """The given addresses, and then those that were named."""
        self.current = given[0]
        """The address for the next request."""
        self._asks_at_ms = now_ms + FIRST_QUESTION_MS
        self._asks_again_at_ms = now_ms

    @property
    def in_turn(self) -> list[str]:
        """All known addresses, with the one in use first."""
        return [self.current, *(each for each in self.addresses if each != self.current)]

    def answered(self, address: str) -> None:
        """Note that a server answered there."""
        self.current = address

    def note(self, address: str, answer: ReplyFields | Loss, now_ms: int) -> bool:
        """Note an answer, or a loss. Return True if that server is to be asked for all servers of its store."""
        if isinstance(answer, Loss):
            if answer.status in _GONE:
                self._failed(address)
            return False
        if answer.error_code == ErrorCode.NOT_COORDINATOR:
            self._failed(address)
            return self._asks_server_that_waits(now_ms)
        if now_ms < self._asks_at_ms:
            return False
        self._asks_at_ms = now_ms + QUESTION_MS
        return True

    def learn(self, answer: txn.FindCoordinatorResponse | Loss) -> None:
        """Remember the servers that an answer names. Fewer than two servers say nothing about others."""
        if isinstance(answer, Loss) or len(answer.servers) < 2:
            return
        is_near = any(_is_near(host_of(each) or each) for each in self._given)
        # The one that serves is named first. It is the one that is lost if the address in use fails.
        named = [
            f"[{each.host}]:{each.port}" if ":" in each.host else f"{each.host}:{each.port}"
            for each in reversed(answer.servers)
        ]
        taken = [each for each in named if _is_usable(each, is_near=is_near)][:NAMED_MAX]
        self.addresses = tuple(dict.fromkeys((*self._given, *taken)))

    def add(self, addresses: Iterable[str]) -> None:
        """Remember addresses that another process with the same given ones has learnt."""
        self.addresses = tuple(dict.fromkeys((*self.addresses, *addresses)))

    def _failed(self, address: str) -> None:
        """Go on to the next address. Of many requests that were lost at one address only the first does that."""
        if self.current == address:
            known = self.addresses
            place = known.index(address) + 1 if address in known else 0
            self.current = known[place % len(known)]

    def _asks_server_that_waits(self, now_ms: int) -> bool:
        if now_ms < self._asks_again_at_ms:
            return False
        self._asks_again_at_ms = now_ms + REFUSED_QUESTION_MS
        return True


def _is_usable(address: str, *, is_near: bool) -> bool:
    host = host_of(address)
    return host is not None and (is_near or not _is_near(host))


def _is_near(host: str) -> bool:
    """Return True for a host that is the machine of the client itself, whichever that is."""
    if host == "localhost" or host.startswith(TARGET_SCHEMES):
        return True
    try:
        ip = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return ip.is_loopback or ip.is_unspecified


_KNOWN: Final[dict[tuple[str, Tls | None], KnownServers]] = {}


def followed_servers(endpoint: str, tls: Tls | None, now_ms: int) -> KnownServers | None:
    """Return the known servers of an endpoint, which all connections of this process to it share. None for a Unix
    socket, which is meant for one server. `now_ms` is of the clock of the system."""
    if endpoint.startswith(UNIX_SCHEMES):
        return None
    return _KNOWN.setdefault((endpoint, tls), KnownServers(addresses_of(endpoint), now_ms))
