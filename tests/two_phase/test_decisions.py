"""Answers of a transaction that awaits an outside decision to every request, cell by cell (spec transactions 10).

Rows are the state found: `2pc` is a participant's open transaction, `prepared` one after PrepareTransaction, `kept` one
that a newer instance took over. Columns are the identity shown: `client`, which may act; `owner`, which opened the
transaction (the same, unless kept); `between`, an earlier recovery attempt; `higher`; `other id`. Numbers are error
codes.
"""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from coordinator_protocol.limits import Limits
from coordinator_protocol.marker import Outcome
from coordinator_runtime.decision import ArmTimer, CancelTimer, Decision
from tests.harness.table import cells
from tests.transactions.world_of_one import (
    EXHAUSTED,
    FRESH_PRODUCER_ID,
    ID,
    LIMITS,
    NOW_MS,
    OTHER_PRODUCER_ID,
    PRODUCER_ID,
    TURN,
    ask,
    changed,
    shard_with,
    transaction,
)
from txn_coordinator.outcomes import Ended, SendMarkers
from txn_coordinator.requests import EndTxn
from txn_coordinator.rules import adding, ending, initialising
from txn_coordinator.shard import ADMIN_CAUSE, AbortStarted, Initialised, TransactionShard
from txn_coordinator.state import NO_EPOCH, NO_TIMEOUT_MS, Identity, Transaction, TransactionState

ONGOING = transaction(TransactionState.ONGOING)
PARTICIPANT = replace(ONGOING, txn_timeout_ms=NO_TIMEOUT_MS)
ROWS = {
    "2pc": PARTICIPANT,
    "prepared": replace(ONGOING, prepared_ms=NOW_MS - 10),
    "kept": replace(
        PARTICIPANT, next_producer_id=PRODUCER_ID, next_producer_epoch=8, last_producer_epoch=NO_EPOCH, cause="keep"
    ),
    "kept, rotated": replace(
        PARTICIPANT, next_producer_id=11, next_producer_epoch=2, last_producer_epoch=NO_EPOCH, cause="keep"
    ),
}


def shown(relation: str, current: Transaction) -> Identity:
    client = current.client_identity
    return {
        "client": client,
        "owner": current.identity,
        "between": Identity(client.producer_id, client.producer_epoch - 1),
        "higher": Identity(client.producer_id, client.producer_epoch + 1),
        "other id": Identity(OTHER_PRODUCER_ID, client.producer_epoch),
    }[relation]


def init(shard: TransactionShard, *, expected: Identity | None = None, **flags: bool) -> Decision | int:
    request = initialising.InitRequest(transactional_id=ID, txn_timeout_ms=7_777, expected=expected, **flags)
    return ask(lambda: shard.decide_init(request, TURN, may_abort_and_init=True))


END = """
              | client  | owner   | between | higher | other id
2pc           | prepare | prepare | 90      | 90     | 49
prepared      | prepare | prepare | 90      | 90     | 49
kept          | prepare | 90      | 90      | 90     | 49
kept, rotated | prepare | 90      | 90      | 90     | 49
"""

# `has`: what is in the transaction already. Before the promise that is a success without a write; afterwards not even
# that, because the answer would let a batch in.
ADD_HAS = """
              | client | owner | between | higher | other id
2pc           | 0      | 0     | 90      | 90     | 49
prepared      | 48     | 48    | 90      | 90     | 49
kept          | 48     | 90    | 90      | 90     | 49
kept, rotated | 48     | 90    | 90      | 90     | 49
"""

ADD_NEW = """
              | client | owner | between | higher | other id
2pc           | 0      | 0     | 90      | 90     | 49
prepared      | 48     | 48    | 90      | 90     | 49
kept          | 48     | 90    | 90      | 90     | 49
kept, rotated | 48     | 90    | 90      | 90     | 49
"""

