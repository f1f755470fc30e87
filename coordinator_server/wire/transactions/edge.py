"""Between the messages of TransactionService and the values of this package."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from coordinator_api.v1 import common_pb2, transaction_pb2
from coordinator_protocol.errors import CoordinatorError, ErrorCode, Method, Refused
from coordinator_protocol.marker import Outcome
from coordinator_runtime.ports import (
    Authorizer,
    CallContext,
    PartitionName,
    PartitionRef,
    Permission,
    ResourceType,
    TopicCatalog,
)
from coordinator_server.wire.edge import partition_name, partition_names, set_error, topic_partitions
from coordinator_server.wire.groups.committed.edge import transacted_offsets
from coordinator_server.wire.log.edge import client_batch
from txn_coordinator.history import STEPS_MAX, History, Step
from txn_coordinator.rules import EndRequest, InitRequest
from txn_coordinator.service import OPEN, EndTxn, Listing, PrepareTransaction, TransactionFilter
from txn_coordinator.shard import Ended, Initialised
from txn_coordinator.state import NO_EPOCH, NO_PRODUCER_ID, Identity, Transaction, TransactionState
from txn_coordinator.transact import Transact, TransactResult

_INT16_MAX = 2**15 - 1
_UNDECIDED = (TransactionState.EMPTY, TransactionState.ONGOING)
_FORGOTTEN = "Dead"
"""Kafka's name for an id that expired. Nothing is ever in this state here: it is the end of a history."""
_BATCH_MAX = 1_000
_IDS_WITH_HISTORY_MAX = 100


@dataclass(frozen=True, slots=True)
class ResolvedPartitions:
    """Partitions of a request: those that exist, and why the others were refused."""

    names: Sequence[PartitionName]
    found: dict[PartitionName, PartitionRef]
    refused: dict[PartitionName, Refused]

    @property
    def ordinals(self) -> frozenset[int]:
        return frozenset(found.ordinal for found in self.found.values())


def identity(producer_id: int, producer_epoch: int) -> Identity:
    """Raises Refused INVALID_REQUEST for what can never be an identity."""
    if producer_id < 0 or not 0 <= producer_epoch <= _INT16_MAX:
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            f"producer id {producer_id} with epoch {producer_epoch} is no identity; use what InitProducerId answered",
        )
    return Identity(producer_id, producer_epoch)


def init_request(message: transaction_pb2.InitProducerIdRequest, context: CallContext) -> InitRequest:
    """The request, after the check of spec transactions 2.2, row 3."""
    return InitRequest(
        transactional_id=message.transactional_id,
        txn_timeout_ms=message.transaction_timeout_ms,
        expected=expected_identity(message),
        request_id=context.request_id,
        client_txn_version=context.client_txn_version,
        enable_2pc=message.enable_2pc,
        keep_prepared=message.keep_prepared,
    )


def expected_identity(message: transaction_pb2.InitProducerIdRequest) -> Identity | None:
    """The identity that a recovering producer shows; absent and -1 mean the same, as in Kafka."""
    producer_id = message.expected_producer_id if message.HasField("expected_producer_id") else NO_PRODUCER_ID
    epoch = message.expected_producer_epoch if message.HasField("expected_producer_epoch") else NO_EPOCH
    if (producer_id == NO_PRODUCER_ID) != (epoch == NO_EPOCH):
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            "expected_producer_id and expected_producer_epoch belong together: give both, or neither",
        )
    return None if producer_id == NO_PRODUCER_ID else identity(producer_id, epoch)


def new_identity_response(found: Identity) -> transaction_pb2.InitProducerIdResponse:
    return init_response(Initialised(found))


def init_response(initialised: Initialised) -> transaction_pb2.InitProducerIdResponse:
    found, ongoing = initialised.identity, initialised.ongoing
    return transaction_pb2.InitProducerIdResponse(
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        ongoing_producer_id=None if ongoing is None else ongoing.producer_id,
        ongoing_producer_epoch=None if ongoing is None else ongoing.producer_epoch,
    )


def prepare_transaction(
    message: transaction_pb2.PrepareTransactionRequest, catalog: TopicCatalog
) -> PrepareTransaction:
    return PrepareTransaction(
        transactional_id=message.transactional_id,
        identity=identity(message.producer_id, message.producer_epoch),
        last_sequences=[_last_sequence(last, catalog) for last in message.last_sequences],
    )


def prepared_response(noted: Identity) -> transaction_pb2.PrepareTransactionResponse:
    return transaction_pb2.PrepareTransactionResponse(
        ongoing_producer_id=noted.producer_id, ongoing_producer_epoch=noted.producer_epoch
    )


