"""Frees the disk space of deleted data, on a separate thread.

A range delete is a row like others: the deleted data stays on the disk until a compaction meets both. Compactions come
by themselves only while much is written. So the ranges are noted, and compacted when they may have deleted much, or
when a compaction takes little of the machine's time. Only data in the ranges, or in the same files, is rewritten, and
RocksDB runs its own compactions meanwhile. No other thread waits: rocksdict releases the interpreter for all of it.
Measured: 500 MiB of 560 come back in 0.5 s, in which commits take 27 ms at most.

Segment files are deleted here too: deleting 256 MiB takes a file system up to 70 ms.

After a crash, the rest is less urgent. Files that no row names are deleted at the next start. Ranges that were not
compacted wait for RocksDB, or for the next ranges beside them.

Source: spec log-and-runtime 5.1 and 5.4.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol

from coordinator_runtime.clock import Clock, SystemClock
from coordinator_runtime.store import Family, KeyRange

GROWN_BYTES_MIN: Final = 32 << 20
GROWN_PARTS: Final = 4
"""Divisor of the size of the sorted files after the last compaction. Once they have grown by that part of it, and by
GROWN_BYTES_MIN, they may hold much deleted data. Then the noted ranges are compacted at once."""
PAUSE_MS: Final = 10_000
PAUSE_FACTOR: Final = 50
"""Factor on the duration of the last compaction: the least pause before the next one, if little may have been
deleted."""


class ReclaimedStore(Protocol):
    """The work of the thread on a store."""

    def compact(self, family: Family, start: bytes, end: bytes) -> None:
        """Free the space of data deleted between two keys. Raises any error of a compaction."""

    def delete_segment(self, segment: int) -> None:
        """Delete the file of a segment. Raises OSError."""

    def sst_bytes(self) -> int:
        """Return the size of all sorted files."""


class Reclaimer:
    """Notes deletions, on the commit thread, and frees their space on a thread that it starts when there is work."""

    def __init__(self, store: ReclaimedStore, clock: Clock | None = None) -> None:
        self._store = store
        self._clock = clock if clock is not None else SystemClock()
        self._changed = threading.Condition()
        self._ranges: dict[tuple[Family, bytes], bytes] = {}
        """Ends of the deleted ranges, by family and beginning."""
        self._segments: list[int] = []
        self._is_closed = False
        self._thread: threading.Thread | None = None
        self._not_before_ms = 0
        self._base_bytes = 0
        """Size of the sorted files after the last compaction."""
        self.count = 0
        """Number of rounds of compaction since the store was opened."""
        self.failure: BaseException | None = None
        """Error of the last failed attempt."""
        self.is_compacting = False

    def note(self, ranges: Iterable[KeyRange], segments: Sequence[int] = ()) -> None:
        """Note durable deletions: ranges of rows, and segments that no row names."""
        with self._changed:
            for family, start, end in ranges:
                self._ranges[family, start] = max(end, self._ranges.get((family, start), b""))
            self._segments += segments
            if self._thread is None and not self._is_closed and (self._ranges or self._segments):
                self._not_before_ms = self._clock.monotonic_ms() + PAUSE_MS
                self._base_bytes = self._store.sst_bytes()
                self._thread = threading.Thread(target=self._run, name="reclaim", daemon=True)
                self._thread.start()
            self._changed.notify()

    def close(self, interrupt: Callable[[], None]) -> None:
        """Free no more space, and return once the thread has ended. `interrupt`: ends a compaction. Idempotent."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        if self.is_compacting:
            interrupt()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while (work := self._next()) is not None:
            segments, ranges = work
            try:
                for segment in segments:
                    self._store.delete_segment(segment)
                if ranges:
                    self._compact(ranges)
            except Exception as error:  # noqa: BLE001  no caller waits for this; writers meet any error of the disk
                self.failure = error

    def _next(self) -> tuple[list[int], list[KeyRange]] | None:
        """Wait for work and return it; None once closed and no segment is left."""
        with self._changed:
            while True:
                wait_ms = None if self._is_closed else self._until_due_ms()
                segments, self._segments = self._segments, []
                ranges: list[KeyRange] = []
                if wait_ms == 0:
                    ranges = [(family, start, end) for (family, start), end in self._ranges.items()]
                    self._ranges = {}
                if segments or ranges:
                    return segments, ranges
                if self._is_closed:
                    return None
                self._changed.wait(None if wait_ms is None else wait_ms / 1000)

    def _until_due_ms(self) -> int | None:
        """Return the time until the ranges are compacted; None if there are none."""
        if not self._ranges:
            return None
        if self._store.sst_bytes() - self._base_bytes >= max(GROWN_BYTES_MIN, self._base_bytes // GROWN_PARTS):
            return 0
        return max(0, self._not_before_ms - self._clock.monotonic_ms())

    def _compact(self, ranges: Iterable[KeyRange]) -> None:
        began_ms = self._clock.monotonic_ms()
        self.is_compacting = True
        try:
            for family, start, end in ranges:
                if self._is_closed:
                    return
                self._store.compact(family, start, end)
        finally:
            self.is_compacting = False
        now_ms = self._clock.monotonic_ms()
        with self._changed:
            self.count += 1
            self._not_before_ms = now_ms + max(PAUSE_MS, PAUSE_FACTOR * (now_ms - began_ms))
            self._base_bytes = self._store.sst_bytes()
