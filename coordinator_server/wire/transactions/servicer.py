"""TransactionService on the wire: authorise, map in, call the use case, map out. Decisions are elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from coordinator_api.v1 import transaction_pb2
from coordinator_protocol.errors import CoordinatorError, ErrorCode, Method, Refused
from coordinator_protocol.names import check_group_id, check_transactional_id
from coordinator_runtime.authorization import require
from coordinator_runtime.pending import Pending, all_of, settled
from coordinator_runtime.ports import Authorizer, CallContext, Permission, ResourceType, TopicCatalog
from coordinator_server.wire.edge import answer, set_error
from coordinator_server.wire.transactions import edge
from txn_coordinator.history import TransactionHistory
from txn_coordinator.rules import Additions
from txn_coordinator.service import TransactionService
from txn_coordinator.transact import TransactService


@dataclass(frozen=True, slots=True)
class TwoPhaseCommit:
    """Whether callers may take part in somebody else's two-phase commit (KIP-939)."""

    authorizer: Authorizer
    is_enabled: bool = False

    def require(self, context: CallContext, transactional_id: str) -> None:
        """Raises Refused TRANSACTIONAL_ID_AUTHORIZATION_FAILED where it is switched off, too: on purpose the same as
        "not allowed" (spec transactions 2.2, row 6)."""
        if not self.is_enabled:
            raise Refused(
                ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                "two-phase commit with outside participants is switched off or not allowed; set "
                "transaction_two_phase_commit_enable at the server",
            )
        require(self.authorizer, context, Permission.TWO_PHASE_COMMIT, ResourceType.TRANSACTIONAL_ID, transactional_id)


@dataclass(frozen=True, slots=True)
class NodeAddress:
    """How clients reach this server."""

    node_id: int
    host: str
    port: int


_COORDINATED: Final[Mapping[int, tuple[Callable[[str], None], ResourceType]]] = {
    transaction_pb2.COORDINATOR_KEY_TYPE_GROUP: (check_group_id, ResourceType.GROUP),
    transaction_pb2.COORDINATOR_KEY_TYPE_TRANSACTION: (check_transactional_id, ResourceType.TRANSACTIONAL_ID),
}
"""What a coordinator can be asked for: which ids there are, and what one must be allowed to describe."""


