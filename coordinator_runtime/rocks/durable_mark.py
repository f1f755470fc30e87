"""A side file with the newest group version that was ever durable, and the growth of the files that held it.

RocksDB recovers a damaged log to a clean prefix and does not report what it dropped (point_in_time, the only mode that
keeps the prefix property). The mark detects that: a store that recovers to less than its mark has lost acknowledged
writes. It is written after the sync that it reports, so it never promises too much. It trails by at most the interval
at which it is written; a loss inside that interval goes unnoticed.

Two files could shrink undetected. A MANIFEST put back from an older copy shows some families as they were then and
others as they are now. RocksDB does not know the segment files. So the mark also holds the growth of these two.

Source: spec log-and-runtime 5.6; decision 20.
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
"""First bytes of slots without files. They are read as marks that promise nothing about files; the next write replaces
them."""
_CHECKSUM = struct.Struct(">I")

_SLOT_COUNT: Final = 2
_SLOT_SPACING_BYTES: Final = 4096
"""Distance of the slots in bytes. Each slot has a disk block of its own, so that a torn write of one cannot reach the
other."""

# `fdatasync` where the system has it: it leaves out the file's times, which are not read here.
_sync_file = getattr(os, "fdatasync", os.fsync)


class FileGrowth(NamedTuple):
    """Growth of the newest of several numbered files. Newer files have greater numbers, and no number is below 1."""

    number: int = 0
    """Number of the file; 0 if nothing is known."""
    length: int = 0
    """Length that the file had reached, in bytes."""


class Marked(NamedTuple):
    """Content of the mark: the state on disk when it was written."""

    version: int
    """Version of the newest group in the store."""
    manifest: FileGrowth = FileGrowth()
    segment: FileGrowth = FileGrowth()


class _Slot(NamedTuple):
    sequence: int
    """Number of writes of the mark. The valid slot with the greater number is the newer one, even if its version is
    smaller: this records an accepted loss."""
    marked: Marked


def _encode(slot: _Slot) -> bytes:
    version, manifest, segment = slot.marked
    body = _SLOT.pack(_MAGIC, slot.sequence, version, *manifest, *segment)
    return body + _CHECKSUM.pack(crc32c(body, 0))


def _decode(stored: bytes) -> _Slot | None:
    """Decode a slot; None if it was never written, is torn, or was damaged later."""
    layout = _VERSION_ONLY if stored.startswith(_VERSION_ONLY_MAGIC) else _SLOT
    if len(stored) < layout.size + _CHECKSUM.size:
        return None
    body = stored[: layout.size]
    magic, sequence, version, *growth = layout.unpack(body)
    if magic not in (_MAGIC, _VERSION_ONLY_MAGIC) or _CHECKSUM.unpack_from(stored, layout.size)[0] != crc32c(body, 0):
        return None
    return _Slot(sequence, Marked(version, FileGrowth(*growth[:2]), FileGrowth(*growth[2:])))


def read_mark(path: Path) -> Marked:
    """Return the content of the newest valid slot. The file is not changed.

    Raises StoreRefused if the file is missing or unreadable, or no slot is valid."""
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
    """The mark, open for writing by the holder of the directory's lock.

    Opening creates the file if it is missing and changes nothing otherwise. A damaged file is usable again after the
    next `write`."""

    __slots__ = ("_file", "_path", "_sequence", "last")

    def __init__(self, path: Path) -> None:
        newest = _newest_slot(path)
        self._path = path
        self._sequence = 0 if newest is None else newest.sequence
        self.last = Marked(0) if newest is None else newest.marked
        """Content of the last write, here or before it was opened."""
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def read(self) -> Marked:
        """Return the content of the newest valid slot. Raises StoreRefused if none is valid."""
        return read_mark(self._path)

    def write(self, marked: Marked) -> None:
        """Record the durable state; on disk when this returns. Raises OSError.

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
