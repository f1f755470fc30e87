"""The edge of TransactionService: its messages to commands and values, and back. Nothing is checked here."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from coordinator_api.v1 import log_pb2, transaction_pb2
from coordinator_protocol.errors import CoordinatorError, ErrorCode, Method, Refused
from coordinator_protocol.marker import Outcome
from coordinator_runtime.ports import CallContext, PartitionName, PartitionRef
from coordinator_runtime.transact import PartRefused
from coordinator_server.wire.edge import error_response, set_error, topic_partitions, unchecked_names
from coordinator_server.wire.groups.committed import transacted_offsets
from coordinator_server.wire.log.edge import client_batch
from txn_coordinator.outcomes import Ended
from txn_coordinator.requests import (
    AddedBatch,
    AddedPartitions,
    AddOffsets,
    AddPartitions,
    AddPartitionsBatch,
    Description,
    EndTxn,
    History,
    InitProducerId,
    Listing,
    Located,
    PrepareTransaction,
    Step,
    Transact,
    TransactionFilter,
)
from txn_coordinator.service import TransactResult
from txn_coordinator.shard import Initialised
from txn_coordinator.state import NO_EPOCH, NO_PRODUCER_ID, Identity, Transaction, TransactionState

_UNDECIDED = (TransactionState.EMPTY, TransactionState.ONGOING)
_FORGOTTEN = "Dead"
"""Kafka's name for an id that expired. Nothing is ever in this state here: it is the end of a history."""

_AddRequest: TypeAlias = transaction_pb2.AddPartitionsToTxnRequest | transaction_pb2.AddPartitionsToTxnTransaction
_AddResponse: TypeAlias = (
    transaction_pb2.AddPartitionsToTxnResponse | transaction_pb2.AddPartitionsToTxnTransactionResult
)


def located_response(
    found: Iterable[Located], node_id: int, host: str, port: int
) -> transaction_pb2.FindCoordinatorResponse:
    """All keys are with this node."""
    response = transaction_pb2.FindCoordinatorResponse()
    for located in found:
        message = response.coordinators.add(key=located.key)
        if located.error is not None:
            set_error(message, Method.FIND_COORDINATOR, located.error)
        else:
            message.node_id, message.host, message.port = node_id, host, port
            message.shard = located.shard
    return response


def init_producer_id(message: transaction_pb2.InitProducerIdRequest) -> InitProducerId:
    # Absent and -1 mean the same, as in Kafka.
    producer_id = message.expected_producer_id if message.HasField("expected_producer_id") else NO_PRODUCER_ID
    epoch = message.expected_producer_epoch if message.HasField("expected_producer_epoch") else NO_EPOCH
    is_expected = producer_id != NO_PRODUCER_ID or epoch != NO_EPOCH
    return InitProducerId(
        transactional_id=message.transactional_id if message.HasField("transactional_id") else None,
        transaction_timeout_ms=message.transaction_timeout_ms,
        expected=Identity(producer_id, epoch) if is_expected else None,
        enable_2pc=message.enable_2pc,
        keep_prepared=message.keep_prepared,
    )


def init_response(initialised: Initialised) -> transaction_pb2.InitProducerIdResponse:
    found, ongoing = initialised.identity, initialised.ongoing
    return transaction_pb2.InitProducerIdResponse(
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        ongoing_producer_id=None if ongoing is None else ongoing.producer_id,
        ongoing_producer_epoch=None if ongoing is None else ongoing.producer_epoch,
    )


def add_partitions(message: _AddRequest) -> AddPartitions:
    return AddPartitions(
        transactional_id=message.transactional_id,
        identity=Identity(message.producer_id, message.producer_epoch),
        partitions=unchecked_names(message.topics),
        verify_only=message.verify_only,
    )


def add_partitions_batch(message: transaction_pb2.AddPartitionsToTxnRequest) -> AddPartitionsBatch:
    is_mixed = bool(message.transactional_id or message.producer_id or message.producer_epoch or message.topics)
    return AddPartitionsBatch([add_partitions(member) for member in message.transactions], is_mixed)


