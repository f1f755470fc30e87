"""Throttled delivery: records near the delivery limit are handed out a few at a time, and the last time each alone.

Records that are delivered together are mostly released together: their consumer fails at one of them. From half of the
limit on they are therefore delivered only with others that were delivered as often, and in smaller parts each time. So
a record that cannot be processed takes few others with it to the limit.

Source: Kafka 4.2's `SharePartition` (KAFKA-17541). It halves what was acquired together first; here that is the log
batches of the records, which need no memory.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct


class BatchOffsets(Struct, frozen=True, gc=False):
    """Offsets of one batch of the log."""

    first_offset: int
    last_offset: int


def is_throttled(deliveries: int, limit: int) -> bool:
    """Return True if records that were delivered so often are near the limit: half of it, and twice at least."""
    return deliveries >= _threshold(limit)


def records_at_once(
    deliveries: int, limit: int, batches: Sequence[BatchOffsets], first_offset: int, last_offset: int
) -> int:
    """Return the number of throttled records to hand out together, of those with these offsets.

    It is half of the batches that have them, a quarter the next time, and 1 before the limit."""
    if deliveries >= limit - 1:
        return 1
    size = sum(
        each.last_offset - each.first_offset + 1
        for each in batches
        if each.first_offset <= last_offset and each.last_offset >= first_offset
    )
    return max(1, size >> (deliveries - _threshold(limit) + 1))


def _threshold(limit: int) -> int:
    return max(2, (limit + 1) // 2)
