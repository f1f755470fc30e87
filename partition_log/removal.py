"""Removal of rows before the log starts of partitions, and moves of log starts for retention.

A removal has three steps. A crash may come between any two of them.

1. The new log start becomes durable.
2. A later commit group deletes the rows of records, index entries and aborted transactions before it, by one range
  each. So a gigabyte takes as long as one record.
3. The store deletes files that no row refers to any more (`coordinator_runtime.rocks.segments`). It also reclaims space
  in files that hold other rows, too (`coordinator_runtime.rocks.reclaim`).

After a crash, the next round finds what is left.

A few partitions are looked at in each turn of the loop. Rows that cannot be read are left, and reported. Where reads
may wait, a thread looks at one partition after the other. If a partition has changed meanwhile, it is left to the next
round.

Source: docs/store-format.md, "Removal below a log start".
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from functools import partial
from itertools import islice
from typing import Any, Final

from coordinator_protocol.errors import Refused
from coordinator_runtime.decision import Decision, Operation, Turn
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import NO_LEASES, OffsetLeases
from coordinator_runtime.rounds import Steps, awaited
from coordinator_runtime.rows import StagedRows
from coordinator_runtime.runtime import Runtime
from coordinator_runtime.store import Family, StoreReads, StoreUnreadable
from coordinator_runtime.store_readers import StoreReader
from partition_log import codec, forgotten_rows
from partition_log.batches import LogDamaged
from partition_log.catalog.settings import FOR_EVER, KEEP_ALL, Retention
from partition_log.catalog.shard import CatalogShard
from partition_log.catalog.state import PlacedPartition
from partition_log.damage_watch import DamageWatch
from partition_log.records import RemovalCause, RowsRemoved
from partition_log.retention import due_offset
from partition_log.rules.indexing import finish_ahead_of_time
from partition_log.shard import LogShard
from partition_log.state import MovedLogStart, PartitionHead
from partition_log.stretches import stretches

PARTITIONS_PER_STEP: Final = 16
"""Partitions that are looked at in one turn. Each costs two or three seeks of some 20 us."""
REMEMBERED_PER_STEP: Final = 256
"""Remembered ends of one partition that are checked in one round."""


class LogRemoval:
    """Removes rows that partitions no longer keep."""

    def __init__(
        self,
        runtime: Runtime,
        reader: StoreReader,
        catalog: CatalogShard,
        damage: DamageWatch,
        leases: OffsetLeases = NO_LEASES,
    ) -> None:
        self._runtime = runtime
        self._reader = reader
        self._catalog = catalog
        self._damage = damage
        self._leases = leases
        self._removed_to: dict[int, int] = {}
        """Offsets before which nothing is left, by ordinal. Partitions that are missing have not been looked at yet."""
        self._remembered_at: dict[int, bytes] = {}
        """Keys by ordinal at which the check of remembered ends continues."""
        self.held_back = 0
        """Number of partitions that kept more than retention wants, in the last whole round."""
        self.on_removed: Callable[[RowsRemoved], None] = lambda _event: None

    def round(self) -> Steps:
        """Look at all partitions once, some in each step."""
        held_back = 0

        def note(ordinal: int, moved: MovedLogStart) -> None:
            nonlocal held_back
            held_back += bool(moved.held_back)
            self._leases.note_due(ordinal, moved.due_offset)

        partitions, seen = self._partitions(), set[int]()
        while step := list(islice(partitions, PARTITIONS_PER_STEP)):
            for placed, kept in step:
                seen.add(placed.ref.ordinal)
                try:
                    yield from self._look(placed, kept, note)
                except (LogDamaged, StoreUnreadable) as damage:
                    self._damage.met(placed.ref, damage)
            yield None
        self.held_back = held_back
        for of_gone in (self._removed_to, self._remembered_at):
            for ordinal in of_gone.keys() - seen:
                of_gone.pop(ordinal, None)

    def _partitions(self) -> Iterator[tuple[PlacedPartition, Retention]]:
        catalog = self._catalog
        for name in tuple(catalog.topic_names()):
            try:
                topic = catalog.durable_topic(name, b"")
            except Refused:
                continue  # The topic is being created or deleted.
            kept = catalog.retention(topic)
            for ordinal in topic.partition_ordinals:
                placed = catalog.placed(ordinal)
                if placed is not None:
                    yield placed, kept

    def _look(self, placed: PlacedPartition, kept: Retention, note: Callable[[int, MovedLogStart], None]) -> Steps:
        """Remove the rows of a partition that are due, and move its log start if retention wants it. Raises LogDamaged,
        StoreUnreadable."""
        shard: LogShard | None = self._runtime.table.find(placed.shard)
        ordinal = placed.ref.ordinal
        head = None if shard is None else shard.durable_head(ordinal)
        if shard is None or head is None or not shard.is_readable(ordinal):
            return
        # Rows before the durable log start are removed now. If the log start moves below, the next round removes the
        # rows before it.
        if self._removed_to.get(ordinal, 0) != head.log_start_offset and not (yield from self._remove(placed, head)):
            return
        if ordinal in self._remembered_at and not (yield from self._forget_ends(placed, head)):
            return
        if kept == KEEP_ALL or head.log_start_offset == head.log_end_offset:
            return
        now_ms = self._runtime.clock.wall_ms()
        if kept.retention_ms != FOR_EVER and finish_ahead_of_time(head, now_ms) is not None:
            finish = partial(_decide_finished, ordinal)
            self._runtime.write(Operation(placed.shard, finish), is_urgent=True)
        look = partial(_due_offset, ordinal, head, kept, now_ms)
        wanted = yield from awaited(self._reader.read(look))
        if wanted > head.log_start_offset and self._is_as_it_was(placed, head):
            decide = partial(_decide_retained, ordinal, wanted)
            self._runtime.write(Operation(placed.shard, decide), is_urgent=True).map(partial(note, ordinal))

    def _is_as_it_was(self, placed: PlacedPartition, head: PartitionHead) -> bool:
        """Return False if a thread may have read rows that do not fit the view, or the partition is gone."""
        if not self._reader.is_apart:
            return True
        shard: LogShard | None = self._runtime.table.find(placed.shard)
        present = None if shard is None else shard.durable_head(placed.ref.ordinal)
        if shard is None or present is None or not shard.is_readable(placed.ref.ordinal):
            return False
        return present.log_start_offset == head.log_start_offset

    def _remove(self, placed: PlacedPartition, head: PartitionHead) -> Generator[Pending[Any] | None, None, bool]:
        """Remove the rows before the log start. Return False if the partition has changed."""
        ordinal, start = placed.ref.ordinal, head.log_start_offset
        look = partial(_bytes_below, ordinal, head, ordinal in self._removed_to)
        size_bytes = yield from awaited(self._reader.read(look))
        if not self._is_as_it_was(placed, head):
            return False
        if size_bytes is not None:
            deleted_ranges = codec.ranges_below(ordinal, start)
            self._runtime.write_rows(placed.shard, StagedRows(deleted_ranges=deleted_ranges))
            self.on_removed(RowsRemoved(ordinal, size_bytes))
        self._removed_to[ordinal] = start
        self._remembered_at[ordinal] = forgotten_rows.remembered_from(ordinal)
        return True

    def _forget_ends(self, placed: PlacedPartition, head: PartitionHead) -> Generator[Pending[Any] | None, None, bool]:
        """Forget the remembered ends whose records are removed. A repeated Transact no longer gets their offset. Return
        False if the partition has changed."""
        ordinal = placed.ref.ordinal
        at = self._remembered_at[ordinal]
        rows = yield from awaited(self._reader.read(partial(_remembered_rows, ordinal, at)))
        if not self._is_as_it_was(placed, head):
            return False
        gone = {
            (Family.PRODUCERS, key): None
            for key, value in rows
            if forgotten_rows.decode_remembered(key, value).first_offset < head.log_start_offset
        }
        if gone:
            self._runtime.write_rows(placed.shard, StagedRows(newest={**gone}))
        if len(rows) < REMEMBERED_PER_STEP:
            del self._remembered_at[ordinal]
        else:
            self._remembered_at[ordinal] = rows[-1][0] + b"\0"
        return True


def _due_offset(ordinal: int, head: PartitionHead, kept: Retention, now_ms: int, rows: StoreReads) -> int:
    return due_offset(rows, ordinal, head, kept, now_ms)


def _bytes_below(ordinal: int, head: PartitionHead, has_rows: bool, rows: StoreReads) -> int | None:
    """Return the bytes before the log start; None if no row is there. `has_rows`: True if some are known to be."""
    start = head.log_start_offset
    first, below = codec.log_key(ordinal, 0), codec.log_key(ordinal, start)
    if not has_rows and next(rows.scan_headers(Family.LOG, first, below), None) is None:
        return None
    # Totals have a meaning only by comparison. So both are taken at the end of the index entry that an offset is in.
    oldest, holding = (next(stretches(rows, ordinal, offset), None) for offset in (0, start))
    after = head.totals if holding is None else holding.totals
    unfinished_bytes = head.totals.size_bytes - head.index.size_bytes
    return after.size_bytes - (unfinished_bytes if oldest is None else oldest.totals.size_bytes)


def _remembered_rows(ordinal: int, at: bytes, rows: StoreReads) -> list[tuple[bytes, bytes]]:
    """Return some rows of remembered ends, from a key on."""
    return list(islice(rows.scan(Family.PRODUCERS, at, forgotten_rows.remembered_end(ordinal)), REMEMBERED_PER_STEP))


def _decide_finished(ordinal: int, log: LogShard, turn: Turn) -> Decision:
    return log.decide_finish_stretch(ordinal, turn)


def _decide_retained(ordinal: int, wanted: int, log: LogShard, _turn: Turn) -> Decision:
    return log.decide_move_log_start(ordinal, wanted, RemovalCause.RETENTION)
