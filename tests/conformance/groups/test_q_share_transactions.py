"""Q. Share groups: acknowledgements in a transaction (spec groups 6.5)."""

from __future__ import annotations

import pytest

from coordinator_protocol.marker import Outcome
from tests.conformance.groups.cases import case
from tests.groups.share_partitions.pictures import picture
from tests.harness.group_world import group_world
from tests.harness.share_groups import ShareMember
from tests.harness.share_partitions import Shares
from txn_coordinator.config import TwoPhase

ACCEPT = 1
LOCK_MS = 30_000


@case(309)
@pytest.mark.parametrize("two_phase", list(TwoPhase))
@pytest.mark.parametrize(
    ("end", "after"),
    [(Outcome.COMMIT, "10:"), (Outcome.ABORT, "5: .1 .1 .1 .1 .1"), (None, "5: .1 .1 .1 .1 .1")],
    ids=["commit", "abort", "timeout"],
)
def test_records_acknowledged_in_a_transaction(end: Outcome | None, after: str, two_phase: TwoPhase) -> None:
    world = group_world(topics={"t": 1}, two_phase=two_phase)
    member, other = ShareMember(world, "m1"), ShareMember(world, "m2")
    for each in (member, other):
        each.joins("t")
    shares = Shares(world, group_id=member.group_id)
    shares.produce(5, 5)
    shares.resolve(5)
    assert shares.acquire("m1") == [*range(5, 10)]
    drawn = world.init("worker", timeout_ms=LOCK_MS + 10_000)
    world.settle()
    identity = drawn.result()
    asked = shares.acknowledging_in_transaction("worker", identity, member, (5, 9, [ACCEPT]))
    world.settle()
    asked.result()
    world.pass_time(LOCK_MS)
    assert shares.acquire("m2") == []
    if end is None:
        world.pass_time(10_001)
    else:
        world.end("worker", identity, end)
        world.settle()
    assert picture(shares.state) == after
    redelivered = shares.acquire("m2")
    assert redelivered == ([] if end is Outcome.COMMIT else [*range(5, 10)])
    assert picture(shares.state) == ("10:" if end is Outcome.COMMIT else "5: m22 m22 m22 m22 m22")
    world.check_replay()
    world.check_stored()
