"""How much of a partition retention keeps: where its log should begin by age and by size.

A stretch is as old as its newest timestamp (that of all records up to its end), or as its last append if that was
earlier, or if its records have no time. So a timestamp ahead of the clock keeps records no longer than `retention_ms`
after they were written. The end of the log, which is no finished stretch yet, is as old as its newest timestamp. Where
that lies ahead of the clock when retention looks, or there is none, the end is finished as a stretch there and then
(`rules.finish_ahead_of_time`), and the time of that look counts as that of its append: later than the true one by the
pause between two rounds, or by as long as the server did not run.

Source: docs/store-format.md, "Removal below a log start"; spec log-and-runtime 1.8.
"""

from __future__ import annotations

from coordinator_protocol.batch import NO_TIMESTAMP_MS
from partition_log.catalog.settings import FOR_EVER, KEEP_ALL, Retention
from partition_log.state import IndexEntry, PartitionHead
from partition_log.stretches import StretchReads, first_that, stretches


def due_offset(store: StretchReads, ordinal: int, head: PartitionHead, kept: Retention, now_ms: int) -> int:
    """Where the log of a partition should begin, whatever holds it back; its log start where nothing is due. Whole
    stretches go, and what lies behind them once all of it is too old. Raises StoreDamaged, StoreUnreadable, UnknownRow.
    """
    start, unfinished, size_bytes = head.log_start_offset, head.index.first_offset, head.totals.size_bytes
    if kept == KEEP_ALL:
        return start
    # No record is older than this, if there is no limit.
    oldest_ms = NO_TIMESTAMP_MS if kept.retention_ms == FOR_EVER else now_ms - kept.retention_ms

    def is_kept(stretch: IndexEntry) -> bool:
        is_much = kept.retention_bytes != FOR_EVER and size_bytes - stretch.totals.size_bytes >= kept.retention_bytes
        return _age_ms(stretch) > oldest_ms and not is_much

    # Mostly the oldest one stays, and one look is enough.
    oldest = next(stretches(store, ordinal, start), None)
    if oldest is not None:
        if is_kept(oldest):
            return start
        # The older, the sooner due: so the first one that stays is found by halving.
        first_kept = first_that(store, ordinal, (oldest.last_offset + 1, unfinished), is_kept)
        if first_kept is not None:
            return first_kept.first_offset
    is_all_due = NO_TIMESTAMP_MS < head.index.max_timestamp_ms <= oldest_ms
    return max(start, head.log_end_offset if is_all_due else unfinished)


def _age_ms(stretch: IndexEntry) -> int:
    """The time from which on a stretch is kept for so long: that of its newest record, but no later than when it was
    appended, or a record from the future would keep the log for ever."""
    if stretch.max_timestamp_ms == NO_TIMESTAMP_MS:
        return stretch.ended_ms
    return min(stretch.max_timestamp_ms, stretch.ended_ms)
