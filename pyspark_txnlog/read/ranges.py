"""Ranges of offsets that a batch read covers, fixed before the first record is read, so that a repetition returns the
same.

Pure: positions of the partitions in, ranges out. Source: docs/spark.md.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from coordinator_protocol.snapshots import CompactionProgress, SnapshotFilter
from pyspark_txnlog.bounds import (
    COMMITTED,
    EARLIEST,
    FROM_EARLIEST,
    LATEST,
    TO_LATEST,
    AtTime,
    Bound,
    InvalidOption,
    Place,
    Position,
    place_in,
)
from pyspark_txnlog.options import NoMatch, SourceOptions


class DataLoss(RuntimeError):
    """Records that a read requires are no longer there, or never were."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Positions:
    """Start, end and other positions of a partition for a reader."""

    topic: str
    topic_id: bytes
    partition: int
    earliest: int
    end: int
    """Last stable offset, or the high watermark for read_uncommitted: records after it are not final."""
    leader_epoch: int | None = None
    """Leader epoch in which the end was learned."""
    offset_at: Mapping[AtTime, int | None] = field(default_factory=dict)
    """Offsets of the times that the options name; None if no record is that new."""
    committed: Position | None = None
    """Committed offset of the group that the options name; None if there is none."""
    excluded: Mapping[int, int] | None = None
    """Transactions that a snapshot excludes (`PartitionView.excluded`); None without a snapshot."""
    compaction: CompactionProgress | None = None
    """Progress of compaction when that snapshot was taken. None for a reader that does not mind what is compacted."""
    snapshot_id: bytes = b""
    """Lease of that snapshot; empty if it has none."""
    parted_at: Mapping[Position, int] = field(default_factory=dict)
    """Offset at which the log diverged, by position with a leader epoch. Such a position is named by the options or
    committed by the group, and belongs to a different log."""

    @property
    def place(self) -> str:
        """Name of the partition for messages."""
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRange:
    """Offsets from `start_offset` up to, not including, `end_offset` of a partition: a task's work, or part of it."""

    topic: str
    topic_id: bytes
    partition: int
    start_offset: int
    end_offset: int
    leader_epoch: int | None = None
    """Leader epoch in which the end was planned. The log before it stays the same, or the task fails."""
    shown: SnapshotFilter | None = None
    """Filter of a snapshot for this range; None shows all committed records."""
    snapshot_id: bytes = b""
    """Lease that the task renews while it reads."""
    part: int = 0
    """Number of this part of the snapshot."""
    parts: int = 0
    """Number of all parts of the snapshot; 0 if they are not counted."""

    @property
    def offset_count(self) -> int:
        """Number of offsets in the range: an upper bound for its records, because some are hidden."""
        return self.end_offset - self.start_offset


def plan_ranges(options: SourceOptions, positions: Sequence[Positions]) -> list[OffsetRange]:
    """Return the range of each partition, including empty ones, in the order of the positions.

    Raises InvalidOption if the options name partitions that are not read, or offsets that are not decided yet. Raises
    DataLoss if records are gone.
    """
    _check_coverage("startingOffsets", options.starting, positions)
    _check_coverage("endingOffsets", options.ending, positions)
    return [_range_of(options, found) for found in positions]


def places_of(options: SourceOptions, found: Positions) -> list[Place]:
    """Return the places of the partition that the options name, with the committed offset of the group for
    `COMMITTED`."""
    places = [
        place_in(bound, found.topic, found.partition)
        for bound in (options.starting, options.ending)
        if not isinstance(bound, Mapping) or found.partition in bound.get(found.topic, {})
    ]
    return [found.committed or FROM_EARLIEST if place == Position(COMMITTED) else place for place in places]


