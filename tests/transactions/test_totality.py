"""Any stored state meets any request: a decision or a precise refusal, never a bug, and never a broken promise."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from coordinator_protocol.errors import ErrorCode
from coordinator_protocol.marker import Outcome
from coordinator_runtime.decision import Decision
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
    shard_with,
    steps_in,
    transaction,
)
from txn_coordinator.codec import TransactionCodec
from txn_coordinator.config import TwoPhase
from txn_coordinator.outcomes import Contribution
from txn_coordinator.records import TransactionChanged
from txn_coordinator.requests import EndTxn
from txn_coordinator.rules import adding, initialising, transacting
from txn_coordinator.shard import PlacedTransact, TransactionShard
from txn_coordinator.state import (
    COMPLETE,
    DECIDED,
    LEGAL_STEPS,
    NO_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMEOUT_MS,
    Identity,
    InitAnswer,
    Transaction,
    TransactionState,
)

EPOCHS = st.integers(0, EXHAUSTED)
KEEPER_PRODUCER_ID = 9
"""Producer id of a newer instance that keeps the open transaction."""
REFUSALS = {
    ErrorCode.INVALID_REQUEST,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.PRODUCER_FENCED,
}


@st.composite
def transactions(draw: st.DrawFn) -> Transaction:
    """Every state with every history of epochs and producer ids that its fields can tell."""
    state = draw(st.sampled_from(TransactionState))
    is_open = state is TransactionState.ONGOING or state in DECIDED
    epoch = draw(EPOCHS)
    is_rotating = state in DECIDED and draw(st.booleans())
    is_kept = state is TransactionState.ONGOING and draw(st.booleans())
    txn_epoch = NO_EPOCH
    if state in DECIDED:
        txn_epoch = draw(st.sampled_from((epoch, max(epoch - 1, 0))))
    return Transaction(
        transactional_id=ID,
        producer_id=PRODUCER_ID,
        producer_epoch=EXHAUSTED + 1 if is_rotating else epoch,
        last_producer_epoch=draw(st.one_of(st.just(NO_EPOCH), EPOCHS)),
        prev_producer_id=PRODUCER_ID if is_rotating else draw(st.sampled_from((NO_PRODUCER_ID, PREV_PRODUCER_ID))),
        next_producer_id=8 if is_rotating else KEEPER_PRODUCER_ID if is_kept else NO_PRODUCER_ID,
        next_producer_epoch=0 if is_rotating else draw(EPOCHS) if is_kept else NO_EPOCH,
        txn_timeout_ms=draw(st.one_of(st.integers(1, 900_000), st.just(NO_TIMEOUT_MS))),
        prepared_ms=draw(st.sampled_from((None, NOW_MS - 60))) if is_open else None,
        state=state,
        partitions=draw(st.frozensets(st.integers(0, 3))) if is_open else frozenset(),
        groups=draw(st.frozensets(st.sampled_from("gh"))) if is_open else frozenset(),
        start_ms=-1 if state is TransactionState.EMPTY else NOW_MS - 100,
        last_update_ms=NOW_MS - 50,
        client_txn_version=draw(st.sampled_from((1, 2))),
        txn_epoch=txn_epoch,
        csn=draw(st.integers(0, 5)),
        init=draw(
            st.one_of(
                st.none(),
                st.builds(
                    InitAnswer,
                    st.sampled_from((b"", b"r" * 16)),
                    st.builds(Identity, st.just(PRODUCER_ID), EPOCHS),
                    st.one_of(st.none(), st.builds(Identity, st.just(PREV_PRODUCER_ID), EPOCHS)),
                ),
            )
        ),
        cause=draw(st.sampled_from(("init", "client", "timeout"))),
        transact_id=draw(st.sampled_from((b"", b"t" * 16))) if state in DECIDED | COMPLETE else b"",
    )


IDENTITIES = st.builds(
    Identity, st.sampled_from((PREV_PRODUCER_ID, PRODUCER_ID, 8, KEEPER_PRODUCER_ID, 99)), st.integers(0, EXHAUSTED + 1)
)
Question = Callable[[TransactionShard], Decision]


@st.composite
def questions(draw: st.DrawFn) -> Question:
    identity = draw(IDENTITIES)
    version = draw(st.sampled_from((1, 2)))
    match draw(st.sampled_from(("end", "transact", "add", "verify", "prepare", "init", "abort", "complete"))):
        case "end":
            end = EndTxn(transactional_id=ID, identity=identity, outcome=draw(st.sampled_from(Outcome)))
            return lambda shard: shard.decide_end(end, TURN, client_txn_version=version)
        case "transact":
            additions = adding.Additions(partitions=draw(st.frozensets(st.integers(0, 5))))
            name = draw(st.sampled_from((b"t" * 16, b"u" * 16)))
            request = transacting.TransactRequest(ID, identity, draw(st.sampled_from(Outcome)), name, additions)
            return lambda shard: shard.decide_transact(PlacedTransact(request, Contribution()), TURN)
        case "add":
            additions = adding.Additions(partitions=draw(st.frozensets(st.integers(0, 5))))
            return lambda shard: shard.decide_add(ID, identity, additions, TURN, client_txn_version=version)
        case "verify":
            return lambda shard: shard.decide_verify(ID, identity, frozenset({1}))
        case "prepare":
            return lambda shard: shard.decide_prepare(ID, identity, TURN)
        case "init":
            init = initialising.InitRequest(
                transactional_id=ID,
                txn_timeout_ms=1_000,
                expected=draw(st.one_of(st.none(), st.just(identity))),
                request_id=draw(st.sampled_from((b"", b"r" * 16, b"s" * 16))),
                enable_2pc=draw(st.booleans()),
                keep_prepared=draw(st.booleans()),
            )
            may = draw(st.booleans())
            return lambda shard: shard.decide_init(init, TURN, may_abort_and_init=may)
        case "abort":
            meant = Transaction(
                transactional_id=ID,
                producer_id=identity.producer_id,
                producer_epoch=identity.producer_epoch,
                txn_timeout_ms=1_000,
                state=TransactionState.ONGOING,
                start_ms=NOW_MS - 100,
                last_update_ms=NOW_MS - 100,
            )
            return lambda shard: shard.decide_abort(TURN, meant=meant, cause="timeout")
        case _:
            csn = draw(st.integers(0, 5))
            return lambda shard: shard.decide_complete(ID, csn, TURN)


def _kept(client: Identity, *, prev_producer_id: int = PRODUCER_ID) -> Transaction:
    """Opened by producer 7 and kept by a newer instance, whose producer id is another since the first was exhausted."""
    return replace(
        transaction(TransactionState.ONGOING),
        next_producer_id=client.producer_id,
        next_producer_epoch=client.producer_epoch,
        prev_producer_id=prev_producer_id,
        last_producer_epoch=NO_EPOCH,
        client_txn_version=1,
    )


def _initialise(shard: TransactionShard) -> Decision:
    init = initialising.InitRequest(transactional_id=ID, txn_timeout_ms=1_000)
    return shard.decide_init(init, TURN, may_abort_and_init=True)


def _end(client: Identity, *, version: int) -> Question:
    end = EndTxn(transactional_id=ID, identity=client, outcome=Outcome.COMMIT)
    return lambda shard: shard.decide_end(end, TURN, client_txn_version=version)


KEEPER = Identity(KEEPER_PRODUCER_ID, 0)
EXHAUSTED_KEEPER = Identity(KEEPER_PRODUCER_ID, EXHAUSTED)


@given(transactions(), questions(), st.sampled_from(TwoPhase))
@example(_kept(KEEPER), _initialise, TwoPhase.FUSED)
@example(_kept(EXHAUSTED_KEEPER), _initialise, TwoPhase.FUSED)
@example(_kept(KEEPER, prev_producer_id=NO_PRODUCER_ID), _end(KEEPER, version=1), TwoPhase.FUSED)
@example(_kept(KEEPER), _end(KEEPER, version=2), TwoPhase.FUSED)
@settings(max_examples=300, deadline=None)
def test_every_state_answers_every_request(before: Transaction, question: Question, two_phase: TwoPhase) -> None:
    shard = shard_with(before, two_phase=two_phase)
    decision = ask(lambda: question(shard))
    if isinstance(decision, int):
        assert decision in REFUSALS
        return
    after = changed(decision)
    if after is None:
        return
    _check_steps(before, after, decision)
    _check_identity_grew(before, after)
    if before.state in DECIDED:
        assert after.outcome is before.outcome, "what is decided stays decided"
    if after.state is TransactionState.EMPTY or after.state not in (TransactionState.ONGOING, *DECIDED):
        assert not after.partitions
        assert not after.groups
    # Replaying the record gives the state that was decided, and its bytes give the record.
    shard.replay(TransactionChanged(after))
    encoded = TransactionCodec().encode(TransactionChanged(after))
    assert encoded.value is not None
    assert TransactionCodec().decode(encoded.record_type, encoded.key, encoded.value) == TransactionChanged(after)


def _check_steps(before: Transaction, after: Transaction, decision: Decision) -> None:
    """Assert that each step decided in one operation is a legal one."""
    steps = steps_in(decision)
    assert (steps[0].before, steps[-1].after) == (before, after)
    for step in steps:
        assert step.before is not None
        assert step.after.state in LEGAL_STEPS[step.before.state]
    assert [step.after for step in steps[:-1]] == [step.before for step in steps[1:]]


def _check_identity_grew(before: Transaction, after: Transaction) -> None:
    """Epochs of a producer id never fall and never wrap; a new producer id was never in use, at epoch 0, or that
    of the client who was kept a transaction of another. All that of the identity of the client, too."""
    mine, others = before.client_identity, after.client_identity
    if others.producer_id == mine.producer_id:
        assert others.producer_epoch >= mine.producer_epoch
    else:
        assert others == Identity(FRESH_PRODUCER_ID, 0)
    if after.producer_id == before.producer_id:
        assert before.producer_epoch <= after.producer_epoch <= EXHAUSTED + 1
        is_handed_out = after.state not in DECIDED
        assert not is_handed_out or after.producer_epoch <= EXHAUSTED or before.state in DECIDED
    else:
        # A client that ends a kept transaction has a producer id already, and may get another epoch of it, as after
        # every end.
        bumped = mine._replace(producer_epoch=mine.producer_epoch + 1)
        assert after.identity in (Identity(FRESH_PRODUCER_ID, 0), mine, *([bumped] if before.is_kept else []))
        assert after.prev_producer_id == (before.prev_producer_id if after.identity == mine else mine.producer_id)
        assert after.producer_epoch <= EXHAUSTED
    if after.next_producer_id != NO_PRODUCER_ID:
        assert after.state in DECIDED or after.is_kept
