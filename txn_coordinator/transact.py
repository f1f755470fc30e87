"""Transact: a whole transaction in one request, authorised, placed with those who take part in it, and ended.

Source: design 6 (`Transact`); decision 11.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter

from msgspec import Struct

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.marker import Outcome
from coordinator_protocol.names import check_transactional_id
from coordinator_runtime.authorization import require
from coordinator_runtime.checks import write_checked
from coordinator_runtime.decision import Operation, ShardKey, TransactionInTheWay
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import (
    Authorizer,
    CallContext,
    Membership,
    PartitionName,
    PartitionRef,
    Permission,
    ResourceType,
)
from coordinator_runtime.requests import ClientBatch, GroupOffsets
from coordinator_runtime.runtime import Runtime
from coordinator_runtime.transact import NO_OFFSET, PlacedBatches, TransactedOffsets, TransactedPartitions
from txn_coordinator.outcomes import Contribution, Ended, Transacted
from txn_coordinator.rules import Additions, TransactRequest
from txn_coordinator.shard import PlacedTransact
from txn_coordinator.state import Identity

_ordinal = attrgetter("ordinal")
_group_id = attrgetter("group_id")


class Transact(Struct, frozen=True):
    """A whole transaction in one request."""

    transactional_id: str
    identity: Identity
    outcome: Outcome
    batches: Sequence[ClientBatch] = ()
    groups: Sequence[GroupOffsets] = ()


class TransactResult(Struct, frozen=True):
    """The outcome is durable."""

    ended: Ended
    first_offsets: Sequence[tuple[PartitionRef | PartitionName, int]]
    """For each batch its partition and the offset of the transaction's first record there. A mere name: the partition
    does not exist any more, and the request is a repetition."""


@dataclass(frozen=True, slots=True)
class TransactParts:
    """Who writes what a Transact brings."""

    partitions: TransactedPartitions
    offsets: TransactedOffsets


class TransactService:
    """The one use case."""

    def __init__(
        self,
        runtime: Runtime,
        shard_of_id: Callable[[str], ShardKey],
        parts: TransactParts,
        authorizer: Authorizer,
    ) -> None:
        self._runtime = runtime
        self._shard_of_id = shard_of_id
        self._parts = parts
        self._authorizer = authorizer

    def transact(self, command: Transact, context: CallContext) -> Pending[TransactResult]:
        """The transaction has ended as asked, with all that it brings, or nothing has happened.

        Raises Refused, also for what a participant would not take."""
        transactional_id, identity = command.transactional_id, command.identity
        require(self._authorizer, context, Permission.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id)
        check_transactional_id(transactional_id)
        _check_context(context)
        membership = Membership(transactional_id, identity.producer_id, identity.producer_epoch)
        placed = self._parts.partitions.place(command.batches, membership, context)
        groups = self._parts.offsets.place(command.groups, membership, context) if command.groups else ()
        additions = Additions(
            partitions=frozenset(map(_ordinal, placed.partitions)), groups=frozenset(map(_group_id, groups))
        )
        request = TransactRequest(transactional_id, identity, command.outcome, context.request_id, additions)
        transact = PlacedTransact(request, Contribution(placed.partitions, groups), placed.refusal)
        operation = Operation(
            self._shard_of_id(transactional_id), lambda shard, turn: shard.decide_transact(transact, turn)
        )
        park_key = TransactionInTheWay(transactional_id)
        written: Pending[Transacted] = write_checked(
            self._runtime, operation, context, check=placed.check, park_key=park_key
        )
        return written.map(lambda transacted: self._result(transacted, command, placed))

    def _result(self, transacted: Transacted, command: Transact, placed: PlacedBatches) -> TransactResult:
        ended, first_offsets = transacted.ended, transacted.first_offsets
        if first_offsets is None:
            find, producer_id = self._parts.partitions.first_offset, command.identity.producer_id
            first_offsets = [
                find(write.ordinal, producer_id, command.outcome, ended.csn) for write in placed.partitions
            ]
        if len(placed.targets) != len(first_offsets):
            # Batches that share a partition, or have none.
            begins = dict(zip(map(_ordinal, placed.partitions), first_offsets, strict=True))
            first_offsets = [
                begins[target.ordinal] if isinstance(target, PartitionRef) else NO_OFFSET for target in placed.targets
            ]
        return TransactResult(ended, list(zip(placed.targets, first_offsets, strict=True)))


def _check_context(context: CallContext) -> None:
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
