"""Where the ends of transactions go: partitions to the log, groups to the group coordinator."""

from __future__ import annotations

from coordinator_runtime.ports import GroupParticipant
from partition_log.markers import PartitionMarkers


class LocalMarkers:
    """Implements `coordinator_runtime.ports.MarkerPort` for participants in this process, whose functions it takes."""

    def __init__(self, partitions: PartitionMarkers, groups: GroupParticipant) -> None:
        self.partition_marker = partitions.partition_marker
        self.partition_seal = partitions.partition_seal
        self.group_marker = groups.group_marker
