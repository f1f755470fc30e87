"""Answers of every state to every request: the tables of the specification, cell by cell.

Columns are the identity that the request shows, seen from the stored one:
- current: the stored producer id and epoch;
- retry: the epoch before, bumped on this client's own behalf (the specification's R);
- superseded: the epoch before, but a new instance made the bump;
- rotated: the last epoch of the id before, when the id was just rotated (the specification's O);
- old, higher: any other epoch; other id: a producer id that this transactional id never had.

Numbers are error codes.
"""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.limits import EPOCH_MAX, Limits
from coordinator_protocol.marker import Outcome
from coordinator_runtime.decision import Decision
from tests.harness.table import cells
from tests.transactions.world_of_one import (
    EXHAUSTED,
    FRESH_PRODUCER_ID,
    ID,
    NOW_MS,
    PREV_PRODUCER_ID,
    PRODUCER_ID,
    TURN,
    ask,
    changed,
    rotated,
    shard_with,
    shown,
    told_identity,
    transaction,
)
from txn_coordinator.outcomes import Ended
from txn_coordinator.requests import EndTxn
from txn_coordinator.rules import adding, ending, initialising
from txn_coordinator.shard import AbortStarted, TransactionShard
from txn_coordinator.state import NO_EPOCH, Identity, InitAnswer, Transaction, TransactionState

STATES = {state.api_name: state for state in TransactionState}


def stored(state: str, relation: str) -> tuple[Transaction, Identity]:
    """The stored transaction of a row and the identity that a column shows."""
    if relation == "rotated":
        current = rotated(STATES[state])
        return current, shown("rotated", current)
    last = NO_EPOCH if relation == "superseded" else 4
    current = transaction(STATES[state], last=last)
    return current, shown({"retry": "previous", "superseded": "previous"}.get(relation, relation), current)


def ask_init(shard: TransactionShard, request: initialising.InitRequest) -> Decision | int:
    return ask(lambda: shard.decide_init(request, TURN, may_abort_and_init=True))


# EndTxn, spec transactions 2.6. Every Prepare row answers 51, as [D] there. Stricter than the definitions of R and O
# there in one point: an epoch is a retry only if the bump was made on behalf of who shows it ("superseded").

END_V2_COMMIT = """
               | current | retry  | superseded | rotated | old | higher | other id
Empty          | 48      | 90     | 90         | 90      | 90  | 90     | 49
Ongoing        | prepare | 90     | 90         | 90      | 90  | 90     | 49
PrepareCommit  | 51      | 51     | 51         | 51      | 51  | 51     | 51
PrepareAbort   | 51      | 51     | 51         | 51      | 51  | 51     | 51
CompleteCommit | 48      | repeat | 90         | repeat  | 90  | 90     | 49
CompleteAbort  | 48      | 90     | 90         | 90      | 90  | 90     | 49
"""

END_V2_ABORT = """
               | current | retry  | superseded | rotated | old | higher | other id
Empty          | prepare | 90     | 90         | 90      | 90  | 90     | 49
Ongoing        | prepare | 90     | 90         | 90      | 90  | 90     | 49
PrepareCommit  | 51      | 51     | 51         | 51      | 51  | 51     | 51
PrepareAbort   | 51      | 51     | 51         | 51      | 51  | 51     | 51
CompleteCommit | prepare | 48     | 90         | 48      | 90  | 90     | 49
CompleteAbort  | prepare | repeat | 90         | repeat  | 90  | 90     | 49
"""

END_V1_COMMIT = """
               | current | retry  | superseded | rotated | old | higher | other id
Empty          | 48      | 90     | 90         | 49      | 90  | 90     | 49
Ongoing        | prepare | 90     | 90         | 49      | 90  | 90     | 49
PrepareCommit  | 51      | 90     | 90         | 49      | 90  | 90     | 49
PrepareAbort   | 51      | 90     | 90         | 49      | 90  | 90     | 49
CompleteCommit | repeat  | 90     | 90         | 49      | 90  | 90     | 49
CompleteAbort  | 48      | 90     | 90         | 49      | 90  | 90     | 49
"""

