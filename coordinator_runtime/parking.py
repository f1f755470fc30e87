"""Calls that wait on the server until what is in their way is complete: a transaction, or the check of a payload.

Kafka answers CONCURRENT_TRANSACTIONS and lets every client sleep and try again, which costs it milliseconds per
transaction. Here the call waits in a queue per key, first in first out, so that nothing overtakes (design 5).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable

from coordinator_runtime.decision import ShardKey


class ParkedCall:
    """One waiting call. `attempt` tries it and says whether it is through (answered, or staged); `give_up` answers it
    with the refusal it waits for to go away."""

    __slots__ = ("attempt", "give_up")

    def __init__(self, attempt: Callable[[], bool], give_up: Callable[[], None]) -> None:
        self.attempt = attempt
        self.give_up = give_up


class Parking:
    """Queues of parked calls by key."""

    __slots__ = ("_calls", "_holders", "_retrying", "queues")

    def __init__(self) -> None:
        self.queues: dict[Hashable, deque[ParkedCall]] = {}
        """A call under one of these keys must queue behind others. Looked up by every call, changed here alone."""
        self._holders: dict[Hashable, ShardKey] = {}
        """Per queue the shard whose state is in the way."""
        self._retrying: set[Hashable] = set()
        self._calls = 0

    def __len__(self) -> int:
        return self._calls

    def park(
        self, key: Hashable, call: ParkedCall, *, is_first: bool = False, held_up_by: ShardKey | None = None
    ) -> None:
        """Let a call wait at the end of the queue, or before all others. `held_up_by`: the shard that refused it; one
        that only waits behind others has asked nobody."""
        queue = self.queues.setdefault(key, deque())
        if held_up_by is not None:
            self._holders[key] = held_up_by
        if is_first:
            queue.appendleft(call)
        else:
            queue.append(call)
        self._calls += 1

    def drop(self, key: Hashable, call: ParkedCall) -> None:
        """The caller gave up: take its call out, wherever it stands."""
        queue = self.queues.get(key)
        if queue is not None and call in queue:
            self._leave(key, queue, call)

    def retry_all_held_up_by(self, shard: ShardKey) -> None:
        """The shard is not served any more: those who wait for a change of its state get another answer now."""
        for key in [key for key, holder in self._holders.items() if holder == shard]:
            self.retry(key)

    def retry(self, key: Hashable) -> None:
        """Try the calls of a key in order until one still meets what it waits for.

        An attempt may answer its caller, who may call again at once, under the same key: that call parks at the end
        and is reached here. Until an attempt is over its call keeps its place, so that nothing can overtake it."""
        if key in self._retrying:
            return
        self._retrying.add(key)
        try:
            while (queue := self.queues.get(key)) is not None:
                call = queue[0]
                if not call.attempt():
                    return
                if call in queue:
                    self._leave(key, queue, call)
        finally:
            self._retrying.discard(key)

    def _leave(self, key: Hashable, queue: deque[ParkedCall], call: ParkedCall) -> None:
        queue.remove(call)
        self._calls -= 1
        if not queue and self.queues.get(key) is queue:
            del self.queues[key]
            self._holders.pop(key, None)

    def give_up_all(self) -> None:
        """The server stops: answer everybody."""
        queues = list(self.queues.values())
        self.queues.clear()
        self._holders.clear()
        self._calls = 0
        for queue in queues:
            for call in queue:
                call.give_up()
