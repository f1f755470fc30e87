"""Fair turns for reads, so that a commit never waits for more than a few of them.

The loop does one thing at a time, and a large Fetch takes it for milliseconds. Hundreds of reads that came together
with a commit would all be done before it. So one turn of the loop does reading work up to a limit. Further reads wait
in a queue for each connection, and the queues are served round robin, one read each.

A read begins at once if no others wait. The reads of one connection begin in order of arrival. Its other calls do not
wait for them, just as they do not wait for a Fetch that waits for records.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.limits import MEBI
from coordinator_runtime.ports import Connection

CALL_WORK_BYTES: Final = 64 * 1_024
"""Cost of a call that finds nothing or is refused, expressed in bytes read: about 80 us."""


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """Limits of reading work, measured in bytes read or answered."""

    turn_bytes_max: int = 4 * MEBI
    """Reading work after which one turn of the loop begins no more reads: about 5 ms. A single read may be as large."""
    rest_turns: int = 8
    """Number of turns without queued reads after each turn with them: a commit needs several turns."""
    waiting_max: int = 16_384
    """Maximum number of queued reads."""
    waiting_bytes_max: int = 64 * MEBI
    """Maximum bytes of the requests of queued reads. A single one may wait whatever its size."""
    connection_share: int = 4
    """Divisor of both limits for the share of one connection."""


@dataclass(frozen=True, slots=True)
class _Read:
    begin: Callable[[], None]
    request_bytes: int


class _ReadQueue:
    """Queued reads of one connection."""

    __slots__ = ("bytes", "reads")

    def __init__(self) -> None:
        self.reads: deque[_Read] = deque()
        self.bytes = 0


def at_once(turn: Callable[[], None]) -> None:
    """Replacement for `loop.call_soon` without a loop: every read has its own turn."""
    turn()


class FairReads:
    """Decides which read begins in which turn of the loop.

    `soon` calls its argument in the next turn of the loop, as `loop.call_soon` does. On the loop thread only.
    """

    def __init__(
        self, soon: Callable[[Callable[[], None]], object] = at_once, limits: ReadLimits | None = None
    ) -> None:
        self._soon = soon
        self._limits = limits or ReadLimits()
        self._left_bytes = 0
        """Work that may still begin in this turn."""
        self._is_turn_due = False
        self._rest_turns = 0
        self._queues: dict[Connection, _ReadQueue] = {}
        """Queues in the order of service. None of them is empty."""
        self.waiting = 0
        self._waiting_bytes = 0

    def begin(self, connection: Connection, request_bytes: int, begin: Callable[[], None]) -> None:
        """Begin a read now, or queue it until its turn. `begin` raises nothing.

        Raises Refused THROTTLING_QUOTA_EXCEEDED if the queues are full.
        """
        if not self._is_turn_due:
            self._is_turn_due = True
            self._left_bytes = self._limits.turn_bytes_max
            self._soon(self._turn)
        if self._left_bytes > 0 and not self._queues:
            self._left_bytes -= CALL_WORK_BYTES
            begin()
        else:
            self._wait(connection, _Read(begin, request_bytes))

    def spent(self, work_bytes: int) -> None:
        """Count reading work that was done for any caller."""
        self._left_bytes -= work_bytes

    def begin_all(self) -> None:
        """Begin all queued reads when the server stops. They are refused, which costs little."""
        while self._queues:
            self._next().begin()

    def _wait(self, connection: Connection, read: _Read) -> None:
        limits, queue = self._limits, self._queues.get(connection)
        waiting, waiting_bytes = self.waiting, self._waiting_bytes + read.request_bytes
        if waiting >= limits.waiting_max or (waiting and waiting_bytes > limits.waiting_bytes_max):
            raise _refusal(waiting, "of all connections")
        share = limits.connection_share
        if queue is None:
            queue = self._queues[connection] = _ReadQueue()
        elif (
            len(queue.reads) >= limits.waiting_max // share
            or queue.bytes + read.request_bytes > limits.waiting_bytes_max // share
        ):
            raise _refusal(len(queue.reads), "of this connection")
        queue.reads.append(read)
        queue.bytes += read.request_bytes
        self.waiting += 1
        self._waiting_bytes = waiting_bytes

    def _next(self) -> _Read:
        """Take the first read of the first queue, and put that queue behind the others."""
        connection = next(iter(self._queues))
        queue = self._queues.pop(connection)
        read = queue.reads.popleft()
        queue.bytes -= read.request_bytes
        if queue.reads:
            self._queues[connection] = queue
        self.waiting -= 1
        self._waiting_bytes -= read.request_bytes
        return read

    def _turn(self) -> None:
        if not self._queues:
            self._is_turn_due, self._rest_turns = False, 0
            return
        self._soon(self._turn)
        if self._rest_turns:
            self._rest_turns -= 1
            return
        self._rest_turns = self._limits.rest_turns
        self._left_bytes = self._limits.turn_bytes_max
        while self._queues and self._left_bytes > 0:
            self._left_bytes -= CALL_WORK_BYTES
            self._next().begin()


def _refusal(waiting: int, whose: str) -> Refused:
    return Refused(
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        f"{waiting} reads {whose} wait for their turn, which is all this server takes; try again shortly",
    )
