"""The connections of one listener, bounded in number; and among them those whose caller is not known yet.

A connection is unknown during its TLS handshake, and until it has authenticated. If there is one too many of these,
the oldest of the host with the most ends. So a host that opens many connections only crowds out itself.
"""

from __future__ import annotations

from typing import Final, Protocol

from coordinator_runtime.clock import Clock

UNKNOWN_SHARE: Final = 8
"""Part of the connections that may be unknown: one in so many, as with gRPC."""
UNKNOWN_LEAST: Final = 8
LEFT_ALONE_MS: Final = 1_000
"""Time that an unknown connection has at least, while newer ones of its own host come."""


class Guest(Protocol):
    """A connection."""

    host: str

    def make_room(self) -> None:
        """End the connection for a newer one."""


class NoPlace(Exception):
    """There is no place for a new connection. `kind` is the kind of abuse, and the message has the details."""

    def __init__(self, kind: str, details: str) -> None:
        super().__init__(details)
        self.kind = kind


class Places:
    """The connections of one listener."""

    def __init__(self, clock: Clock, connections_max: int, *, knows_all: bool) -> None:
        """With `knows_all` each connection counts as known from the start."""
        self._clock = clock
        self._connections_max = connections_max
        self._unknown_max = max(UNKNOWN_LEAST, connections_max // UNKNOWN_SHARE)
        self._knows_all = knows_all
        self._guests: dict[Guest, None] = {}
        """An ordered set."""
        self._unknown: dict[str, dict[Guest, int]] = {}
        """Unknown connections by host, with their times of arrival; the oldest first."""
        self.unknown_number = 0

    def __len__(self) -> int:
        return len(self._guests)

    def enter(self, guest: Guest) -> None:
        """Give a new connection a place. May end another one. Raises NoPlace."""
        if len(self._guests) >= self._connections_max:
            raise NoPlace("connections", f"{self._connections_max} are open")
        if not self._knows_all:
            if self.unknown_number >= self._unknown_max:
                self._make_room(guest)
            self._unknown.setdefault(guest.host, {})[guest] = self._clock.monotonic_ms()
            self.unknown_number += 1
        self._guests[guest] = None

    def becomes_known(self, guest: Guest) -> None:
        """Note that the caller of a connection is known. Idempotent."""
        waiting = self._unknown.get(guest.host, {})
        if waiting.pop(guest, None) is None:
            return
        self.unknown_number -= 1
        if not waiting:
            del self._unknown[guest.host]

    def leave(self, guest: Guest) -> None:
        """Give the place of a connection back. Idempotent."""
        self.becomes_known(guest)
        self._guests.pop(guest, None)

    def _make_room(self, newcomer: Guest) -> None:
        """End the oldest unknown connection of the host with the most. Raises NoPlace if that would be the newcomer's
        own, and young."""
        own = len(self._unknown.get(newcomer.host, ()))
        host = max(self._unknown, key=lambda each: len(self._unknown[each]))
        if own >= len(self._unknown[host]):
            host = newcomer.host
        oldest, since_ms = next(iter(self._unknown[host].items()))
        if host == newcomer.host and self._clock.monotonic_ms() - since_ms < LEFT_ALONE_MS:
            raise NoPlace("unauthenticated", f"{self.unknown_number} are not authenticated, {own} of them of this host")
        self.leave(oldest)
        oldest.make_room()
