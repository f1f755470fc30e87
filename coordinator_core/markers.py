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

    def partition_seal(self, ordinal: int, producer_id: int, producer_epoch: int) -> Operation:
        return self._partitions.partition_seal(ordinal, producer_id, producer_epoch)

    def group_marker(self, group: str, marker: Marker) -> Operation:
        return self._groups.group_marker(group, marker)
