"""Use cases of producers in the transaction coordinator: one method each, with a Pending reply.

The service checks the caller and the command (`callers`), and writes the operation to the shard of the transactional
id. It also sets the park key of a call that meets a transaction under completion. Queries about transactions are in
`reading`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from msgspec import Struct

from coordinator_protocol.acls import CLUSTER_NAME
from coordinator_protocol.errors import CoordinatorError, ErrorCode, Refused
from coordinator_protocol.hashing import coordinator_key
from coordinator_protocol.limits import EPOCH_MAX, Limits
from coordinator_protocol.marker import Outcome
from coordinator_protocol.names import check_group_id, check_partitions, check_transactional_id
from coordinator_runtime.checked_writes import write_checked
from coordinator_runtime.decision import (
    CATALOG_KEY,
    Decision,
    Operation,
    Record,
    ShardRouter,
    TransactionInTheWay,
    Turn,
    once_durable,
)
from coordinator_runtime.participants import ShareKey
from coordinator_runtime.pending import Pending, all_of, failed, settled
from coordinator_runtime.ports import (
    Authorizer,
    CallContext,
    EndIdentity,
    Membership,
    PartitionName,
    PartitionRef,
    PartitionSequences,
    Permission,
    ResourceType,
    TopicCatalog,
    require,
)
from coordinator_runtime.runtime import Runtime
from coordinator_runtime.transact import (
    NO_OFFSET,
    PlacedBatches,
    TransactedOffsets,
    TransactedPartitions,
    TransactedShares,
)
from txn_coordinator.callers import CallerChecks, check_can_transact, check_expected, no_identity
from txn_coordinator.counters import COUNTERS, CountersShard
from txn_coordinator.outcomes import Contribution, Ended, Transacted
from txn_coordinator.requests import (
    AddedBatch,
    AddedPartitions,
    AddOffsets,
    AddPartitions,
    AddPartitionsBatch,
    EndTxn,
    InitProducerId,
    PrepareTransaction,
    Transact,
)
from txn_coordinator.rules import adding, initialising, transacting
from txn_coordinator.shard import AbortStarted, Initialised, PlacedTransact, TransactionShard
from txn_coordinator.state import Identity

BATCH_MAX = 1_000
"""Largest number of transactions in one AddPartitionsToTxn of another server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionPorts:
    """Other parts of the server that the use cases need."""

    authorizer: Authorizer
    catalog: TopicCatalog
    sequences: PartitionSequences
    partitions: TransactedPartitions
    offsets: TransactedOffsets
    shares: TransactedShares


class TransactResult(Struct, frozen=True):
    """Result of Transact: the outcome is durable."""

    ended: Ended
    first_offsets: Sequence[tuple[PartitionRef | PartitionName, int]]
    """Partition of each batch, and the offset of the transaction's first record there. A mere name if the partition
    does not exist any more and the request is a repetition."""


