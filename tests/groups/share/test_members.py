"""Members of share groups: epochs, answers that were lost, waits, sessions, restarts."""

from __future__ import annotations

import pytest

from coordinator_api.v1 import group_pb2
from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_runtime.share_ports import ReleaseShares
from group_coordinator.share.requests import ShareHeartbeat
from group_coordinator.share.rules import check_epoch, check_heartbeat, is_repetition
from group_coordinator.share.state import ShareAssignment
from tests.harness.consumers import all_of, partitions_of
from tests.harness.groups import OK, code
from tests.harness.share_groups import share_groups

EPOCHS = {
    # (stored, previous, received): what the check says, and whether it is a repetition
    (5, 3, 5): (OK, False),
    (5, 3, 3): (OK, True),
    (5, 3, 0): (OK, False),
    (5, 3, 4): (ErrorCode.FENCED_MEMBER_EPOCH, False),
    (5, 3, 2): (ErrorCode.FENCED_MEMBER_EPOCH, False),
    (5, 3, 6): (ErrorCode.FENCED_MEMBER_EPOCH, False),
    (1, 0, 1): (OK, False),
    (1, 0, 0): (OK, False),
    (1, 0, 2): (ErrorCode.FENCED_MEMBER_EPOCH, False),
}


@pytest.mark.parametrize("epochs", EPOCHS, ids=str)
def test_epochs(epochs: tuple[int, int, int]) -> None:
    stored, previous, received = epochs
    current = ShareAssignment(stored, previous)
    found = OK
    try:
        check_epoch(current, received)
    except Refused as refusal:
        found = refusal.code
    assert (found, is_repetition(current, received)) == EPOCHS[epochs]


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (ShareHeartbeat("g" * 1_001, member_id="m", member_epoch=1), ErrorCode.INVALID_GROUP_ID),
        (
            ShareHeartbeat("g", member_id="m", member_epoch=0, subscribed_topic_names=frozenset({"a b"})),
            ErrorCode.INVALID_TOPIC_EXCEPTION,
        ),
        (ShareHeartbeat("g", member_id="m" * 1_001, member_epoch=1), ErrorCode.INVALID_REQUEST),
        (ShareHeartbeat("g", member_id="m", member_epoch=1, rack_id="\0"), ErrorCode.INVALID_REQUEST),
    ],
)
def test_names_that_cannot_be_stored_are_refused(request_: ShareHeartbeat, expected: ErrorCode) -> None:
    with pytest.raises(Refused) as refused:
        check_heartbeat(request_)
    assert refused.value.code is expected


def test_everybody_gets_every_partition_of_its_topics_at_once() -> None:
    shares = share_groups()
    first, second = shares.members("first", "second")
    assert first.joins("foo").member_epoch == 1
    assert second.joins("foo", "bar").member_epoch == 2
    assert (first.assigned, second.assigned) == (all_of(foo=6), all_of(foo=6, bar=3))
    quiet = first.beats()
    assert (quiet.member_epoch, quiet.HasField("assignment")) == (2, False), "nothing is new for it but the epoch"
    assert shares.state() == "Stable"


def test_a_member_without_an_id_is_given_one() -> None:
    shares = share_groups()
    member = shares.member("")
    member.joins("foo")
    assert member.member_id
    assert shares.member_ids() == [member.member_id]


def test_a_heartbeat_with_nothing_new_writes_nothing() -> None:
    shares = share_groups()
    member = shares.member()
    member.joins("foo")
    before = shares.world.inside.runtime.groups.durable_version
    assert code(member.beats()) is OK
    assert not member.beats().HasField("assignment")
    assert shares.world.inside.runtime.groups.durable_version == before


