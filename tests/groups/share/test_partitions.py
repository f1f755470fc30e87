"""The partitions of a share group: only those with a state are assigned, and states and group never differ."""

from __future__ import annotations

from coordinator_api.v1 import group_pb2
from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_runtime.features import FEATURES_KEY, SHARE_GROUPS
from coordinator_runtime.store import Family
from tests.harness.committed_offsets import topic_offsets
from tests.harness.consumers import all_of, of
from tests.harness.groups import OK, code
from tests.harness.share_groups import ShareGroups, share_groups


def held(shares: ShareGroups, group_id: str = "g") -> set[tuple[bytes, int]]:
    return {(topic_id, number) for group, topic_id, number in shares.states.held if group == group_id}


def test_states_are_made_once_with_the_epoch_of_the_group() -> None:
    shares = share_groups()
    first, second = shares.members("first", "second")
    first.joins("foo")
    assert set(shares.states.held.values()) == {1}
    second.joins("foo", "bar")
    assert sorted(shares.states.held.values()) == [1] * 6 + [2] * 3
    assert held(shares) == shares.initialized()


def test_a_partition_whose_shard_is_not_served_is_left_out_and_tried_again() -> None:
    shares = share_groups()
    shares.states.unserved = {2, 4}
    member = shares.member()
    member.joins("foo")
    assert member.assigned == of("foo", 0, 1, 3, 5)
    shares.states.unserved = {4}
    shares.world.pass_time(29_999)
    assert not member.beats().HasField("assignment")
    shares.world.pass_time(1)
    member.beats()
    assert (member.assigned, member.epoch) == (of("foo", 0, 1, 2, 3, 5), 2)
    shares.states.unserved = set()
    shares.world.pass_time(30_000)
    member.beats()
    assert member.assigned == all_of(foo=6)
    assert held(shares) == shares.initialized()


def test_one_heartbeat_makes_at_most_five_hundred_states() -> None:
    shares = share_groups(topics={"wide": 1_100})
    member = shares.member()
    member.joins("wide")
    assert len(member.assigned) == 500
    member.beats()
    assert len(member.assigned) == 1_000
    member.beats()
    assert (len(member.assigned), len(shares.states.held)) == (1_100, 1_100)
    assert not member.beats().HasField("assignment")


def test_a_state_that_cannot_be_made_refuses_the_whole_heartbeat() -> None:
    shares = share_groups()
    shares.states.refusal = Refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "still loading")
    assert code(shares.member().joins("foo")) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert not shares.world.groups.has()
    assert shares.world.groups.timers() == {}


def test_topics_that_come_and_grow_are_assigned() -> None:
    shares = share_groups()
    member = shares.member()
    member.joins("foo", "new")
    shares.world.create_topic("new", 2)
    member.beats()
    assert member.assigned == all_of(foo=6, new=2)
    assert held(shares) == shares.initialized()


def test_a_group_forgets_the_states_of_a_deleted_topic() -> None:
    """The states themselves go with their partitions (`share_partitions/test_with_groups.py`)."""
    shares = share_groups()
    member = shares.member()
    member.joins("foo", "bar")
    shares.world.delete_topic("foo")
    shares.world.settle()
    assert len(shares.initialized()) == 3
    member.beats()
    assert member.assigned == all_of(bar=3)


def test_the_states_of_a_group_go_with_it_and_a_new_one_makes_its_own() -> None:
    shares = share_groups()
    member, other = shares.member(), shares.member(group_id="other")
    member.joins("foo")
    other.joins("foo")
    member.leaves()
    shares.states.refusal = Refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "still loading")
    assert shares.world.groups.delete() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert held(shares) == shares.initialized(), "all or nothing"
    shares.states.refusal = None
    assert shares.world.groups.delete() is OK
    assert (held(shares), len(held(shares, "other"))) == (set(), 6)
    member.joins("foo")
    assert held(shares) == shares.initialized()


def test_an_empty_group_with_states_never_expires() -> None:
    shares = share_groups(offsets_retention_check_interval_ms=1_000)
    for group_id, topic in (("g", "foo"), ("reads nothing", "none-such")):
        member = shares.member(group_id=group_id)
        member.joins(topic)
        member.leaves()
    shares.world.pass_time(1_000)
    assert set(shares.world.groups.listed()) == {"g"}


def test_the_first_share_group_begins_the_feature_of_the_store_and_a_refused_one_does_not() -> None:
    shares = share_groups()
    shares.world.consumers.member(group_id="consumers").joins("foo")

    def features() -> bool:
        stored = shares.world.inside.core.store.get(Family.META, FEATURES_KEY) or b""
        return SHARE_GROUPS in stored.decode().split(",")

    assert code(shares.member(group_id="consumers").joins("foo")) is ErrorCode.GROUP_ID_NOT_FOUND
    assert not features()
    shares.member().joins("foo")
    assert features()
    shares.world.restart()
    assert code(shares.member("second").joins("foo")) is OK


def test_an_empty_group_of_another_kind_makes_way_unless_it_has_offsets() -> None:
    shares = share_groups()
    world = shares.world
    consumer = world.consumers.member()
    consumer.joins("foo")
    consumer.leaves()
    member = shares.member()
    assert code(member.joins("foo")) is OK
    assert world.groups.kind() == "share"
    commit = group_pb2.OffsetCommitRequest(group_id="read", topics=topic_offsets({"foo-0": 1}))
    assert code(world.ask(commit)) is OK
    late = shares.member(group_id="read")
    assert code(late.joins("foo")) is ErrorCode.GROUP_ID_NOT_FOUND
    assert world.groups.delete("read") is OK
    assert code(late.joins("foo")) is OK


def test_a_group_without_members_and_states_makes_way_for_other_kinds() -> None:
    shares = share_groups()
    member = shares.member()
    member.joins("none-such")
    member.leaves()
    assert code(shares.world.consumers.member().joins("foo")) is OK
    assert shares.world.groups.kind() == "consumer"
