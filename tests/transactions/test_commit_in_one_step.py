"""A whole transaction in one step of the rules leaves an id as its steps one by one do, and tells the same."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from coordinator_protocol.errors import Refused
from coordinator_protocol.limits import Limits
from coordinator_protocol.marker import Outcome
from txn_coordinator.codec import TransactionCodec
from txn_coordinator.records import TransactionChanged, TransactionRanThrough, TransactionStepped
from txn_coordinator.rules import ending, transacting
from txn_coordinator.rules.adding import Additions
from txn_coordinator.rules.transacting import TransactRequest
from txn_coordinator.state import COMPLETE, Identity, InitAnswer, Transaction, TransactionState

EPOCH_MAX = 9
LIMITS = Limits(producer_epoch_max=EPOCH_MAX, partitions_per_transaction_max=4)
NOW_MS, CSN = 70_000, 33
NAMES = st.sampled_from((b"", b"n" * 16, b"o" * 16))
NEW_NAMES = st.sampled_from((b"n" * 16, b"o" * 16))
SMALL = st.integers(-1, EPOCH_MAX)


@st.composite
def transactions(draw: st.DrawFn) -> Transaction:
    """Any state of an id, also such as nothing leads to."""
    is_open = draw(st.sampled_from(TransactionState)) not in COMPLETE
    return Transaction(
        transactional_id="orders",
        producer_id=draw(st.integers(1, 2)),
        producer_epoch=draw(st.integers(0, EPOCH_MAX)),
        last_producer_epoch=draw(SMALL),
        prev_producer_id=draw(st.sampled_from((-1, 1, 3))),
        txn_timeout_ms=60_000,
        state=draw(st.sampled_from(TransactionState)),
        partitions=draw(st.frozensets(st.integers(0, 3))) if is_open else frozenset(),
        start_ms=draw(st.sampled_from((-1, 5, NOW_MS))),
        last_update_ms=5,
        client_txn_version=draw(st.sampled_from((1, 2))),
        csn=draw(st.integers(0, 3)),
        init=draw(st.sampled_from((None, InitAnswer(b"i" * 16, Identity(1, 0))))),
        cause=draw(st.sampled_from(("init", "client", "timeout"))),
        transact_id=draw(NAMES),
    )


def idle(found: Transaction) -> bool:
    return found.state in (TransactionState.EMPTY, *COMPLETE) and not found.partitions


@given(
    transactions(),
    st.none() | st.builds(Identity, st.integers(1, 3), st.integers(0, EPOCH_MAX)),
    NEW_NAMES,
    st.frozensets(st.integers(0, 9), min_size=1),
)
def test_it_is_what_the_steps_come_to(
    current: Transaction, other: Identity | None, name: bytes, partitions: frozenset[int]
) -> None:
    shown, groups = current.identity if other is None else other, frozenset({"g"})
    after = transacting.commit_in_one_step(current, shown, name, csn=CSN, now_ms=NOW_MS, limits=LIMITS)
    if after is None:
        return
    assume(idle(current))
    request = TransactRequest("orders", shown, Outcome.COMMIT, name, Additions(partitions=partitions, groups=groups))
    try:
        opened = transacting.judge_transact(current, request, now_ms=NOW_MS, limits=LIMITS)
    except Refused:
        assert len(partitions) + 1 > LIMITS.partitions_per_transaction_max, "who asks for it looks at the number"
        return
    assert opened is not None, "a repetition is answered otherwise"
    how = ending.Ending(Outcome.COMMIT, bumps_epoch=True, cause="client", transact_id=name)
    decided = ending.decide(opened, how, csn=CSN, now_ms=NOW_MS, limits=LIMITS, allocate=_no_producer_id)
    assert after == ending.complete(decided, now_ms=NOW_MS)
    ran = TransactionRanThrough(current, after, tuple(sorted(partitions)), ("g",))
    assert transacting.steps_of(ran) == [
        TransactionStepped(current, opened),
        TransactionStepped(opened, decided),
        TransactionStepped(decided, after),
    ]
    codec = TransactionCodec()
    assert codec.encode(ran) == codec.encode(TransactionChanged(after, decided))


@given(transactions(), NEW_NAMES)
def test_an_idle_id_is_taken_unless_it_is_known_or_at_its_end(current: Transaction, name: bytes) -> None:
    after = transacting.commit_in_one_step(current, current.identity, name, csn=CSN, now_ms=NOW_MS, limits=LIMITS)
    is_common = (
        current.state is not TransactionState.ONGOING
        and current.state in (TransactionState.EMPTY, *COMPLETE)
        and current.transact_id != name
        and current.producer_epoch < EPOCH_MAX - 1
    )
    assert (after is not None) is is_common


@pytest.mark.parametrize(("epoch", "is_taken"), [(EPOCH_MAX - 2, True), (EPOCH_MAX - 1, False)])
def test_the_last_epoch_of_a_producer_id_is_left_to_those_who_can_give_another(*, epoch: int, is_taken: bool) -> None:
    current = Transaction(
        transactional_id="orders", producer_id=7, producer_epoch=epoch, txn_timeout_ms=1_000, last_update_ms=NOW_MS
    )
    after = transacting.commit_in_one_step(current, current.identity, b"new", csn=CSN, now_ms=NOW_MS, limits=LIMITS)
    assert (after is not None) is is_taken


def _no_producer_id() -> int:
    raise AssertionError("it goes on with the producer id that it has")
