"""Calls that wait on the server while a transaction, or the check of a payload, blocks them.

Kafka answers CONCURRENT_TRANSACTIONS and lets every client sleep and try again, which costs it milliseconds per
transaction. Here the call waits in a queue per key, first in first out, so that nothing overtakes (design 5). It waits
until it gets through, its deadline passes, its caller gives up, or the server stops.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from enum import StrEnum
from functools import partial
from typing import Any

from msgspec import Struct

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_runtime.clock import Clock, Timers
from coordinator_runtime.decision import ShardKey
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import CallContext


class WaitResult(StrEnum):
    """End of a parked call's wait."""

    SERVED = "served"
    """The call was no longer blocked, and was performed."""
    EXPIRED = "expired"
    """The deadline of the call came first: CONCURRENT_TRANSACTIONS."""
    LEFT = "left"
    """The caller gave up."""
    REFUSED = "refused"
    """The limit of waiting calls was reached: CONCURRENT_TRANSACTIONS at once."""
    STOPPED = "stopped"
    """The server stopped."""


class WaitEnded(Struct, frozen=True):
    """Event: the wait of a parked call ended. For metrics."""

    method: str
    result: WaitResult
    elapsed_us: int


class ParkedCall(Struct, frozen=True, eq=False):
    """A call that waits."""

    key: Hashable
    """Key of the call's queue."""
    attempt: Callable[[], ShardKey | None]
    """Tries the call once. Returns None if it was answered or staged, else the shard that still refuses it."""
    reply: Pending[Any]
    method: str
    began_us: int


class Parking:
    """Queues of parked calls, by key."""

    def __init__(self, clock: Clock, timers: Timers, *, calls_max: int, wait_ms_max: int) -> None:
        self._clock = clock
        self._timers = timers
        self._calls_max = calls_max
        self._wait_ms_max = wait_ms_max
        self.queues: dict[Hashable, deque[ParkedCall]] = {}
        """Queues by key: a call with one of these keys must queue behind others. Read by every call, changed only
        here."""
        self._holders: dict[Hashable, ShardKey] = {}
        """Shard whose state blocks the calls, by queue."""
        self._retrying: set[Hashable] = set()
        self._calls = 0
        self.on_wait_ended: Callable[[WaitEnded], None] = lambda _wait: None
        """Called when the wait of a parked call ends, and for a call that found no place to wait."""

    def __len__(self) -> int:
        """Number of calls that wait."""
        return self._calls

    def park(
        self,
        key: Hashable,
        attempt: Callable[[], ShardKey | None],
        reply: Pending[Any],
        context: CallContext,
        *,
        is_first: bool,
        held_up_by: ShardKey | None,
    ) -> None:
        """Let a call wait at the end of the queue, or before all others (`is_first`).

        `attempt` and `reply`: as in ParkedCall. `held_up_by`: the shard that refused the call; None for a call that
        only waits behind others."""
        call = ParkedCall(
            key=key, attempt=attempt, reply=reply, method=context.method, began_us=self._clock.monotonic_us()
        )
        if self._calls >= self._calls_max:
            self._end_wait(call, WaitResult.REFUSED)
            reply.fail(in_the_way())
            return
        queue = self.queues.setdefault(key, deque())
        if held_up_by is not None:
            self._holders[key] = held_up_by
        if is_first:
            queue.appendleft(call)
        else:
            queue.append(call)
        self._calls += 1
        reply.on_cancel = partial(self._give_up, call, WaitResult.LEFT)
        latest_ms = self._clock.monotonic_ms() + self._wait_ms_max
        deadline_ms = latest_ms if context.deadline_ms is None else min(context.deadline_ms, latest_ms)
        self._timers.arm(_timer_key(call), deadline_ms, partial(self._give_up, call, WaitResult.EXPIRED))

    def retry(self, key: Hashable) -> None:
        """Try the calls under a key in order, until one is still blocked.

        An attempt may answer its caller, who may call again at once under the same key: that call parks at the end and
        is reached here. Until an attempt is over, its call keeps its place, so that nothing can overtake it."""
        if key in self._retrying:
            return
        self._retrying.add(key)
        try:
            while (queue := self.queues.get(key)) is not None:
                call = queue[0]
                held_up_by = call.attempt()
                if held_up_by is not None:
                    if key in self.queues:
                        self._holders[key] = held_up_by
                    return
                self._end_wait(call, WaitResult.SERVED)
                self._take_out(call)
        finally:
            self._retrying.discard(key)

    def retry_all_held_up_by(self, shard: ShardKey) -> None:
        """Try all calls blocked by a shard that is no longer served: they now get another answer."""
        for key in [key for key, holder in self._holders.items() if holder == shard]:
            self.retry(key)

    def give_up_all(self) -> None:
        """Answer all parked calls, because the server stops."""
        queues = list(self.queues.values())
        self.queues.clear()
        self._holders.clear()
        self._calls = 0
        for queue in queues:
            for call in queue:
                self._give_up(call, WaitResult.STOPPED)

    def _give_up(self, call: ParkedCall, result: WaitResult) -> None:
        queue = self.queues.get(call.key)
        is_first = queue is not None and queue[0] is call
        self._end_wait(call, result)
        self._take_out(call)
        call.reply.fail(in_the_way())
        if is_first and call.key in self.queues:
            # The calls behind it may only have waited for their turn. They are tried in a turn of their own: a caller
            # that leaves with all of its calls must not have the later ones performed without the first.
            self._timers.arm(("parked", "next", call.key), self._clock.monotonic_ms(), partial(self.retry, call.key))

    def _end_wait(self, call: ParkedCall, result: WaitResult) -> None:
        self._timers.cancel(_timer_key(call))
        # Once it is staged or answered, nothing of it can be dropped.
        call.reply.on_cancel = None
        self.on_wait_ended(WaitEnded(call.method, result, self._clock.monotonic_us() - call.began_us))

    def _take_out(self, call: ParkedCall) -> None:
        """Remove the call from its queue, at any place. Consequences of its attempt may have removed it already."""
        queue = self.queues.get(call.key)
        if queue is None or call not in queue:
            return
        queue.remove(call)
        self._calls -= 1
        if not queue:
            del self.queues[call.key]
            self._holders.pop(call.key, None)


def in_the_way() -> Refused:
    """Return the refusal of a call that cannot wait, or not any longer."""
    return Refused(
        ErrorCode.CONCURRENT_TRANSACTIONS,
        "what came before is still in the way, a transaction being completed or a payload being checked; try again",
    )


def _timer_key(call: ParkedCall) -> Hashable:
    return ("parked", id(call.reply))
