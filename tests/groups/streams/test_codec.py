"""Stored rows of a streams group: a restart reads everything back."""

from __future__ import annotations

from typing import Any

import pytest

from group_coordinator.streams import records
from group_coordinator.streams.codec import DECODERS, ENCODERS
from group_coordinator.streams.requests import TaskOffset
from group_coordinator.streams.state import (
    MemberState,
    Roles,
    StreamsAssignment,
    StreamsMember,
    TaskId,
    TopologyLook,
    UserEndpoint,
    Wishes,
)
from group_coordinator.streams.topology import Configured, CopartitionGroup, InternalTopic, Subtopology, Topology

TASKS = [TaskId("0", number) for number in range(6)]
ROLES = Roles(frozenset(TASKS[:2]), frozenset(TASKS[2:3]), frozenset(TASKS[3:4]))
MEMBER = StreamsMember(
    member_id="m",
    process_id="p",
    topology_epoch=3,
    instance_id="i",
    rack_id="east",
    client_id="c",
    client_host="host",
    rebalance_timeout_ms=30_000,
    user_endpoint=UserEndpoint("here", 8_080),
    client_tags={"zone": "a", "cluster": "b"},
    reports_offsets=True,
)
TOPOLOGY = Topology(
    3,
    (
        Subtopology(
            subtopology_id="0",
            source_topics=("foo", "bar"),
            repartition_sources=(InternalTopic("r", 4, {"retention_ms": "1"}),),
            repartition_sinks=("s",),
            changelogs=(InternalTopic("c"),),
            copartition_groups=(CopartitionGroup((0, 1), (0,)),),
        ),
    ),
)
ASSIGNMENT = StreamsAssignment(
    7, 5, MemberState.UNREVOKED, ROLES, Roles(frozenset(TASKS[4:5])), {TASKS[0]: 3, TASKS[1]: 7, TASKS[4]: 2}
)
KEPT: tuple[Any, ...] = (
    records.StreamsGroupEpochBumped("g", 7, 2**64 - 1, 3),
    records.StreamsTopologyChanged("g", TOPOLOGY),
    records.StreamsMemberChanged("g", MEMBER),
    records.StreamsMemberChanged("g", StreamsMember(member_id="plain", process_id="p", topology_epoch=0)),
    records.StreamsTargetEpochReached("g", 7, 1_000),
    records.StreamsTargetChanged("g", "m", ROLES),
    records.StreamsAssignmentChanged("g", "m", ASSIGNMENT),
)
FORGOTTEN: dict[Any, Any] = {
    records.StreamsGroupForgotten("g"): KEPT[0],
    records.StreamsTopologyForgotten("g"): KEPT[1],
    records.StreamsMemberForgotten("g", "m"): KEPT[2],
    records.StreamsTargetEpochForgotten("g"): KEPT[4],
    records.StreamsTargetForgotten("g", "m"): KEPT[5],
    records.StreamsAssignmentForgotten("g", "m"): KEPT[6],
}
IN_MEMORY: tuple[Any, ...] = (
    records.StreamsTopicsLooked("g", TopologyLook(1, Configured(), Wishes())),
    records.StreamsOffsetsReported("g", "m", (TaskOffset(TASKS[0], 1, 2),)),
    records.StreamsShutdownWanted("g", "m"),
    records.StreamsRebalanceNoted("g", 1),
    records.StreamsFirstTargetDelayed("g", 1),
)


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
    assert [ENCODERS[type(record)](record) for record in IN_MEMORY] == [None] * len(IN_MEMORY)
    assert {type(each) for each in (*KEPT, *FORGOTTEN, *IN_MEMORY)} == ENCODERS.keys()


def test_a_state_that_only_a_newer_server_knows_is_kept_as_unknown() -> None:
    row = ENCODERS[records.StreamsAssignmentChanged](
        records.StreamsAssignmentChanged("g", "m", StreamsAssignment(1, 1, MemberState.UNKNOWN))
    )
    assert row is not None
    assert row.value is not None
    assert DECODERS[row.record_type](row.key, row.value).assignment.state is MemberState.UNKNOWN
