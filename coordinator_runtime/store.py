"""The store port: one ordered, atomic, crash-safe place for all state of the server.

The runtime stages mutations. A commit group carries those of one or more operations and is atomic: after any crash
either all of it is there or none. `write` hands groups to the operating system, `sync` makes them durable. They are
separate (spec log-and-runtime, D2 and 5.4). The write is short and must keep order; the sync is slow and must not hold
the interpreter.

Implementations: `coordinator_runtime.rocks.RocksStore`, and the memory store of the tests, which loses undurable writes
in a crash. One behaviour suite runs on both.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

from coordinator_runtime.incarnation import Incarnation


class Family(IntEnum):
    """The column families, with the keys of their rows (spec log-and-runtime 5.1). docs/store-format.md has the values.
    All integers in keys are unsigned big-endian, so that byte order is numeric order."""

    META = 0
    """(name) -> properties of the store itself: format version, shard count, group version, writer, and the segments
    with large batches of each partition (`coordinator_runtime.own_rows`)."""
    LOG = 1
    """(ordinal u32, last offset u64) -> 64-byte batch header and payload, and perhaps a marker's tail. The LAST offset
    is in the key, so that one forward seek to an offset lands on the row that holds it. A value never begins with 0xFF,
    so that a store may mark values that it keeps elsewhere."""
    STRETCHES = 2
    """(ordinal u32, last offset u64) -> a finished index entry of the log: first offset, largest timestamp up to its
    end, and its end time. Also the totals before its end: bytes, records, markers, aborted transactions."""
    PRODUCERS = 3
    """(ordinal u32, kind u8 = 0, producer id u64) -> producer entry with its last five batches;
    (ordinal u32, kind u8 = 1, coordinator shard u16, csn u64, producer id u64) -> first offset of the last transaction
    of a forgotten producer."""
    ABORTED = 4
    """(ordinal u32, offset u64, producer id u64) -> an aborted transaction. It lies under the offset of its marker and
    under each multiple of 65,536 that it spans, so that one scan finds all that concern a reader
    (`partition_log.aborted`). A committed transaction has no row."""
    PARTITIONS = 5
    """(ordinal u32, kind u8 = 0) -> log start, log end, and the totals in between;
    (ordinal u32, kind u8 = 1, leader epoch u32) -> first offset of the epoch;
    (ordinal u32, kind u8 = 2, coordinator shard u16) -> the newest csn of forgotten producers;
    (ordinal u32, kind u8 = 3) -> how far the log is compacted."""
    COORDINATOR_STATE = 6
    """(coordinator u8, shard u16, type u8, key) -> newest value: the compacted log, which alone rebuilds a shard."""
    HISTORY = 7
    """(coordinator u8, shard u16, number of the first step u64) -> the steps of one commit group (`rows`)."""


Mutation = tuple[Family, bytes, bytes | None]
"""Put (value) or delete (None) of one key."""

KeyRange = tuple[Family, bytes, bytes]
"""A half-open range of keys, [start, end)."""


@dataclass(frozen=True, slots=True)
class CommitGroup:
    """Rows that become durable together. `version` grows by one with every group. The store itself stores it in the
    same batch, so that `Store.version` returns it after a restart."""

    version: int
    mutations: Sequence[Mutation]
    deleted_ranges: Sequence[KeyRange] = ()
    """Ranges deleted after the mutations of the same group were applied. They are *retired*: no later group puts a row
    into one, because offsets, ordinals and numbers of steps only grow. So an engine may skip a range without reading
    the rows in it. It need not know which of them are older than the deletion."""
    size_bytes: int = 0
    """Bytes of keys and values together. Groups are merged into one batch up to `commit_groups.BATCH_BYTES_MAX`."""


class StoreFailed(Exception):
    """The store could not write or sync. The outcome of the last groups is unknown, and the process must end.

    Never caught to go on: a restart recovers (design 5, fail-stop)."""


class StoreFenced(StoreFailed):
    """Another process has opened the store for writing, and this one can write no more.

    Nothing that was acknowledged is lost: the other process has recovered it. A restart would take the store back from
    that process, so a service manager must not restart this one by itself."""


class StoreUnreadable(Exception):
    """A read failed. The stored data may be intact (for example, the process is out of file handles). Only the reader
    is refused; the store serves all others."""


class StoreDamaged(StoreUnreadable):
    """Stored bytes are not those that were written. Found by reading them, and limited to them: everything else can be
    read, and the store can be written (design 5)."""

    def __init__(self, family: Family, reason: str, key: bytes | None = None) -> None:
        """`key`: key of the damaged row, if the store knows it; None if a block of several rows is damaged."""
        super().__init__(reason)
        self.family = family
        self.key = key


class StoreRefused(Exception):
    """The directory cannot be opened as it is, and no stored data has changed.

    It is in use, made by a newer version or with another shard count, lacks durable data, cannot be read or written, or
    is on a full disk. The message says which, and what to do."""


class StoreReads(Protocol):
    """Ordered families of bytes, to be read. Every read raises StoreDamaged or StoreUnreadable, a scan at the row where
    that happens."""

    @property
    def incarnation(self) -> Incarnation:
        """The incarnation of the store; constant from its opening to its closing.

        `coordinator_runtime.incarnation` has the rules: `FIRST` until the store goes on with less than was durable. It
        then stores `next_incarnation` before anything else."""

    def version(self) -> int:
        """Return the version of the newest written group; 0 for a new store."""

    def get(self, family: Family, key: bytes) -> bytes | None: ...

    def scan(self, family: Family, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield the keys in [start, end) and their values in ascending order, as of the moment of the call.

        Close the iterator or exhaust it."""

    def scan_headers(self, family: Family, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield the rows of `scan`, with large rows of LOG cut as by `coordinator_protocol.batch.cut_row`.

        The payload of a cut row is not read, so damage in it is not found. The store decides which rows are large."""

    def scan_backwards(self, family: Family, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield the keys in [start, end) and their values in descending order. Reads the newest rows of a history
        without its beginning."""

    def scan_unverified(self, family: Family, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield the rows of `scan`, and those of blocks that fail their checksum, whose keys and values may be
        anything.

        For callers that find the intact rows by checksums of their own."""

    def last(self, family: Family, prefix: bytes) -> tuple[bytes, bytes] | None:
        """Return the greatest key that starts with the prefix, and its value; or None."""

    def last_key(self, family: Family, prefix: bytes) -> bytes | None:
        """Return the greatest key that starts with the prefix, or None. No value is read, wherever it is stored."""

    def close(self) -> None:
        """Sync and release the directory. Idempotent."""


class Store(StoreReads, Protocol):
    """Ordered families of bytes. Used by two threads: `write` and `sync` by the commit thread only, the others by the
    loop thread. After a failed write or sync, every read raises StoreFailed."""

    def write(self, groups: Sequence[CommitGroup]) -> None:
        """Apply the groups in their order, atomically as one batch, without waiting for the disk.

        Visible to reads on return; lost by a power cut until `sync` returns. Raises StoreFailed."""

    def sync(self) -> None:
        """Return once everything written before the call is on disk. Raises StoreFailed."""
