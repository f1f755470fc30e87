"""The current process: its id, and the freed memory that it keeps.

Its id is looked up once and again in each fork, instead of for every request: connections opened before a fork are
unusable after it. Producers that send in bulk keep the memory that batches used, because reusing it is cheaper than
requesting it again.
"""

from __future__ import annotations

import os
from functools import cache
from typing import Final

from coordinator_protocol.allocation import keep_freed_memory
from coordinator_protocol.limits import MEBI


class Process:
    """The process that runs this code."""

    def __init__(self) -> None:
        self.process_id = os.getpid()
        self.grpc_used_by = 0
        """Id of the process that used gRPC first, this one or an ancestor; 0 = none has."""

    def look_again(self) -> None:
        """Note that this process is a fork."""
        self.process_id = os.getpid()


THIS_PROCESS: Final = Process()
os.register_at_fork(after_in_child=THIS_PROCESS.look_again)


KEPT_BYTES_MAX: Final = 64 * MEBI
"""Maximum freed memory that the process keeps; about the size of one producer's buffer and the messages made of it."""

_WISHES: Final = ("GLIBC_TUNABLES", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TOP_PAD_", "MALLOC_TRIM_THRESHOLD_")


@cache
def keep_memory_of_batches() -> bool:
    """Make this process keep up to `KEPT_BYTES_MAX` of the memory that batches used, so that copies of full batches
    need no new pages. Called once the first batch is full.

    Return True if it does. It does not with another C library than glibc, or if the environment configures that memory.
    """
    return not any(name in os.environ for name in _WISHES) and keep_freed_memory(KEPT_BYTES_MAX)
