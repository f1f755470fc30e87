"""Offsets of the groups of one shard: replay of their records, and queries.

Every group has its own map of committed offsets, and one of pending offsets for each producer with a transaction. So a
commit, a marker and the deletion of a group each touch only their own maps. An empty map is dropped some time later.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from coordinator_runtime.timeline import Journal, TimelineMap
from group_coordinator.classic.state import ClassicGroup
from group_coordinator.committed.state import (
    CommittingProducer,
    GroupAdministered,
    Offset,
    OffsetCommitted,
    OffsetForgotten,
    PendingCommit,
    PendingOffsetForgotten,
    PendingOffsetHeld,
)
from group_coordinator.shard import GroupShard, Tally
from group_coordinator.state import Group, PartitionKey

_HELD: Final = "held"
_PENDING: Final = "pending"
"""Keys of the tally."""

_MAPS_KEPT: Final = 8
"""Number of maps below which a search for empty ones is not worth it."""


class OffsetCounts(NamedTuple):
    """Numbers of offsets that a shard holds on disk."""

    offsets: int
    """Committed or pending, each partition of a group once."""
    pending_offsets: int
    open_transactions: int
    """Pairs of a group and a producer with pending offsets in it."""


class OffsetTable:
    """Offsets of one group."""

    __slots__ = ("_journal", "_producers_max", "committed", "pending")

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.committed: TimelineMap[PartitionKey, Offset] = TimelineMap(journal)
        self.pending: dict[CommittingProducer, TimelineMap[PartitionKey, PendingCommit]] = {}
        """Pending offsets, by producer."""
        self._producers_max = _MAPS_KEPT

    # Reading, live

    @property
    def is_empty(self) -> bool:
        """True if the group has no offsets, committed or pending."""
        return not self.committed and not self.has_pending

    @property
    def has_pending(self) -> bool:
        """True if a transaction holds offsets of the group."""
        return any(self.pending.values())

    @property
    def has_durable(self) -> bool:
        """True if an offset is on disk."""
        return _is_durable(self.committed) or any(map(_is_durable, self.pending.values()))

    @property
    def is_gone(self) -> bool:
        """True if the table is empty and no rollback can change that: it may be dropped."""
        return self.committed.is_gone and all(pending.is_gone for pending in self.pending.values())

    def holds(self, partition: PartitionKey) -> bool:
        """Return True for a partition with a committed or a pending offset."""
        if self.committed.get(partition) is not None:
            return True
        return any(pending.get(partition) is not None for pending in self.pending.values())

    def pending_of(self, producer: CommittingProducer) -> list[tuple[PartitionKey, PendingCommit]]:
        """Return the pending offsets of a producer's transaction."""
        pending = self.pending.get(producer)
        return [] if pending is None else list(pending.items())

    def blocking(self, partition: PartitionKey) -> list[tuple[CommittingProducer, PendingCommit]]:
        """Return the pending offsets of a partition, each with its producer, the oldest first.

        The order is that of the stored positions. So it is the same after a restart, which reads the rows back by
        producer id.
        """
        held = [
            (producer, found)
            for producer, pending in self.pending.items()
            if (found := pending.get(partition)) is not None
        ]
        return sorted(held, key=lambda each: each[1].offset.position)

    def unstable(self) -> set[PartitionKey]:
        """Return the partitions with pending offsets."""
        return set().union(*(pending.keys() for pending in self.pending.values()))

    def partitions(self) -> set[PartitionKey]:
        """Return the partitions with a committed or a pending offset."""
        return self.unstable() | self.committed.keys()

    def durable_pending(self) -> list[tuple[CommittingProducer, PartitionKey, PendingCommit]]:
        """Return all pending offsets, as they are on disk."""
        return [
            (producer, partition, found)
            for producer, pending in self.pending.items()
            for partition, found in pending.durable_items()
        ]

    # Changing

    def hold(self, producer: CommittingProducer, partition: PartitionKey, offset: PendingCommit) -> bool:
        """Make an offset pending. Returns True if the producer had no pending offset in the partition until now."""
        pending = self.pending.get(producer)
        if pending is None:
            if len(self.pending) >= self._producers_max:
                self._prune()
            pending = self.pending[producer] = TimelineMap(self._journal)
        is_new = partition not in pending
        pending.put(partition, offset)
        return is_new

    def _prune(self) -> None:
        """Drop the maps of producers whose transactions are over."""
        for producer in [producer for producer, pending in self.pending.items() if pending.is_gone]:
            del self.pending[producer]
        self._producers_max = max(_MAPS_KEPT, 2 * len(self.pending))


