"""One shard of transactional ids: looks up, asks the rules, and says what follows.

Every `decide_*` method is the body of an operation: it changes nothing and returns a Decision. A decided outcome
follows one of two paths with the same steps (design 5):
- fused: PREPARE, a marker in every participant, COMPLETE, all joined in this operation and this batch;
- split: PREPARE alone; once it is durable the marker sender writes the markers, and then COMPLETE.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import islice
from typing import Final

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.limits import Limits
from coordinator_protocol.marker import Marker, Outcome
from coordinator_protocol.quick import quick
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
    Unpark,
)
from coordinator_runtime.expiration import START, Progress, first_sweep, next_sweep, sweep
from coordinator_runtime.ports import MarkerPort
from coordinator_runtime.timeline import Journal, TimelineMap
from txn_coordinator import rules
from txn_coordinator.counters import CountersShard
from txn_coordinator.events import TransactionExpired, TransactionStepped
from txn_coordinator.records import TransactionChanged, TransactionForgotten
from txn_coordinator.state import IDLE, PREPARED, Identity, Transaction, TransactionState


class TwoPhase(StrEnum):
    """How an outcome travels from PREPARE to COMPLETE."""

    FUSED = "fused"
    """In one batch where all participants are local and few enough: one flush per commit."""
    SPLIT = "split"
    """In three: needed for participants elsewhere, and to watch the phases."""


@dataclass(frozen=True, slots=True)
class SendMarkers:
    """Effect: PREPARE is durable; every participant must get the marker, then the id its COMPLETE."""

    shard: ShardKey
    transactional_id: str
    marker: Marker
    partitions: frozenset[int]
    groups: frozenset[str]


@dataclass(frozen=True, slots=True)
class AbortStarted:
    """Reply to an InitProducerId that met an open transaction and must wait for its markers: nothing was
    initialised."""


@dataclass(frozen=True, slots=True)
class Initialised:
    """Reply to an InitProducerId: the identity to go on with."""

    identity: Identity
    ongoing: Identity | None = None
    """Of the open transaction that was kept; None = none was open."""


@quick
@dataclass(frozen=True, slots=True)
class Ended:
    """Reply to EndTxn: the outcome is durable."""

    next_identity: Identity
    csn: int


@dataclass(frozen=True, slots=True)
class Asked:
    """How an administrator asked for something to be done to an id."""

    dry_run: bool = False
    """Only reply what would be done."""
    older_than_ms: int | None = None
    """Refuse unless the transaction has been open for longer."""


@dataclass(frozen=True, slots=True)
class Acted:
    """Reply to an administrator: the id as it was, and who is fenced."""

    before: Transaction
    fenced: Identity

    @staticmethod
    def to(current: Transaction) -> Acted:
        return Acted(current, current.client_identity)


@dataclass(frozen=True, slots=True)
class FenceBegun:
    """Reply to an administrator: the open transaction is being aborted, and fencing must be asked for again."""

    acted: Acted


def park_key(transactional_id: str) -> tuple[str, str]:
    """What calls that meet a transaction being completed wait for."""
    return ("transaction", transactional_id)


_TIMEOUT_CAUSE: Final = "timeout"
ADMIN_CAUSE: Final = "admin"
"""Of an abort that an administrator asked for."""

EXPIRATION_MS: Final = 7 * 24 * 3_600_000
"""Kafka's `transactional.id.expiration.ms`."""

_EXPIRATION_TIMER: Final = "transaction_expiration"


