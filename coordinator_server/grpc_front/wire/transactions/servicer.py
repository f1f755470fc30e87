"""TransactionService on the wire: maps messages to commands, calls the use case, and maps its answer to a message. It
checks and decides nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Final, TypeAlias, TypeVar

from coordinator_api.v1 import log_pb2, transaction_pb2
from coordinator_protocol.errors import CoordinatorError, ErrorCode, Refused
from coordinator_protocol.methods import Method
from coordinator_runtime.pending import Pending, failed, settled
from coordinator_runtime.ports import CallContext, PartitionName, PartitionRef
from coordinator_runtime.transact import PartRefused
from coordinator_server.addresses import NodeAddress
from coordinator_server.grpc_front.wire.edge import (
    OnFastPath,
    error_response,
    outcome_of,
    set_error,
    set_item_error,
    topic_partitions,
    unchecked_names,
)
from coordinator_server.grpc_front.wire.groups.committed import transacted_offsets
from coordinator_server.grpc_front.wire.groups.share_records import transacted_shares
from coordinator_server.grpc_front.wire.log.servicer import client_batch, fast_batches
from txn_coordinator import requests
from txn_coordinator.outcomes import Ended
from txn_coordinator.reading import TransactionReader
from txn_coordinator.service import TransactionService, TransactResult
from txn_coordinator.shard import Initialised
from txn_coordinator.state import NO_EPOCH, NO_PRODUCER_ID, Identity, TransactionState

_UNDECIDED = (TransactionState.EMPTY, TransactionState.ONGOING)
_FORGOTTEN = "Dead"
"""Kafka's name for an expired id. No id is ever in this state here: it marks the end of a history."""

_AddRequest: TypeAlias = transaction_pb2.AddPartitionsToTxnRequest | transaction_pb2.AddPartitionsToTxnTransaction
_AddResponseT = TypeVar(
    "_AddResponseT", transaction_pb2.AddPartitionsToTxnResponse, transaction_pb2.AddPartitionsToTxnTransactionResult
)


