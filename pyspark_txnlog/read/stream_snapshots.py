"""Micro-batches of snapshots: each has the records that its snapshot shows and the previous one did not, so whole
transactions.

The transactions that a snapshot excludes are part of the position of the stream. Pure, except for the warning of
`lose`.

Source: spec log-and-runtime 2.4, the delta rule; `coordinator_protocol/snapshots.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from coordinator_protocol.snapshots import PartitionView, scans_between
from pyspark_txnlog.options import SourceOptions
from pyspark_txnlog.read.ranges import OffsetRange, Positions
from pyspark_txnlog.read.stream_offsets import StreamPosition, Vector, lose


def delta_ranges(
    options: SourceOptions, before: Vector, positions: Sequence[Positions], grown: Sequence[OffsetRange]
) -> list[OffsetRange]:
    """Return the ranges of a micro-batch.

    These are `grown`, by which the logs have grown, and before that the transactions that only the previous snapshot
    excluded. The result depends only on the old and the new position of the stream.

    Raises: DataLoss if records of such a transaction are gone.
    """
    finished = [
        each
        for found, range_ in zip(positions, grown, strict=True)
        for each in _finished(options, before.get((found.topic, found.partition)), found, range_)
    ]
    return [*finished, *grown]


def _finished(
    options: SourceOptions, before: StreamPosition | None, found: Positions, grown: OffsetRange
) -> list[OffsetRange]:
    # If records were lost, the stream has moved elsewhere, and the transactions that it waited for are lost, too.
    if before is None or before.topic_id != found.topic_id or grown.start_offset != before.offset:
        return []
    epoch = before.leader_epoch or 0
    then = PartitionView(0, before.offset, epoch, before.excluded)
    now = PartitionView(found.earliest, found.end, found.leader_epoch or 0, found.excluded or {})
    ranges = []
    for scan in scans_between(then, now):
        if scan.shown.only is None:
            continue
        start_offset = scan.start_offset
        if start_offset < found.earliest:
            lose(
                options,
                f"{found.place} begins at {found.earliest}, and a transaction that the stream waited for at "
                f"{start_offset}: records of it are gone",
            )
            start_offset = min(found.earliest, scan.end_offset)
        if start_offset == scan.end_offset:
            continue
        of_it = replace(grown, start_offset=start_offset, end_offset=scan.end_offset, shown=scan.shown)
        ranges.append(replace(of_it, leader_epoch=before.leader_epoch))
    return ranges