END_V1_ABORT = """
               | current | retry  | superseded | rotated | old | higher | other id
Empty          | 48      | 90     | 90         | 49      | 90  | 90     | 49
Ongoing        | prepare | 90     | 90         | 49      | 90  | 90     | 49
PrepareCommit  | 51      | 90     | 90         | 49      | 90  | 90     | 49
PrepareAbort   | 51      | 90     | 90         | 49      | 90  | 90     | 49
CompleteCommit | 48      | 90     | 90         | 49      | 90  | 90     | 49
CompleteAbort  | repeat  | 90     | 90         | 49      | 90  | 90     | 49
"""

END_CASES = [
    (version, outcome, *cell)
    for version, outcome, table in (
        (2, Outcome.COMMIT, END_V2_COMMIT),
        (2, Outcome.ABORT, END_V2_ABORT),
        (1, Outcome.COMMIT, END_V1_COMMIT),
        (1, Outcome.ABORT, END_V1_ABORT),
    )
    for cell in cells(table)
]


@pytest.mark.parametrize(("version", "outcome", "state", "relation", "answer"), END_CASES)
def test_end_txn(version: int, outcome: Outcome, state: str, relation: str, answer: str) -> None:
    current, identity = stored(state, relation)
    shard = shard_with(current)
    command = EndTxn(transactional_id=ID, identity=identity, outcome=outcome)
    decision = ask(lambda: shard.decide_end(command, TURN, client_txn_version=version))
    if answer not in ("prepare", "repeat"):
        assert decision == int(answer)
        return
    assert isinstance(decision, Decision)
    if answer == "repeat":
        assert decision == Decision(reply=Ended(current.identity, current.csn)), "a repetition writes nothing"
        return
    prepared = changed(decision)
    assert prepared is not None
    assert prepared.state.api_name == f"Prepare{outcome.name.title()}"
    assert prepared.partitions == current.partitions, "the decision carries the full set"
    assert prepared.txn_epoch == current.producer_epoch, "markers name the epoch of the records"
    assert prepared.start_ms == (current.start_ms if state == "Ongoing" else NOW_MS)
    bump = 1 if version == 2 else 0
    assert decision.reply == Ended(Identity(PRODUCER_ID, current.producer_epoch + bump), 1)
    assert prepared.last_producer_epoch == (current.producer_epoch if version == 2 else current.last_producer_epoch)


# AddPartitionsToTxn, spec transactions 2.3. "add" writes, "has" is success without a write.

ADD = """
               | current | previous | old | higher | other id | rotated
Empty          | add     | 90       | 90  | 90     | 49       | 49
Ongoing        | has     | 90       | 90  | 90     | 49       | 49
PrepareCommit  | 51      | 51       | 51  | 51     | 51       | 51
PrepareAbort   | 51      | 51       | 51  | 51     | 51       | 51
CompleteCommit | add     | 90       | 90  | 90     | 49       | 49
CompleteAbort  | add     | 90       | 90  | 90     | 49       | 49
"""

# The same with verify_only: identity first, and only durable membership counts.

