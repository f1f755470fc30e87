"""Progress of long work, on stderr: how much is done, how fast, and the time that is left.

A terminal shows one line that changes, other streams get a line every few seconds if they are asked for. Work that is
over within two seconds shows nothing.
"""

from __future__ import annotations

from collections import deque
from enum import Enum
from types import TracebackType
from typing import Final, TextIO

from coordinator_client.clock import Clock

FIRST_MS: Final = 2_000
"""Work that takes less time shows nothing (ms)."""
LINE_MS: Final = 5_000
"""Interval between lines on a stream that is no terminal (ms)."""
_DRAW_MS: Final = 200
"""Shortest interval between two changes of the line in a terminal (ms)."""
_WINDOW_MS: Final = 15_000
"""Time over which the rate is measured (ms)."""
_SIZES: Final = ("B", "KiB", "MiB", "GiB", "TiB")


class ProgressShown(Enum):
    """Places where progress is shown."""

    TERMINAL = "terminal"
    """Only in a terminal."""
    EVERYWHERE = "everywhere"
    NOWHERE = "nowhere"

    def is_on(self, stream: TextIO) -> bool:
        """True if progress is shown on a stream."""
        return self is ProgressShown.EVERYWHERE or (self is ProgressShown.TERMINAL and stream.isatty())


class WorkProgress:
    """Progress of one piece of work, in records, bytes or another unit. Leave the `with` block to end its line."""

    def __init__(
        self, verb: str, unit: str, *, total: int | None = None, clock: Clock, stream: TextIO, shown: ProgressShown
    ) -> None:
        """`verb` is what has been done to the units, such as "copied"; a total that is unknown is None."""
        self.total = total
        self.done = 0
        self._verb, self._unit = verb, unit
        self._clock, self._stream = clock, stream
        self._is_terminal = stream.isatty()
        self.is_shown = shown.is_on(stream)
        """False if nothing is ever shown, so that a caller may save the effort of counting."""
        now_ms = clock.monotonic_ms()
        self._samples: deque[tuple[int, int]] = deque([(now_ms, 0)])
        self._next_ms = now_ms + (FIRST_MS if self._is_terminal else max(FIRST_MS, LINE_MS))
        self._has_line = False

    def __enter__(self) -> WorkProgress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def advance(self, count: int) -> None:
        """Add to the units that are done."""
        self.reach(self.done + count)

    def reach(self, done: int) -> None:
        """Set the number of units that are done."""
        self.done = done
        if self.is_shown:
            now_ms = self._clock.monotonic_ms()
            if now_ms >= self._next_ms:
                self._show(now_ms)

    def close(self) -> None:
        """Remove the line from the terminal, because what follows is the result."""
        if self._has_line:
            self._write("\r\x1b[K")
            self._has_line = False

    def text(self, now_ms: int) -> str:
        """Return the line: how much, how fast, how long."""
        began_ms, before = self._samples[0]
        per_second = (self.done - before) * 1_000 / max(1, now_ms - began_ms)
        parts = [f"{self._verb} {self._amount(self.done)}"]
        if self.total:
            percent = min(100, self.done * 100 // self.total)
            parts = [
                f"{self._verb} {self._amount(self.done)} of {self._amount(self.total)}{self._named()} ({percent}%)"
            ]
        else:
            parts[0] += self._named()
        parts.append(f"{self._amount(round(per_second))}/s")
        if self.total and per_second > 0:
            parts.append(f"{_span(max(0, self.total - self.done) / per_second)} left")
        return ", ".join(parts)

    def _show(self, now_ms: int) -> None:
        text = self.text(now_ms)
        if self._is_terminal:
            self._write(f"\r{text}\x1b[K")
            self._has_line = True
        else:
            self._write(f"{text}\n")
        self._next_ms = now_ms + (_DRAW_MS if self._is_terminal else LINE_MS)
        self._samples.append((now_ms, self.done))
        while len(self._samples) > 2 and self._samples[1][0] <= now_ms - _WINDOW_MS:
            self._samples.popleft()

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()

    def _named(self) -> str:
        return "" if self._unit == "bytes" else f" {self._unit}"

    def _amount(self, number: int) -> str:
        if self._unit != "bytes":
            return f"{number:,}"
        amount = float(number)
        for unit in _SIZES[:-1]:
            if amount < 1024:
                return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
            amount /= 1024
        return f"{amount:.1f} {_SIZES[-1]}"


def rate_and_left(done: int, left: int, elapsed_ms: int) -> str:
    """Return the rate of a step and the time for what is left, as in "500/s, 8s left". Empty if that is under two
    seconds."""
    if done <= 0 or left * elapsed_ms < done * FIRST_MS:
        return ""
    return f"{done * 1_000 // max(1, elapsed_ms):,}/s, {_span(left * elapsed_ms / done / 1_000)} left"


def _span(seconds: float) -> str:
    """Return a time as its two largest units: 12s, 4m05s, 2h10m."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    minutes, whole = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes}m{whole:02}s"
    return f"{minutes // 60}h{minutes % 60:02}m"
