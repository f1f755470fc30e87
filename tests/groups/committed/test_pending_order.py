"""The transactions that an offset waits for are told in the order in which they wrote, before and after a restart."""

from __future__ import annotations

import pytest

from coordinator_protocol.errors import ErrorCode
from tests.groups.committed.room import OffsetRoom


def waiting(room: OffsetRoom) -> tuple[list[str], str]:
    """The transactional ids that foo-0 waits for, and what is said of them."""
    (offset,) = room.fetched("foo-0", stable=True).offsets
    assert offset.error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT
    return [each.transactional_id for each in offset.pending], offset.error_message


@pytest.mark.parametrize("again", ["restart", "crash"])
def test_transactions_are_told_in_the_order_in_which_they_wrote(again: str) -> None:
    room = OffsetRoom()
    first, second, third = (room.producer(name) for name in ("first", "second", "third"))
    # By producer id it would be another order, and by who came first to the group, or to the partition, a third one.
    third.commits({"bar-0": 1})
    second.commits({"foo-0": 1})
    third.commits({"foo-0": 2})
    first.commits({"foo-0": 3})
    second.commits({"foo-0": 4})
    told = waiting(room)
    assert told[0] == ["third", "first", "second"]
    getattr(room, again)()
    room.settle()
    assert waiting(room) == told