class TransactionServicer:
    """One method per RPC. Errors of a whole call are raised or carried by the Pending; the dispatcher answers them."""

    def __init__(
        self,
        service: TransactionService,
        reader: TransactionReader,
        address: NodeAddress,
        others: Callable[[], Sequence[NodeAddress]] = list,
    ) -> None:
        """`others` returns the servers that wait for the store of this one, at `address`."""
        self._service = service
        self._reader = reader
        self._address = address
        self._others = others

    def FindCoordinator(
        self, request: transaction_pb2.FindCoordinatorRequest, context: CallContext
    ) -> Pending[transaction_pb2.FindCoordinatorResponse]:
        # This node serves all keys.
        address, response = self._address, transaction_pb2.FindCoordinatorResponse()
        for located in self._reader.locate(request.key_type, request.keys, context):
            message = response.coordinators.add(key=located.key)
            if located.error is not None:
                set_error(message, Method.FIND_COORDINATOR, located.error)
            else:
                message.node_id, message.host, message.port = address.node_id, address.host, address.port
                message.coordinator_shard = located.shard
        for each in (address, *self._others()):
            response.servers.add(node_id=each.node_id, host=each.host, port=each.port)
        return settled(response)

    def InitProducerId(
        self, request: transaction_pb2.InitProducerIdRequest, context: CallContext
    ) -> Pending[transaction_pb2.InitProducerIdResponse]:
        # Absent and -1 mean the same, as in Kafka.
        producer_id = request.expected_producer_id if request.HasField("expected_producer_id") else NO_PRODUCER_ID
        epoch = request.expected_producer_epoch if request.HasField("expected_producer_epoch") else NO_EPOCH
        is_expected = producer_id != NO_PRODUCER_ID or epoch != NO_EPOCH
        command = requests.InitProducerId(
            transactional_id=request.transactional_id if request.HasField("transactional_id") else None,
            transaction_timeout_ms=request.transaction_timeout_ms,
            expected=Identity(producer_id, epoch) if is_expected else None,
            enable_2pc=request.enable_2pc,
            keep_prepared=request.keep_prepared,
        )
        return self._service.init_producer_id(command, context).map(_initialised)

    def AddPartitionsToTxn(
        self, request: transaction_pb2.AddPartitionsToTxnRequest, context: CallContext
    ) -> Pending[transaction_pb2.AddPartitionsToTxnResponse]:
        if not request.transactions:
            added = self._service.add_partitions(_add_partitions(request), context)
            return added.map(partial(_fill_added, transaction_pb2.AddPartitionsToTxnResponse()))
        is_mixed = bool(request.transactional_id or request.producer_id or request.producer_epoch or request.topics)
        batch = requests.AddPartitionsBatch([_add_partitions(member) for member in request.transactions], is_mixed)
        return self._service.add_partitions_batch(batch, context).map(partial(_added_batch, request))

    def AddOffsetsToTxn(
        self, request: transaction_pb2.AddOffsetsToTxnRequest, context: CallContext
    ) -> Pending[transaction_pb2.AddOffsetsToTxnResponse]:
        command = requests.AddOffsets(
            transactional_id=request.transactional_id,
            identity=Identity(request.producer_id, request.producer_epoch),
            group_id=request.group_id,
        )
        added = self._service.add_offsets(command, context)
        return added.map(lambda _added: transaction_pb2.AddOffsetsToTxnResponse())

    def PrepareTransaction(
        self, request: transaction_pb2.PrepareTransactionRequest, context: CallContext
    ) -> Pending[transaction_pb2.PrepareTransactionResponse]:
        command = requests.PrepareTransaction(
            transactional_id=request.transactional_id,
            identity=Identity(request.producer_id, request.producer_epoch),
            last_sequences=last_sequences(request.last_sequences) if request.last_sequences else (),
        )
        return self._service.prepare_transaction(command, context).map(
            lambda noted: transaction_pb2.PrepareTransactionResponse(
                ongoing_producer_id=noted.producer_id, ongoing_producer_epoch=noted.producer_epoch
            )
        )

    def EndTxn(
        self, request: transaction_pb2.EndTxnRequest, context: CallContext
    ) -> Pending[transaction_pb2.EndTxnResponse]:
        command = requests.EndTxn(
            transactional_id=request.transactional_id,
            identity=Identity(request.producer_id, request.producer_epoch),
            outcome=outcome_of(request),
            last_sequences=last_sequences(request.last_sequences) if request.last_sequences else (),
        )
        return self._service.end_txn(command, context).map(partial(end_response, context))

    def Transact(
        self, request: transaction_pb2.TransactRequest, context: CallContext
    ) -> Pending[transaction_pb2.TransactResponse]:
        try:
            ended = self._service.transact(transact_command(request), context)
        except Refused as refusal:
            ended = failed(refusal)
        return ended.map(transact_response, partial(transact_refused, request))

    def DescribeTransactions(
        self, request: transaction_pb2.DescribeTransactionsRequest, context: CallContext
    ) -> Pending[transaction_pb2.DescribeTransactionsResponse]:
        described = self._reader.describe(request.transactional_ids, context, history_limit=request.history_limit)
        return described.map(
            lambda found: transaction_pb2.DescribeTransactionsResponse(transactions=map(description, found))
        )

    def ListTransactions(
        self, request: transaction_pb2.ListTransactionsRequest, context: CallContext
    ) -> Pending[transaction_pb2.ListTransactionsResponse]:
        wanted = requests.TransactionFilter(
            states=request.state_filters,
            producer_ids=request.producer_id_filters,
            open_longer_than_ms=request.duration_ms if request.HasField("duration_ms") else -1,
            id_pattern=request.transactional_id_pattern,
            limit=request.limit,
            skip=request.skip,
        )
        if request.limit or request.skip:
            return self._reader.list_limited(wanted, context).map(_listed)
        return settled(_listed(self._reader.list(wanted, context)))


class FastTransact(OnFastPath):
    """Whole transactions in one call, on the fast path."""

    method: Final = Method.TRANSACT

    def take(self, request: transaction_pb2.TransactRequest, context: CallContext) -> bytes | None:
        """Return the answer to a call of the common shape, else None. Raises Refused for an invalid partition or
        offset."""
        if not request.committed or request.shares:
            return None
        batches = fast_batches(request.batches)
        if batches is None:
            return None
        groups = [transacted_offsets(group) for group in request.groups] if request.groups else ()
        identity = (request.producer_id, request.producer_epoch)
        taken = self._fast_path.transact(request.transactional_id, identity, batches, groups, context)
        if taken is None:
            return None
        after, first_offsets = taken
        response = transaction_pb2.TransactResponse()
        response.producer_id, response.producer_epoch = after.producer_id, after.producer_epoch
        response.csn = after.csn
        fill_results(response, first_offsets)
        return response.SerializeToString()

    def refused(
        self, request: transaction_pb2.TransactRequest, answer: bytes, error: Exception
    ) -> transaction_pb2.TransactResponse:
        return transact_refused(request, error)


