"""The disk guard: refuses records while the store's disk is nearly full, so that all other work continues.

A write that finds no space ends the process (fail-stop), and a server that cannot write cannot even delete. So a part
of the disk is reserved for ending transactions, committing offsets and deleting. Producers are asked to retry, which
they do by themselves, and succeed once an eighth more is free.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.limits import MEBI

PAUSE_MS: Final = 1_000
"""Pause that producers are asked for (ms). They send whole batches again, and it takes longer than that to free a
disk."""

RESUMED_AT: Final = 9 / 8
"""Factor on the minimum that must be free before records are taken again. At the very minimum, every flush and
compaction of the store would change the answer."""


def mib_enough(free_bytes_min: int) -> int:
    """Return how many MiB must be free before records are taken again."""
    return math.ceil(free_bytes_min * RESUMED_AT / MEBI)


class DiskLow(Refused):
    """Refusal of records: too little of the disk is free."""

    throttle_ms = PAUSE_MS


class DiskGuard:
    """Known free space of the store's disk. Code that can see the disk reports it by `looked`."""

    def __init__(self, free_bytes_min: int = 0) -> None:
        """`free_bytes_min`: with less free, no records are taken, until an eighth more is free; 0 = they always are."""
        self.free_bytes_min: Final = free_bytes_min
        self.free_bytes: int | None = None
        """Free bytes at the last look; None before the first one."""
        self.refusal: Refused | None = None
        """Refusal of records at this moment; None while they are taken. A plain attribute, because every append reads
        it."""
        self.refused_count = 0
        """Number of appends and transactions refused for this reason."""
        self.on_change: Callable[[DiskGuard], None] = lambda _guard: None
        """Called when records are no longer taken, or again."""

    def looked(self, free_bytes: int) -> None:
        """Note the bytes that are free now."""
        was_low, self.free_bytes = self.refusal is not None, free_bytes
        least = self.free_bytes_min * RESUMED_AT if was_low else self.free_bytes_min
        self.refusal = self._refusal(free_bytes) if free_bytes < least else None
        if was_low is not (self.refusal is not None):
            self.on_change(self)

    def refuse(self) -> Refused:
        """Count a refused request, and return its refusal. Only while there is one."""
        assert self.refusal is not None, "there is room"
        self.refused_count += 1
        return self.refusal

    def _refusal(self, free_bytes: int) -> DiskLow:
        return DiskLow(
            ErrorCode.THROTTLING_QUOTA_EXCEEDED,
            f"the disk of the server is nearly full: {free_bytes >> 20} MiB are free, and no records are taken until "
            f"{mib_enough(self.free_bytes_min)} MiB are: disk_free_min_bytes keeps {self.free_bytes_min >> 20} MiB for "
            "ending transactions and deleting, and an eighth more must be free again. Send them again later, and "
            "meanwhile make room: delete topics, or use a larger disk",
        )
