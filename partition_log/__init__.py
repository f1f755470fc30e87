"""Topic partitions: idempotent and transactional append, markers, the last stable offset, fetch.

The batches of a partition lie in the store. Memory holds only the state that decides about the next append: a head with
all positions, the producers, and their open transactions. The last stable offset is the first offset of the oldest open
transaction. Committed readers get nothing from there on.

An append takes these steps:

1. `service` resolves names in the live catalog, and checks the payload (`batch_checks`), perhaps in another process.
2. `shard` asks the `rules`: append, refuse, or answer a repetition. A batch of a transaction is admitted by the shard
   of its transactional id, in the same operation.
3. `PartitionDraft` (`partition_state`) makes one record of everything that an operation appends to a partition.
   `replay` changes the head and the producers, and `codec` makes the stored rows.

The end of a transaction comes as a join of the transaction coordinator (`PartitionMarkers`). Reads look at durable
state only: `reading` reads the store under one durable head, and `fetch` waits until there is more.

The catalog of topics (`catalog`) is one shard, to which all others refer. It is loaded first. `retention` says where a
log should begin, `leases` what readers still hold, and `removal` deletes the rows before it. `compaction` leaves the
newest record of each key. Some kinds of rows have a module of their own, whose name ends in `_rows`.

Positions by time are found by `time_search`, and the newest record by `newest_search` (`positions`).

Reading order: `state`, `rules`, `partition_state`, `shard`, `records`, `codec`, `service`, `fetch`, `reading`,
`transacted` (whole transactions in one request), `catalog/shard`, `topics`, `stretches`, `removal`, `snapshots`.

Source: spec log-and-runtime 1 and 2.
"""
