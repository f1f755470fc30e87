"""Members of streams groups: epochs, static members, endpoints, commits, waits, sessions, restarts."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator_api.v1 import group_pb2
from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_runtime.features import STREAMS_GROUPS
from group_coordinator.events import RebalanceCompleted
from group_coordinator.members import MemberState
from group_coordinator.streams.rules import check_epoch, is_repetition
from group_coordinator.streams.state import Roles, StreamsAssignment, TaskId
from tests.harness.groups import OK, code
from tests.harness.streams_groups import (
    COUNTS,
    DELAY_MS,
    PLAIN,
    REBALANCE_TIMEOUT_MS,
    streams_groups,
    subtopology,
    tasks,
    topology,
)

SESSION_MS = 45_000
HAD = Roles(frozenset({TaskId("0", 1)}))
MORE = Roles(frozenset({TaskId("0", 1), TaskId("0", 2)}))
FENCED = ErrorCode.FENCED_MEMBER_EPOCH
EPOCHS = {
    # (stored, previous, received), what it says that it has: what the check says, and whether it is a repetition
    ((5, 3, 5), None): (OK, False),
    ((5, 3, 3), HAD): (OK, True),
    ((5, 3, 3), Roles()): (OK, True),
    ((5, 3, 3), None): (FENCED, True),
    ((5, 3, 3), MORE): (FENCED, True),
    ((5, 3, 0), None): (OK, False),
    ((5, 3, 4), HAD): (FENCED, True),
    ((5, 3, 6), None): (FENCED, True),
    ((-2, 5, 5), HAD): (FENCED, True),
}


@pytest.mark.parametrize("number", range(len(EPOCHS)))
def test_epochs(number: int) -> None:
    ((stored, previous, received), owned), expected = list(EPOCHS.items())[number]
    current = StreamsAssignment(stored, previous, MemberState.STABLE, HAD)
    found = OK
    try:
        check_epoch(current, received, owned)
    except Refused as refusal:
        found = refusal.code
    assert (found, is_repetition(current, received)) == expected


def test_the_first_join_begins_the_feature_of_the_store_and_a_refused_one_does_not() -> None:
    streams = streams_groups()
    features = streams.world.inside.core.groups.streams._features
    assert code(streams.member().beats(5)) is ErrorCode.GROUP_ID_NOT_FOUND
    assert code(streams.member().joins(topology(subtopology("0")))) is ErrorCode.STREAMS_INVALID_TOPOLOGY
    assert not features.has(STREAMS_GROUPS)
    assert code(streams.member().joins()) is OK
    assert features.has(STREAMS_GROUPS)


def test_a_heartbeat_with_nothing_new_writes_nothing() -> None:
    streams = streams_groups()
    member = streams.member()
    streams.runs(member)
    before = streams.world.inside.runtime.groups.durable_version
    assert not member.beats().HasField("assignment")
    assert not member.gives_up().HasField("assignment")
    assert streams.world.inside.runtime.groups.durable_version == before


def test_a_member_that_missed_an_answer_hears_it_again() -> None:
    streams = streams_groups()
    first, second = streams.members("first", "second")
    streams.runs(first, second)
    known, owned = first.epoch, first.owned()
    second.leaves()
    streams.world.settle()
    assert streams.world.ask(first.request(known, owned_tasks=owned)).member_epoch == known + 1, "and it is lost"
    again = first.beats(known, owned_tasks=owned)
    assert (again.member_epoch, first.active) == (known + 1, tasks("0", *range(6)))


def test_a_member_that_missed_tasks_of_its_epoch_hears_them_if_it_says_everything() -> None:
    streams = streams_groups()
    first, second = streams.members("first", "second")
    streams.runs(first)
    second.joins()
    first.beats()
    before = second.beats().member_epoch
    first.gives_up()
    missed = streams.world.ask(second.request())
    assert (missed.member_epoch, len(missed.assignment.active)) == (before, 1), "and it is lost"
    assert not second.beats(owned_tasks=second.owned()).HasField("assignment")
    second.beats(owned_tasks=second.owned(), rebalance_timeout_ms=REBALANCE_TIMEOUT_MS)
    assert len(second.active) == 3


def test_members_of_a_group_of_another_kind_are_not_joined_and_an_empty_one_is_replaced() -> None:
    streams = streams_groups()
    consumer = streams.world.consumers.member()
    consumer.joins("foo")
    assert code(streams.member().joins()) is ErrorCode.GROUP_ID_NOT_FOUND
    consumer.beats(-1)
    assert code(streams.member().joins()) is OK
    assert streams.world.groups.listed() == {"g": ("streams", "Assigning", "streams")}
    assert code(consumer.joins("foo")) is ErrorCode.GROUP_ID_NOT_FOUND


def test_a_full_group_takes_no_other_member() -> None:
    streams = streams_groups(streams_size_max=1)
    streams.member("first").joins()
    assert code(streams.member("second").joins()) is ErrorCode.GROUP_MAX_SIZE_REACHED


def test_a_silent_member_loses_its_tasks_to_its_standby() -> None:
    streams = streams_groups(consumer_assignment_interval_ms=0)
    streams.alter(num_standby_replicas=1)
    first, second = streams.members("first", "second")
    streams.runs(first, second, wanted=COUNTS)
    lost = first.active
    assert lost == second.standby
    streams.world.pass_time(SESSION_MS // 2)
    second.gives_up()
    streams.world.pass_time(SESSION_MS // 2 - 1)
    waiting = second.waits()
    assert (waiting.is_settled, streams.member_ids()) == (False, ["first", "second"])
    streams.world.pass_time(20)
    assert (waiting.is_settled, streams.member_ids()) == (True, ["second"])
    assert second.active == tasks("0", *range(6)), "it hears of it at once, and needs no step between"


def test_a_member_that_keeps_its_tasks_is_removed_after_a_restart_too() -> None:
    streams = streams_groups(consumer_assignment_interval_ms=0)
    first, second = streams.members("first", "second")
    streams.runs(first)
    second.joins()
    first.beats()
    streams.world.crash()
    for _ in range(3):
        streams.world.pass_time(REBALANCE_TIMEOUT_MS // 3)
        first.beats()
        second.beats()
    assert streams.member_ids() == ["second"]


def test_a_rebalance_lasts_from_its_first_change_until_every_member_has_its_tasks() -> None:
    events: list[Any] = []

    def listen(core: Any) -> None:
        core.runtime.on_event = lambda event, _turn: events.append(event)

    streams = streams_groups(on_assembled=listen, consumer_assignment_interval_ms=0)
    first, second, third = streams.members("first", "second", "third")
    streams.runs(first)
    events.clear()
    second.joins()
    streams.world.pass_time(1_000)
    third.joins()
    streams.world.pass_time(1_000)
    streams.settles(first, second, third)
    assert [each.elapsed_ms for each in events if isinstance(each, RebalanceCompleted)] == [2_000]


def test_a_static_member_keeps_its_tasks_while_it_is_away() -> None:
    streams = streams_groups()
    first = streams.member("first", settings={"instance_id": "i1"})
    other = streams.member("other")
    streams.runs(first, other)
    kept = first.active
    intruder = streams.member("second life", settings={"instance_id": "i1"})
    assert code(intruder.joins()) is ErrorCode.UNRELEASED_INSTANCE_ID
    assert first.beats(-2, instance_id="i1").member_epoch == -2
    other.gives_up()
    assert len(other.active) == 3
    assert code(intruder.joins()) is OK
    streams.settles(intruder, other)
    assert (intruder.active, streams.member_ids()) == (kept, ["other", "second life"])
    assert code(first.beats(3, instance_id="i1")) is ErrorCode.FENCED_INSTANCE_ID


def test_a_static_member_of_the_same_process_has_its_tasks_at_once() -> None:
    streams = streams_groups()
    first = streams.member("first", process_id="p1", settings={"instance_id": "i1"})
    other = streams.member("other")
    streams.runs(first, other)
    kept = first.active
    first.beats(-2, instance_id="i1")
    again = streams.member("second life", process_id="p1", settings={"instance_id": "i1"})
    assert code(again.joins()) is OK
    assert again.active == kept


def test_who_is_away_for_too_long_is_gone() -> None:
    streams = streams_groups()
    first = streams.member("first", settings={"instance_id": "i1"})
    streams.runs(first)
    first.beats(-2, instance_id="i1")
    streams.world.pass_time(SESSION_MS)
    assert streams.state() == "Empty"
    assert streams.world.groups.timers() == {}


def test_a_member_that_joins_again_in_another_process_begins_without_tasks() -> None:
    streams = streams_groups()
    streams.alter(num_standby_replicas=1)
    first = streams.member("first", process_id="p1")
    second = streams.member("second", process_id="p2")
    streams.runs(first, second, wanted=COUNTS)
    second.process_id = "p1"
    second.joins(COUNTS)
    streams.settles(first, second)
    assert (first.standby, second.standby) == (frozenset(), frozenset()), "there is one process now"
    assert first.active | second.active == tasks("0", *range(6))


def test_every_member_learns_where_the_partitions_are() -> None:
    streams = streams_groups()
    streams.alter(num_standby_replicas=1)
    first = streams.member("first", settings={"user_endpoint": group_pb2.StreamsEndpoint(host="here", port=80)})
    second = streams.member("second")
    streams.runs(first, second, wanted=COUNTS)
    answer = second.beats()
    (here,) = answer.endpoint_information.endpoints
    assert (here.user_endpoint.host, here.user_endpoint.port) == ("here", 80)
    for told, held in ((here.active_partitions, first.active), (here.standby_partitions, first.standby)):
        ((topic, numbers),) = ((each.topic, each.partitions) for each in told)
        assert (topic, sorted(numbers)) == ("foo", sorted(number for _name, number in held))
    again = second.beats(endpoint_information_epoch=answer.endpoint_information_epoch)
    assert not again.HasField("endpoint_information")
    first.leaves()
    gone = second.beats(endpoint_information_epoch=answer.endpoint_information_epoch)
    assert (gone.HasField("endpoint_information"), list(gone.endpoint_information.endpoints)) == (True, [])


def test_an_older_epoch_commits_for_tasks_that_the_member_still_has() -> None:
    streams = streams_groups()
    first, second, third = streams.members("first", "second", "third")
    streams.runs(first, second)
    before = first.epoch
    third.joins()
    streams.settles(first, second, third)
    kept = sorted(number for _name, number in first.active)
    assert (first.epoch > before, len(kept)) == (True, 2)
    wire = [
        group_pb2.TopicOffsets(
            topic="foo", partitions=[group_pb2.PartitionOffset(partition=number, committed_offset=1)]
        )
        for number in (kept[0], next(number for _name, number in third.active))
    ]
    for topic, epoch, expected in (
        (wire[0], first.epoch, OK),
        (wire[0], before, OK),
        (wire[1], before, ErrorCode.STALE_MEMBER_EPOCH),
        (wire[0], first.epoch + 1, ErrorCode.STALE_MEMBER_EPOCH),
    ):
        request = group_pb2.OffsetCommitRequest(
            group_id="g", member_id="first", generation_id_or_member_epoch=epoch, topics=[topic]
        )
        answer = streams.world.ask(request)
        assert {code(answer), *map(code, answer.results)} - {OK} == {expected} - {OK}, (epoch, answer)


def test_an_owned_task_that_does_not_exist_is_refused() -> None:
    streams = streams_groups()
    member = streams.member()
    streams.runs(member)
    for name, number in (("1", 0), ("0", 6), ("0", -1)):
        owned = group_pb2.StreamsTasks(active=[group_pb2.StreamsTaskIds(subtopology_id=name, partitions=[number])])
        assert code(member.beats(owned_tasks=owned)) is ErrorCode.INVALID_REQUEST


BAD: dict[str, dict[str, Any]] = {
    "an epoch below -2": {"member_epoch": -3},
    "away without an instance": {"member_epoch": -2},
    "a blank instance": {"instance_id": " "},
    "a blank rack": {"rack_id": ""},
    "a negative timeout": {"rebalance_timeout_ms": -1},
    "an endpoint without a port": {"user_endpoint": group_pb2.StreamsEndpoint(host="here")},
    "an endpoint without a host": {"user_endpoint": group_pb2.StreamsEndpoint(port=80)},
    "a tag with NUL": {"client_tags": group_pb2.StreamsClientTags(tags={"zone": "\0"})},
    "a process after the join": {"process_id": "p"},
    "a topology after the join": {"topology": PLAIN},
    "a negative offset": {
        "task_offsets": group_pb2.StreamsTaskOffsets(
            offsets=[group_pb2.StreamsTaskOffset(subtopology_id="0", offset=-1)]
        )
    },
}


@pytest.mark.parametrize("name", BAD)
def test_a_heartbeat_that_cannot_be_meant_changes_nothing(name: str) -> None:
    streams = streams_groups()
    member = streams.member()
    streams.runs(member)
    before = streams.world.inside.runtime.groups.durable_version
    fields = dict(BAD[name])
    assert code(member.beats(fields.pop("member_epoch", None), **fields)) is ErrorCode.INVALID_REQUEST
    assert streams.world.inside.runtime.groups.durable_version == before


def test_another_topology_is_taken_up_once_all_members_left() -> None:
    streams = streams_groups()
    first, second = streams.members("first", "second")
    streams.runs(first)
    newer = topology(subtopology("0", "bar"), epoch=2)
    assert code(second.joins(newer)) is ErrorCode.INVALID_REQUEST
    first.leaves()
    assert code(second.joins(newer)) is OK
    streams.settles(second)
    assert (second.active, streams.describe().topology.epoch) == (tasks("0", *range(3)), 2)


def test_tasks_come_and_go_with_their_topics() -> None:
    streams = streams_groups(topics={})
    member = streams.member()
    member.joins()
    assert member.statuses == ["MISSING_SOURCE_TOPICS", "ASSIGNMENT_DELAYED"]
    streams.starts()
    assert streams.state() == "NotReady"
    waiting = member.waits()
    streams.world.settle()
    assert code(waiting.result()) is OK, "a status is answered at once"
    assert member.statuses == ["MISSING_SOURCE_TOPICS"]
    streams.world.create_topic("foo", 2)
    streams.settles(member)
    assert (member.active, streams.state()) == (tasks("0", 0, 1), "Stable")
    streams.world.add_partitions("foo", 3)
    streams.settles(member)
    assert member.active == tasks("0", 0, 1, 2)
    streams.world.delete_topic("foo")
    streams.world.settle()
    streams.settles(member)
    assert (member.active, member.statuses) == (frozenset(), ["MISSING_SOURCE_TOPICS"])


def test_settings_of_a_group_hold_from_the_next_heartbeat() -> None:
    streams = streams_groups()
    first, second = streams.members("first", "second")
    streams.runs(first, second, wanted=COUNTS)
    assert first.standby == frozenset()
    changed = streams.alter(num_standby_replicas=1, heartbeat_interval_ms=7_000, acceptable_recovery_lag=5)
    assert changed is OK
    answer = first.beats()
    assert (answer.heartbeat_interval_ms, answer.acceptable_recovery_lag) == (7_000, 5)
    streams.settles(first, second)
    assert (first.standby, second.standby) == (second.active, first.active)


@pytest.mark.parametrize(
    "setting",
    [
        {"num_standby_replicas": 3},
        {"num_warmup_replicas": 21},
        {"session_timeout_ms": 44_999},
        {"heartbeat_interval_ms": 15_001},
        {"initial_rebalance_delay_ms": -1},
        {"acceptable_recovery_lag": -1},
        {"task_offset_interval_ms": 14_999},
    ],
    ids=str,
)
def test_a_setting_out_of_bounds_is_refused(setting: dict[str, int]) -> None:
    assert streams_groups().alter(**setting) is ErrorCode.INVALID_CONFIG


def test_everything_is_there_after_a_restart_and_the_members_go_on() -> None:
    streams = streams_groups()
    streams.alter(num_standby_replicas=1)
    first, second = streams.members("first", "second")
    streams.runs(first, second, wanted=COUNTS)
    before = (first.active, first.standby, streams.epoch())
    streams.world.restart()
    streams.settles(first, second)
    assert (first.active, first.standby, streams.epoch()) == before
    assert streams.world.groups.timers() == {"session": 2}
    streams.world.check_replay()


def test_a_restart_ends_the_delay_of_the_first_target() -> None:
    streams = streams_groups()
    member = streams.member()
    member.joins()
    streams.world.restart()
    streams.world.pass_time(DELAY_MS // 2)
    member.beats()
    assert member.active == tasks("0", *range(6))


def test_a_group_is_described_and_deleted_once_it_is_empty() -> None:
    streams = streams_groups()
    member = streams.member(
        settings={"client_tags": group_pb2.StreamsClientTags(tags={"zone": "a"}), "rack_id": "east"}
    )
    streams.runs(member, wanted=COUNTS)
    member.reports(s_0_1=7)
    described = streams.describe()
    assert (described.group_state, described.topology) == ("Stable", COUNTS)
    (shown,) = described.members
    assert (shown.member_epoch, shown.process_id, shown.rack_id) == (member.epoch, "process of m", "east")
    assert dict(shown.client_tags) == {"zone": "a"}
    assert shown.assignment == shown.target_assignment == member.owned()
    assert [(each.partition, each.end_offset - each.offset) for each in shown.task_offsets] == [(1, 7)]
    assert code(streams.describe("nothing")) is ErrorCode.GROUP_ID_NOT_FOUND
    assert streams.world.groups.delete() is ErrorCode.NON_EMPTY_GROUP
    member.leaves()
    assert streams.world.groups.delete() is OK
    assert code(streams.describe()) is ErrorCode.GROUP_ID_NOT_FOUND
