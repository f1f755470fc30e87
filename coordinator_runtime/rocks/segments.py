"""Segment files: storage for the large values of the log, beside RocksDB and not in it.

RocksDB copies a value of 64 KiB for 110 us, several times over its life, and holds the interpreter meanwhile. Appending
it to a plain file takes a third of that and blocks no other thread. So the row of a large value holds a reference, and
the value is in a file that is only ever appended to. After the reference, the row keeps the parts that are read without
the payload: the header of the batch, and the marker after it. So counting, or searching for a time, touches no file.

A value is on disk before the row that names it is written. So every reference is valid, whenever a crash comes. Bytes
that no row names are garbage at the end of a file: every start begins a new file, and they are never read.

A file is deleted once no partition has rows for values in it, according to META (`segment_rows.py`). Once the next file
is begun, META also has the length of the file, so that a start detects one that was cut off. The durable mark has the
length of the newest file.

Source: design 5 (payload segments); spec log-and-runtime 5.5.
"""

from __future__ import annotations

import os
import struct
import threading
from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, NamedTuple

from coordinator_protocol.batch import cut_row
from coordinator_protocol.checksum import KEEP_THE_GIL, crc32c
from coordinator_runtime.rocks.durable_mark import FileGrowth
from coordinator_runtime.rocks.segment_rows import SegmentRows
from coordinator_runtime.rocks.store_directory import sync_directory
from coordinator_runtime.store import CommitGroup, Family, Mutation

_TAG: Final = b"\xff"
"""First byte of a reference. A value of the log starts with its offset, whose first byte is below 0x80."""

_REFERENCE: Final = struct.Struct(">cIQII")

_BUFFERS_MAX: Final = 512
"""Most buffers in one write: the system takes 1,024 at most."""
_OPEN_FILES_MAX: Final = 64


@dataclass(frozen=True, slots=True)
class SegmentOptions:
    """Limits of values and segment files."""

    value_bytes_min: int = 32 * 1024
    """Size from which a value of the log goes into a segment. Too small: a second flush for every group. Too large:
    RocksDB copies much, and blocks all other threads meanwhile."""
    segment_bytes_max: int = 128 * 1024 * 1024
    """Size beyond which the next segment is begun. The space of deleted topics is freed by whole segments."""


class Reference(NamedTuple):
    """The place of a value in a segment."""

    segment: int
    offset: int
    length: int
    crc: int
    """CRC-32C of the value."""

    def encode(self) -> bytes:
        return _REFERENCE.pack(_TAG, *self)

    @staticmethod
    def decode(row: bytes) -> Reference:
        return Reference(*_REFERENCE.unpack_from(row)[1:])


class SegmentDamaged(Exception):
    """A value is not where its row says, or is not what was written."""


