"""The memory of producers that send in bulk: written a batch at a time, and better used again than asked for anew."""

from __future__ import annotations

import os
from functools import cache
from typing import Final

from coordinator_protocol.allocation import keep_freed_memory
from coordinator_protocol.limits import MEBI

KEPT_BYTES_MAX: Final = 64 * MEBI
"""About what the buffer of one producer and the messages made of it take."""

_WISHES: Final = ("GLIBC_TUNABLES", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TOP_PAD_", "MALLOC_TRIM_THRESHOLD_")


@cache
def keep_memory_of_batches() -> bool:
    """Have this process keep up to `KEPT_BYTES_MAX` of what batches used, once the first one is full, so that copies
    of full batches need no new pages.

    False where nothing is changed: another C library than glibc, or somebody told it by environment what to keep."""
    return not any(name in os.environ for name in _WISHES) and keep_freed_memory(KEPT_BYTES_MAX)
