"""Passes over the logs of compacted topics: one partition at a time, a stretch per turn of the loop.

Rows are read and written here, and the worker process reads payloads meanwhile. Where reads may wait, a thread reads
the rows of a stretch. A pass that cannot go on ends, and a later round takes it up at its stored position. It has then
forgotten the records that it left before. So it keeps all tombstones, and the markers of transactions that began there.

Source: docs/store-format.md, "Compaction"; decision 60.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial
from itertools import count
from typing import Any, Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from coordinator_protocol.errors import CoordinatorError, Refused
from coordinator_runtime.decision import Decision, Operation, Turn
from coordinator_runtime.features import COMPACTED_LOGS, Features
from coordinator_runtime.pending import Pending
from coordinator_runtime.rounds import Steps, awaited
from coordinator_runtime.runtime import Runtime
from coordinator_runtime.store import Family, StoreReads, StoreUnreadable
from coordinator_runtime.store_readers import StoreReader
from coordinator_runtime.worker import Worker, WorkerLost
from partition_log import codec
from partition_log.batches import LogDamaged
from partition_log.catalog.settings import CompactionTerms
from partition_log.catalog.shard import CatalogShard
from partition_log.catalog.state import PlacedPartition
from partition_log.compaction.choice import DirtyPart, dirty_part, is_clean, wants_stretch_finished
from partition_log.compaction.chunks import Chunk, LeftIndex
from partition_log.compaction.payloads import (
    BatchesToCompact,
    CompactedBatch,
    KeysToNote,
    TableLost,
    compact_batches,
    forget_table,
    note_keys,
)
from partition_log.compaction.rules import CompactedRow, Survivors, finished, retired_below, row_of
from partition_log.compaction_steps import CompactionStep
from partition_log.damage_watch import DamageWatch
from partition_log.reading import AbortedIndex, ReadBudget
from partition_log.shard import LogShard
from partition_log.state import Compaction, IndexEntry, PartitionConfig, PartitionHead
from partition_log.stretches import stretches

PARTITIONS_PER_STEP: Final = 16
"""Partitions that are looked at in one turn. Each costs a few seeks of some 20 us, and the headers of one stretch."""
ENTRIES_PER_STEP: Final = 256
BYTES_PER_STEP: Final = 64 << 10
"""A step reads rows until they are this large together: a megabyte takes the loop 0.7 ms."""
MESSAGE_BYTES: Final = 64 << 10
"""A message to the worker ends with the batch that makes it this large: the loop waits while a message is packed."""
DAMAGE_PAUSE_MS: Final = 3_600_000
"""Pause before a log in which damage was met is looked at again."""
_ALL: Final = 1 << 60
_CLEAN: Final = DirtyPart(0, 0.0, is_due=False)
_UNDER_WAY: Final = DirtyPart(0, 1.0, is_due=True)

_table_numbers: Final = count(1)


class PassStopped(Exception):
    """A pass cannot go on now. The next round takes it up."""


class LogToCompact(Struct, frozen=True):
    """A partition whose log may be compacted, as one look found it."""

    placed: PlacedPartition
    shard: LogShard
    head: PartitionHead
    terms: CompactionTerms
    dirty: DirtyPart
    can_go_on: bool
    """True if a pass is due, and nothing holds it back."""

    @property
    def ordinal(self) -> int:
        return self.placed.ref.ordinal


class _Looked(Struct, frozen=True):
    """State of a log, as one view of the store shows it."""

    wants_stretch_finished: bool
    dirty: DirtyPart
    shorter: DirtyPart | None
    """The dirty part before the first held record, if that lies in it."""


class _StretchRows(NamedTuple):
    """One stretch of a log, or some rows of it."""

    entry: IndexEntry
    rows: list[CompactedRow]
    hidden: list[bool]
    """True for each row with a batch of an aborted transaction."""

    @property
    def next_offset(self) -> int:
        """The first offset behind these rows."""
        return self.rows[-1].last_offset + 1 if self.rows else self.entry.last_offset + 1

    @property
    def is_whole(self) -> bool:
        """True if these rows reach the end of the stretch."""
        return self.next_offset > self.entry.last_offset


class CompactionPorts(Struct, frozen=True):
    """Parts that passes need from others."""

    worker: Worker
    features: Features
    damage: DamageWatch
    held_from: Callable[[PlacedPartition], int | None]
    """Returns the first offset of a partition that must stay as it is; None if there is none. Raises Refused if that is
    not known now."""


class LogCompaction:
    """Compacts logs."""

    def __init__(
        self,
        runtime: Runtime,
        reader: StoreReader,
        catalog: CatalogShard,
        ports: CompactionPorts,
        config: PartitionConfig | None = None,
    ) -> None:
        self._runtime = runtime
        self._reader = reader
        self._catalog = catalog
        self._ports = ports
        self._config = config if config is not None else PartitionConfig()
        self._not_before_ms: dict[int, int] = {}
        """Times by ordinal before which a log with damage is not looked at again."""
        self.unreadable_batches = 0
        """Number of batches that passes could not decode, since the start."""
        self.stopped_passes = 0
        """Number of passes that could not go on, since the start."""
        self.dirty_ratio_max = 0.0
        """Largest share of a dirty part, in the last whole round."""
        self.ended_passes = 0
        """Number of passes that reached their end, since the start."""
        self.last_ended_ms = 0
        """Wall time at which a pass last ended in any log, before the start as well; 0 if none has."""
        self._due_since_ms: dict[int, int] = {}
        """Times by ordinal since when a pass is due."""

    def round(self) -> Steps:
        """Look at all partitions once, some in each step, and compact the one that needs it most."""
        chosen: LogToCompact | None = None
        ratio_max, due = 0.0, dict[int, int]()
        for looked, (placed, terms) in enumerate(self._partitions(), 1):
            found = yield from self._look(placed, terms)
            if found is not None:
                ratio_max = max(ratio_max, found.dirty.ratio)
                self._note_ended(found.head.compaction)
                if found.dirty.is_due:
                    # Also while a snapshot keeps the pass from beginning.
                    due[found.ordinal] = self._due_since_ms.get(found.ordinal, self._runtime.clock.monotonic_ms())
                if found.can_go_on:
                    chosen = found if chosen is None else max(chosen, found, key=_urgency)
            if looked % PARTITIONS_PER_STEP == 0:
                yield None
        self.dirty_ratio_max, self._due_since_ms = ratio_max, due
        if chosen is None:
            return
        try:
            yield from self._pass(chosen)
            self.ended_passes += 1
            self._due_since_ms.pop(chosen.ordinal, None)
        except (PassStopped, WorkerLost, TableLost, CoordinatorError):
            self.stopped_passes += 1
        except (LogDamaged, StoreUnreadable) as damage:
            self.stopped_passes += 1
            self._met(chosen.placed, damage)

    def waiting_ms(self) -> int:
        """Return how long the log that has waited longest is due for a pass; 0 if none is due."""
        now_ms = self._runtime.clock.monotonic_ms()
        return max((now_ms - since_ms for since_ms in self._due_since_ms.values()), default=0)

    def _note_ended(self, compaction: Compaction) -> None:
        if compaction.finished:
            self.last_ended_ms = max(self.last_ended_ms, compaction.finished[-1].finished_ms)

    # Choosing

    def _partitions(self) -> Iterator[tuple[PlacedPartition, CompactionTerms]]:
        catalog = self._catalog
        for name in tuple(catalog.topic_names()):
            try:
                topic = catalog.durable_topic(name, b"")
            except Refused:
                continue  # The topic is being created or deleted.
            terms = catalog.compaction(topic)
            if terms is None:
                continue
            for ordinal in topic.partition_ordinals:
                placed = catalog.placed(ordinal)
                if placed is not None:
                    yield placed, terms

    def _look(
        self, placed: PlacedPartition, terms: CompactionTerms
    ) -> Generator[Pending[Any] | None, None, LogToCompact | None]:
        ordinal, now_ms = placed.ref.ordinal, self._runtime.clock.wall_ms()
        shard: LogShard | None = self._runtime.table.find(placed.shard)
        head = None if shard is None else shard.durable_head(ordinal)
        is_waiting = self._runtime.clock.monotonic_ms() < self._not_before_ms.get(ordinal, 0)
        if shard is None or head is None or is_waiting or not shard.is_readable(ordinal):
            return None
        if is_clean(head, terms):
            return LogToCompact(placed, shard, head, terms, _CLEAN, can_go_on=False)
        try:
            held_from = self._ports.held_from(placed)
            looked = yield from awaited(
                self._reader.read(partial(_looked, ordinal, head, terms, now_ms=now_ms, held_from=held_from))
            )
        except Refused:
            return None
        except (LogDamaged, StoreUnreadable) as damage:
            self._met(placed, damage)
            return None
        if self._reader.is_apart and not self._is_as_it_was(placed, shard, head):
            return None  # The rows that were read may not fit the view. The next round looks again.
        if looked.wants_stretch_finished:
            self._runtime.write(Operation(placed.shard, partial(_decide_finished, ordinal)), is_urgent=True)
        dirty = looked.dirty
        if head.compaction.is_under_way:
            is_held = held_from is not None and held_from < head.compaction.end_offset
            return LogToCompact(placed, shard, head, terms, dirty, can_go_on=not is_held)
        can_go_on = dirty.is_due
        if looked.shorter is not None:
            can_go_on = looked.shorter.is_due
            dirty = replace(dirty, end_offset=looked.shorter.end_offset)
        return LogToCompact(placed, shard, head, terms, dirty, can_go_on)

    def _is_as_it_was(self, placed: PlacedPartition, shard: LogShard, head: PartitionHead) -> bool:
        """Return False if rows that a thread has read may not fit the view, or the partition is gone."""
        present = shard.durable_head(placed.ref.ordinal)
        if present is None or self._runtime.table.find(placed.shard) is not shard:
            return False
        is_whole = shard.is_readable(placed.ref.ordinal) and present.log_start_offset == head.log_start_offset
        return is_whole and present.compaction == head.compaction

    def _met(self, placed: PlacedPartition, damage: LogDamaged | StoreUnreadable) -> None:
        self._ports.damage.met(placed.ref, damage)
        self._not_before_ms[placed.ref.ordinal] = self._runtime.clock.monotonic_ms() + DAMAGE_PAUSE_MS

    # Compacting

    def _pass(self, log: LogToCompact) -> Steps:
        compaction = log.head.compaction
        is_resumed = compaction.is_under_way
        if not is_resumed:
            yield from awaited(self._ports.features.begin(COMPACTED_LOGS))
            compaction = replace(compaction, end_offset=log.dirty.end_offset, position=log.head.log_start_offset)
            yield from self._write(log, CompactionStep(compaction))
        table = next(_table_numbers)
        yield from self._note_keys(log, compaction, table)
        retired = retired_below(compaction, self._runtime.clock.wall_ms(), log.terms.delete_retention_ms)
        survivors = Survivors(0 if is_resumed else retired)
        index = LeftIndex(self._config)
        if is_resumed:
            yield from self._read_index(log, compaction.position, index)
        yield from self._rewrite(log, compaction, table, survivors, index)
        self._ports.worker.run(forget_table, table)
        ended = finished(compaction, self._runtime.clock.wall_ms(), log.terms.delete_retention_ms)
        yield from self._write(log, CompactionStep(ended))
        self._note_ended(ended)

    def _note_keys(self, log: LogToCompact, compaction: Compaction, table: int) -> Steps:
        """Let the worker note the newest offset of every key in the dirty part."""
        aborted, at, is_first = _aborted(log), compaction.clean_to, True
        while (stretch := (yield from self._next_stretch(log, at, compaction.end_offset, aborted))) is not None:
            for batches in _messages(_to_decode(stretch.rows, stretch.hidden)):
                keys = KeysToNote(table, batches, is_first)
                self.unreadable_batches += yield from awaited(self._ports.worker.run(note_keys, keys))
                is_first = False
            at = stretch.entry.last_offset + 1
            yield from self._rest(stretch.rows)
        if is_first:
            yield from awaited(self._ports.worker.run(note_keys, KeysToNote(table, (), is_first=True)))

    def _read_index(self, log: LogToCompact, position: int, index: LeftIndex) -> Steps:
        """Read the index of the part that an earlier run of the pass went over."""
        at = log.head.log_start_offset
        while at < position:
            found = yield from awaited(self._reader.read(partial(_entries, log.ordinal, at, position)))
            if not found:
                return
            index.keep(found)
            at = found[-1].last_offset + 1
            yield None

    def _rewrite(
        self, log: LogToCompact, compaction: Compaction, table: int, survivors: Survivors, index: LeftIndex
    ) -> Steps:
        aborted, log_end = _aborted(log), log.head.log_end_offset
        chunk = Chunk(index, survivors, log_end)
        written_to = end_offset = compaction.position
        while (stretch := (yield from self._next_stretch(log, end_offset, compaction.end_offset, aborted))) is not None:
            entry, rows, hidden = stretch
            left = yield from self._compacted(table, _to_decode(rows, hidden), survivors.retired_below)
            chunk.take(entry, rows, hidden, left)
            end_offset = entry.last_offset + 1
            if chunk.is_full or end_offset >= compaction.end_offset:
                yield from self._write(log, chunk.step(replace(compaction, position=end_offset)))
                chunk, written_to = Chunk(index, survivors, log_end), end_offset
            yield from self._rest(rows)
        if written_to < end_offset:
            yield from self._write(log, chunk.step(replace(compaction, position=end_offset)))

    def _compacted(
        self, table: int, batches: Sequence[bytes], retired_below: int
    ) -> Generator[Pending[Any] | None, None, list[CompactedBatch]]:
        """Let the worker compact batches. Raises TableLost, WorkerLost."""
        found: list[CompactedBatch] = []
        for some in _messages(batches):
            asked = BatchesToCompact(table, some, retired_below)
            found += yield from awaited(self._ports.worker.run(compact_batches, asked))
            if not all(batch.is_readable for batch in found):
                # An unreadable batch may hold older records of any key, so no tombstone behind it goes.
                retired_below = 0
        return found

    def _next_stretch(
        self, log: LogToCompact, at: int, end_offset: int, aborted: AbortedIndex
    ) -> Generator[Pending[Any] | None, None, _StretchRows | None]:
        """Return the stretch of an offset with its rows from there on; None at the end of the part. Raises PassStopped,
        LogDamaged, StoreUnreadable."""
        rows: list[CompactedRow] = []
        hidden: list[bool] = []
        next_offset = at
        while True:
            self._check_goes_on(log)
            log_start_offset = log.shard.log_start_to_be(log.ordinal)
            if log_start_offset > at:
                # Rows that were read may be gone, and others may have been missing.
                at = next_offset = log_start_offset
                rows, hidden = [], []
            if at >= end_offset:
                return None
            read = self._reader.read(partial(_some_rows, log.ordinal, next_offset, aborted))
            if self._reader.is_apart:
                yield read
                self._check_goes_on(log)
            found = yield from awaited(read)
            if found is None:
                raise PassStopped("the index ends before the pass")
            rows += found.rows
            hidden += found.hidden
            if found.is_whole:
                return _StretchRows(found.entry, rows, hidden)
            next_offset = found.next_offset
            yield None

    def _check_goes_on(self, log: LogToCompact) -> None:
        """Return only if the log is still to be compacted. Raises PassStopped."""
        if self._runtime.table.find(log.placed.shard) is not log.shard or not log.shard.is_readable(log.ordinal):
            raise PassStopped("the partition is gone, or is not served")
        try:
            topic = self._catalog.topic(log.placed.ref.topic, log.placed.ref.topic_id)
        except Refused as refusal:
            raise PassStopped(refusal.message) from refusal
        if self._catalog.compaction(topic) is None:
            raise PassStopped("the topic is not to be compacted any more")

    def _write(self, log: LogToCompact, step: CompactionStep) -> Steps:
        """Write a change, durable when this ends. Raises PassStopped if a snapshot holds what would change."""
        self._check_goes_on(log)
        decide = partial(_decide_compact, log.ordinal, step)
        written: Pending[bool] = self._runtime.write(Operation(log.placed.shard, decide), is_urgent=True)
        if not (yield from awaited(written)):
            raise PassStopped("a snapshot holds records that are to be compacted")

    def _rest(self, rows: Sequence[CompactedRow]) -> Steps:
        """Pause for as long as the bytes that were read may take."""
        rate, clock = self._config.compaction_bytes_per_second, self._runtime.clock
        yield None
        if not rate:
            return
        until_ms = clock.monotonic_ms() + sum(len(row.row) for row in rows) * 1_000 // rate
        while clock.monotonic_ms() < until_ms:
            yield None


def _urgency(log: LogToCompact) -> tuple[bool, float]:
    """A pass that has begun comes first, then the largest dirty part."""
    return log.head.compaction.is_under_way, log.dirty.ratio


def _looked(
    ordinal: int, head: PartitionHead, terms: CompactionTerms, rows: StoreReads, *, now_ms: int, held_from: int | None
) -> _Looked:
    wants = wants_stretch_finished(rows, ordinal, head, terms, now_ms)
    if head.compaction.is_under_way:
        return _Looked(wants, _UNDER_WAY, None)
    look = partial(dirty_part, rows, ordinal, head, terms, now_ms=now_ms)
    dirty, shorter = look(held_from=None), None
    if dirty.is_due and held_from is not None and held_from < dirty.end_offset:
        shorter = look(held_from=held_from)
    return _Looked(wants, dirty, shorter)


def _entries(ordinal: int, at: int, position: int, rows: StoreReads) -> list[IndexEntry]:
    """Return some index entries from an offset on, whose stretches end before the position."""
    found: list[IndexEntry] = []
    for entry in stretches(rows, ordinal, at):
        if entry.last_offset >= position or len(found) == ENTRIES_PER_STEP:
            break
        found.append(entry)
    return found


def _some_rows(ordinal: int, at: int, aborted: AbortedIndex, reads: StoreReads) -> _StretchRows | None:
    """Return rows of the stretch of an offset, from there on, as many as a step reads; None if there is no stretch."""
    entry = next(stretches(reads, ordinal, at), None)
    if entry is None:
        return None
    aborted.use(reads)
    found: list[CompactedRow] = []
    left_bytes = BYTES_PER_STEP
    keys = codec.log_key(ordinal, at), codec.log_key(ordinal, entry.last_offset + 1)
    for key, row in reads.scan(Family.LOG, *keys):
        last_offset = codec.last_offset(key)
        try:
            found.append(row_of(last_offset, row))
        except Refused as damage:
            raise LogDamaged(Family.LOG, at, last_offset + 1, damage.message, damage.code) from damage
        left_bytes -= len(row)
        if left_bytes <= 0:
            break
    return _StretchRows(entry, found, [_is_hidden(row, aborted) for row in found])


def _aborted(log: LogToCompact) -> AbortedIndex:
    return AbortedIndex(None, log.ordinal, log.head, ReadBudget(0, _ALL))


def _is_hidden(row: CompactedRow, aborted: AbortedIndex) -> bool:
    header = row.header
    return header.is_transactional and not header.is_control and aborted.hides(header)


def _to_decode(rows: Sequence[CompactedRow], hidden: Sequence[bool]) -> list[bytes]:
    return [
        row.batch for row, is_hidden in zip(rows, hidden, strict=True) if not is_hidden and not row.header.is_control
    ]


def _messages(batches: Sequence[bytes]) -> Iterator[list[bytes]]:
    """Divide batches among messages to the worker."""
    message: list[bytes] = []
    size_bytes = 0
    for batch in batches:
        message.append(batch)
        size_bytes += len(batch)
        if size_bytes >= MESSAGE_BYTES:
            yield message
            message, size_bytes = [], 0
    if message:
        yield message


def _decide_compact(ordinal: int, step: CompactionStep, log: LogShard, _turn: Turn) -> Decision:
    return log.decide_compact(ordinal, step)


def _decide_finished(ordinal: int, log: LogShard, turn: Turn) -> Decision:
    return log.decide_finish_stretch(ordinal, turn, for_compaction=True)
