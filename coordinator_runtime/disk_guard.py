"""The disk guard: while the store's disk is nearly full, no records are taken, so that everything else goes on.

A write that finds no space ends the process (fail-stop), and a server that cannot write cannot even delete. So a part
of the disk is kept for what ends transactions, commits offsets and makes room. Producers are told to come again, which
they do by themselves, and go on once an eighth more is free.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.limits import MEBI

PAUSE_MS: Final = 1_000
"""How long producers are told to wait: what they send again and again is whole batches, and a disk takes longer to be
emptied."""

RESUMED_AT: Final = 9 / 8
"""How much of the least must be free before records are taken again: at the very limit, every flush and compaction of
the store would change the answer."""


def mib_enough(free_bytes_min: int) -> int:
    """Return how many MiB must be free before records are taken again."""
    return math.ceil(free_bytes_min * RESUMED_AT / MEBI)


class DiskLow(Refused):
    """There is no room for records."""

    throttle_ms = PAUSE_MS


class DiskGuard:
    """What is known of the room on the store's disk. Whoever can see the disk tells it (`looked`)."""

    def __init__(self, free_bytes_min: int = 0) -> None:
        """`free_bytes_min`: with less free, no records are taken, until an eighth more is free; 0 = they always are."""
        self.free_bytes_min: Final = free_bytes_min
        self.free_bytes: int | None = None
        """What was free at the last look; None before the first one."""
        self.refusal: Refused | None = None
        """Why records are not taken at this moment; None: they are. A plain attribute, because every append asks."""
        self.refused_count = 0
        """Appends and transactions that were refused because of it."""
        self.on_change: Callable[[DiskGuard], None] = lambda _guard: None
        """Called when records are not taken any more, or again."""

    def looked(self, free_bytes: int) -> None:
        """Note what is free now."""
        was_low, self.free_bytes = self.refusal is not None, free_bytes
        least = self.free_bytes_min * RESUMED_AT if was_low else self.free_bytes_min
        self.refusal = self._refusal(free_bytes) if free_bytes < least else None
        if was_low is not (self.refusal is not None):
            self.on_change(self)

    def refuse(self) -> Refused:
        """The refusal of somebody who brings records. Only while there is one."""
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
