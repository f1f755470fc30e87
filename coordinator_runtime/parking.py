"""Calls that wait on the server until what is in their way is complete.

Kafka answers CONCURRENT_TRANSACTIONS and lets every client sleep and try again, which costs it milliseconds per
transaction. Here the call waits in a queue per key, first in first out, so that nothing overtakes (design 5).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable


class ParkedCall:
    """One waiting call. `attempt` tries it and says whether it is through (answered, or staged); `give_up` answers it
    with the refusal it waits for to go away."""

    __slots__ = ("attempt", "give_up", "is_dropped")

    def __init__(self, attempt: Callable[[], bool], give_up: Callable[[], None]) -> None:
        self.attempt = attempt
        self.give_up = give_up
        self.is_dropped = False


class Parking:
    """Queues of parked calls by key."""

    __slots__ = ("_queues",)

    def __init__(self) -> None:
        self._queues: dict[Hashable, deque[ParkedCall]] = {}

    def __len__(self) -> int:
        return sum(len(queue) for queue in self._queues.values())

    def is_waiting(self, key: Hashable) -> bool:
        """True when a call under this key must queue behind others."""
        return key in self._queues

    def park(self, key: Hashable, call: ParkedCall) -> None:
        self._queues.setdefault(key, deque()).append(call)

    def drop(self, key: Hashable, call: ParkedCall) -> None:
        """The caller gave up: the call changes nothing any more."""
        call.is_dropped = True
        queue = self._queues.get(key)
        if queue is not None and call in queue:
            queue.remove(call)
            if not queue:
                del self._queues[key]

    def retry(self, key: Hashable) -> None:
        """Try the calls of a key in order until one is still in the way of itself."""
        queue = self._queues.get(key)
        while queue:
            call = queue[0]
            if not call.is_dropped and not call.attempt():
                return
            # The attempt may have dropped or requeued calls of the same key, so look at the queue anew.
            if queue and queue[0] is call:
                queue.popleft()
        if queue is not None and self._queues.get(key) is queue:
            del self._queues[key]

    def give_up_all(self) -> None:
        """The server stops: answer everybody."""
        queues, self._queues = self._queues, {}
        for queue in queues.values():
            for call in queue:
                call.give_up()
