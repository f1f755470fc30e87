"""The whole of a terminal, drawn again and again in place: for `--watch` and `txnctl top`."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Callable, Sequence
from types import FrameType, TracebackType
from typing import Final, NamedTuple, TextIO

_ENTER: Final = "\x1b[?1049h\x1b[?25l\x1b[?7l"
"""Another screen, no cursor, and no line that goes on in the next: so a frame has as many lines as it is meant to."""
_LEAVE: Final = "\x1b[?7h\x1b[?25h\x1b[?1049l"
_HOME: Final = "\x1b[H"
_END_OF_LINE: Final = "\x1b[K"
_END_OF_SCREEN: Final = "\x1b[J"


class ScreenSize(NamedTuple):
    """Size of a terminal in cells."""

    columns: int
    lines: int


def terminal_size() -> ScreenSize:
    """Return the size of the terminal at this moment. The variables LINES and COLUMNS would not follow it."""
    try:
        return ScreenSize(*os.get_terminal_size(sys.stdout.fileno()))
    except OSError:
        return ScreenSize(*shutil.get_terminal_size())


class LiveScreen:
    """Shows frames in place of each other, and gives the terminal back as it was, also after SIGTERM."""

    def __init__(self, stream: TextIO, size: Callable[[], ScreenSize] = terminal_size) -> None:
        self._stream = stream
        self.size = size
        """Asked once for each frame, because a user may change it at any time."""

    def __enter__(self) -> LiveScreen:
        self._before = signal.signal(signal.SIGTERM, _end)
        self._write(_ENTER)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._write(_LEAVE)
        signal.signal(signal.SIGTERM, self._before)

    def draw(self, lines: Sequence[str], size: ScreenSize) -> None:
        """Show a frame. Lines that do not fit are left out, and the last one says so."""
        shown = list(lines[: size.lines])
        if len(lines) > len(shown) and shown:
            shown[-1] = f"... {len(lines) - len(shown) + 1} more lines"
        body = "\r\n".join(line + _END_OF_LINE for line in shown)
        # One write, so that no half of a frame is seen.
        self._write(f"{_HOME}{body}{_END_OF_SCREEN}")

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


def _end(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)
