"""The fast path of EndTxn repeats the rule of the general path: what it takes, `judge_end` decides."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.marker import Outcome
from coordinator_runtime.ports import CallContext
from tests.harness.inside import WorldOptions
from tests.harness.world import World
from txn_coordinator.config import TwoPhase
from txn_coordinator.outcomes import Ended
from txn_coordinator.records import TransactionChanged
from txn_coordinator.requests import EndTxn
from txn_coordinator.rules.ending import EndVerdict, judge_end
from txn_coordinator.state import NO_EPOCH, NO_PRODUCER_ID, Identity, Member, Transaction, TransactionState

ID = "billing-0"
EPOCH_MAX = 9

EPOCHS = st.integers(0, EPOCH_MAX)
IDENTITIES = st.builds(Identity, st.integers(1, 3), EPOCHS)
VERSIONS = st.sampled_from((1, 2, 2))
KEPT_FOR = st.sampled_from((Identity(NO_PRODUCER_ID, NO_EPOCH), Identity(1, 4), Identity(3, 0)))


@st.composite
def transactions(draw: st.DrawFn) -> Transaction:
    """Any state of an id, also such as nothing leads to. Half of them are open."""
    kept_for = draw(KEPT_FOR)
    return Transaction(
        transactional_id=ID,
        producer_id=draw(st.integers(1, 2)),
        producer_epoch=draw(EPOCHS),
        last_producer_epoch=draw(st.integers(-1, EPOCH_MAX)),
        prev_producer_id=draw(st.sampled_from((NO_PRODUCER_ID, 1, 3))),
        next_producer_id=kept_for.producer_id,
        next_producer_epoch=kept_for.producer_epoch,
        txn_timeout_ms=60_000,
        state=draw(st.just(TransactionState.ONGOING) | st.sampled_from(TransactionState)),
        partitions=draw(st.frozensets(st.integers(0, 2), max_size=2)),
        start_ms=draw(st.sampled_from((-1, 5))),
        last_update_ms=5,
        csn=draw(st.integers(0, 3)),
        prepared_ms=draw(st.sampled_from((None, 5))),
        transact_id=draw(st.sampled_from((b"", b"n" * 16))),
        member=draw(st.none() | st.none() | st.just(Member(1, "attempt"))),
    )


def judged(current: Transaction, shown: Identity, version: int) -> EndVerdict | ErrorCode:
    try:
        return judge_end(current, EndTxn(ID, shown, outcome=Outcome.COMMIT), client_txn_version=version)
    except Refused as refusal:
        return refusal.code


def test_what_the_fast_path_takes_the_rule_decides() -> None:
    world = World(WorldOptions(lane=True, two_phase=TwoPhase.FUSED, shard_count=1, producer_epoch_max=EPOCH_MAX))
    world.create_topic("orders", 2)
    world.settle()
    runtime, path = world.inside.runtime, world.inside.core.fast_path
    assert path is not None
    shard = runtime.shard(world.inside.transactions.shard_key(ID))
    seen: Counter[str] = Counter()

    def taken(current: Transaction, shown: Identity, version: int) -> Ended | None:
        before = runtime.journal.position()
        shard.replay(TransactionChanged(current))
        try:
            found = path.commit(ID, shown, (), CallContext(client_txn_version=version))
            if found is not None:
                decision = shard.decide_end(
                    EndTxn(ID, shown, outcome=Outcome.COMMIT), path._turn, client_txn_version=version
                )
                assert found == decision.reply
                assert path._records[0].value in [record.value for record in decision.records]
            return found
        finally:
            path.take_back()
            runtime.journal.roll_back(before)

    @given(transactions(), st.none() | IDENTITIES, VERSIONS)
    @settings(max_examples=400)
    def compare(current: Transaction, other: Identity | None, version: int) -> None:
        shown = current.client_identity if other is None else other
        verdict = judged(current, shown, version)
        if taken(current, shown, version) is not None:
            assert verdict is EndVerdict.DECIDE
            seen[f"taken from version {version}"] += 1
        else:
            seen["declined, and refused"] += isinstance(verdict, ErrorCode)

    compare()
    assert seen["taken from version 1"] >= 10
    assert seen["taken from version 2"] >= 20
    assert seen["declined, and refused"] >= 20