def added_response(added: AddedPartitions) -> transaction_pb2.AddPartitionsToTxnResponse:
    response = transaction_pb2.AddPartitionsToTxnResponse()
    _fill_added(response, added)
    return response


def added_batch_response(
    message: transaction_pb2.AddPartitionsToTxnRequest, batch: AddedBatch
) -> transaction_pb2.AddPartitionsToTxnResponse:
    response = transaction_pb2.AddPartitionsToTxnResponse()
    if batch.error is not None:
        set_error(response, Method.ADD_PARTITIONS_TO_TXN, batch.error)
    for member, added in zip(message.transactions, batch.transactions, strict=True):
        _fill_added(response.transactions.add(transactional_id=member.transactional_id), added)
    return response


def _fill_added(response: _AddResponse, added: AddedPartitions) -> None:
    if added.error is not None:
        set_error(response, Method.ADD_PARTITIONS_TO_TXN, added.error)
    for name, error in added.results:
        result = response.results.add(topic=name.topic, topic_id=name.topic_id, partition=name.partition)
        if error is not None:
            set_error(result, Method.ADD_PARTITIONS_TO_TXN, error)


def add_offsets(message: transaction_pb2.AddOffsetsToTxnRequest) -> AddOffsets:
    return AddOffsets(
        transactional_id=message.transactional_id,
        identity=Identity(message.producer_id, message.producer_epoch),
        group_id=message.group_id,
    )


def prepare_transaction(message: transaction_pb2.PrepareTransactionRequest) -> PrepareTransaction:
    return PrepareTransaction(
        transactional_id=message.transactional_id,
        identity=Identity(message.producer_id, message.producer_epoch),
        last_sequences=_last_sequences(message.last_sequences) if message.last_sequences else (),
    )


def prepared_response(noted: Identity) -> transaction_pb2.PrepareTransactionResponse:
    return transaction_pb2.PrepareTransactionResponse(
        ongoing_producer_id=noted.producer_id, ongoing_producer_epoch=noted.producer_epoch
    )


def end_txn(message: transaction_pb2.EndTxnRequest) -> EndTxn:
    return EndTxn(
        transactional_id=message.transactional_id,
        identity=Identity(message.producer_id, message.producer_epoch),
        outcome=Outcome.COMMIT if message.committed else Outcome.ABORT,
        last_sequences=_last_sequences(message.last_sequences) if message.last_sequences else (),
    )


def _last_sequences(messages: Iterable[transaction_pb2.LastSequence]) -> list[tuple[PartitionName, int]]:
    return [(PartitionName(each.topic, each.topic_id, each.partition), each.sequence) for each in messages]


def end_response(context: CallContext, ended: Ended) -> transaction_pb2.EndTxnResponse:
    """Version 1 keeps its identity and is told none (spec transactions 2.6)."""
    if context.client_txn_version < 2:
        return transaction_pb2.EndTxnResponse(csn=ended.csn)
    return transaction_pb2.EndTxnResponse(
        producer_id=ended.next_identity.producer_id, producer_epoch=ended.next_identity.producer_epoch, csn=ended.csn
    )


def transact(message: transaction_pb2.TransactRequest) -> Transact:
    """Raises Refused INVALID_REQUEST for what can never be a partition or an offset."""
    return Transact(
        message.transactional_id,
        Identity(message.producer_id, message.producer_epoch),
        Outcome.COMMIT if message.committed else Outcome.ABORT,
        [client_batch(item) for item in message.batches],
        [transacted_offsets(group) for group in message.groups] if message.groups else (),
    )


def transact_response(result: TransactResult) -> transaction_pb2.TransactResponse:
    response = transaction_pb2.TransactResponse()
    response.producer_id, response.producer_epoch = result.ended.next_identity
    response.csn = result.ended.csn
    add = response.results.add
    for target, first_offset in result.first_offsets:
        # Set one by one: by keywords it takes twice as long.
        message = add()
        message.topic = target.topic
        message.topic_id = target.topic_id
        message.partition = target.partition
        message.first_offset = first_offset
    return response


