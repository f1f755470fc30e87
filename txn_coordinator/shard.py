"""One shard of transactional ids: lookups, calls of the rules, and the decisions that follow.

Every `decide_*` method is the body of an operation: it changes nothing and returns a Decision. Lookups are in
`transaction_table`. Outcomes are decided and carried out in `outcomes`, requests of administrators in `interventions`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.hashing import MEMBER_PREFIX, coordinator_key
from coordinator_protocol.limits import Limits
from coordinator_runtime.decision import (
    ArmTimer,
    CancelTimer,
    Decision,
    Effect,
    Operation,
    Record,
    ShardEpoch,
    ShardKey,
    Turn,
)
from coordinator_runtime.expiration import START, Progress, first_sweep, next_sweep, sweep
from coordinator_runtime.participants import MarkerPort
from coordinator_runtime.ports import EndIdentity, Level, Levels, OutcomeNumber
from coordinator_runtime.timeline import Journal
from txn_coordinator import fencing
from txn_coordinator.config import EXPIRATION_MS, TwoPhase
from txn_coordinator.counters import CountersShard
from txn_coordinator.interventions import ADMIN_CAUSE, Interventions
from txn_coordinator.outcomes import (
    TIMEOUT,
    Contribution,
    Ended,
    Outcomes,
    Transacted,
    decide_complete,
    transacted,
)
from txn_coordinator.records import (
    SinkChanged,
    SinkForgotten,
    TransactionChanged,
    TransactionExpired,
    TransactionForgotten,
    TransactionRanThrough,
    TransactionRecord,
    TransactionStepped,
    TransactionUnreadable,
)
from txn_coordinator.requests import EndTxn
from txn_coordinator.rules import adding, ending, initialising, transacting
from txn_coordinator.rules.ending import Ending, by_server
from txn_coordinator.sink_state import Sinks
from txn_coordinator.sinks.decisions import SinkDecisions
from txn_coordinator.sinks.rules import check_member, given_up
from txn_coordinator.state import DECIDED, IDLE, LOST_INCARNATION, TAKEN_OVER, Identity, Transaction, TransactionState
from txn_coordinator.transaction_table import TransactionTable


class AbortStarted(Struct, frozen=True):
    """Reply to an InitProducerId that met an open transaction and must wait for its markers: nothing was
    initialised."""


class Initialised(Struct, frozen=True):
    """Reply to an InitProducerId: the identity that the producer uses from now on."""

    identity: Identity
    ongoing: Identity | None = None
    """Identity of the open transaction that was kept; None if none was open."""


class PlacedTransact(Struct, frozen=True):
    """A whole transaction in one request, with its writes resolved by the participants."""

    request: transacting.TransactRequest
    contribution: Contribution
    refusal: Operation | None = None
    """Operation that refuses the request unless it is a repetition, because a partition does not exist; None if all
    exist."""


_TIMEOUT_CAUSE: Final = "timeout"

_EXPIRATION_TIMER: Final = "transaction_expiration"


class TransactionShard:
    """Transactions by transactional id. `outcomes` describes the path of an outcome."""

    def __init__(
        self,
        key: ShardKey,
        journal: Journal,
        *,
        counters: CountersShard,
        markers: MarkerPort,
        limits: Limits,
        two_phase: TwoPhase,
    ) -> None:
        self.key = key
        self.outcomes = Outcomes(key, counters=counters, markers=markers, limits=limits, two_phase=two_phase)
        self._counters = counters
        self._markers = markers
        self._limits = limits
        self.expiration_ms = EXPIRATION_MS
        """Time after which an idle id is forgotten."""
        self.levels: Levels | None = None
        """Limits on ids and open transactions by principal; None for no limits."""
        self.table = TransactionTable(journal, least_producer_id=counters.least_producer_id)
        self._transactions = self.table.by_id
        self._ids = self.table.by_producer_id
        self.sinks = SinkDecisions(key, Sinks(journal), self._transactions.get, self.outcomes, counters, limits)
        """Transactions that are decided together."""
        self.interventions = Interventions(key, self.table.readable, self.outcomes, counters, limits)
        """Decisions for administrators."""
        self.acting = self.table.acting
        """Returns a transaction whose caller has shown who it is; see `TransactionTable.acting`."""

    @property
    def coordinator_epoch(self) -> int:
        """Number of times that the shard was opened; markers carry it."""
        return self.outcomes.coordinator_epoch

    # Deciding

    def decide_init(self, request: initialising.InitRequest, turn: Turn, *, may_abort_and_init: bool) -> Decision:
        """Decide InitProducerId. An open transaction is kept if the request says so.

        Otherwise it is aborted first. With `may_abort_and_init`, and if the abort can be fused, the initialisation is
        joined to it. Else the reply is AbortStarted.
        """
        self.table.check_readable(request.transactional_id)
        current = self.acting(request.transactional_id)
        if current is not None:
            if initialising.is_init_repeated(current, request):
                assert current.init is not None
                return Decision(reply=Initialised(current.init.identity, current.init.ongoing))
            ending.check_not_decided(current)
            fencing.check_expected(current, request.expected, self._limits)
            if current.state is TransactionState.ONGOING:
                fencing.check_init_on_open(current, request.expected)
                if request.keep_prepared:
                    return self._keep(current, request, turn)
                return self._abort_before_init(current, request, turn, may_abort_and_init=may_abort_and_init)
        given: list[Record] = []
        stepped = self._initialise(current, request, turn, partial(self._counters.next_producer_id, given))
        initialised = stepped.after
        return Decision(
            reply=Initialised(initialised.identity),
            records=(*given, Record(self.key, TransactionChanged(initialised), cause=initialised.cause)),
            events=(stepped,),
        )

    def init_at_once(
        self, request: initialising.InitRequest, turn: Turn, allocate: Callable[[], int]
    ) -> TransactionStepped | None:
        """Return the step of `decide_init`, for an InitProducerId without expected identity and an id that is new or
        idle.

        None if `decide_init` does anything else. Raises Refused as it does.
        """
        initialising.check_init_arguments(request, self._limits)
        name = request.transactional_id
        current = self.acting(name)
        if self._transactions.get(name) is not current or name in self.table.unreadable:
            # An id of a lost incarnation, or one that only a newer program can read. Both are rare.
            return None
        if current is not None and (current.state not in IDLE or initialising.is_init_repeated(current, request)):
            return None
        return self._initialise(current, request, turn, allocate)

    def _initialise(
        self,
        current: Transaction | None,
        request: initialising.InitRequest,
        turn: Turn,
        allocate: Callable[[], int],
    ) -> TransactionStepped:
        """Return the step of a new (None) or idle id to its next identity.

        Raises Refused if the caller holds too many ids, and as `initialising.initialise`.
        """
        if current is None:
            if self.levels is not None:
                self.levels.check(Level.TRANSACTIONAL_IDS, turn.principal)
            current = initialising.begin(request, allocate(), turn.now_ms)
        initialised = initialising.initialise(
            current, request, now_ms=turn.now_ms, limits=self._limits, allocate=allocate
        )
        return TransactionStepped(self._transactions.get(request.transactional_id), initialised)

    def _keep(self, current: Transaction, request: initialising.InitRequest, turn: Turn) -> Decision:
        given: list[Record] = []
        kept = initialising.keep(
            current,
            request,
            now_ms=turn.now_ms,
            limits=self._limits,
            allocate=partial(self._counters.next_producer_id, given),
        )
        return Decision(
            reply=Initialised(kept.client_identity, kept.identity),
            records=(*given, Record(self.key, TransactionChanged(kept), cause=kept.cause)),
            joins=self._seals(kept),
            effects=self._disarm(kept),
            events=(TransactionStepped(current, kept),),
        )

    def _abort_before_init(
        self, current: Transaction, request: initialising.InitRequest, turn: Turn, *, may_abort_and_init: bool
    ) -> Decision:
        # A caller that shows the transaction's identity is the client that opened it, and fences no other (KIP-360).
        how = by_server(TAKEN_OVER if request.expected is None else "client")
        again = Operation(self.key, lambda shard, later: shard.decide_init(request, later, may_abort_and_init=False))
        then = (again,) if may_abort_and_init else ()
        return self.outcomes.decide(current, how, turn, reply=AbortStarted(), then=then)

    def decide_add(
        self,
        transactional_id: str,
        identity: Identity,
        additions: adding.Additions,
        turn: Turn,
        *,
        client_txn_version: int,
    ) -> Decision:
        """Add partitions or groups to the transaction, opening it if none is open."""
        current = self.acting(transactional_id)
        if current is None:
            raise self._unknown(transactional_id, identity)
        added = adding.add(
            current,
            identity,
            additions,
            now_ms=turn.now_ms,
            limits=self._limits,
            client_txn_version=client_txn_version,
        )
        if added is None:
            return Decision(reply=True)
        effects: tuple[Effect, ...] = ()
        is_new = current.state is not TransactionState.ONGOING
        if is_new and self.levels is not None:
            self.levels.check(Level.OPEN_TRANSACTIONS, turn.principal)
        if is_new and not added.never_times_out:
            effects = (self._timeout_of(added, delay_ms=added.txn_timeout_ms),)
        return Decision(
            reply=True,
            records=(Record(self.key, TransactionChanged(added), cause=added.cause),),
            effects=effects,
            events=(TransactionStepped(current, added),),
        )

    def decide_verify(self, transactional_id: str, identity: Identity, partitions: frozenset[int]) -> Decision:
        """Return the partitions that are in the open transaction; writes nothing."""
        return Decision(reply=adding.verify(self._known(transactional_id, identity), identity, partitions))

    def decide_refuse_if_open(
        self, transactional_id: str, identity: Identity, partition: int, refusal: Refused
    ) -> Decision:
        """Raise the refusal if the partition is in the open transaction of this identity; writes nothing."""
        if adding.is_open_with(self.table.by_id.get(transactional_id), identity, partition):
            raise refusal
        return Decision()

    def decide_verify_group(
        self, transactional_id: str, identity: Identity, group: str, then: Callable[[OutcomeNumber], Decision]
    ) -> Decision:
        """Return the decision of `then` on the id's last outcome number, if the group is in the open transaction."""
        current = self._known(transactional_id, identity)
        adding.check_group(current, identity, group)
        return then(OutcomeNumber(self.key.number, current.csn))

    def decide_add_group(
        self,
        transactional_id: str,
        identity: Identity,
        group: str,
        then: Callable[[OutcomeNumber], Decision],
        turn: Turn,
    ) -> Decision:
        """Add the group, and continue with the decision of `then` on the id's last outcome number."""
        additions = adding.Additions(groups=frozenset({group}))
        added = self.decide_add(transactional_id, identity, additions, turn, client_txn_version=2)
        last = OutcomeNumber(self.key.number, self._known(transactional_id, identity).csn)
        go_on = Operation(self.key, lambda _shard, _turn: then(last))
        # The reply is that of `then`.
        return replace(added, reply=None, joins=(*added.joins, go_on))

    def decide_prepare(
        self, transactional_id: str, identity: Identity, turn: Turn, *, checks: tuple[Operation, ...] = ()
    ) -> Decision:
        """Decide PrepareTransaction. The reply is the identity of the transaction, to store with the outside decision.

        `checks` are the first joins. A refused one takes the records back that were replayed before it, and nothing is
        written.
        """
        current = self._known(transactional_id, identity)
        prepared = adding.prepare(current, identity, now_ms=turn.now_ms)
        if prepared is None:
            return Decision(reply=current.identity)
        return Decision(
            reply=prepared.identity,
            records=(Record(self.key, TransactionChanged(prepared), cause=prepared.cause),),
            joins=(*checks, *self._seals(prepared)),
            effects=self._disarm(prepared),
            events=(TransactionStepped(current, prepared),),
        )

    def decide_end(
        self, command: EndTxn, turn: Turn, *, client_txn_version: int = 2, checks: tuple[Operation, ...] = ()
    ) -> Decision:
        """Decide EndTxn. `checks` are the first joins: performed after the records were replayed, and before any
        marker. A refused check takes everything back, and nothing is written."""
        current = self.acting(command.transactional_id)
        if current is None:
            raise self._unknown(command.transactional_id, command.identity)
        if ending.judge_end(current, command, client_txn_version=client_txn_version) is ending.EndVerdict.REPEATED:
            return Decision(reply=Ended(current.identity, current.csn))
        how = Ending(command.outcome, bumps_epoch=client_txn_version >= 2, cause="client")
        decision = self.outcomes.decide(current, how, turn)
        return replace(decision, joins=(*checks, *decision.joins))

    def decide_leave(self, command: EndTxn, turn: Turn) -> Decision:
        """Decide EndTxn of a member of a sink's batch, which aborts it alone. Refused once its sink has decided on it,
        since that outcome is final."""
        current = self._known(command.transactional_id, command.identity)
        check_member(self.sinks.state.get(coordinator_key(command.transactional_id)), current)
        return self.decide_end(command, turn)

    def decide_transact(self, transact: PlacedTransact, turn: Turn) -> Decision:
        """Decide Transact. The reply is Transacted."""
        request = transact.request
        current = self._known(request.transactional_id, request.identity)
        opened = transacting.judge_transact(current, request, now_ms=turn.now_ms, limits=self._limits)
        if opened is None:
            return self._repeated(current, transact)
        if transact.refusal is not None:
            return Decision(joins=(transact.refusal,))
        transacting.check_something_to_end(opened, request)
        how = Ending(request.outcome, bumps_epoch=True, cause="client", transact_id=request.request_id)
        decision = self.outcomes.decide(opened, how, turn, brings=transact.contribution)
        opening = () if opened is current else (TransactionStepped(current, opened),)
        effects = decision.effects
        if current.state is not TransactionState.ONGOING:
            # A transaction that was opened in this operation has no timer yet.
            effects = tuple(each for each in effects if not isinstance(each, CancelTimer))
        combine = partial(transacted, decision.reply, len(transact.contribution.partitions))
        return replace(decision, reply=None, effects=effects, events=(*opening, *decision.events), combine=combine)

    def _repeated(self, current: Transaction, transact: PlacedTransact) -> Decision:
        """Return the answer that the Transact had.

        The partitions are asked in this very operation: before the next one, another transaction may take the place of
        this one in them.
        """
        identity = EndIdentity(self.key.number, current.csn, transact.request.identity.producer_id)
        ended = Ended(current.identity, current.csn)
        return Decision(
            reply=Transacted(ended, ()),
            joins=tuple(write.first_offset(identity) for write in transact.contribution.partitions),
            combine=partial(Transacted, ended),
        )

    def decide_abort(self, turn: Turn, *, meant: Transaction, cause: str) -> Decision:
        """Abort by the server: a timeout, a deleted topic, an administrator, or a lost incarnation.

        It does nothing if another transaction is open now, or none (spec transactions 9, row 15), or if its sink has
        decided on it. A transaction that awaits an outside decision is aborted only for an administrator or
        after a lost incarnation. It has no reply, since it may be joined to an operation that has one.
        """
        current = self._transactions.get(meant.transactional_id)
        if current is None or not ending.is_due(current, meant) or self.sinks.state.is_settled(current):
            return Decision()
        if current.never_times_out and cause not in (ADMIN_CAUSE, LOST_INCARNATION):
            return Decision()
        return replace(self.outcomes.decide(current, by_server(cause), turn), reply=None)

    def decide_complete(self, transactional_id: str, csn: int, turn: Turn) -> Decision:
        """Decide COMPLETE, once every participant has its marker. Does nothing if the outcome `csn` is complete
        already."""
        current = self._transactions.get(transactional_id)
        if current is None or current.state not in DECIDED or current.csn != csn:
            return Decision()
        return decide_complete(current, self.key, turn)

    def decide_expire(self, turn: Turn, progress: Progress = START) -> Decision:
        """Forget ids that were idle for too long, and schedule the next look (spec transactions 5)."""
        now_ms, rest = turn.now_ms, islice(self._transactions.values(), progress.position, None)
        last_uses = ((each.last_update_ms if each.state in IDLE else now_ms, each) for each in rest)
        found = sweep(last_uses, progress, now_ms=now_ms, expiration_ms=self.expiration_ms)
        return Decision(
            records=tuple(
                Record(self.key, TransactionForgotten(each.transactional_id), cause="expire") for each in found.expired
            ),
            effects=(next_sweep(_EXPIRATION_TIMER, self.key, found),),
            events=tuple(TransactionExpired(each) for each in found.expired),
        )

    # Changing

    def replay(self, value: TransactionRecord | ShardEpoch) -> None:
        match value:
            case TransactionChanged(transaction=transaction) | TransactionRanThrough(transaction=transaction):
                before = self._transactions.get(transaction.transactional_id)
                if before is None or before.producer_id != transaction.producer_id:
                    self._forget_producer_id(before)
                    self._ids.put(transaction.producer_id, transaction.transactional_id)
                self._transactions.put(transaction.transactional_id, transaction)
                if transaction.member is not None:
                    self.sinks.state.add_member(transaction.transactional_id)
            case TransactionForgotten(transactional_id=transactional_id):
                before = self._transactions.get(transactional_id)
                self._forget_producer_id(before)
                self._transactions.remove(transactional_id)
                if before is not None and before.member is not None:
                    self.sinks.state.remove_member(transactional_id)
            case SinkChanged(sink=sink):
                self.sinks.state.put(sink)
            case SinkForgotten(name=name):
                self.sinks.state.remove(name)
            case TransactionUnreadable(transactional_id=transactional_id, producer_id=producer_id):
                # Not in a TimelineMap, because it is only replayed by a load, which is never taken back.
                self.table.unreadable[transactional_id] = value
                self._ids.put(producer_id, transactional_id)
            case ShardEpoch(coordinator_epoch=coordinator_epoch):
                # As above: written while the shard is loaded, and durable before it serves.
                self.outcomes.coordinator_epoch = coordinator_epoch

    def on_loaded(self, turn: Turn) -> Decision:
        """Resume after a load: open transactions go on, with timeouts counted from their stored start. Decided ones are
        finished, and ids that expired meanwhile are forgotten soon."""
        effects: list[Effect] = [first_sweep(_EXPIRATION_TIMER, self.key)]
        for transaction in self._transactions.values():
            if self.table.is_forsaken(transaction):
                decide = partial(TransactionShard.decide_abort, meant=transaction, cause=LOST_INCARNATION)
                effects.append(ArmTimer((TIMEOUT, transaction.transactional_id), 1, Operation(self.key, decide)))
            elif transaction.state is TransactionState.ONGOING and transaction.member is not None:
                pass  # Its sink takes care of it.
            elif transaction.state is TransactionState.ONGOING and not transaction.never_times_out:
                left_ms = transaction.start_ms + transaction.txn_timeout_ms - turn.now_ms
                effects.append(self._timeout_of(transaction, delay_ms=min(max(left_ms, 0), transaction.txn_timeout_ms)))
            elif transaction.state in DECIDED:
                effects.append(self.outcomes.send_markers(transaction))
        return Decision(effects=(*effects, *self.sinks.on_loaded(turn, self.expiration_ms)))

    # Helpers

    def _forget_producer_id(self, before: Transaction | None) -> None:
        if before is not None:
            self._ids.remove(before.producer_id)

    def _known(self, transactional_id: str, identity: Identity) -> Transaction:
        current = self.acting(transactional_id)
        if current is None:
            raise self._unknown(transactional_id, identity)
        return current

    def _unknown(self, transactional_id: str, identity: Identity) -> Refused:
        """Return the refusal for an unknown id. Raises Refused instead for an id that only a newer program knows."""
        self.table.check_readable(transactional_id)
        if transactional_id.startswith(MEMBER_PREFIX):
            return given_up(transactional_id)
        return Refused(
            ErrorCode.INVALID_PRODUCER_ID_MAPPING,
            f"{transactional_id!r} with producer id {identity.producer_id} is not known; call InitProducerId first",
        )

    def _seals(self, transaction: Transaction) -> tuple[Operation, ...]:
        """Return the operations that seal the partitions of a transaction.

        Partitions know it by its identity alone, and would otherwise take records of a zombie with that identity.
        """
        return tuple(
            self._markers.partition_seal(ordinal, *transaction.identity) for ordinal in sorted(transaction.partitions)
        )

    def _disarm(self, transaction: Transaction) -> tuple[Effect, ...]:
        return (CancelTimer((TIMEOUT, transaction.transactional_id)),) if transaction.never_times_out else ()

    def _timeout_of(self, transaction: Transaction, *, delay_ms: int) -> ArmTimer:
        decide = partial(TransactionShard.decide_abort, meant=transaction, cause=_TIMEOUT_CAUSE)
        # One more millisecond: at the deadline itself the client may still end it (strictly later, spec transactions
        # 5).
        return ArmTimer((TIMEOUT, transaction.transactional_id), delay_ms + 1, Operation(self.key, decide))
