"""Rows of a store, with a count of the offsets of its logs that have been read."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Final

from coordinator_runtime.store import Family, StoreUnreadable
from partition_log.state import PartitionHead
from txnctl.stopped import stored
from txnctl.stopped.stored import StoredRows

_LOG_KEY: Final = struct.Struct(">IQ")
_ERRORS: Final = (StoreUnreadable, ValueError, struct.error)


def known_heads(rows: StoredRows) -> dict[int, PartitionHead]:
    """Return the positions of every partition, by ordinal; empty if they are damaged.

    They only tell how much there is to read, and what reads it reports the damage."""
    try:
        return stored.heads(rows)
    except _ERRORS:
        return {}


class CountedRows:
    """A store that tells after each row of a log how many offsets were read. Those that are read again do not count."""

    def __init__(self, rows: StoredRows, on_read: Callable[[int], None]) -> None:
        self._rows = rows
        self._on_read = on_read
        self._done = 0
        heads = known_heads(rows)
        self.total = sum(head.log_end_offset - head.log_start_offset for head in heads.values()) or None
        """Number of offsets in all logs; None if it is not known."""
        self._newest = {ordinal: head.log_start_offset - 1 for ordinal, head in heads.items()}
        """Newest offset that was read of each partition, by its ordinal."""

    def get(self, family: Family, key: bytes) -> bytes | None:
        """Return the value of a row."""
        return self._rows.get(family, key)

    def scan(self, family: Family, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield the rows of a range, with their checksums compared."""
        return self._counted(family, self._rows.scan(family, start, end))

    def scan_headers(self, family: Family, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield the rows of a range, without the payloads of large batches."""
        return self._rows.scan_headers(family, start, end)

    def scan_unverified(self, family: Family, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield the rows of a range, without a comparison of checksums."""
        return self._rows.scan_unverified(family, start, end)

    def _counted(self, family: Family, found: Iterator[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
        if family is not Family.LOG:
            yield from found
            return
        for key, row in found:
            yield key, row
            ordinal, offset = _LOG_KEY.unpack(key)
            more = offset - self._newest.get(ordinal, offset)
            if more > 0:
                self._done += more
                self._newest[ordinal] = offset
                self._on_read(self._done)
