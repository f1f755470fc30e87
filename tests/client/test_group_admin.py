"""Administration of groups: the SDK's calls, answered by the real coordinator and log."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator_api.v1 import group_pb2 as group
from coordinator_api.v1 import log_pb2 as log
from coordinator_client import (
    Admin,
    GroupOffset,
    MemberTasks,
    Misconfigured,
    OffsetAndMetadata,
    OffsetReset,
    OutcomeUnknown,
    PendingOffset,
    PlannedOffset,
    RecordCount,
    Rejected,
    ResetTo,
    TopicPartition,
)
from coordinator_protocol.errors import ErrorClass, ErrorCode
from coordinator_protocol.methods import Method
from tests.client.fake_server import refuse
from tests.client.group_server import ABORT, COMMIT, AdministeredServer, offsets, place
from tests.client.world import Fault, World
from tests.harness.consumers import all_of, of
from tests.harness.share_consumers import ACCEPT, REJECT, alter_shares, share_consumer
from tests.harness.share_groups import ShareMember
from tests.harness.share_partitions import Shares
from tests.harness.streams_groups import COUNTS, StreamsGroups

GROUP = "g"
FOO_0, FOO_1 = place("foo-0"), place("foo-1")


@pytest.fixture
def server() -> AdministeredServer:
    return AdministeredServer()


@pytest.fixture
def admin(server: AdministeredServer) -> Admin:
    return Admin(server.connection())


@pytest.fixture
def far(world: World) -> Admin:
    """An administrator whose answers may get lost."""
    return Admin(world.connection(), deadline_ms=1_000)


# Listing and describing


def test_groups_are_listed_by_state_and_type(server: AdministeredServer, admin: Admin) -> None:
    server.world.consumers.stable(server.world.consumers.member(group_id="new"))
    server.world.classic.form(server.world.classic.subscriber(group_id="old"), plan={0: of("foo", 0)})
    server.world.offsets.commits({"foo-0": 5}, group_id="simple")
    listed = {each.group_id: (each.group_type, each.state, each.protocol_type) for each in admin.list_groups()}
    assert listed == {
        "new": ("consumer", "Stable", "consumer"),
        "old": ("classic", "Stable", "consumer"),
        "simple": ("classic", "Empty", ""),
    }
    assert [each.group_id for each in admin.list_groups(states=["empty"])] == ["simple"]
    assert [each.group_id for each in admin.list_groups(types=["consumer"])] == ["new"]
    assert admin.list_groups(states=["nonsense"]) == []


def test_a_share_group_is_listed_described_and_deleted(server: AdministeredServer, admin: Admin) -> None:
    member = ShareMember(server.world, "a")
    member.joins("foo", rack_id="east")
    (listed,) = admin.list_groups(types=["share"])
    assert (listed.group_id, listed.group_type, listed.state, listed.protocol_type) == (
        GROUP,
        "share",
        "Stable",
        "share",
    )
    found = admin.describe_group(GROUP)
    assert (found.group_type, found.state, found.assignor, found.leader) == ("share", "Stable", "simple", "")
    assert found.epoch == found.assignment_epoch == 1
    (shown,) = found.members
    assert (shown.member_id, shown.rack_id, shown.epoch) == ("a", "east", 1)
    assert (shown.subscribed_topic_names, shown.target_assignment) == (("foo",), None)
    with pytest.raises(Rejected) as caught:
        admin.delete_group(GROUP)
    assert caught.value.code == ErrorCode.NON_EMPTY_GROUP
    member.leaves()
    admin.delete_group(GROUP)
    assert admin.list_groups() == []


def test_a_streams_group_is_listed_described_and_deleted(server: AdministeredServer, admin: Admin) -> None:
    streams = StreamsGroups(server.world)
    member = streams.member("a", settings={"rack_id": "east"})
    streams.runs(member, wanted=COUNTS)
    member.reports(s_0_2=9)
    (listed,) = admin.list_groups(types=["streams"])
    assert (listed.group_id, listed.state, listed.protocol_type) == (GROUP, "Stable", "streams")
    found = admin.describe_group(GROUP)
    assert (found.group_type, found.state, found.assignor, found.leader) == ("streams", "Stable", "sticky", "")
    assert found.epoch == found.assignment_epoch == member.epoch
    (shown,) = found.members
    assert (shown.member_id, shown.rack_id, shown.epoch) == ("a", "east", member.epoch)
    assert (shown.subscribed_topic_names, frozenset(shown.assignment)) == (("foo",), all_of(foo=6))
    assert shown.tasks == MemberTasks(
        process_id="process of a",
        active=tuple(("0", number) for number in range(6)),
        standby=(),
        warmup=(),
        lags={("0", 2): 9},
    )
    with pytest.raises(Rejected) as caught:
        admin.delete_group(GROUP)
    assert caught.value.code == ErrorCode.NON_EMPTY_GROUP
    admin.remove_members(GROUP, ["a"])
    admin.delete_group(GROUP)
    assert admin.list_groups() == []


def test_a_server_without_share_groups_says_that_there_is_no_group(far: Admin, world: World) -> None:
    consumer, classic = group.ConsumerGroupDescribeResponse(), group.DescribeGroupsResponse()
    refuse(consumer.groups.add(group_id=GROUP), Method.CONSUMER_GROUP_DESCRIBE, ErrorCode.GROUP_ID_NOT_FOUND)
    refuse(classic.groups.add(group_id=GROUP), Method.DESCRIBE_GROUPS, ErrorCode.GROUP_ID_NOT_FOUND)
    world.answer(Method.CONSUMER_GROUP_DESCRIBE, consumer)
    world.answer(Method.DESCRIBE_GROUPS, classic)
    unknown = refuse(group.ShareGroupDescribeResponse(), Method.SHARE_GROUP_DESCRIBE, ErrorCode.UNSUPPORTED_VERSION)
    world.answer(Method.SHARE_GROUP_DESCRIBE, unknown)
    with pytest.raises(Rejected) as caught:
        far.describe_group(GROUP)
    assert caught.value.code == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_consumer_group_is_described(server: AdministeredServer, admin: Admin) -> None:
    server.world.consumers.stable(server.world.consumers.member("a", "static"), server.world.consumers.member("b"))
    found = admin.describe_group(GROUP)
    assert (found.group_type, found.state, found.assignor, found.leader) == ("consumer", "Stable", "uniform", "")
    assert found.epoch == found.assignment_epoch
    first, second = found.members
    assert (first.member_id, first.instance_id, first.is_classic) == ("a", "static", False)
    assert first.subscribed_topic_names == ("bar", "foo")
    assert {*first.assignment, *second.assignment} == all_of(foo=6, bar=3)
    assert first.target_assignment == first.assignment


def test_a_classic_group_is_described(server: AdministeredServer, admin: Admin) -> None:
    member = server.world.classic.subscriber("static")
    server.world.classic.form(member, plan={0: of("foo", 2, 0)})
    found = admin.describe_group(GROUP)
    assert (found.group_type, found.state, found.assignor, found.epoch) == ("classic", "Stable", "range", 1)
    assert (found.assignment_epoch, found.leader) == (None, member.member_id)
    (described,) = found.members
    assert (described.instance_id, described.epoch, described.target_assignment) == ("static", None, None)
    assert described.subscribed_topic_names == ("bar", "foo")
    assert {*described.assignment} == of("foo", 0, 2)


def test_a_member_that_writes_something_else_is_shown_without_its_partitions(
    server: AdministeredServer, admin: Admin
) -> None:
    member = server.world.classic.subscriber(protocols=[("mine", b"\xff")])
    server.world.classic.completing(member)
    server.world.classic.assign([member], {0: b"\xff"})
    (described,) = admin.describe_group(GROUP).members
    assert (described.subscribed_topic_names, described.assignment) == ((), ())


def test_members_that_are_no_consumers_are_shown_without_partitions(server: AdministeredServer, admin: Admin) -> None:
    member = server.world.classic.subscriber(protocol_type="connect")
    server.world.classic.completing(member)
    server.world.classic.assign([member])
    found = admin.describe_group(GROUP)
    assert (found.protocol_type, found.members[0].assignment) == ("connect", ())


def test_a_group_that_is_not_there_is_refused(admin: Admin) -> None:
    for call in (admin.describe_group, admin.delete_group):
        with pytest.raises(Rejected) as caught:
            call("nobody")
        assert caught.value.code == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_group_without_a_name_is_refused_here(far: Admin, world: World) -> None:
    for call in (far.describe_group, far.delete_group, far.group_offsets, far.group_configs):
        with pytest.raises(Rejected, match="the group id is empty"):
            call("")
    assert world.sent == []


def test_a_group_is_deleted_once_it_is_empty(server: AdministeredServer, admin: Admin) -> None:
    member = server.world.consumers.member()
    server.world.consumers.stable(member)
    with pytest.raises(Rejected, match="stop them first"):
        admin.delete_group(GROUP)
    member.leaves()
    admin.delete_group(GROUP)
    assert admin.list_groups() == []


def test_a_lost_answer_does_not_make_the_own_deletion_another_callers(far: Admin, world: World) -> None:
    gone = group.DeletedGroup(
        group_id=GROUP,
        error_code=ErrorCode.GROUP_ID_NOT_FOUND,
        error_class=ErrorClass.REJECTED,  # type: ignore[arg-type]  # the numbers are those of the wire
    )
    world.answer(Method.DELETE_GROUPS, group.DeleteGroupsResponse(), group.DeleteGroupsResponse(groups=[gone]))
    world.fault(Method.DELETE_GROUPS, Fault.LOST_REPLY)
    far.delete_group(GROUP)


# Offsets and lag


def test_offsets_are_told_with_the_transactions_that_hold_others(server: AdministeredServer, admin: Admin) -> None:
    server.world.offsets.commits({"foo-0": 5}, metadata="note")
    server.world.offsets.producer("billing").commits({"foo-0": 7, "foo-1": 8})
    first, second = admin.group_offsets(GROUP)
    assert first.partition == FOO_0
    assert first.committed == OffsetAndMetadata(5, "note")
    assert first.commit_timestamp_ms == server.world.clock.wall_ms()
    (waiting,) = first.pending
    assert (waiting.transactional_id, waiting.offset) == ("billing", 7)
    assert second == GroupOffset(
        partition=FOO_1,
        committed=None,
        commit_timestamp_ms=None,
        pending=(PendingOffset(transactional_id="billing", producer_id=waiting.producer_id, offset=8),),
    )


def test_an_unknown_group_has_no_offsets(admin: Admin) -> None:
    assert admin.group_offsets("nobody") == []
    assert admin.group_lag("nobody") == []


def test_lag_counts_records_and_no_markers(server: AdministeredServer, admin: Admin) -> None:
    server.append("foo-0", 2)
    server.transact("foo-0", 3, COMMIT)
    server.transact("foo-0", 4, ABORT)
    server.append_in(server.world.offsets.producer("late"), "foo-0", 5)
    server.append("foo-0", 1)
    server.world.offsets.commits({"foo-0": 1, "foo-1": 0})
    server.world.offsets.producer("billing").commits({"foo-2": 3})
    lags = {each.offset.partition: each.lag for each in admin.group_lag(GROUP)}
    assert lags == {
        FOO_0: RecordCount(
            to_last_stable_offset=1 + 3,
            to_high_watermark=1 + 3 + 4 + 5 + 1,
            log_start_offset=0,
            last_stable_offset=11,
            high_watermark=17,
        ),
        FOO_1: RecordCount(
            to_last_stable_offset=0,
            to_high_watermark=0,
            log_start_offset=0,
            last_stable_offset=0,
            high_watermark=0,
        ),
        place("foo-2"): None,
    }


def test_the_lag_of_all_groups_takes_as_many_requests_as_the_lag_of_one(
    server: AdministeredServer, admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.append("foo-0", 4)
    groups = [f"g{number}" for number in range(40)]
    for number, group_id in enumerate(groups):
        server.world.offsets.commits({"foo-0": number % 5, "foo-1": 0}, group_id=group_id)
    asked: list[str] = []
    ask = AdministeredServer.ask

    def counted(server: AdministeredServer, rpc: Any, request: Any, *, timeout_ms: int) -> Any:
        asked.append(rpc.method)
        return ask(server, rpc, request, timeout_ms=timeout_ms)

    monkeypatch.setattr(AdministeredServer, "ask", counted)
    lags = admin.lag_of_groups([*groups, "nobody", "g0"])
    assert asked == [Method.OFFSET_FETCH, Method.OFFSET_FETCH, Method.COUNT_RECORDS]
    assert list(lags) == [*groups, "nobody"]
    assert lags["nobody"] == []
    assert [(lags[group_id], group_id) for group_id in groups] == [(admin.group_lag(each), each) for each in groups]
    assert [each.lag and each.lag.to_high_watermark for each in lags["g3"]] == [1, 0]


def test_the_lag_of_a_group_that_read_everything_is_0(server: AdministeredServer, admin: Admin) -> None:
    server.transact("foo-0", 3, COMMIT)
    server.world.offsets.commits({"foo-0": 3})
    (found,) = admin.group_lag(GROUP)
    assert found.lag is not None
    assert (found.lag.to_last_stable_offset, found.lag.high_watermark) == (0, 4)


def test_a_partition_that_is_gone_is_left_out_of_a_count(server: AdministeredServer, admin: Admin) -> None:
    server.append("foo-0", 2)
    assert [*admin.count_records(offsets({"foo-0": 0, "foo-99": 0, "gone-0": 0}))] == [FOO_0]
    assert admin.count_records({}) == {}


def test_a_long_count_goes_on_where_the_server_stopped(far: Admin, world: World) -> None:
    def part(**fields: int) -> log.CountRecordsResponse:
        result = log.CountResult(topic="foo", partition=0, last_stable_offset=90, **fields)
        return log.CountRecordsResponse(results=[result])

    world.answer(
        Method.COUNT_RECORDS,
        part(records=40, committed_records=30, next_offset=50, high_watermark=100),
        part(records=45, committed_records=35, next_offset=110, high_watermark=110),
    )
    found = far.count_records({FOO_0: 1})
    assert found[FOO_0] == RecordCount(
        to_last_stable_offset=65, to_high_watermark=85, log_start_offset=0, last_stable_offset=90, high_watermark=110
    )
    assert [asked.partitions[0].start_offset for asked in world.requests(Method.COUNT_RECORDS)] == [1, 50]


def test_many_partitions_are_counted_in_several_questions(far: Admin, world: World) -> None:
    world.answer(
        Method.COUNT_RECORDS,
        log.CountRecordsResponse(results=[log.CountResult(next_offset=1, high_watermark=1)] * 400),
        log.CountRecordsResponse(results=[log.CountResult(next_offset=1, high_watermark=1)]),
    )
    assert len(far.count_records({place(f"foo-{number}"): 1 for number in range(401)})) == 401
    assert [len(asked.partitions) for asked in world.requests(Method.COUNT_RECORDS)] == [400, 1]


# Resets of offsets


@pytest.fixture
def ten(server: AdministeredServer) -> AdministeredServer:
    """foo-0: records 0 to 9 at the times 10, 20, ... 100, then an open transaction of two; committed: 4."""
    for number in range(10):
        server.append("foo-0", timestamp_ms=10 * (number + 1))
    server.append_in(server.world.offsets.producer("late"), "foo-0", 2)
    server.world.offsets.commits({"foo-0": 4})
    return server


@pytest.mark.parametrize(
    ("reset", "expected"),
    [
        (OffsetReset(ResetTo.EARLIEST), 0),
        (OffsetReset(ResetTo.LATEST), 10),
        (OffsetReset(ResetTo.CURRENT), 4),
        (OffsetReset(ResetTo.OFFSET, 7), 7),
        (OffsetReset(ResetTo.SHIFT, 3), 7),
        (OffsetReset(ResetTo.SHIFT, -3), 1),
        (OffsetReset(ResetTo.TIME, 45), 4),
        (OffsetReset(ResetTo.TIME, 5_000), 10),
    ],
)
def test_offsets_are_planned(ten: AdministeredServer, admin: Admin, reset: OffsetReset, expected: int) -> None:
    (found,) = admin.plan_offset_resets(GROUP, {FOO_0: reset})
    assert found == PlannedOffset(partition=FOO_0, committed_offset=4, offset=expected, wanted_offset=expected)
    assert found.is_behind_all == (reset == OffsetReset(ResetTo.TIME, 5_000))
    assert ten.world.offsets.fetches("foo-0") == {"foo-0": 4}


@pytest.mark.parametrize(
    ("reset", "offset", "wanted"),
    [
        (OffsetReset(ResetTo.OFFSET, 99), 12, 99),
        (OffsetReset(ResetTo.SHIFT, 99), 12, 103),
        (OffsetReset(ResetTo.SHIFT, -99), 0, -95),
    ],
)
def test_an_offset_out_of_the_log_is_moved_into_it(
    ten: AdministeredServer, admin: Admin, reset: OffsetReset, offset: int, wanted: int
) -> None:
    (found,) = admin.plan_offset_resets(GROUP, {FOO_0: reset})
    assert (found.offset, found.wanted_offset) == (offset, wanted)


def test_a_partition_in_which_nothing_is_committed_begins_anywhere_but_beside_that(
    ten: AdministeredServer, admin: Admin
) -> None:
    (found,) = admin.plan_offset_resets("nobody", {FOO_0: OffsetReset(ResetTo.CURRENT)})
    assert (found.committed_offset, found.offset) == (None, 10)
    with pytest.raises(Rejected, match="foo-0: nothing is committed that could be shifted"):
        admin.plan_offset_resets("nobody", {FOO_0: OffsetReset(ResetTo.SHIFT, 1)})


def test_what_cannot_be_planned_is_refused(admin: Admin) -> None:
    with pytest.raises(Rejected, match="topic foo has no partition 99"):
        admin.plan_offset_resets(GROUP, {place("foo-99"): OffsetReset(ResetTo.EARLIEST)})
    with pytest.raises(Rejected) as caught:
        admin.plan_offset_resets(GROUP, {place("gone-0"): OffsetReset(ResetTo.EARLIEST)})
    assert caught.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    with pytest.raises(Rejected, match="the offset to reset to is -1"):
        OffsetReset(ResetTo.OFFSET, -1)
    assert admin.plan_offset_resets(GROUP, {}) == []


def test_offsets_are_set_without_readers(server: AdministeredServer, admin: Admin) -> None:
    member = server.world.consumers.member()
    server.world.consumers.stable(member)
    with pytest.raises(Rejected, match="has members, who would not hear of it") as caught:
        admin.alter_group_offsets(GROUP, {FOO_0: 3})
    assert caught.value.code == ErrorCode.NON_EMPTY_GROUP
    member.leaves()
    admin.alter_group_offsets(GROUP, {FOO_0: 3, FOO_1: OffsetAndMetadata(4, "why")})
    assert server.world.offsets.fetches() == {"foo-0": 3, "foo-1": 4}
    admin.alter_group_offsets("new", {FOO_0: 1})
    assert [each.state for each in admin.list_groups() if each.group_id == "new"] == ["Empty"]


def test_an_offset_of_an_open_transaction_does_not_replace_a_reset(server: AdministeredServer, admin: Admin) -> None:
    producer = server.world.offsets.producer()
    producer.commits({"foo-0": 7})
    admin.alter_group_offsets(GROUP, {FOO_0: 3})
    producer.ends(COMMIT)
    assert server.world.offsets.fetches() == {"foo-0": 3}


def test_a_reset_without_answers_has_an_unknown_outcome_and_may_be_repeated(far: Admin, world: World) -> None:
    world.fault(Method.OFFSET_COMMIT, *[Fault.LOST_REQUEST] * 200)
    with pytest.raises(OutcomeUnknown, match="Do it again: it does no harm twice"):
        far.alter_group_offsets(GROUP, {FOO_0: 3})


def test_offsets_are_forgotten_without_subscribers(server: AdministeredServer, admin: Admin) -> None:
    member = server.world.consumers.member()
    server.world.consumers.stable(member, topics=["foo"])
    member.beats()
    server.world.offsets.commits({"foo-0": 1}, member_id=member.member_id, generation_id_or_member_epoch=member.epoch)
    with pytest.raises(Rejected) as caught:
        admin.delete_group_offsets(GROUP, [FOO_0])
    assert caught.value.code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    member.leaves()
    admin.delete_group_offsets(GROUP, [FOO_0, FOO_0])
    assert admin.group_offsets(GROUP) == []


# Settings


def test_a_group_has_settings_of_its_own(admin: Admin) -> None:
    admin.alter_group_configs(GROUP, {"consumer_session_timeout_ms": 50_000}, validate_only=True)
    assert admin.group_configs(GROUP) == {}
    admin.alter_group_configs(GROUP, {"consumer_session_timeout_ms": 50_000})
    assert admin.group_configs(GROUP) == {"consumer_session_timeout_ms": 50_000}
    with pytest.raises(Misconfigured, match="this server allows"):
        admin.alter_group_configs(GROUP, {"consumer_session_timeout_ms": 1})
    admin.alter_group_configs(GROUP, {}, unset=["consumer_session_timeout_ms"])
    assert admin.group_configs(GROUP) == {}
    words: dict[str, int | str] = {"share_auto_offset_reset": "by_duration:PT1H", "share_delivery_count_limit": 3}
    admin.alter_group_configs(GROUP, words)
    assert admin.group_configs(GROUP) == words
    with pytest.raises(Misconfigured, match="earliest, latest, or by_duration"):
        admin.alter_group_configs(GROUP, {"share_auto_offset_reset": "newest"})


def test_the_offsets_of_a_share_group_are_seen_planned_moved_and_dropped(
    server: AdministeredServer, admin: Admin
) -> None:
    world = server.world
    alter_shares(world, auto_offset_reset="earliest")
    consumer = share_consumer(world, "a", "zar")
    Shares(world, "zar-0", GROUP).produce(4)
    zar = TopicPartition("zar", 0)
    (unread,) = admin.share_group_offsets(GROUP)
    assert (unread.partition, unread.start_offset, unread.lag, unread.due_letters) == (zar, None, None, 0)
    consumer.fetch()
    consumer.acknowledge("zar-0", (0, 0, ACCEPT), (2, 2, ACCEPT))
    (read,) = admin.share_group_offsets(GROUP)
    assert (read.start_offset, read.leader_epoch, read.lag) == (1, 0, 2)
    with pytest.raises(Rejected) as caught:
        admin.alter_share_group_offsets(GROUP, {zar: 0})
    assert caught.value.code == ErrorCode.NON_EMPTY_GROUP
    consumer.member.leaves()
    world.settle()
    (planned,) = admin.plan_share_offset_resets(GROUP, {zar: OffsetReset(ResetTo.SHIFT, 2)})
    assert (planned.committed_offset, planned.offset) == (1, 3)
    admin.alter_share_group_offsets(GROUP, {zar: planned.offset}, topic_ids={zar: planned.topic_id})
    assert [(each.start_offset, each.lag) for each in admin.share_group_offsets(GROUP)] == [(3, 1)]
    admin.delete_share_group_offsets(GROUP, ["zar"])
    assert admin.share_group_offsets(GROUP) == []


def test_dead_letters_that_cannot_be_written_are_counted(server: AdministeredServer, admin: Admin) -> None:
    world = server.world
    world.create_topic("dead", 1)
    alter_shares(world, auto_offset_reset="earliest", dead_letter_topic="dead")
    consumer = share_consumer(world, "a", "zar")
    Shares(world, "zar-0", GROUP).produce(4)
    consumer.fetch()
    world.delete_topic("dead")
    consumer.acknowledge("zar-0", (0, 0, ACCEPT), (1, 2, REJECT))
    (waiting,) = admin.share_group_offsets(GROUP)
    assert (waiting.start_offset, waiting.lag, waiting.due_letters) == (1, 3, 2)