VERIFY = """
               | current | previous | old | higher | other id | rotated
Empty          | absent  | 90       | 90  | 90     | 49       | 49
Ongoing        | member  | 90       | 90  | 90     | 49       | 49
PrepareCommit  | 51      | 90       | 90  | 90     | 49       | 49
PrepareAbort   | 51      | 90       | 90  | 90     | 49       | 49
CompleteCommit | absent  | 90       | 90  | 90     | 49       | 49
CompleteAbort  | absent  | 90       | 90  | 90     | 49       | 49
"""


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(("state", "relation", "answer"), cells(ADD))
def test_add_partitions(version: int, state: str, relation: str, answer: str) -> None:
    current, identity = stored(state, relation)
    shard = shard_with(current)
    members = adding.Additions(partitions=frozenset({1, 2}))
    decision = ask(lambda: shard.decide_add(ID, identity, members, TURN, client_txn_version=version))
    if answer not in ("add", "has"):
        assert decision == int(answer)
        return
    assert isinstance(decision, Decision)
    assert decision.reply is True
    opened = changed(decision)
    if answer == "has":
        assert opened is None
        return
    assert opened is not None
    assert opened.state is TransactionState.ONGOING
    assert opened.partitions == {1, 2}
    assert opened.identity == current.identity
    assert (opened.start_ms, opened.client_txn_version) == (NOW_MS, version)


@pytest.mark.parametrize(("state", "relation", "answer"), cells(VERIFY))
def test_verify_partitions(state: str, relation: str, answer: str) -> None:
    current, identity = stored(state, relation)
    shard = shard_with(current)
    decision = ask(lambda: shard.decide_verify(ID, identity, frozenset({2, 3})))
    if answer not in ("member", "absent"):
        assert decision == int(answer)
        return
    expected = frozenset({2}) if answer == "member" else frozenset()
    assert decision == Decision(reply=expected)


# A repeated batch (decision 64): the open transaction of this very identity counts, and no other error matters.

REPEATED = """
               | current | previous | old    | higher | other id | rotated
Empty          | passes  | passes   | passes | passes | passes   | passes
Ongoing        | refused | passes   | passes | passes | passes   | passes
PrepareCommit  | passes  | passes   | passes | passes | passes   | passes
PrepareAbort   | passes  | passes   | passes | passes | passes   | passes
CompleteCommit | passes  | passes   | passes | passes | passes   | passes
CompleteAbort  | passes  | passes   | passes | passes | passes   | passes
"""


@pytest.mark.parametrize(("state", "relation", "answer"), cells(REPEATED))
def test_refuse_if_open(state: str, relation: str, answer: str) -> None:
    current, identity = stored(state, relation)
    assert asked_of_a_repetition(shard_with(current), identity, 2) == (59 if answer == "refused" else Decision())


def test_a_partition_that_is_not_in_the_transaction_does_not_count() -> None:
    shard = shard_with(transaction(TransactionState.ONGOING))
    assert asked_of_a_repetition(shard, Identity(PRODUCER_ID, 5), 3) == Decision()


def test_a_prepared_transaction_is_open_until_its_decision() -> None:
    shard = shard_with(replace(transaction(TransactionState.ONGOING), prepared_ms=NOW_MS))
    assert asked_of_a_repetition(shard, Identity(PRODUCER_ID, 5), 2) == 59


def test_an_unknown_id_has_nothing_open() -> None:
    assert asked_of_a_repetition(shard_with(), Identity(PRODUCER_ID, 5), 2) == Decision()


def asked_of_a_repetition(shard: TransactionShard, identity: Identity, partition: int) -> Decision | int:
    refusal = Refused(ErrorCode.UNKNOWN_PRODUCER_ID, "these sequences are of an ended transaction")
    return ask(lambda: shard.decide_refuse_if_open(ID, identity, partition, refusal))


def test_an_open_transaction_grows_without_moving_its_start() -> None:
    current = transaction(TransactionState.ONGOING)
    decision = ask(
        lambda: shard_with(current).decide_add(
            ID,
            current.identity,
            adding.Additions(partitions=frozenset({2, 3}), groups=frozenset({"g"})),
            TURN,
            client_txn_version=2,
        )
    )
    assert isinstance(decision, Decision)
    grown = changed(decision)
    assert grown is not None
    assert (set(grown.partitions), set(grown.groups)) == ({1, 2, 3}, {"g"})
    assert grown.start_ms == current.start_ms, "adding does not extend the timeout"
    assert decision.effects == (), "and arms no new timer"


