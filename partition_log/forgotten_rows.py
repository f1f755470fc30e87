"""Rows that outlive forgotten producers: the newest forgotten csns, and the ends that are still remembered.

```
PARTITIONS  ordinal u32, kind u8 (2), coordinator shard u16                            -> newest forgotten csn
PRODUCERS   ordinal u32, kind u8 (1), coordinator shard u16, csn u64, producer id u64  -> remembered end
```
Both kinds of value begin with a version byte.
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
    """Return the key of the newest forgotten csn of a coordinator shard."""
    return _FORGOTTEN_KEY.pack(ordinal, _FORGOTTEN_KIND, coordinator_shard)


def encode_forgotten(csn: int) -> bytes:
    """Encode a forgotten csn."""
    return _FORGOTTEN.pack(_VERSION, csn)


def decode_forgotten(key: bytes, value: bytes) -> tuple[int, int]:
    """Return coordinator shard and csn of a row. Raises UnknownRow."""
    _check_version(value)
    return _FORGOTTEN_KEY.unpack(key)[2], _FORGOTTEN.unpack(value)[1]


def forgotten_range(ordinal: int) -> tuple[bytes, bytes]:
    """Return the key range of a partition's forgotten csns, which are in order of coordinator shards."""
    return _KIND_KEY.pack(ordinal, _FORGOTTEN_KIND), _KIND_KEY.pack(ordinal, _FORGOTTEN_KIND + 1)


def remembered_key(ordinal: int, identity: EndIdentity) -> bytes:
    """Return the key of the remembered end of a transaction."""
    return _REMEMBERED_KEY.pack(ordinal, _REMEMBERED_KIND, *identity)


def remembered_from(ordinal: int) -> bytes:
    """Return the first key of a partition's remembered ends. It lies behind all producers that the partition knows."""
    return _KIND_KEY.pack(ordinal, _REMEMBERED_KIND)


def remembered_end(ordinal: int) -> bytes:
    """Return the end of the key range that begins with `remembered_from`."""
    return _KIND_KEY.pack(ordinal, _REMEMBERED_KIND + 1)


def encode_remembered(remembered: RememberedEnd) -> bytes:
    """Encode a remembered end. Its identity is in its key."""
    return _REMEMBERED.pack(_VERSION, remembered.first_offset)


def decode_remembered(key: bytes, value: bytes) -> RememberedEnd:
    """Decode a remembered end. Raises UnknownRow."""
    _check_version(value)
    _ordinal, _kind, *identity = _REMEMBERED_KEY.unpack(key)
    return RememberedEnd(EndIdentity(*identity), _REMEMBERED.unpack(value)[1])


def _check_version(value: bytes) -> None:
    check_version(value[0], _VERSION, "a stored value")
