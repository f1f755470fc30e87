"""How many bytes of answers the server holds for callers that have not taken them.

HTTP/2 lets a caller ask and not read: then the answer waits here. What reads much is refused in band, with a pause,
while there is no room (THROTTLING_QUOTA_EXCEEDED), before it reads the store. What writes is answered with few bytes
and is never refused for this: a reader that stands still must not keep others, or itself, from committing.

A connection that holds something may hold as much as is free, without a quarter of the room, and at most its own bound
(the "dynamic threshold" of network switches, Choudhury and Hahne 1998, and a reserve, because here it may be that
nothing ever drains). Where callers are asked who they are, the same holds for each principal with all of its
connections, without the reserve, so that none takes more than half. The size of an answer is known when it is there:
until then it is taken for a large one.

Besides, a holder of less than a thirty-second of what is free, or nothing, is served. Such an answer to Fetch ends
there, or after its first batch: so what is left gets smaller with each connection that stands still, and answers become
shorter before any is refused. Only an answer that is larger than all that is left is refused once it is there.
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
"""A large answer: what one Fetch reads at most, and the batch that goes beyond it."""
_ANSWERS_MIN: Final = 4
"""Where the room of a connection is small, a large answer is expected to take this part of it: one in so many."""
_RESERVE: Final = 4
"""A part of all room, one in so many, that is not for those who hold their share already."""
_SHARES: Final = 32
"""The part of what is free, one in so many, that each connection may hold in any case. So fifty that stand still, with
batches of up to a mebibyte, leave room, whatever each could take and in whichever order they came."""


@dataclass(frozen=True, slots=True)
class AnswerLimits:
    """Bounds of the bytes of answers that wait for callers."""

    bytes_max: int = 256 * MEBI
    connection_bytes_max: int = 64 * MEBI

    @property
    def expected_bytes(self) -> int:
        """What an answer is taken for before it is there."""
        return min(_EXPECTED_BYTES, self.connection_bytes_max // _ANSWERS_MIN)


class AnswerBytes:
    """Implements `AnswerRoom`. On the loop thread only."""

    def __init__(self, limits: AnswerLimits) -> None:
        self._limits = limits
        expected_bytes = limits.expected_bytes
        reserved_bytes = limits.bytes_max // _RESERVE
        self._ample_bytes = min(
            limits.connection_bytes_max - expected_bytes, (limits.bytes_max - reserved_bytes) // 2 - expected_bytes
        )
        """While no more is held than this, of all connections, each may hold one more large answer, whatever it has."""
        self.is_scarce = self._ample_bytes < 0
        self._by_connection: Counter[Connection] = Counter()
        self._by_principal: Counter[str] = Counter()
        self._refused = {"connection": 0, "principal": 0, "server": 0}
        self.held_bytes = 0
        """What waits, of all connections."""

    @property
    def refused(self) -> Mapping[str, int]:
        """Calls that found no room, by whose room was full: that of their connection, of their principal, or of the
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
        """The share of each connection, however much the others hold. At most a large answer, and less as room gets
        scarce."""
        return min(self._limits.expected_bytes, (self._limits.bytes_max - self.held_bytes) // _SHARES)

    def _may_hold_more(self, held_bytes: int) -> bool:
        """Whether a connection that holds this may have one more large answer."""
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
    """Who holds nothing is forgotten."""
    left_bytes = held[key] + size_bytes
    assert left_bytes >= 0, f"{-left_bytes} bytes more were released than held"
    if left_bytes:
        held[key] = left_bytes
    else:
        del held[key]
