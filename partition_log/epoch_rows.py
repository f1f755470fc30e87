"""Rows of a partition's leader epochs: one small row each. The head names the current epoch.

```
PARTITIONS  ordinal u32, kind u8 (1), leader epoch u32 -> version u8, start offset i64, wall time i64, cause u8
```
A partition has only one for each incarnation of the store in which it was loaded. So all of them are in memory, with
its head.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, Protocol

from coordinator_runtime.incarnation import IncarnationCause
from coordinator_runtime.store import Family
from coordinator_runtime.unknown_rows import check_version
from partition_log.load_checks import RowsMissing
from partition_log.state import LeaderEpoch

_KIND: Final = 1
_KEY: Final = struct.Struct(">IBI")
_END: Final = struct.Struct(">IB")
"""Packs the key at which the next kind begins, however short its keys are."""
_VALUE: Final = struct.Struct(">BqqB")
_VERSION: Final = 1
_WHAT: Final = "the row of a leader epoch"

EPOCH_ROW_BYTES: Final = _KEY.size + _VALUE.size
"""Size of key and value of a leader epoch."""


class ScannedRows(Protocol):
    """The part of a store that is used here."""

    def scan(self, family: Family, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]: ...


def epoch_key(ordinal: int, epoch: int) -> bytes:
    """Return the key of a leader epoch."""
    return _KEY.pack(ordinal, _KIND, epoch)


def encode_epoch(epoch: LeaderEpoch) -> bytes:
    """Encode a leader epoch. Its number is in its key."""
    return _VALUE.pack(_VERSION, epoch.start_offset, epoch.began_ms, epoch.cause)


def decode_epoch(key: bytes, value: bytes) -> LeaderEpoch:
    """Decode a leader epoch. Raises UnknownRow."""
    check_version(value[0], _VERSION, _WHAT)
    _ordinal, _kind, epoch = _KEY.unpack(key)
    _version, start_offset, began_ms, cause = _VALUE.unpack(value)
    return LeaderEpoch(epoch, start_offset, began_ms, IncarnationCause(cause))


def load_epochs(store: ScannedRows, ordinal: int, present: int) -> tuple[LeaderEpoch, ...]:
    """Return all leader epochs of a partition, whose head names the current one. Raises UnknownRow; RowsMissing if they
    do not match the head, because a divergence could not be reported then."""
    history = tuple(_stored(store, ordinal))
    if not history or history[-1].epoch != present:
        newest = history[-1].epoch if history else None
        raise RowsMissing(f"partition {ordinal} is in leader epoch {present}, and its newest stored one is {newest}")
    return history


def _stored(store: ScannedRows, ordinal: int) -> Iterator[LeaderEpoch]:
    start, end = _KEY.pack(ordinal, _KIND, 0), _END.pack(ordinal, _KIND + 1)
    return (decode_epoch(key, value) for key, value in store.scan(Family.PARTITIONS, start, end))
