"""The offsets of the groups of one shard: what records make of them, and what can be asked.

Every group has its own map of committed offsets, and one of pending ones for each producer with a transaction, so a
commit, a marker and the deletion of a group each touch what concerns them and nothing else. A map is dropped some time
after nothing is in it any more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from coordinator_runtime.timeline import Journal, TimelineMap
from group_coordinator.committed.records import (
    GroupAdministered,
    OffsetCommitted,
    OffsetForgotten,
    OffsetPended,
    PendingForgotten,
)
from group_coordinator.committed.state import Offset, PendingOffset, Producer
from group_coordinator.state import PartitionKey

_MAPS_KEPT: Final = 8
"""Maps up to which it is not worth looking for those that nothing is in."""


class OffsetCounts(NamedTuple):
    """How much a shard holds, live."""

    offsets: int
    """Committed or pending, each partition of a group once."""
    pending_offsets: int
    open_transactions: int
    """Pairs of a group and a producer with pending offsets in it."""


class GroupOffsets:
    """The offsets of one group."""

    __slots__ = ("_journal", "_pending", "_producers_max", "committed")

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.committed: TimelineMap[PartitionKey, Offset] = TimelineMap(journal)
        self._pending: dict[Producer, TimelineMap[PartitionKey, PendingOffset]] = {}
        self._producers_max = _MAPS_KEPT

    # Reading, live

    @property
    def is_empty(self) -> bool:
        """Nothing is committed, and nothing waits."""
        return not self.committed and not self.has_pending

    @property
    def has_pending(self) -> bool:
        """Some transaction holds offsets of the group."""
        return any(self._pending.values())

    @property
    def has_durable(self) -> bool:
        """Something is on disk."""
        return _is_durable(self.committed) or any(map(_is_durable, self._pending.values()))

    @property
    def is_gone(self) -> bool:
        """Nothing is in it, nor can come back: it may be dropped."""
        return self.committed.is_gone and all(pending.is_gone for pending in self._pending.values())

    def waiting(self, producer: Producer) -> list[tuple[PartitionKey, PendingOffset]]:
        """What waits for the transaction of a producer."""
        pending = self._pending.get(producer)
        return [] if pending is None else list(pending.items())

    def blocking(self, partition: PartitionKey) -> list[tuple[Producer, PendingOffset]]:
        """What waits in a partition, by the producers that hold it."""
        return [
            (producer, found)
            for producer, pending in self._pending.items()
            if (found := pending.get(partition)) is not None
        ]

    def unstable(self) -> set[PartitionKey]:
        """The partitions in which something waits."""
        return set().union(*(pending.keys() for pending in self._pending.values()))

    def partitions(self) -> set[PartitionKey]:
        """The partitions with a committed or a pending offset."""
        return self.unstable() | self.committed.keys()

    def producers(self) -> list[Producer]:
        """Those whose transactions hold offsets of the group."""
        return [producer for producer, pending in self._pending.items() if pending]

    def durable_pending(self) -> list[tuple[Producer, PartitionKey, PendingOffset]]:
        """Everything that waits, as it is on disk."""
        return [
            (producer, partition, found)
            for producer, pending in self._pending.items()
            for partition, found in pending.durable_items()
        ]

    # Changing

    def pend(self, producer: Producer, partition: PartitionKey, offset: PendingOffset) -> None:
        pending = self._pending.get(producer)
        if pending is None:
            if len(self._pending) >= self._producers_max:
                self._prune()
            pending = self._pending[producer] = TimelineMap(self._journal)
        pending.put(partition, offset)

    def forget_pending(self, producer: Producer, partition: PartitionKey) -> None:
        pending = self._pending.get(producer)
        if pending is not None:
            pending.remove(partition)

    def _prune(self) -> None:
        """Drop the maps of producers whose transactions are over."""
        for producer in [producer for producer, pending in self._pending.items() if pending.is_gone]:
            del self._pending[producer]
        self._producers_max = max(_MAPS_KEPT, 2 * len(self._pending))


class Offsets:
    """The offsets of all groups of a shard."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._groups: dict[str, GroupOffsets] = {}
        self._groups_max = _MAPS_KEPT
        self._nothing = GroupOffsets(journal)
        self._last_position = 0
        """Greatest position ever replayed. Not taken back with an operation: a gap harms nobody."""

    # Reading

    @property
    def next_position(self) -> int:
        """Position of the next commit. Greater than all that are stored, after a restart too."""
        return self._last_position + 1

    def of(self, group_id: str) -> GroupOffsets:
        """The offsets of a group, to be read; an empty one for a group without offsets."""
        return self._groups.get(group_id, self._nothing)

    def has(self, group_id: str) -> bool:
        """True for a group with offsets, committed or pending, live."""
        return not self.of(group_id).is_empty

    def group_ids(self) -> list[str]:
        """Groups with offsets, live."""
        return [group_id for group_id, offsets in self._groups.items() if not offsets.is_empty]

    def durable_group_ids(self) -> list[str]:
        """Groups with offsets that are on disk."""
        return [group_id for group_id, offsets in self._groups.items() if offsets.has_durable]

    def counts(self) -> OffsetCounts:
        """For the metrics. Looks at every group."""
        offsets = pending_offsets = open_transactions = 0
        for group in self._groups.values():
            offsets += len(group.partitions())
            producers = group.producers()
            open_transactions += len(producers)
            pending_offsets += sum(len(group.waiting(producer)) for producer in producers)
        return OffsetCounts(offsets, pending_offsets, open_transactions)

    def durable_state(self) -> dict[str, object]:
        """Everything that is on disk, in a form that can be compared."""
        return {
            group_id: (dict(offsets.committed.durable_items()), sorted(offsets.durable_pending()))
            for group_id, offsets in self._groups.items()
            if offsets.has_durable
        }

    # Changing

    def replays(self) -> dict[type, Callable[[Any], None]]:
        """What each class of record value does."""
        return {
            OffsetCommitted: self._commit,
            OffsetForgotten: self._forget,
            OffsetPended: self._pend,
            PendingForgotten: self._forget_pending,
            GroupAdministered: _nothing_changes,
        }

    def _commit(self, record: OffsetCommitted) -> None:
        self._note_position(record.offset)
        self._group(record.group_id).committed.put(record.partition, record.offset)

    def _forget(self, record: OffsetForgotten) -> None:
        self._group(record.group_id).committed.remove(record.partition)

    def _pend(self, record: OffsetPended) -> None:
        self._note_position(record.pending.offset)
        self._group(record.group_id).pend(record.producer, record.partition, record.pending)

    def _forget_pending(self, record: PendingForgotten) -> None:
        self._group(record.group_id).forget_pending(record.producer, record.partition)

    def _group(self, group_id: str) -> GroupOffsets:
        offsets = self._groups.get(group_id)
        if offsets is None:
            if len(self._groups) >= self._groups_max:
                self._prune()
            offsets = self._groups[group_id] = GroupOffsets(self._journal)
        return offsets

    def _prune(self) -> None:
        for group_id in [group_id for group_id, offsets in self._groups.items() if offsets.is_gone]:
            del self._groups[group_id]
        self._groups_max = max(_MAPS_KEPT, 2 * len(self._groups))

    def _note_position(self, offset: Offset) -> None:
        if offset.position > self._last_position:
            self._last_position = offset.position


def _is_durable(offsets: TimelineMap[PartitionKey, Any]) -> bool:
    return next(offsets.durable_items(), None) is not None


def _nothing_changes(_record: GroupAdministered) -> None:
    """Told by the history alone."""
