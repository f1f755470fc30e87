"""AdminService on the wire: requests about the whole server, and administrators' requests about transactions. Maps
messages to commands, calls the use case, and maps its answer to a message. Checks and decides nothing."""

from __future__ import annotations

from coordinator_api.v1 import admin_pb2
from coordinator_core.assembly import Administration
from coordinator_core.explanation import Blocking, ExplainPartition, Explanation
from coordinator_protocol.limits import Limits
from coordinator_protocol.methods import Method
from coordinator_runtime.disk_guard import DiskGuard
from coordinator_runtime.loader import ShardStanding
from coordinator_runtime.pending import Pending, settled
from coordinator_runtime.ports import CallContext, PartitionName
from coordinator_runtime.running_version import running_version
from coordinator_server.grpc_front.wire.edge import set_error
from coordinator_server.grpc_front.wire.transactions.servicer import description
from txn_coordinator.administration import AbortHanging, ActResult, HangingTransaction, Selection


class AdminServicer:
    """One method per RPC."""

    def __init__(self, limits: Limits, admin: Administration, disk: DiskGuard) -> None:
        self._limits = limits
        self._transactions = admin.transactions
        self._explainer = admin.explainer
        self._shards = admin.shards
        self._disk = disk

    def DescribeLimits(
        self, request: admin_pb2.DescribeLimitsRequest, context: CallContext
    ) -> Pending[admin_pb2.DescribeLimitsResponse]:
        limits = self._limits
        return settled(
            admin_pb2.DescribeLimitsResponse(
                transactional_id_bytes_max=limits.transactional_id_bytes_max,
                group_id_bytes_max=limits.group_id_bytes_max,
                topic_name_length_max=limits.topic_name_length_max,
                partitions_per_topic_max=limits.partitions_per_topic_max,
                partitions_per_transaction_max=limits.partitions_per_transaction_max,
                batch_bytes_max=limits.batch_bytes_max,
                message_bytes_max=limits.message_bytes_max,
                transaction_max_timeout_ms=limits.transaction_max_timeout_ms,
                server_version=running_version(),
            )
        )

    def AbortTransactions(
        self, request: admin_pb2.AbortTransactionsRequest, context: CallContext
    ) -> Pending[admin_pb2.AbortTransactionsResponse]:
        aborted = self._transactions.abort(_selection(request.selector), context, dry_run=request.dry_run)
        return aborted.map(
            lambda done: admin_pb2.AbortTransactionsResponse(
                results=[_act_result(Method.ABORT_TRANSACTIONS, result) for result in done.results],
                remaining=done.remaining,
            )
        )

    def FenceProducers(
        self, request: admin_pb2.FenceProducersRequest, context: CallContext
    ) -> Pending[admin_pb2.FenceProducersResponse]:
        fenced = self._transactions.fence(_selection(request.selector), context, dry_run=request.dry_run)
        return fenced.map(
            lambda done: admin_pb2.FenceProducersResponse(
                results=[_act_result(Method.FENCE_PRODUCERS, result) for result in done.results],
                remaining=done.remaining,
            )
        )

    def ExplainPartition(
        self, request: admin_pb2.ExplainPartitionRequest, context: CallContext
    ) -> Pending[admin_pb2.ExplainPartitionResponse]:
        name = PartitionName(request.topic, request.topic_id, request.partition)
        return self._explainer.explain_partition(ExplainPartition(name, request.history_limit), context).map(_explained)

    def ListHangingTransactions(
        self, request: admin_pb2.ListHangingTransactionsRequest, context: CallContext
    ) -> Pending[admin_pb2.ListHangingTransactionsResponse]:
        return self._transactions.list_hanging(context).map(
            lambda found: admin_pb2.ListHangingTransactionsResponse(transactions=map(_hanging, found))
        )

    def AbortHangingTransactions(
        self, request: admin_pb2.AbortHangingTransactionsRequest, context: CallContext
    ) -> Pending[admin_pb2.AbortHangingTransactionsResponse]:
        command = AbortHanging(
            partition=PartitionName(request.topic, request.topic_id, request.partition),
            producer_id=request.producer_id if request.HasField("producer_id") else None,
            dry_run=request.dry_run,
        )
        return self._transactions.abort_hanging(command, context).map(
            lambda found: admin_pb2.AbortHangingTransactionsResponse(aborted=map(_hanging, found))
        )

    def ListShards(
        self, request: admin_pb2.ListShardsRequest, context: CallContext
    ) -> Pending[admin_pb2.ListShardsResponse]:
        standings = self._shards.list_shards(request.coordinator, context)
        return settled(admin_pb2.ListShardsResponse(shards=map(_shard, standings), disk=_disk(self._disk)))

    def LoadShard(
        self, request: admin_pb2.LoadShardRequest, context: CallContext
    ) -> Pending[admin_pb2.LoadShardResponse]:
        loaded = self._shards.load(request.coordinator, request.shard, context)
        return loaded.map(lambda standing: admin_pb2.LoadShardResponse(shard=_shard(standing)))

    def UnloadShard(
        self, request: admin_pb2.UnloadShardRequest, context: CallContext
    ) -> Pending[admin_pb2.UnloadShardResponse]:
        unloaded = self._shards.unload(request.coordinator, request.shard, context)
        return unloaded.map(lambda standing: admin_pb2.UnloadShardResponse(shard=_shard(standing)))


def _disk(guard: DiskGuard) -> admin_pb2.DiskDescription:
    return admin_pb2.DiskDescription(
        free_bytes=guard.free_bytes, free_bytes_min=guard.free_bytes_min, is_low=guard.refusal is not None
    )


def _selection(message: admin_pb2.TransactionSelector) -> Selection:
    return Selection(
        transactional_ids=message.transactional_ids,
        prefix=message.transactional_id_prefix,
        older_than_ms=message.older_than_ms if message.HasField("older_than_ms") else None,
    )


def _act_result(method: Method, result: ActResult) -> admin_pb2.TransactionActResult:
    message = admin_pb2.TransactionActResult(transactional_id=result.transactional_id)
    set_error(message, method, result.error)
    if result.acted is not None:
        message.state = result.acted.before.state.api_name
        message.fenced_producer_id, message.fenced_producer_epoch = result.acted.fenced
        if result.age_ms is not None:
            message.age_ms = result.age_ms
            message.partition_count = len(result.acted.before.partitions)
    return message


def _explained(explained: Explanation) -> admin_pb2.ExplainPartitionResponse:
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
        group_id=opened.group_id,
    )


def _shard(standing: ShardStanding) -> admin_pb2.ShardDescription:
    return admin_pb2.ShardDescription(
        coordinator=standing.key.coordinator.name.lower(),
        shard=standing.key.number,
        state=standing.state.value,
        coordinator_epoch=standing.coordinator_epoch,
        reason=standing.reason,
    )
