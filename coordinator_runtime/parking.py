"""Calls that wait on the server until what is in their way is gone: a transaction, or the check of a payload.

Kafka answers CONCURRENT_TRANSACTIONS and lets every client sleep and try again, which costs it milliseconds per
transaction. Here the call waits in a queue per key, first in first out, so that nothing overtakes (design 5), until it
gets through, its deadline passes, its caller gives up, or the server stops.
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
    """How the wait of a parked call ended."""

    SERVED = "served"
    """What was in its way is done, and it was performed."""
    EXPIRED = "expired"
    """Its deadline came first: CONCURRENT_TRANSACTIONS."""
    LEFT = "left"
    """The caller gave up."""
    REFUSED = "refused"
    """There was no room to wait: CONCURRENT_TRANSACTIONS at once."""
    STOPPED = "stopped"
    """The server stops."""


class WaitEnded(Struct, frozen=True):
    """A parked call waits no more, for whoever measures."""

    method: str
    result: WaitResult
    elapsed_us: int


class ParkedCall(Struct, frozen=True, eq=False):
    """A call that waits."""

    key: Hashable
    """Key of its queue."""
    attempt: Callable[[], ShardKey | None]
    """Tries it once. None if it got through, that is, it was answered or staged; else the shard that still refuses."""
    reply: Pending[Any]
    method: str
    began_us: int


class Parking:
    """Queues of parked calls by key."""

    def __init__(self, clock: Clock, timers: Timers, *, calls_max: int, wait_ms_max: int) -> None:
        self._clock = clock
        self._timers = timers
        self._calls_max = calls_max
        self._wait_ms_max = wait_ms_max
        self.queues: dict[Hashable, deque[ParkedCall]] = {}
        """A call under one of these keys must queue behind others. Looked up by every call, changed here alone."""
        self._holders: dict[Hashable, ShardKey] = {}
        """By queue, the shard whose state is in the way."""
        self._retrying: set[Hashable] = set()
        self._calls = 0
        self.on_wait_ended: Callable[[WaitEnded], None] = lambda _wait: None
        """Told of every call that was parked, or found no room for that."""

    def __len__(self) -> int:
        """Calls that wait."""
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
        """Let a call wait at the end of the queue, or before all others. `attempt` and `reply`: as in ParkedCall.
        `held_up_by`: the shard that refused it; a call that only waits behind others has asked nobody."""
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
        """What the calls under a key wait for may be done: try them in order until one still meets it.

        An attempt may answer its caller, who may call again at once, under the same key: that call parks at the end
        and is reached here. Until an attempt is over its call keeps its place, so that nothing can overtake it."""
        if key in self._retrying:
            return
        self._retrying.add(key)
        try:
            while (queue := self.queues.get(key)) is not None:
                call = queue[0]
                if call.attempt() is not None:
                    return
                self._end_wait(call, WaitResult.SERVED)
                self._take_out(call)
        finally:
            self._retrying.discard(key)

    def retry_all_held_up_by(self, shard: ShardKey) -> None:
        """The shard is not served any more: those who wait for a change of its state get another answer now."""
        for key in [key for key, holder in self._holders.items() if holder == shard]:
            self.retry(key)

    def give_up_all(self) -> None:
        """The server stops: answer everybody."""
        queues = list(self.queues.values())
        self.queues.clear()
        self._holders.clear()
        self._calls = 0
        for queue in queues:
            for call in queue:
                self._give_up(call, WaitResult.STOPPED)

    def _give_up(self, call: ParkedCall, result: WaitResult) -> None:
        self._end_wait(call, result)
        self._take_out(call)
        call.reply.fail(in_the_way())

    def _end_wait(self, call: ParkedCall, result: WaitResult) -> None:
        self._timers.cancel(_timer_key(call))
        # Once it is staged, or answered, nothing of it can be dropped.
        call.reply.on_cancel = None
        self.on_wait_ended(WaitEnded(call.method, result, self._clock.monotonic_us() - call.began_us))

    def _take_out(self, call: ParkedCall) -> None:
        """Wherever it stands; what it led to may have taken it out before."""
        queue = self.queues.get(call.key)
        if queue is None or call not in queue:
            return
        queue.remove(call)
        self._calls -= 1
        if not queue:
            del self.queues[call.key]
            self._holders.pop(call.key, None)


def in_the_way() -> Refused:
    """What a call is told that cannot wait, or not any longer."""
    return Refused(
        ErrorCode.CONCURRENT_TRANSACTIONS,
        "what came before is still in the way, a transaction being completed or a payload being checked; try again",
    )


def _timer_key(call: ParkedCall) -> Hashable:
    return ("parked", id(call.reply))
