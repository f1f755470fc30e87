"""Rows in META about segment files: they keep a file from being deleted, and hold its length.

```
segment/ + segment u32 + partition u32   ->  last offset u64   the greatest key of the partition with its value there
segment_length/ + segment u32            ->  length u64        once the next file is begun: this one grows no more
```
A file is needed as long as it has a row of the first kind. The row is deleted when a range delete in LOG covers all
keys of the partition that it stands for. Then the partition was deleted, or its log start has passed the last of them.
If rows of the log are replaced or deleted by key, the log is searched for references, away from all writers
(`references`). The row is then deleted once no reference to the segment is left.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from coordinator_runtime.store import Family, Mutation

NAMED_PREFIX: Final = b"segment/"
LENGTH_PREFIX: Final = b"segment_length/"

_NAMED: Final = struct.Struct(">II")
_SEGMENT: Final = struct.Struct(">I")
_NUMBER: Final = struct.Struct(">Q")
_LOG_KEY: Final = struct.Struct(">IQ")
"""A key of LOG: partition and last offset."""
_PARTITION_BYTES: Final = 4


class SegmentRows:
    """Segments that hold values of each partition, with the last offset there. For the holder of the store's
    lock of writes only, but for `older_than`."""

    def __init__(self, named: Iterable[tuple[int, int, int]]) -> None:
        """`named`: segment, partition and last offset of every row."""
        self._last_offsets: dict[int, dict[int, int]] = {}
        """Last offsets, by partition and segment."""
        self._partition_counts: Counter[int] = Counter()
        """Number of partitions with values in each segment."""
        for segment, partition, last_offset in named:
            self._last_offsets.setdefault(partition, {})[segment] = last_offset
            self._partition_counts[segment] += 1

    def segments(self) -> set[int]:
        """Return the segments that a row names."""
        return set(self._partition_counts)

    def note(self, segment: int, key: bytes) -> bytes:
        """Note that the value of this key of LOG is in the segment. Return the key of the row that records it, for
        `row`."""
        partition, last_offset = _LOG_KEY.unpack(key)
        segments = self._last_offsets.setdefault(partition, {})
        if segment not in segments:
            self._partition_counts[segment] += 1
        segments[segment] = max(last_offset, segments.get(segment, 0))
        return named_key(segment, partition)

    def row(self, key: bytes) -> Mutation:
        """Return the newest row under a key that `note` returned."""
        segment, partition = named_of(key)
        return Family.META, key, _NUMBER.pack(self._last_offsets[partition][segment])

    def drop(self, start: bytes, end: bytes) -> Iterator[Mutation]:
        """Yield the mutations that follow from deleting the keys of LOG from `start` to before `end`."""
        first, last = _partition_of(start), _partition_of(end)
        there = self._last_offsets
        # Most ranges concern one partition, and there may be very many partitions.
        few, many = (range(first, last + 1), there) if last - first < len(there) else (there, range(first, last + 1))
        for partition in [each for each in few if each in many and start <= _LOG_KEY.pack(each, 0)]:
            segments = there[partition]
            for segment in [each for each, offset in segments.items() if _LOG_KEY.pack(partition, offset) < end]:
                yield from self._forget(partition, segment)
            if not segments:
                del there[partition]

    def older_than(self, partition: int, segment: int) -> tuple[int, ...]:
        """Return the segments with values of a partition that are older than a segment. For any thread."""
        return tuple(each for each in tuple(self._last_offsets.get(partition, ())) if each < segment)

    def release(self, partition: int, segments: Iterable[int]) -> Iterator[Mutation]:
        """Yield the mutations that follow once no row of a partition refers to these segments."""
        there = self._last_offsets.get(partition, {})
        for segment in [each for each in segments if each in there]:
            yield from self._forget(partition, segment)
        if not there:
            self._last_offsets.pop(partition, None)

    def _forget(self, partition: int, segment: int) -> Iterator[Mutation]:
        del self._last_offsets[partition][segment]
        yield Family.META, named_key(segment, partition), None
        self._partition_counts[segment] -= 1
        if not self._partition_counts[segment]:
            del self._partition_counts[segment]
            yield Family.META, length_key(segment), None

    def finish(self, segment: int, length: int) -> Iterator[Mutation]:
        """Yield the length row of a segment that grows no more, if it holds anything."""
        if segment in self._partition_counts:
            yield Family.META, length_key(segment), _NUMBER.pack(length)


def named_key(segment: int, partition: int) -> bytes:
    """Return the key of the row which says that a segment has values of a partition."""
    return NAMED_PREFIX + _NAMED.pack(segment, partition)


def named_of(key: bytes) -> tuple[int, int]:
    """Return segment and partition of such a key."""
    segment, partition = _NAMED.unpack(key[len(NAMED_PREFIX) :])
    return segment, partition


def length_key(segment: int) -> bytes:
    """Return the key of the row with the length of a finished segment."""
    return LENGTH_PREFIX + _SEGMENT.pack(segment)


def segment_of(key: bytes) -> int:
    """Return the segment of such a key."""
    segment: int = _SEGMENT.unpack(key[len(LENGTH_PREFIX) :])[0]
    return segment


def number_in(value: bytes) -> int:
    """Return the last offset or length in a row of either kind."""
    number: int = _NUMBER.unpack(value)[0]
    return number


def _partition_of(key: bytes) -> int:
    return int.from_bytes(key[:_PARTITION_BYTES], "big")
