"""What must hold of a partition's rows before it is served: this program knows all that matters, and no family lost
rows below RocksDB, which would give itself away.

RocksDB keeps each family in files of its own, so a store whose files were damaged or mixed with older ones may have one
family at one moment and another at an earlier one. What RocksDB notices of that, and what the durable mark does, is
decision 20; these checks need neither. They look at the last rows only, one seek each, because every load makes them.
`store verify` looks at everything.

Source: docs/store-format.md, "What a load checks".
"""

from __future__ import annotations

from typing import Final

from coordinator_runtime.store import Family, Store, StoreUnreadable
from coordinator_runtime.unknown_rows import IGNORABLE_FROM, pass_over
from partition_log.state import PartitionHead

_OFFSET_BYTES: Final = 8
"""Keys of LOG and of STRETCHES end with a last offset."""


UNKNOWN_KINDS_FROM: Final = {Family.PARTITIONS: 3, Family.PRODUCERS: 2}
"""The kind bytes behind the ordinal that this program does not know begin here; those from `IGNORABLE_FROM` on may be
passed over. The known ones: `codec`, `epoch_rows` and `forgotten_rows`."""


class RowsMissing(Exception):
    """Families of one store disagree: one of them has lost rows. What they belong to must not be served."""


def check_kinds(store: Store, prefix: bytes) -> None:
    """Return only if a partition, whose keys begin with the prefix, has no row that matters and that only a newer
    program knows. Raises UnknownRow."""
    for family, unknown_from in UNKNOWN_KINDS_FROM.items():
        rows = store.scan(family, prefix + bytes([unknown_from]), prefix + bytes([IGNORABLE_FROM]))
        for key, _value in rows:
            ordinal = int.from_bytes(prefix, "big")
            pass_over(key[len(prefix)], f"a row in {family.name} of the partition with ordinal {ordinal}")


def check_partition(store: Store, prefix: bytes, head: PartitionHead) -> None:
    """Return only if the last rows of a partition, whose keys begin with the prefix, fit its head. Where they cannot be
    read, that is the business of who reads there. Raises RowsMissing."""
    try:
        last_log, last_stretch = store.last_key(Family.LOG, prefix), store.last_key(Family.STRETCHES, prefix)
    except StoreUnreadable:
        return
    what = what_is_missing(head, logged_to=_end_of(last_log), finished_to=_end_of(last_stretch))
    if what is not None:
        ordinal = int.from_bytes(prefix, "big")
        raise RowsMissing(
            f"the partition with ordinal {ordinal}: {what}. Rows are missing in a store that was whole: restore a"
            " backup; `txnctl store verify` names the partition and what else is wrong"
        )


def what_is_missing(head: PartitionHead, *, logged_to: int, finished_to: int) -> str | None:
    """What is wrong with the ends of a partition in LOG and in STRETCHES, None where they are as the head says. Rows
    before the log start may be there or not."""
    start, end, unfinished = head.log_start_offset, head.log_end_offset, head.index.first_offset
    if logged_to != end and not (logged_to < end == start):
        return f"its log ends at {end}, and its rows in LOG at {logged_to}"
    if finished_to != unfinished and not (finished_to < unfinished <= start):
        return f"its finished stretches end at {unfinished}, and their rows in STRETCHES at {finished_to}"
    return None


def _end_of(last_key: bytes | None) -> int:
    """The offset behind a last row; 0 where there is none."""
    return 0 if last_key is None else int.from_bytes(last_key[-_OFFSET_BYTES:], "big") + 1