def test_a_member_that_missed_an_answer_hears_it_again_until_it_has_it() -> None:
    shares = share_groups()
    first, second = shares.members("first", "second")
    first.joins("foo")
    second.joins("foo")
    first.subscribes("bar")
    known = first.epoch
    second.subscribes("bar")
    assert shares.world.ask(first.request(known)).member_epoch == known + 1, "and the answer is lost"
    for topic in ("foo", "bar"):
        second.subscribes(topic)
        again = shares.world.ask(first.request(known))
        assert (again.member_epoch, partitions_of(again.assignment.topics)) == (known + 1, all_of(bar=3))
    first.epoch = known + 1
    assert first.beats().member_epoch == shares.epoch()


def test_a_new_subscription_of_a_repeated_heartbeat_is_taken_up() -> None:
    shares = share_groups()
    first, second = shares.members("first", "second")
    first.joins("foo")
    second.joins("foo")
    before = first.epoch
    first.beats()
    first.beats(before, subscribed_topic_names=group_pb2.TopicNames(names=["bar"]))
    first.beats()
    assert first.assigned == all_of(bar=3)


def test_who_joins_again_keeps_its_place_and_hears_everything() -> None:
    shares = share_groups()
    member = shares.member()
    member.joins("foo")
    again = member.joins("foo")
    assert (again.member_epoch, partitions_of(again.assignment.topics)) == (1, all_of(foo=6))
    assert (shares.member_ids(), shares.epoch()) == (["m"], 1)


def test_who_is_far_behind_is_fenced_and_joins_again() -> None:
    shares = share_groups()
    first, second = shares.members("first", "second")
    first.joins("foo")
    second.joins("foo")
    first.beats()
    second.subscribes("bar")
    first.beats()
    assert code(first.beats(1)) is ErrorCode.FENCED_MEMBER_EPOCH
    assert code(first.joins("foo")) is OK


def test_a_waiting_heartbeat_is_answered_when_the_partitions_change_and_not_before() -> None:
    shares = share_groups(topics={"foo": 1, "later": 1})
    first, second = shares.members("first", "second")
    first.joins("foo", "new")
    waiting = first.waits()
    second.joins("foo")
    shares.world.pass_time(10)
    assert not waiting.is_settled, "another member alone is no news"
    shares.world.create_topic("new", 2)
    shares.world.pass_time(10)
    assert code(waiting.result()) is OK
    assert first.assigned == all_of(foo=1, new=2)


def test_a_waiting_heartbeat_ends_with_its_time_and_with_a_newer_one() -> None:
    shares = share_groups()
    member = shares.member()
    member.joins("foo")
    waiting = member.waits(max_wait_ms=2_000)
    shares.world.pass_time(2_000)
    assert code(waiting.result()) is OK
    older = member.waits()
    assert code(member.beats()) is OK
    assert older.is_settled


def test_the_records_of_a_member_are_released_when_it_leaves_or_is_silent() -> None:
    shares = share_groups()
    first, second = shares.members("first", "second")
    first.joins("foo")
    second.joins("foo")
    first.leaves()
    assert shares.states.released == [ReleaseShares("g", "first")]
    shares.world.pass_time(45_000)
    assert shares.states.released == [ReleaseShares("g", "first"), ReleaseShares("g", "second")]
    assert (shares.state(), shares.world.groups.timers()) == ("Empty", {})


def test_a_member_of_a_group_that_reads_nothing_ends_too() -> None:
    """It may have a share session."""
    shares = share_groups()
    member = shares.member()
    member.joins("nothing-like-that")
    member.leaves()
    assert shares.states.released == [ReleaseShares("g", "m")]


def test_a_restart_brings_back_members_assignments_and_timers() -> None:
    shares = share_groups()
    first, second = shares.members("first", "second")
    first.joins("foo", rack_id="east")
    second.joins("foo", "bar")
    first.beats()
    before, epoch = shares.describe(), first.epoch
    shares.world.restart()
    assert shares.describe() == before
    assert shares.world.groups.timers() == {"session": 2}
    shares.states.listen(shares.world.inside.core)
    assert (first.beats().member_epoch, second.beats().member_epoch) == (epoch, epoch)
    shares.world.pass_time(45_000)
    assert shares.member_ids() == []
