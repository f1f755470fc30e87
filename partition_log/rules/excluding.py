"""Rule for the transactions that a snapshot of a partition hides."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.snapshots import OpenedExclusions
from coordinator_runtime.ports import UnfinishedTransaction
from partition_log.state import (
    NO_OFFSET,
    ForgottenProducers,
    ProducerEntry,
)


def exclusions(
    opened: Mapping[int, int],
    unfinished: Iterable[UnfinishedTransaction],
    entry_of: Callable[[int], ProducerEntry | None],
    log_start_offset: int,
    forgotten: ForgottenProducers,
) -> Mapping[int, int]:
    """Return the exclusions of a snapshot in one partition: by producer id, the first offset of its excluded
    transaction. A transaction is excluded if it is open there, or has its marker there and is not finished elsewhere.
    The log start stands in for a first offset that is no longer known. All arguments are one reading of durable state.
    `opened`: producer ids by first offset; the answer keeps it.

    Raises Refused COORDINATOR_LOAD_IN_PROGRESS where the partition may have forgotten a producer whose transaction is
    not finished elsewhere. Excluding everything of that producer would hide its earlier transactions, and excluding
    nothing might show this one in part. Source: spec log-and-runtime 2.4, Algorithm S, step 3."""
    marked: dict[int, int] = {}
    for each in unfinished:
        entry = entry_of(each.producer_id)
        if entry is None:
            # Forgotten with its marker, or never here. Everything that such a producer wrote is in this transaction.
            if each.writes_once:
                marked.setdefault(each.producer_id, log_start_offset)
            elif each.csn <= forgotten.csn_of(each.coordinator_shard):
                raise Refused(
                    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                    f"the transaction of producer id {each.producer_id} has been decided for longer than a partition "
                    "remembers producers, and is not finished everywhere: try again, or load the shards it waits for",
                )
            continue
        last = entry.last_marker
        is_this = last is not None and (entry.coordinator_shard, last.csn) == (each.coordinator_shard, each.csn)
        if last is not None and is_this and last.first_offset != NO_OFFSET:
            marked.setdefault(each.producer_id, last.first_offset)
    if not marked:
        return OpenedExclusions(opened)
    # A producer may have both. Its open transaction counts then.
    return marked | dict(zip(opened.values(), opened, strict=True))
