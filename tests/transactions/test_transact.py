"""Transact: what every state answers to every request, and what one decision holds. See `test_decision_tables` for the
columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import pytest
from msgspec.structs import replace

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.limits import Limits
from coordinator_protocol.marker import Marker, Outcome
from coordinator_runtime.decision import (
    CancelTimer,
    Coordinator,
    Decision,
    Operation,
    ShardKey,
    TransactionInTheWay,
    Unpark,
)
from coordinator_runtime.ports import EndIdentity, OutcomeNumber
from tests.harness.table import cells
from tests.harness.world import TransactContents
from tests.transactions.administered import CLIENT, Administered
from tests.transactions.test_decision_tables import stored
from tests.transactions.world_of_one import (
    ID,
    KEY,
    LIMITS,
    NOW_MS,
    TURN,
    ask,
    changed,
    opposite,
    shard_with,
    steps_in,
    transaction,
)
from txn_coordinator.counters import COUNTERS
from txn_coordinator.outcomes import Contribution, Ended, SendMarkers, Transacted, TwoPhase
from txn_coordinator.records import TransactionChanged
from txn_coordinator.rules.adding import Additions
from txn_coordinator.rules.transacting import TransactRequest
from txn_coordinator.shard import PlacedTransact
from txn_coordinator.state import LEGAL_STEPS, Identity, Transaction, TransactionState

NAME, OTHER_NAME = b"n" * 16, b"o" * 16
BOTH_MODES = pytest.mark.parametrize("two_phase", list(TwoPhase))


@dataclass(frozen=True, slots=True)
class Write:
    """A partition that takes everything, and says how it was asked."""

    ordinal: int

    def append(self, coordinator_shard: int, marker: Marker | None) -> Operation:
        assert coordinator_shard == KEY.number
        reply = ("append", self.ordinal) if marker is None else ("append and end", self.ordinal, marker.csn)
        return Operation(COUNTERS, lambda _shard, _turn: Decision(reply=reply))

    def first_offset(self, identity: EndIdentity) -> Operation:
        return Operation(COUNTERS, lambda _shard, _turn: Decision(reply=("begins", self.ordinal, identity)))


@dataclass(frozen=True, slots=True)
class Offsets:
    """A group that takes everything."""

    group_id: str

    def hold(self, last: OutcomeNumber, marker: Marker | None) -> Operation:
        kept = (self.group_id, last.csn)
        reply = ("keep", *kept) if marker is None else ("keep and end", *kept, marker.csn)
        return Operation(COUNTERS, lambda _shard, _turn: Decision(reply=reply))


def transact(
    identity: Identity,
    outcome: Outcome,
    *,
    name: bytes = NAME,
    partitions: Sequence[int] = (),
    groups: Sequence[str] = (),
    refusal: Operation | None = None,
) -> PlacedTransact:
    additions = Additions(partitions=frozenset(partitions), groups=frozenset(groups))
    request = TransactRequest(ID, identity, outcome, name, additions)
    return PlacedTransact(
        request, Contribution([Write(each) for each in partitions], [Offsets(each) for each in groups]), refusal
    )


def assert_repeated(decision: Decision, current: Transaction, identity: Identity, ordinals: Sequence[int]) -> None:
    """It writes nothing, and asks the partitions where the transaction that has ended begins."""
    ended = Ended(current.identity, current.csn)
    assert replace(decision, joins=(), combine=None) == Decision(reply=Transacted(ended, ()))
    assert decision.combine is not None
    replies = [join.decide(None, TURN).reply for join in decision.joins]
    end = EndIdentity(KEY.number, current.csn, identity.producer_id)
    assert decision.combine(replies) == Transacted(ended, [("begins", ordinal, end) for ordinal in ordinals])  # type: ignore[misc]  # what the double says


NEW_COMMIT = """
               | current | retry  | superseded | rotated | old | higher | other id
