"""What the transaction coordinator does for its callers: one method per use case, each a Pending reply.

The service finds the shard, writes the operation, and says what a call does when it meets a transaction that is being
completed. Who may call, and how requests look on the wire, is the servicer's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NoReturn

from msgspec import Struct

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.hashing import shard_of
from coordinator_protocol.limits import Limits
from coordinator_protocol.names import check_transactional_id
from coordinator_runtime.decision import Coordinator, Decision, Operation, ShardKey, TransactionInTheWay, Turn
from coordinator_runtime.patterns import Pattern
from coordinator_runtime.pending import Pending, failed, settled
from coordinator_runtime.ports import CallContext, PartitionSequences
from coordinator_runtime.runtime import Runtime
from txn_coordinator import rules
from txn_coordinator.counters import COUNTERS, CountersShard
from txn_coordinator.marker_sender import MarkerSender
from txn_coordinator.outcomes import Ended
from txn_coordinator.shard import AbortStarted, Initialised, TransactionShard
from txn_coordinator.state import IDLE, Identity, Transaction, TransactionState

OPEN = frozenset(TransactionState) - IDLE
"""States in which a transaction holds something up."""


class TransactionFilter(Struct, frozen=True, kw_only=True):
    """What ListTransactions keeps; all of it must hold (spec transactions 2.8)."""

    states: Sequence[str] = ()
    """API names; empty = all. Names that do not exist match nothing."""
    producer_ids: Sequence[int] = ()
    open_longer_than_ms: int = -1
    """Negative = any duration, also of ids without a transaction."""
    id_pattern: str = ""


class Listing(Struct, frozen=True):
    """Transactional ids that matched, and the state names that do not exist."""

    transactions: Sequence[Transaction]
    unknown_states: Sequence[str]


class EndTxn(Struct, frozen=True, kw_only=True):
    """EndTxn as the edge hands it in: the request, and what the client claims to have sent."""

    request: rules.EndRequest
    last_sequences: Sequence[tuple[int, int]] = ()
    """(partition ordinal, last sequence number sent in this transaction)."""


class PrepareTransaction(Struct, frozen=True, kw_only=True):
    """PrepareTransaction as the edge hands it in."""

    transactional_id: str
    identity: Identity
    last_sequences: Sequence[tuple[int, int]] = ()
    """As in EndTxn."""


class TransactionService:
    """Use cases of the transaction coordinator. Replies come when everything they rest on is durable."""

    def __init__(
        self,
        runtime: Runtime,
        *,
        limits: Limits,
        shard_count: int,
        sender: MarkerSender,
        sequences: PartitionSequences,
    ) -> None:
        self._runtime = runtime
        self._limits = limits
        self._shard_keys = tuple(ShardKey(Coordinator.TRANSACTIONS, number) for number in range(shard_count))
        self._sender = sender
        self._sequences = sequences
        self.verifications = {"all": 0, "missing": 0, "refused": 0}
        """Calls of `verify_partitions` that were answered, by what they found."""

    def now_ms(self) -> int:
        """Wall time, against which ages are told."""
        return self._runtime.clock.wall_ms()

    def shard_key(self, transactional_id: str) -> ShardKey:
        return self._shard_keys[shard_of(transactional_id, len(self._shard_keys))]

    def new_producer_id(self, context: CallContext) -> Pending[Identity]:
        """InitProducerId without a transactional id: an identity nobody had before, for plain appends only."""

        def decide(shard: CountersShard, _turn: Turn) -> Decision:
            producer_id, records = shard.next_plain_producer_id()
            return Decision(reply=Identity(producer_id, 0), records=records)

        return self._runtime.write(Operation(COUNTERS, decide), context)

    def init_producer_id(self, request: rules.InitRequest, context: CallContext) -> Pending[Initialised]:
        """The identity to go on with; every older one is fenced. Keeps an open transaction if the request says so; else
        aborts it first, and waits for its markers where they take a phase of their own."""
        check_transactional_id(request.transactional_id)
        rules.check_init_arguments(request, self._limits)
        may_abort_and_init = not context.immediate_51
        operation = Operation(
            self.shard_key(request.transactional_id),
            lambda shard, turn: shard.decide_init(request, turn, may_abort_and_init=may_abort_and_init),
        )
        return self._init(operation, request.transactional_id, context)

    def _init(
        self, operation: Operation, transactional_id: str, context: CallContext, *, is_continued: bool = False
    ) -> Pending[Initialised]:
        def after(reply: Initialised | AbortStarted) -> Pending[Initialised]:
            if isinstance(reply, Initialised):
                return settled(reply)
            if context.immediate_51:
                return failed(
                    Refused(
                        ErrorCode.CONCURRENT_TRANSACTIONS,
                        f"the open transaction of {transactional_id!r} is being aborted first; call again",
                    )
                )
            return self._init(operation, transactional_id, context, is_continued=True)

        park_key = TransactionInTheWay(transactional_id)
        return self._runtime.write(operation, context, park_key=park_key, is_continued=is_continued).then(after)

    def add_to_transaction(
        self, transactional_id: str, identity: Identity, additions: rules.Additions, context: CallContext
    ) -> Pending[bool]:
        """The partitions and groups are in the transaction, which is open from then on."""
        check_transactional_id(transactional_id)
        operation = Operation(
            self.shard_key(transactional_id),
            lambda shard, turn: shard.decide_add(
                transactional_id, identity, additions, turn, client_txn_version=context.client_txn_version
            ),
        )
        return self._write(operation, transactional_id, context)

    def verify_partitions(
        self, transactional_id: str, identity: Identity, partitions: frozenset[int], context: CallContext
    ) -> Pending[frozenset[int]]:
        """Those of the partitions that are in the open transaction."""
        check_transactional_id(transactional_id)
        operation = Operation(
            self.shard_key(transactional_id),
            lambda shard, _turn: shard.decide_verify(transactional_id, identity, partitions),
        )

        def counted(members: frozenset[int]) -> frozenset[int]:
            self.verifications["all" if members == partitions else "missing"] += 1
            return members

        def refused(error: Exception) -> NoReturn:
            self.verifications["refused"] += 1
            raise error

        verified: Pending[frozenset[int]] = self._write(operation, transactional_id, context)
        return verified.map(counted).recover(refused)

    def prepare_transaction(self, command: PrepareTransaction, context: CallContext) -> Pending[Identity]:
        """The open transaction is prepared for an outside decision; the reply is the identity to note beside that."""
        transactional_id, identity = command.transactional_id, command.identity
        check_transactional_id(transactional_id)

        def decide(shard: TransactionShard, turn: Turn) -> Decision:
            checks = self._checks(shard.written_as(transactional_id, identity), command.last_sequences)
            return shard.decide_prepare(transactional_id, identity, turn, checks=checks)

        return self._write(Operation(self.shard_key(transactional_id), decide), transactional_id, context)

    def _checks(self, identity: Identity, last_sequences: Iterable[tuple[int, int]]) -> tuple[Operation, ...]:
        return tuple(self._sequences.check_last_sequence(ordinal, *identity, last) for ordinal, last in last_sequences)

    def end_txn(self, command: EndTxn, context: CallContext) -> Pending[Ended]:
        """The outcome is durable, and the identity for the next transaction is known."""
        request = command.request
        check_transactional_id(request.transactional_id)

        def decide(shard: TransactionShard, turn: Turn) -> Decision:
            written_as = shard.written_as(request.transactional_id, request.identity)
            return shard.decide_end(request, turn, checks=self._checks(written_as, command.last_sequences))

        operation = Operation(self.shard_key(request.transactional_id), decide)
        return self._write(operation, request.transactional_id, context, is_urgent=True)

    def describe(self, transactional_id: str) -> Transaction:
        """The durable state of an id; in a Prepare state only with the partitions that have no marker yet.

        Raises Refused TRANSACTIONAL_ID_NOT_FOUND, KAFKA_STORAGE_ERROR."""
        check_transactional_id(transactional_id)
        shard: TransactionShard = self._runtime.shard(self.shard_key(transactional_id))
        shard.check_readable(transactional_id)
        transaction = shard.durable(transactional_id)
        if transaction is None:
            raise Refused(
                ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
                f"transactional id {transactional_id!a} has never been initialised",
            )
        return transaction

    def partitions_waiting(self, transaction: Transaction) -> frozenset[int]:
        """Partitions of the transaction; of a decided one, those whose marker is not durable yet."""
        waiting = self._sender.waiting_partitions(transaction.transactional_id, transaction.csn)
        return transaction.partitions if waiting is None else transaction.partitions & waiting

    def list(self, wanted: TransactionFilter, now_ms: int) -> Listing:
        """Durable transactions that match. Raises Refused: INVALID_REGULAR_EXPRESSION, COORDINATOR_LOAD_IN_PROGRESS
        while a shard is being loaded."""
        known = {state.api_name: state for state in TransactionState}
        unknown = [name for name in wanted.states if name not in known and name != "Dead"]
        states = {known[name] for name in wanted.states if name in known}
        matches_id = _id_matcher(wanted.id_pattern)

        def matches(transaction: Transaction) -> bool:
            # A completed transaction keeps its start, but nothing of it is open any more.
            is_open = transaction.state in OPEN
            return (
                (not wanted.states or transaction.state in states)
                and (not wanted.producer_ids or transaction.producer_id in wanted.producer_ids)
                and (
                    wanted.open_longer_than_ms < 0
                    or (is_open and now_ms - transaction.start_ms > wanted.open_longer_than_ms)
                )
                and matches_id(transaction.transactional_id)
            )

        found = sorted(filter(matches, self._all_durable()), key=lambda transaction: transaction.transactional_id)
        return Listing(found, unknown)

    def _all_durable(self) -> Iterable[Transaction]:
        for shard in self._runtime.table.listable(Coordinator.TRANSACTIONS):
            yield from shard.durable_transactions()

    def _write(
        self, operation: Operation, transactional_id: str, context: CallContext, *, is_urgent: bool = False
    ) -> Pending:  # type: ignore[type-arg]  # the reply type is the operation's
        park_key = TransactionInTheWay(transactional_id)
        return self._runtime.write(operation, context, park_key=park_key, is_urgent=is_urgent)


def _id_matcher(pattern: str) -> Callable[[str], bool]:
    if not pattern:
        return lambda _transactional_id: True
    return Pattern(pattern).matches