class FastEnd(OnFastPath):
    """Commits of transactions whose batches came before, on the fast path."""

    method: Final = Method.END_TXN

    def take(self, request: transaction_pb2.EndTxnRequest, context: CallContext) -> bytes | None:
        """Return the answer to a call of the common shape, else None."""
        if not request.committed:
            return None
        identity = (request.producer_id, request.producer_epoch)
        sequences = last_sequences(request.last_sequences) if request.last_sequences else ()
        ended = self._fast_path.commit(request.transactional_id, identity, sequences, context)
        return None if ended is None else end_response(context, ended).SerializeToString()


class FastInit(OnFastPath):
    """New identities of producers with a transactional id, on the fast path."""

    method: Final = Method.INIT_PRODUCER_ID

    def take(self, request: transaction_pb2.InitProducerIdRequest, context: CallContext) -> bytes | None:
        """Return the answer to a call of the common shape, else None."""
        if (
            request.HasField("expected_producer_id")
            or request.HasField("expected_producer_epoch")
            or request.enable_2pc
            or request.keep_prepared
        ):
            return None
        # Neither a missing id (a plain producer) nor an empty one (refused) is for the fast path.
        identity = self._fast_path.initialise(request.transactional_id, request.transaction_timeout_ms, context)
        if identity is None:
            return None
        response = transaction_pb2.InitProducerIdResponse()
        response.producer_id, response.producer_epoch = identity
        return response.SerializeToString()


def _initialised(initialised: Initialised) -> transaction_pb2.InitProducerIdResponse:
    found, ongoing = initialised.identity, initialised.ongoing
    return transaction_pb2.InitProducerIdResponse(
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        ongoing_producer_id=None if ongoing is None else ongoing.producer_id,
        ongoing_producer_epoch=None if ongoing is None else ongoing.producer_epoch,
    )


def _add_partitions(message: _AddRequest) -> requests.AddPartitions:
    return requests.AddPartitions(
        transactional_id=message.transactional_id,
        identity=Identity(message.producer_id, message.producer_epoch),
        partitions=unchecked_names(message.topics),
        verify_only=message.verify_only,
    )


def _added_batch(
    message: transaction_pb2.AddPartitionsToTxnRequest, batch: requests.AddedBatch
) -> transaction_pb2.AddPartitionsToTxnResponse:
    response = transaction_pb2.AddPartitionsToTxnResponse()
    set_error(response, Method.ADD_PARTITIONS_TO_TXN, batch.error)
    for member, added in zip(message.transactions, batch.transactions, strict=True):
        _fill_added(response.transactions.add(transactional_id=member.transactional_id), added)
    return response


def _fill_added(response: _AddResponseT, added: requests.AddedPartitions) -> _AddResponseT:
    set_error(response, Method.ADD_PARTITIONS_TO_TXN, added.error)
    for name, error in added.results:
        result = response.results.add(topic=name.topic, topic_id=name.topic_id, partition=name.partition)
        set_item_error(result, Method.ADD_PARTITIONS_TO_TXN, error, added.error)
    return response


def last_sequences(messages: Iterable[transaction_pb2.LastSequence]) -> list[tuple[PartitionName, int]]:
    return [(PartitionName(each.topic, each.topic_id, each.partition), each.sequence) for each in messages]


def end_response(context: CallContext, ended: Ended) -> transaction_pb2.EndTxnResponse:
    """Encode the answer. Clients of version 1 keep their identity and get no new one (spec transactions 2.6)."""
    if context.client_txn_version < 2:
        return transaction_pb2.EndTxnResponse(csn=ended.csn)
    return transaction_pb2.EndTxnResponse(
        producer_id=ended.next_identity.producer_id, producer_epoch=ended.next_identity.producer_epoch, csn=ended.csn
    )


def transact_command(request: transaction_pb2.TransactRequest) -> requests.Transact:
    """Decode the request. Raises Refused for an invalid partition or offset, and without an outcome."""
    return requests.Transact(
        request.transactional_id,
        Identity(request.producer_id, request.producer_epoch),
        outcome_of(request),
        [client_batch(item) for item in request.batches],
        [transacted_offsets(group) for group in request.groups] if request.groups else (),
        [transacted_shares(group) for group in request.shares] if request.shares else (),
    )


def transact_response(result: TransactResult) -> transaction_pb2.TransactResponse:
    """Encode the answer to a Transact."""
    response = transaction_pb2.TransactResponse()
    response.producer_id, response.producer_epoch = result.ended.next_identity
    response.csn = result.ended.csn
    fill_results(response, result.first_offsets)
    return response