# InitProducerId, spec transactions 2.2. Rows are states, or states at an exhausted epoch. Columns are the expected
# identity: none, or its epoch seen from the stored one ("last" = the epoch before the client's own last bump).
#
#   new     epoch + 1, the bump of a new instance (last = -1)      own     epoch + 1, the client's own bump (last = E)
#   same    no bump: the reply was lost                            rotate  a new producer id at epoch 0
#   abort   the open transaction is aborted first

INIT = """
                 | none   | current | last  | old | higher | other id
Empty            | new    | own     | same  | 90  | 90     | 90
CompleteCommit   | new    | own     | same  | 90  | 90     | 90
CompleteAbort    | new    | own     | same  | 90  | 90     | 90
Ongoing          | abort  | abort   | abort | 90  | 90     | 90
PrepareCommit    | 51     | 51      | 51    | 51  | 51     | 51
PrepareAbort     | 51     | 51      | 51    | 51  | 51     | 51
Empty full       | rotate | rotate  | same  | 90  | 90     | 90
Complete full    | rotate | rotate  | same  | 90  | 90     | 90
"""


def _init_row(row: str) -> Transaction:
    if row.endswith(" full"):
        state = TransactionState.EMPTY if row.startswith("Empty") else TransactionState.COMPLETE_COMMIT
        return transaction(state, epoch=EXHAUSTED, last=EXHAUSTED - 1)
    return transaction(STATES[row])


@pytest.mark.parametrize(("row", "relation", "answer"), cells(INIT))
def test_init_producer_id(row: str, relation: str, answer: str) -> None:
    current = _init_row(row)
    expected = None if relation == "none" else shown({"last": "previous"}.get(relation, relation), current)
    request = initialising.InitRequest(
        transactional_id=ID, txn_timeout_ms=7_777, expected=expected, request_id=b"first request id"
    )
    decision = ask_init(shard_with(current), request)
    if answer.isdigit():
        assert decision == int(answer)
        return
    assert isinstance(decision, Decision)
    after = changed(decision)
    assert after is not None
    if answer == "abort":
        assert decision.reply == AbortStarted()
        assert after.state is TransactionState.PREPARE_ABORT
        assert (after.producer_epoch, after.last_producer_epoch) == (6, 5), "one bump, on the owner's behalf"
        return
    epoch, exhausted_by_client = current.producer_epoch, relation == "current"
    identity, last = {
        "new": (Identity(PRODUCER_ID, epoch + 1), NO_EPOCH),
        "own": (Identity(PRODUCER_ID, epoch + 1), epoch),
        "same": (Identity(PRODUCER_ID, epoch), epoch - 1),
        "rotate": (Identity(FRESH_PRODUCER_ID, 0), epoch if exhausted_by_client else NO_EPOCH),
    }[answer]
    assert told_identity(decision) == identity == after.identity
    assert after.last_producer_epoch == last
    assert after.state is TransactionState.EMPTY
    assert (after.start_ms, after.partitions, after.txn_timeout_ms) == (-1, frozenset(), 7_777)
    assert after.prev_producer_id == (PRODUCER_ID if answer == "rotate" else -1)


