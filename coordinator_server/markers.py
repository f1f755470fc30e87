"""Where the ends of transactions go: partitions to the log, groups to the group coordinator."""

from __future__ import annotations

from coordinator_protocol.marker import Marker
from coordinator_runtime.decision import Operation
from coordinator_runtime.ports import GroupParticipant
from partition_log.markers import PartitionMarkers


class LocalMarkers:
    """Implements `coordinator_runtime.ports.MarkerPort` for participants in this process."""

    def __init__(self, partitions: PartitionMarkers, groups: GroupParticipant) -> None:
        self._partitions = partitions
        self._groups = groups

    def partition_marker(self, ordinal: int, marker: Marker) -> Operation:
        return self._partitions.partition_marker(ordinal, marker)

    def group_marker(self, group: str, marker: Marker) -> Operation:
        return self._groups.group_marker(group, marker)


class NoGroups:
    """The group coordinator of a server without one: nothing here adds a group to a transaction."""

    def group_marker(self, group: str, marker: Marker) -> Operation:
        raise AssertionError(f"a transaction holds group {group!a}, and this server has no group coordinator")