class TransactionServicer:
    """One method per RPC; errors of a whole call are raised or carried by the Pending, and answered by the
    dispatcher."""

    def __init__(  # noqa: PLR0913
        self,
        service: TransactionService,
        transact: TransactService,
        *,
        catalog: TopicCatalog,
        authorizer: Authorizer,
        address: NodeAddress,
        history: TransactionHistory,
        two_phase_commit: bool = False,
    ) -> None:
        self._history = history
        self._service = service
        self._transact = transact
        self._catalog = catalog
        self._authorizer = authorizer
        self._two_phase_commit = TwoPhaseCommit(authorizer, two_phase_commit)
        self._address = address

    def FindCoordinator(
        self, request: transaction_pb2.FindCoordinatorRequest, context: CallContext
    ) -> Pending[transaction_pb2.FindCoordinatorResponse]:
        response = transaction_pb2.FindCoordinatorResponse()
        for key in request.keys:
            found = response.coordinators.add(key=key)
            try:
                self._locate(request.key_type, key, found, context)
            except Refused as refusal:
                set_error(found, Method.FIND_COORDINATOR, refusal)
        return settled(response)

    def InitProducerId(
        self, request: transaction_pb2.InitProducerIdRequest, context: CallContext
    ) -> Pending[transaction_pb2.InitProducerIdResponse]:
        if not request.HasField("transactional_id"):
            require(self._authorizer, context, Permission.WRITE, ResourceType.CLUSTER, "idempotent producers")
            edge.expected_identity(request)
            return self._service.new_producer_id(context).map(edge.new_identity_response)
        self._may_write(request.transactional_id, context)
        init = edge.init_request(request, context)
        check_transactional_id(request.transactional_id)
        if request.enable_2pc:
            self._two_phase_commit.require(context, request.transactional_id)
        return self._service.init_producer_id(init, context).map(edge.init_response)

    def AddPartitionsToTxn(
        self, request: transaction_pb2.AddPartitionsToTxnRequest, context: CallContext
    ) -> Pending[transaction_pb2.AddPartitionsToTxnResponse]:
        if request.transactions:
            return self._add_batch(request, context)
        self._may_write(request.transactional_id, context)
        return self._add_partitions(request, context)

    def _add_batch(
        self, request: transaction_pb2.AddPartitionsToTxnRequest, context: CallContext
    ) -> Pending[transaction_pb2.AddPartitionsToTxnResponse]:
        """Every transaction is added to or refused by itself; one response once all are done."""
        require(self._authorizer, context, Permission.CLUSTER_ACTION, ResourceType.CLUSTER, "batched transactions")
        edge.check_batch(request)

        def add(member: transaction_pb2.AddPartitionsToTxnTransaction) -> Pending[edge.MemberResult]:
            def add_partitions() -> Pending[transaction_pb2.AddPartitionsToTxnResponse]:
                return self._add_partitions(member, context)

            added = answer(Method.ADD_PARTITIONS_TO_TXN, transaction_pb2.AddPartitionsToTxnResponse, add_partitions)
            return added.map(lambda response: edge.member_result(member.transactional_id, response))

        return all_of([add(member) for member in request.transactions]).map(edge.batch_response)

    def _add_partitions(
        self,
        request: transaction_pb2.AddPartitionsToTxnRequest | transaction_pb2.AddPartitionsToTxnTransaction,
        context: CallContext,
    ) -> Pending[transaction_pb2.AddPartitionsToTxnResponse]:
        check_transactional_id(request.transactional_id)
        identity = edge.identity(request.producer_id, request.producer_epoch)
        may_write = partial(require, self._authorizer, context, Permission.WRITE, ResourceType.TOPIC)
        resolved = edge.resolve_partitions(request.topics, self._catalog, may_write)
        if resolved.refused:
            return settled(edge.not_attempted_response(resolved))

        def refused(error: Exception) -> transaction_pb2.AddPartitionsToTxnResponse:
            if not isinstance(error, CoordinatorError):
                raise error
            return edge.refused_response(resolved, error)

        if request.verify_only:
            verified = self._service.verify_partitions(request.transactional_id, identity, resolved.ordinals, context)
            return verified.map(lambda members: edge.verified_response(resolved, members)).recover(refused)
        additions = Additions(partitions=resolved.ordinals)
        added = self._service.add_to_transaction(request.transactional_id, identity, additions, context)
        return added.map(lambda _added: edge.added_response(resolved)).recover(refused)

    def AddOffsetsToTxn(
        self, request: transaction_pb2.AddOffsetsToTxnRequest, context: CallContext
    ) -> Pending[transaction_pb2.AddOffsetsToTxnResponse]:
        self._may_write(request.transactional_id, context)
        require(self._authorizer, context, Permission.READ, ResourceType.GROUP, request.group_id)
        check_transactional_id(request.transactional_id)
        check_group_id(request.group_id)
        identity = edge.identity(request.producer_id, request.producer_epoch)
        additions = Additions(groups=frozenset({request.group_id}))
        added = self._service.add_to_transaction(request.transactional_id, identity, additions, context)
        return added.map(lambda _added: transaction_pb2.AddOffsetsToTxnResponse())

    def PrepareTransaction(
        self, request: transaction_pb2.PrepareTransactionRequest, context: CallContext
    ) -> Pending[transaction_pb2.PrepareTransactionResponse]:
        self._may_write(request.transactional_id, context)
        check_transactional_id(request.transactional_id)
        self._two_phase_commit.require(context, request.transactional_id)
        command = edge.prepare_transaction(request, self._catalog)
        return self._service.prepare_transaction(command, context).map(edge.prepared_response)

    def EndTxn(
        self, request: transaction_pb2.EndTxnRequest, context: CallContext
    ) -> Pending[transaction_pb2.EndTxnResponse]:
        self._may_write(request.transactional_id, context)
        command = edge.end_txn(request, context, self._catalog)
        return self._service.end_txn(command, context).map(lambda ended: edge.end_response(ended, context))

    def Transact(
        self, request: transaction_pb2.TransactRequest, context: CallContext
    ) -> Pending[transaction_pb2.TransactResponse]:
        return self._transact.transact(edge.transact(request), context).map(edge.transact_response)

    def DescribeTransactions(
        self, request: transaction_pb2.DescribeTransactionsRequest, context: CallContext
    ) -> Pending[transaction_pb2.DescribeTransactionsResponse]:
        edge.check_history_limit(request)
        response = transaction_pb2.DescribeTransactionsResponse()
        for transactional_id in request.transactional_ids:
            description = response.transactions.add(transactional_id=transactional_id)
            try:
                self._describe(transactional_id, description, context)
            except Refused as refusal:
                set_error(description, Method.DESCRIBE_TRANSACTIONS, refusal)
        if not request.history_limit:
            return settled(response)
        filled = [
            self._history.last_steps(description.transactional_id, request.history_limit).map(
                partial(edge.fill_history, description)
            )
            for description in response.transactions
            if edge.has_history(description)
        ]
        return all_of(filled).map(lambda _filled: response)

    def ListTransactions(
        self, request: transaction_pb2.ListTransactionsRequest, context: CallContext
    ) -> Pending[transaction_pb2.ListTransactionsResponse]:
        now_ms = self._service.now_ms()
        listing = self._service.list(edge.transaction_filter(request), now_ms)
        visible = edge.visible_to(listing, context, self._authorizer)
        return settled(edge.list_response(visible, now_ms))

    def _describe(
        self, transactional_id: str, description: transaction_pb2.TransactionDescription, context: CallContext
    ) -> None:
        require(self._authorizer, context, Permission.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transactional_id)
        transaction = self._service.describe(transactional_id)
        waiting = self._service.partitions_waiting(transaction)
        named = [found for ordinal in waiting if (found := self._catalog.by_ordinal(ordinal)) is not None]
        visible = [found for found in named if self._may_describe_topic(found.topic, context)]
        edge.fill_description(description, transaction, visible, self._service.now_ms())

    def _locate(self, key_type: int, key: str, found: transaction_pb2.Coordinator, context: CallContext) -> None:
        """Both coordinators live in every shard alike, so the id alone says where (spec groups 10.1)."""
        if key_type not in _COORDINATED:
            raise Refused(ErrorCode.INVALID_REQUEST, f"key_type is {key_type}; ask for a group or a transactional id")
        check, resource = _COORDINATED[key_type]
        check(key)
        require(self._authorizer, context, Permission.DESCRIBE, resource, key)
        found.node_id, found.host, found.port = self._address.node_id, self._address.host, self._address.port
        found.shard = self._service.shard_key(key).number

    def _may_describe_topic(self, topic: str, context: CallContext) -> bool:
        return self._authorizer.is_allowed(context, Permission.DESCRIBE, ResourceType.TOPIC, topic)

    def _may_write(self, transactional_id: str, context: CallContext) -> None:
        require(self._authorizer, context, Permission.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id)
