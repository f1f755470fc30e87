"""Foundation of both coordinators and the partition log: shards, group commit, timers, parking, the store."""