PREPARE = """
              | client | owner | between | higher | other id
2pc           | 0      | 0     | 90      | 90     | 49
prepared      | same   | same  | 90      | 90     | 49
kept          | 0      | 90    | 90      | 90     | 49
kept, rotated | 0      | 90    | 90      | 90     | 49
"""


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("outcome", list(Outcome))
@pytest.mark.parametrize(("row", "relation", "answer"), cells(END))
def test_end(version: int, outcome: Outcome, row: str, relation: str, answer: str) -> None:
    current = ROWS[row]
    client = current.client_identity
    command = EndTxn(transactional_id=ID, identity=shown(relation, current), outcome=outcome)
    decision = ask(lambda: shard_with(current).decide_end(command, TURN, client_txn_version=version))
    if answer != "prepare":
        assert decision == int(answer)
        return
    prepared = changed(decision) if isinstance(decision, Decision) else None
    assert prepared is not None
    assert prepared.outcome is outcome
    next_client = Identity(client.producer_id, client.producer_epoch + (version == 2))
    completed = ending.complete(prepared, now_ms=NOW_MS)
    assert completed.identity == completed.client_identity == next_client
    assert completed.prepared_ms is None
    assert decision.reply == Ended(next_client, 1)  # type: ignore[union-attr]  # a Decision, as above
    marker = ending.marker_of(prepared, coordinator_shard=0, coordinator_epoch=1)
    assert (marker.producer_id, marker.txn_epoch) == current.identity, "markers name who wrote the records"
    if row.startswith("kept"):
        assert marker.next_epoch == current.producer_epoch + 1, "and fence him, whatever the client speaks"
    # The same request again, now that it is complete.
    again = ask(lambda: shard_with(completed).decide_end(command, TURN, client_txn_version=version))
    assert again == Decision(reply=Ended(next_client, 1))


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(
    ("partitions", "row", "relation", "answer"),
    [(frozenset({1, 2}), *cell) for cell in cells(ADD_HAS)] + [(frozenset({3}), *cell) for cell in cells(ADD_NEW)],
)
def test_add(version: int, partitions: frozenset[int], row: str, relation: str, answer: str) -> None:
    current = ROWS[row]
    for additions in (adding.Additions(partitions=partitions), adding.Additions(groups=frozenset({"g"}))):
        decision = ask(
            lambda additions=additions: shard_with(current).decide_add(  # type: ignore[misc]  # bound, as ruff wants
                ID, shown(relation, current), additions, TURN, client_txn_version=version
            )
        )
        assert (0 if isinstance(decision, Decision) else decision) == int(answer)


@pytest.mark.parametrize(("row", "relation", "answer"), cells(ADD_HAS))
def test_verify(row: str, relation: str, answer: str) -> None:
    """Ask what the partition asks for a client of version 1."""
    current = ROWS[row]
    decision = ask(lambda: shard_with(current).decide_verify(ID, shown(relation, current), frozenset({1})))
    assert (0 if isinstance(decision, Decision) else decision) == int(answer)


@pytest.mark.parametrize(("row", "relation", "answer"), cells(PREPARE))
def test_prepare(row: str, relation: str, answer: str) -> None:
    current = ROWS[row]
    decision = ask(lambda: shard_with(current).decide_prepare(ID, shown(relation, current), TURN))
    if not isinstance(decision, Decision):
        assert decision == int(answer)
        return
    assert decision.reply == current.identity, "what is noted is the identity of the transaction"
    promised = changed(decision)
    if answer == "same":
        assert promised is None
        return
    assert promised == replace(current, prepared_ms=NOW_MS, last_update_ms=NOW_MS, cause="prepare")
    assert decision.effects == (CancelTimer(("transaction_timeout", ID)),)
    assert len(decision.joins) == 2, "both partitions are sealed"


