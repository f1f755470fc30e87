"""Whether a task was given all of its rows.

A query that fails in the JVM, and a task that is killed there, hang up on the Python worker, which is killed itself
some seconds later. In the middle of a batch of rows that is an error; between two batches Arrow takes it for the end of
the rows. A sink has to know: a task that took half of its rows for all of them would seal its member, and be gone
before the member could be aborted.

Where all rows came, Spark sends more at once: the number with which the worker then finishes. The worker's socket is no
API of Spark, so a test holds each Spark to it; in a process where it is not found, nothing is checked.
"""

from __future__ import annotations

import select
import sys
from io import BufferedReader, BufferedRWPair
from types import FrameType
from typing import Final

_WORKERS: Final = ("pyspark.worker", "__main__")
"""The module whose function `main` holds the socket: imported by Spark's daemon, or run by itself."""


class RowsCutShort(RuntimeError):
    """The rows of a task ended because its query failed, or because it was killed."""

    def __init__(self) -> None:
        super().__init__(
            "Spark broke the rows of this task off, because its query failed or the task was killed, and says itself "
            "why; nothing of the task is written"
        )


def check_all_rows_came() -> None:
    """Check, behind the last row, that the rows have not just broken off. Raises: RowsCutShort."""
    received = _received()
    if received is not None and not received.peek(1):
        raise RowsCutShort


def check_not_hung_up() -> None:
    """Check, between two rows, that Spark still listens, as far as this system tells. Raises: RowsCutShort."""
    received = _received()
    if not isinstance(received, BufferedReader) or not hasattr(select, "POLLRDHUP"):
        return
    poll = select.poll()
    poll.register(received, select.POLLRDHUP)
    if poll.poll(0):
        raise RowsCutShort


def _received() -> BufferedReader | BufferedRWPair | None:
    """Return the stream of what Spark sends to this worker; None outside a worker."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code.co_name == "main" and frame.f_globals.get("__name__") in _WORKERS:
            found = frame.f_locals.get("infile")
            return found if isinstance(found, (BufferedReader, BufferedRWPair)) else None
        frame = frame.f_back
    return None
