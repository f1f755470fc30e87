"""Retention: the offset at which a partition's log should begin, by age and by size.

The age of an index entry is that of the newest timestamp up to its end. The time of its last append counts instead if
that is earlier, or if its records have no timestamp. So a timestamp ahead of the clock keeps records no longer than
`retention_ms` after they were written.

The unfinished index entry at the end of the log is as old as its newest timestamp. If that lies ahead of the clock when
retention looks, or there is none, the entry is finished at that moment (`rules.finish_ahead_of_time`). The time of the
look then counts as that of its append. It is later than the true time by up to the pause between two rounds, or by as
long as the server did not run.

Source: docs/store-format.md, "Removal below a log start"; spec log-and-runtime 1.8.
"""

from __future__ import annotations

from coordinator_protocol.batch import NO_TIMESTAMP_MS
from partition_log.catalog.settings import FOR_EVER, KEEP_ALL, Retention
from partition_log.state import IndexEntry, PartitionHead
from partition_log.stretches import StretchReads, first_that, stretches


def due_offset(store: StretchReads, ordinal: int, head: PartitionHead, kept: Retention, now_ms: int) -> int:
    """Return the offset at which the log of a partition should begin, whatever holds it back; its log start if nothing
    is due. Whole index entries become due, and the rest of the log once all of it is too old. Raises StoreDamaged,
    StoreUnreadable, UnknownRow."""
    start, unfinished, size_bytes = head.log_start_offset, head.index.first_offset, head.totals.size_bytes
    if kept == KEEP_ALL or start == head.log_end_offset:
        return start
    # If there is no limit by age, no record is older than this.
    oldest_ms = NO_TIMESTAMP_MS if kept.retention_ms == FOR_EVER else now_ms - kept.retention_ms

    def is_kept(stretch: IndexEntry) -> bool:
        is_much = kept.retention_bytes != FOR_EVER and size_bytes - stretch.totals.size_bytes >= kept.retention_bytes
        return _age_ms(stretch) > oldest_ms and not is_much

    # Usually the oldest one stays, and one look is enough.
    oldest = next(stretches(store, ordinal, start), None)
    if oldest is not None:
        if is_kept(oldest):
            return start
        # Older entries are due sooner, so a binary search finds the first one that stays.
        first_kept = first_that(store, ordinal, (oldest.last_offset + 1, unfinished), is_kept)
        if first_kept is not None:
            return first_kept.first_offset
    is_all_due = NO_TIMESTAMP_MS < head.index.max_timestamp_ms <= oldest_ms
    return max(start, head.log_end_offset if is_all_due else unfinished)


def _age_ms(stretch: IndexEntry) -> int:
    """Return the time from which the age of an index entry counts. It is the newest timestamp, but no later than the
    last append, or a record from the future would keep the log forever."""
    if stretch.max_timestamp_ms == NO_TIMESTAMP_MS:
        return stretch.ended_ms
    return min(stretch.max_timestamp_ms, stretch.ended_ms)
