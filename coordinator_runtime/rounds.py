"""Work that is done again and again, a little per turn of the loop: rounds that look at everything there is.

A round is a generator, and each of its steps is short. Between two steps everybody else has a turn. What a step does to
state it does by operations; rounds only decide when to look.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from coordinator_runtime.runtime import Runtime

_PAUSE_MS: Final = 1
"""Between two steps of a round: so long, at least, the loop belongs to others."""


class Rounds:
    """Begins a round an interval after the last one ended, from its making on."""

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
