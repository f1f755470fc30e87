"""Arithmetic on producer sequence numbers, which run from 0 to 2^31 - 1 and then start again at 0.

Source: Kafka's `DefaultRecordBatch.incrementSequence` and `decrementSequence`; spec log 1.3.
"""

from __future__ import annotations

from typing import Final

SEQUENCE_MAX: Final = 2**31 - 1
NO_SEQUENCE: Final = -1


def subtract_sequence(sequence: int, delta: int) -> int:
    """Return the sequence `delta` records before `sequence`, wrapping to `SEQUENCE_MAX` before 0."""
    return (sequence - delta) & SEQUENCE_MAX


def next_sequence(last: int) -> int:
    """Return the sequence that must follow `last`: 0 where `last` is `NO_SEQUENCE`, nothing appended yet."""
    return (last + 1) & SEQUENCE_MAX
