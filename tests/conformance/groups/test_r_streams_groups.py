"""R. Streams groups."""

from __future__ import annotations

import random
from typing import Any

import pytest

from coordinator_api.v1 import group_pb2
from coordinator_protocol.errors import ErrorCode
from tests.conformance.groups.cases import case
from tests.harness.groups import OK, code
from tests.harness.streams_groups import (
    COUNTS,
    PLAIN,
    REBALANCE_TIMEOUT_MS,
    StreamsGroups,
    StreamsMember,
    Tasks,
    streams_groups,
    subtopology,
    tasks,
    topology,
)

_ACTIVE_ALONE = group_pb2.StreamsTasks(active=[group_pb2.StreamsTaskIds(subtopology_id="0", partitions=[1])])
_FIXED = group_pb2.StreamsInternalTopic(name="counts", partition_count=6)


@case(310)
@pytest.mark.parametrize(
    "fields",
    [
        {"member_id": ""},
        {"topology": None},
        {"rebalance_timeout_ms": None},
        {"owned_tasks": _ACTIVE_ALONE},
        {"owned_tasks": None},
        {"process_id": None},
        {"member_epoch": 1},
    ],
    ids=str,
)
def test_a_heartbeat_that_cannot_be_meant_is_refused(fields: dict[str, Any]) -> None:
    streams = streams_groups()
    request = streams.member().join_request(PLAIN)
    for name, value in fields.items():
        request.ClearField(name)  # type: ignore[arg-type]
        if isinstance(value, group_pb2.StreamsTasks):
            request.owned_tasks.CopyFrom(value)
        elif value is not None:
            setattr(request, name, value)
    assert code(streams.world.ask(request)) is ErrorCode.INVALID_REQUEST
    assert not streams.world.groups.has()


def test_a_changelog_topic_with_a_fixed_number_of_partitions_is_refused() -> None:
    streams = streams_groups()
    wanted = topology(group_pb2.StreamsSubtopology(subtopology_id="0", source_topics=["foo"]))
    wanted.subtopologies[0].state_changelog_topics.append(_FIXED)
    assert code(streams.member().joins(wanted)) is ErrorCode.STREAMS_INVALID_TOPOLOGY
    assert not streams.world.groups.has()


@case(311)
def test_a_new_group_waits_a_moment_for_more_members() -> None:
    streams = streams_groups()
    member = streams.member()
    assert member.joins().member_epoch == 1
    assert (member.active, member.statuses) == (frozenset(), ["ASSIGNMENT_DELAYED"])
    streams.world.pass_time(2_999)
    assert member.beats().member_epoch == 1
    assert (member.active, member.statuses) == (frozenset(), ["ASSIGNMENT_DELAYED"])
    streams.world.pass_time(1)
    assert member.beats().member_epoch == 2
    assert (member.active, member.statuses) == (tasks("0", *range(6)), [])


@case(313)
def test_co_partitioned_sources_must_have_equal_numbers_of_partitions() -> None:
    streams = streams_groups(topics={"three": 3, "four": 4})
    member = streams.member()
    member.joins(topology(subtopology("0", "three", "four", together=[((0, 1), ())])))
    assert member.statuses == ["INCORRECTLY_PARTITIONED_TOPICS", "ASSIGNMENT_DELAYED"]
    streams.starts()
    member.beats()
    assert (member.active, member.statuses) == (frozenset(), ["INCORRECTLY_PARTITIONED_TOPICS"])
    assert streams.state() == "NotReady"


@case(314)
def test_a_repartition_topic_has_as_many_partitions_as_what_comes_before_it() -> None:
    streams = streams_groups()
    member = streams.member()
    streams.runs(
        member,
        wanted=topology(subtopology("0", "foo", sinks=["between"]), subtopology("1", repartition={"between": 0})),
    )
    assert streams.world.inside.catalog.shape("between").partition_count == 6
    assert member.active == tasks("0", *range(6)) | tasks("1", *range(6))


def test_a_circle_into_which_nothing_comes_is_refused() -> None:
    streams = streams_groups()
    circle = subtopology("1", repartition={"round": 0}, sinks=["round"])
    assert code(streams.member().joins(topology(subtopology("0", "foo"), circle))) is ErrorCode.STREAMS_INVALID_TOPOLOGY


@case(315)
def test_an_older_topology_is_stale_and_another_one_is_refused() -> None:
    streams = streams_groups()
    first, stale, other = streams.members("first", "stale", "other")
    first.joins(PLAIN)
    older = topology(subtopology("0", "bar"), epoch=0)
    assert code(stale.joins(older)) is OK
    assert stale.statuses[0] == "STALE_TOPOLOGY"
    assert code(other.joins(topology(subtopology("0", "bar"), epoch=1))) is ErrorCode.INVALID_REQUEST
    assert streams.member_ids() == ["first", "stale"]
    streams.starts()
    streams.settles(first, stale)
    assert (len(first.active), len(stale.active)) == (6, 0), "and it runs nothing of a topology that it does not have"


