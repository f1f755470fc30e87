"""Priority of a thread that computes while no other one wants the processor.

A kernel lets a busy thread go on for some 3 ms before one that woke up gets its processor. A commit beside a compaction
would wait for that again and again. Threads of the class for idle work are preempted at once.

Beside programs that never rest, such a thread gets next to nothing. So after a long wait it is an ordinary one for a
while.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from coordinator_runtime.clock import Clock, SystemClock, processor_ms

WAIT_MS_MAX: Final = 1_000
"""Longest wait of a computation at the low priority."""
ORDINARY_MS: Final = 10_000
"""Time at the usual priority after a longer wait."""


def set_idle(is_idle: bool) -> None:
    """Give the thread that calls the low priority, or the usual one. Does nothing where the system has no such class,
    or forbids the change."""
    if hasattr(os, "SCHED_IDLE"):
        with suppress(PermissionError):
            os.sched_setscheduler(0, os.SCHED_IDLE if is_idle else os.SCHED_OTHER, os.sched_param(0))


class BackgroundPriority:
    """Priority of the thread that makes it."""

    def __init__(
        self,
        set_idle: Callable[[bool], None] = set_idle,
        clock: Clock | None = None,
        used_ms: Callable[[], int] = processor_ms,
    ) -> None:
        """`used_ms` returns the processor time of the thread."""
        self._set_idle = set_idle
        self._clock = clock if clock is not None else SystemClock()
        self._used_ms = used_ms
        self._ordinary_until_ms = self._clock.monotonic_ms()
        self._is_idle = False

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Compute the block at the priority that is due."""
        began_ms, used_before_ms = self._clock.monotonic_ms(), self._used_ms()
        is_idle = began_ms >= self._ordinary_until_ms
        if is_idle != self._is_idle:
            self._set_idle(is_idle)
            self._is_idle = is_idle
        yield
        ended_ms = self._clock.monotonic_ms()
        waited_ms = ended_ms - began_ms - (self._used_ms() - used_before_ms)
        if waited_ms > WAIT_MS_MAX:
            self._ordinary_until_ms = ended_ms + ORDINARY_MS
