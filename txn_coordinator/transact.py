"""What a Transact needs besides what every other request needs.

Source: design 6 (`Transact`); decision 11.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

from msgspec import Struct

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_runtime.ports import CallContext, PartitionName, PartitionRef
from coordinator_runtime.transact import NO_OFFSET, PlacedBatches, TransactedPartitions
from txn_coordinator.outcomes import Ended, Transacted
from txn_coordinator.requests import Transact

_ordinal = attrgetter("ordinal")


class TransactResult(Struct, frozen=True):
    """The outcome is durable."""

    ended: Ended
    first_offsets: Sequence[tuple[PartitionRef | PartitionName, int]]
    """The partition of each batch, and the offset of the transaction's first record there. A mere name: the partition
    does not exist any more, and the request is a repetition."""


def transact_result(
    transacted: Transacted, command: Transact, placed: PlacedBatches, partitions: TransactedPartitions
) -> TransactResult:
    """The reply with the place of each batch; for a repetition the log finds it."""
    ended, first_offsets = transacted.ended, transacted.first_offsets
    if first_offsets is None:
        find, producer_id = partitions.first_offset, command.identity.producer_id
        first_offsets = [find(write.ordinal, producer_id, command.outcome, ended.csn) for write in placed.partitions]
    if len(placed.targets) != len(first_offsets):
        # Batches that share a partition, or have none.
        begins = dict(zip(map(_ordinal, placed.partitions), first_offsets, strict=True))
        first_offsets = [
            begins[target.ordinal] if isinstance(target, PartitionRef) else NO_OFFSET for target in placed.targets
        ]
    return TransactResult(ended, list(zip(placed.targets, first_offsets, strict=True)))


def check_context(context: CallContext) -> None:
    """Return only for a caller who can send a Transact. Raises Refused UNSUPPORTED_VERSION, INVALID_REQUEST."""
    if context.client_txn_version < 2:
        raise Refused(
            ErrorCode.UNSUPPORTED_VERSION,
            "Transact is for clients of version 2, whose every transaction has an epoch of its own: leave "
            "client_txn_version out, or use AddPartitionsToTxn, Produce and EndTxn",
        )
    if not context.request_id:
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            "Transact needs a request_id, so that it can be repeated when its answer is lost: send 16 random bytes, "
            "the same for every attempt",
        )
