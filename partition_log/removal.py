"""Removal of rows before the log starts of partitions, and moves of log starts for retention.

A removal has three steps. A crash may come between any two of them.

1. The new log start becomes durable.
2. A later commit group deletes the rows of records, index entries and aborted transactions before it, by one range
  each. So a gigabyte takes as long as one record.
3. The store deletes files that no row refers to any more (`coordinator_runtime.rocks.segments`). It also reclaims space
  in files that hold other rows, too (`coordinator_runtime.rocks.reclaim`).

After a crash, the next round finds what is left.

A few partitions are looked at in each turn of the loop. Rows that cannot be read are left, and reported.

Source: docs/store-format.md, "Removal below a log start".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import Final

from coordinator_protocol.errors import Refused
from coordinator_runtime.decision import Decision, Operation, Turn
from coordinator_runtime.ports import NO_LEASES, OffsetLeases
from coordinator_runtime.rows import StagedRows
from coordinator_runtime.runtime import Runtime
from coordinator_runtime.store import Family, Store, StoreUnreadable
from partition_log import codec, forgotten_rows
from partition_log.batches import LogDamaged
from partition_log.catalog.settings import FOR_EVER, Retention
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
        store: Store,
        catalog: CatalogShard,
        damage: DamageWatch,
        leases: OffsetLeases = NO_LEASES,
    ) -> None:
        self._runtime = runtime
        self._store = store
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

    def round(self) -> Iterator[None]:
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
                    self._look(placed, kept, note)
                except (LogDamaged, StoreUnreadable) as damage:
                    self._damage.met(placed.ref, damage)
            yield
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

    def _look(self, placed: PlacedPartition, kept: Retention, note: Callable[[int, MovedLogStart], None]) -> None:
        """Remove the rows of a partition that are due, and move its log start if retention wants it. Raises LogDamaged,
        StoreUnreadable."""
        shard: LogShard | None = self._runtime.table.find(placed.shard)
        ordinal = placed.ref.ordinal
        head = None if shard is None else shard.durable_head(ordinal)
        if shard is None or head is None or not shard.is_readable(ordinal):
            return
        # Rows before the durable log start are removed now. If the log start moves below, the next round removes the
        # rows before it.
        self._remove(placed, head)
        now_ms = self._runtime.clock.wall_ms()
        if kept.retention_ms != FOR_EVER and finish_ahead_of_time(head, now_ms) is not None:
            finish = partial(_decide_finished, ordinal)
            self._runtime.write(Operation(placed.shard, finish), is_urgent=True)
        wanted = due_offset(self._store, ordinal, head, kept, now_ms)
        if wanted > head.log_start_offset:
            decide = partial(_decide_retained, ordinal, wanted)
            self._runtime.write(Operation(placed.shard, decide), is_urgent=True).map(partial(note, ordinal))

    def _remove(self, placed: PlacedPartition, head: PartitionHead) -> None:
        ordinal, start = placed.ref.ordinal, head.log_start_offset
        if self._removed_to.get(ordinal, 0) != start:
            first, below = codec.log_key(ordinal, 0), codec.log_key(ordinal, start)
            known = ordinal in self._removed_to
            if known or next(self._store.scan_headers(Family.LOG, first, below), None) is not None:
                self._remove_rows(placed, head)
            self._removed_to[ordinal] = start
            self._remembered_at[ordinal] = forgotten_rows.remembered_from(ordinal)
        self._forget_ends(placed, start)

    def _remove_rows(self, placed: PlacedPartition, head: PartitionHead) -> None:
        ordinal, start = placed.ref.ordinal, head.log_start_offset
        # Totals have a meaning only by comparison. So both are taken at the end of the index entry that an offset is
        # in.
        oldest, holding = (next(stretches(self._store, ordinal, offset), None) for offset in (0, start))
        after = head.totals if holding is None else holding.totals
        unfinished_bytes = head.totals.size_bytes - head.index.size_bytes
        size_bytes = after.size_bytes - (unfinished_bytes if oldest is None else oldest.totals.size_bytes)
        self._runtime.write_rows(placed.shard, StagedRows(deleted_ranges=codec.ranges_below(ordinal, start)))
        self.on_removed(RowsRemoved(ordinal, size_bytes))

    def _forget_ends(self, placed: PlacedPartition, start: int) -> None:
        """Forget the remembered ends whose records are removed. A repeated Transact no longer gets their offset."""
        ordinal = placed.ref.ordinal
        at = self._remembered_at.get(ordinal)
        if at is None:
            return
        rows = list(
            islice(self._store.scan(Family.PRODUCERS, at, forgotten_rows.remembered_end(ordinal)), REMEMBERED_PER_STEP)
        )
        gone = {
            (Family.PRODUCERS, key): None
            for key, value in rows
            if forgotten_rows.decode_remembered(key, value).first_offset < start
        }
        if gone:
            self._runtime.write_rows(placed.shard, StagedRows(newest={**gone}))
        if len(rows) < REMEMBERED_PER_STEP:
            del self._remembered_at[ordinal]
        else:
            self._remembered_at[ordinal] = rows[-1][0] + b"\0"


def _decide_finished(ordinal: int, log: LogShard, turn: Turn) -> Decision:
    return log.decide_finish_stretch(ordinal, turn)


def _decide_retained(ordinal: int, wanted: int, log: LogShard, _turn: Turn) -> Decision:
    return log.decide_move_log_start(ordinal, wanted, RemovalCause.RETENTION)
