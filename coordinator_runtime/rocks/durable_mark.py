"""A side file that remembers up to which group version the store has ever been durable, and in which files.

RocksDB recovers a damaged log to a clean prefix and says nothing about what it dropped (point_in_time, the only mode
that keeps the prefix property). The mark is how we notice: a store that recovers to less than its mark has lost writes
that were acknowledged. It is written after the sync it tells of, so it never promises too much; it trails by at most
the interval at which it is written, and loss inside that interval goes unnoticed.

Two files could shrink without that: a MANIFEST put back from an older copy shows some families as they were then and
others as they are now, and a segment file is none of RocksDB's. So the mark also holds how far these two had grown.

Source: spec log-and-runtime 5.6, store-format 7.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Final, NamedTuple

from coordinator_protocol.checksum import crc32c
from coordinator_runtime.store import StoreRefused

_SLOT = struct.Struct(">4sQQQQQQ")
_MAGIC: Final = b"TXD2"
_VERSION_ONLY: Final = struct.Struct(">4sQQ")
_VERSION_ONLY_MAGIC: Final = b"TXDM"
"""Slots of this kind, without files, are read as marks that promise nothing of them; the next write replaces them."""
_CHECKSUM = struct.Struct(">I")

_SLOT_COUNT: Final = 2
_SLOT_SPACING_BYTES: Final = 4096
"""Each slot has a disk block of its own, so that a torn write of one cannot reach the other."""

# Where the system has it: it leaves out the file's times, which nobody here reads.
_sync_file = getattr(os, "fdatasync", os.fsync)


class FileGrowth(NamedTuple):
    """How far the newest of several numbered files had grown. No number is below the first one."""

    number: int = 0
    """0: nothing is known."""
    length: int = 0
    """How long the file had grown, in bytes."""


class Marked(NamedTuple):
    """What was on disk when the mark was written."""

    version: int
    """The newest group of the store."""
    manifest: FileGrowth = FileGrowth()
    segment: FileGrowth = FileGrowth()


class _Slot(NamedTuple):
    sequence: int
    """Counts writes. The valid slot with the greater one is the newer, even if its version is smaller: that is how a
    loss that was accepted is remembered."""
    marked: Marked


def _encode(slot: _Slot) -> bytes:
    version, manifest, segment = slot.marked
    body = _SLOT.pack(_MAGIC, slot.sequence, version, *manifest, *segment)
    return body + _CHECKSUM.pack(crc32c(body, 0))


def _decode(stored: bytes) -> _Slot | None:
    """None for a slot that was never written, is torn, or was damaged later."""
    layout = _VERSION_ONLY if stored.startswith(_VERSION_ONLY_MAGIC) else _SLOT
    if len(stored) < layout.size + _CHECKSUM.size:
        return None
    body = stored[: layout.size]
    magic, sequence, version, *growth = layout.unpack(body)
    if magic not in (_MAGIC, _VERSION_ONLY_MAGIC) or _CHECKSUM.unpack_from(stored, layout.size)[0] != crc32c(body, 0):
        return None
    return _Slot(sequence, Marked(version, FileGrowth(*growth[:2]), FileGrowth(*growth[2:])))


def read_mark(path: Path) -> Marked:
    """What the newest valid slot holds; the file is not changed.

    Raises StoreRefused if it is missing or unreadable, or no slot is valid."""
    try:
        newest = _newest_slot(path)
    except OSError as error:
        raise StoreRefused(f"the durable mark {path} cannot be read: {error.strerror}") from error
    if newest is None:
        what = "has no valid slot left" if path.exists() else "is missing"
        raise StoreRefused(f"the durable mark {path} {what}, so it cannot be said whether the store has lost data")
    return newest.marked


def _newest_slot(path: Path) -> _Slot | None:
    try:
        stored = path.read_bytes()
    except FileNotFoundError:
        return None
    slots = [_decode(stored[n * _SLOT_SPACING_BYTES :][:_SLOT_SPACING_BYTES]) for n in range(_SLOT_COUNT)]
    return max((slot for slot in slots if slot is not None), key=lambda slot: slot.sequence, default=None)


class DurableMark:
    """The mark, open for writing. One writer at a time: whoever holds the directory.

    Opening creates the file if it is missing and changes nothing otherwise; a damaged file is usable again after the
    next `write`."""

    __slots__ = ("_file", "_path", "_sequence", "last")

    def __init__(self, path: Path) -> None:
        newest = _newest_slot(path)
        self._path = path
        self._sequence = 0 if newest is None else newest.sequence
        self.last = Marked(0) if newest is None else newest.marked
        """What was written last, here or before it was opened."""
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def read(self) -> Marked:
        """What the newest valid slot holds. Raises StoreRefused if none is valid."""
        return read_mark(self._path)

    def write(self, marked: Marked) -> None:
        """Remember what is durable; on disk when this returns. Raises OSError.

        The older slot is overwritten, so that a crash in the middle leaves the newer one."""
        slot = _Slot(self._sequence + 1, marked)
        stored = _encode(slot)
        offset = slot.sequence % _SLOT_COUNT * _SLOT_SPACING_BYTES
        written = os.pwrite(self._file, stored, offset)
        if written != len(stored):
            raise OSError(f"only {written} of {len(stored)} bytes went into the durable mark {self._path}")
        _sync_file(self._file)
        self._sequence = slot.sequence
        self.last = marked

    def close(self) -> None:
        """Release the file. Idempotent."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
