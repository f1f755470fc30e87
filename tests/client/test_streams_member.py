"""The member of a streams group: what it says, which tasks it has when, and what the listener is told. Without a clock,
on a fake server."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from coordinator_api.v1 import common_pb2 as common
from coordinator_api.v1 import group_pb2 as group
from coordinator_client import Abortable, Rejected, Retriable, TransactionError
from coordinator_client.streams import (
    StreamsClient,
    StreamsCopartitionGroup,
    StreamsEndpoint,
    StreamsInternalTopic,
    StreamsSubtopology,
    StreamsTopology,
    Task,
    Tasks,
)
from coordinator_client.streams.tasks import TaskRole
from coordinator_client.values import TopicPartition
from coordinator_protocol.errors import ErrorCode
from coordinator_protocol.methods import Method
from tests.client.fake_streams import COUNTS, INTERVAL_MS, LINES, AsyncTaskDiary, StreamsCluster, TaskDiary, task
from tests.client.world import Fault, Held

MISSING = group.STREAMS_STATUS_CODE_MISSING_SOURCE_TOPICS


@pytest.fixture
def cluster() -> StreamsCluster:
    return StreamsCluster()


def settle(cluster: StreamsCluster, member: StreamsClient) -> Tasks:
    """Poll until a poll has waited for nothing."""
    for _ in range(20):
        begun_ms = cluster.world.now_ms
        tasks = member.poll(timeout_ms=3 * INTERVAL_MS)
        if cluster.world.now_ms - begun_ms >= 3 * INTERVAL_MS:
            return tasks
    raise AssertionError("the tasks never come to rest")


def active(*partitions: int) -> frozenset[Task]:
    return frozenset(map(task, partitions))


def endpoint(host: str, *, active: Sequence[int], standby: Sequence[int] = ()) -> group.StreamsEndpointPartitions:
    return group.StreamsEndpointPartitions(
        user_endpoint=group.StreamsEndpoint(host=host, port=9),
        active_partitions=[common.TopicPartitions(topic="lines", partitions=active)],
        standby_partitions=[common.TopicPartitions(topic="lines", partitions=standby)],
    )


# Joining


def test_a_join_says_everything_and_the_tasks_come_with_the_first_poll(cluster: StreamsCluster) -> None:
    cluster.group.give(active=[0, 1], standby=[2])
    member = cluster.member(rack_id="r", client_tags={"zone": "a"}, user_endpoint=("here", 9), group_instance_id="i")
    assert member.poll() == Tasks(active(0, 1), active(2), frozenset())
    join = cluster.beats()[0]
    assert (join.member_epoch, join.rebalance_timeout_ms, join.rack_id, join.instance_id) == (0, 300_000, "r", "i")
    assert (join.topology, join.process_id) == (COUNTS.message(), join.member_id)
    assert join.HasField("owned_tasks")
    assert not join.owned_tasks.active
    assert (dict(join.client_tags.tags), join.user_endpoint.host, join.user_endpoint.port) == ({"zone": "a"}, "here", 9)
    assert not join.HasField("task_offsets")
    assert cluster.diary.told == [("assigned", [0, 1, 2])]
    settle(cluster, member)
    assert cluster.group.has == {task(0): TaskRole.ACTIVE, task(1): TaskRole.ACTIVE, task(2): TaskRole.STANDBY}


def test_a_member_with_nothing_new_waits_on_the_server(cluster: StreamsCluster) -> None:
    cluster.group.give(active=[0])
    member = cluster.member()
    settle(cluster, member)
    last = cluster.beats()[-1]
    assert last.max_wait_ms > 0
    named = {field.name for field, _value in last.ListFields()}
    assert not named & {"owned_tasks", "topology", "process_id"}


def test_members_of_one_process_have_its_name(cluster: StreamsCluster) -> None:
    cluster.member(process_id="p").poll()
    assert cluster.beats()[0].process_id == "p"


def test_a_topology_is_told_in_full() -> None:
    topology = StreamsTopology(
        [
            StreamsSubtopology(subtopology_id="0", source_topics=["a", "b"], repartition_sinks=["by-key"]),
            StreamsSubtopology(
                subtopology_id="1",
                source_topics=["c"],
                repartition_sources=[StreamsInternalTopic(name="by-key", config={"retention_ms": "-1"})],
                changelogs=[StreamsInternalTopic(name="counts")],
                copartition_groups=[StreamsCopartitionGroup(source_topics=["c"], repartition_source_topics=["by-key"])],
            ),
        ],
        epoch=3,
    )
    first, second = topology.message().subtopologies
    assert (topology.message().epoch, [*first.source_topics], [*first.repartition_sink_topics]) == (
        3,
        ["a", "b"],
        ["by-key"],
    )
    (together,) = second.copartition_groups
    assert ([*together.source_topics], [*together.repartition_source_topics]) == ([0], [0])
    assert dict(second.repartition_source_topics[0].config) == {"retention_ms": "-1"}
    assert second.state_changelog_topics[0].name == "counts"
    assert topology.tasks_reading(LINES) == frozenset()
    assert topology.sources_of(Task("1", 4)) == (("by-key", 4), ("c", 4))


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(lambda: StreamsTopology([]), id="no subtopology"),
        pytest.param(
            lambda: StreamsTopology([StreamsSubtopology(subtopology_id="0"), StreamsSubtopology(subtopology_id="0")]),
            id="twice",
        ),
        pytest.param(
            lambda: StreamsTopology([StreamsSubtopology(subtopology_id="0", source_topics=["a/b"])]), id="no such topic"
        ),
    ],
)
def test_a_topology_that_cannot_be_meant_is_refused_at_once(wrong: object) -> None:
    assert callable(wrong)
    with pytest.raises(Rejected):
        wrong()


# Changes of tasks


def test_a_revoked_task_stays_until_the_listener_returned_and_only_then_the_group_hears_of_it(
    cluster: StreamsCluster,
) -> None:
    cluster.group.give(active=[0, 1])
    seen: list[Tasks] = []

    class Listener(TaskDiary):
        def on_tasks_revoked(self, tasks: Tasks) -> None:
            super().on_tasks_revoked(tasks)
            seen.append(member.tasks())
            assert cluster.group.has.keys() == {task(0), task(1)}

    diary = Listener()
    member = cluster.member(listener=diary)
    settle(cluster, member)
    cluster.group.give(active=[0])
    cluster.world.pause(100)
    assert member.tasks().active == active(0, 1), "between two polls the tasks are the member's own"
    assert settle(cluster, member).active == active(0)
    assert diary.told == [("assigned", [0, 1]), ("revoked", [1])]
    assert seen == [Tasks(active(0, 1))]
    assert cluster.group.has.keys() == {task(0)}


def test_a_standby_becomes_active_without_being_given_up(cluster: StreamsCluster) -> None:
    cluster.group.give(active=[0], standby=[1])
    member = cluster.member()
    settle(cluster, member)
    cluster.group.give(active=[0, 1])
    assert settle(cluster, member) == Tasks(active(0, 1))
    assert cluster.diary.told == [("assigned", [0, 1]), ("assigned", [1])]


def test_an_active_task_that_becomes_a_standby_is_given_up_first(cluster: StreamsCluster) -> None:
    cluster.group.give(active=[0])
    member = cluster.member()
    settle(cluster, member)
    cluster.group.give(standby=[0])
    assert settle(cluster, member) == Tasks(frozenset(), active(0))
    assert cluster.diary.told == [("assigned", [0]), ("revoked", [0]), ("assigned", [0])]


def test_tasks_that_come_and_go_without_a_listener(cluster: StreamsCluster) -> None:
    cluster.group.give(active=[0, 1])
    member = cluster.member(listener=None)
    assert settle(cluster, member).active == active(0, 1)
    cluster.group.give(active=[1, 2])
    assert settle(cluster, member).active == active(1, 2)


def test_an_exception_of_the_listener_stops_nothing(cluster: StreamsCluster) -> None:
    cluster.group.give(active=[0])
    diary = TaskDiary(assigned=ValueError("no"))
    member = cluster.member(listener=diary)
    with pytest.raises(ValueError, match="no"):
        settle(cluster, member)
    assert settle(cluster, member).active == active(0)
    assert cluster.group.has.keys() == {task(0)}


def test_a_lost_membership_loses_the_tasks_and_the_member_joins_again(cluster: StreamsCluster) -> None:
    cluster.group.give(active=[0])
    member = cluster.member()
    settle(cluster, member)
    first = cluster.group.member_id
    cluster.group.remove()
    cluster.world.pause(2 * INTERVAL_MS)
    assert not member.tasks()
    assert settle(cluster, member).active == active(0)
    assert cluster.diary.told == [("assigned", [0]), ("lost", [0]), ("assigned", [0])]
    assert cluster.group.member_id == first


def test_lost_tasks_are_not_revoked_any_more(cluster: StreamsCluster) -> None:
    cluster.group.give(active=[0, 1])
    member = cluster.member()
    settle(cluster, member)
    cluster.group.give(active=[0])
    cluster.world.pause(100)
    cluster.group.remove()
    cluster.world.pause(2 * INTERVAL_MS)
    assert settle(cluster, member).active == active(0)
    assert cluster.diary.told == [("assigned", [0, 1]), ("lost", [0, 1]), ("assigned", [0])]


def test_after_a_lost_answer_everything_is_said_and_told_again(cluster: StreamsCluster) -> None:
    cluster.group.give(active=[0])
    member = cluster.member()
    settle(cluster, member)
    cluster.world.fault(Method.STREAMS_GROUP_HEARTBEAT, Fault.LOST_REPLY)
    cluster.group.give(active=[0, 1])
    assert settle(cluster, member).active == active(0, 1)
    full = [each for each in cluster.beats()[1:] if each.HasField("rebalance_timeout_ms")]
    assert full
    assert all(each.HasField("owned_tasks") and not each.HasField("topology") for each in full)


def test_a_member_that_is_not_polled_leaves_and_comes_back(cluster: StreamsCluster) -> None:
    cluster.group.give(active=[0])
    member = cluster.member(max_poll_interval_ms=20_000)
    settle(cluster, member)
    cluster.world.pause(30_000)
    assert not member.tasks()
    assert cluster.beats()[-1].member_epoch == -1
    assert settle(cluster, member).active == active(0)
    assert cluster.diary.told == [("assigned", [0]), ("lost", [0]), ("assigned", [0])]


def test_close_gives_up_the_tasks_and_leaves(cluster: StreamsCluster) -> None:
    cluster.group.give(active=[0])
    member = cluster.member()
    settle(cluster, member)
    member.close()
    assert cluster.diary.told == [("assigned", [0]), ("revoked", [0])]
    assert cluster.beats()[-1].member_epoch == -1
    with pytest.raises(Rejected, match="closed"):
        member.poll()


def test_a_static_member_leaves_for_a_moment(cluster: StreamsCluster) -> None:
    with cluster.member(group_instance_id="i") as member:
        member.poll()
    assert cluster.beats()[-1].member_epoch == -2


def test_a_refused_member_says_why(cluster: StreamsCluster) -> None:
    refused = group.StreamsGroupHeartbeatResponse(error_code=42, error_class=6, error_message="another topology")  # type: ignore[arg-type]
    cluster.world.answer(Method.STREAMS_GROUP_HEARTBEAT, refused)
    member = cluster.member()
    with pytest.raises(TransactionError, match="another topology"):
        member.poll()


# Statuses and reports


def test_statuses_end_a_poll(cluster: StreamsCluster) -> None:
    member = cluster.member()
    settle(cluster, member)
    cluster.group.say((MISSING, "there is no topic lines"))
    assert not member.poll(timeout_ms=60_000)
    assert member.statuses() == (("MISSING_SOURCE_TOPICS", "there is no topic lines"),)


def test_endpoints_are_told_once_and_again_when_they_change(cluster: StreamsCluster) -> None:
    cluster.group.give(active=[0, 1])
    here = endpoint("here", active=[0], standby=[1])
    cluster.group.place(here)
    member = cluster.member(user_endpoint=("here", 9))
    settle(cluster, member)
    lines = [TopicPartition("lines", number) for number in range(2)]
    assert member.endpoints() == (StreamsEndpoint("here", 9, frozenset(lines[:1]), frozenset(lines[1:])),)
    assert cluster.beats()[-1].endpoint_information_epoch == 1
    cluster.group.place(here, endpoint("there", active=[1]))
    settle(cluster, member)
    assert [(each.host, each.active) for each in member.endpoints()] == [
        ("here", {lines[0]}),
        ("there", {lines[1]}),
    ]


def test_a_member_that_knows_the_endpoints_hears_of_tasks_at_once(cluster: StreamsCluster) -> None:
    cluster.group.place(endpoint("here", active=[0]))
    member = cluster.member()
    settle(cluster, member)
    begun_ms = cluster.world.now_ms
    cluster.group.give(active=[0])
    assert member.poll(timeout_ms=3 * INTERVAL_MS).active == active(0)
    assert cluster.world.now_ms - begun_ms < 100


def test_a_member_that_joins_again_asks_for_the_endpoints_again(cluster: StreamsCluster) -> None:
    cluster.group.place(endpoint("here", active=[0]))
    member = cluster.member()
    settle(cluster, member)
    cluster.group.remove()
    settle(cluster, member)
    assert [each.endpoint_information_epoch for each in cluster.beats() if not each.member_epoch] == [0, 0]


def test_a_caught_up_warm_up_task_is_reported_at_once(cluster: StreamsCluster) -> None:
    cluster.group.give(active=[0], warmup=[1])
    member = cluster.member(reports_offsets=True)
    settle(cluster, member)
    assert cluster.beats()[0].HasField("task_offsets"), "from the join on"
    member.report_offsets({("0", 0): (50, 50), ("0", 1): (0, 100)})
    cluster.world.pause(100)
    assert not any(each.task_offsets.offsets for each in cluster.beats()), "it waits for the interval"
    member.report_offsets({("0", 0): (50, 50), ("0", 1): (95, 100)})
    cluster.world.pause(100)
    (report,) = (each.task_offsets for each in cluster.beats() if each.task_offsets.offsets)
    assert {each.partition: (each.offset, each.end_offset) for each in report.offsets} == {0: (50, 50), 1: (95, 100)}
    assert member.acceptable_recovery_lag == 10


def test_offsets_are_reported_by_members_that_said_so(cluster: StreamsCluster) -> None:
    with pytest.raises(Rejected, match="reports_offsets"):
        cluster.member().report_offsets({("0", 0): (1, 2)})


def test_an_application_is_stopped_by_one_member(cluster: StreamsCluster) -> None:
    member = cluster.member()
    settle(cluster, member)
    member.shut_down_application()
    cluster.world.pause(100)
    assert [each.shutdown_application for each in cluster.beats()].count(True) == 1


def test_a_stop_that_is_asked_for_during_a_heartbeat_comes_with_the_next(cluster: StreamsCluster) -> None:
    on_its_way = Held()
    cluster.world.answer(Method.STREAMS_GROUP_HEARTBEAT, on_its_way)
    member = cluster.member()
    member.poll(timeout_ms=100)
    (join,) = cluster.beats()
    member.shut_down_application()
    on_its_way.give(cluster.group.heartbeat(join))
    cluster.world.pause(100)
    assert [each.shutdown_application for each in cluster.beats()[:2]] == [False, True]


# Offsets


def test_a_member_looks_offsets_up_and_commits_for_its_active_tasks(cluster: StreamsCluster) -> None:
    cluster.group.offsets = {LINES: 7}
    cluster.group.give(active=[0], standby=[1])
    member = cluster.member()
    settle(cluster, member)
    found = member.committed([LINES, ("lines", 1)])
    assert (found[LINES], found["lines", 1]) == ((7, "", None), None)  # type: ignore[index]  # a plain pair
    offsets = member.transaction_offsets({LINES: 9})
    assert (offsets.metadata.member_id, offsets.metadata.generation) == (cluster.group.member_id, cluster.group.epoch)
    with pytest.raises(Abortable, match="lines-1"):
        member.transaction_offsets({("lines", 1): 9})


@pytest.mark.parametrize("code", [ErrorCode.UNSTABLE_OFFSET_COMMIT, ErrorCode.STALE_MEMBER_EPOCH])
def test_a_lookup_goes_on_until_the_group_answers(cluster: StreamsCluster, code: ErrorCode) -> None:
    cluster.group.offsets = {LINES: 7}
    member = cluster.member()
    settle(cluster, member)
    cluster.group.fetch_refusals = [code, code]
    found = member.committed([LINES])[LINES]
    assert found is not None
    assert found.offset == 7
    cluster.group.fetch_refusals = [code] * 100
    with pytest.raises(Retriable):
        member.committed([LINES], timeout_ms=1_000)


# Asyncio


def test_the_same_for_asyncio(cluster: StreamsCluster) -> None:
    diary = AsyncTaskDiary()

    async def live() -> None:
        async with cluster.async_member(diary) as member:
            cluster.group.give(active=[0])
            assert (await member.poll(timeout_ms=60_000)).active == active(0)
            cluster.group.offsets = {LINES: 3}
            assert (await member.committed([LINES]))[LINES] is not None
            cluster.group.give()
            while member.tasks():
                await member.poll(timeout_ms=60_000)

    cluster.world.run(live())
    assert diary.told == [("assigned", [0]), ("revoked", [0])]
    assert cluster.beats()[-1].member_epoch == -1
