"""The edge of AdminService: its messages to commands and values, and back. Nothing is checked here."""

from __future__ import annotations

from collections.abc import Iterable

from coordinator_api.v1 import admin_pb2
from coordinator_core.explanation import Blocking, ExplainPartition, Explanation
from coordinator_protocol.errors import Method
from coordinator_protocol.limits import Limits
from coordinator_protocol.version import VERSION
from coordinator_runtime.loader import ShardStanding
from coordinator_runtime.ports import PartitionName
from coordinator_server.wire.edge import set_error
from coordinator_server.wire.transactions.edge import description
from txn_coordinator.administration import AbortHanging, ActResult, ActResults, HangingTransaction, Selection


def limits_response(limits: Limits) -> admin_pb2.LimitsResponse:
    return admin_pb2.LimitsResponse(
        transactional_id_bytes_max=limits.transactional_id_bytes_max,
        group_id_bytes_max=limits.group_id_bytes_max,
        topic_name_length_max=limits.topic_name_length_max,
        partitions_per_topic_max=limits.partitions_per_topic_max,
        partitions_per_transaction_max=limits.partitions_per_transaction_max,
        batch_bytes_max=limits.batch_bytes_max,
        message_bytes_max=limits.message_bytes_max,
        transaction_max_timeout_ms=limits.transaction_max_timeout_ms,
        server_version=VERSION,
    )


def selection(message: admin_pb2.TransactionSelector) -> Selection:
    return Selection(
        transactional_ids=message.transactional_ids,
        prefix=message.transactional_id_prefix,
        older_than_ms=message.older_than_ms if message.HasField("older_than_ms") else None,
    )


def aborted_response(done: ActResults) -> admin_pb2.AbortTransactionsResponse:
    results = [_act_result(Method.ABORT_TRANSACTIONS, result) for result in done.results]
    return admin_pb2.AbortTransactionsResponse(results=results, remaining=done.remaining)


def fenced_response(done: ActResults) -> admin_pb2.FenceProducersResponse:
    results = [_act_result(Method.FENCE_PRODUCERS, result) for result in done.results]
    return admin_pb2.FenceProducersResponse(results=results, remaining=done.remaining)


def _act_result(method: Method, result: ActResult) -> admin_pb2.TransactionActResult:
    message = admin_pb2.TransactionActResult(transactional_id=result.transactional_id)
    if result.error is not None:
        set_error(message, method, result.error)
    if result.acted is not None:
        message.state = result.acted.before.state.api_name
        message.fenced_producer_id, message.fenced_producer_epoch = result.acted.fenced
        if result.age_ms is not None:
            message.age_ms = result.age_ms
            message.partitions = len(result.acted.before.partitions)
    return message


def explain_partition(message: admin_pb2.ExplainPartitionRequest) -> ExplainPartition:
    name = PartitionName(message.topic, message.topic_id, message.partition)
    return ExplainPartition(name, message.history_limit)


def explained_response(explained: Explanation) -> admin_pb2.ExplainPartitionResponse:
    ref, head = explained.ref, explained.head
    return admin_pb2.ExplainPartitionResponse(
        topic=ref.topic,
        topic_id=ref.topic_id,
        partition=ref.partition,
        log_start_offset=head.log_start_offset,
        last_stable_offset=head.last_stable_offset,
        high_watermark=head.log_end_offset,
        undecided_offsets=head.log_end_offset - head.last_stable_offset,
        open_transactions=head.open_transactions,
        next_event=explained.next_event,  # type: ignore[arg-type]  # the numbers are the same
        blocking=None if explained.blocking is None else _blocking(explained.blocking),
    )


def _blocking(blocking: Blocking) -> admin_pb2.BlockingTransaction:
    producer_id, producer_epoch = blocking.identity or (None, None)
    return admin_pb2.BlockingTransaction(
        start_offset=blocking.start_offset,
        start_ms=blocking.start_ms,
        age_ms=blocking.age_ms,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transaction=None if blocking.description is None else description(blocking.description),
        owner_hidden=blocking.is_owner_hidden,
        time_left_ms=blocking.time_left_ms,
        hanging_reason=blocking.hanging_reason or "",
        transactional_id=blocking.transactional_id,
        owner_unknown_reason=blocking.owner_unknown_reason,
    )


def abort_hanging(message: admin_pb2.AbortHangingTransactionsRequest) -> AbortHanging:
    return AbortHanging(
        partition=PartitionName(message.topic, message.topic_id, message.partition),
        producer_id=message.producer_id if message.HasField("producer_id") else None,
        dry_run=message.dry_run,
    )


def hanging_response(found: Iterable[HangingTransaction]) -> admin_pb2.ListHangingTransactionsResponse:
    return admin_pb2.ListHangingTransactionsResponse(transactions=map(_hanging, found))


def hanging_aborted_response(found: Iterable[HangingTransaction]) -> admin_pb2.AbortHangingTransactionsResponse:
    return admin_pb2.AbortHangingTransactionsResponse(aborted=map(_hanging, found))


def _hanging(found: HangingTransaction) -> admin_pb2.HangingTransaction:
    ref, opened, owner = found.ref, found.hanging.opened, found.hanging.owner
    return admin_pb2.HangingTransaction(
        topic=ref.topic,
        topic_id=ref.topic_id,
        partition=ref.partition,
        producer_id=opened.producer_id,
        producer_epoch=opened.producer_epoch,
        start_offset=opened.first_offset,
        start_ms=opened.started_ms,
        age_ms=found.age_ms,
        reason=found.hanging.reason.value,
        transactional_id="" if owner is None else owner.transactional_id,
    )


def shards_response(standings: Iterable[ShardStanding]) -> admin_pb2.ListShardsResponse:
    return admin_pb2.ListShardsResponse(shards=map(shard_description, standings))


def shard_description(standing: ShardStanding) -> admin_pb2.ShardDescription:
    return admin_pb2.ShardDescription(
        coordinator=standing.key.coordinator.name.lower(),
        shard=standing.key.number,
        state=standing.state.value,
        coordinator_epoch=standing.coordinator_epoch,
        reason=standing.reason,
    )