def transact_refused(request: transaction_pb2.TransactRequest, error: Exception) -> transaction_pb2.TransactResponse:
    """Tells which partition or group is at fault, where the refusal knows. A defect stays an error."""
    if not isinstance(error, CoordinatorError):
        raise error
    response = error_response(Method.TRANSACT, transaction_pb2.TransactResponse, error)
    part = error.part if isinstance(error, PartRefused) else None
    others = error if part is None else Refused(ErrorCode.OPERATION_NOT_ATTEMPTED, "")
    for batch in request.batches:
        result = response.results.add(topic=batch.topic, topic_id=batch.topic_id, partition=batch.partition)
        set_error(result, Method.TRANSACT, error if _is_named(batch, part) else others)
    for group in request.groups:
        told = response.group_results.add(group_id=group.group_id)
        set_error(told, Method.TRANSACT, error if group.group_id == part else others)
    return response


def _is_named(batch: log_pb2.PartitionBatch, part: PartitionRef | PartitionName | str | None) -> bool:
    """Whether a batch is for this partition, which it may name by its topic, by its id or by both."""
    return (
        isinstance(part, PartitionRef | PartitionName)
        and batch.partition == part.partition
        and batch.topic in ("", part.topic)
        and batch.topic_id in (b"", part.topic_id)
    )


def transaction_filter(message: transaction_pb2.ListTransactionsRequest) -> TransactionFilter:
    return TransactionFilter(
        states=message.state_filters,
        producer_ids=message.producer_id_filters,
        open_longer_than_ms=message.duration_ms if message.HasField("duration_ms") else -1,
        id_pattern=message.transactional_id_pattern,
    )


def list_response(listing: Listing) -> transaction_pb2.ListTransactionsResponse:
    response = transaction_pb2.ListTransactionsResponse(unknown_state_filters=listing.unknown_states)
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


def describe_response(described: Iterable[Description]) -> transaction_pb2.DescribeTransactionsResponse:
    return transaction_pb2.DescribeTransactionsResponse(transactions=map(description, described))


def description(described: Description) -> transaction_pb2.TransactionDescription:
    message = transaction_pb2.TransactionDescription(transactional_id=described.transactional_id)
    if described.error is not None:
        set_error(message, Method.DESCRIBE_TRANSACTIONS, described.error)
    if described.transaction is not None:
        _fill_description(message, described.transaction, described.now_ms)
        message.topics.extend(topic_partitions(described.partitions))
    if described.history is not None:
        _fill_history(message, described.history)
    return message


def _fill_description(
    description: transaction_pb2.TransactionDescription, transaction: Transaction, now_ms: int
) -> None:
    description.state = transaction.state.api_name
    description.transaction_timeout_ms = transaction.txn_timeout_ms
    description.start_ms = transaction.start_ms
    description.producer_id = transaction.producer_id
    description.producer_epoch = transaction.producer_epoch
    description.groups.extend(sorted(transaction.groups))
    description.last_update_ms = transaction.last_update_ms
    description.csn = transaction.csn
    description.two_phase = transaction.awaits_decision
    age_ms = transaction.age_ms(now_ms)
    if age_ms is not None:
        description.age_ms = age_ms
    if transaction.prepared_ms is not None:
        description.prepared_ms = transaction.prepared_ms
    if transaction.is_kept:
        description.client_producer_id, description.client_producer_epoch = transaction.client_identity


def _fill_history(description: transaction_pb2.TransactionDescription, history: History) -> None:
    description.history_complete = history.is_complete
    description.history.extend(map(_step, history.steps))


def _step(step: Step) -> transaction_pb2.TransactionStep:
    told = transaction_pb2.TransactionStep(
        at_ms=step.at_ms, state=_FORGOTTEN, cause=step.cause, client_id=step.client_id, host=step.host
    )
    if step.after is None:
        told.producer_id, told.producer_epoch = NO_PRODUCER_ID, NO_EPOCH
        return told
    after = step.after
    told.state = after.state.api_name
    told.producer_id, told.producer_epoch = after.client_identity
    told.participants = after.participant_count
    told.csn = 0 if after.state in _UNDECIDED else after.csn
    if step.fenced is not None:
        told.fenced_producer_id, told.fenced_producer_epoch = step.fenced
    return told
