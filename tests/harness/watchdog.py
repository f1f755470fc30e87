"""Ends a test that hangs, and no test that is slow: the limit that pytest-timeout sets (`timeout` in pyproject.toml)
counts seconds without progress.

A test has come to a halt if it and all processes that it started used next to no processor time for that long. On a
busy machine a test takes longer, but it goes on using its share. What works for ever, without getting anywhere, is
ended too, much later.
"""

from __future__ import annotations

import math
import os
import signal
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

import pytest
import pytest_timeout

IDLE_SHARE: Final = 0.01
"""Servers and a JVM that wait for work use less of a processor than this, and a process that has work gets more, even
where a hundred others want to run."""

BEGINS_AFTER_S: Final = 1.0
"""Reading the processor time of all processes takes some milliseconds, which tests that end before are spared."""

LOOKS_PER_LIMIT: Final = 10
LIMITS_MAX: Final = 6
"""A test that works is ended after this many times the limit: it makes no progress."""


class Settings(Protocol):
    """The settings of pytest-timeout's hook that we use."""

    @property
    def timeout(self) -> float: ...

    @property
    def method(self) -> str: ...


class Watchdog:
    """Looked at in regular steps (the limit has `LOOKS_PER_LIMIT`), it says when there is nothing more to wait for."""

    def __init__(self, limit_seconds: float, spent_seconds: Callable[[], float | None]) -> None:
        """`spent_seconds` tells the processor time used so far; None where the system does not tell."""
        self._limit_seconds = limit_seconds
        self._spent_seconds = spent_seconds
        self._begin()

    def _begin(self) -> None:
        self._last = self._spent_seconds()
        self._used_seconds = 0.0
        self._used: deque[float] = deque([0.0], maxlen=LOOKS_PER_LIMIT + 1)
        self._steps = 0

    def complaint(self) -> str | None:
        """Return the reason to end the test, or None while there is progress. To be called once per step. After a
        complaint it begins again, because what cleans up after the test may hang as well."""
        self._steps += 1
        self._look()
        found = self._judged()
        if found is not None:
            self._begin()
        return found

    def _look(self) -> None:
        """Add what was used since the last look. When a process ends without a waiting parent, all that it had used is
        gone from the sum. Such a step counts as progress."""
        before, self._last = self._last, self._spent_seconds()
        if before is None or self._last is None:
            self._used_seconds = math.inf
        elif self._last < before:
            self._used_seconds += self._limit_seconds * IDLE_SHARE
        else:
            self._used_seconds += self._last - before
        self._used.append(self._used_seconds)

    def _judged(self) -> str | None:
        if self._steps >= LOOKS_PER_LIMIT * LIMITS_MAX:
            return f"is not done after {self._limit_seconds * LIMITS_MAX:.0f} s"
        used = self._used[-1] - self._used[0] if math.isfinite(self._used[-1]) else math.inf
        if len(self._used) <= LOOKS_PER_LIMIT or used >= self._limit_seconds * IDLE_SHARE:
            return None
        return f"hangs: {used:.2f} s of processor time in the last {self._limit_seconds:.0f} s"


def spent_by_this_and_its_children() -> float | None:
    """Seconds of processor time used by this process and all below it, those that ended included. None where there is
    no /proc to read that in."""
    if not Path("/proc/self/stat").exists():
        return None
    spent: dict[int, float] = {}
    parents: dict[int, int] = {}
    ticks_per_second = os.sysconf("SC_CLK_TCK")
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                stat = (folder / "stat").read_text(errors="replace")
            except OSError:  # it has just ended, and its parent counts what it used
                continue
            # The name of the program, in brackets, may hold anything.
            fields = stat.rpartition(")")[2].split()
            parents[int(folder.name)] = int(fields[1])
            spent[int(folder.name)] = sum(map(int, fields[11:15])) / ticks_per_second
    return sum(spent[process] for process in spent if _is_below(process, os.getpid(), parents))


def _is_below(process: int, ancestor: int, parents: dict[int, int]) -> bool:
    while process != ancestor and process in parents:
        process = parents[process]
    return process == ancestor


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Settings) -> bool | None:
    """Take the place of the timer of pytest-timeout, where that would be a signal to the main thread."""
    if settings.method != "signal" or threading.current_thread() is not threading.main_thread():
        return None
    watchdog: Watchdog | None = None
    step_seconds = settings.timeout / LOOKS_PER_LIMIT

    def look(_signal: int, _frame: object) -> None:
        __tracebackhide__ = True
        nonlocal watchdog
        if watchdog is None:
            watchdog = Watchdog(settings.timeout, spent_by_this_and_its_children)
            return
        complaint = watchdog.complaint()
        if complaint is not None:
            pytest_timeout.dump_stacks(item.config.get_terminal_writer())
            pytest.fail(f"{item.nodeid} {complaint}")

    def cancel() -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)

    # pytest-timeout calls it at the end of the test.
    item.cancel_timeout = cancel  # type: ignore[attr-defined]
    signal.signal(signal.SIGALRM, look)
    signal.setitimer(signal.ITIMER_REAL, min(BEGINS_AFTER_S, step_seconds), step_seconds)
    return True
