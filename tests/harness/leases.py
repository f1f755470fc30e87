"""Leases that a test takes and gives back."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class HeldOffsets:
    """Implements `coordinator_runtime.ports.OffsetLeases`."""

    held: dict[int, int]
    """The first held offset, by ordinal."""

    def oldest(self, ordinal: int) -> int | None:
        return self.held.get(ordinal)

    def note_due(self, ordinal: int, offset: int) -> None:
        """No other lease is taken here."""