@pytest.mark.parametrize(
    ("state", "answer"),
    [("EMPTY", 48), ("COMPLETE_COMMIT", 48), ("COMPLETE_ABORT", 48), ("PREPARE_COMMIT", 51), ("PREPARE_ABORT", 51)],
)
def test_only_an_open_transaction_can_be_prepared(state: str, answer: int) -> None:
    current = transaction(TransactionState[state])
    assert ask(lambda: shard_with(current).decide_prepare(ID, current.identity, TURN)) == answer
    assert ask(lambda: shard_with().decide_prepare(ID, current.identity, TURN)) == 49


# InitProducerId with keep_prepared. `keep`: the client's epoch + 1; `rotate`: a new producer id; `init`: as without it.

KEEP = """
                        | none   | client | owner  | between | other id
2pc                     | keep   | keep   | keep   | same    | 90
prepared                | keep   | keep   | keep   | same    | 90
kept                    | keep   | keep   | 90     | 90      | 90
kept, rotated           | keep   | keep   | 90     | 90      | 90
"""


@pytest.mark.parametrize("enable_2pc", [True, False])
@pytest.mark.parametrize(("row", "relation", "answer"), cells(KEEP))
def test_keep(enable_2pc: bool, row: str, relation: str, answer: str) -> None:
    current = ROWS[row]
    expected = None if relation == "none" else shown(relation, current)
    decision = init(shard_with(current), expected=expected, enable_2pc=enable_2pc, keep_prepared=True)
    if not isinstance(decision, Decision):
        assert decision == int(answer)
        return
    client = current.client_identity
    kept = changed(decision)
    assert kept is not None
    # `between` is the epoch before the client's own last bump: the answer to a lost reply would be its, had it kept.
    assert kept.client_identity == Identity(client.producer_id, client.producer_epoch + 1)
    assert decision.reply == Initialised(kept.client_identity, current.identity)
    assert kept.last_producer_epoch == (NO_EPOCH if expected is None else expected.producer_epoch)
    assert kept.txn_timeout_ms == (NO_TIMEOUT_MS if enable_2pc else current.txn_timeout_ms)
    unchanged = ("state", "partitions", "groups", "start_ms", "producer_id", "producer_epoch", "prepared_ms")
    assert all(getattr(kept, name) == getattr(current, name) for name in unchanged)


@pytest.mark.parametrize("state", list(TransactionState))
def test_keep_finds_every_state(state: TransactionState) -> None:
    current = transaction(state)
    kept, plain = (init(shard_with(current), keep_prepared=flag) for flag in (True, False))
    if state is TransactionState.ONGOING:
        assert isinstance(kept, Decision)
        assert isinstance(plain, Decision)
        assert kept.reply == Initialised(Identity(PRODUCER_ID, 6), Identity(PRODUCER_ID, 5))
        assert plain.reply == AbortStarted()
        return
    assert kept == plain, "with nothing open it is an init like any other"


def test_an_exhausted_client_gets_a_new_producer_id_and_the_ongoing_identity_stays() -> None:
    current = replace(PARTICIPANT, producer_epoch=EXHAUSTED)
    decision = init(shard_with(current), keep_prepared=True, enable_2pc=True)
    assert isinstance(decision, Decision)
    assert decision.reply == Initialised(Identity(FRESH_PRODUCER_ID, 0), Identity(PRODUCER_ID, EXHAUSTED))
    kept = changed(decision)
    assert kept is not None
    prepared = ending.decide(
        kept, ending.Ending(Outcome.COMMIT, True, "client"), csn=1, now_ms=NOW_MS, limits=LIMITS, allocate=never
    )
    assert (prepared.producer_id, prepared.producer_epoch) == (PRODUCER_ID, EXHAUSTED + 1)
    completed = ending.complete(prepared, now_ms=NOW_MS)
    assert completed.identity == Identity(FRESH_PRODUCER_ID, 1), "after the commit (new, 1): case 265"