@case(317)
def test_a_task_goes_to_its_next_owner_once_the_last_one_gave_it_up() -> None:
    streams = streams_groups(topics={"foo": 4})
    first, second = streams.members("first", "second")
    streams.runs(first)
    assert first.active == tasks("0", *range(4))
    second.joins()
    first.beats()
    given_up = tasks("0", *range(4)) - first.active
    assert len(given_up) == 2
    assert second.beats().member_epoch == first.epoch + 1
    assert second.active == frozenset(), "the first one has not said yet that it gave them up"
    first.gives_up()
    second.beats()
    assert second.active == given_up


def _never_twice(members: list[StreamsMember]) -> None:
    held: dict[tuple[str, str, int], str] = {}
    active: dict[tuple[str, int], str] = {}
    for member in members:
        for name, number in (*member.active, *member.standby, *member.warmup):
            assert held.setdefault((member.process_id, name, number), member.member_id) == member.member_id
        for task in member.active:
            assert active.setdefault(task, member.member_id) == member.member_id


@case(318)
@pytest.mark.parametrize("seed", range(8))
def test_a_process_never_has_a_task_twice(seed: int) -> None:
    streams, chance = streams_groups(), random.Random(seed)
    streams.alter(num_standby_replicas=1)
    members = [streams.member(f"m{each}", process_id=f"p{each % 3}") for each in range(6)]
    inside = list[StreamsMember]()
    for _step in range(60):
        member = chance.choice(members)
        if member not in inside:
            member.joins(COUNTS)
            inside.append(member)
        elif chance.random() < 0.15:
            member.leaves()
            inside.remove(member)
            member.active = member.standby = member.warmup = frozenset()
        elif chance.random() < 0.5:
            member.gives_up()
        else:
            # It has a new assignment and still has the old tasks.
            before = member.owned()
            member.beats(owned_tasks=before)
        streams.world.pass_time(chance.choice((0, 100, 1_000)))
        _never_twice(inside)
    streams.settles(*inside)
    _never_twice(inside)


def _spread(streams: StreamsGroups, processes: int) -> tuple[dict[str, Tasks], dict[str, Tasks]]:
    streams.alter(num_standby_replicas=1)
    wanted = topology(subtopology("0", "foo", changelogs=["counts"]), subtopology("1", "bar"))
    members = [streams.member(f"m{each}") for each in range(processes)]
    streams.runs(*members, wanted=wanted)
    return {each.member_id: each.active for each in members}, {each.member_id: each.standby for each in members}


@case(319)
def test_a_stateful_task_has_a_standby_in_another_process() -> None:
    streams = streams_groups()
    active, standby = _spread(streams, 3)
    assert frozenset().union(*active.values()) == tasks("0", *range(6)) | tasks("1", *range(3))
    copies = [task for held in standby.values() for task in held]
    assert sorted(copies) == sorted(tasks("0", *range(6))), "one of each stateful task, and none of a stateless one"
    assert all(active[each].isdisjoint(standby[each]) for each in active)


def test_one_process_alone_has_no_standby_and_no_error() -> None:
    streams = streams_groups()
    active, standby = _spread(streams, 1)
    assert (len(active["m0"]), standby["m0"], streams.state()) == (9, frozenset(), "Stable")


@case(321)
def test_a_stateful_task_moves_once_its_next_owner_has_caught_up() -> None:
    streams = streams_groups(consumer_assignment_interval_ms=0)
    reporting = {"task_offsets": group_pb2.StreamsTaskOffsets()}
    first, second = streams.members("first", "second", settings=reporting)
    streams.runs(first, wanted=COUNTS)
    second.joins(COUNTS)
    streams.settles(first, second)
    assert (len(first.active), second.active, len(second.warmup)) == (6, frozenset(), 2), "two warm up at a time"
    warm = min(second.warmup)
    second.reports(**{f"s_0_{warm[1]}": 10_001})
    streams.settles(first, second)
    assert (len(first.active), second.active) == (6, frozenset())
    second.reports(**{f"s_0_{warm[1]}": 10_000})
    assert warm in second.warmup, "the first one still has it"
    first.beats()
    assert warm not in first.active
    first.gives_up()
    second.beats()
    assert second.active == {warm}
    assert len(second.warmup) == 2, "the next one warms up"


@case(322)
def test_all_are_told_to_stop_until_the_group_is_empty() -> None:
    streams = streams_groups()
    first, second = streams.members("first", "second")
    streams.runs(first, second)
    first.beats(shutdown_application=True)
    second.beats()
    assert first.statuses == second.statuses == ["SHUTDOWN_APPLICATION"]
    first.leaves()
    second.beats()
    assert second.statuses == ["SHUTDOWN_APPLICATION"]
    second.leaves()
    second.joins()
    assert second.statuses == []


@case(323)
def test_a_member_that_does_not_give_up_its_tasks_in_time_is_removed() -> None:
    streams = streams_groups()
    slow, second = streams.members("slow", "second")
    streams.runs(slow)
    second.joins()
    kept = slow.owned()
    slow.beats(owned_tasks=kept)
    streams.world.pass_time(REBALANCE_TIMEOUT_MS - 1)
    slow.beats(owned_tasks=kept)
    assert streams.member_ids() == ["second", "slow"]
    streams.world.pass_time(1)
    assert streams.member_ids() == ["second"]
    assert code(slow.beats()) is ErrorCode.UNKNOWN_MEMBER_ID
    streams.settles(second)
    assert second.active == tasks("0", *range(6))
