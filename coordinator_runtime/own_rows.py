"""Rows in META about the store itself, and the treatment of unknown names there.

```
format_version   u64    grows with every change that an older program would misread
shard_count      u64    fixed when the store is made
group_version    u64    of the newest commit group, in its batch
store_id         16 B   drawn when the store is made, to tell stores apart
writer           UTF-8  version of the newest program that opened the store for writing
incarnation      u32, cause u8  current incarnation (coordinator_runtime/incarnation.py); none: the first
features         UTF-8  names, separated by commas, of stored things that an older program must know
segment/..., segment_length/...   (`coordinator_runtime/rocks/segment_rows.py`)
```
Of other names, an unknown one that begins with `!` refuses the store, and any other unknown one is left alone.

A feature adds something that an older program must not overlook, without a new format number. The program that begins
to use it writes its name before the first row of its kind (`coordinator_runtime/features.py`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from coordinator_runtime.features import FEATURES_KEY as FEATURES_KEY
from coordinator_runtime.features import KNOWN_FEATURES as KNOWN_FEATURES
from coordinator_runtime.features import features_of
from coordinator_runtime.incarnation import Incarnation, incarnation_of

FORMAT_VERSION: Final = 3
"""Version of the stored format. Grows with every change that an older program would misread. 1 and 2 were never
released."""

FORMAT_VERSION_KEY: Final = b"format_version"
SHARD_COUNT_KEY: Final = b"shard_count"
GROUP_VERSION_KEY: Final = b"group_version"
STORE_ID_KEY: Final = b"store_id"
WRITER_KEY: Final = b"writer"
INCARNATION_KEY: Final = b"incarnation"

DEMAND_PREFIX: Final = b"!"
"""First byte of the names that a program must know to open the store."""

UNFINISHED_KEY: Final = b"!unfinished_copy"
"""Name of a copy that is not complete. Only the program that copies knows it, so no other opens the store."""

KNOWN_DEMANDS: Final[frozenset[bytes]] = frozenset()

_NUMBER_BYTES: Final = 8
_RELEASE: Final = re.compile(r"(?P<release>\d+(?:\.\d+)*)(?:\.post(?P<post>\d+))?")
"""Beginning of a version: the release, and the time of the commit between releases."""


@dataclass(frozen=True, slots=True)
class StoreIdentity:
    """Identity of a store, and the programs that can open it."""

    store_id: bytes
    """16 bytes, drawn when the store was made."""
    writer: str
    """Version of the newest program that opened it for writing."""
    features: tuple[str, ...]
    """Names of stored things that a program must know."""
    incarnation: Incarnation
    """Current incarnation of the store."""


def identity_in(get: Callable[[bytes], bytes | None]) -> StoreIdentity:
    """Return the identity of the store from META, read by name. Raises UnknownRow."""
    writer = (get(WRITER_KEY) or b"").decode("utf-8", "replace")
    incarnation = incarnation_of(get(INCARNATION_KEY))
    return StoreIdentity(get(STORE_ID_KEY) or b"", writer, features_of(get(FEATURES_KEY)), incarnation)


def stored_number(value: int) -> bytes:
    """Return the value of a row that holds a number."""
    return value.to_bytes(_NUMBER_BYTES, "big")


def number_of(stored: bytes | None) -> int:
    """Return the integer in such a row; 0 if there is no row."""
    return int.from_bytes(stored or b"", "big")


def unknown_demands(features: Iterable[str], names: Iterable[bytes]) -> list[str]:
    """Return descriptions of the unknown things that a store demands of its program: features, and names in META that
    begin with `!`."""
    return [
        *(f"the feature {feature!a}" for feature in features if feature not in KNOWN_FEATURES),
        *(f"the row {name.decode('utf-8', 'replace')!a} in META" for name in names if name not in KNOWN_DEMANDS),
    ]


def newer_writer(stored: str, ours: str) -> str:
    """Return the newer of two program versions; ours if neither is newer. The newest writer can read everything in a
    store."""
    return stored if _release(stored) > _release(ours) else ours


def _release(version: str) -> tuple[tuple[int, ...], int]:
    """Return the release, and the position among the builds between it and the next one."""
    found = _RELEASE.match(version)
    return ((), 0) if found is None else (tuple(map(int, found["release"].split("."))), int(found["post"] or 0))