Empty          | end     | 90     | 90         | 90      | 90  | 90     | 49
Ongoing        | end     | 90     | 90         | 90      | 90  | 90     | 49
PrepareCommit  | 51      | 51     | 51         | 51      | 51  | 51     | 51
PrepareAbort   | 51      | 51     | 51         | 51      | 51  | 51     | 51
CompleteCommit | end     | 48     | 90         | 48      | 90  | 90     | 49
CompleteAbort  | end     | 47     | 90         | 47      | 90  | 90     | 49
"""
"""Under a name of its own, with something to write; an abort is judged alike."""

NOTHING_COMMIT = """
               | current | retry  | superseded | rotated | old | higher | other id
Empty          | 48      | 90     | 90         | 90      | 90  | 90     | 49
Ongoing        | end     | 90     | 90         | 90      | 90  | 90     | 49
PrepareCommit  | 51      | 51     | 51         | 51      | 51  | 51     | 51
CompleteCommit | 48      | 48     | 90         | 48      | 90  | 90     | 49
CompleteAbort  | 48      | 47     | 90         | 47      | 90  | 90     | 49
"""

NOTHING_ABORT = """
               | current | retry  | superseded | rotated | old | higher | other id
Empty          | end     | 90     | 90         | 90      | 90  | 90     | 49
Ongoing        | end     | 90     | 90         | 90      | 90  | 90     | 49
PrepareCommit  | 51      | 51     | 51         | 51      | 51  | 51     | 51
CompleteCommit | end     | 48     | 90         | 48      | 90  | 90     | 49
CompleteAbort  | end     | 47     | 90         | 47      | 90  | 90     | 49
"""
"""The answers of EndTxn, except that a repetition is recognised by its name alone."""

REPEATED_COMMIT = """
               | current | retry  | superseded | rotated | old | higher | other id
PrepareCommit  | 51      | 51     | 51         | 51      | 51  | 51     | 51
PrepareAbort   | 51      | 51     | 51         | 51      | 51  | 51     | 51
CompleteCommit | 42      | repeat | 90         | repeat  | 90  | 90     | 49
CompleteAbort  | 42      | 48     | 90         | 48      | 90  | 90     | 49
"""

REPEATED_ABORT = """
               | current | retry  | superseded | rotated | old | higher | other id
