"""A side file that remembers up to which group version the store has ever been durable.

RocksDB recovers a damaged log to a clean prefix and says nothing about what it dropped (point_in_time, the only mode
that keeps the prefix property). The mark is how we notice: a store that recovers to less than its mark has lost writes
that were acknowledged. It is written after the sync it tells of, so it never promises too much; it trails by at most
the interval at which it is written, and loss inside that interval goes unnoticed.

Source: spec log-and-runtime 5.6.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from coordinator_protocol.checksum import crc32c
from coordinator_runtime.store import StoreRefused

_MAGIC: Final = b"TXDM"
_SLOT = struct.Struct(">4sQQ")
_CHECKSUM = struct.Struct(">I")

_SLOT_COUNT: Final = 2
_SLOT_SPACING_BYTES: Final = 4096
"""Each slot has a disk block of its own, so that a torn write of one cannot reach the other."""

# Where the system has it: it leaves out the file's times, which nobody here reads.
_sync_file = getattr(os, "fdatasync", os.fsync)


@dataclass(frozen=True, slots=True)
class _Slot:
    sequence: int
    """Counts writes. The valid slot with the greater one is the newer, even if its version is smaller: that is how a
    loss that was accepted is remembered."""
    version: int


def _encode(slot: _Slot) -> bytes:
    body = _SLOT.pack(_MAGIC, slot.sequence, slot.version)
    return body + _CHECKSUM.pack(crc32c(body, 0))


def _decode(stored: bytes) -> _Slot | None:
    """None for a slot that was never written, is torn, or was damaged later."""
    if len(stored) < _SLOT.size + _CHECKSUM.size:
        return None
    body = stored[: _SLOT.size]
    magic, sequence, version = _SLOT.unpack(body)
    if magic != _MAGIC or _CHECKSUM.unpack_from(stored, _SLOT.size)[0] != crc32c(body, 0):
        return None
    return _Slot(sequence, version)


def read_mark(path: Path) -> int:
    """The version in the newest valid slot; the file is not changed.

    Raises StoreRefused if it is missing or no slot is valid."""
    newest = _newest_slot(path)
    if newest is None:
        what = "has no valid slot left" if path.exists() else "is missing"
        raise StoreRefused(f"the durable mark {path} {what}, so it cannot be said whether the store has lost data")
    return newest.version


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

    __slots__ = ("_file", "_path", "_sequence")

    def __init__(self, path: Path) -> None:
        newest = _newest_slot(path)
        self._path = path
        self._sequence = 0 if newest is None else newest.sequence
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def read(self) -> int:
        """The version in the newest valid slot. Raises StoreRefused if none is valid."""
        return read_mark(self._path)

    def write(self, version: int) -> None:
        """Remember that everything up to `version` is durable; on disk when this returns. Raises OSError.

        The older slot is overwritten, so that a crash in the middle leaves the newer one."""
        slot = _Slot(self._sequence + 1, version)
        stored = _encode(slot)
        offset = slot.sequence % _SLOT_COUNT * _SLOT_SPACING_BYTES
        written = os.pwrite(self._file, stored, offset)
        if written != len(stored):
            raise OSError(f"only {written} of {len(stored)} bytes went into the durable mark {self._path}")
        _sync_file(self._file)
        self._sequence = slot.sequence

    def close(self) -> None:
        """Release the file. Idempotent."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
