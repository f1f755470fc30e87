"""Snapshots: the part of a partition in a view of several partitions at one moment, and the difference between two
views.

A snapshot shows a transaction in all partitions or in none. Each partition is shown up to its durable end, without the
transactions that were not finished everywhere when the snapshot was taken. These are its *exclusions*: by producer id,
the offset from which nothing of that producer is shown. They are part of the snapshot. So the later end of those
transactions changes nothing in it, and reading it again gives the same records. It waits for no open transaction.

Compaction takes records from a log that newer ones have replaced, perhaps behind the end of the snapshot. So the
snapshot also has the progress of compaction. If that goes on, its readers are refused where records may be gone.

An excluded transaction is the last one of its producer before the end, because a producer finishes one transaction
before it begins the next. So if a later snapshot excludes the producer only from that end on, it excludes another
transaction. An excluded transaction may begin before the start. A reader that follows a log by deltas has records from
there, although this snapshot neither shows nor holds them.

Source: spec log-and-runtime 2.4, Algorithm S and its delta rule; decision 40.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, ValuesView
from typing import Final, NamedTuple

from msgspec import Struct

NOTHING_EXCLUDED: Final[Mapping[int, int]] = {}


class OpenedExclusions(Mapping[int, int]):
    """Exclusions of a partition with only open transactions: a view of the partition's own mapping.

    The server only lists them, so it copies none."""

    __slots__ = ("_by_producer", "opened")

    def __init__(self, opened: Mapping[int, int]) -> None:
        """`opened`: producer ids by first offset. It must not change any more."""
        self.opened = opened
        self._by_producer: dict[int, int] | None = None

    def __getitem__(self, producer_id: int) -> int:
        if self._by_producer is None:
            self._by_producer = dict(zip(self.opened.values(), self.opened, strict=True))
        return self._by_producer[producer_id]

    def __iter__(self) -> Iterator[int]:
        return iter(self.opened.values())

    def __len__(self) -> int:
        return len(self.opened)

    def __repr__(self) -> str:
        return repr(dict(self))

    def values(self) -> ValuesView[int]:
        """First offsets, in the order of the producer ids."""
        return _FirstOffsets(self)


class _FirstOffsets(ValuesView[int]):
    """First offsets of open transactions, read without looking for their producers."""

    _mapping: OpenedExclusions

    def __iter__(self) -> Iterator[int]:
        return iter(self._mapping.opened)


class CompactionProgress(NamedTuple):
    """Progress of compaction in a partition. A later one is greater."""

    end_offset: int = 0
    """End of the newest pass, under way or finished; 0 without one."""
    position: int = 0
    """Offset that it has come to; its end, once it has finished."""


class SnapshotFilter(Struct, frozen=True):
    """Selection of the batches that a snapshot shows of a range. In addition, it shows nothing of aborted
    transactions."""

    excluded: Mapping[int, int] = NOTHING_EXCLUDED
    """By producer id: the first offset from which nothing transactional of it is shown."""
    only: Mapping[int, int] | None = None
    """By producer id: the first offset from which its transactional batches are shown, and nothing else. None: no such
    restriction."""
    compaction: CompactionProgress | None = None
    """Progress of compaction when the snapshot was taken: reading what was compacted since is refused. None: not
    checked."""

    def hides(self, producer_id: int, base_offset: int, *, is_transactional: bool) -> bool:
        """Return True if the batch is not shown."""
        if self.only is not None:
            first_offset = self.only.get(producer_id) if is_transactional else None
            return first_offset is None or base_offset < first_offset
        if not is_transactional:
            return False
        first_offset = self.excluded.get(producer_id)
        return first_offset is not None and base_offset >= first_offset

    def hides_before(self, end_offset: int) -> bool:
        """Return True if it may hide something before an offset."""
        return self.only is not None or any(first < end_offset for first in self.excluded.values())


SHOW_ALL: Final = SnapshotFilter()


class PartitionView(Struct, frozen=True):
    """One partition of a snapshot."""

    start_offset: int
    """Log start when the snapshot was taken, or the offset to which it was about to move: records that are being
    removed cannot be held."""
    end_offset: int
    """Durable log end when the snapshot was taken; not included."""
    leader_epoch: int
    """Leader epoch in which the end was learned."""
    excluded: Mapping[int, int] = NOTHING_EXCLUDED
    compaction: CompactionProgress | None = None
    """Progress of compaction when the snapshot was taken; None if its readers do not mind what is compacted."""


class Scan(Struct, frozen=True):
    """A range of offsets to read, and the part of it that is shown.

    It is read even if it is empty, provided it has a `start_epoch`: to check that the log is still the one read
    before."""

    start_offset: int
    end_offset: int
    end_epoch: int
    """Leader epoch in which the end was learned."""
    shown: SnapshotFilter = SHOW_ALL
    start_epoch: int | None = None
    """Leader epoch in which the reader learned that its earlier records end here; None if it has none."""


def scan_of(view: PartitionView) -> Scan:
    """Return the scan of everything that a snapshot shows of a partition."""
    shown = SnapshotFilter(view.excluded, compaction=view.compaction)
    return Scan(view.start_offset, view.end_offset, view.leader_epoch, shown)


def scans_between(before: PartitionView, after: PartitionView) -> tuple[Scan, ...]:
    """Return the scans of the records that a later snapshot shows of a partition and an earlier one did not, each once.

    These are transactions that were excluded before and are finished now, and the growth of the log. A record that the
    later snapshot does not show, although the log has it, comes in the delta to the one that shows it. If the log lost
    records that the earlier snapshot showed, reading the growth is refused. So is reading excluded records that have
    gone meanwhile, and what was compacted since the later snapshot.

    Raises ValueError if the second is not the later one."""
    if after.end_offset < before.end_offset:
        raise ValueError(f"a snapshot that ends at {after.end_offset} is not later than one at {before.end_offset}")
    finished, gone = dict[int, int](), dict[int, int]()
    for producer_id, first_offset in before.excluded.items():
        excluded_from = after.excluded.get(producer_id, before.end_offset)
        if first_offset < before.end_offset <= excluded_from:
            finished[producer_id] = first_offset
        elif first_offset < excluded_from < before.end_offset:
            gone[producer_id] = first_offset
    scans = []
    if finished:
        only = SnapshotFilter(only=finished, compaction=after.compaction)
        scans.append(Scan(min(finished.values()), before.end_offset, before.leader_epoch, only))
    if gone:
        # Still excluded, and the log now starts after its first offset: reading nothing there is refused.
        at, epoch = min(gone.values()), before.leader_epoch
        scans.append(
            Scan(start_offset=at, end_offset=at, end_epoch=epoch, shown=SnapshotFilter(only=gone), start_epoch=epoch)
        )
    if before.end_offset < after.end_offset or before.leader_epoch != after.leader_epoch:
        shown = SnapshotFilter(after.excluded, compaction=after.compaction)
        scans.append(
            Scan(
                start_offset=before.end_offset,
                end_offset=after.end_offset,
                end_epoch=after.leader_epoch,
                shown=shown,
                start_epoch=before.leader_epoch,
            )
        )
    return tuple(scans)
