"""H. Describe, List, Delete: DeleteGroups."""

from __future__ import annotations

from coordinator_protocol.errors import ErrorCode
from tests.conformance.groups.cases import case
from tests.harness.committed_offsets import COMMIT
from tests.harness.group_world import group_world
from tests.harness.groups import OK


@case(125)
def test_a_deleted_group_leaves_nothing_that_a_marker_could_bring_back() -> None:
    world = group_world()
    member = world.classic.subscriber()
    world.classic.form(member, plan={})
    world.offsets.commits(
        {"foo-0": 1, "foo-1": 1, "foo-2": 1}, generation_id_or_member_epoch=1, member_id=member.member_id
    )
    producer = world.offsets.producer()
    producer.commits({"foo-2": 2})
    assert world.groups.delete() is ErrorCode.NON_EMPTY_GROUP
    member.leaves()
    assert world.groups.delete() is OK
    assert (world.offsets.state(), world.groups.listed()) == ({}, {})
    producer.ends(COMMIT)
    world.restart()
    assert (world.offsets.state(), world.groups.listed()) == ({}, {})
    assert world.groups.delete() is ErrorCode.GROUP_ID_NOT_FOUND
    assert world.groups.delete("") is ErrorCode.INVALID_GROUP_ID