class Offsets:
    """Offsets of all groups of a shard. Implements `group_coordinator.shard.PartState`."""

    def __init__(self, journal: Journal, *, on_turned: Callable[[str], None]) -> None:
        """`on_turned` is called with each group that may have got its first offset or lost its last one."""
        self._journal = journal
        self._on_turned = on_turned
        self._groups: dict[str, OffsetTable] = {}
        self._groups_max = _MAPS_KEPT
        self._nothing = OffsetTable(journal)
        self._last_position = 0
        """Greatest position ever replayed. Not rolled back with an operation: a gap is harmless."""
        self._tally: Tally[str] = Tally(journal)
        self._open_since_ms: TimelineMap[tuple[str, CommittingProducer], int] = TimelineMap(journal)
        """Wall time of the first pending offset, by group and producer."""

    # Reading

    @property
    def next_position(self) -> int:
        """Position of the next commit. It is greater than all stored positions, after a restart too."""
        return self._last_position + 1

    def take_position(self) -> None:
        """Use up the next position, so that no other commit gets it. An unused one leaves a harmless gap."""
        self._last_position += 1

    def of(self, group_id: str) -> OffsetTable:
        """Return the offsets of a group, for reading only; an empty table for a group without offsets."""
        return self._groups.get(group_id, self._nothing)

    def has(self, group_id: str) -> bool:
        """Return True for a group with offsets, committed or pending, in live state."""
        return not self.of(group_id).is_empty

    def group_ids(self) -> list[str]:
        """Return the groups with offsets, in live state."""
        return [group_id for group_id, offsets in self._groups.items() if not offsets.is_empty]

    def durable_group_ids(self) -> list[str]:
        """Return the groups with offsets on disk."""
        return [group_id for group_id, offsets in self._groups.items() if offsets.has_durable]

    def counts(self) -> OffsetCounts:
        """Return the numbers for the metrics. They are counted in replay, so no group is looked at."""
        numbers = self._tally.durable()
        return OffsetCounts(numbers.get(_HELD, 0), numbers.get(_PENDING, 0), len(self.durable_open_since_ms()))

    def durable_open_since_ms(self) -> list[int]:
        """Return the wall times at which open transactions began to hold offsets of a group."""
        return [since_ms for _key, since_ms in self._open_since_ms.durable_items()]

    def durable_state(self) -> dict[str, object]:
        """Return everything that is on disk, in a form that can be compared."""
        return {
            group_id: (dict(offsets.committed.durable_items()), sorted(offsets.durable_pending()))
            for group_id, offsets in self._groups.items()
            if offsets.has_durable
        }

    # Changing

    def replays(self) -> dict[type, Callable[[Any], None]]:
        """Return the functions that apply record values, by class."""
        return {
            OffsetCommitted: self._commit,
            OffsetForgotten: self._forget,
            PendingOffsetHeld: self._hold,
            PendingOffsetForgotten: self._forget_pending,
            GroupAdministered: _nothing_changes,
        }

    def _commit(self, record: OffsetCommitted) -> None:
        self._last_position = max(self._last_position, record.offset.position)
        offsets = self._groups.get(record.group_id) or self._new_group(record.group_id)
        was_held = offsets.holds(record.partition)
        offsets.committed.put(record.partition, record.offset)
        if not was_held:
            self._count(record.group_id, 1)

    def _forget(self, record: OffsetForgotten) -> None:
        offsets = self._groups.get(record.group_id) or self._new_group(record.group_id)
        was_held = offsets.holds(record.partition)
        offsets.committed.remove(record.partition)
        if was_held and not offsets.holds(record.partition):
            self._count(record.group_id, -1)

    def _hold(self, record: PendingOffsetHeld) -> None:
        self._last_position = max(self._last_position, record.pending.offset.position)
        offsets = self._groups.get(record.group_id) or self._new_group(record.group_id)
        key = (record.group_id, record.producer)
        was_held = offsets.holds(record.partition)
        if offsets.hold(record.producer, record.partition, record.pending):
            self._tally.add(_PENDING)
        if key not in self._open_since_ms:
            self._open_since_ms.put(key, record.pending.offset.commit_timestamp_ms)
        if not was_held:
            self._count(record.group_id, 1)

    def _forget_pending(self, record: PendingOffsetForgotten) -> None:
        offsets = self._groups.get(record.group_id) or self._new_group(record.group_id)
        pending = offsets.pending.get(record.producer)
        if pending is None or pending.get(record.partition) is None:
            return
        pending.remove(record.partition)
        self._tally.add(_PENDING, -1)
        if not offsets.pending_of(record.producer):
            self._open_since_ms.remove((record.group_id, record.producer))
        if not offsets.holds(record.partition):
            self._count(record.group_id, -1)

    def _count(self, group_id: str, change: int) -> None:
        """Count a partition of the group that got its first offset, or lost its last one."""
        self._tally.add(_HELD, change)
        self._on_turned(group_id)

    def _new_group(self, group_id: str) -> OffsetTable:
        if len(self._groups) >= self._groups_max:
            self._prune()
        offsets = self._groups[group_id] = OffsetTable(self._journal)
        return offsets

    def _prune(self) -> None:
        for group_id in [group_id for group_id, offsets in self._groups.items() if offsets.is_gone]:
            del self._groups[group_id]
        self._groups_max = max(_MAPS_KEPT, 2 * len(self._groups))


def simple_group(shard: GroupShard, group_id: str) -> Group | None:
    """Return a group that only has offsets, in live state. It has no entry among the groups, and appears as an Empty
    classic group (spec groups 4.2)."""
    return _simple_group(shard, group_id) if shard.part(Offsets).has(group_id) else None


def durable_simple_group(shard: GroupShard, group_id: str) -> Group | None:
    """Return a group that only has offsets, some of which are on disk."""
    return _simple_group(shard, group_id) if shard.part(Offsets).of(group_id).has_durable else None


def _simple_group(shard: GroupShard, group_id: str) -> Group:
    return ClassicGroup(shard=shard.key, group_id=group_id, state_timestamp_ms=0)


def _is_durable(offsets: TimelineMap[PartitionKey, Any]) -> bool:
    return next(offsets.durable_items(), None) is not None


def _nothing_changes(_record: GroupAdministered) -> None:
    """Apply a record that only the history uses."""
