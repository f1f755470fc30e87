"""Every kind of stored row that this program knows, with its name in docs/store-format.md.

`coordinator_runtime/unknown_rows.py` defines the treatment of other rows. A test compares the page with this table.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from coordinator_runtime import own_rows
from coordinator_runtime.decision import Coordinator
from coordinator_runtime.rocks.segment_rows import LENGTH_PREFIX, NAMED_PREFIX
from coordinator_runtime.rows import SHARD_EPOCH_TYPE
from coordinator_runtime.store import Family
from coordinator_runtime.unknown_rows import IGNORABLE_FROM
from group_coordinator import codec as group_types
from group_coordinator.share_partitions.codec import SHARE_PARTITION
from partition_log.catalog.codec import ACL_TYPE, ACL_VERSION_TYPE, ORDINAL_ALLOCATOR_TYPE, TOPIC_TYPE
from txn_coordinator.codec import (
    CSN_TYPE,
    PLAIN_PRODUCER_ID_BLOCK_TYPE,
    PRODUCER_ID_BLOCK_TYPE,
    SINK_TYPE,
    TRANSACTION_TYPE,
)

_STATE_KEY: Final = struct.Struct(">BHB")
_KIND_AT: Final = 4
"""Position of the kind byte in keys that have one: after the ordinal."""

RECORD_TYPES: Final = {
    Coordinator.CATALOG: {
        TOPIC_TYPE: "TOPIC",
        ORDINAL_ALLOCATOR_TYPE: "ORDINAL_ALLOCATOR",
        ACL_TYPE: "ACL",
        ACL_VERSION_TYPE: "ACL_VERSION",
    },
    Coordinator.COUNTERS: {
        PRODUCER_ID_BLOCK_TYPE: "PRODUCER_ID_BLOCK",
        CSN_TYPE: "CSN",
        PLAIN_PRODUCER_ID_BLOCK_TYPE: "PLAIN_PRODUCER_ID_BLOCK",
    },
    Coordinator.TRANSACTIONS: {
        SHARD_EPOCH_TYPE: "SHARD_EPOCH",
        TRANSACTION_TYPE: "TRANSACTION",
        SINK_TYPE: "SINK",
    },
    Coordinator.GROUPS: {SHARD_EPOCH_TYPE: "SHARD_EPOCH"}
    | {
        number: name
        for name, number in vars(group_types).items()
        if isinstance(number, int) and number != group_types.GROUP_ADMINISTERED
    },
    Coordinator.SHARE_PARTITIONS: {SHARE_PARTITION: "SHARE_PARTITION"},
}
"""Names of the record types in COORDINATOR_STATE."""

KINDS_BY_BYTE: Final = {
    Family.PARTITIONS: {0: "head", 1: "leader epoch", 2: "forgotten csn", 3: "compaction"},
    Family.PRODUCERS: {0: "producer", 1: "remembered end"},
}
"""Names of the kinds of rows in families whose keys have a kind byte."""

META_NAMES: Final = {
    own_rows.FORMAT_VERSION_KEY: "format_version",
    own_rows.SHARD_COUNT_KEY: "shard_count",
    own_rows.GROUP_VERSION_KEY: "group_version",
    own_rows.STORE_ID_KEY: "store_id",
    own_rows.WRITER_KEY: "writer",
    own_rows.FEATURES_KEY: "features",
    own_rows.INCARNATION_KEY: "incarnation",
    NAMED_PREFIX: "segment/",
    LENGTH_PREFIX: "segment_length/",
}
"""Names in META. The last two are prefixes that numbers follow."""


@dataclass(frozen=True, slots=True)
class RowKind:
    """One kind of row."""

    family: Family
    name: str


def kind_of(family: Family, key: bytes) -> RowKind | None:
    """Return the kind of a row; None for one that this program does not know."""
    name: str | None = family.name
    if family is Family.META:
        name = next((name for start, name in META_NAMES.items() if _is_named(key, start)), None)
    elif family is Family.COORDINATOR_STATE:
        coordinator, _shard, record_type = _STATE_KEY.unpack_from(key)
        name = RECORD_TYPES.get(coordinator, {}).get(record_type)
    elif family in KINDS_BY_BYTE:
        name = KINDS_BY_BYTE[family].get(key[_KIND_AT])
    return None if name is None else RowKind(family, name)


def is_needed(family: Family, key: bytes) -> bool:
    """True if the number of an unknown kind of row says that it must not be ignored."""
    if family is Family.META:
        return key.startswith(own_rows.DEMAND_PREFIX)
    number = key[_STATE_KEY.size - 1] if family is Family.COORDINATOR_STATE else key[_KIND_AT]
    return number < IGNORABLE_FROM


def _is_named(key: bytes, name: bytes) -> bool:
    return key.startswith(name) if name.endswith(b"/") else key == name


KINDS: Final = frozenset(
    RowKind(family, name)
    for family, names in [
        *((family, names.values()) for family, names in KINDS_BY_BYTE.items()),
        *((Family.COORDINATOR_STATE, names.values()) for names in RECORD_TYPES.values()),
        (Family.META, META_NAMES.values()),
        *((family, [family.name]) for family in (Family.LOG, Family.STRETCHES, Family.ABORTED, Family.HISTORY)),
    ]
    for name in names
)
"""All kinds of rows in all families."""
