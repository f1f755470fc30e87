"""The store port: one ordered, atomic, crash-safe place for everything the server knows.

The runtime stages mutations; a commit group carries those of one or more operations and is atomic: after any crash
either all of it is there or none. `write` hands groups to the operating system, `sync` makes them durable. The split
exists because the write is short and must keep order, while the sync is slow and must not hold the interpreter
(spec log-and-runtime, D2 and 5.4).

Implementations: `coordinator_runtime.rocks.RocksStore`, and the crash-losing memory store of the tests. One behaviour
suite runs on both.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

from coordinator_runtime.incarnation import Incarnation


class Family(IntEnum):
    """The column families, with the keys of their rows; docs/store-format.md has the values (spec log-and-runtime 5.1).
    All integers in keys are unsigned big-endian, so that byte order is numeric order."""

    META = 0
    """(name) -> what the store itself is: format version, shard count, group version, writer, and which partitions have
    large batches in which segments (`coordinator_runtime.rocks.own_rows`)."""
    LOG = 1
    """(ordinal u32, last offset u64) -> 64-byte batch header and payload, and perhaps a marker's tail. The
    LAST offset is in the key, so that one forward seek to an offset lands on the row that holds it. A value never
    begins with 0xFF, so that a store may mark what it keeps elsewhere."""
    STRETCHES = 2
    """(ordinal u32, last offset u64) -> a finished stretch of the log: first offset, largest timestamp up to its end,
    when it ended, and what lies before its end: bytes, records, markers, aborted transactions."""
    PRODUCERS = 3
    """(ordinal u32, kind u8 = 0, producer id u64) -> producer entry with its last five batches;
    (ordinal u32, kind u8 = 1, coordinator shard u16, csn u64, producer id u64) -> where the last transaction of a
    producer that was forgotten begins."""
    ABORTED = 4
    """(ordinal u32, offset u64, producer id u64) -> an aborted transaction, under the offset of its marker and under
    each multiple of 65,536 that it lies across, so that one scan finds all that concern a reader
    (`partition_log.aborted`). A committed one has no row."""
    PARTITIONS = 5
    """(ordinal u32, kind u8 = 0) -> log start, log end and all that lies between them, counted;
    (ordinal u32, kind u8 = 1, leader epoch u32) -> where the epoch began;
    (ordinal u32, kind u8 = 2, coordinator shard u16) -> the newest csn of the producers that were forgotten."""
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
    """What becomes durable together. `version` grows by one with every group and is stored with it."""

    version: int
    mutations: Sequence[Mutation]
    deleted_ranges: Sequence[KeyRange] = ()
    """Deleted after the mutations of the same group were applied."""
    size_bytes: int = 0
    """Keys and values together; what the 1 MiB batch limit counts."""


class StoreFailed(Exception):
    """The store could not write or sync: what was handed over last has an unknown outcome and the process must end.

    Never caught to go on: restart recovers (design 5, fail-stop)."""


class StoreUnreadable(Exception):
    """A read failed, and nothing else: what is stored may be whole (the process is out of file handles, say). Whoever
    asked is refused; the store serves everybody else."""


class StoreDamaged(StoreUnreadable):
    """Stored bytes are not what was written. Of these bytes alone, and found by reading them: everything else can be
    read, and the store can be written (design 5)."""

    def __init__(self, family: Family, reason: str, key: bytes | None = None) -> None:
        """`key`: of the damaged row, where the store knows it; None where a block of several rows is damaged."""
        super().__init__(reason)
        self.family = family
        self.key = key


class StoreRefused(Exception):
    """The directory cannot be opened as it is: in use, made by a newer version, made with another shard count, with
    durable data missing, not to be read or written, on a full disk. The message says which, and what to do. Nothing
    that was stored has changed."""


class Store(Protocol):
    """Ordered families of bytes. Methods may be called from two threads: `write` and `sync` from the commit thread
    only, the others from the loop thread.

    Every read raises StoreDamaged or StoreUnreadable, a scan at the row where that happens, and StoreFailed once a
    write or a sync has failed."""

    @property
    def incarnation(self) -> Incarnation:
        """Which line of its history the store is in; the same from its opening to its closing."""

    def write(self, groups: Sequence[CommitGroup]) -> None:
        """Apply the groups in their order, atomically as one batch, without waiting for the disk.

        Visible to reads on return; lost by a power cut until `sync` returns. Raises StoreFailed."""

    def sync(self) -> None:
        """Return once everything written before the call is on disk. Raises StoreFailed."""

    def version(self) -> int:
        """The version of the newest group that was written, 0 for a new store."""

    def get(self, family: Family, key: bytes) -> bytes | None: ...

    def scan(self, family: Family, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Keys in [start, end) in ascending order, as of the moment of the call. Close the iterator or exhaust it."""

    def scan_headers(self, family: Family, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """The rows of `scan`, where a large row of LOG is cut to what `coordinator_protocol.batch.cut_row` leaves of
        it: its payload is not read, and damage there not met. How large a row must be for that, the store decides."""

    def scan_backwards(self, family: Family, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Keys in [start, end) in descending order: the newest rows of a history without its beginning."""

    def scan_unverified(self, family: Family, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """The rows of `scan` and those of blocks that fail their checksum: keys and values may be anything. For callers
        that can tell by checksums of their own which rows are whole."""

    def last(self, family: Family, prefix: bytes) -> tuple[bytes, bytes] | None:
        """The greatest key that starts with the prefix, and its value; or None."""

    def last_key(self, family: Family, prefix: bytes) -> bytes | None:
        """The greatest key that starts with the prefix, or None. No value is read, wherever it lies."""

    def close(self) -> None:
        """Sync and release the directory. Idempotent."""
