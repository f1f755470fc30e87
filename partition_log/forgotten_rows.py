"""Rows that keep the essentials of forgotten producers: csns that were forgotten, and ends that are still remembered.

```
PARTITIONS  ordinal u32, kind u8 (2), coordinator shard u16                            -> newest forgotten csn
PRODUCERS   ordinal u32, kind u8 (1), coordinator shard u16, csn u64, producer id u64  -> remembered end
```
"""

from __future__ import annotations

import struct
from typing import Final

from coordinator_runtime.ports import EndIdentity
from coordinator_runtime.unknown_rows import check_version
from partition_log.state import RememberedEnd

_VERSION: Final = 1

_KIND_KEY: Final = struct.Struct(">IB")
_FORGOTTEN_KEY: Final = struct.Struct(">IBH")
_REMEMBERED_KEY: Final = struct.Struct(">IBHQQ")
_FORGOTTEN: Final = struct.Struct(">BQ")
_REMEMBERED: Final = struct.Struct(">Bq")

_FORGOTTEN_KIND: Final = 2
_REMEMBERED_KIND: Final = 1


def forgotten_key(ordinal: int, coordinator_shard: int) -> bytes:
    """Key of the newest forgotten csn of a coordinator shard."""
    return _FORGOTTEN_KEY.pack(ordinal, _FORGOTTEN_KIND, coordinator_shard)


def encode_forgotten(csn: int) -> bytes:
    """Value of a forgotten csn."""
    return _FORGOTTEN.pack(_VERSION, csn)


def decode_forgotten(key: bytes, value: bytes) -> tuple[int, int]:
    """Coordinator shard and csn of a row. Raises UnknownRow."""
    _check_version(value)
    return _FORGOTTEN_KEY.unpack(key)[2], _FORGOTTEN.unpack(value)[1]


def forgotten_range(ordinal: int) -> tuple[bytes, bytes]:
    """Where the forgotten csns of a partition begin and end, by coordinator shard."""
    return _KIND_KEY.pack(ordinal, _FORGOTTEN_KIND), _KIND_KEY.pack(ordinal, _FORGOTTEN_KIND + 1)


def remembered_key(ordinal: int, identity: EndIdentity) -> bytes:
    """Key of what is remembered of a transaction that has ended."""
    return _REMEMBERED_KEY.pack(ordinal, _REMEMBERED_KIND, *identity)


def remembered_from(ordinal: int) -> bytes:
    """Where what is remembered of a partition's forgotten producers begins: behind all of those that it knows."""
    return _KIND_KEY.pack(ordinal, _REMEMBERED_KIND)


def remembered_end(ordinal: int) -> bytes:
    """Where that ends."""
    return _KIND_KEY.pack(ordinal, _REMEMBERED_KIND + 1)


def encode_remembered(remembered: RememberedEnd) -> bytes:
    """Value of what is remembered; the rest is in its key."""
    return _REMEMBERED.pack(_VERSION, remembered.first_offset)


def decode_remembered(key: bytes, value: bytes) -> RememberedEnd:
    """Raises UnknownRow."""
    _check_version(value)
    _ordinal, _kind, *identity = _REMEMBERED_KEY.unpack(key)
    return RememberedEnd(EndIdentity(*identity), _REMEMBERED.unpack(value)[1])


def _check_version(value: bytes) -> None:
    check_version(value[0], _VERSION, "a stored value")
