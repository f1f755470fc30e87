"""Rows of STRETCHES and ABORTED, which readers use as indexes of a log. `codec` stages and removes them.

```
STRETCHES   ordinal u32, last offset u64               -> index entry of a finished stretch of the log
ABORTED     ordinal u32, offset u64, producer id u64   -> aborted transaction
```
An aborted transaction has a row under its marker's offset, and one under each multiple of 65,536 between its first
record and the marker. One seek finds every aborted transaction that a read of [a, e) must know: the rows between a and
the next multiple at or behind e. That holds however long a transaction was open (`partition_log/aborted.py`). A
transaction that is neither aborted nor open is committed. Both kinds of value begin with a version byte.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Final

from coordinator_runtime.unknown_rows import check_version
from partition_log.state import AbortedTransaction, IndexEntry, LogTotals

_VERSION: Final = 1

_STRETCH_KEY: Final = struct.Struct(">IQ")
_ABORTED_KEY: Final = struct.Struct(">IQQ")
_STRETCH: Final = struct.Struct(">Bqqqqqqq")
_ABORTED_VALUE: Final = struct.Struct(">BhHqqQ")

ABORTED_ROW_BYTES: Final = _ABORTED_KEY.size + _ABORTED_VALUE.size
"""Size of key and value of a row of an aborted transaction."""

ABORTED_STRIDE: Final = 1 << 16
"""Distance of the offsets under which an aborted transaction has rows. Readers look for aborted transactions up to the
next multiple. Smaller: more rows of a transaction that was open for long. Larger: readers look at more markers that do
not concern them."""

aborted_key: Final[Callable[[int, int, int], bytes]] = _ABORTED_KEY.pack
"""Packs (ordinal, offset, producer id) into the key of a row of an aborted transaction."""

stretch_key: Final[Callable[[int, int], bytes]] = _STRETCH_KEY.pack
"""Packs (ordinal, last offset) into the key of a finished index entry. A scan for the entry of an offset starts there,
too."""


def encode_stretch(stretch: IndexEntry) -> bytes:
    """Encode an index entry. Its last offset is in its key."""
    totals = stretch.totals
    return _STRETCH.pack(
        _VERSION,
        stretch.first_offset,
        stretch.max_timestamp_ms,
        stretch.ended_ms,
        totals.size_bytes,
        totals.record_count,
        totals.marker_count,
        totals.abort_count,
    )


def decode_stretch(key: bytes, value: bytes) -> IndexEntry:
    """Decode an index entry. Raises UnknownRow."""
    _check_version(value)
    _, first_offset, max_timestamp_ms, ended_ms, *totals = _STRETCH.unpack(value)
    _ordinal, last_offset = _STRETCH_KEY.unpack(key)
    return IndexEntry(first_offset, last_offset, max_timestamp_ms, ended_ms, LogTotals(*totals))


def aborted_offsets(aborted: AbortedTransaction) -> Iterator[int]:
    """Yield the offsets under which an aborted transaction has a row."""
    yield aborted.marker_offset
    first_multiple = (aborted.first_offset // ABORTED_STRIDE + 1) * ABORTED_STRIDE
    yield from range(first_multiple, aborted.marker_offset, ABORTED_STRIDE)


def encode_aborted(aborted: AbortedTransaction) -> bytes:
    """Encode an aborted transaction, for each of its rows. The producer id is in the key."""
    return _ABORTED_VALUE.pack(
        _VERSION,
        aborted.txn_epoch,
        aborted.coordinator_shard,
        aborted.first_offset,
        aborted.marker_offset,
        aborted.csn,
    )


def decode_aborted(key: bytes, value: bytes) -> tuple[int, AbortedTransaction]:
    """Decode a row of an aborted transaction, and return the offset in its key, too. Raises UnknownRow."""
    _check_version(value)
    _ordinal, offset, producer_id = _ABORTED_KEY.unpack(key)
    _version, txn_epoch, shard, first_offset, marker_offset, csn = _ABORTED_VALUE.unpack(value)
    return offset, AbortedTransaction(producer_id, txn_epoch, first_offset, marker_offset, shard, csn)


def _check_version(value: bytes) -> None:
    check_version(value[0], _VERSION, "a stored value")
