"""Reads of fetches on threads, apart from the loop: for engines whose reads may wait.

A thread takes steps, one for each partition, under the views that the loop has chosen. The loop then notes the errors
that they met, and drops reads of records that were removed meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from coordinator_protocol.errors import Refused
from coordinator_runtime.pending import Pending
from coordinator_runtime.runtime import Runtime
from coordinator_runtime.store import StoreReads, StoreUnreadable
from coordinator_runtime.store_readers import StoreReader
from partition_log.batches import LogDamaged
from partition_log.damage_watch import DamageWatch
from partition_log.fetch_progress import FetchPosition
from partition_log.reading import ReadBudget
from partition_log.rules.compacting import is_as_taken
from partition_log.shard import LogShard
from partition_log.state import PartitionHead


@dataclass(frozen=True, slots=True)
class ReadStep:
    """One partition that a thread reads for a fetch."""

    position: FetchPosition
    head: PartitionHead
    """The view to read under."""


def take_steps(
    reader: StoreReader, steps: Sequence[ReadStep], budget: ReadBudget
) -> Pending[Sequence[Exception | None]]:
    """Read on in each partition, on a thread. The reply has the error that each step met, or None."""
    return reader.read(partial(_advance_all, steps, budget))


def note_steps(
    steps: Sequence[ReadStep], errors: Sequence[Exception | None], runtime: Runtime, damage: DamageWatch
) -> bool:
    """Note the errors that steps met. Return True if a read was dropped, because rows of it may be missing.

    Raises an error again that is not of one partition alone."""
    is_dropped = False
    for step, error in zip(steps, errors, strict=True):
        if _was_removed(step, runtime):
            step.position.begin_again()
            is_dropped = True
        elif error is not None:
            step.position.failed(error, damage)
    return is_dropped


def _advance_all(steps: Sequence[ReadStep], budget: ReadBudget, rows: StoreReads) -> Sequence[Exception | None]:
    """Read on in each partition, on a thread. Returns the error that each met."""
    errors: list[Exception | None] = []
    for step in steps:
        read = step.position.read
        read.use(rows)
        try:
            read.advance(step.head, budget)
            step.position.aborted = read.aborted_transactions(step.head)
        except (Refused, LogDamaged, StoreUnreadable) as error:
            errors.append(error)
        else:
            errors.append(None)
    return errors


def _was_removed(step: ReadStep, runtime: Runtime) -> bool:
    """True if the step may have missed records. They are being removed, or were compacted since their snapshot was
    taken."""
    placed = step.position.placed
    shard: LogShard | None = runtime.table.find(placed.shard)
    head = None if shard is None else shard.durable_head(placed.ref.ordinal)
    if shard is None or head is None or not shard.is_readable(placed.ref.ordinal):
        return True
    read, shown = step.position.read, step.position.item.shown
    is_complete = is_as_taken(shard.compaction_to_be(placed.ref.ordinal), shown, read.fetch_offset)
    return head.log_start_offset > read.fetch_offset or not is_complete
