"""Share groups (KIP-932): their members, and the partitions that have a state."""
