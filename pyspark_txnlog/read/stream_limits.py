"""Limits of a micro-batch: how many of the available records a stream takes, and when it waits for more.

Pure. Source: Spark's KafkaMicroBatchStream (`rateLimit`, `delayBatch`), which knows offsets alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from pyspark_txnlog.options import TriggerLimits
from pyspark_txnlog.read.ranges import OffsetRange
from pyspark_txnlog.read.splitting import SplitStep, is_thin


def is_held_back(limits: TriggerLimits, ranges: Sequence[OffsetRange], waited_ms: int | None) -> bool:
    """Return True to wait for more offsets.

    `waited_ms` is the time since the last micro-batch. None means that there was none: the first one is never delayed,
    as in Kafka's source."""
    if not limits.offsets_min or waited_ms is None or waited_ms >= limits.delay_ms_max:
        return False
    return sum(found.offset_count for found in ranges) < limits.offsets_min


def is_measured(limits: TriggerLimits, steps: Sequence[SplitStep]) -> bool:
    """True if a partition needs no further measuring: it shows records, and as many as a micro-batch may have."""
    return (
        bool(steps)
        and sum(step.records for step in steps) >= limits.records_max
        and sum(step.size_bytes for step in steps) >= limits.bytes_max
    )


def limited(
    limits: TriggerLimits, ranges: Sequence[OffsetRange], steps: Sequence[Sequence[SplitStep]]
) -> list[OffsetRange]:
    """Return the ranges, cut so that all limits hold, with a share for each partition.

    `steps` has the visible records of each range. At least one offset is left if there was one, so that the stream
    advances."""
    taken = _shared(ranges, limits.offsets_max, [found.offset_count for found in ranges], _by_offsets)
    taken = _least(
        taken,
        _shared(
            ranges,
            limits.records_max,
            [sum(step.records for step in found) for found in steps],
            lambda index, share: _behind_records(steps[index], share, ranges[index]),
        ),
    )
    taken = _least(
        taken,
        _shared(
            ranges,
            limits.bytes_max,
            [sum(step.size_bytes for step in found) for found in steps],
            lambda index, share: _behind_bytes(steps[index], share, ranges[index]),
        ),
    )
    if any(taken):
        return [
            replace(found, end_offset=found.start_offset + count) for found, count in zip(ranges, taken, strict=True)
        ]
    fullest = max(range(len(ranges)), key=lambda index: ranges[index].offset_count, default=0)
    return [
        replace(found, end_offset=found.start_offset + min(int(index == fullest), found.offset_count))
        for index, found in enumerate(ranges)
    ]


def _shared(
    ranges: Sequence[OffsetRange], most: int, sizes: Sequence[int], offsets_for: Callable[[int, int], int]
) -> list[int]:
    """Return the number of offsets for each range so that all of them have at most `most`, if that is not 0."""
    total = sum(sizes)
    if not most or total <= most:
        return [found.offset_count for found in ranges]
    # Whole numbers that add up to exactly `most`: each remainder is carried over to the next partition.
    taken: list[int] = []
    seen = 0
    for index, size in enumerate(sizes):
        share = most * (seen + size) // total - most * seen // total
        seen += size
        taken.append(min(offsets_for(index, share), ranges[index].offset_count))
    return taken


def _least(one: Sequence[int], other: Sequence[int]) -> list[int]:
    return [min(pair) for pair in zip(one, other, strict=True)]


def _by_offsets(_index: int, share: int) -> int:
    return share


def _behind_records(steps: Sequence[SplitStep], share: int, found: OffsetRange) -> int:
    """Return the number of offsets with at most `share` records, assuming that no offset inside a step is hidden. The
    range rather ends before a thin step than inside it."""
    for index, step in enumerate(steps):
        if step.records > share:
            inside = 0 if index and is_thin(step) else min(share, step.end_offset - step.first_offset)
            return step.first_offset + inside - found.start_offset
        share -= step.records
    return found.offset_count


def _behind_bytes(steps: Sequence[SplitStep], share: int, found: OffsetRange) -> int:
    """Return the number of offsets with about `share` bytes, assuming that they are spread evenly inside a step."""
    for step in steps:
        if step.size_bytes > share:
            offsets = step.end_offset - step.first_offset
            return step.first_offset + offsets * share // step.size_bytes - found.start_offset
        share -= step.size_bytes
    return found.offset_count
