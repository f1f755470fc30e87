"""Messages of sessions take turns, so that the calls of one never keep everybody else waiting.

The loop does one thing at a time, and a message may hold calls for seconds of it. So once calls of messages have been
begun for some milliseconds in one turn of the loop, the rest waits, in a queue for each connection, and no session of
that connection is read meanwhile. The queues have every other turn of the loop for themselves and are served round
robin; in the turns between them messages of connections without a queue begin at once, and so do they wherever nobody
waits. The calls of one connection begin in the order in which they came.

Only between two calls the loop can turn to others, and a few small ones begin together however long they take.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from math import inf
from typing import Any, Final

from coordinator_protocol.limits import KIBI
from coordinator_runtime.clock import Clock
from coordinator_runtime.ports import Connection
from coordinator_server.traffic.call import Call

TURN_US_MAX: Final = 10_000
"""How long calls of messages may be begun in one turn of the loop. Ordinary calls take less than a tenth of a
millisecond each, and those that begin together are flushed together."""
CALLS_MIN: Final = 64
BYTES_MIN: Final = 64 * KIBI
"""Calls of a message that begin together however long they take, in number or in bytes: then an ordinary message is
done in the same way on a slow machine. A request with as many parts as it may have is as large, or larger."""

GoOn = Callable[[], bool]
"""Begins some of what waits; whether more of it is left."""


def is_enough(calls: Sequence[Call[Any]], first: int, place: int) -> bool:
    """Whether those from the first to before this place are as many as begin together anyway."""
    if place - first >= CALLS_MIN or place == len(calls):
        return True
    return sum(call.size_bytes for call in calls[first : place + 1]) > BYTES_MIN


class FairMessages:
    """Decides which calls of messages begin in which turn of the loop.

    `soon` has its argument called in the next turn of the loop, as `loop.call_soon` does; None where there is no loop:
    then everything begins at once. On the loop thread only."""

    def __init__(self, clock: Clock, soon: Callable[[Callable[[], None]], object] | None = None) -> None:
        self._clock = clock
        self._soon = soon
        self.until_us: float = inf
        """When this turn has done its work: nothing more begins in it, by `Clock.monotonic_us`."""
        self._is_turn_due = False
        self._has_rested = False
        """Whether the last turn was left to those who have no queue."""
        self._queues: dict[Connection, deque[GoOn]] = {}
        """What waits, by connection, in the order in which they are served. None is empty."""

    def may_begin(self, connection: Connection) -> bool:
        """Whether calls of a message of this connection may begin now."""
        if self._soon is None:
            return True
        if not self._is_turn_due:
            self._is_turn_due = True
            self.until_us = self._clock.monotonic_us() + TURN_US_MAX
            self._soon(self._turn)
            return True
        return connection not in self._queues and self._clock.monotonic_us() < self.until_us

    def wait(self, connection: Connection, go_on: GoOn) -> None:
        """Have something begun when it is the turn of the connection, after all of it that waits already. It is called
        again while it has more, and raises nothing."""
        self._queues.setdefault(connection, deque()).append(go_on)

    def is_behind(self, connection: Connection, then: Callable[[], None]) -> bool:
        """Whether something of the connection waits; `then` is called once it has begun."""
        if connection not in self._queues:
            return False

        def caught_up() -> bool:
            then()
            return False

        self.wait(connection, caught_up)
        return True

    def begin_all(self) -> None:
        """Begin all that waits, in a server that stops: it is refused, which costs little."""
        self.until_us = inf
        while self._queues:
            self._go_on()

    def _turn(self) -> None:
        if not self._queues:
            self._is_turn_due = self._has_rested = False
            return
        assert self._soon is not None, "without a loop nothing waits"
        self._soon(self._turn)
        self.until_us = self._clock.monotonic_us() + TURN_US_MAX
        self._has_rested = not self._has_rested
        while not self._has_rested and self._queues and self._clock.monotonic_us() < self.until_us:
            self._go_on()

    def _go_on(self) -> None:
        """Begin some of what the first queue holds, and put that queue behind the others."""
        connection = next(iter(self._queues))
        queue = self._queues[connection]
        # The queue stays meanwhile: what its calls bring about may not overtake them.
        if not queue[0]():
            queue.popleft()
        del self._queues[connection]
        if queue:
            self._queues[connection] = queue