def resolve_partitions(
    topics: Iterable[common_pb2.TopicPartitions], catalog: TopicCatalog, check: Callable[[str], None]
) -> ResolvedPartitions:
    """Look every partition up. `check` refuses topics that the caller may not use: by the name that was asked for, if
    there is one, so that nobody learns what exists.

    Raises Refused INVALID_REQUEST for names that are malformed or repeated."""
    names = partition_names(topics)
    found: dict[PartitionName, PartitionRef] = {}
    refused: dict[PartitionName, Refused] = {}
    for name in names:
        try:
            if name.topic:
                check(name.topic)
            partition = catalog.resolve(name.topic, name.topic_id, name.partition)
            if not name.topic:
                check(partition.topic)
            found[name] = partition
        except Refused as refusal:
            refused[name] = refusal
    return ResolvedPartitions(names, found, refused)


def not_attempted_response(resolved: ResolvedPartitions) -> transaction_pb2.AddPartitionsToTxnResponse:
    """Some partitions do not exist or may not be written: they say so, and the others were not attempted (spec
    transactions 2.3)."""
    not_attempted = Refused(
        ErrorCode.OPERATION_NOT_ATTEMPTED, "another partition of the request was refused; nothing was added"
    )
    response = transaction_pb2.AddPartitionsToTxnResponse()
    set_error(response, Method.ADD_PARTITIONS_TO_TXN, next(iter(resolved.refused.values())))
    for name in resolved.names:
        _add_result(response, name, resolved.refused.get(name, not_attempted))
    return response


def added_response(resolved: ResolvedPartitions) -> transaction_pb2.AddPartitionsToTxnResponse:
    response = transaction_pb2.AddPartitionsToTxnResponse()
    for name in resolved.names:
        _add_result(response, name, None)
    return response


def verified_response(
    resolved: ResolvedPartitions, members: frozenset[int]
) -> transaction_pb2.AddPartitionsToTxnResponse:
    """TRANSACTION_ABORTABLE for partitions that are not in the open transaction."""
    absent = Refused(ErrorCode.TRANSACTION_ABORTABLE, "the partition is not in the open transaction")
    response = transaction_pb2.AddPartitionsToTxnResponse()
    for name, found in resolved.found.items():
        _add_result(response, name, None if found.ordinal in members else absent)
    return response


def refused_response(
    resolved: ResolvedPartitions, error: CoordinatorError
) -> transaction_pb2.AddPartitionsToTxnResponse:
    """The coordinator's error, copied to every partition (spec transactions 2.3)."""
    response = transaction_pb2.AddPartitionsToTxnResponse()
    set_error(response, Method.ADD_PARTITIONS_TO_TXN, error)
    for name in resolved.names:
        _add_result(response, name, error)
    return response


def _add_result(
    response: transaction_pb2.AddPartitionsToTxnResponse, name: PartitionName, error: CoordinatorError | None
) -> None:
    result = response.results.add(topic=name.topic, topic_id=name.topic_id, partition=name.partition)
    if error is not None:
        set_error(result, Method.ADD_PARTITIONS_TO_TXN, error)


MemberResult = transaction_pb2.AddPartitionsToTxnTransactionResult


def check_batch(message: transaction_pb2.AddPartitionsToTxnRequest) -> None:
    """Raises Refused INVALID_REQUEST for a batch that also says what a single request says, or is too large."""
    if message.transactional_id or message.producer_id or message.producer_epoch or message.topics:
        raise Refused(
            ErrorCode.INVALID_REQUEST, "a request names one transaction or a batch of them, not both; leave one out"
        )
    if len(message.transactions) > _BATCH_MAX:
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            f"the batch has {len(message.transactions)} transactions and at most {_BATCH_MAX} are allowed; split it",
        )


def member_result(transactional_id: str, response: transaction_pb2.AddPartitionsToTxnResponse) -> MemberResult:
    """What a request for this transaction alone would have been answered."""
    return MemberResult(
        transactional_id=transactional_id,
        error_code=response.error_code,
        error_class=response.error_class,
        error_message=response.error_message,
        results=response.results,
    )


def batch_response(members: Sequence[MemberResult]) -> transaction_pb2.AddPartitionsToTxnResponse:
    return transaction_pb2.AddPartitionsToTxnResponse(transactions=members)


def end_txn(message: transaction_pb2.EndTxnRequest, context: CallContext, catalog: TopicCatalog) -> EndTxn:
    request = EndRequest(
        transactional_id=message.transactional_id,
        identity=identity(message.producer_id, message.producer_epoch),
        outcome=Outcome.COMMIT if message.committed else Outcome.ABORT,
        client_txn_version=context.client_txn_version,
    )
    # An abort needs nothing to be there, so what the client sent is only looked at for a commit.
    claimed = message.last_sequences if message.committed else ()
    return EndTxn(request=request, last_sequences=[_last_sequence(last, catalog) for last in claimed])


def _last_sequence(message: transaction_pb2.LastSequence, catalog: TopicCatalog) -> tuple[int, int]:
    name = partition_name(message.topic, message.topic_id, message.partition)
    if message.sequence < 0:
        raise Refused(ErrorCode.INVALID_REQUEST, f"last sequence {message.sequence} is negative; leave the entry out")
    return catalog.resolve(name.topic, name.topic_id, name.partition).ordinal, message.sequence


