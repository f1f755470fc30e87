"""The record of the owner: an object beside the store that remembers how far the store was durable.

A bucket that was set back, by a restored version or a copy, holds less than was acknowledged. Nothing in the store
itself says so. The record is another object, which the owner replaces now and then. A start that finds less in the
store than in the record refuses, as a start on a disk does by its durable mark. The record trails by at most `MARK_MS`.
A loss of writes this recent goes unnoticed.

The record also compares the clock of this machine with that of the object store. Collectors of old objects go by ages.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

import msgspec
from msgspec import Struct

from coordinator_runtime.clock import Clock
from coordinator_runtime.slate.objects import FoundObject, Objects, ObjectsFailed
from coordinator_runtime.store import StoreRefused

RECORD_NAME: Final = "owner/record"
MARK_MS: Final = 10_000
"""Time between two changes of the record while the store is written."""
ATTEMPTS_MAX: Final = 5
SKEW_MS_MAX: Final = 300_000
"""Largest difference of the clocks. Collectors wait for an hour."""


class OwnerRecord(Struct, frozen=True):
    """Content of the record."""

    store_id: str
    version: int
    """Newest version that is known to be durable."""
    changes: int
    """Number of changes of the record, so that no two of them are alike: tags are computed from the content."""


def read_record(objects: Objects) -> tuple[OwnerRecord, str] | None:
    """Return the record and its tag; None if there is none. Raises StoreRefused, ObjectsFailed."""
    found = objects.read(RECORD_NAME)
    return None if found is None else (_decoded(found), found.e_tag)


def _decoded(found: FoundObject) -> OwnerRecord:
    try:
        return msgspec.json.decode(found.content, type=OwnerRecord)
    except msgspec.DecodeError as damage:
        raise StoreRefused(f"the record of the owner, {RECORD_NAME}, cannot be read: {damage}") from damage


class OwnershipMark:
    """Keeps the record of an open store up to date, on a thread of its own."""

    def __init__(self, objects: Objects, clock: Clock, record: OwnerRecord, e_tag: str | None) -> None:
        """`record`: the one to begin with, and the tag of the one that it replaces."""
        self._objects = objects
        self._clock = clock
        self._record = record
        self._e_tag = e_tag
        self._version = record.version
        self._changed = threading.Condition()
        self._is_closed = False
        self._join: Callable[[], None] | None = None
        """Waits for the thread; None before it was started."""

    def begin(self) -> None:
        """Write the record, and compare the clocks. Raises StoreRefused, ObjectsFailed.

        Call it once the store is open. Its former owner may have changed the record since it was read."""
        for _attempt in range(ATTEMPTS_MAX):
            if self._written():
                break
            read = read_record(self._objects)
            self._e_tag = None if read is None else read[1]
        else:
            raise StoreRefused("other servers are opening the store at the same time: start one of them")
        found = self._objects.read(RECORD_NAME)
        skew_ms = 0 if found is None else abs(int(found.modified.timestamp() * 1_000) - self._clock.wall_ms())
        if skew_ms > SKEW_MS_MAX:
            raise StoreRefused(
                f"the clock of this machine and that of the object store differ by {skew_ms} ms, and at most"
                f" {SKEW_MS_MAX} are safe, because old objects are removed by their age: set the clock"
            )

    def note(self, version: int) -> None:
        """Note a durable version. Returns at once."""
        with self._changed:
            self._version = version
            if self._join is None and not self._is_closed:
                thread = threading.Thread(target=self._run, name="owner", daemon=True)  # noqa: TID251
                self._join = thread.join
                thread.start()

    def close(self) -> None:
        """Write the newest version, and end the thread. Idempotent."""
        with self._changed:
            if self._is_closed:
                return
            self._is_closed = True
            self._changed.notify()
        if self._join is not None:
            self._join()
        self._write_if_newer()

    def _run(self) -> None:
        while True:
            with self._changed:
                if self._changed.wait_for(lambda: self._is_closed, MARK_MS / 1_000):
                    return
            self._write_if_newer()

    def _write_if_newer(self) -> None:
        if self._version > self._record.version:
            try:
                self._written()
            except ObjectsFailed:
                return  # The next attempt writes it. The store itself ends the process if the bucket is gone.

    def _written(self) -> bool:
        """Replace the record. Returns False if another server has replaced it, which has then fenced this one."""
        record = OwnerRecord(self._record.store_id, self._version, self._record.changes + 1)
        content = msgspec.json.encode(record)
        if self._e_tag is None:
            tag = self._objects.create(RECORD_NAME, content)
        else:
            tag = self._objects.replace(RECORD_NAME, content, self._e_tag)
        if tag is None:
            return False
        self._record, self._e_tag = record, tag
        return True
