"""Requests of one listener that have come and not begun: in part, or while their connection waits for its turn.

All of them together hold a bounded number of bytes. If they hold too much, the newest of the host with the most bytes
is given up, and its connection ends. So a host that sends parts of requests only crowds out itself. One request may
come whatever its size.
"""

from __future__ import annotations

from collections import Counter
from typing import Final, Protocol

from coordinator_protocol.limits import MEBI

PARTIAL_BYTES_MAX: Final = 256 * MEBI
"""Bytes that the requests of one listener may hold; as with the compiled transport of gRPC."""


class Holder(Protocol):
    """A connection with bytes of requests that have not begun."""

    host: str

    def give_up(self, held_bytes: int) -> None:
        """End the connection, so that others go on."""


class PartialRequests:
    """The bytes of each connection."""

    def __init__(self, bytes_max: int = PARTIAL_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._held: dict[str, dict[Holder, int]] = {}
        """Bytes by host and connection; the connection that began to hold last is the last of its host."""
        self._by_host: Counter[str] = Counter()
        self.held_bytes = 0

    def hold(self, holder: Holder, size_bytes: int) -> None:
        """Set the bytes that a connection holds. May end it, or another one."""
        self.release(holder, keeps_place=size_bytes > 0)
        if not size_bytes:
            return
        self._held.setdefault(holder.host, {})[holder] = size_bytes
        self._by_host[holder.host] += size_bytes
        self.held_bytes += size_bytes
        while self.held_bytes > self._bytes_max and self._give_up_one():
            pass

    def release(self, holder: Holder, *, keeps_place: bool = False) -> None:
        """Forget the bytes of a connection. Idempotent. With `keeps_place` it stays as old as it is."""
        host = holder.host
        holders = self._held.get(host, {})
        size_bytes = holders.get(holder, 0)
        if not size_bytes:
            return
        self.held_bytes -= size_bytes
        self._by_host[host] -= size_bytes
        if keeps_place:
            holders[holder] = 0
            return
        del holders[holder]
        if not holders:
            del self._held[host], self._by_host[host]

    def _give_up_one(self) -> bool:
        """End the newest connection of the host with the most bytes. Return False if there is only one."""
        host = max(self._by_host, key=lambda each: self._by_host[each])
        holders = self._held[host]
        if len(self._held) == 1 and len(holders) == 1:
            return False
        newest = next(reversed(holders))
        held_bytes = holders[newest]
        self.release(newest)
        newest.give_up(held_bytes)
        return True