def test_the_timeout_of_an_idle_id_is_stored_as_none() -> None:
    decision = init(shard_with(transaction(TransactionState.EMPTY)), enable_2pc=True)
    assert isinstance(decision, Decision)
    initialised = changed(decision)
    assert initialised is not None
    assert initialised.txn_timeout_ms == NO_TIMEOUT_MS
    added = shard_with(initialised).decide_add(ID, initialised.identity, adding.Additions(), TURN, client_txn_version=2)
    assert added.effects == (), "and its transactions arm no timer"


@pytest.mark.parametrize("row", ROWS)
def test_only_an_administrator_and_an_init_that_does_not_keep_break_the_promise(row: str) -> None:
    """P10."""
    current = ROWS[row]
    shard = shard_with(current)
    for cause in ("timeout", "topic_deleted"):
        assert shard.decide_abort(TURN, meant=current, cause=cause) == Decision()
    assert shard.table.open_touching(current.partitions) == []
    armed = [effect.key for effect in shard.on_loaded(TURN).effects if isinstance(effect, ArmTimer)]
    assert armed == [("transaction_expiration", 0)], "no timeout after a restart"
    client = current.client_identity
    broken = [
        shard.decide_abort(TURN, meant=current, cause=ADMIN_CAUSE),
        init(shard),
    ]
    for decision in broken:
        aborted = changed(decision) if isinstance(decision, Decision) else None
        assert aborted is not None
        assert aborted.state is TransactionState.PREPARE_ABORT
        assert aborted.last_producer_epoch == client.producer_epoch, "fenced from the client's identity"
        completed = ending.complete(aborted, now_ms=NOW_MS)
        assert completed.identity == Identity(client.producer_id, client.producer_epoch + 1)


def test_the_worked_example_to_the_letter() -> None:
    """Spec transactions 10: 42:100 is noted; two recoveries; the commit and its repetition; the overtaken attempt."""
    state = replace(
        transaction(TransactionState.EMPTY),
        producer_id=42,
        producer_epoch=99,
        last_producer_epoch=NO_EPOCH,
    )
    shard = shard_with(state, limits=Limits())

    def apply(decision: Decision | int) -> Decision:
        assert isinstance(decision, Decision)
        for record in decision.records:
            if record.shard == shard.key:
                shard.replay(record.value)  # type: ignore[arg-type]  # a record of this shard
        return decision

    def end(epoch: int, outcome: Outcome) -> Decision | int:
        request = EndTxn(transactional_id=ID, identity=Identity(42, epoch), outcome=outcome)
        return ask(lambda: shard.decide_end(request, TURN))

    assert apply(init(shard, enable_2pc=True)).reply == Initialised(Identity(42, 100))
    additions = adding.Additions(partitions=frozenset({1}))
    apply(shard.decide_add(ID, Identity(42, 100), additions, TURN, client_txn_version=2))
    assert apply(shard.decide_prepare(ID, Identity(42, 100), TURN)).reply == Identity(42, 100)
    for epoch in (101, 102):
        recovered = apply(init(shard, enable_2pc=True, keep_prepared=True))
        assert recovered.reply == Initialised(Identity(42, epoch), Identity(42, 100))
    ended = apply(end(102, Outcome.COMMIT))
    assert ended.reply == Ended(Identity(42, 103), 1)
    (sent,) = [effect for effect in ended.effects if isinstance(effect, SendMarkers)]
    marker = sent.marker
    assert (marker.producer_id, marker.txn_epoch, marker.next_epoch) == (42, 100, 101), "markers at (42, 101)"
    completed = changed(apply(shard.decide_complete(ID, 1, TURN)))
    assert completed is not None
    assert (completed.identity, completed.state) == (Identity(42, 103), TransactionState.COMPLETE_COMMIT)
    assert end(102, Outcome.COMMIT) == Decision(reply=Ended(Identity(42, 103), 1))
    assert [end(101, outcome) for outcome in Outcome] == [90, 90]


def never() -> int:
    raise AssertionError("no producer id is needed here")
