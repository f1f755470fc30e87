"""What a reader does with a batch that it cannot read: tell, or go on behind it and count.

To skip is never the default: records are lost to whoever reads past them, and only their owner can say that this is
better than to stand still.
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
    """What was skipped so far because it cannot be read."""

    batches: int = 0
    """Places in which a reader had to go on behind something that cannot be read."""
    offsets: int = 0
    """Offsets that were passed over: of records, and of markers that lay among them."""
    last: CorruptBatch | None = None
    """Why the last of them could not be read."""
    on_skip: Callable[[CorruptBatch], None] = lambda _: None
    """Told of each, for whoever wants more than a count."""

    def add(self, error: CorruptBatch) -> None:
        """Count what the error is about."""
        self.batches += 1
        self.offsets += error.next_offset - error.offset
        self.last = error
        self.on_skip(error)


def check_on_corrupt_batch(value: str) -> None:
    """Raises: Misconfigured where it is none of the values there are."""
    if value not in ON_CORRUPT_BATCH:
        raise wrong_setting("on_corrupt_batch", value, f"must be one of {', '.join(ON_CORRUPT_BATCH)}")