class TransactionService:
    """Use cases of the transaction coordinator. Replies come when everything they rest on is durable."""

    def __init__(
        self,
        runtime: Runtime,
        router: ShardRouter,
        ports: TransactionPorts,
        *,
        limits: Limits,
        two_phase_commit_enable: bool = False,
    ) -> None:
        self._runtime = runtime
        self._limits = limits
        self.ports = ports
        self._authorizer = ports.authorizer
        self._callers = CallerChecks(ports.authorizer, ports.catalog, two_phase_commit_enable=two_phase_commit_enable)
        self.shard_key = router.shard_key
        self.verifications = {"all": 0, "missing": 0, "refused": 0}
        """Number of answered verify-only calls of AddPartitionsToTxn, by result."""

    def init_producer_id(self, command: InitProducerId, context: CallContext) -> Pending[Initialised]:
        """Return the producer's identity; every older one is fenced.

        An open transaction is kept if the command says so. Otherwise it is aborted first, and the call waits for its
        markers if the abort is split. Without a transactional id the identity is one that no producer had before, for
        plain appends only.

        Raises Refused, as every other use case, or refuses the reply.
        """
        transactional_id = command.transactional_id
        if transactional_id is None:
            require(self._authorizer, context, Permission.IDEMPOTENT_WRITE, ResourceType.CLUSTER, CLUSTER_NAME)
            check_expected(command.expected)
            return self._runtime.write(Operation(COUNTERS, _decide_plain), context)
        ask = partial(self._callers.check, transactional_id, context, may_prepare=command.enable_2pc)
        self._callers.check(transactional_id, context)
        check_expected(command.expected)
        if command.enable_2pc:
            self._callers.check_may_prepare(transactional_id, context)
        request = initialising.InitRequest(
            transactional_id=transactional_id,
            txn_timeout_ms=command.transaction_timeout_ms,
            expected=command.expected,
            request_id=context.request_id,
            client_txn_version=context.client_txn_version,
            enable_2pc=command.enable_2pc,
            keep_prepared=command.keep_prepared,
        )
        initialising.check_init_arguments(request, self._limits)
        may_abort_and_init = not context.refuse_concurrent
        operation = Operation(
            self.shard_key(transactional_id),
            lambda shard, turn: shard.decide_init(request, turn, may_abort_and_init=may_abort_and_init),
        )
        return self._init(operation, transactional_id, context, ask)

    def _init(
        self,
        operation: Operation,
        transactional_id: str,
        context: CallContext,
        ask_again: Callable[[], None],
        *,
        is_continued: bool = False,
    ) -> Pending[Initialised]:
        def after(reply: Initialised | AbortStarted) -> Pending[Initialised]:
            if isinstance(reply, Initialised):
                return settled(reply)
            if context.refuse_concurrent:
                return failed(
                    Refused(
                        ErrorCode.CONCURRENT_TRANSACTIONS,
                        f"the open transaction of {transactional_id!r} is being aborted first; call again",
                    )
                )
            ask_again()
            return self._init(operation, transactional_id, context, ask_again, is_continued=True)

        park_key = TransactionInTheWay(transactional_id)
        return self._runtime.write(
            operation, context, park_key=park_key, is_continued=is_continued, ask_again=ask_again
        ).then(after)

    def add_partitions(self, command: AddPartitions, context: CallContext) -> Pending[AddedPartitions]:
        """Add partitions to the transaction, which is open from then on. With `verify_only`, only check that they are
        in it.

        A refusal is in the reply, and never raised.
        """
        return self._added(command, context, is_owner=True)

    def add_partitions_batch(self, batch: AddPartitionsBatch, context: CallContext) -> Pending[AddedBatch]:
        """Perform `add_partitions` for another server, on several transactions. Each is added to or refused on its
        own."""
        count = len(batch.transactions)
        try:
            require(self._authorizer, context, Permission.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)
            if batch.is_mixed:
                text = "a request names one transaction or a batch of them, not both; leave one out"
                raise Refused(ErrorCode.INVALID_REQUEST, text)
            if count > BATCH_MAX:
                text = f"the batch has {count} transactions and at most {BATCH_MAX} are allowed; split it"
                raise Refused(ErrorCode.INVALID_REQUEST, text)
        except Refused as refusal:
            return settled(AddedBatch([_none_added(each, refusal) for each in batch.transactions], refusal))
        return all_of([self._added(each, context, is_owner=False) for each in batch.transactions]).map(AddedBatch)

    def _added(self, command: AddPartitions, context: CallContext, *, is_owner: bool) -> Pending[AddedPartitions]:
        def refused(error: Exception) -> AddedPartitions:
            if not isinstance(error, CoordinatorError):
                raise error
            return _none_added(command, error)

        try:
            self._callers.check(command.transactional_id, context, command.identity, is_owner=is_owner)
            ordinals = self._resolve_each(command.partitions, context if is_owner else None)
        except Refused as refusal:
            return settled(_none_added(command, refusal))
        if isinstance(ordinals, AddedPartitions):
            # These results may rest on a change of the catalog that is not durable yet.
            return self._runtime.write(once_durable(CATALOG_KEY, ordinals), is_urgent=True)

        def ask() -> None:
            self._callers.check(command.transactional_id, context, is_owner=is_owner)
            refs = filter(None, map(self.ports.catalog.by_ordinal, ordinals if is_owner else ()))
            for topic in {ref.topic for ref in refs}:
                require(self._authorizer, context, Permission.WRITE, ResourceType.TOPIC, topic)

        if command.verify_only:
            return self._verified(command, ordinals, context, ask).recover(refused)
        additions = adding.Additions(partitions=frozenset(ordinals))
        added = self._add(command.transactional_id, command.identity, additions, context, ask)
        return added.map(lambda _added: AddedPartitions([(name, None) for name in command.partitions]), refused)

    def _verified(
        self, command: AddPartitions, ordinals: Sequence[int], context: CallContext, ask_again: Callable[[], None]
    ) -> Pending[AddedPartitions]:
        transactional_id, identity, asked = command.transactional_id, command.identity, frozenset(ordinals)

        def found(members: frozenset[int]) -> AddedPartitions:
            self.verifications["all" if members == asked else "missing"] += 1
            absent = Refused(ErrorCode.TRANSACTION_ABORTABLE, "the partition is not in the open transaction")
            named = zip(command.partitions, ordinals, strict=True)
            return AddedPartitions([(name, None if ordinal in members else absent) for name, ordinal in named])

        def refused(error: Exception) -> AddedPartitions:
            self.verifications["refused"] += 1
            raise error

        operation = Operation(
            self.shard_key(transactional_id),
            lambda shard, _turn: shard.decide_verify(transactional_id, identity, asked),
        )
        park_key = TransactionInTheWay(transactional_id)
        return self._runtime.write(operation, context, park_key=park_key, ask_again=ask_again).map(found, refused)

    def _resolve_each(
        self, names: Sequence[PartitionName], context: CallContext | None
    ) -> Sequence[int] | AddedPartitions:
        """Return the ordinals, or the answer if some partitions do not exist or may not be written.

        Those partitions have their own errors, the others OPERATION_NOT_ATTEMPTED (spec transactions 2.3). Without a
        context no permission is checked: another server has checked its client. Raises Refused for invalid names.
        """
        check_partitions(names)
        ordinals: list[int] = []
        refused: dict[PartitionName, Refused] = {}
        for name in names:
            try:
                ordinals.append(self._callers.resolve(name, Permission.WRITE, context))
            except Refused as refusal:
                refused[name] = refusal
        if not refused:
            return ordinals
        text = "another partition of the request was refused; nothing was added"
        others = Refused(ErrorCode.OPERATION_NOT_ATTEMPTED, text)
        return AddedPartitions([(name, refused.get(name, others)) for name in names], next(iter(refused.values())))

    def add_offsets(self, command: AddOffsets, context: CallContext) -> Pending[bool]:
        """Add the group to the transaction, which is open from then on."""
        transactional_id, group_id = command.transactional_id, command.group_id

        def ask() -> None:
            self._callers.check(transactional_id, context, command.identity)
            require(self._authorizer, context, Permission.READ, ResourceType.GROUP, group_id)

        ask()
        check_group_id(group_id)
        additions = adding.Additions(groups=frozenset({group_id}))
        return self._add(transactional_id, command.identity, additions, context, ask)

    def _add(
        self,
        transactional_id: str,
        identity: Identity,
        additions: adding.Additions,
        context: CallContext,
        ask_again: Callable[[], None],
    ) -> Pending[bool]:
        version = context.client_txn_version
        operation = Operation(
            self.shard_key(transactional_id),
            lambda shard, turn: shard.decide_add(
                transactional_id, identity, additions, turn, client_txn_version=version
            ),
        )
        park_key = TransactionInTheWay(transactional_id)
        return self._runtime.write(operation, context, park_key=park_key, ask_again=ask_again)

    def prepare_transaction(self, command: PrepareTransaction, context: CallContext) -> Pending[Identity]:
        """Prepare the open transaction for an outside decision. The reply is the identity to store with that
        decision."""
        transactional_id, identity = command.transactional_id, command.identity
        ask = partial(self._callers.check, transactional_id, context, identity, may_prepare=True)
        ask()
        try:
            checks_of = self.sequence_checks(command, context)
        except Refused as refusal:
            return self._runtime.write(once_durable(CATALOG_KEY, refusal), is_urgent=True)

        def decide(shard: TransactionShard, turn: Turn) -> Decision:
            return shard.decide_prepare(transactional_id, identity, turn, checks=checks_of(shard))

        park_key = TransactionInTheWay(transactional_id)
        operation = Operation(self.shard_key(transactional_id), decide)
        return self._runtime.write(operation, context, park_key=park_key, ask_again=ask)

    def end_txn(self, command: EndTxn, context: CallContext) -> Pending[Ended]:
        """Decide the outcome. A repetition gets the same answer.

        A commit is refused unless the log holds the records that the client says it sent. Their partitions are checked
        in the same step, after all earlier requests. So a client may send Produce and EndTxn without waiting in
        between.
        """
        transactional_id = command.transactional_id
        sink = coordinator_key(transactional_id)
        if sink != transactional_id:
            return self._leave_batch(command, sink, context)
        self._callers.check(transactional_id, context, command.identity)
        last_sequences: Sequence[tuple[int, int]] = ()
        # An abort does not depend on earlier records, so the client's sequences are only checked for a commit.
        if command.last_sequences and command.outcome is Outcome.COMMIT:
            try:
                last_sequences = self._callers.resolve_sequences(command.last_sequences, context)
            except Refused as refusal:
                return self._runtime.write(once_durable(CATALOG_KEY, refusal), is_urgent=True)
        version = context.client_txn_version

        def decide(shard: TransactionShard, turn: Turn) -> Decision:
            checks = self._checks(shard, command, last_sequences) if last_sequences else ()
            return shard.decide_end(command, turn, client_txn_version=version, checks=checks)

        park_key = TransactionInTheWay(transactional_id)
        operation = Operation(self.shard_key(transactional_id), decide)
        ask = partial(self._callers.check, transactional_id, context)
        return self._runtime.write(operation, context, park_key=park_key, is_urgent=True, ask_again=ask)

    def _leave_batch(self, command: EndTxn, sink: str, context: CallContext) -> Pending[Ended]:
        """Abort one member of a sink's batch: a task that failed aborts its own writes, and its batch goes on without
        it.

        Only the decision on the batch commits a member.
        """

        def ask() -> None:
            require(self._authorizer, context, Permission.WRITE, ResourceType.TRANSACTIONAL_ID, sink)

        ask()
        check_transactional_id(sink)
        identity = command.identity
        if identity.producer_id < 0 or not 0 <= identity.producer_epoch <= EPOCH_MAX:
            raise no_identity(identity)
        if command.outcome is Outcome.COMMIT:
            raise Refused(
                ErrorCode.INVALID_REQUEST,
                f"{command.transactional_id!a:.300} is a member of a sink's batch, which CommitBatch commits with the"
                " others; alone it can only be aborted",
            )
        operation = Operation(
            self.shard_key(command.transactional_id), lambda shard, turn: shard.decide_leave(command, turn)
        )
        park_key = TransactionInTheWay(command.transactional_id)
        return self._runtime.write(operation, context, park_key=park_key, is_urgent=True, ask_again=ask)

    def transact(self, command: Transact, context: CallContext) -> Pending[TransactResult]:
        """Perform a whole transaction with all its writes, or nothing.

        Raises Refused, also for a write that a participant does not take.
        """
        transactional_id, identity = command.transactional_id, command.identity
        self._callers.check(transactional_id, context, identity)
        check_can_transact(context)
        membership = Membership(transactional_id, *identity)
        partitions, offsets = self.ports.partitions, self.ports.offsets
        placed = partitions.place(command.batches, membership, context)
        groups = offsets.place(command.groups, membership, context) if command.groups else ()
        shares = self.ports.shares.place(command.shares, membership, context) if command.shares else ()
        additions = adding.Additions(
            partitions=frozenset(write.ordinal for write in placed.partitions),
            groups=frozenset(write.group_id for write in groups),
            shares=frozenset(ShareKey(*share) for write in shares for share in write.shares),
        )
        request = transacting.TransactRequest(
            transactional_id, identity, command.outcome, context.request_id, additions
        )
        transact = PlacedTransact(request, Contribution(placed.partitions, groups, shares), placed.refusal)
        operation = Operation(
            self.shard_key(transactional_id), lambda shard, turn: shard.decide_transact(transact, turn)
        )
        written: Pending[Transacted] = write_checked(
            self._runtime,
            operation,
            context,
            check=placed.check,
            park_key=TransactionInTheWay(transactional_id),
            ask_again=partial(self._ask_again, command, placed, context),
        )

        return written.then(partial(self._transacted, command, placed), outlives_caller=True)

    def _transacted(self, command: Transact, placed: PlacedBatches, transacted: Transacted) -> Pending[TransactResult]:
        """Return the result, with the offset at which the transaction begins in each partition. A partition that has
        forgotten it looks into its stored rows."""
        begins = {
            write.ordinal: offset for write, offset in zip(placed.partitions, transacted.first_offsets, strict=True)
        }

        def result(found: Sequence[int]) -> TransactResult:
            known = {ordinal: offset for ordinal, offset in begins.items() if offset is not None}
            known.update(zip(forgotten, found, strict=True))
            # A partition that does not exist has no ordinal; several batches may share one.
            ordinals = [target.ordinal if isinstance(target, PartitionRef) else None for target in placed.targets]
            first_offsets = [NO_OFFSET if ordinal is None else known[ordinal] for ordinal in ordinals]
            return TransactResult(transacted.ended, list(zip(placed.targets, first_offsets, strict=True)))

        forgotten = [ordinal for ordinal, offset in begins.items() if offset is None]
        if not forgotten:
            return settled(result(()))
        shard, csn = self.shard_key(command.transactional_id).number, transacted.ended.csn
        identity = EndIdentity(shard, csn, command.identity.producer_id)
        find = self.ports.partitions.remembered_offset
        return all_of([find(ordinal, identity) for ordinal in forgotten]).map(result)

    def _ask_again(self, command: Transact, placed: PlacedBatches, context: CallContext) -> None:
        """Repeat the permission checks of `transact` and of its parts. Raises Refused.

        The topics of offsets are checked in the decision, which resolves them.
        """
        self._callers.check(command.transactional_id, context)
        for topic in {target.topic for target in placed.targets if target.topic}:
            require(self._authorizer, context, Permission.WRITE, ResourceType.TOPIC, topic)
        group_ids = [*(each.group_id for each in command.groups), *(each.group_id for each in command.shares)]
        for group_id in group_ids:
            require(self._authorizer, context, Permission.READ, ResourceType.GROUP, group_id)

    def sequence_checks(
        self, command: PrepareTransaction, context: CallContext
    ) -> Callable[[TransactionShard], tuple[Operation, ...]]:
        """Return a function that makes the checks of `last_sequences`: operations that refuse unless the log holds
        these records.

        Raises Refused as `prepare_transaction`, for a refusal that rests on the catalog.
        """
        last_sequences = self._callers.resolve_sequences(command.last_sequences, context)
        return lambda shard: self._checks(shard, command, last_sequences)

    def _checks(
        self, shard: TransactionShard, command: EndTxn | PrepareTransaction, last_sequences: Sequence[tuple[int, int]]
    ) -> tuple[Operation, ...]:
        written_as = shard.table.written_as(command.transactional_id, command.identity)
        check = self.ports.sequences.check_last_sequence
        return tuple(check(ordinal, *written_as, sequence) for ordinal, sequence in last_sequences)


def _decide_plain(counters: CountersShard, _turn: Turn) -> Decision:
    records: list[Record] = []
    producer_id = counters.next_plain_producer_id(records)
    return Decision(reply=Initialised(Identity(producer_id, 0)), records=tuple(records))


def _none_added(command: AddPartitions, error: CoordinatorError) -> AddedPartitions:
    """Return an answer with this error for every partition (spec transactions 2.3)."""
    return AddedPartitions([(name, error) for name in command.partitions], error)