class SegmentReader:
    """Reads values by their references. For any thread, except `close`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._files: OrderedDict[int, int] = OrderedDict()
        """File descriptors by segment, the most recently used last."""
        self._lock = threading.Lock()
        """A file may be deleted on the reclaim thread while the loop reads another one."""

    def value_of(self, row: bytes) -> bytes:
        """Return the value that a row of the log holds or refers to. Raises SegmentDamaged, OSError."""
        if row[:1] != _TAG:
            return row
        if len(row) < _REFERENCE.size:
            raise SegmentDamaged(f"a reference of {len(row)} bytes leads nowhere")
        reference = Reference.decode(row)
        with self._lock:
            descriptor = self._descriptor(reference.segment)
            # A damaged reference may have any length, and memory for it is allocated before anything is read.
            is_inside = reference.offset + reference.length <= os.fstat(descriptor).st_size
            value = os.pread(descriptor, reference.length, reference.offset) if is_inside else b""
        if len(value) != reference.length or crc32c(value, 0, KEEP_THE_GIL) != reference.crc:
            raise SegmentDamaged(
                f"{segment_path(self._path, reference.segment)} does not hold what was written at byte"
                f" {reference.offset} ({reference.length} bytes)"
            )
        return value

    def _descriptor(self, segment: int) -> int:
        descriptor = self._files.get(segment)
        if descriptor is None:
            descriptor = os.open(segment_path(self._path, segment), os.O_RDONLY | os.O_CLOEXEC)
            self._files[segment] = descriptor
            if len(self._files) > _OPEN_FILES_MAX:
                os.close(self._files.popitem(last=False)[1])
        else:
            self._files.move_to_end(segment)
        return descriptor

    def delete(self, segment: int) -> None:
        """Delete the file of a segment that no row names and no reader uses. Raises OSError."""
        with self._lock:
            descriptor = self._files.pop(segment, None)
            if descriptor is not None:
                os.close(descriptor)
        segment_path(self._path, segment).unlink(missing_ok=True)

    def close(self) -> None:
        """Close all files. Idempotent."""
        while self._files:
            os.close(self._files.popitem()[1])


class SegmentWriter:
    """Puts large values into segments, and tracks the segments of each partition. For the commit thread only."""

    def __init__(
        self, path: Path, named: Iterable[tuple[int, int, int]], options: SegmentOptions, newest: FileGrowth
    ) -> None:
        """`named`: as for `SegmentRows`. Deletes files that no row names."""
        self._path = path
        self._options = options
        self.newest = newest
        """Growth of the segment that was written last, all of it on disk."""
        self._rows = SegmentRows(named)
        on_disk = segments_in(path)
        for segment in on_disk - self._rows.segments():
            segment_path(path, segment).unlink()
        self._segment = max(on_disk | self._rows.segments(), default=0)
        self._file: int | None = None
        self._end = 0
        self._begun = self._rows.segments()
        """Segments that have a file."""
        self._may_have_unused = False
        self._released: deque[tuple[int, tuple[int, ...]]] = deque()
        """Partitions, and segments that none of their rows refers to any more."""

    @property
    def segment(self) -> int:
        """The newest segment. Only older ones can be released. For any thread."""
        return self._segment

    def older_segments(self, partition: int) -> tuple[int, ...]:
        """Return the segments with values of a partition, without the newest one. For any thread."""
        return self._rows.older_than(partition, self._segment)

    def release(self, partition: int, segments: tuple[int, ...]) -> None:
        """Release older segments that no row of a partition refers to, with the next write. For any thread."""
        self._released.append((partition, segments))

    def take_released(self) -> list[Mutation]:
        """Return the mutations that follow from what was released. The caller writes them, before any other write."""
        dropped: list[Mutation] = []
        while self._released:
            dropped += self._rows.release(*self._released.popleft())
        self._may_have_unused |= bool(dropped)
        return dropped

    def place(self, groups: Sequence[CommitGroup]) -> Sequence[CommitGroup]:
        """Return the groups for RocksDB, with references to large values, which are on disk when this returns.

        Other threads run meanwhile. Raises OSError."""
        if not self._released and all(
            group.size_bytes < self._options.value_bytes_min and not group.deleted_ranges for group in groups
        ):
            return groups
        found = [
            (number, position)
            for number, group in enumerate(groups)
            for position, (family, _key, value) in enumerate(group.mutations)
            if family is Family.LOG and value is not None and len(value) >= self._options.value_bytes_min
        ]
        mutations = [[*group.mutations] for group in groups]
        mutations[0] += self.take_released()
        if found and (self._file is None or self._end >= self._options.segment_bytes_max):
            mutations[0] += self._begin_segment()
        named: defaultdict[int, set[bytes]] = defaultdict(set)
        values = [mutations[number][position][2] or b"" for number, position in found]
        for (number, position), value, reference in zip(found, values, self._append(values), strict=True):
            key = mutations[number][position][1]
            mutations[number][position] = (Family.LOG, key, reference.encode() + cut_row(value))
            named[number].add(self._rows.note(reference.segment, key))
        for number, group in enumerate(groups):
            mutations[number] += map(self._rows.row, named[number])
            for family, start, end in group.deleted_ranges:
                if family is Family.LOG:
                    dropped = [*self._rows.drop(start, end)]
                    mutations[number] += dropped
                    self._may_have_unused |= bool(dropped)
        return [replace(group, mutations=each) for group, each in zip(groups, mutations, strict=True)]

    def take_unused(self) -> list[int]:
        """Return the segments that no row names any more, except the one being written. The caller deletes them once
        that is durable."""
        if not self._may_have_unused:
            return []
        self._may_have_unused = False
        unused = sorted(
            segment for segment in self._begun - self._rows.segments() if segment != self._segment or self._file is None
        )
        self._begun -= {*unused}
        return unused

    def _append(self, values: Sequence[bytes]) -> list[Reference]:
        if not values:
            return []
        assert self._file is not None, "a segment was begun"
        references = []
        for value in values:
            references.append(Reference(self._segment, self._end, len(value), crc32c(value, 0, KEEP_THE_GIL)))
            self._end += len(value)
        for first in range(0, len(values), _BUFFERS_MAX):
            _write_all(self._file, values[first : first + _BUFFERS_MAX])
        os.fdatasync(self._file)
        self.newest = FileGrowth(self._segment, self._end)
        return references

    def close(self) -> None:
        """Finish the segment that is being written; the next value begins another. Idempotent."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _begin_segment(self) -> list[Mutation]:
        """Begin the next segment. Return the mutations that record the length of the finished one."""
        self.close()
        self._may_have_unused = True
        finished = [*self._rows.finish(*self.newest)]
        self._segment += 1
        self._begun.add(self._segment)
        self._end = 0
        self._path.mkdir(exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        self._file = os.open(segment_path(self._path, self._segment), flags, 0o644)
        # If the file's name were lost in a power cut, all values in it would be lost.
        for directory in (self._path, self._path.parent):
            sync_directory(directory)
        return finished


def reference_of(row: bytes) -> Reference | None:
    """Return the reference in a row of the log; None if the row holds its value."""
    return Reference.decode(row) if row[:1] == _TAG else None


def cut_value(row: bytes) -> bytes:
    """Return the value that a row of the log holds, or the header and tail of a value in a segment."""
    return row[_REFERENCE.size :] if row[:1] == _TAG else row


def segment_path(path: Path, segment: int) -> Path:
    """Return the path of a segment's file."""
    return path / f"{segment:010}.segment"


def segments_in(path: Path) -> set[int]:
    """Return the segments that have a file.

    Raises OSError if the directory exists and cannot be read: if it were treated as empty, segment numbers would begin
    again."""
    try:
        files = list(path.iterdir())
    except FileNotFoundError:
        return set()
    return {int(file.stem) for file in files if file.suffix == ".segment" and file.stem.isdecimal()}


def _write_all(file: int, buffers: Sequence[bytes]) -> None:
    """Write all buffers, even if `writev` writes less than it was given."""
    left = sum(map(len, buffers))
    written = os.writev(file, buffers)
    if written < left:
        rest = memoryview(b"".join(buffers))
        while written < left:
            written += os.write(file, rest[written:])
