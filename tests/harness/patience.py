"""Waits of a test for events without a clock of their own: as long as there is progress.

A wait in a test is there for hangs and not for speed, because a test must hold on a machine that is busy with something
else. So no test names seconds of its own (`tests/tidy/test_patience.py`); it uses, in this order:

- no limit at all: `process.wait()`, `event.wait()`, `subprocess.run(...)`. The watchdog (`watchdog.py`) ends a test
  that hangs, wherever it stands, and a context manager or `finally` cleans up as after any other failure;
- `looks` or `until`, for a condition that has no event and is looked at again and again;
- `DEADLINE_SECONDS`, where a call wants a deadline.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Final

DEADLINE_SECONDS: Final = 1_800.0
"""The deadline of a call that is expected to be answered: longer than any machine needs, and than any test may take."""

TRANSACTION_TIMEOUT_MS: Final = 900_000
"""The longest timeout that servers allow by default, for transactions over the wire that are not there to time out."""

LOOKING_SECONDS: Final = 60.0
"""Processor time that this process may spend on looking at one condition. Looking never rests, so processor time
measures how often it looked; wall time would also measure what else the machine had to do."""


def looks(at: str) -> Iterator[None]:
    """Yield before each look at a condition that has no event. Raises AssertionError, which says what was looked at,
    once there were enough of them.

    for _ in looks("the state of the id"):
        if state() == "Dead":
            return
    """
    until_seconds = time.process_time() + LOOKING_SECONDS
    while time.process_time() < until_seconds:
        yield
    raise AssertionError(f"{at}: not what was waited for, after {LOOKING_SECONDS:.0f} s of looking")


async def until(is_true: Callable[[], bool]) -> None:
    """Give way to the other tasks of the loop until something holds."""
    for _ in looks("the condition of the test"):
        if is_true():
            return
        await asyncio.sleep(0)
