"""Open files: how many the process may have, and what they are for.

Every connection is an open file, and so is every file of the store. A store that finds none left must stop for good; so
connections get only what the store and the rest of the process cannot need.
"""

from __future__ import annotations

import resource
from dataclasses import dataclass
from typing import Final

_OTHERS: Final = 160
"""Open files besides store and connections: the interpreter, the loop, logs, pipes, scrapes, segments, the write-ahead
log, and the files of a compaction."""
_STORE_FILES_MIN: Final = 64
_STORE_FILES_MAX: Final = 4_096
"""Sorted files that the store keeps open. It opens a file again when it needs one that it closed."""
_STORE_SHARE: Final = 4
"""Fraction of all open files that the store gets: one in so many."""
_CONNECTIONS_MIN: Final = 16

HANDLES_MIN: Final = _OTHERS + _STORE_FILES_MIN + _CONNECTIONS_MIN
"""How many open files a process must be allowed to be a server."""


class TooFewHandles(Exception):
    """The system lets the process open too few files. The message says what to do."""


@dataclass(frozen=True, slots=True)
class HandlePlan:
    """How the open files of the process are shared out."""

    handles_max: int
    store_files_max: int
    connections_max: int


def plan_handles(handles_max: int, connections_wanted: int) -> HandlePlan:
    """Share out `handles_max` open files. Connections are fewer than wanted where the rest needs them. Raises
    TooFewHandles."""
    if handles_max < HANDLES_MIN:
        raise TooFewHandles(
            f"this process may open {handles_max} files and needs at least {HANDLES_MIN}: raise the limit with"
            " `ulimit -n`, or LimitNOFILE= of the systemd unit"
        )
    store_files_max = min(max(handles_max // _STORE_SHARE, _STORE_FILES_MIN), _STORE_FILES_MAX)
    left = handles_max - _OTHERS - store_files_max
    return HandlePlan(handles_max, store_files_max, min(connections_wanted, left))


def raise_handle_limit() -> int:
    """Let the process open as many files as the system allows it without privileges; returns how many those are. A
    limit that was set for a reason is the hard one, which stays."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError):
            # Some systems call the hard limit boundless and refuse it: then the soft one is what there is.
            return soft
    return _HANDLES_WITHOUT_BOUND if hard == resource.RLIM_INFINITY else hard


_HANDLES_WITHOUT_BOUND: Final = 1 << 20
"""Stands for "as many as you like"."""
