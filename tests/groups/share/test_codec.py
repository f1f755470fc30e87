"""Stored rows of a share group: a restart reads everything back."""

from __future__ import annotations

from typing import Any

import pytest

from group_coordinator.share import records
from group_coordinator.share.codec import DECODERS, ENCODERS
from group_coordinator.share.state import ShareAssignment, ShareMember, TopicsLook

TOPIC_ID = b"\0" * 8 + b"topic-id"
MEMBER = ShareMember(member_id="m", rack_id="east", client_id="c", client_host="host", topics=frozenset({"foo", "bar"}))
KEPT: tuple[Any, ...] = (
    records.ShareGroupEpochBumped("g", 7, 2**64 - 1),
    records.ShareMemberChanged("g", MEMBER),
    records.ShareMemberChanged("g", ShareMember(member_id="plain")),
    records.ShareTargetEpochReached("g", 7, 1_000, "simple"),
    records.ShareTargetChanged("g", "m", {TOPIC_ID: (0, 3, 5)}),
    records.ShareTargetChanged("g", "m", {}),
    records.ShareAssignmentChanged("g", "m", ShareAssignment(7, 5, {TOPIC_ID: (1,)})),
    records.SharePartitionsInitialized("g", TOPIC_ID, frozenset({0, 2, 9})),
)
FORGOTTEN: dict[Any, Any] = {
    records.ShareGroupForgotten("g"): KEPT[0],
    records.ShareMemberForgotten("g", "m"): KEPT[1],
    records.ShareTargetEpochForgotten("g"): KEPT[3],
    records.ShareTargetForgotten("g", "m"): KEPT[4],
    records.ShareAssignmentForgotten("g", "m"): KEPT[6],
    records.SharePartitionsForgotten("g", TOPIC_ID): KEPT[7],
}


@pytest.mark.parametrize("record", KEPT, ids=lambda record: type(record).__name__)
def test_a_record_comes_back_as_it_was(record: Any) -> None:
    row = ENCODERS[type(record)](record)
    assert row is not None
    assert row.value is not None
    assert DECODERS[row.record_type](row.key, row.value) == record


@pytest.mark.parametrize("record", FORGOTTEN, ids=lambda record: type(record).__name__)
def test_a_tombstone_deletes_the_row_that_was_stored(record: Any) -> None:
    row, stored = ENCODERS[type(record)](record), ENCODERS[type(FORGOTTEN[record])](FORGOTTEN[record])
    assert row is not None
    assert stored is not None
    assert (row.record_type, row.key, row.value) == (stored.record_type, stored.key, None)


def test_what_lives_in_memory_is_not_stored() -> None:
    record = records.ShareTopicsLooked("g", TopicsLook(1, 2))
    assert ENCODERS[type(record)](record) is None
    assert {type(each) for each in (*KEPT, *FORGOTTEN, record)} == ENCODERS.keys()
