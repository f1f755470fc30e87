"""The engine on object storage: SlateDB in one bucket, for one writer at a time.

SlateDB keeps its write-ahead log, manifest and tables as objects. The object store replicates them, and conditional
writes fence. The process that opened the store last is its one writer, and the former one can make nothing durable any
more (`StoreFenced`). So the loss of a machine loses nothing that was acknowledged, and no second server ever writes
beside the first.

Families are one byte before the key. A commit group is one write, and `sync` is one flush of the log: one object. A
range delete is a row, because SlateDB has none; `retired.py` keeps those, and hides and removes the rows in them.

Of several servers with one store, the one that holds the lease opens it. `lease.py` has the rules, and
`lease_keeper.py` the thread that follows them. `standby.py` is what the owner knows of the server that waits.

`binding.py` alone imports SlateDB. `location.py` reads an address, `opening.py` opens, `reads.py` reads, `store.py`
writes. What the engine promises, and what not, is in docs/scale-out.md.
"""
