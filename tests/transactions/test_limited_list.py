"""Lists of transactional ids with a limit: the longest open first, in portions, in several turns of the loop."""

from __future__ import annotations

import pytest

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_runtime.pending import Pending
from tests.harness.group_calls import ANYBODY
from tests.harness.world import World
from tests.transactions.administered import COMMIT, Administered
from txn_coordinator import reading
from txn_coordinator.requests import Listing, TransactionFilter


def asked(world: World, limit: int, skip: int = 0, **wanted: object) -> Pending[Listing]:
    chosen = TransactionFilter(limit=limit, skip=skip, **wanted)  # type: ignore[arg-type]
    return world.inside.core.transactions.reader.list_limited(chosen, ANYBODY)


def listed(world: World, limit: int, skip: int = 0, **wanted: object) -> tuple[list[str], int]:
    reply = asked(world, limit, skip, **wanted)
    for _step in range(100):
        if reply.is_settled:
            break
        world.tick(1)
    listing = reply.result()
    return [each.transactional_id for each in listing.transactions], listing.matching


def some_ids() -> Administered:
    world = Administered()
    for name in ("old", "young-b", "young-a"):
        world.opened(name, "t-0")
        world.tick(500)
    ended = world.opened("ended", "t-0")
    world.end("ended", ended, COMMIT)
    world.settle()
    return world


def test_the_longest_open_transaction_is_first_and_ended_ones_are_last() -> None:
    world = some_ids()
    everything = ["old", "young-b", "young-a", "ended"]
    assert listed(world, 10) == (everything, 4)
    assert listed(world, 2, skip=1) == (everything[1:3], 4)
    assert listed(world, 2, states=["Ongoing"], id_pattern="young-.*") == (["young-b", "young-a"], 2)
    assert listed(world, 2, skip=9) == ([], 4)


def test_many_ids_take_several_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "IDS_PER_STEP", 2)
    world = some_ids()
    reply = asked(world, 10)
    assert not reply.is_settled
    assert listed(world, 1)[1] == 4


@pytest.mark.parametrize(("limit", "skip"), [(0, 1), (1_001, 0), (-1, 0), (1, -1), (1, 100_001)])
def test_a_limit_out_of_its_range_is_refused(limit: int, skip: int) -> None:
    with pytest.raises(Refused) as refusal:
        asked(World(), limit, skip)
    assert refusal.value.code is ErrorCode.INVALID_REQUEST
