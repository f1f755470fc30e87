"""Open files: the limit of the process, and their distribution.

Every connection is an open file, and so is every file of the store. A store that cannot open a file must stop
permanently. So connections only get the files that the store and the rest of the process cannot need.
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
"""Maximum number of sorted files that the store keeps open. It reopens a closed one on demand."""
_STORE_SHARE: Final = 4
"""Divisor for the store's share of all open files."""
_CONNECTIONS_MIN: Final = 16

HANDLES_MIN: Final = _OTHERS + _STORE_FILES_MIN + _CONNECTIONS_MIN
"""Minimum number of open files that a server process needs."""


class TooFewHandles(Exception):
    """The system lets the process open too few files. The message says what to do."""


@dataclass(frozen=True, slots=True)
class HandlePlan:
    """Distribution of the open files of the process."""

    handles_max: int
    store_files_max: int
    connections_max: int


def plan_handles(handles_max: int, connections_wanted: int) -> HandlePlan:
    """Distribute `handles_max` open files. There are fewer connections than wanted if the rest needs the files. Raises
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
    """Raise the limit of open files as far as the system allows without privileges, and return it. A limit that was set
    on purpose is the hard one, which stays."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError):
            # Some systems report an unlimited hard limit and refuse it. Then the soft one stays.
            return soft
    return _HANDLES_WITHOUT_BOUND if hard == resource.RLIM_INFINITY else hard


_HANDLES_WITHOUT_BOUND: Final = 1 << 20
"""Stands for an unlimited number."""
