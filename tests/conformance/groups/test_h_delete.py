"""H. Describe, List, Delete: DeleteGroups."""

from __future__ import annotations

from coordinator_protocol.errors import ErrorCode
from tests.conformance.groups.cases import case
from tests.groups.committed.room import COMMIT, OK, OffsetRoom


@case(125)
def test_a_deleted_group_leaves_nothing_that_a_marker_could_bring_back() -> None:
    room = OffsetRoom()
    member = room.classic()
    room.classic_group(member, plan={})
    room.commits({"foo-0": 1, "foo-1": 1, "foo-2": 1}, generation_id_or_member_epoch=1, member_id=member.member_id)
    producer = room.producer()
    producer.commits({"foo-2": 2})
    assert room.deletes_group() is ErrorCode.NON_EMPTY_GROUP
    member.leaves()
    assert room.deletes_group() is OK
    assert (room.offsets_state(), room.listed()) == ({}, {})
    producer.ends(COMMIT)
    room.restart()
    assert (room.offsets_state(), room.listed()) == ({}, {})
    assert room.deletes_group() is ErrorCode.GROUP_ID_NOT_FOUND
    assert room.deletes_group("") is ErrorCode.INVALID_GROUP_ID
