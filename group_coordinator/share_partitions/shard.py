"""One shard of share partitions: lookup, and changes by records. The decisions on it are in `decisions`.

The shard has the number of a log shard, and holds the state of every group in the partitions of that one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from coordinator_runtime.decision import Decision, ShardKey, Turn
from coordinator_runtime.ports import OpenInPartition
from coordinator_runtime.timeline import Journal, TimelineMap
from group_coordinator.shard import Tally
from group_coordinator.share_partitions.events import LettersDue
from group_coordinator.share_partitions.records import (
    ShareKey,
    SharePartitionChanged,
    SharePartitionForgotten,
    ShareRecord,
)
from group_coordinator.share_partitions.state import (
    AcknowledgingTransaction,
    DurableForm,
    SharePartition,
    pending_runs,
)

_MAPS_KEPT: Final = 8
"""Number of maps below which a search for empty ones is not worth it."""
_PARTITIONS: Final = "partitions"
_HELD: Final = "held"
_PENDING: Final = "pending"
_LETTERS: Final = "letters"
"""Keys of the tally."""


class ShareCounts(NamedTuple):
    """Numbers of what a shard holds on disk, for the metrics."""

    partitions: int
    """Share partitions."""
    held_records: int
    """Records that members hold."""
    pending_records: int
    """Records that open transactions have acknowledged."""
    due_letters: int
    """Records whose letters are to be written."""


class ShareShard:
    """State of one shard of share partitions; see the module."""

    def __init__(self, key: ShardKey, journal: Journal) -> None:
        self.key = key
        self._journal = journal
        self._groups: dict[str, TimelineMap[int, SharePartition]] = {}
        """Share partitions by group and ordinal, so that the end of a membership looks at those of its group alone. An
        empty map is dropped some time later."""
        self._groups_max = _MAPS_KEPT
        self._tally: Tally[str] = Tally(journal)

    # Reading

    def find(self, key: ShareKey) -> SharePartition | None:
        """Return a share partition, live; None if it does not exist."""
        partitions = self._groups.get(key.group_id)
        return None if partitions is None else partitions.get(key.ordinal)

    def durable(self, key: ShareKey) -> SharePartition | None:
        """Return a share partition as it is on disk; None if it does not exist there. What members hold counts as on
        disk, once everything is that was decided before."""
        partitions = self._groups.get(key.group_id)
        return None if partitions is None else partitions.durable(key.ordinal)

    def of_group(self, group_id: str) -> list[tuple[ShareKey, SharePartition]]:
        """Return the share partitions of a group in this shard, live."""
        partitions = self._groups.get(group_id)
        if partitions is None:
            return []
        return [(ShareKey(group_id, ordinal), partition) for ordinal, partition in partitions.items()]

    def of_ordinal(self, ordinal: int) -> list[ShareKey]:
        """Return the names of all groups' share partitions of a partition, live."""
        return [ShareKey(group_id, ordinal) for group_id, found in self._groups.items() if ordinal in found]

    def all_pending(self) -> list[OpenInPartition]:
        """Return the transactions that have acknowledged records in this shard, live: each once in each share
        partition."""
        if not self._tally.live(_PENDING):
            return []
        return [
            found
            for group_id, partitions in self._groups.items()
            for ordinal, partition in partitions.items()
            if partition.pending
            for found in _pending_in(ShareKey(group_id, ordinal), partition)
        ]

    def counts(self) -> ShareCounts:
        """Return the numbers for the metrics. They are counted in replay, so no share partition is looked at."""
        numbers = self._tally.durable()
        return ShareCounts(*(numbers.get(name, 0) for name in (_PARTITIONS, _HELD, _PENDING, _LETTERS)))

    def durable_state(self) -> dict[ShareKey, DurableForm]:
        """Return everything that a restart brings back, in a form that can be compared."""
        return {key: partition.durable_form for key, partition in self._durable()}

    def _durable(self) -> Iterator[tuple[ShareKey, SharePartition]]:
        for group_id, partitions in self._groups.items():
            for ordinal, partition in partitions.durable_items():
                yield ShareKey(group_id, ordinal), partition

    # Changing

    def replay(self, value: ShareRecord) -> None:
        match value:
            case SharePartitionChanged(key, partition):
                before = self.find(key)
                self._of(key.group_id).put(key.ordinal, partition)
                self._count(before, partition)
            case SharePartitionForgotten(key):
                before = self.find(key)
                self._of(key.group_id).remove(key.ordinal)
                self._count(before, None)

    def on_loaded(self, _turn: Turn) -> Decision:
        """Go on with the letters that are to be written. No record is held after a load, so no lock can expire."""
        if not self._tally.live(_LETTERS):
            return Decision()
        due = [
            LettersDue(group_id, ordinal)
            for group_id, partitions in self._groups.items()
            for ordinal, partition in partitions.items()
            if partition.letters_due
        ]
        return Decision(effects=tuple(due))

    def _count(self, before: SharePartition | None, after: SharePartition | None) -> None:
        existed, exists = before is not None, after is not None
        if existed != exists:
            self._tally.add(_PARTITIONS, 1 if exists else -1)
        held = (after.held_count if after else 0) - (before.held_count if before else 0)
        if held:
            self._tally.add(_HELD, held)
        pending = (after.pending_count if after else 0) - (before.pending_count if before else 0)
        if pending:
            self._tally.add(_PENDING, pending)
        letters = (after.letters_due if after else 0) - (before.letters_due if before else 0)
        if letters:
            self._tally.add(_LETTERS, letters)

    def _of(self, group_id: str) -> TimelineMap[int, SharePartition]:
        partitions = self._groups.get(group_id)
        if partitions is None:
            if len(self._groups) >= self._groups_max:
                self._prune()
            partitions = self._groups[group_id] = TimelineMap(self._journal)
        return partitions

    def _prune(self) -> None:
        """Drop the maps of groups that have no share partition any more."""
        for group_id in [group_id for group_id, found in self._groups.items() if found.is_gone]:
            del self._groups[group_id]
        self._groups_max = max(_MAPS_KEPT, 2 * len(self._groups))


def _pending_in(key: ShareKey, partition: SharePartition) -> list[OpenInPartition]:
    offsets: dict[AcknowledgingTransaction, int] = {}
    for first_offset, number in pending_runs(partition):
        offsets.setdefault(partition.pending[number].transaction, first_offset)
    return [
        OpenInPartition(
            ordinal=key.ordinal,
            producer_id=each.producer_id,
            producer_epoch=each.producer_epoch,
            coordinator_epoch=-1,
            coordinator_shard=each.after.coordinator_shard,
            first_offset=first_offset,
            started_ms=0,
            group_id=key.group_id,
        )
        for each, first_offset in offsets.items()
    ]
