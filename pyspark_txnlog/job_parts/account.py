"""Account of a job: for each partition the read range, the hidden records and the rows in the output."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionSummary:
    """Account of one partition: the read range, the positions of the partition, and the number of records by result."""

    topic: str
    partition: int
    start_offset: int
    end_offset: int
    last_stable_offset: int
    """Last stable offset at the time when a read was planned, or when a stream ended."""
    high_watermark: int
    rows: int | None = None
    """Number of read records, which are the visible ones of the range; None if not counted."""
    aborted_records: int | None = None
    """Number of records of aborted transactions in the range, hidden from the read; None if not counted."""
    control_records: int | None = None
    """Number of markers in the range, which end transactions and are not records; None if not counted."""
    corrupt_offsets: int | None = None
    """Number of offsets skipped because they cannot be read; only with onCorruptBatch=skip."""
    written: int | None = None
    """Number of rows of the range in the output; None if they cannot be counted."""

    @property
    def hidden_records(self) -> int | None:
        """Number of offsets of the range without a row: hidden records, and offsets without a record."""
        return None if self.rows is None else self.end_offset - self.start_offset - self.rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Account of a whole job."""

    isolation: str
    partitions: tuple[PartitionSummary, ...]
    elapsed_ms: int

    @property
    def rows(self) -> int | None:
        """Number of records that were read; None if not counted."""
        return _sum(found.rows for found in self.partitions)

    @property
    def aborted_records(self) -> int | None:
        """Number of hidden records of aborted transactions; None if not counted."""
        return _sum(found.aborted_records for found in self.partitions)

    @property
    def control_records(self) -> int | None:
        """Number of skipped markers; None if not counted."""
        return _sum(found.control_records for found in self.partitions)

    def table(self) -> str:
        """Return the partitions and their total as aligned text."""
        lines = [
            (
                found.topic,
                str(found.partition),
                *_shown(found.start_offset, found.end_offset, found.last_stable_offset, found.high_watermark),
                *_shown(*_counts(found)),
            )
            for found in self.partitions
        ]
        total = map(_sum, zip(*map(_counts, self.partitions), strict=True)) if self.partitions else (0,) * len(_COUNTED)
        return _aligned([(*_PLACES, *_COUNTED), *lines, ("total", "", "", "", "", "", *_shown(*total))])


_PLACES: Final = ("topic", "partition", "start", "end", "LSO", "high watermark")
_COUNTED: Final = ("read", "hidden", "aborted", "markers", "corrupt", "written")


def _counts(found: PartitionSummary) -> tuple[int | None, ...]:
    hidden = (found.hidden_records, found.aborted_records, found.control_records, found.corrupt_offsets)
    return found.rows, *hidden, found.written


def _sum(numbers: Iterable[int | None]) -> int | None:
    known = list(numbers)
    return None if None in known else sum(number for number in known if number is not None)


def _shown(*numbers: int | None) -> tuple[str, ...]:
    return tuple("-" if number is None else f"{number:,}" for number in numbers)


def _aligned(lines: Sequence[Sequence[str]]) -> str:
    widths = [max(len(cell) for cell in column) for column in zip(*lines, strict=True)]
    rule = "  ".join("-" * width for width in widths)
    texts = [
        "  ".join(
            cell.ljust(width) if place == 0 else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]
    return "\n".join([texts[0], rule, *texts[1:-1], rule, texts[-1]])