class TestRotation:
    """Spec transactions 3.4, 3.5 and 3.7: what happens when a producer id has used up its epochs."""

    def test_ending_at_the_last_epoch_answers_the_new_producer_id(self) -> None:
        current = transaction(TransactionState.ONGOING, epoch=EXHAUSTED, last=EXHAUSTED - 1)
        request = EndTxn(transactional_id=ID, identity=current.identity, outcome=Outcome.COMMIT)
        decision = ask(lambda: shard_with(current).decide_end(request, TURN))
        assert isinstance(decision, Decision)
        assert decision.reply == Ended(Identity(FRESH_PRODUCER_ID, 0), 1)
        prepared = changed(decision)
        assert prepared is not None
        assert prepared.identity == Identity(PRODUCER_ID, EXHAUSTED + 1), "the kept epoch fences the old producer id"
        completed = ending.complete(prepared, now_ms=NOW_MS)
        assert completed.identity == Identity(FRESH_PRODUCER_ID, 0)
        assert (completed.prev_producer_id, completed.last_producer_epoch) == (PRODUCER_ID, EXHAUSTED)
        assert completed.next_producer_id == -1

    def test_the_producer_whose_reply_was_lost_recovers_with_its_old_identity(self) -> None:
        for state in (TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT):
            current = rotated(state)
            request = initialising.InitRequest(
                transactional_id=ID, txn_timeout_ms=1, expected=Identity(PREV_PRODUCER_ID, EXHAUSTED)
            )
            decision = ask_init(shard_with(current), request)
            assert isinstance(decision, Decision)
            assert told_identity(decision) == current.identity

    @pytest.mark.parametrize("outcome", list(Outcome))
    def test_a_zombie_from_before_the_rotation_is_fenced_when_the_epochs_meet_again(self, outcome: Outcome) -> None:
        """The new id grows old as well. Then the zombie's epoch equals the current one, and only the producer id tells
        them apart."""
        current = rotated(TransactionState.EMPTY)
        while current.producer_epoch < EXHAUSTED:
            how = ending.Ending(outcome, bumps_epoch=True, cause="client")
            opened = replace(current, state=TransactionState.ONGOING)
            prepared = ending.decide(opened, how, csn=1, now_ms=NOW_MS, limits=shard_limits(), allocate=never_allocate)
            current = ending.complete(prepared, now_ms=NOW_MS)
        zombie = Identity(PREV_PRODUCER_ID, EXHAUSTED)
        request = initialising.InitRequest(transactional_id=ID, txn_timeout_ms=1, expected=zombie)
        assert ask_init(shard_with(current), request) == 90

    def test_the_same_zombie_is_fenced_after_bumps_by_init(self) -> None:
        current = rotated(TransactionState.EMPTY)
        while current.producer_epoch < EXHAUSTED:
            own = initialising.InitRequest(transactional_id=ID, txn_timeout_ms=1, expected=current.identity)
            current = initialising.initialise(
                current, own, now_ms=NOW_MS, limits=shard_limits(), allocate=never_allocate
            )
        zombie = initialising.InitRequest(
            transactional_id=ID, txn_timeout_ms=1, expected=Identity(PREV_PRODUCER_ID, EXHAUSTED)
        )
        assert ask_init(shard_with(current), zombie) == 90


class TestRecovery:
    def test_an_expired_id_comes_back_with_a_new_producer_id(self) -> None:
        """Spec transactions 3.7: a record that is not there accepts any expectation."""
        request = initialising.InitRequest(transactional_id=ID, txn_timeout_ms=1, expected=Identity(PRODUCER_ID, 5))
        decision = ask_init(shard_with(), request)
        assert isinstance(decision, Decision)
        assert told_identity(decision) == Identity(FRESH_PRODUCER_ID, 0)

    def test_an_unknown_id_knows_no_transaction(self) -> None:
        identity = Identity(PRODUCER_ID, 5)
        end = EndTxn(transactional_id=ID, identity=identity, outcome=Outcome.COMMIT)
        additions = adding.Additions(partitions=frozenset({1}))
        shard = shard_with()
        assert ask(lambda: shard.decide_end(end, TURN)) == 49
        assert ask(lambda: shard.decide_add(ID, identity, additions, TURN, client_txn_version=2)) == 49
        assert ask(lambda: shard.decide_verify(ID, identity, frozenset({1}))) == 49

    def test_a_repeated_request_id_gets_the_same_answer_in_every_state(self) -> None:
        for state in TransactionState:
            answered = InitAnswer(b"0123456789abcdef", Identity(PRODUCER_ID, 5))
            current = replace(transaction(state), init=answered)
            request = initialising.InitRequest(transactional_id=ID, txn_timeout_ms=1, request_id=b"0123456789abcdef")
            decision = ask_init(shard_with(current), request)
            assert isinstance(decision, Decision)
            assert told_identity(decision) == Identity(PRODUCER_ID, 5)
            assert not decision.records

    def test_requests_without_an_id_are_never_taken_for_each_other(self) -> None:
        current = replace(transaction(TransactionState.EMPTY), init=InitAnswer(b"", Identity(PRODUCER_ID, 5)))
        request = initialising.InitRequest(transactional_id=ID, txn_timeout_ms=1)
        decision = ask_init(shard_with(current), request)
        assert isinstance(decision, Decision)
        assert told_identity(decision) == Identity(PRODUCER_ID, 6)


