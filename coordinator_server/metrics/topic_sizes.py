"""Bytes and records that each topic holds now.

The totals of a partition count everything that was ever appended. What lies before the log start is subtracted. That
is looked up in the store once for each log start and each step of a compaction, in a few partitions at each reading.
Until a partition's turn comes, the previous number counts, so a topic may seem larger for some readings after something
was removed. Where reads may wait, a thread looks, and a later reading has the number.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from coordinator_runtime.pending import Pending
from coordinator_runtime.store import StoreReads, StoreUnreadable
from coordinator_runtime.store_readers import StoreReader
from coordinator_server.metrics.instruments import Labels, Readings
from coordinator_server.metrics.partitions import PartitionReading
from partition_log.batches import LogDamaged
from partition_log.counting import removed_totals
from partition_log.state import NOT_COMPACTED, Compaction, PartitionHead

LOOKS_MAX: Final = 16
"""Maximum lookups of one reading: each takes up to a millisecond of the loop."""


_NOTHING_REMOVED: Final = ((0, NOT_COMPACTED), 0, 0)


class TopicSizes:
    """The bytes and records before the log start of each partition, as far as they were looked up."""

    def __init__(self, reader: StoreReader) -> None:
        self._reader = reader
        self._looking: set[int] = set()
        """Ordinals of the partitions at which threads look."""
        self._removed: dict[int, tuple[tuple[int, Compaction], int, int]] = {}
        """Log start and state of compaction, bytes and records before the log start, by ordinal."""

    def readings(self, standings: Sequence[PartitionReading], *, is_last_cut: bool) -> Readings:
        """Return the sizes of the topics of these partitions. `is_last_cut`: the last topic may have more partitions,
        and is left out."""
        self._look(standings)
        sizes: dict[Labels, int] = {}
        records: dict[Labels, int] = {}
        for standing in standings:
            _, size_before, records_before = self._removed.get(standing.ordinal, _NOTHING_REMOVED)
            labels, totals = (standing.topic,), standing.head.totals
            sizes[labels] = sizes.get(labels, 0) + max(0, totals.size_bytes - size_before)
            records[labels] = records.get(labels, 0) + max(0, totals.record_count - records_before)
        if is_last_cut and standings:
            del sizes[standings[-1].topic,], records[standings[-1].topic,]
        return {"txn_topic_bytes": {**sizes}, "txn_topic_records": {**records}}

    def _look(self, standings: Sequence[PartitionReading]) -> None:
        """Look up some log starts that have moved, those of earlier lookups last."""
        known = self._removed
        self._removed = {each.ordinal: known[each.ordinal] for each in standings if each.ordinal in known}
        moved = [
            each for each in standings if self._removed.get(each.ordinal, _NOTHING_REMOVED)[0] != _place(each.head)
        ]
        moved.sort(key=lambda each: each.ordinal in self._removed)
        for each in [each for each in moved if each.ordinal not in self._looking][:LOOKS_MAX]:
            self._looking.add(each.ordinal)
            self._reader.read(partial(_removed, each)).on_settled(partial(self._note, each))

    def _note(self, standing: PartitionReading, found: Pending[tuple[int, int]]) -> None:
        self._looking.discard(standing.ordinal)
        before = self._removed.pop(standing.ordinal, _NOTHING_REMOVED)
        if found.error is None:
            before = (_place(standing.head), *found.result())
        elif isinstance(found.error, LogDamaged | StoreUnreadable):
            # Damage is reported by readers. Looked at again only once the log start moves.
            before = (_place(standing.head), *before[1:])
        else:
            raise found.error
        self._removed[standing.ordinal] = before


def _place(head: PartitionHead) -> tuple[int, Compaction]:
    return head.log_start_offset, head.compaction


def _removed(standing: PartitionReading, rows: StoreReads) -> tuple[int, int]:
    return removed_totals(rows, standing.ordinal, standing.head)
