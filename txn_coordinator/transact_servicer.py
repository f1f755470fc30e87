"""Transact on the wire: a whole transaction in one request. Map in, authorise, call the use case, map out."""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter
from typing import Final

from coordinator_api.v1 import transaction_pb2
from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.marker import Outcome
from coordinator_protocol.names import check_transactional_id
from coordinator_runtime.authorization import require
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import Authorizer, CallContext, Membership, PartitionRef, Permission, ResourceType
from coordinator_runtime.transact import NO_OFFSET, PlacedBatches, TransactedOffsets, TransactedPartitions
from txn_coordinator import edge
from txn_coordinator.outcomes import Contribution, Transacted
from txn_coordinator.rules import Additions, TransactRequest
from txn_coordinator.service import TransactionService
from txn_coordinator.shard import Transact

# By names of their own: to find a member in its class takes 0.1 us.
_COMMIT: Final = Outcome.COMMIT
_ABORT: Final = Outcome.ABORT
_WRITE: Final = Permission.WRITE
_TRANSACTIONAL_ID: Final = ResourceType.TRANSACTIONAL_ID

_ordinal = attrgetter("ordinal")
_group_id = attrgetter("group_id")


@dataclass(frozen=True, slots=True)
class TransactParts:
    """Who writes what a Transact brings."""

    partitions: TransactedPartitions
    offsets: TransactedOffsets


class TransactServicer:
    """The one method, as in `servicer`."""

    def __init__(self, service: TransactionService, parts: TransactParts, authorizer: Authorizer) -> None:
        self._service = service
        self._parts = parts
        self._authorizer = authorizer

    def Transact(
        self, request: transaction_pb2.TransactRequest, context: CallContext
    ) -> Pending[transaction_pb2.TransactResponse]:
        transactional_id = request.transactional_id
        require(self._authorizer, context, _WRITE, _TRANSACTIONAL_ID, transactional_id)
        check_transactional_id(transactional_id)
        _check(context)
        identity = edge.identity(request.producer_id, request.producer_epoch)
        membership = Membership(transactional_id, *identity)
        placed = self._parts.partitions.place(request.batches, membership, context)
        groups = self._parts.offsets.place(request.groups, membership, context) if request.groups else ()
        command = Transact(
            TransactRequest(
                transactional_id,
                identity,
                _COMMIT if request.committed else _ABORT,
                context.request_id,
                Additions(
                    partitions=frozenset(map(_ordinal, placed.partitions)),
                    groups=frozenset(map(_group_id, groups)),
                ),
            ),
            Contribution(placed.partitions, groups),
            placed.refusal,
        )
        return self._service.transact(command, context, check=placed.check).map(
            lambda transacted: self._response(transacted, command.request, placed)
        )

    def _response(
        self, transacted: Transacted, request: TransactRequest, placed: PlacedBatches
    ) -> transaction_pb2.TransactResponse:
        ended, first_offsets = transacted.ended, transacted.first_offsets
        if first_offsets is None:
            find = self._parts.partitions.first_offset
            producer_id, outcome, csn = request.identity.producer_id, request.outcome, ended.csn
            first_offsets = [find(write.ordinal, producer_id, outcome, csn) for write in placed.partitions]
        if len(placed.targets) != len(first_offsets):
            # Batches that share a partition, or have none.
            begins = dict(zip(map(_ordinal, placed.partitions), first_offsets, strict=True))
            first_offsets = [
                begins[target.ordinal] if isinstance(target, PartitionRef) else NO_OFFSET for target in placed.targets
            ]
        response = transaction_pb2.TransactResponse()
        response.producer_id, response.producer_epoch = ended.next_identity
        response.csn = ended.csn
        add = response.results.add
        for target, first_offset in zip(placed.targets, first_offsets, strict=True):
            # Set one by one: by keywords it takes twice as long.
            result = add()
            result.topic = target.topic
            result.topic_id = target.topic_id
            result.partition = target.partition
            result.first_offset = first_offset
        return response


def _check(context: CallContext) -> None:
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
