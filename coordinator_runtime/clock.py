"""Time: the only access to the clocks, and one heap of deadlines on the monotonic clock.

All other code takes `now_ms` as an argument, or the port `Clock`.

Timers are soft state. A restart arms them again from stored times, and an expiry is an ordinary write that checks that
its reason still stands. So a timer that fires too late or once too often does no harm (design 5).

Between a decision about a timer and the moment it is durable, the timer has no deadline (`supersede`). The old deadline
has lost its reason, and the new one must not pass before anyone could know of it.
"""

from __future__ import annotations

import heapq
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Final, Protocol

from msgspec import Struct

FORGOTTEN_AT_ONCE: Final = 100
"""Replaced deadlines that one look drops, in some tenths of a millisecond. After a restart ten thousand members are due
at the same time, and each replaces its deadline with its first heartbeat."""


class Clock(Protocol):
    """Two clocks that are never compared with each other."""

    def wall_ms(self) -> int:
        """Return the Unix time (ms). For stored times only: the clock may be set, so it can jump in both directions."""

    def monotonic_ms(self) -> int:
        """Return the milliseconds since an arbitrary moment, never going back. For deadlines; meaningless after a
        restart."""

    def monotonic_us(self) -> int:
        """Return the monotonic time (us), for measuring durations."""


class SystemClock:
    """The clocks of the machine."""

    __slots__ = ()

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def monotonic_us(self) -> int:
        return time.monotonic_ns() // 1_000


def processor_ms() -> int:
    """Return the processor time that the calling thread has used (ms)."""
    return time.thread_time_ns() // 1_000_000


class _Armed(Struct, frozen=True):
    generation: int
    deadline_ms: int
    action: Callable[[], None]
    owner: Hashable
    kind: str


class Timers:
    """Named deadlines. Arming a name again replaces its deadline."""

    __slots__ = ("_armed", "_by_kind", "_generation", "_heap", "_staged")

    def __init__(self) -> None:
        self._armed: dict[Hashable, _Armed] = {}
        self._by_kind: Counter[str] = Counter()
        self._heap: list[tuple[int, int, Hashable]] = []
        self._generation = 0
        self._staged: dict[Hashable, int] = {}
        """Names with a decision that is not durable yet, and the number of the newest one."""

    def __len__(self) -> int:
        return len(self._armed)

    def by_kind(self) -> Mapping[str, int]:
        """Return the number of armed timers, by the first part of their names."""
        return +self._by_kind

    def arm(self, key: Hashable, deadline_ms: int, action: Callable[[], None], *, owner: Hashable = None) -> None:
        """Run the action once the deadline has passed. `owner`: see `cancel_of`."""
        self._generation += 1
        kind = str(key[0] if isinstance(key, tuple) else key)
        if key not in self._armed:
            self._by_kind[kind] += 1
        self._armed[key] = _Armed(self._generation, deadline_ms, action, owner, kind)
        heapq.heappush(self._heap, (deadline_ms, self._generation, key))
        if len(self._heap) > 64 and len(self._heap) > 4 * len(self._armed):
            self._forget_disarmed()

    def cancel(self, key: Hashable) -> None:
        armed = self._armed.pop(key, None)
        if armed is not None:
            self._by_kind[armed.kind] -= 1

    def cancel_of(self, owner: Hashable) -> None:
        """Cancel all timers of this owner. Looks at every timer, so use it for rare events only."""
        for key in [key for key, armed in self._armed.items() if armed.owner == owner]:
            self.cancel(key)

    def supersede(self, key: Hashable) -> int:
        """Disarm a timer because a decision about it was staged. Return the number of the decision, for `settle`."""
        self.cancel(key)
        self._generation += 1
        self._staged[key] = self._generation
        return self._generation

    def settle(self, key: Hashable, number: int) -> bool:
        """Note that the decision is durable. Return True if none was staged after it, so that it holds."""
        if self._staged.get(key) != number:
            return False
        del self._staged[key]
        return True

    def is_decided(self, key: Hashable) -> bool:
        """Return True if it is armed, or has a decision that is not durable yet."""
        return key in self._armed or key in self._staged

    def next_deadline_ms(self) -> int | None:
        """Return the time of the next look at the timers (ms); None if none is armed. Never too late.

        It is too early where many deadlines in a row were replaced: a call drops only some of them, so that it stays
        short."""
        for _entry in range(FORGOTTEN_AT_ONCE):
            if not self._heap:
                return None
            deadline_ms, generation, key = self._heap[0]
            armed = self._armed.get(key)
            if armed is not None and armed.generation == generation:
                return deadline_ms
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def due(self, now_ms: int) -> Iterator[Callable[[], None]]:
        """Disarm and yield the actions whose deadline has passed, earliest first. A caller may stop before the end: the
        rest is due at the next call, in the same order.

        Timers that the actions arm are not among them, however soon these are due: work in steps lets other work run
        between them. A call ends early where `next_deadline_ms` is too early."""
        newest = self._generation
        while (deadline_ms := self.next_deadline_ms()) is not None and deadline_ms <= now_ms:
            _, generation, key = self._heap[0]
            armed = self._armed.get(key)
            if armed is None or armed.generation != generation or generation > newest:
                return
            heapq.heappop(self._heap)
            self.cancel(key)
            yield armed.action

    def _forget_disarmed(self) -> None:
        """Keep the heap within a constant factor of the armed timers: a busy server re-arms far more timers than it
        fires."""
        self._heap = [(armed.deadline_ms, armed.generation, key) for key, armed in self._armed.items()]
        heapq.heapify(self._heap)
