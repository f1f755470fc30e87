"""Limits on the bytes of answers that wait for callers to take them.

With HTTP/2 a caller may ask and not read, and then the answer waits here. Calls that read much are refused in band
before they read the store, with a pause, while capacity is short (THROTTLING_QUOTA_EXCEEDED). Calls that write have
short answers and are never refused for this: a stalled reader must not keep others, or itself, from committing.

A connection that holds something may hold as much as is free less a reserve, and at most its own limit. This is the
"dynamic threshold" of network switches (Choudhury and Hahne 1998). The reserve, a quarter of the total limit, is added
because here it may be that nothing ever drains. With authentication, the same applies to each principal with all of
its connections, but without the reserve. So no principal takes more than half. Until the size of an answer is known, it
counts as a large one.

Besides, a caller that holds nothing, or less than a thirty-second of the free bytes, is served. Its answer to Fetch
ends at that size, or after its first batch. So each stalled connection leaves less for the next, and answers become
shorter before any is refused. A finished answer is only refused if it is larger than everything that is free.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.limits import MEBI
from coordinator_runtime.ports import COUNTED_BYTES_MIN, Connection, KnownConnection

_EXPECTED_BYTES: Final = 5 * MEBI
"""Size of a large answer: the most that one Fetch reads, and the batch that goes beyond it."""
_ANSWERS_MIN: Final = 4
"""Divisor of a connection's limit. The expected size of a large answer is at most this part of it."""
_RESERVE: Final = 4
"""Divisor of the total limit. This part is reserved for connections that do not hold their share yet."""
_SHARES: Final = 32
"""Divisor of the free bytes. Each connection may always hold this part. So fifty stalled connections with batches of up
to a mebibyte leave capacity, whatever each could take and in any order of arrival."""


@dataclass(frozen=True, slots=True)
class AnswerLimits:
    """Limits on the bytes of answers that wait for callers."""

    bytes_max: int = 256 * MEBI
    connection_bytes_max: int = 64 * MEBI

    @property
    def expected_bytes(self) -> int:
        """Expected size of an answer before it is known."""
        return min(_EXPECTED_BYTES, self.connection_bytes_max // _ANSWERS_MIN)


class AnswerBytes:
    """Implements `AnswerLimit`. On the loop thread only."""

    def __init__(self, limits: AnswerLimits) -> None:
        self._limits = limits
        expected_bytes = limits.expected_bytes
        reserved_bytes = limits.bytes_max // _RESERVE
        self._ample_bytes = min(
            limits.connection_bytes_max - expected_bytes, (limits.bytes_max - reserved_bytes) // 2 - expected_bytes
        )
        """Total of held bytes up to which any connection may hold one more large answer, whatever it holds already."""
        self.is_scarce = self._ample_bytes < 0
        self._by_connection: Counter[Connection] = Counter()
        self._by_principal: Counter[str] = Counter()
        self._refused = {"connection": 0, "principal": 0, "server": 0}
        self.held_bytes = 0
        """Bytes that wait, of all connections."""

    @property
    def refused(self) -> Mapping[str, int]:
        """Number of refused calls by the limit that was reached: of their connection, of their principal, or of the
        server."""
        return self._refused

    def check(self, connection: Connection) -> None:
        if not self.is_scarce:
            return
        free_bytes = self._limits.bytes_max - self.held_bytes
        if free_bytes <= 0:
            raise self._full(f"answers of {self.held_bytes} bytes wait for readers")
        share_bytes = self._share_bytes
        held_bytes = self._by_connection[connection]
        if held_bytes and held_bytes >= share_bytes and not self._may_hold_more(held_bytes):
            self._refused["connection"] += 1
            raise Refused(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                f"answers of {held_bytes} bytes wait to be read on this connection; read them, then try again",
            )
        if isinstance(connection, KnownConnection):
            expected_bytes = self._limits.expected_bytes
            held_bytes = self._by_principal[connection.principal]
            if held_bytes and held_bytes >= share_bytes and held_bytes + 2 * expected_bytes > free_bytes:
                self._refused["principal"] += 1
                raise Refused(
                    ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                    f"answers of {held_bytes} bytes wait to be read by {connection.principal}, on all of its"
                    " connections together; read them, then try again",
                )

    def allowance_bytes(self, connection: Connection) -> int:
        if not self.is_scarce:
            return self._limits.bytes_max
        held_bytes = self._by_connection[connection]
        if self._may_hold_more(held_bytes):
            return self._limits.bytes_max
        return max(0, self._share_bytes - held_bytes)

    def check_answer(self, size_bytes: int) -> None:
        if size_bytes >= COUNTED_BYTES_MIN and size_bytes > self._limits.bytes_max - self.held_bytes:
            raise self._full(
                f"answers of {self.held_bytes} bytes wait for readers, and this one has {size_bytes} bytes"
            )

    @property
    def _share_bytes(self) -> int:
        """Share that each connection may hold, however much the others hold. At most a large answer, and less as
        capacity gets scarce."""
        return min(self._limits.expected_bytes, (self._limits.bytes_max - self.held_bytes) // _SHARES)

    def _may_hold_more(self, held_bytes: int) -> bool:
        """Return True if a connection that holds this many bytes may have one more large answer."""
        limits = self._limits
        free_bytes = limits.bytes_max - self.held_bytes - limits.bytes_max // _RESERVE
        will_hold_bytes = held_bytes + limits.expected_bytes
        return will_hold_bytes <= min(free_bytes - limits.expected_bytes, limits.connection_bytes_max)

    def _full(self, how: str) -> Refused:
        self._refused["server"] += 1
        return Refused(
            ErrorCode.THROTTLING_QUOTA_EXCEEDED, f"{how}: this server holds {self._limits.bytes_max}; try again"
        )

    def hold(self, connection: Connection, size_bytes: int) -> None:
        self._add(connection, size_bytes)

    def release(self, connection: Connection, size_bytes: int) -> None:
        self._add(connection, -size_bytes)

    def _add(self, connection: Connection, size_bytes: int) -> None:
        self.held_bytes += size_bytes
        self.is_scarce = self.held_bytes > self._ample_bytes
        _add_to(self._by_connection, connection, size_bytes)
        if isinstance(connection, KnownConnection):
            _add_to(self._by_principal, connection.principal, size_bytes)


Key = TypeVar("Key")


def _add_to(held: Counter[Key], key: Key, size_bytes: int) -> None:
    """Change the bytes of a key; remove it when it holds none."""
    left_bytes = held[key] + size_bytes
    assert left_bytes >= 0, f"{-left_bytes} bytes more were released than held"
    if left_bytes:
        held[key] = left_bytes
    else:
        del held[key]
