"""Looks at files or disks at regular intervals, on a thread of the loop's pool, because a disk may be slow."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

FoundT = TypeVar("FoundT")


class RegularLooks(Generic[FoundT]):
    """Looks one after the other, until they are stopped. Stop them before the loop ends its pool."""

    def __init__(
        self, look: Callable[[], FoundT], interval_seconds: float, then: Callable[[FoundT], None] = lambda _found: None
    ) -> None:
        """`look` runs on the pool, `then` on the loop."""
        self._look = look
        self._interval_seconds = interval_seconds
        self._then = then
        self._next: asyncio.TimerHandle | None = None
        self._is_stopped = False

    def start(self) -> None:
        """Look after one interval, and again one interval after each look."""
        if not self._is_stopped:
            self._next = asyncio.get_running_loop().call_later(self._interval_seconds, self._look_aside)

    def stop(self) -> None:
        """Begin no more looks. One under way has no effect."""
        self._is_stopped = True
        if self._next is not None:
            self._next.cancel()

    def _look_aside(self) -> None:
        asyncio.get_running_loop().run_in_executor(None, self._look).add_done_callback(self._on_looked)

    def _on_looked(self, looking: asyncio.Future[FoundT]) -> None:
        if self._is_stopped or looking.cancelled():
            return
        self.start()
        self._then(looking.result())
