"""Repeated work, done a little per turn of the loop: each round looks at everything there is.

A round is a generator whose steps are short. Other work runs between two steps. A step changes state only by
operations; rounds only decide when to look. A round that yields a reply goes on once that is there (`awaited`).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import Any, Final, TypeAlias, TypeVar

from coordinator_runtime.pending import Pending
from coordinator_runtime.runtime import Runtime

T = TypeVar("T")

Steps: TypeAlias = Iterator[Pending[Any] | None]
"""The steps of a round: each ends with None, or with a reply that the next step waits for."""

_PAUSE_MS: Final = 1
"""Least pause between two steps of a round (ms), in which the loop serves others."""


def awaited(reply: Pending[T]) -> Generator[Pending[Any] | None, None, T]:
    """Wait for a reply within a round, without a step if it is there. Returns its value, or raises its error."""
    while not reply.is_settled:
        yield reply
    return reply.result()


class Rounds:
    """Begins each round an interval after the last one ended, and the first one an interval after its creation."""

    def __init__(self, runtime: Runtime, name: str, interval_ms: int, begin: Callable[[], Steps]) -> None:
        self._runtime = runtime
        self._name = name
        self._interval_ms = interval_ms
        self._begin = begin
        self._pause(interval_ms, None)

    def _pause(self, delay_ms: int, round_: Steps | None) -> None:
        self._runtime.arm((self._name,), delay_ms, lambda: self._step(self._begin() if round_ is None else round_))

    def _step(self, round_: Steps) -> None:
        if self._runtime.has_failed:
            return
        done = next(round_, self)
        if done is self:
            self._pause(self._interval_ms, None)
        elif isinstance(done, Pending):
            done.on_settled(lambda _reply: self._pause(_PAUSE_MS, round_))
        else:
            self._pause(_PAUSE_MS, round_)
