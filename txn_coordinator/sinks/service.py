"""Use cases of sinks, for engines and operators: one method each, with a Pending reply."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.hashing import coordinator_key
from coordinator_protocol.limits import EPOCH_MAX, Limits
from coordinator_runtime.decision import CATALOG_KEY, Coordinator, Decision, Operation, ShardRouter, Turn, once_durable
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import (
    Authorizer,
    CallContext,
    PartitionName,
    Permission,
    ResourceType,
    require,
)
from coordinator_runtime.runtime import Runtime
from txn_coordinator.requests import PrepareTransaction
from txn_coordinator.service import TransactionService
from txn_coordinator.shard import TransactionShard
from txn_coordinator.sink_state import Sink
from txn_coordinator.sinks import rules
from txn_coordinator.sinks.decisions import Decided, JoinedBatch, in_the_way
from txn_coordinator.sinks.rules import AbortRequest, CommitRequest, JoinRequest
from txn_coordinator.state import Identity, Transaction


class SealMember(Struct, frozen=True, kw_only=True):
    """Request to close a member's transaction: it is complete, and may be committed."""

    transactional_id: str
    identity: Identity
    last_sequences: Sequence[tuple[PartitionName, int]] = ()
    """Records that the log must hold, as in EndTxn."""


class SinkDescription(Struct, frozen=True):
    """Durable state of a sink and its members that are not complete, or the refusal to show it."""

    name: str
    now_ms: int
    """Wall time of the answer; ages are relative to it."""
    error: Refused | None = None
    sink: Sink | None = None
    members: Sequence[Transaction] = ()


class SinkService:
    """Use cases of sinks.

    Tasks need WRITE on the transactional id with the sink's name. Callers that commit or give up batches need DECIDE on
    it.
    """

    def __init__(
        self,
        runtime: Runtime,
        router: ShardRouter,
        transactions: TransactionService,
        authorizer: Authorizer,
        *,
        limits: Limits,
    ) -> None:
        self._runtime = runtime
        self._shard_key = router.shard_key
        self._transactions = transactions
        self._authorizer = authorizer
        self._limits = limits

    def join_batch(self, request: JoinRequest, context: CallContext) -> Pending[JoinedBatch]:
        """Join a batch. The reply has a new member, or shows that the batch is committed. Raises or replies Refused, as
        all others."""
        self._check_caller(request.sink, context)
        rules.check_join(request, self._limits)
        return self._write(request.sink, lambda shard, turn: shard.sinks.decide_join(request, turn), context)

    def seal_member(self, command: SealMember, context: CallContext) -> Pending[Identity]:
        """Close the member's transaction, so that its batch may be committed with it. A repetition changes nothing."""
        sink = coordinator_key(command.transactional_id)
        if sink == command.transactional_id:
            text = f"{command.transactional_id!a:.300} is no member of a sink's batch; use what JoinBatch answered"
            raise Refused(ErrorCode.INVALID_REQUEST, text)
        self._check_caller(sink, context)
        _check_identity(command.identity)
        prepare = PrepareTransaction(
            transactional_id=command.transactional_id,
            identity=command.identity,
            last_sequences=command.last_sequences,
        )
        try:
            checks_of = self._transactions.sequence_checks(prepare, context)
        except Refused as refusal:
            return self._runtime.write(once_durable(CATALOG_KEY, refusal), is_urgent=True)

        def decide(shard: TransactionShard, turn: Turn) -> Decision:
            member = shard.acting(command.transactional_id)
            if member is not None:
                rules.check_member(shard.sinks.state.get(sink), member)
            return shard.decide_prepare(command.transactional_id, command.identity, turn, checks=checks_of(shard))

        return self._write(sink, decide, context)

    def commit_batch(self, request: CommitRequest, context: CallContext) -> Pending[Decided]:
        """Commit the batch, with exactly these members. Final once answered.

        A repetition gets the same answer. The call waits while the previous decision is being carried out.
        """
        self._check_caller(request.sink, context, Permission.DECIDE)
        rules.check_run(request.run_id, request.batch_id)
        for identity in request.members:
            _check_identity(identity)
        return self._write(
            request.sink, lambda shard, turn: shard.sinks.decide_commit(request, turn), context, Permission.DECIDE
        )

    def abort_batch(self, request: AbortRequest, context: CallContext) -> Pending[int]:
        """Give up the undecided members of the batch; the reply is their number. Decided members are not affected."""
        self._check_caller(request.sink, context, Permission.DECIDE)
        if request.run_id is not None and request.batch_id is not None:
            rules.check_run(request.run_id, request.batch_id)
        return self._write(
            request.sink, lambda shard, turn: shard.sinks.decide_abort(request, turn), context, Permission.DECIDE
        )

    def describe_sinks(self, names: Sequence[str], context: CallContext) -> list[SinkDescription]:
        """Describe each sink, in the given order; without names, all that the caller may describe, by name.

        Without names it raises Refused while a shard is being loaded.
        """
        if names:
            return [self._described(name, context) for name in names]
        may = self._authorizer.is_allowed
        shards: list[TransactionShard] = self._runtime.table.listable(Coordinator.TRANSACTIONS)
        found = [
            self._description(shard, sink)
            for shard in shards
            for sink in shard.sinks.state.all_durable()
            if may(context, Permission.DESCRIBE, ResourceType.TRANSACTIONAL_ID, sink.name)
        ]
        return sorted(found, key=lambda each: each.name)

    def _described(self, name: str, context: CallContext) -> SinkDescription:
        try:
            require(self._authorizer, context, Permission.DESCRIBE, ResourceType.TRANSACTIONAL_ID, name)
            rules.check_name(name)
            shard: TransactionShard = self._runtime.shard(self._shard_key(name))
            sink = shard.sinks.state.durable(name)
            if sink is None:
                raise Refused(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, f"sink {name!a:.300} is not known")
        except Refused as refusal:
            return SinkDescription(name, self._runtime.clock.wall_ms(), refusal)
        return self._description(shard, sink)

    def _description(self, shard: TransactionShard, sink: Sink) -> SinkDescription:
        members = filter(None, map(shard.table.durable, shard.sinks.state.durable_member_ids(sink.name)))
        by_age = sorted(members, key=lambda member: member.producer_id)
        return SinkDescription(
            name=sink.name, now_ms=self._runtime.clock.wall_ms(), error=None, sink=sink, members=by_age
        )

    def _check_caller(self, sink: str, context: CallContext, permission: Permission = Permission.WRITE) -> None:
        require(self._authorizer, context, permission, ResourceType.TRANSACTIONAL_ID, sink)
        rules.check_name(sink)

    def _write(
        self,
        sink: str,
        decide: Callable[[TransactionShard, Turn], Decision],
        context: CallContext,
        permission: Permission = Permission.WRITE,
    ) -> Pending[Any]:
        operation = Operation(self._shard_key(sink), decide)
        return self._runtime.write(
            operation,
            context,
            park_key=in_the_way(sink),
            is_urgent=True,
            ask_again=lambda: self._check_caller(sink, context, permission),
        )


def _check_identity(identity: Identity) -> None:
    if identity.producer_id < 0 or not 0 <= identity.producer_epoch <= EPOCH_MAX:
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            f"producer id {identity.producer_id} with epoch {identity.producer_epoch} is no member; use what JoinBatch "
            "answered",
        )
