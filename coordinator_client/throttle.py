"""The pauses that a server asked for in its answers, kept for everything that uses one connection.

An answer with `throttle_ms` says: "you were served; send no more for so long". Whoever comes earlier all the same is
refused, so the SDK waits. Records that come, records that go and calls at large are counted by the server for
themselves, and so one does not wait for the other. What frees others (`MethodRule.may_be_refused`) waits for nothing.

What waits for the same pause goes on one after the other, each call in a slot of its own: all of them at once would
take more than the server has for them, so that it refused most, and others would wait behind the refusals. The gap
between two slots is what the server's own answers say that a call costs.

Source: `coordinator_protocol.throttling`; spec security 7.4.
"""

from __future__ import annotations

from typing import Any, Final

from coordinator_client.calls import RetryingCall
from coordinator_client.log import LOGGER
from coordinator_protocol.methods import METHODS, Method
from coordinator_protocol.throttling import PAUSE_MS_MAX

_PRODUCES: Final = "records"
_FETCHES: Final = "fetches"
_CALLS: Final = "calls"

_ANSWERS_COUNTED: Final = 64
"""The gap is the mean of so many answers at most: then those so far count half."""


class _Queue:
    """The calls of one kind that wait, one behind the other, and how far apart they go."""

    __slots__ = ("_answers", "_is_busy", "_last_slot_ms", "_late_ms", "_taken_ms", "until_ms")

    def __init__(self) -> None:
        self.until_ms = 0
        """When the server's pause ends."""
        self._last_slot_ms = 0.0
        """The slot that was given last."""
        self._late_ms = 0.0
        """By how much all slots come later than they were given."""
        self._taken_ms = 0.0
        """How much time of the rate the calls took whose answers are counted."""
        self._answers = 0
        self._is_busy = False
        """Whether the last answer asked for a pause: then the rate is used as fast as it comes."""

    def note_served(self, until_ms: int, now_ms: int) -> None:
        """Count an answer to a call that was carried out. Where the rate is used as fast as it comes, calls took all
        the time since the last pause ended for which somebody waited; else no more than is asked for now."""
        if self._answers >= _ANSWERS_COUNTED:
            self._answers //= 2
            self._taken_ms /= 2
        self._answers += 1
        if until_ms > max(now_ms, self.until_ms):
            waited_ms = max(0.0, self._end_ms - self.until_ms) if self._is_busy else 0.0
            self._taken_ms += until_ms - max(self.until_ms, now_ms - waited_ms)
        self._is_busy = until_ms > now_ms

    @property
    def _end_ms(self) -> float:
        return self._last_slot_ms + self._late_ms

    def slot_of(self, until_ms: int, now_ms: int) -> float | None:
        """Return the slot of a call that comes now, while the pause ends at `until_ms`; None: it need not wait."""
        if self._end_ms > now_ms:
            gap_ms = self._taken_ms / self._answers if self._answers else 0.0
            slot_ms = min(self._last_slot_ms + gap_ms, now_ms + PAUSE_MS_MAX - self._late_ms)
        elif until_ms > now_ms:
            slot_ms, self._late_ms = float(until_ms), 0.0
        else:
            return None
        self._last_slot_ms = slot_ms
        return slot_ms

    def due_ms(self, slot_ms: float, until_ms: int, now_ms: int) -> int:
        """Return when a slot comes. Where it has come before the pause is over, it is late, and so are all others."""
        due_ms = int(slot_ms + self._late_ms)
        if due_ms <= now_ms < until_ms:
            self._late_ms += until_ms - now_ms
            due_ms = until_ms
        return due_ms


class Throttle:
    """Until when calls to one server wait. Usable from any thread: where two answers come at once, the shorter pause
    may count, and the next answer says so; where two calls ask at once, both may have the same slot."""

    __slots__ = ("_endpoint", "_queues", "ends_ms")

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint
        self._queues = {kind: _Queue() for kind in (_PRODUCES, _FETCHES, _CALLS)}
        self.ends_ms = 0
        """When the last pause is over and the last slot has come: until then there is something to wait for."""

    def note(self, method: Method, pause_ms: int, now_ms: int, *, is_refused: bool) -> None:
        """Note what an answer asked for: a pause, or none (0), which counts while others wait.

        A refusal says that this call must wait, which it does by itself; that others must too is known only of calls
        that bring or fetch records. More than `PAUSE_MS_MAX` is not waited for: the server says it again.
        """
        if pause_ms <= 0 and now_ms >= self.ends_ms:
            return
        kind = _kind(method)
        queue = self._queues[kind]
        until_ms = now_ms + min(pause_ms, PAUSE_MS_MAX)
        if not is_refused:
            queue.note_served(until_ms, now_ms)
        elif kind is _CALLS:
            return
        if until_ms <= max(now_ms, queue.until_ms):
            return
        queue.until_ms = until_ms
        self.ends_ms = max(self.ends_ms, until_ms)
        did = "refused" if is_refused else "served"
        LOGGER.debug(
            "the server at %s has %s %s and asks to send no more %s for %d ms",
            self._endpoint,
            did,
            method,
            kind,
            pause_ms,
        )

    def until_ms(self, method: Method) -> int:
        """Return when the pause ends for calls of this method; a time that is over: there is none."""
        if not METHODS[method].may_be_refused:
            return 0
        return max(self._queues[_CALLS].until_ms, self._queues[_kind(method)].until_ms)

    def hold(self, call: RetryingCall[Any, Any], now_ms: int) -> None:
        """Put a call off that is due, until its slot comes. Ask again when it is due then: a pause that was noted
        meanwhile puts off all that wait."""
        method = call.rpc.method
        if not METHODS[method].may_be_refused:
            return
        queue, until_ms = self._queues[_kind(method)], self.until_ms(method)
        if call.slot_ms is None:
            call.slot_ms = queue.slot_of(until_ms, now_ms)
        if call.slot_ms is not None:
            due_ms = queue.due_ms(call.slot_ms, until_ms, now_ms)
            self.ends_ms = max(self.ends_ms, due_ms)
            call.hold(due_ms)


def _kind(method: Method) -> str:
    rule = METHODS[method]
    return _PRODUCES if rule.brings_records else _FETCHES if rule.answers_records else _CALLS
