"""RPCs of sinks: messages to requests, and answers to messages."""

from __future__ import annotations

from coordinator_api.v1 import transaction_pb2
from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.methods import Method
from coordinator_runtime.pending import Pending, settled
from coordinator_runtime.ports import CallContext
from coordinator_server.grpc_front.wire.edge import set_error
from coordinator_server.grpc_front.wire.transactions.servicer import last_sequences
from txn_coordinator.sink_state import Sink
from txn_coordinator.sinks import rules
from txn_coordinator.sinks.decisions import Decided, JoinedBatch
from txn_coordinator.sinks.service import SealMember, SinkDescription, SinkService
from txn_coordinator.state import Identity, Transaction


class SinkServicer:
    """One method per RPC."""

    def __init__(self, service: SinkService) -> None:
        self._service = service

    def JoinBatch(
        self, request: transaction_pb2.JoinBatchRequest, context: CallContext
    ) -> Pending[transaction_pb2.JoinBatchResponse]:
        join = rules.JoinRequest(
            sink=request.sink,
            run_id=request.run_id,
            batch_id=request.batch_id,
            attempt=request.attempt,
            txn_timeout_ms=request.transaction_timeout_ms,
            request_id=context.request_id,
        )
        return self._service.join_batch(join, context).map(_joined)

    def SealMember(
        self, request: transaction_pb2.SealMemberRequest, context: CallContext
    ) -> Pending[transaction_pb2.SealMemberResponse]:
        command = SealMember(
            transactional_id=request.transactional_id,
            identity=Identity(request.producer_id, request.producer_epoch),
            last_sequences=last_sequences(request.last_sequences),
        )
        return self._service.seal_member(command, context).map(lambda _sealed: transaction_pb2.SealMemberResponse())

    def CommitBatch(
        self, request: transaction_pb2.CommitBatchRequest, context: CallContext
    ) -> Pending[transaction_pb2.CommitBatchResponse]:
        members = [Identity(member.producer_id, member.producer_epoch) for member in request.members]
        commit = rules.CommitRequest(
            sink=request.sink, run_id=request.run_id, batch_id=request.batch_id, members=members
        )
        return self._service.commit_batch(commit, context).map(_decided)

    def AbortBatch(
        self, request: transaction_pb2.AbortBatchRequest, context: CallContext
    ) -> Pending[transaction_pb2.AbortBatchResponse]:
        is_named = (request.HasField("run_id"), request.HasField("batch_id"))
        if is_named != (not request.every_run, not request.every_run):
            raise Refused(
                ErrorCode.INVALID_REQUEST, "name run_id and batch_id, or set every_run to give up whatever is open"
            )
        abort = rules.AbortRequest(
            sink=request.sink,
            run_id=None if request.every_run else request.run_id,
            batch_id=None if request.every_run else request.batch_id,
        )
        return self._service.abort_batch(abort, context).map(
            lambda count: transaction_pb2.AbortBatchResponse(member_count=count)
        )

    def DescribeSinks(
        self, request: transaction_pb2.DescribeSinksRequest, context: CallContext
    ) -> Pending[transaction_pb2.DescribeSinksResponse]:
        found = self._service.describe_sinks(request.sinks, context)
        return settled(transaction_pb2.DescribeSinksResponse(sinks=map(_description, found)))


def _joined(joined: JoinedBatch) -> transaction_pb2.JoinBatchResponse:
    if joined.identity is None:
        return transaction_pb2.JoinBatchResponse(already_committed=True, committed_by_this_run=joined.is_own)
    return transaction_pb2.JoinBatchResponse(
        transactional_id=joined.transactional_id,
        producer_id=joined.identity.producer_id,
        producer_epoch=joined.identity.producer_epoch,
    )


def _decided(decided: Decided) -> transaction_pb2.CommitBatchResponse:
    return transaction_pb2.CommitBatchResponse(already_committed=decided.was_committed, csn=decided.csn)


def _description(described: SinkDescription) -> transaction_pb2.SinkDescription:
    message, sink = transaction_pb2.SinkDescription(sink=described.name), described.sink
    if described.error is not None:
        set_error(message, Method.DESCRIBE_SINKS, described.error)
    if sink is None:
        return message
    message.run_id, message.batch_id = sink.run_id, sink.batch_id
    message.fenced_run_ids.extend(sink.fenced_run_ids)
    message.last_batch_id, message.last_csn, message.completing = (
        sink.last_batch_id,
        sink.last_csn,
        bool(sink.committing),
    )
    message.transaction_timeout_ms = sink.txn_timeout_ms
    message.idle_ms = max(rules.idle_ms(sink, described.members, now_ms=described.now_ms), 0)
    message.members.extend(_member(sink, each, described.now_ms) for each in described.members)
    return message


def _member(sink: Sink, transaction: Transaction, now_ms: int) -> transaction_pb2.SinkMemberDescription:
    assert transaction.member is not None, "members of a sink are members"
    return transaction_pb2.SinkMemberDescription(
        transactional_id=transaction.transactional_id,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        batch_id=transaction.member.batch_id,
        attempt=transaction.member.attempt,
        state=rules.standing(sink, transaction),
        partition_count=len(transaction.partitions),
        age_ms=transaction.age_ms(now_ms) or 0,
    )
