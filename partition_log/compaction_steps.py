"""Change of a log by a pass of compaction, as a value."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from partition_log.state import AbortedTransaction, Compaction, LogTotals, PartitionHead


class CompactionStep(Struct, frozen=True):
    """Change of a log by a pass. Rows are given by their last offsets, so that those before a log start that moved
    meanwhile can be left out. None deletes a row."""

    compaction: Compaction
    """State after the change."""
    end_offset: int = 0
    """Offset behind all rows that change."""
    rows: Sequence[tuple[int, bytes | None]] = ()
    stretches: Sequence[tuple[int, bytes | None]] = ()
    aborted: Sequence[AbortedTransaction] = ()
    """Aborted transactions whose marker goes."""
    gone_ranges: Sequence[tuple[int, int]] = ()
    """First and last of the last offsets of rows that are deleted one behind the other, beside those in `rows`."""
    less: LogTotals = LogTotals()
    """Totals of what goes."""


def from_log_start(step: CompactionStep, log_start_offset: int) -> CompactionStep:
    """Return the step without rows before a log start. These are removed, or will be, and must not come back."""
    return replace(
        step,
        rows=[row for row in step.rows if row[0] >= log_start_offset],
        stretches=[stretch for stretch in step.stretches if stretch[0] >= log_start_offset],
    )


def head_after(head: PartitionHead, step: CompactionStep) -> PartitionHead:
    """Return the positions of a partition after a step."""
    compaction = step.compaction
    return replace(head, compaction=compaction, compacted_to=max(head.compacted_to, compaction.end_offset))
