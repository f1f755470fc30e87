"""Detection of the end of a task's rows.

When a query fails in the JVM, or a task is killed there, Spark closes its connection to the Python worker. It kills the
worker some seconds later. In the middle of a batch of rows that is an error. Between two batches, Arrow takes it
for the end of the rows. A sink must tell the two apart. Otherwise a task with half of its rows would seal its member,
and be gone before the member could be aborted.

After the last row, Spark sends more at once: the number with which the worker then finishes. The worker's socket is no
API of Spark, so a test checks every Spark for it. In a process without that socket, nothing is checked.
"""

from __future__ import annotations

import select
import sys
from io import BufferedReader, BufferedRWPair
from types import FrameType
from typing import Final

_WORKERS: Final = ("pyspark.worker", "__main__")
"""Module whose function `main` has the socket: imported by Spark's daemon, or run directly."""


class RowsCutShort(RuntimeError):
    """The rows of a task ended because its query failed, or because the task was killed."""

    def __init__(self) -> None:
        super().__init__(
            "Spark broke the rows of this task off, because its query failed or the task was killed, and says itself "
            "why; nothing of the task is written"
        )


def check_all_rows_came() -> None:
    """Check, after the last row, that the rows were not cut short. Raises: RowsCutShort."""
    received = _received()
    if received is not None and not received.peek(1):
        raise RowsCutShort


def check_not_hung_up() -> None:
    """Check, between two rows, that Spark still listens, if the system can tell. Raises: RowsCutShort."""
    received = _received()
    if not isinstance(received, BufferedReader) or not hasattr(select, "POLLRDHUP"):
        return
    poll = select.poll()
    poll.register(received, select.POLLRDHUP)
    if poll.poll(0):
        raise RowsCutShort


def _received() -> BufferedReader | BufferedRWPair | None:
    """Return the stream of Spark's messages to this worker; None outside a worker."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code.co_name == "main" and frame.f_globals.get("__name__") in _WORKERS:
            found = frame.f_locals.get("infile")
            return found if isinstance(found, (BufferedReader, BufferedRWPair)) else None
        frame = frame.f_back
    return None
