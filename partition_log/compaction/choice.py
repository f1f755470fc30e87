"""Choice of the next partition to be compacted, and of the end of its pass.

A pass goes over whole stretches, up to the last stable offset at most. It stays before every record that a snapshot
holds. It also stays before transactions that are not complete everywhere. A snapshot hides such a transaction, and must
still find the records that it replaced.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from coordinator_protocol.batch import NO_TIMESTAMP_MS
from coordinator_runtime.store import StoreReads
from partition_log.batches import batches
from partition_log.catalog.settings import FOR_EVER, CompactionTerms
from partition_log.counting import removed_totals
from partition_log.state import PartitionHead
from partition_log.stretches import first_that, stretches

KEYS_MAX: Final = 1 << 20
"""Largest number of records in the dirty part of one pass, unless one stretch has more. Their keys are remembered, at
about 200 bytes each."""


class DirtyPart(Struct, frozen=True):
    """The part of a log that a pass would be for."""

    end_offset: int
    """Offset up to which a pass may go; not behind `clean_to` if none may."""
    ratio: float
    """Share of its bytes in those of the log up to there."""
    is_due: bool
    """True if a pass is worth it, or its oldest record has waited for long enough."""


def dirty_part(
    store: StoreReads, ordinal: int, head: PartitionHead, terms: CompactionTerms, *, held_from: int | None, now_ms: int
) -> DirtyPart:
    """Look how much of a log is dirty. `held_from`: first offset that must stay as it is. Reads a few index rows and
    headers under the view. Raises LogDamaged, StoreDamaged, StoreUnreadable, UnknownRow."""
    start = max(head.compaction.clean_to, head.log_start_offset)
    end = _end((store, ordinal, head), terms, start, held_from, now_ms)
    if end <= start:
        return DirtyPart(end, 0.0, is_due=False)
    oldest, newest = next(stretches(store, ordinal, start)), next(stretches(store, ordinal, end - 1))
    before, _records = _totals_before(store, ordinal, head, head.log_start_offset)
    clean_to, _records = _totals_before(store, ordinal, head, start)
    total_bytes = newest.totals.size_bytes - before
    ratio = (newest.totals.size_bytes - clean_to) / total_bytes if total_bytes > 0 else 1.0
    is_old = False
    if terms.max_lag_ms != FOR_EVER:
        due_ms = now_ms - terms.max_lag_ms
        is_old = oldest.ended_ms <= due_ms or NO_TIMESTAMP_MS < _first_time_ms(store, ordinal, start, end) <= due_ms
    return DirtyPart(end, ratio, is_due=is_old or ratio >= terms.dirty_ratio)


def is_clean(head: PartitionHead, terms: CompactionTerms) -> bool:
    """True if a log has nothing to compact at any time, as long as its head and the terms are the same. Reads no row:
    most logs that are looked at were compacted, and got no record since."""
    start = max(head.compaction.clean_to, head.log_start_offset)
    may_finish_stretch = terms.max_lag_ms != FOR_EVER and head.index.batch_count > 0
    is_behind = min(head.last_stable_offset, head.index.first_offset) > start
    return not (head.compaction.is_under_way or is_behind or may_finish_stretch)


def wants_stretch_finished(
    store: StoreReads, ordinal: int, head: PartitionHead, terms: CompactionTerms, now_ms: int
) -> bool:
    """True if the records behind the last stretch have waited for so long that they must be compacted. Reads one
    header. Raises LogDamaged, StoreUnreadable."""
    if terms.max_lag_ms == FOR_EVER or not head.index.batch_count or head.last_stable_offset < head.log_end_offset:
        return False
    start = max(head.index.first_offset, head.log_start_offset)
    first_ms = _first_time_ms(store, ordinal, start, head.log_end_offset)
    return NO_TIMESTAMP_MS < first_ms <= now_ms - terms.max_lag_ms


def _first_time_ms(store: StoreReads, ordinal: int, start: int, end: int) -> int:
    """Return the largest timestamp of the first batch of records in a range; NO_TIMESTAMP_MS if there is none."""
    found = batches(store, ordinal, start, end, headers_only=True)
    return next((header.max_timestamp_ms for header, _stored in found if not header.is_control), NO_TIMESTAMP_MS)


def _end(
    view: tuple[StoreReads, int, PartitionHead], terms: CompactionTerms, start: int, held_from: int | None, now_ms: int
) -> int:
    """Return the end of a pass for the records from `start` on. The view is store, ordinal and head."""
    store, ordinal, head = view
    end = min(head.last_stable_offset, head.index.first_offset)
    if held_from is not None:
        end = min(end, held_from)
    if terms.min_lag_ms and end > start:
        young_ms = now_ms - terms.min_lag_ms
        young = first_that(store, ordinal, (start, end), lambda each: each.ended_ms > young_ms)
        end = end if young is None else min(end, young.first_offset)
    if end > start:
        records_max = _totals_before(store, ordinal, head, start)[1] + KEYS_MAX
        beyond = first_that(store, ordinal, (start, end), lambda each: each.totals.record_count > records_max)
        if beyond is not None:
            end = min(end, beyond.first_offset if beyond.first_offset > start else beyond.last_offset + 1)
    if start < end < head.index.first_offset:
        holding = next(stretches(store, ordinal, end), None)
        end = end if holding is None else min(end, holding.first_offset)
    return end


def _totals_before(store: StoreReads, ordinal: int, head: PartitionHead, offset: int) -> tuple[int, int]:
    """Return the bytes and records before an offset, the log start or the end of a stretch."""
    if offset <= head.log_start_offset:
        return removed_totals(store, ordinal, head)
    stretch = next(stretches(store, ordinal, offset - 1), None)
    totals = head.totals if stretch is None else stretch.totals
    return totals.size_bytes, totals.record_count
