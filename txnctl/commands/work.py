"""Progress of commands that may take long, on stderr."""

from __future__ import annotations

import os
import stat
import sys
from contextvars import ContextVar
from typing import TYPE_CHECKING, BinaryIO, Final

if TYPE_CHECKING:
    from coordinator_client.progress import WorkProgress

PROGRESS_LINES: Final[ContextVar[bool]] = ContextVar("PROGRESS_LINES", default=False)
"""Value of `--progress`: lines on a stderr that is no terminal."""


def progress_of(verb: str, unit: str, total: int | None = None) -> WorkProgress:
    """Return the progress of work that begins now."""
    from coordinator_client.clock import SystemClock
    from coordinator_client.progress import ProgressShown, WorkProgress

    shown = ProgressShown.EVERYWHERE if PROGRESS_LINES.get() else ProgressShown.TERMINAL
    return WorkProgress(verb, unit, total=total, clock=SystemClock(), stream=sys.stderr, shown=shown)


def progress_of_rows(verb: str, unit: str, total: int | None = None) -> WorkProgress:
    """Return the progress of work that prints rows. Nothing is shown if they go to a terminal: that is progress
    enough."""
    progress = progress_of(verb, unit, total)
    progress.is_shown = progress.is_shown and not sys.stdout.isatty()
    return progress


def bytes_left(file: BinaryIO) -> int | None:
    """Return the bytes that are left to read of a file; None for a pipe and for a terminal."""
    try:
        found = os.fstat(file.fileno())
        return found.st_size - file.tell() if stat.S_ISREG(found.st_mode) else None
    except OSError:
        return None
