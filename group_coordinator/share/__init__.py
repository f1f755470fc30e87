"""Share groups (KIP-932): their members. The states of their partitions are in `group_coordinator.share_partitions`."""