CompleteCommit | 42      | 48     | 90         | 48      | 90  | 90     | 49
CompleteAbort  | 42      | repeat | 90         | repeat  | 90  | 90     | 49
"""
"""Under the name of the one that ended the last transaction."""

CASES = [
    (outcome, writes, is_repeated, *cell)
    for table, outcome, writes, is_repeated in (
        (NEW_COMMIT, Outcome.COMMIT, True, False),
        (NEW_COMMIT, Outcome.ABORT, True, False),
        (NOTHING_COMMIT, Outcome.COMMIT, False, False),
        (NOTHING_ABORT, Outcome.ABORT, False, False),
        (REPEATED_COMMIT, Outcome.COMMIT, True, True),
        (REPEATED_ABORT, Outcome.ABORT, True, True),
    )
    for cell in cells(table)
]


@BOTH_MODES
@pytest.mark.parametrize(("outcome", "writes", "is_repeated", "state", "relation", "answer"), CASES)
def test_every_state_answers(
    outcome: Outcome, writes: bool, is_repeated: bool, state: str, relation: str, answer: str, two_phase: TwoPhase
) -> None:
    current, identity = stored(state, relation)
    if is_repeated:
        current = replace(current, transact_id=NAME)
    shard = shard_with(current, two_phase=two_phase)
    asked = transact(identity, outcome, partitions=(4, 5) if writes else ())
    decision = ask(lambda: shard.decide_transact(asked, TURN))
    if answer not in ("end", "repeat"):
        assert decision == int(answer)
        return
    assert isinstance(decision, Decision)
    if answer == "repeat":
        assert_repeated(decision, current, identity, (4, 5) if writes else ())
        return
    after = changed(decision)
    assert after is not None
    assert (after.outcome, after.transact_id, after.cause) == (outcome, NAME, "client")
    assert after.last_producer_epoch == current.producer_epoch, "it can be repeated"
    assert after.start_ms == (current.start_ms if state == "Ongoing" else NOW_MS)


@BOTH_MODES
@pytest.mark.parametrize("before", [TransactionState.EMPTY, TransactionState.ONGOING, TransactionState.COMPLETE_ABORT])
def test_the_steps_are_those_of_add_and_end(before: TransactionState, two_phase: TwoPhase) -> None:
    current = transaction(before)
    shard = shard_with(current, two_phase=two_phase)
    asked = transact(current.identity, Outcome.COMMIT, partitions=(1, 4), groups=("g",))
    decision = shard.decide_transact(asked, TURN)
    steps = steps_in(decision)
    assert steps[0].before == current
    assert steps[-1].after == changed(decision)
    assert all(earlier.after == later.before for earlier, later in pairwise(steps))
    assert all(step.before is not None and step.after.state in LEGAL_STEPS[step.before.state] for step in steps)
    (prepared,) = (step.after for step in steps if step.after.state is TransactionState.PREPARE_COMMIT)
    assert prepared.partitions == current.partitions | {1, 4}
    assert prepared.groups == {"g"}
    is_complete = steps[-1].after.state is TransactionState.COMPLETE_COMMIT
    assert is_complete is (two_phase is TwoPhase.FUSED)


def test_fused_it_is_one_record_that_tells_what_prepare_would_have_told() -> None:
    current = transaction(TransactionState.ONGOING)
    shard = shard_with(current, two_phase=TwoPhase.FUSED)
    asked = transact(current.identity, Outcome.COMMIT, partitions=(2, 4), groups=("g",))
    decision = shard.decide_transact(asked, TURN)
    (record,) = (each.value for each in decision.records if isinstance(each.value, TransactionChanged))
    (prepared,) = (each.after for each in steps_in(decision) if each.after.state is TransactionState.PREPARE_COMMIT)
    assert record.decided == prepared
    # Partitions with records come first; one that gets nothing new gets its marker.
    assert [_reply_of(each) for each in decision.joins] == [
        ("append and end", 2, 1),
        ("append and end", 4, 1),
        ("keep and end", "g", 3, 1),
        None,
    ]
    assert decision.effects == (CancelTimer(("transaction_timeout", ID)), Unpark(TransactionInTheWay(ID)))


def test_split_it_appends_with_prepare_and_leaves_the_markers_to_the_sender() -> None:
    current = transaction(TransactionState.EMPTY)
    shard = shard_with(current, two_phase=TwoPhase.SPLIT)
    asked = transact(current.identity, Outcome.COMMIT, partitions=(2, 4), groups=("g",))
    decision = shard.decide_transact(asked, TURN)
    assert [_reply_of(join) for join in decision.joins] == [("append", 2), ("append", 4), ("keep", "g", 0)]
    (send,) = decision.effects
    assert isinstance(send, SendMarkers)
    assert (send.partitions, send.groups) == ({2, 4}, {"g"})


@BOTH_MODES
def test_the_reply_has_the_first_offset_of_each_partition(two_phase: TwoPhase) -> None:
    current = transaction(TransactionState.EMPTY)
    shard = shard_with(current, two_phase=two_phase)
    asked = transact(current.identity, Outcome.COMMIT, partitions=(2, 4), groups=("g",))
    decision = shard.decide_transact(asked, TURN)
    assert decision.combine is not None
    reply = decision.combine([20, 40, None, None])
    assert reply == Transacted(Ended(Identity(current.producer_id, 6), 1), [20, 40])


def test_beyond_so_many_participants_it_is_not_fused() -> None:
    current = transaction(TransactionState.EMPTY)
    shard = shard_with(current, two_phase=TwoPhase.FUSED, limits=Limits(fused_participants_max=2))
    few, many = (transact(current.identity, Outcome.COMMIT, partitions=range(count)) for count in (2, 3))
    assert changed(shard.decide_transact(few, TURN)).state is TransactionState.COMPLETE_COMMIT  # type: ignore[union-attr]
    assert changed(shard.decide_transact(many, TURN)).state is TransactionState.PREPARE_COMMIT  # type: ignore[union-attr]


def test_beyond_the_limit_of_a_transaction_it_is_refused() -> None:
    current = transaction(TransactionState.EMPTY)
    shard = shard_with(current, limits=Limits(partitions_per_transaction_max=2))
    asked = transact(current.identity, Outcome.COMMIT, partitions=(1, 2), groups=("g",))
    assert ask(lambda: shard.decide_transact(asked, TURN)) == ErrorCode.INVALID_REQUEST


@BOTH_MODES
def test_what_does_not_exist_refuses_it_unless_it_is_a_repetition(two_phase: TwoPhase) -> None:
    refusal = Operation(ShardKey(Coordinator.CATALOG, 0), _refuse)
    current = transaction(TransactionState.EMPTY)
    asked = transact(current.identity, Outcome.COMMIT, partitions=(1,), refusal=refusal)
    assert shard_with(current, two_phase=two_phase).decide_transact(asked, TURN) == Decision(joins=(refusal,))
    ended = replace(transaction(TransactionState.COMPLETE_COMMIT), transact_id=NAME)
    repeated = transact(Identity(ended.producer_id, 4), Outcome.COMMIT, partitions=(1,), refusal=refusal)
    decision = shard_with(ended, two_phase=two_phase).decide_transact(repeated, TURN)
    assert_repeated(decision, ended, Identity(ended.producer_id, 4), (1,))


def test_a_prepared_transaction_takes_no_more_and_can_be_ended() -> None:
    current = replace(transaction(TransactionState.ONGOING), prepared_ms=NOW_MS)
    shard = shard_with(current)
    more = transact(current.identity, Outcome.COMMIT, partitions=(1,))
    assert ask(lambda: shard.decide_transact(more, TURN)) == ErrorCode.INVALID_TXN_STATE
    end = shard.decide_transact(transact(current.identity, Outcome.COMMIT), TURN)
    assert changed(end).state is TransactionState.PREPARE_COMMIT  # type: ignore[union-attr]


@pytest.mark.parametrize("outcome", list(Outcome))
def test_the_name_is_forgotten_when_the_id_goes_on(outcome: Outcome) -> None:
    ended = replace(
        transaction(TransactionState.COMPLETE_COMMIT if outcome is Outcome.COMMIT else TransactionState.COMPLETE_ABORT),
        transact_id=NAME,
    )
    shard = shard_with(ended)
    additions = Additions(partitions=frozenset({1}))
    opened = changed(shard.decide_add(ID, ended.identity, additions, TURN, client_txn_version=2))
    following = changed(
        shard.decide_transact(transact(ended.identity, opposite(outcome), name=OTHER_NAME, partitions=(1,)), TURN)
    )
    assert opened is not None
    assert following is not None
    assert (opened.transact_id, following.transact_id) == (b"", OTHER_NAME)


def _reply_of(join: Operation) -> object:
    return join.decide(None, TURN).reply


def _refuse(_catalog: object, _turn: object) -> Decision:
    raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no such topic")


def test_the_rotation_keeps_both_ids_apart() -> None:
    current = replace(transaction(TransactionState.EMPTY), producer_epoch=LIMITS.producer_epoch_max - 1)
    shard = shard_with(current, two_phase=TwoPhase.FUSED)
    decision = shard.decide_transact(transact(current.identity, Outcome.ABORT, partitions=(1,)), TURN)
    (record,) = (each.value for each in decision.records if isinstance(each.value, TransactionChanged))
    (prepared,) = (each.after for each in steps_in(decision) if each.after.state is TransactionState.PREPARE_ABORT)
    after: Transaction = record.transaction
    assert (after.prev_producer_id, after.producer_epoch) == (current.producer_id, 0)
    assert record.decided == prepared


def test_it_is_answered_though_its_caller_gave_up() -> None:
    world = Administered()
    contents, caller = TransactContents([("t-0", ["sale"], 0)]), replace(CLIENT, request_id=b"r" * 16)
    reply = world.transact("till", world.ready("till"), contents, Outcome.COMMIT, caller)
    reply.cancel()
    world.settle()
    assert [offset for _target, offset in reply.result().first_offsets] == [0]
