"""Fair turns for messages of sessions, so that the calls of one session never delay all others.

The loop does one thing at a time, and a message may hold calls for seconds of it. So in each turn of the loop, calls of
messages begin only for some milliseconds. The rest wait in a queue for each connection, and no session of that
connection is read meanwhile.

Every other turn of the loop is for the queues alone, which are served round robin. In the turns between, messages of
connections without a queue begin at once. They also do so while no queue exists. The calls of one connection begin in
order of arrival.

The loop yields only between calls; a few small calls always begin together, however long they take. A call that lists
what a server holds is not small: the calls behind it wait for another turn.
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
"""Time per turn of the loop for beginning calls of messages. Ordinary calls take less than a tenth of a millisecond
each, and those that begin together are flushed together."""
CALLS_MIN: Final = 64
BYTES_MIN: Final = 64 * KIBI
"""Calls of a message that begin together however long they take, in number or in bytes. So an ordinary message is
handled in the same way on a slow machine. A request with the maximum number of parts is at least as large."""

GoOn = Callable[[], bool]
"""Begins some of the waiting calls. Returns True if more are left."""


def is_enough(calls: Sequence[Call[Any]], first: int, place: int) -> bool:
    """Return True if the calls from `first` to before `place` are as many as begin together in any case."""
    if place - first >= CALLS_MIN or place == len(calls):
        return True
    return sum(call.size_bytes for call in calls[first : place + 1]) > BYTES_MIN


class FairMessages:
    """Decides which calls of messages begin in which turn of the loop.

    `soon` calls its argument in the next turn of the loop, as `loop.call_soon` does. It is None without a loop: then
    all calls begin at once. On the loop thread only.
    """

    def __init__(self, clock: Clock, soon: Callable[[Callable[[], None]], object] | None = None) -> None:
        self._clock = clock
        self._soon = soon
        self.until_us: float = inf
        """End of this turn's time, by `Clock.monotonic_us`. No more calls begin after it."""
        self._is_turn_due = False
        self._has_rested = False
        """True if the last turn was left to connections without a queue."""
        self._queues: dict[Connection, deque[GoOn]] = {}
        """Waiting calls by connection, in the order of service. No queue is empty."""
        self._resting: set[Connection] = set()
        """Connections of which no more calls begin in this turn."""

    def may_begin(self, connection: Connection) -> bool:
        """Return True if calls of a message of this connection may begin now."""
        if self._soon is None:
            return True
        if not self._is_turn_due:
            self._is_turn_due = True
            self._begin_turn()
            self._soon(self._turn)
            return True
        is_waiting = connection in self._queues or connection in self._resting
        return not is_waiting and self._clock.monotonic_us() < self.until_us

    def rest(self, connection: Connection) -> bool:
        """Begin no more calls of the connection in this turn. Return False without a loop, where all begin at once."""
        self._resting.add(connection)
        return self._soon is not None

    def wait(self, connection: Connection, go_on: GoOn) -> None:
        """Add calls to the end of the connection's queue. `go_on` is called when it is its turn, and again while it has
        more. It raises nothing."""
        self._queues.setdefault(connection, deque()).append(go_on)

    def is_behind(self, connection: Connection, then: Callable[[], None]) -> bool:
        """Return True if calls of the connection wait. `then` is called once they have begun."""
        if connection not in self._queues:
            return False

        def caught_up() -> bool:
            then()
            return False

        self.wait(connection, caught_up)
        return True

    def begin_all(self) -> None:
        """Begin all waiting calls when the server stops. They are refused, which costs little."""
        self.until_us = inf
        while self._queues:
            self._resting.clear()
            self._go_on(next(iter(self._queues)))

    def _begin_turn(self) -> None:
        self.until_us = self._clock.monotonic_us() + TURN_US_MAX
        self._resting.clear()

    def _turn(self) -> None:
        if not self._queues:
            self._is_turn_due = self._has_rested = False
            return
        assert self._soon is not None, "without a loop nothing waits"
        self._soon(self._turn)
        self._begin_turn()
        self._has_rested = not self._has_rested
        while not self._has_rested and self._clock.monotonic_us() < self.until_us:
            connection = next((each for each in self._queues if each not in self._resting), None)
            if connection is None:
                return
            self._go_on(connection)

    def _go_on(self, connection: Connection) -> None:
        """Begin some calls of a connection, and put its queue behind the others."""
        queue = self._queues[connection]
        # The queue stays meanwhile, so that calls triggered by its calls cannot overtake them.
        if not queue[0]():
            queue.popleft()
        del self._queues[connection]
        if queue:
            self._queues[connection] = queue
