"""Division of ranges of offsets among tasks, by the bytes and the number of visible records.

Offsets say little about either: some have no visible record, and records differ in size. So the server measures a range
in steps, and the range is cut between and inside them. A cut may lie inside a batch. Then both tasks read that batch,
and each returns its part.

Pure. Source: Spark's KafkaOffsetRangeCalculator, which divides offsets.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from pyspark_txnlog.read.ranges import OffsetRange


class SplitStep(NamedTuple):
    """A part of a range with visible records. Between steps there are none."""

    first_offset: int
    end_offset: int
    records: int
    size_bytes: int


def is_thin(step: SplitStep) -> bool:
    """True if fewer than half of the offsets of a step have a record, as in a compacted log. Cuts inside it would leave
    most parts almost empty."""
    return 2 * step.records < step.end_offset - step.first_offset


def split_ranges(
    ranges: Sequence[OffsetRange], steps: Sequence[Sequence[SplitStep]], min_partitions: int, records_max: int
) -> list[OffsetRange]:
    """Return the ranges, with the larger ones cut by bytes and by records.

    They are cut into about `min_partitions` pieces of about the same number of bytes. Then pieces are cut until none
    shows more records than `records_max`, if that is not 0. `steps` has the measured steps of each range."""
    sizes = [sum(step.size_bytes for step in found) for found in steps]
    total = max(1, sum(sizes))
    pieces: list[OffsetRange] = []
    for found, measured, size in zip(ranges, steps, sizes, strict=True):
        count = min(found.offset_count, max(1, round(size / total * min_partitions)))
        for piece in _pieces(found, _cuts_by_bytes(measured, size, count)):
            pieces += _pieces(piece, list(_cuts_by_records(measured, piece, records_max))) if records_max else [piece]
    return pieces


def gathered(
    ranges: Sequence[OffsetRange], sizes: Sequence[int | None], size_max: int
) -> list[tuple[OffsetRange, ...]]:
    """Return the ranges as the work of tasks, in the same order. Small ranges share a task if their sizes add up to at
    most `size_max`. A range of unknown size has a task for itself."""
    tasks: list[tuple[OffsetRange, ...]] = []
    bytes_left = -1
    for found, size in zip(ranges, sizes, strict=True):
        if size is not None and size <= bytes_left:
            tasks[-1] += (found,)
            bytes_left -= size
        else:
            tasks.append((found,))
            bytes_left = -1 if size is None else size_max - size
    return tasks


def _pieces(found: OffsetRange, cuts: Sequence[int]) -> list[OffsetRange]:
    inside = sorted({cut for cut in cuts if found.start_offset < cut < found.end_offset})
    borders = itertools.pairwise([found.start_offset, *inside, found.end_offset])
    return [replace(found, start_offset=start, end_offset=end) for start, end in borders]


def _cuts_by_bytes(steps: Sequence[SplitStep], size: int, count: int) -> list[int]:
    """Return cuts that give each piece the same share of the bytes, assuming that they are spread evenly inside a
    step."""
    cuts: list[int] = []
    before = 0
    for step in steps:
        behind = before + step.size_bytes
        while len(cuts) + 1 < count and (wanted := size * (len(cuts) + 1) // count) <= behind:
            offsets = step.end_offset - step.first_offset
            cuts.append(step.first_offset + offsets * (wanted - before) // step.size_bytes)
        before = behind
    return cuts


def _cuts_by_records(steps: Sequence[SplitStep], piece: OffsetRange, records_max: int) -> Iterator[int]:
    """Yield cuts so that no part shows more records than the limit, assuming that no offset inside a step is hidden.

    A part rather ends before a thin step than inside it."""
    shown = 0
    for step in steps:
        at, end = max(step.first_offset, piece.start_offset), min(step.end_offset, piece.end_offset)
        while at < end:
            records = min(step.records, end - at)
            if shown + records <= records_max:
                shown += records
                break
            at += 0 if shown and is_thin(step) else records_max - shown
            shown = 0
            yield at
