"""Rule for readers of a snapshot whose records may have been compacted since it was taken."""

from __future__ import annotations

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.snapshots import SnapshotFilter
from partition_log.state import Compaction


def is_as_taken(compaction: Compaction, shown: SnapshotFilter | None, start_offset: int) -> bool:
    """Return True if compaction took no record from the log, from an offset on, since the snapshot was taken. Also True
    for a range that is of no snapshot, or whose reader does not mind."""
    since = None if shown is None else shown.compaction
    return since is None or compaction.changed_to(since) <= start_offset


def check_as_taken(compaction: Compaction, shown: SnapshotFilter | None, start_offset: int) -> None:
    """Return only if `is_as_taken`. Raises Refused OFFSET_OUT_OF_RANGE."""
    if not is_as_taken(compaction, shown, start_offset):
        raise Refused(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"records from offset {start_offset} on were compacted since the snapshot was taken: take a new one, and "
            "read it within its lease",
        )
