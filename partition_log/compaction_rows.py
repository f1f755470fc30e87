"""Row of a partition's compaction: how far it is, and when the passes ended that tombstones depend on.

```
PARTITIONS  ordinal u32, kind u8 (3)  ->  version u8, clean to i64, end of the pass i64, its position i64, passes u8;
                                          then of each finished pass: end i64, wall time i64
```
There is none before the first pass.
"""

from __future__ import annotations

import struct
from typing import Final

from coordinator_runtime.unknown_rows import check_version
from partition_log.state import NOT_COMPACTED, Compaction, FinishedPass

_KIND: Final = 3
_VERSION: Final = 1
_KEY: Final = struct.Struct(">IB")
_FIXED: Final = struct.Struct(">BqqqB")
_PASS: Final = struct.Struct(">qq")


def compaction_key(ordinal: int) -> bytes:
    """Return the key of a partition's compaction."""
    return _KEY.pack(ordinal, _KIND)


def encode_compaction(compaction: Compaction) -> bytes:
    """Encode the state of a compaction."""
    passes = compaction.finished
    fixed = _FIXED.pack(_VERSION, compaction.clean_to, compaction.end_offset, compaction.position, len(passes))
    return fixed + b"".join(_PASS.pack(each.end_offset, each.finished_ms) for each in passes)


def decode_compaction(value: bytes | None) -> Compaction:
    """Decode the state of a compaction; None stands for no row. Raises UnknownRow."""
    if value is None:
        return NOT_COMPACTED
    check_version(value[0], _VERSION, "the row of a compaction")
    _version, clean_to, end_offset, position, count = _FIXED.unpack_from(value)
    passes = (_PASS.unpack_from(value, _FIXED.size + at * _PASS.size) for at in range(count))
    return Compaction(clean_to, end_offset, position, tuple(FinishedPass(*each) for each in passes))
