"""Priority of a thread that computes while no other one wants the processor.

A kernel lets a busy thread go on for some 3 ms before one that woke up gets its processor. A commit beside a compaction
would wait for that again and again. Threads of the class for idle work are preempted at once.

Beside programs that never rest, such a thread gets next to nothing. So after a long wait it is an ordinary one for a
while.
"""

from __future__ import annotations

import os
import time  # noqa: TID251  processor time, and the time of a process of its own
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

WAIT_SECONDS_MAX: Final = 1.0
"""Longest wait of a computation at the low priority."""
ORDINARY_SECONDS: Final = 10.0
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
        now_seconds: Callable[[], float] = time.monotonic,
        used_seconds: Callable[[], float] = time.thread_time,
    ) -> None:
        """`used_seconds` is the processor time of the thread."""
        self._set_idle = set_idle
        self._now_seconds = now_seconds
        self._used_seconds = used_seconds
        self._ordinary_until_seconds = now_seconds()
        self._is_idle = False

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Compute the block at the priority that is due."""
        began, used_before = self._now_seconds(), self._used_seconds()
        is_idle = began >= self._ordinary_until_seconds
        if is_idle != self._is_idle:
            self._set_idle(is_idle)
            self._is_idle = is_idle
        yield
        ended = self._now_seconds()
        waited = ended - began - (self._used_seconds() - used_before)
        if waited > WAIT_SECONDS_MAX:
            self._ordinary_until_seconds = ended + ORDINARY_SECONDS