def start_of(options: SourceOptions, found: Positions) -> int:
    """Return the offset to begin with, never before the earliest.

    Raises: InvalidOption if no record is as new as the options require; DataLoss if records are gone.
    """
    place = place_in(options.starting, found.topic, found.partition)
    if isinstance(place, AtTime) and found.offset_at[place] is None and options.no_match is NoMatch.ERROR:
        raise InvalidOption(
            f"{found.place} has no record from {place.timestamp_ms} on (milliseconds since 1970), where the read is to "
            "begin: name an earlier time, or set startingOffsetsByTimestampStrategy to latest to begin at the end there"
        )
    asked = found.committed or FROM_EARLIEST if place == Position(COMMITTED) else place
    start = _offset_of(options, "startingOffsets", found, asked)
    if start >= found.earliest:
        return start
    _lose(options, f"{found.place} begins at {found.earliest} and the read at {start}: records before it are gone")
    return found.earliest


def _range_of(options: SourceOptions, found: Positions) -> OffsetRange:
    end = _offset_of(options, "endingOffsets", found, place_in(options.ending, found.topic, found.partition))
    if end > found.end:
        # A read that waited for an open transaction could wait forever. A read without it would return other records
        # when it is repeated.
        raise InvalidOption(
            f"endingOffsets asks for {found.place} up to {end}, and for {options.isolation} it ends at {found.end}; "
            "ask for less, or again when its open transactions have ended"
        )
    start = start_of(options, found)
    if start > end:
        if options.ending != TO_LATEST and not found.parted_at:
            raise InvalidOption(f"the read begins {found.place} at {start}, behind its end {end}")
        _lose(options, f"{found.place} ends at {end} for {options.isolation} and the read would begin at {start}")
        start = end
    return OffsetRange(
        topic=found.topic,
        topic_id=found.topic_id,
        partition=found.partition,
        start_offset=start,
        end_offset=max(start, end),
        leader_epoch=found.leader_epoch,
        shown=None if found.excluded is None else SnapshotFilter(found.excluded, compaction=found.compaction),
        snapshot_id=found.snapshot_id,
    )


def _offset_of(options: SourceOptions, option: str, found: Positions, asked: Place) -> int:
    """Return the offset of a place. If the log diverged from the one of that place, return the end of their common
    part."""
    if isinstance(asked, AtTime):
        offset = found.offset_at[asked]
        return found.end if offset is None else offset
    if asked.offset in (EARLIEST, LATEST):
        return found.earliest if asked.offset == EARLIEST else found.end
    parted_at = found.parted_at.get(asked)
    if parted_at is None:
        return asked.offset
    _lose(
        options,
        f"{option} is of a log of {found.place} that had more: what lay there up to offset {asked.offset} in leader "
        f"epoch {asked.leader_epoch} is not all there now, it went another way from offset {parted_at} on, because "
        "acknowledged writes were lost or a backup was restored. Decide what becomes of what was read from there on",
    )
    return parted_at


def lacking(option: str, places: Sequence[str]) -> str:
    """Return the error text for offsets that leave out partitions."""
    return f"{option} must name every partition that is read; it lacks {', '.join(places)}"


def unnamed_in(bound: Bound, positions: Sequence[Positions]) -> list[Positions]:
    """Return the partitions that a bound per partition leaves out."""
    if not isinstance(bound, Mapping):
        return []
    return [found for found in positions if found.partition not in bound.get(found.topic, {})]


def _check_coverage(option: str, bound: Bound, positions: Sequence[Positions]) -> None:
    if not isinstance(bound, Mapping):
        return
    given = {(topic, partition) for topic, found in bound.items() for partition in found}
    wanted = {(found.topic, found.partition) for found in positions}
    missing = [f"{topic}-{partition}" for topic, partition in sorted(wanted - given)]
    if missing:
        raise InvalidOption(lacking(option, missing))
    strange = [f"{topic}-{partition}" for topic, partition in sorted(given - wanted)]
    if strange:
        raise InvalidOption(f"{option} names partitions that are not read: {', '.join(strange)}")


def _lose(options: SourceOptions, what: str) -> None:
    if options.is_loss_fatal:
        raise DataLoss(f"{what}; set failOnDataLoss to false to read what is left")
    warnings.warn(what, RuntimeWarning, stacklevel=2)