class TransactionShard:
    """Transactions by transactional id. See the module for the path of an outcome."""

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
        self.coordinator_epoch = 0
        self._counters = counters
        self._markers = markers
        self._limits = limits
        self._two_phase = two_phase
        self.expiration_ms = EXPIRATION_MS
        """After how long an idle id is forgotten."""
        self.is_served: Callable[[ShardKey], bool] = lambda _key: True
        """Whether a shard serves here at this moment, so that an operation on it can be joined."""
        self._transactions: TimelineMap[str, Transaction] = TimelineMap(journal)
        self._ids: TimelineMap[int, str] = TimelineMap(journal)
        """Transactional ids by producer id."""

    # Reading

    def durable(self, transactional_id: str) -> Transaction | None:
        return self._transactions.durable(transactional_id)

    def durable_transactions(self) -> Iterable[Transaction]:
        return (transaction for _, transaction in self._transactions.durable_items())

    def live_transactions(self) -> Iterable[Transaction]:
        return self._transactions.values()

    def owner_of(self, producer_id: int) -> Transaction | None:
        """The id whose transactions have this producer id, live state."""
        transactional_id = self._ids.get(producer_id)
        return None if transactional_id is None else self._transactions.get(transactional_id)

    def owners_among(self, producer_ids: Set[int]) -> dict[int, Transaction]:
        """The same for those of many producer ids that are at home here."""
        at_home = self._ids.keys() & producer_ids
        return {producer_id: owner for producer_id in at_home if (owner := self.owner_of(producer_id)) is not None}

    def open_touching(self, ordinals: frozenset[int]) -> list[Transaction]:
        """Open transactions, live state, with one of these partitions. Those that await an outside decision are left
        out: a commit of records that are deleted anyway harms nobody, an abort would break the promise."""
        return [
            transaction
            for transaction in self._transactions.values()
            if transaction.state is TransactionState.ONGOING
            and transaction.partitions & ordinals
            and not transaction.is_promised
        ]

    def written_as(self, transactional_id: str, shown: Identity) -> Identity:
        """Under which identity the records of the transaction were written that a client shows this one for."""
        current = self._transactions.get(transactional_id)
        return shown if current is None or shown != current.client_identity else current.identity

    # Deciding

    def decide_init(self, request: rules.InitRequest, turn: Turn, *, may_abort_and_init: bool) -> Decision:
        """InitProducerId. An open transaction is kept if the request says so. Else it is aborted first; with
        `may_abort_and_init`, and if the abort can be fused, the initialisation is joined to it. Otherwise the reply is
        AbortStarted."""
        current = self._transactions.get(request.transactional_id)
        allocation = _Allocation(self._counters)
        known = current
        if current is None:
            current = Transaction(
                transactional_id=request.transactional_id,
                producer_id=allocation.take(),
                txn_timeout_ms=request.stored_timeout_ms,
                last_update_ms=turn.now_ms,
            )
        elif rules.is_init_repeated(current, request):
            assert current.init is not None
            return Decision(reply=Initialised(current.init.identity, current.init.ongoing))
        rules.check_not_prepared(current)
        rules.check_expected(current, request.expected, self._limits)
        if current.state is TransactionState.ONGOING:
            rules.check_init_on_open(current, request.expected)
            if request.keep_prepared:
                return self._keep(current, request, turn)
            return self._abort_before_init(current, request, turn, may_abort_and_init=may_abort_and_init)
        initialised = rules.initialise(
            current, request, now_ms=turn.now_ms, limits=self._limits, allocate=allocation.take
        )
        return Decision(
            reply=Initialised(initialised.identity),
            records=(*allocation.records, self._changed(initialised)),
            events=(TransactionStepped(known, initialised),),
        )

    def _keep(self, current: Transaction, request: rules.InitRequest, turn: Turn) -> Decision:
        allocation = _Allocation(self._counters)
        kept = rules.keep(current, request, now_ms=turn.now_ms, limits=self._limits, allocate=allocation.take)
        return Decision(
            reply=Initialised(kept.client_identity, kept.identity),
            records=(*allocation.records, self._changed(kept)),
            joins=self._seals(kept),
            effects=self._disarm(kept),
            events=(TransactionStepped(current, kept),),
        )

    def _abort_before_init(
        self, current: Transaction, request: rules.InitRequest, turn: Turn, *, may_abort_and_init: bool
    ) -> Decision:
        # Who shows the identity that the transaction has is its own client, and fences nobody (KIP-360).
        ending = _abort("fence" if request.expected is None else "client")
        again = Operation(self.key, lambda shard, later: shard.decide_init(request, later, may_abort_and_init=False))
        then = (again,) if may_abort_and_init else ()
        return self._decide_outcome(current, ending, turn, reply=AbortStarted(), then=then)

    def decide_add(
        self,
        transactional_id: str,
        identity: Identity,
        additions: rules.Additions,
        turn: Turn,
        *,
        client_txn_version: int,
    ) -> Decision:
        """Add partitions or groups to the transaction, opening it if none is open."""
        current = self._known(transactional_id, identity)
        added = rules.add(
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
        if current.state is not TransactionState.ONGOING and not added.is_promised:
            effects = (self._timeout_of(added, delay_ms=added.txn_timeout_ms),)
        return Decision(
            reply=True,
            records=(self._changed(added),),
            effects=effects,
            events=(TransactionStepped(current, added),),
        )

    def decide_verify(self, transactional_id: str, identity: Identity, partitions: frozenset[int]) -> Decision:
        """Which of the partitions are in the open transaction; writes nothing."""
        return Decision(reply=rules.verify(self._known(transactional_id, identity), identity, partitions))

    def decide_verify_group(
        self, transactional_id: str, identity: Identity, group: str, then: Callable[[int], Decision]
    ) -> Decision:
        """What `then` decides, told the csn of the id's last outcome, if the group is in the open transaction."""
        current = self._known(transactional_id, identity)
        rules.check_group(current, identity, group)
        return then(current.csn)

    def decide_add_group(
        self,
        transactional_id: str,
        identity: Identity,
        group: str,
        then: Callable[[int], Decision],
        turn: Turn,
    ) -> Decision:
        """Add the group, and go on with what `then` decides, told the csn of the id's last outcome."""
        additions = rules.Additions(groups=frozenset({group}))
        added = self.decide_add(transactional_id, identity, additions, turn, client_txn_version=2)
        last_csn = self._known(transactional_id, identity).csn
        go_on = Operation(self.key, lambda _shard, _turn: then(last_csn))
        # The reply is that of what follows.
        return replace(added, reply=None, joins=(*added.joins, go_on))

    def decide_prepare(
        self, transactional_id: str, identity: Identity, turn: Turn, *, checks: tuple[Operation, ...] = ()
    ) -> Decision:
        """PrepareTransaction. The reply is the identity of the transaction, to be noted beside the outside decision.
        `checks` are joined first and refuse the whole request, nothing written."""
        current = self._known(transactional_id, identity)
        promised = rules.promise(current, identity, now_ms=turn.now_ms)
        if promised is None:
            return Decision(reply=current.identity)
        return Decision(
            reply=promised.identity,
            records=(self._changed(promised),),
            joins=(*checks, *self._seals(promised)),
            effects=self._disarm(promised),
            events=(TransactionStepped(current, promised),),
        )

    def decide_end(self, request: rules.EndRequest, turn: Turn, *, checks: tuple[Operation, ...] = ()) -> Decision:
        """EndTxn. `checks` are joined first and refuse the whole request, nothing written."""
        current = self._known(request.transactional_id, request.identity)
        if rules.end(current, request) is rules.EndVerdict.REPEATED:
            return Decision(reply=Ended(current.identity, current.csn))
        ending = rules.Ending(request.outcome, bumps_epoch=request.client_txn_version >= 2, cause="client")
        return self._decide_outcome(current, ending, turn, checks=checks)

    def decide_abort(
        self, transactional_id: str, identity: Identity, start_ms: int, turn: Turn, *, cause: str
    ) -> Decision:
        """Abort by the server: a timeout, a deleted topic, an administrator. Does nothing unless the very transaction
        that it was meant for is still open (spec transactions 9, row 15), nor to one that awaits an outside decision,
        which only an administrator may break. No reply: it may be joined to something that has one."""
        current = self._transactions.get(transactional_id)
        if current is None or not rules.is_due(current, identity=identity, start_ms=start_ms):
            return Decision()
        if current.is_promised and cause != ADMIN_CAUSE:
            return Decision()
        return replace(self._decide_outcome(current, _abort(cause), turn), reply=None)

    def decide_admin_abort(self, transactional_id: str, asked: Asked, turn: Turn) -> Decision:
        """Abort the open transaction, whatever it waits for. The reply is Acted."""
        current = self._asked_for(transactional_id, asked, turn)
        rules.check_open(current)
        if asked.dry_run:
            return Decision(reply=Acted.to(current))
        return self._decide_outcome(current, _abort(ADMIN_CAUSE), turn, reply=Acted.to(current))

    def decide_fence(
        self, transactional_id: str, asked: Asked, turn: Turn, *, may_abort_and_fence: bool, begun: Acted | None = None
    ) -> Decision:
        """Raise the epoch of an id on nobody's behalf: whoever held it is fenced, and the stored timeout stays. An open
        transaction is aborted first, as for InitProducerId. The reply is Acted, or FenceBegun when only that was
        done."""
        current = self._asked_for(transactional_id, asked, turn)
        acted = Acted.to(current) if begun is None else begun
        if asked.dry_run:
            return Decision(reply=acted)
        rules.check_not_prepared(current)
        if current.state is TransactionState.ONGOING:
            again = fence_operation(self.key, transactional_id, replace(asked, older_than_ms=None), begun=acted)
            then = (again,) if may_abort_and_fence else ()
            return self._decide_outcome(current, _abort(ADMIN_CAUSE), turn, reply=FenceBegun(acted), then=then)
        allocation = _Allocation(self._counters)
        fenced = rules.fence(current, now_ms=turn.now_ms, limits=self._limits, allocate=allocation.take)
        return Decision(
            reply=acted,
            records=(*allocation.records, self._changed(fenced)),
            events=(TransactionStepped(current, fenced),),
        )

    def _asked_for(self, transactional_id: str, asked: Asked, turn: Turn) -> Transaction:
        current = self._transactions.get(transactional_id)
        if current is None:
            raise Refused(
                ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, f"transactional id {transactional_id!a:.300} is not known"
            )
        if asked.older_than_ms is not None:
            rules.check_open_longer(current, asked.older_than_ms, now_ms=turn.now_ms)
        return current

    def decide_complete(self, transactional_id: str, csn: int, turn: Turn) -> Decision:
        """Every participant has its marker: COMPLETE. Does nothing when the outcome `csn` is complete already."""
        current = self._transactions.get(transactional_id)
        if current is None or current.state not in PREPARED or current.csn != csn:
            return Decision()
        completed = rules.complete(current, now_ms=turn.now_ms)
        return Decision(
            records=(self._changed(completed),),
            effects=(Unpark(park_key(transactional_id)),),
            events=(TransactionStepped(current, completed),),
        )

    def decide_expire(self, turn: Turn, progress: Progress = START) -> Decision:
        """Forget ids that were idle for too long, and look again when the next one may be due (spec transactions 5)."""
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

    def _decide_outcome(
        self,
        current: Transaction,
        ending: rules.Ending,
        turn: Turn,
        *,
        checks: tuple[Operation, ...] = (),
        reply: object | None = None,
        then: tuple[Operation, ...] = (),
    ) -> Decision:
        """PREPARE, and what follows from it. The only place where an outcome is decided. `then` is joined at the end,
        and replies, if all of that is done in this operation."""
        allocation = _Allocation(self._counters)
        csn, csn_given = self._counters.next_csn()
        prepared = rules.prepare(
            current, ending, csn=csn, now_ms=turn.now_ms, limits=self._limits, allocate=allocation.take
        )
        # The client's next identity is that of the planned COMPLETE record, never the fencing epoch (KAFKA-18660).
        planned = rules.complete(prepared, now_ms=turn.now_ms)
        decision = Decision(
            reply=Ended(planned.identity, csn) if reply is None else reply,
            records=(*allocation.records, csn_given, self._changed(prepared)),
            joins=checks,
            effects=(CancelTimer(_timer_key(current.transactional_id)),),
            events=(TransactionStepped(current, prepared),),
        )
        markers = self._joinable_markers(prepared)
        if markers is None:
            return replace(decision, effects=(*decision.effects, self._send_markers(prepared)))
        completed = complete_operation(self.key, prepared.transactional_id, prepared.csn)
        return replace(decision, joins=(*checks, *markers, completed, *then))

    def _joinable_markers(self, prepared: Transaction) -> list[Operation] | None:
        """The markers of a transaction that can be finished in the operation that decides it; None for one that must
        be finished later, step by step. All shards of a runtime share its commit groups, so those that serve here are
        one atomic domain; one that does not serve gets its marker when it is back (design 5)."""
        if self._two_phase is not TwoPhase.FUSED or prepared.participant_count > self._limits.fused_participants_max:
            return None
        marker = rules.marker_of(prepared, self.coordinator_epoch)
        markers = [self._markers.partition_marker(ordinal, marker) for ordinal in sorted(prepared.partitions)]
        markers.extend(self._markers.group_marker(group, marker) for group in sorted(prepared.groups))
        return markers if all(self.is_served(each.shard) for each in markers) else None

    # Changing

    def replay(self, value: TransactionChanged | TransactionForgotten | ShardEpoch) -> None:
        match value:
            case TransactionChanged(transaction=transaction):
                before = self._transactions.get(transaction.transactional_id)
                if before is None or before.producer_id != transaction.producer_id:
                    self._forget_producer_id(before)
                    self._ids.put(transaction.producer_id, transaction.transactional_id)
                self._transactions.put(transaction.transactional_id, transaction)
            case TransactionForgotten(transactional_id=transactional_id):
                self._forget_producer_id(self._transactions.get(transactional_id))
                self._transactions.remove(transactional_id)
            case ShardEpoch(coordinator_epoch=coordinator_epoch):
                self.coordinator_epoch = coordinator_epoch

    def on_loaded(self, turn: Turn) -> Decision:
        """Open transactions go on, their timeout counted from their stored start, if they have one; decided ones are
        finished; ids that expired meanwhile are forgotten soon."""
        effects: list[Effect] = [first_sweep(_EXPIRATION_TIMER, self.key)]
        for transaction in self._transactions.values():
            if transaction.state is TransactionState.ONGOING and not transaction.is_promised:
                left_ms = transaction.start_ms + transaction.txn_timeout_ms - turn.now_ms
                effects.append(self._timeout_of(transaction, delay_ms=min(max(left_ms, 0), transaction.txn_timeout_ms)))
            elif transaction.state in PREPARED:
                effects.append(self._send_markers(transaction))
        return Decision(effects=tuple(effects))

    # Helpers

    def _forget_producer_id(self, before: Transaction | None) -> None:
        if before is not None:
            self._ids.remove(before.producer_id)

    def _known(self, transactional_id: str, identity: Identity) -> Transaction:
        current = self._transactions.get(transactional_id)
        if current is None:
            raise Refused(
                ErrorCode.INVALID_PRODUCER_ID_MAPPING,
                f"{transactional_id!r} with producer id {identity.producer_id} is not known; call InitProducerId first",
            )
        return current

    def _changed(self, transaction: Transaction) -> Record:
        return Record(self.key, TransactionChanged(transaction), cause=transaction.cause)

    def _send_markers(self, prepared: Transaction) -> SendMarkers:
        marker = rules.marker_of(prepared, self.coordinator_epoch)
        return SendMarkers(self.key, prepared.transactional_id, marker, prepared.partitions, prepared.groups)

    def _seals(self, transaction: Transaction) -> tuple[Operation, ...]:
        """Partitions know the open transaction by its identity alone, and would take records of a zombie that shows
        it."""
        return tuple(
            self._markers.partition_seal(ordinal, *transaction.identity) for ordinal in sorted(transaction.partitions)
        )

    def _disarm(self, transaction: Transaction) -> tuple[Effect, ...]:
        return (CancelTimer(_timer_key(transaction.transactional_id)),) if transaction.is_promised else ()

    def _timeout_of(self, transaction: Transaction, *, delay_ms: int) -> ArmTimer:
        operation = abort_operation(self.key, transaction, cause=_TIMEOUT_CAUSE)
        # One more millisecond: the deadline itself still belongs to the client (strictly later, spec transactions 5).
        return ArmTimer(_timer_key(transaction.transactional_id), delay_ms + 1, operation)


class _Allocation:
    """Producer ids that one decision takes, with the records that make them taken. At most one is ever needed."""

    def __init__(self, counters: CountersShard) -> None:
        self._counters = counters
        self.records: tuple[Record, ...] = ()

    def take(self) -> int:
        assert not self.records, "one decision needs at most one producer id"
        producer_id, self.records = self._counters.next_producer_id()
        return producer_id


def abort_operation(key: ShardKey, transaction: Transaction, *, cause: str) -> Operation:
    """Aborts exactly this open transaction, if it still is open when the operation runs."""
    transactional_id, identity, start_ms = transaction.transactional_id, transaction.identity, transaction.start_ms
    return Operation(
        key, lambda shard, turn: shard.decide_abort(transactional_id, identity, start_ms, turn, cause=cause)
    )


def fence_operation(
    key: ShardKey,
    transactional_id: str,
    asked: Asked,
    *,
    may_abort_and_fence: bool = False,
    begun: Acted | None = None,
) -> Operation:
    """Fences the producers of an id. `begun`: what was found when the fencing began."""
    return Operation(
        key,
        lambda shard, turn: shard.decide_fence(
            transactional_id, asked, turn, may_abort_and_fence=may_abort_and_fence, begun=begun
        ),
    )


def complete_operation(key: ShardKey, transactional_id: str, csn: int) -> Operation:
    """COMPLETE for the outcome `csn`, once every marker is written."""
    return Operation(key, lambda shard, turn: shard.decide_complete(transactional_id, csn, turn))


def _abort(cause: str) -> rules.Ending:
    """An abort by the server."""
    return rules.Ending(Outcome.ABORT, bumps_epoch=True, cause=cause)


def _timer_key(transactional_id: str) -> tuple[str, str]:
    return ("transaction_timeout", transactional_id)
