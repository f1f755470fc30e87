"""What both coordinators and the partition log stand on: shards, group commit, timers, parking, the store."""
