"""Pauses that a server asked for in its answers, shared by all users of one connection.

An answer with `throttle_ms` says: "you were served; send no more for so long". An earlier call is refused, so the SDK
waits. The server counts brought records, fetched records and calls separately. So calls that bring records do not wait
for a pause of fetches, nor fetches for a pause of records. A pause of calls holds all of them. Calls that others depend
on (`MethodRule.may_be_refused` is False) never wait.

Calls that wait for the same pause continue one after the other, each in its own slot. All at once would exceed the
server's rate: it would refuse most of them, and other calls would wait behind the refusals. The gap between two slots
is the cost of a call according to the server's own answers.

Source: `coordinator_protocol.throttling`; decision 44.
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
"""Number of answers of which the gap is the mean; above it, the earlier answers count half."""


class _Queue:
    """The waiting calls of one kind, one behind the other, and the gap between them."""

    __slots__ = ("_answers", "_is_busy", "_last_slot_ms", "_late_ms", "_taken_ms", "until_ms")

    def __init__(self) -> None:
        self.until_ms = 0
        """End of the server's pause (ms)."""
        self._last_slot_ms = 0.0
        """Last slot that was given (ms)."""
        self._late_ms = 0.0
        """Delay of all given slots (ms)."""
        self._taken_ms = 0.0
        """Time of the rate used by the calls whose answers are counted (ms)."""
        self._answers = 0
        self._is_busy = False
        """True if the last answer asked for a pause, so that the rate is fully used."""

    def note_served(self, until_ms: int, now_ms: int) -> None:
        """Count an answer to a call that was carried out. If the rate is fully used, calls took all the time since the
        last pause ended during which a call waited. Otherwise they took no more than is asked for now."""
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
        """Return the slot of a call that comes now, while the pause ends at `until_ms`; None = it need not wait."""
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
        """Return the time of a slot. If it comes before the pause is over, it is late, and so are all others."""
        due_ms = int(slot_ms + self._late_ms)
        if due_ms <= now_ms < until_ms:
            self._late_ms += until_ms - now_ms
            due_ms = until_ms
        return due_ms


class Throttle:
    """End of the pauses for calls to one server. Usable from any thread. If two answers come at once, the shorter pause
    may count until the next answer. If two calls ask at once, both may get the same slot."""

    __slots__ = ("_endpoint", "_queues", "ends_ms")

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint
        self._queues = {kind: _Queue() for kind in (_PRODUCES, _FETCHES, _CALLS)}
        self.ends_ms = 0
        """Time at which the last pause is over and the last slot has come; nothing waits after it (ms)."""

    def note(self, method: Method, pause_ms: int, now_ms: int, *, is_refused: bool) -> None:
        """Note the pause that an answer asked for; 0 = none, which counts while other calls wait.

        A refusal means that this call must wait, which it does by itself. It means that other calls must wait too only
        if it concerns calls that bring or fetch records. No pause is longer than `PAUSE_MS_MAX`: the server repeats it.
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
        """Return the end of the pause for calls of this method; a past time = there is no pause."""
        if not METHODS[method].may_be_refused:
            return 0
        return max(self._queues[_CALLS].until_ms, self._queues[_kind(method)].until_ms)

    def hold(self, call: RetryingCall[Any, Any], now_ms: int) -> None:
        """Postpone a due call until its slot. Call this again when it is due then: a pause noted meanwhile postpones
        all waiting calls."""
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
