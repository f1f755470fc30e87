"""The transactions that an offset waits for are listed in the order in which they wrote, before and after a restart."""

from __future__ import annotations

import pytest

from coordinator_protocol.errors import ErrorCode
from tests.harness.group_world import group_world
from tests.harness.world import World


def waiting(world: World) -> tuple[list[str], str]:
    """The transactional ids that foo-0 waits for, and what is said of them."""
    (offset,) = world.offsets.fetched("foo-0", stable=True).offsets
    assert offset.error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT
    return [each.transactional_id for each in offset.pending], offset.error_message


@pytest.mark.parametrize("again", ["restart", "crash"])
def test_transactions_are_told_in_the_order_in_which_they_wrote(again: str) -> None:
    world = group_world()
    first, second, third = (world.offsets.producer(name) for name in ("first", "second", "third"))
    # By producer id it would be another order, and by who came first to the group, or to the partition, a third one.
    third.commits({"bar-0": 1})
    second.commits({"foo-0": 1})
    third.commits({"foo-0": 2})
    first.commits({"foo-0": 3})
    second.commits({"foo-0": 4})
    told = waiting(world)
    assert told[0] == ["third", "first", "second"]
    getattr(world, again)()
    world.settle()
    assert waiting(world) == told