class TestServerAborts:
    @pytest.mark.parametrize("state", [state for state in TransactionState if state is not TransactionState.ONGOING])
    def test_only_an_open_transaction_times_out(self, state: TransactionState) -> None:
        """Spec transactions 9, row 13: after PREPARE no timeout may change the outcome."""
        current = transaction(state)
        decision = shard_with(current).decide_abort(TURN, meant=current, cause="timeout")
        assert decision == Decision()

    def test_the_timer_of_an_earlier_transaction_does_not_abort_the_next(self) -> None:
        """Spec transactions 9, row 15."""
        current = transaction(TransactionState.ONGOING)
        shard = shard_with(current)
        for meant in (
            replace(current, producer_epoch=4),
            replace(current, start_ms=current.start_ms - 1),
            replace(current, producer_id=PREV_PRODUCER_ID),
        ):
            assert shard.decide_abort(TURN, meant=meant, cause="timeout") == Decision()

    def test_an_abort_by_the_server_bumps_whatever_the_client_speaks(self) -> None:
        """Spec transactions 3.12."""
        current = replace(transaction(TransactionState.ONGOING), client_txn_version=1)
        decision = shard_with(current).decide_abort(TURN, meant=current, cause="timeout")
        prepared = changed(decision)
        assert prepared is not None
        assert (prepared.producer_epoch, prepared.last_producer_epoch, prepared.cause) == (6, 5, "timeout")

    def test_completing_twice_completes_once(self) -> None:
        prepared = transaction(TransactionState.PREPARE_COMMIT)
        shard = shard_with(prepared)
        decision = shard.decide_complete(ID, prepared.csn, TURN)
        completed = changed(decision)
        assert completed is not None
        assert shard_with(completed).decide_complete(ID, prepared.csn, TURN) == Decision()
        assert shard.decide_complete(ID, prepared.csn + 1, TURN) == Decision()
        assert shard_with().decide_complete(ID, prepared.csn, TURN) == Decision()


def shard_limits() -> Limits:
    return Limits(producer_epoch_max=EXHAUSTED + 1)


def never_allocate() -> int:
    raise AssertionError("no producer id is needed here")


@pytest.mark.parametrize(("epoch_max", "first_exhausted"), [(EPOCH_MAX, 32766), (3, 2)])
def test_the_last_epoch_is_kept_for_one_more_fence(epoch_max: int, first_exhausted: int) -> None:
    limits = Limits(producer_epoch_max=epoch_max)
    for epoch in range(first_exhausted - 2, epoch_max + 1):
        before = Transaction(
            transactional_id=ID, producer_id=1, producer_epoch=epoch, txn_timeout_ms=1, last_update_ms=0
        )
        request = initialising.InitRequest(transactional_id=ID, txn_timeout_ms=1)
        after = initialising.initialise(before, request, now_ms=0, limits=limits, allocate=lambda: 2)
        expected = Identity(2, 0) if epoch >= first_exhausted else Identity(1, epoch + 1)
        assert after.identity == expected
