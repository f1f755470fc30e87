"""AdminService on the wire: what concerns the server as a whole, and what administrators do to transactions."""

from __future__ import annotations

from coordinator_api.v1 import admin_pb2
from coordinator_core.assembly import Admin
from coordinator_protocol.limits import Limits
from coordinator_runtime.pending import Pending, settled
from coordinator_runtime.ports import CallContext
from coordinator_server.wire.admin import edge


class AdminServicer:
    """One method per RPC."""

    def __init__(self, limits: Limits, admin: Admin) -> None:
        self._limits = limits
        self._transactions = admin.transactions
        self._explainer = admin.explainer
        self._shards = admin.shards

    def Limits(self, request: admin_pb2.LimitsRequest, context: CallContext) -> Pending[admin_pb2.LimitsResponse]:
        return settled(edge.limits_response(self._limits))

    def AbortTransactions(
        self, request: admin_pb2.AbortTransactionsRequest, context: CallContext
    ) -> Pending[admin_pb2.AbortTransactionsResponse]:
        aborted = self._transactions.abort(edge.selection(request.selector), context, dry_run=request.dry_run)
        return aborted.map(edge.aborted_response)

    def FenceProducers(
        self, request: admin_pb2.FenceProducersRequest, context: CallContext
    ) -> Pending[admin_pb2.FenceProducersResponse]:
        fenced = self._transactions.fence(edge.selection(request.selector), context, dry_run=request.dry_run)
        return fenced.map(edge.fenced_response)

    def ExplainPartition(
        self, request: admin_pb2.ExplainPartitionRequest, context: CallContext
    ) -> Pending[admin_pb2.ExplainPartitionResponse]:
        return self._explainer.explain_partition(edge.explain_partition(request), context).map(edge.explained_response)

    def ListHangingTransactions(
        self, request: admin_pb2.ListHangingTransactionsRequest, context: CallContext
    ) -> Pending[admin_pb2.ListHangingTransactionsResponse]:
        return settled(edge.hanging_response(self._transactions.list_hanging(context)))

    def AbortHangingTransactions(
        self, request: admin_pb2.AbortHangingTransactionsRequest, context: CallContext
    ) -> Pending[admin_pb2.AbortHangingTransactionsResponse]:
        return self._transactions.abort_hanging(edge.abort_hanging(request), context).map(edge.hanging_aborted_response)

    def ListShards(
        self, request: admin_pb2.ListShardsRequest, context: CallContext
    ) -> Pending[admin_pb2.ListShardsResponse]:
        return settled(edge.shards_response(self._shards.list_shards(request.coordinator, context)))

    def LoadShard(
        self, request: admin_pb2.LoadShardRequest, context: CallContext
    ) -> Pending[admin_pb2.LoadShardResponse]:
        loaded = self._shards.load(request.coordinator, request.shard, context)
        return loaded.map(lambda standing: admin_pb2.LoadShardResponse(shard=edge.shard_description(standing)))

    def UnloadShard(
        self, request: admin_pb2.UnloadShardRequest, context: CallContext
    ) -> Pending[admin_pb2.UnloadShardResponse]:
        unloaded = self._shards.unload(request.coordinator, request.shard, context)
        return unloaded.map(lambda standing: admin_pb2.UnloadShardResponse(shard=edge.shard_description(standing)))
