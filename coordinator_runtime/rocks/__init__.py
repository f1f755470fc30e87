"""The embedded store on RocksDB: the only package that knows rocksdict.

Families are column families. Every group of a `write` goes into one WriteBatch over all of them, so a crash keeps all
of a group or nothing. Groups are written unsynced, which takes microseconds but holds the interpreter. They are made
durable with `flush_wal(True)`, which waits for the disk without the interpreter (spec log-and-runtime D2, 5.4).

`opening.py` inspects a directory and decides whether it may be opened, `database.py` opens RocksDB, `reads.py` reads
and `store.py` writes. `files.py` looks at RocksDB's own files, and keeps compaction away from damage.

rocksdict 0.3.29 has traps (spec log-and-runtime 5.3); `tests/store/test_rocksdict_defects.py` fails once one changes:

- The upper bound of an iterator is not copied: the bound and its ReadOptions must outlive the iterator.
- The lower bound sets the upper one. We seek instead.
- Iterators of a Snapshot do not see the snapshot. A plain iterator has one of its own, taken when it is made.
- `items()` ends silently at a damaged block. Only `iter()` with `status()` at the end reports it.
- A WriteBatch is used up by a failed write as well, so that a retry builds it again.
- Every open must have the option of `tracked_wals/`, or the process may end by a signal (`database.py`).
- The lock of the directory is not released while any iterator, family or handle is alive.
"""

from coordinator_runtime.own_rows import FORMAT_VERSION as FORMAT_VERSION
from coordinator_runtime.rocks.database import StoreOptions as StoreOptions
from coordinator_runtime.rocks.opening import open_read_only as open_read_only
from coordinator_runtime.rocks.opening import open_store as open_store
from coordinator_runtime.rocks.store import ReadOnlyStore as ReadOnlyStore
from coordinator_runtime.rocks.store import RocksStore as RocksStore
