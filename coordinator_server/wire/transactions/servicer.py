"""TransactionService on the wire: map in, call the use case, map out. Decisions are elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from coordinator_api.v1 import transaction_pb2
from coordinator_protocol.errors import Refused
from coordinator_runtime.pending import Pending, failed, settled
from coordinator_runtime.ports import CallContext
from coordinator_server.wire.transactions import edge
from txn_coordinator.reading import TransactionReader
from txn_coordinator.service import TransactionService


@dataclass(frozen=True, slots=True)
class NodeAddress:
    """How clients reach this server."""

    node_id: int
    host: str
    port: int


class TransactionServicer:
    """One method per RPC; errors of a whole call are raised or carried by the Pending, and answered by the
    dispatcher."""

    def __init__(self, service: TransactionService, reader: TransactionReader, address: NodeAddress) -> None:
        self._service = service
        self._reader = reader
        self._address = address

    def FindCoordinator(
        self, request: transaction_pb2.FindCoordinatorRequest, context: CallContext
    ) -> Pending[transaction_pb2.FindCoordinatorResponse]:
        found, address = self._reader.locate(request.key_type, request.keys, context), self._address
        return settled(edge.located_response(found, address.node_id, address.host, address.port))

    def InitProducerId(
        self, request: transaction_pb2.InitProducerIdRequest, context: CallContext
    ) -> Pending[transaction_pb2.InitProducerIdResponse]:
        return self._service.init_producer_id(edge.init_producer_id(request), context).map(edge.init_response)

    def AddPartitionsToTxn(
        self, request: transaction_pb2.AddPartitionsToTxnRequest, context: CallContext
    ) -> Pending[transaction_pb2.AddPartitionsToTxnResponse]:
        if not request.transactions:
            return self._service.add_partitions(edge.add_partitions(request), context).map(edge.added_response)
        added = self._service.add_partitions_batch(edge.add_partitions_batch(request), context)
        return added.map(partial(edge.added_batch_response, request))

    def AddOffsetsToTxn(
        self, request: transaction_pb2.AddOffsetsToTxnRequest, context: CallContext
    ) -> Pending[transaction_pb2.AddOffsetsToTxnResponse]:
        added = self._service.add_offsets(edge.add_offsets(request), context)
        return added.map(lambda _added: transaction_pb2.AddOffsetsToTxnResponse())

    def PrepareTransaction(
        self, request: transaction_pb2.PrepareTransactionRequest, context: CallContext
    ) -> Pending[transaction_pb2.PrepareTransactionResponse]:
        return self._service.prepare_transaction(edge.prepare_transaction(request), context).map(edge.prepared_response)

    def EndTxn(
        self, request: transaction_pb2.EndTxnRequest, context: CallContext
    ) -> Pending[transaction_pb2.EndTxnResponse]:
        return self._service.end_txn(edge.end_txn(request), context).map(partial(edge.end_response, context))

    def Transact(
        self, request: transaction_pb2.TransactRequest, context: CallContext
    ) -> Pending[transaction_pb2.TransactResponse]:
        try:
            ended = self._service.transact(edge.transact(request), context)
        except Refused as refusal:
            ended = failed(refusal)
        return ended.map(edge.transact_response, partial(edge.transact_refused, request))

    def DescribeTransactions(
        self, request: transaction_pb2.DescribeTransactionsRequest, context: CallContext
    ) -> Pending[transaction_pb2.DescribeTransactionsResponse]:
        described = self._reader.describe(request.transactional_ids, context, history_limit=request.history_limit)
        return described.map(edge.describe_response)

    def ListTransactions(
        self, request: transaction_pb2.ListTransactionsRequest, context: CallContext
    ) -> Pending[transaction_pb2.ListTransactionsResponse]:
        return settled(edge.list_response(self._reader.list(edge.transaction_filter(request), context)))
