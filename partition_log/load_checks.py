"""Checks of a partition's rows before it is served. This program must know all rows that matter, and no family may
have lost the end of its rows below RocksDB.

RocksDB keeps each family in files of its own. If the files of a store were damaged or mixed with older ones, its
families may date from different moments. Decision 20 describes what RocksDB and the durable mark notice of that; these
checks need neither. They look at the last rows only, one seek each, because every load makes them. `store verify` looks
at everything.

Source: docs/store-format.md, "Checks of a start and a load".
"""

from __future__ import annotations

from typing import Final

from coordinator_runtime.store import Family, StoreReads, StoreUnreadable
from coordinator_runtime.unknown_rows import IGNORABLE_FROM, pass_over
from partition_log.state import PartitionHead

_OFFSET_BYTES: Final = 8
"""Size of the last offset, with which keys of LOG and of STRETCHES end."""


UNKNOWN_KINDS_FROM: Final = {Family.PARTITIONS: 4, Family.PRODUCERS: 2}
"""First kind byte behind the ordinal that this program does not know, by family. Kinds from `IGNORABLE_FROM` on may be
ignored. `codec`, `epoch_rows`, `forgotten_rows` and `compaction_rows` have the known ones."""


class RowsMissing(Exception):
    """Error for families of one store that disagree: one of them has lost rows. Their shard must not be served."""


def check_kinds(store: StoreReads, prefix: bytes) -> None:
    """Return only if this program knows every row of a partition that matters. The partition's keys begin with the
    prefix. Raises UnknownRow."""
    for family, unknown_from in UNKNOWN_KINDS_FROM.items():
        rows = store.scan(family, prefix + bytes([unknown_from]), prefix + bytes([IGNORABLE_FROM]))
        for key, _value in rows:
            ordinal = int.from_bytes(prefix, "big")
            pass_over(key[len(prefix)], f"a row in {family.name} of the partition with ordinal {ordinal}")


def check_partition(store: StoreReads, prefix: bytes, head: PartitionHead) -> None:
    """Return only if the last rows of a partition, whose keys begin with the prefix, fit its head. Rows that cannot be
    read are left to later reads, which report them. Raises RowsMissing."""
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
    """Describe the mismatch between a head and the ends of the partition's rows in LOG and in STRETCHES; None if they
    agree. Rows before the log start may be there or not."""
    start, end, unfinished = head.log_start_offset, head.log_end_offset, head.index.first_offset
    if logged_to != end and not (logged_to < end == start):
        return f"its log ends at {end}, and its rows in LOG at {logged_to}"
    if finished_to != unfinished and not (finished_to < unfinished <= start):
        return f"its finished stretches end at {unfinished}, and their rows in STRETCHES at {finished_to}"
    return None


def _end_of(last_key: bytes | None) -> int:
    """Return the offset behind a last row; 0 if there is none."""
    return 0 if last_key is None else int.from_bytes(last_key[-_OFFSET_BYTES:], "big") + 1
