"""Repeated work, done a little per turn of the loop: each round looks at everything there is.

A round is a generator whose steps are short. Other work runs between two steps. A step changes state only by
operations; rounds only decide when to look.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from coordinator_runtime.runtime import Runtime

_PAUSE_MS: Final = 1
"""Least pause between two steps of a round (ms), in which the loop serves others."""


class Rounds:
    """Begins each round an interval after the last one ended, and the first one an interval after its creation."""

    def __init__(self, runtime: Runtime, name: str, interval_ms: int, begin: Callable[[], Iterator[None]]) -> None:
        self._runtime = runtime
        self._name = name
        self._interval_ms = interval_ms
        self._begin = begin
        self._pause(interval_ms, None)

    def _pause(self, delay_ms: int, round_: Iterator[None] | None) -> None:
        self._runtime.arm((self._name,), delay_ms, lambda: self._step(self._begin() if round_ is None else round_))

    def _step(self, round_: Iterator[None]) -> None:
        if self._runtime.has_failed:
            return
        is_over = next(round_, self) is self
        self._pause(self._interval_ms if is_over else _PAUSE_MS, None if is_over else round_)
