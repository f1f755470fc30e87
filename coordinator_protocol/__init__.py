"""Agreements of clients and server beyond protobuf: batches, markers, errors, methods, assignors, hashes.

Everything here is pure and needs neither a network nor the generated code, so that a client, the server, and a test say
the same. `errors` has one table: what each error code of each method means to its caller (retry, abort, fenced, ...).
`methods` has another: what each remote procedure costs, waits for and answers. `batch` is the 64-byte header with its
checksum, `marker` the control record that ends a transaction, `assignors` the placement of partitions for group leaders
and the server alike, `snapshots` and `cuts` the arithmetic of views over several partitions.

Source: design 6, spec log-and-runtime 1.2, spec groups 5.
"""
