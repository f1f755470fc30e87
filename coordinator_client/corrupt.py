"""What a reader does with a batch that it cannot read: raise, or go on behind it and count.

Skipping is never the default: records are lost to whoever reads past them, and only their owner can say that this is
better than standing still.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from coordinator_client.errors import CorruptBatch, wrong_setting

RAISE: Final = "raise"
SKIP: Final = "skip"
ON_CORRUPT_BATCH: Final = (RAISE, SKIP)
"""Values of the option `on_corrupt_batch`."""


@dataclass(slots=True)
class Skipped:
    """Counts what a reader has skipped so far because it cannot be read."""

    batches: int = 0
    """How often the reader had to go on behind something that it cannot read."""
    offsets: int = 0
    """How many offsets were passed over, of records and of markers among them."""
    last: CorruptBatch | None = None
    """The error of the last place that was skipped."""
    on_skip: Callable[[CorruptBatch], None] = lambda _: None
    """Called with the error of each place that is skipped."""

    def add(self, error: CorruptBatch) -> None:
        """Count what the error is about."""
        self.batches += 1
        self.offsets += error.next_offset - error.offset
        self.last = error
        self.on_skip(error)


def check_on_corrupt_batch(value: str) -> None:
    """Check a value of the option. Raises: Misconfigured where there is no such value."""
    if value not in ON_CORRUPT_BATCH:
        raise wrong_setting("on_corrupt_batch", value, f"must be one of {', '.join(ON_CORRUPT_BATCH)}")
