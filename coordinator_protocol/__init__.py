"""Agreements of clients and server beyond protobuf: batches, markers, errors, methods, assignors, hashes.

Everything here is pure and needs neither a network nor the generated code, so that client, server and tests cannot
disagree. `errors` has one table: what each error code of each method means to its caller (retry, abort, fenced, ...).
`methods` has another: what each remote procedure costs, waits for and answers. `batch` is the 64-byte header with its
checksum, `marker` the control record that ends a transaction. `assignors` has the placement of partitions for group
leaders and the server alike, `snapshots` and `cuts` the arithmetic of views over several partitions.

Authors of clients need four more. `hashing` has murmur2, `checksum` and `batch` the bytes that a checksum covers.
`consumer_protocol` has the bytes of subscriptions and assignments.

Source: docs/spec/design.md 6, docs/spec/log-and-runtime.md 1.2, docs/spec/groups.md 5.
"""
