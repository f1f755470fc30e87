"""Every decision about one partition, as a pure function of frozen values.

`appending` has the rules for a batch of a client, `marking` those for a marker. `removing` has those for what a
partition gives up: records, and producers. `indexing` keeps the index of the log, and `excluding` finds the
transactions that a snapshot hides. `compacting` finds out if it has all of its records. They do not know shards or
storage: `shard` and `partition_state` gather what they need and turn their results into records.
"""
