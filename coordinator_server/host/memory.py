"""Memory of the process: the settings of the garbage collector, and the return of freed memory to the system."""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from coordinator_protocol.allocation import give_back_freed_memory
from coordinator_protocol.limits import MEBI
from coordinator_runtime.clock import Clock

_YOUNG_OBJECTS_MAX: Final = 20_000
"""Number of new objects after which the collector looks for cycles among them.

A transaction makes dozens of objects that live until the next flush and are no garbage. At Python's 700 the collector
took a tenth of the time of a busy server. At this number one pass takes about a millisecond.

The collector counts objects and not their bytes, so calls must leave no cycles. Answers of fetches in cycles were 20
MiB at times (`tests/harness/garbage.py` watches).
"""
_MIDDLE_EVERY: Final = 50
_OLD_EVERY: Final = 100


@contextmanager
def loading_for_good() -> Iterator[None]:
    """Suspend the garbage collector while state is read that lives as long as the process.

    Reading makes hundreds of thousands of objects and hardly any garbage. Repeated passes over all of them take a third
    of the time of a load. Later each pass blocks the loop for a quarter of a second. So the collector rests during the
    load. It never looks at the objects that exist at its end.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.set_threshold(_YOUNG_OBJECTS_MAX, _MIDDLE_EVERY, _OLD_EVERY)
        gc.enable()


_STATM: Final = Path("/proc/self/statm")
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_LOOK_S: Final = 1.0
_GROWN_BYTES: Final = 32 * MEBI
"""Minimum growth over the least resident size so far, and minimum gain of an attempt; less is not worth the effort."""
_QUIET_SHARE: Final = 0.2
"""Share of one processor below which the process counts as quiet. Then a pause delays no caller."""
_WAIT_LOOKS_MAX: Final = 60
"""Maximum number of looks to wait for a quiet moment. After that memory is given back anyway, with a pause of some 20
ms."""


class FreedMemory:
    """Decides when to give freed memory back. Knows no clock: it is asked at regular times.

    Freed memory stays resident, so it cannot be measured. A quiet process that has more than its former minimum tries
    to give some back. It waits twice as long after each attempt that gained nothing, because the memory may be in use.
    """

    def __init__(self, resident_bytes: int) -> None:
        self._least_bytes = resident_bytes
        self._looks = 0
        """Number of looks since memory was last given back, or since there was little to give."""
        self._pause_looks = 1

    def is_due(self, resident_bytes: int, busy_share: float) -> bool:
        """Return True if memory should be given back now. `busy_share` is the part of one processor used since the last
        time."""
        self._least_bytes = min(self._least_bytes, resident_bytes)
        if resident_bytes < self._least_bytes + _GROWN_BYTES:
            self._looks, self._pause_looks = 0, 1
            return False
        self._looks += 1
        return self._looks >= (self._pause_looks if busy_share < _QUIET_SHARE else _WAIT_LOOKS_MAX)

    def gave_back(self, before_bytes: int, after_bytes: int) -> None:
        """Record that memory was given back, with the resident bytes before and after."""
        has_gained = before_bytes - after_bytes >= _GROWN_BYTES
        self._pause_looks = 1 if has_gained else min(2 * self._pause_looks, _WAIT_LOOKS_MAX)
        self._looks = 0


class MemoryKeeper:
    """Gives freed memory back when the process is quiet, for as long as the loop runs. Otherwise it is kept, because a
    busy server would need it again at once (`keep_freed_memory`)."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._freed = FreedMemory(_resident_bytes())
        self._looked_us = 0
        self._used_s = 0.0

    def start(self) -> None:
        """Begin, on the running loop. Does nothing if the system does not report the resident memory."""
        if _STATM.exists():
            self._look_later()

    def _look_later(self) -> None:
        self._looked_us, self._used_s = self._clock.monotonic_us(), sum(os.times()[:2])
        asyncio.get_running_loop().call_later(_LOOK_S, self._look)

    def _look(self) -> None:
        elapsed_s = (self._clock.monotonic_us() - self._looked_us) / 1e6
        used_s = sum(os.times()[:2]) - self._used_s
        before_bytes = _resident_bytes()
        if self._freed.is_due(before_bytes, used_s / elapsed_s) and give_back_freed_memory():
            self._freed.gave_back(before_bytes, _resident_bytes())
        self._look_later()


def _resident_bytes() -> int:
    return int(_STATM.read_text().split()[1]) * _PAGE_BYTES if _STATM.exists() else 0
