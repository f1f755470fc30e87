"""AdminService on the wire: what concerns the server as a whole, and what administrators do to transactions."""

from __future__ import annotations

from dataclasses import dataclass

from coordinator_api.v1 import admin_pb2
from coordinator_protocol.errors import Method
from coordinator_protocol.limits import Limits
from coordinator_protocol.version import VERSION
from coordinator_runtime.authorization import require
from coordinator_runtime.clock import Clock
from coordinator_runtime.pending import Pending, settled
from coordinator_runtime.ports import Authorizer, CallContext, Permission, ResourceType, TopicCatalog
from coordinator_server.wire.admin import edge
from coordinator_server.wire.edge import partition_name
from txn_coordinator.administration import TransactionAdministration
from txn_coordinator.hanging import HangingTransactions


@dataclass(frozen=True, slots=True, kw_only=True)
class Administration:
    """What the servicer calls."""

    transactions: TransactionAdministration
    hanging: HangingTransactions
    catalog: TopicCatalog
    authorizer: Authorizer
    clock: Clock


class AdminServicer:
    """One method per RPC."""

    def __init__(self, limits: Limits, administration: Administration) -> None:
        self._limits = limits
        self._transactions = administration.transactions
        self._hanging = administration.hanging
        self._catalog = administration.catalog
        self._authorizer = administration.authorizer
        self._clock = administration.clock

    def Limits(self, request: admin_pb2.LimitsRequest, context: CallContext) -> Pending[admin_pb2.LimitsResponse]:
        limits = self._limits
        return settled(
            admin_pb2.LimitsResponse(
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
        )

    def AbortTransactions(
        self, request: admin_pb2.AbortTransactionsRequest, context: CallContext
    ) -> Pending[admin_pb2.AbortTransactionsResponse]:
        now_ms = self._clock.wall_ms()
        aborted = self._transactions.abort(edge.selection(request.selector), context, dry_run=request.dry_run)
        return aborted.map(
            lambda done: admin_pb2.AbortTransactionsResponse(
                results=edge.act_results(Method.ABORT_TRANSACTIONS, done, now_ms), remaining=done.remaining
            )
        )

    def FenceProducers(
        self, request: admin_pb2.FenceProducersRequest, context: CallContext
    ) -> Pending[admin_pb2.FenceProducersResponse]:
        now_ms = self._clock.wall_ms()
        fenced = self._transactions.fence(edge.selection(request.selector), context, dry_run=request.dry_run)
        return fenced.map(
            lambda done: admin_pb2.FenceProducersResponse(
                results=edge.act_results(Method.FENCE_PRODUCERS, done, now_ms)
            )
        )

    def ListHangingTransactions(
        self, request: admin_pb2.ListHangingTransactionsRequest, context: CallContext
    ) -> Pending[admin_pb2.ListHangingTransactionsResponse]:
        require(self._authorizer, context, Permission.DESCRIBE, ResourceType.CLUSTER, "hanging transactions")
        found = edge.hanging_transactions(self._hanging.find(), self._catalog, self._clock.wall_ms())
        return settled(admin_pb2.ListHangingTransactionsResponse(transactions=found))

    def AbortHangingTransactions(
        self, request: admin_pb2.AbortHangingTransactionsRequest, context: CallContext
    ) -> Pending[admin_pb2.AbortHangingTransactionsResponse]:
        require(self._authorizer, context, Permission.CLUSTER_ACTION, ResourceType.CLUSTER, "hanging transactions")
        name = partition_name(request.topic, request.topic_id, request.partition)
        ordinal = self._catalog.resolve(*name).ordinal
        producer_id = request.producer_id if request.HasField("producer_id") else None
        now_ms = self._clock.wall_ms()
        aborted = self._hanging.abort(ordinal, producer_id, context, dry_run=request.dry_run)
        return aborted.map(
            lambda found: admin_pb2.AbortHangingTransactionsResponse(
                aborted=edge.hanging_transactions(found, self._catalog, now_ms)
            )
        )
