"""Decisions of a shard on its sinks.

Like all decisions of a shard, each changes nothing and returns a Decision. The end of a member goes through
`Outcomes.decide`, as the end of every transaction does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from coordinator_protocol.hashing import member_id
from coordinator_protocol.limits import Limits
from coordinator_protocol.marker import Outcome
from coordinator_runtime.decision import (
    ArmTimer,
    Decision,
    Effect,
    Operation,
    Record,
    ShardKey,
    TransactionInTheWay,
    Turn,
    Unpark,
)
from coordinator_runtime.ports import Level, Levels
from txn_coordinator.counters import COUNTERS, CountersShard
from txn_coordinator.outcomes import Outcomes, look_after
from txn_coordinator.records import (
    CsnGiven,
    SinkChanged,
    SinkDecided,
    SinkForgotten,
    SinkJoined,
    TransactionChanged,
    TransactionStepped,
)
from txn_coordinator.rules.ending import Ending
from txn_coordinator.sink_state import Sink, Sinks
from txn_coordinator.sinks import rules
from txn_coordinator.sinks.rules import AbortRequest, CommitRequest, JoinRequest
from txn_coordinator.state import Identity, Member, Transaction, TransactionState

PARTICIPANTS_AT_ONCE: Final = 64
"""Largest number of markers for one operation that carries a decision out, as much as one turn of the loop takes. A
single member with more partitions may exceed it."""

_DECISION, _GIVEN_UP = "decision", "given_up"
_MEMBER, _COMMITTED, _REPEATED = "member", "committed", "repeated"


class JoinedBatch(Struct, frozen=True):
    """Reply to JoinBatch."""

    transactional_id: str = ""
    identity: Identity | None = None
    """None if the batch is committed already, and nothing is to be written."""
    is_own: bool = False
    """True if the joining run has committed the batch itself."""


class Decided(Struct, frozen=True):
    """Reply to CommitBatch: the outcome is durable."""

    csn: int
    """Csn of the newest committed batch."""
    was_committed: bool = False
    """True if the batch had been committed before."""


def in_the_way(sink: str) -> TransactionInTheWay:
    """Return the park key of calls that wait until a decision of the sink is carried out."""
    return TransactionInTheWay(f"__sink/{sink}")


class SinkDecisions:
    """Decisions on the sinks of one shard."""

    def __init__(
        self,
        key: ShardKey,
        state: Sinks,
        transaction: Callable[[str], Transaction | None],
        outcomes: Outcomes,
        counters: CountersShard,
        limits: Limits,
    ) -> None:
        self._key = key
        self.state = state
        self._transaction = transaction
        self._outcomes = outcomes
        self._counters = counters
        self._limits = limits
        self.expiration_ms = 0
        """Time after which a sink without members is forgotten; set by `on_loaded`."""
        self.levels: Levels | None = None
        """Limits on open transactions by principal; None for no limits."""

    def decide_join(self, request: JoinRequest, turn: Turn) -> Decision:
        """Decide JoinBatch: a new member, whose transaction is open. A repetition gets the same one. The reply is
        JoinedBatch."""
        transactional_id = member_id(request.sink, request.request_id.hex())
        sink, known = self.state.get(request.sink), self._transaction(transactional_id)
        if known is not None:
            rules.check_member(sink, known)
            return Decision(JoinedBatch(transactional_id, known.identity))
        members = self._members(request.sink)
        after = rules.join(sink, request, members, now_ms=turn.now_ms)
        if rules.is_committed(after, request.batch_id):
            told = SinkJoined(request.sink, request.batch_id, _COMMITTED)
            return Decision(JoinedBatch(is_own=after.run_id == request.run_id), events=(told,))
        if self.levels is not None:
            self.levels.check(Level.OPEN_TRANSACTIONS, turn.principal)
        changed = () if after == sink else (self._changed(after),)
        given: list[Record] = []
        member = Transaction(
            transactional_id=transactional_id,
            producer_id=self._counters.next_producer_id(given),
            producer_epoch=0,
            txn_timeout_ms=request.txn_timeout_ms,
            state=TransactionState.ONGOING,
            start_ms=turn.now_ms,
            last_update_ms=turn.now_ms,
            cause="join",
            member=Member(request.batch_id, request.attempt),
        )
        records = (*given, *changed, Record(self._key, TransactionChanged(member), cause=member.cause))
        # The timer of a sink with members rearms itself for the next due time.
        effects = (look_after(self._key, after.name),) if changed or not members else ()
        return Decision(
            JoinedBatch(transactional_id, member.identity),
            records,
            effects=effects,
            events=(
                TransactionStepped(None, member),
                SinkJoined(request.sink, request.batch_id, _MEMBER),
                *self._given_up(sink, after, members),
            ),
        )

    def decide_commit(self, request: CommitRequest, turn: Turn) -> Decision:
        """Decide CommitBatch. The reply is Decided.

        With few markers it is carried out at once. Otherwise the decision is durable first, and then carried out member
        by member.
        """
        sink, members = self.state.get(request.sink), self._members(request.sink)
        chosen = rules.judge_commit(sink, request, {member.producer_id: member for member in members})
        assert sink is not None, "what is not known is refused"
        if chosen is None:
            told = SinkDecided(sink.name, request.batch_id, _REPEATED, 0)
            return Decision(Decided(sink.last_csn, was_committed=True), events=(told,))
        csn, csn_given = self._counters.next_csn()
        after = rules.committed(sink, request.batch_id, csn, members, now_ms=turn.now_ms)
        effects: tuple[Effect, ...] = (look_after(self._key, sink.name),)
        told = SinkDecided(sink.name, request.batch_id, _COMMITTED, len(chosen))
        if not self._outcomes.can_finish_at_once(chosen):
            after = replace(after, committing=frozenset(member.producer_id for member in chosen))
            records = (csn_given, self._changed(after, _DECISION))
            return Decision(Decided(csn), records, effects=effects, events=(told,))
        ending = Ending(Outcome.COMMIT, bumps_epoch=True, cause=_DECISION, csn=csn)
        ends = [self._outcomes.decide(member, ending, turn) for member in chosen]
        return _together(Decided(csn), (csn_given, self._changed(after, _DECISION)), ends, effects, told)

    def decide_abort(self, request: AbortRequest, turn: Turn) -> Decision:
        """Decide AbortBatch. The reply is the number of members that were given up."""
        sink, members = self.state.get(request.sink), self._members(request.sink)
        if sink is None or not rules.applies(sink, request):
            return Decision(0)
        count = sum(
            1 for member in members if member.state is TransactionState.ONGOING and sink.outcome_of(member) is None
        )
        if not count:
            return Decision(0)
        after = replace(rules.give_up(sink, members), last_update_ms=turn.now_ms)
        effects = (look_after(self._key, sink.name),)
        told = self._given_up(sink, after, members)
        return Decision(count, (self._changed(after),), effects=effects, events=told)

    def decide_due(self, name: str, turn: Turn) -> Decision:
        """Carry out some of the certain outcomes of a sink's members, give up members that were idle for too long, or
        forget an unused sink.

        It schedules itself for the time at which more may be due.
        """
        sink, members = self.state.get(name), self._members(name)
        if sink is None:
            return Decision()
        again = look_after(self._key, name)
        settled = [member for member in members if self.state.is_settled(member)]
        if settled:
            ends = self._ends_of(sink, settled, turn)
            given = self._csns(sum(1 for member in settled[: len(ends)] if member.producer_id not in sink.committing))
            return _together(None, given, ends, (again,))
        if sink.committing and not any(member.producer_id in sink.committing for member in members):
            done = replace(sink, committing=frozenset(), last_update_ms=turn.now_ms)
            return Decision(records=(self._changed(done),), effects=(Unpark(in_the_way(name)), again))
        idle_ms = rules.idle_ms(sink, members, now_ms=turn.now_ms)
        if any(member.state is TransactionState.ONGOING for member in members):
            if idle_ms > sink.txn_timeout_ms:
                after = rules.give_up(sink, members)
                told = self._given_up(sink, after, members)
                return Decision(records=(self._changed(after, _GIVEN_UP),), effects=(again,), events=told)
            return Decision(effects=(self._later(sink, sink.txn_timeout_ms - idle_ms),))
        if members:
            return Decision()  # All are decided: the end of the last one looks again.
        if idle_ms >= self.expiration_ms:
            return Decision(records=(Record(self._key, SinkForgotten(name), cause="expire"),))
        return Decision(effects=(self._later(sink, self.expiration_ms - idle_ms),))

    def on_loaded(self, turn: Turn, expiration_ms: int) -> Sequence[ArmTimer]:
        """Return the timers for all sinks after a load."""
        self.expiration_ms = expiration_ms
        armed = []
        for sink in self.state.all_live():
            is_idle = not self.state.member_ids(sink.name) and not sink.committing
            left_ms = expiration_ms - rules.idle_ms(sink, (), now_ms=turn.now_ms) if is_idle else 0
            armed.append(self._later(sink, min(max(left_ms, 0), expiration_ms)))
        return armed

    def _ends_of(self, sink: Sink, settled: Sequence[Transaction], turn: Turn) -> list[Decision]:
        """Return the ends of the first of these members, as many as one turn of the loop takes.

        A member that is given up gets a csn of its own. It may have written until now, and a partition compares csns.
        """
        ends: list[Decision] = []
        participants, csn = 0, self._counters.next_csn()[0]
        for member in settled:
            participants += member.participant_count + 1
            if ends and participants > PARTICIPANTS_AT_ONCE:
                break
            if sink.outcome_of(member) is Outcome.COMMIT:
                ending = Ending(Outcome.COMMIT, bumps_epoch=True, cause=_DECISION, csn=sink.last_csn)
            else:
                ending = Ending(Outcome.ABORT, bumps_epoch=True, cause=_GIVEN_UP, csn=csn)
                csn += 1
            ends.append(self._outcomes.decide(member, ending, turn))
        return ends

    def _csns(self, count: int) -> tuple[Record, ...]:
        """Return the record that gives this many csns at once."""
        if not count:
            return ()
        return (Record(COUNTERS, CsnGiven(self._counters.next_csn()[0] + count - 1, count)),)

    def _members(self, name: str) -> list[Transaction]:
        """Return the members of a sink that are not complete, in the order of their joining."""
        found = filter(None, map(self._transaction, self.state.member_ids(name)))
        return sorted(found, key=lambda member: member.producer_id)

    def _given_up(self, before: Sink | None, after: Sink, members: Sequence[Transaction]) -> tuple[object, ...]:
        """Return the event of undecided members that are given up, if there are any."""
        if before is None or before.given_up_below == after.given_up_below:
            return ()
        count = sum(
            1 for member in members if member.state is TransactionState.ONGOING and before.outcome_of(member) is None
        )
        return (SinkDecided(before.name, before.batch_id, _GIVEN_UP, count),) if count else ()

    def _changed(self, sink: Sink, cause: str = "") -> Record:
        return Record(self._key, SinkChanged(sink), cause=cause)

    def _later(self, sink: Sink, delay_ms: int) -> ArmTimer:
        # One more millisecond: at the deadline itself the party that must meet it is still in time.
        return look_after(self._key, sink.name, max(delay_ms, 0) + 1)


def _together(
    reply: object,
    records: Sequence[Record],
    decisions: Sequence[Decision],
    effects: tuple[Effect, ...],
    *told: SinkDecided,
) -> Decision:
    """Combine several ends of transactions into one operation."""
    joins: list[Operation] = []
    kept: list[Effect] = []
    events: list[object] = []
    all_records = [*records]
    for each in decisions:
        all_records += each.records
        joins += each.joins
        kept += each.effects
        events += each.events
    return Decision(
        records=tuple(all_records),
        joins=tuple(joins),
        effects=(*kept, *effects),
        events=(*events, *told),
        combine=partial(_replied, reply),
    )


def _replied(reply: object, _replies: Sequence[object]) -> object:
    return reply
