"""Whether a task was given all of its rows.

A query that fails in the JVM, and a task that is killed there, close the socket to the Python worker. In the middle of
a batch that is an error; between two batches Arrow takes it for the end of the rows, and the worker only notices when
the task is done. A sink has to know before: a task that took half of its rows for all of them would seal its member,
and no one could abort that.

Where all rows came, Spark sends more at once: the number with which the worker then finishes. The worker's socket is no
API of Spark, so a test holds each Spark to it; in a worker where it is not found, nothing is checked.
"""

from __future__ import annotations

import sys
from typing import Any, Final

_WORKERS: Final = ("pyspark.worker", "__main__")
"""The module whose function `main` holds the socket: imported by Spark's daemon, or run by itself."""


class RowsCutShort(RuntimeError):
    """The rows of a task ended because its query failed, or because it was killed."""


def check_all_rows_came() -> None:
    """Check, behind the last row, that the rows have not just broken off. Raises: RowsCutShort."""
    peek = getattr(_input_of_worker(), "peek", None)
    if peek is not None and not peek(1):
        raise RowsCutShort(
            "Spark broke the rows of this task off, because the query failed or the task was killed: see its own error;"
            " nothing of the task is written"
        )


def _input_of_worker() -> Any:
    """Return what the worker reads from Spark, buffered; None outside a worker."""
    frame = sys._getframe()  # noqa: SLF001  there is no other way to it
    while frame is not None:
        if frame.f_code.co_name == "main" and frame.f_globals.get("__name__") in _WORKERS:
            return frame.f_locals.get("infile")
        frame = frame.f_back
    return None
