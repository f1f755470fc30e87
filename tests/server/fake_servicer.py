"""A servicer for the real TransactionService whose answers the test gives."""

from __future__ import annotations

import asyncio
from typing import Any

from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from coordinator_api.v1 import transaction_pb2
from coordinator_runtime.pending import Pending, settled
from coordinator_runtime.ports import CallContext

SERVICE = transaction_pb2.DESCRIPTOR.services_by_name["TransactionService"]
END_TXN = f"/{SERVICE.full_name}/EndTxn"
FIND_COORDINATOR = f"/{SERVICE.full_name}/FindCoordinator"
INIT_PRODUCER_ID = f"/{SERVICE.full_name}/InitProducerId"
LIST_TRANSACTIONS = f"/{SERVICE.full_name}/ListTransactions"


class FakeTransactionServicer:
    """EndTxn and InitProducerId wait for the test; FindCoordinator echoes; ListTransactions is too large to send;
    DescribeTransactions has a defect. All others give an empty answer, whatever methods the service has."""

    def __init__(self) -> None:
        self.contexts: list[CallContext] = []
        self.waiting: list[Pending[transaction_pb2.EndTxnResponse]] = []
        self.initialising: list[Pending[transaction_pb2.InitProducerIdResponse]] = []
        self.cancelled = asyncio.Event()
        self.arrived = asyncio.Event()

    def FindCoordinator(
        self, request: transaction_pb2.FindCoordinatorRequest, context: CallContext
    ) -> Pending[transaction_pb2.FindCoordinatorResponse]:
        self.contexts.append(context)
        response = transaction_pb2.FindCoordinatorResponse()
        for key in request.keys:
            response.coordinators.add(key=key)
        return settled(response)

    def EndTxn(
        self, request: transaction_pb2.EndTxnRequest, context: CallContext
    ) -> Pending[transaction_pb2.EndTxnResponse]:
        self.contexts.append(context)
        pending: Pending[transaction_pb2.EndTxnResponse] = Pending()
        pending.on_cancel = self.cancelled.set
        self.waiting.append(pending)
        self.arrived.set()
        return pending

    def InitProducerId(
        self, request: transaction_pb2.InitProducerIdRequest, context: CallContext
    ) -> Pending[transaction_pb2.InitProducerIdResponse]:
        pending: Pending[transaction_pb2.InitProducerIdResponse] = Pending()
        self.initialising.append(pending)
        return pending

    def DescribeTransactions(
        self, request: transaction_pb2.DescribeTransactionsRequest, context: CallContext
    ) -> Pending[transaction_pb2.DescribeTransactionsResponse]:
        raise KeyError("secret of the inside")

    def ListTransactions(
        self, request: transaction_pb2.ListTransactionsRequest, context: CallContext
    ) -> Pending[transaction_pb2.ListTransactionsResponse]:
        response = transaction_pb2.ListTransactionsResponse(unknown_state_filters=["x" * 100_000])
        return settled(response)


def _give_empty_answers() -> None:
    for method in SERVICE.methods:
        if hasattr(FakeTransactionServicer, method.name):
            continue

        def answer(
            _self: object,
            _request: Any,
            _context: CallContext,
            response: type[Message] = GetMessageClass(method.output_type),
        ) -> Pending[Message]:
            return settled(response())

        setattr(FakeTransactionServicer, method.name, answer)


_give_empty_answers()