def end_response(ended: Ended, context: CallContext) -> transaction_pb2.EndTxnResponse:
    """Version 1 keeps its identity and is told none (spec transactions 2.6)."""
    if context.client_txn_version < 2:
        return transaction_pb2.EndTxnResponse(csn=ended.csn)
    return transaction_pb2.EndTxnResponse(
        producer_id=ended.next_identity.producer_id, producer_epoch=ended.next_identity.producer_epoch, csn=ended.csn
    )


def transact(message: transaction_pb2.TransactRequest) -> Transact:
    """Raises Refused INVALID_REQUEST for what can never be an identity, a partition or an offset."""
    return Transact(
        message.transactional_id,
        identity(message.producer_id, message.producer_epoch),
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


def transaction_filter(message: transaction_pb2.ListTransactionsRequest) -> TransactionFilter:
    return TransactionFilter(
        states=message.state_filters,
        producer_ids=message.producer_id_filters,
        open_longer_than_ms=message.duration_ms if message.HasField("duration_ms") else -1,
        id_pattern=message.transactional_id_pattern,
    )


def list_response(listing: Listing, now_ms: int) -> transaction_pb2.ListTransactionsResponse:
    response = transaction_pb2.ListTransactionsResponse(unknown_state_filters=listing.unknown_states)
    for transaction in listing.transactions:
        response.transactions.add(
            transactional_id=transaction.transactional_id,
            producer_id=transaction.producer_id,
            state=transaction.state.api_name,
            start_ms=transaction.start_ms,
            producer_epoch=transaction.producer_epoch,
            age_ms=_age_ms(transaction, now_ms),
            two_phase=_awaits_decision(transaction),
            prepared_ms=transaction.prepared_ms,
        )
    return response


def _age_ms(transaction: Transaction, now_ms: int) -> int | None:
    """How long the transaction holds something up; never negative, although a wall clock may go back."""
    return max(now_ms - transaction.start_ms, 0) if transaction.state in OPEN else None


def _awaits_decision(transaction: Transaction) -> bool:
    return transaction.state is TransactionState.ONGOING and transaction.is_promised


def fill_description(
    description: transaction_pb2.TransactionDescription,
    transaction: Transaction,
    partitions: Sequence[PartitionRef],
    now_ms: int,
) -> None:
    """The description of one id, with the partitions that have a name and that the caller may know of."""
    _fill_outside_decision(description, transaction, now_ms)
    description.state = transaction.state.api_name
    description.transaction_timeout_ms = transaction.txn_timeout_ms
    description.start_ms = transaction.start_ms
    description.producer_id = transaction.producer_id
    description.producer_epoch = transaction.producer_epoch
    description.groups.extend(sorted(transaction.groups))
    description.last_update_ms = transaction.last_update_ms
    description.csn = transaction.csn
    description.topics.extend(topic_partitions(partitions))


def _fill_outside_decision(
    description: transaction_pb2.TransactionDescription, transaction: Transaction, now_ms: int
) -> None:
    age_ms = _age_ms(transaction, now_ms)
    if age_ms is not None:
        description.age_ms = age_ms
    description.two_phase = _awaits_decision(transaction)
    if transaction.prepared_ms is not None:
        description.prepared_ms = transaction.prepared_ms
    if transaction.is_kept:
        description.client_producer_id, description.client_producer_epoch = transaction.client_identity


def check_history_limit(message: transaction_pb2.DescribeTransactionsRequest) -> None:
    """Raises Refused INVALID_REQUEST for a history that nobody could mean, or that would take too long to find."""
    if not 0 <= message.history_limit <= STEPS_MAX:
        raise Refused(
            ErrorCode.INVALID_REQUEST, f"history_limit is {message.history_limit}; it must be 0 to {STEPS_MAX}"
        )
    if message.history_limit and len(message.transactional_ids) > _IDS_WITH_HISTORY_MAX:
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            f"the history of {len(message.transactional_ids)} ids is asked for; ask for {_IDS_WITH_HISTORY_MAX} at a "
            "time",
        )


def fill_history(description: transaction_pb2.TransactionDescription, history: History) -> None:
    description.history_complete = history.is_complete
    description.history.extend(map(_step, history.steps))


def has_history(description: transaction_pb2.TransactionDescription) -> bool:
    """Whether its steps may be told: those of a known id, and those of one that is known no more."""
    return description.error_code in (common_pb2.ERROR_CODE_NONE, common_pb2.ERROR_CODE_TRANSACTIONAL_ID_NOT_FOUND)


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


def visible_to(listing: Listing, context: CallContext, authorizer: Authorizer) -> Listing:
    """The listing without the ids that the caller may not know of (spec transactions 2.8)."""
    allowed = [
        transaction
        for transaction in listing.transactions
        if authorizer.is_allowed(
            context, Permission.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transaction.transactional_id
        )
    ]
    return Listing(allowed, listing.unknown_states)