def fill_results(
    response: transaction_pb2.TransactResponse, first_offsets: Iterable[tuple[PartitionRef | PartitionName, int]]
) -> None:
    """Add the first offset of the transaction in each partition."""
    add = response.results.add
    for target, first_offset in first_offsets:
        # Set one by one, because keyword arguments take twice as long.
        message = add()
        message.topic = target.topic
        message.topic_id = target.topic_id
        message.partition = target.partition
        message.first_offset = first_offset


def transact_refused(request: transaction_pb2.TransactRequest, error: Exception) -> transaction_pb2.TransactResponse:
    """Encode a refusal, with the partition or group at fault if it is known. A defect is raised again."""
    if not isinstance(error, CoordinatorError):
        raise error
    response = error_response(Method.TRANSACT, transaction_pb2.TransactResponse, error)
    part = error.part if isinstance(error, PartRefused) else None
    others = error if part is None else Refused(ErrorCode.OPERATION_NOT_ATTEMPTED, "")
    for batch in request.batches:
        result = response.results.add(topic=batch.topic, topic_id=batch.topic_id, partition=batch.partition)
        set_item_error(result, Method.TRANSACT, error if _is_named(batch, part) else others, error)
    group_ids = [*(each.group_id for each in request.groups), *(each.group_id for each in request.shares)]
    for group_id in group_ids:
        told = response.group_results.add(group_id=group_id)
        set_item_error(told, Method.TRANSACT, error if group_id == part else others, error)
    return response


def _is_named(batch: log_pb2.PartitionBatch, part: PartitionRef | PartitionName | str | None) -> bool:
    """Return True if a batch is for this partition, which it may name by its topic, by its id or by both."""
    return (
        isinstance(part, PartitionRef | PartitionName)
        and batch.partition == part.partition
        and batch.topic in ("", part.topic)
        and batch.topic_id in (b"", part.topic_id)
    )


def description(described: requests.Description) -> transaction_pb2.TransactionDescription:
    transaction = described.transaction
    if transaction is None:
        message = transaction_pb2.TransactionDescription(transactional_id=described.transactional_id)
    else:
        message = transaction_pb2.TransactionDescription(
            transactional_id=described.transactional_id,
            state=transaction.state.api_name,
            transaction_timeout_ms=transaction.txn_timeout_ms,
            start_ms=transaction.start_ms,
            producer_id=transaction.producer_id,
            producer_epoch=transaction.producer_epoch,
            topics=topic_partitions(described.partitions),
            groups=described.groups,
            last_update_ms=transaction.last_update_ms,
            csn=transaction.csn,
            two_phase=transaction.awaits_decision,
            age_ms=transaction.age_ms(described.now_ms),
            prepared_ms=transaction.prepared_ms,
        )
        if transaction.is_kept:
            message.client_producer_id, message.client_producer_epoch = transaction.client_identity
        for group_id, shares in groupby(described.shares, itemgetter(0)):
            message.shares.add(group_id=group_id, topics=topic_partitions([ref for _group, ref in shares]))
    set_error(message, Method.DESCRIBE_TRANSACTIONS, described.error)
    if described.history is not None:
        message.history_complete = described.history.is_complete
        message.history.extend(map(_step, described.history.steps))
    return message


def _step(step: requests.StepDescription) -> transaction_pb2.TransactionStep:
    told = transaction_pb2.TransactionStep(
        at_ms=step.at_ms, state=_FORGOTTEN, cause=step.cause, client_id=step.client_id, host=step.host
    )
    if step.after is None:
        told.producer_id, told.producer_epoch = NO_PRODUCER_ID, NO_EPOCH
        return told
    after = step.after
    told.state = after.state_name
    told.producer_id, told.producer_epoch = after.client_identity
    told.participant_count = after.participant_count
    told.csn = 0 if after.state in _UNDECIDED else after.csn
    if step.fenced is not None:
        told.fenced_producer_id, told.fenced_producer_epoch = step.fenced
    return told


def _listed(listing: requests.Listing) -> transaction_pb2.ListTransactionsResponse:
    response = transaction_pb2.ListTransactionsResponse(
        unknown_state_filters=listing.unknown_states, matching=listing.matching
    )
    for transaction in listing.transactions:
        response.transactions.add(
            transactional_id=transaction.transactional_id,
            producer_id=transaction.producer_id,
            state=transaction.state.api_name,
            start_ms=transaction.start_ms,
            producer_epoch=transaction.producer_epoch,
            age_ms=transaction.age_ms(listing.now_ms),
            two_phase=transaction.awaits_decision,
            prepared_ms=transaction.prepared_ms,
        )
    return response
