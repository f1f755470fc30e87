"""Writes the letters of records that share groups have given up.

A record that is given up is ARCHIVING, durably. The writer reads it from the log, makes its letter, and appends that to
the dead-letter topic. The same operation archives the record, so both are in one batch. No letter is lost or written
twice, whenever the process dies. After a load the shard asks for its letters again (`LettersDue`).

The setting of the group counts at the time of writing. A letter that cannot be written waits, and is tried again
without end. Causes are a deleted topic, a shard that is not served, and a disk that is nearly full. Its record is not
handed out meanwhile, and stays in flight.

Source: KIP-1191; decision 61.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from msgspec import Struct

from coordinator_protocol.batch import Encoding
from coordinator_protocol.errors import CoordinatorError, ErrorCode, Refused
from coordinator_protocol.kafka_records import PlacedRecord
from coordinator_runtime.dead_letters import DeadLetterLog
from coordinator_runtime.decision import Operation
from coordinator_runtime.pending import Pending, all_of
from coordinator_runtime.ports import PartitionRef, TopicCatalog
from coordinator_runtime.record_log import LogBatches, LogReadLimits, LogSpan
from coordinator_runtime.runtime import Runtime
from coordinator_runtime.worker import WorkerLost
from group_coordinator.share_partitions.decisions import (
    decide_delay_letters,
    decide_end_letters,
    decide_move_log_start,
)
from group_coordinator.share_partitions.draft import LetterEnd
from group_coordinator.share_partitions.events import LettersDelayed, LettersDue
from group_coordinator.share_partitions.fetching import ShareParts
from group_coordinator.share_partitions.letters import DueLetter, due_letters, letter
from group_coordinator.share_partitions.places import share_shard
from group_coordinator.share_partitions.records import ShareKey
from group_coordinator.share_partitions.shard import ShareShard

RETRY_MS: Final = 1_000
"""Time after which letters that could not be written are tried again."""
LETTERS_MAX: Final = 500
"""Largest number of letters of one step."""
_BYTES_MAX: Final = 1 << 20
"""Size of the batches that one step reads. A single batch may be larger."""
_AT_ONCE_MAX: Final = 4
"""Share partitions whose letters are written at the same time. Each holds the batches of one step."""
_EVERY_ENCODING: Final = frozenset(Encoding)
_TOO_LARGE: Final = "The record is left out, because it does not fit into a batch of this topic."
_CHANGED: Final = frozenset({ErrorCode.INVALID_RECORD_STATE, ErrorCode.FENCED_STATE_EPOCH})
"""Refusals of a share partition that has changed since its letters were made."""
_MISSING: Final = "The record is left out, because the log does not have it any more, or cannot read it."


class _LetterStep(Struct, frozen=True):
    """Letters of one share partition that are being written."""

    key: ShareKey
    ref: PartitionRef
    state_epoch: int
    due: Sequence[DueLetter]
    topic: str
    """The dead-letter topic."""


class LetterWriter:
    """Writes letters, of each share partition one step after the other."""

    def __init__(self, runtime: Runtime, parts: ShareParts, catalog: TopicCatalog, letters: DeadLetterLog) -> None:
        self._runtime = runtime
        self._parts = parts
        self._catalog = catalog
        self._letters = letters
        self._waiting: dict[ShareKey, None] = {}
        """Share partitions with due letters, in the order in which they come to their turn."""
        self._busy: set[ShareKey] = set()
        self._paused: set[ShareKey] = set()
        """Share partitions whose letters wait for the next try."""
        self._is_choosing = False
        runtime.handle_effect(LettersDue, self._begin)

    def _begin(self, due: LettersDue) -> None:
        key = ShareKey(due.group_id, due.ordinal)
        if key not in self._paused:
            self._waiting[key] = None
            self._go_on()

    def _go_on(self) -> None:
        """Begin what may begin, unless the store failed. A step that ends at once lets the outermost call go on."""
        if self._is_choosing or self._runtime.has_failed:
            return
        self._is_choosing = True
        try:
            while len(self._busy) < _AT_ONCE_MAX:
                key = next((key for key in self._waiting if key not in self._busy), None)
                if key is None:
                    break
                del self._waiting[key]
                self._busy.add(key)
                self._look(key)
        finally:
            self._is_choosing = False

    def _look(self, key: ShareKey) -> None:
        """Write the next letters of a share partition, if there are any."""
        try:
            step = self._next_step(key)
        except Refused:
            # The shard of the group comes later, after a start.
            self._pause(key)
            return
        try:
            if step is None:
                self._end(key)
            elif not step.topic:
                self._archive(step, LetterEnd.NO_TOPIC)
            elif step.topic == step.ref.topic:
                self._archive(step, LetterEnd.OWN_TOPIC)
            else:
                self._read(step)
        except Refused as refusal:
            self._pause(key, refusal)

    def _next_step(self, key: ShareKey) -> _LetterStep | None:
        """Return the next letters; None if there are none. Raises Refused if the shard of the group is not served."""
        ref, number = self._catalog.by_ordinal(key.ordinal), self._parts.homes.shard_number(key.ordinal)
        shard: ShareShard | None = None if number is None else self._runtime.table.find(share_shard(number))
        partition = None if shard is None else shard.find(key)
        if ref is None or partition is None or not partition.letters_due:
            return None
        due = due_letters(partition, LETTERS_MAX)
        topic = self._parts.members.settings(key.group_id).dead_letter_topic
        return _LetterStep(key, ref, partition.state_epoch, due, topic)

    # Reading

    def _read(self, step: _LetterStep) -> None:
        """Read the records. Raises Refused if the log is not served."""
        first_offset = step.due[0].offset
        view = self._parts.log.view(step.ref, is_committed=False)
        if first_offset < view.log_start_offset:
            decide = partial(decide_move_log_start, key=step.key, log_start_offset=view.log_start_offset)
            self._write(step, decide)
            return
        span = LogSpan(step.ref, first_offset, step.due[-1].offset + 1)
        limits = LogReadLimits(is_committed=False, bytes_max=_BYTES_MAX, accepted_encodings=_EVERY_ENCODING)
        self._parts.log.read([span], limits).on_settled(partial(self._have_read, step))

    def _have_read(self, step: _LetterStep, read: Pending[list[LogBatches]]) -> None:
        if self._has_failed(step, read):
            return
        (found,) = read.result()
        if found.error is not None and found.error.code is not ErrorCode.CORRUPT_MESSAGE:
            self._pause(step.key, found.error)
            return
        if found.error is not None and not found.batches:
            # Others may still be readable, so only the first one goes without its content.
            self._place(step, step.due[:1], {})
            return
        due = [each for each in step.due if each.offset < found.next_offset]
        if not due:
            # The log start is about to pass them.
            self._pause(step.key)
            return
        offsets = [each.offset for each in due]
        parts = [
            self._letters.records_at(
                batch, [at for at in offsets if batch[0].base_offset <= at <= batch[0].last_offset]
            )
            for batch in found.batches
            if not batch[0].is_control and any(batch[0].base_offset <= at <= batch[0].last_offset for at in offsets)
        ]
        all_of(parts).on_settled(partial(self._have_records, step, due))

    def _have_records(
        self, step: _LetterStep, due: Sequence[DueLetter], found: Pending[list[Mapping[int, PlacedRecord]]]
    ) -> None:
        if not self._has_failed(step, found):
            records = {offset: record for each in found.result() for offset, record in each.items()}
            self._place(step, due, records)

    # Writing

    def _place(self, step: _LetterStep, due: Sequence[DueLetter], records: Mapping[int, PlacedRecord]) -> None:
        """Write the letters of these records, as many as fit into one batch."""
        now_ms = self._runtime.clock.wall_ms()
        make = partial(letter, ref=step.ref, group_id=step.key.group_id, now_ms=now_ms)
        letters = [make(each, record=records.get(each.offset), missing=_MISSING) for each in due]
        try:
            placed = self._letters.place(step.topic, step.ref.partition, letters, now_ms)
            if not placed.taken:
                bare = [make(due[0], record=None, missing=_TOO_LARGE)]
                due, records = due[:1], {}
                placed = self._letters.place(step.topic, step.ref.partition, bare, now_ms)
        except Refused as refusal:
            self._pause(step.key, refusal)
            return
        if not placed.taken:
            self._pause(step.key, Refused(ErrorCode.MESSAGE_TOO_LARGE, "not even the headers of a letter fit"))
            return
        ends = [
            (each.offset, LetterEnd.WRITTEN if each.offset in records else LetterEnd.BARE)
            for each in due[: placed.taken]
        ]
        self._end_letters(step, ends, placed.append)

    def _archive(self, step: _LetterStep, end: LetterEnd) -> None:
        self._end_letters(step, [(each.offset, end) for each in step.due], None)

    def _end_letters(self, step: _LetterStep, ends: Sequence[tuple[int, LetterEnd]], append: Operation | None) -> None:
        decide = partial(decide_end_letters, key=step.key, state_epoch=step.state_epoch, ends=ends, append=append)
        self._write(step, decide)

    def _write(self, step: _LetterStep, decide: Callable[..., Any]) -> None:
        number = self._parts.homes.shard_number(step.key.ordinal)
        if number is None:
            self._end(step.key)
            return
        written: Pending[Any] = self._runtime.write(Operation(share_shard(number), decide))
        written.on_settled(partial(self._written, step))

    # The end of a step

    def _written(self, step: _LetterStep, written: Pending[Any]) -> None:
        if not self._has_failed(step, written):
            self._look_again(step)

    def _look_again(self, step: _LetterStep) -> None:
        self._waiting[step.key] = None
        self._end(step.key)

    def _end(self, key: ShareKey) -> None:
        self._busy.discard(key)
        self._go_on()

    def _has_failed(self, step: _LetterStep, done: Pending[Any]) -> bool:
        """Return True if a part of a step failed. The letters are tried again, unless that is a defect."""
        error = done.error
        if error is None:
            return False
        if isinstance(error, Refused) and error.code in _CHANGED:
            self._look_again(step)
        elif isinstance(error, Refused | WorkerLost):
            self._pause(step.key, error)
        elif isinstance(error, CoordinatorError):
            # The store has failed, and the server ends. So nothing else is read for a letter.
            self._busy.discard(step.key)
        else:
            self._end(step.key)
            self._runtime.on_defect(error)
        return True

    def _pause(self, key: ShareKey, why: Exception | None = None) -> None:
        """Try again after some time. Report it if there is a reason that lasts."""
        self._paused.add(key)
        self._waiting.pop(key, None)
        self._runtime.arm(("share_letters", *key), RETRY_MS, partial(self._try_again, key))
        if why is not None:
            self._report(key, str(why))
        self._end(key)

    def _try_again(self, key: ShareKey) -> None:
        self._paused.discard(key)
        self._waiting[key] = None
        self._go_on()

    def _report(self, key: ShareKey, why: str) -> None:
        number = self._parts.homes.shard_number(key.ordinal)
        shard: ShareShard | None = None if number is None else self._runtime.table.find(share_shard(number))
        partition = None if shard is None else shard.find(key)
        if shard is None or partition is None or not partition.letters_due:
            return
        try:
            topic = self._parts.members.settings(key.group_id).dead_letter_topic
        except Refused:
            topic = ""
        delayed = LettersDelayed(key.group_id, key.ordinal, topic, partition.letters_due, why)
        self._runtime.write(Operation(shard.key, partial(decide_delay_letters, delayed=delayed)))
