"""Names in requests: the same rule for every RPC of groups that names topics, partitions or offsets.

A request that names something impossible, or one partition twice, is refused as a whole and changes nothing; where the
answer has a result per partition, each of them says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from coordinator_api.v1 import common_pb2, group_pb2
from coordinator_protocol.errors import ErrorClass, ErrorCode, Refused
from coordinator_runtime.ports import (
    AllowAll,
    CallContext,
    Committer,
    GroupOffsets,
    Membership,
    NamedOffset,
    PartitionName,
)
from group_coordinator.committed.transacted import TransactedGroups
from tests.harness.group_world import group_world
from tests.harness.world import World

TOPIC_ID = b"t" * 16
IMPOSSIBLE = ("a\0b", "x" * 250, ".", "..", "a b", "\N{GREEK SMALL LETTER ALPHA}")

Names = Sequence[PartitionName]


def foo(partition: int = 0) -> PartitionName:
    return PartitionName("foo", b"", partition)


def offsets(names: Names, committed_offset: int = 5) -> list[group_pb2.TopicOffsets]:
    return [
        group_pb2.TopicOffsets(
            topic=name.topic,
            topic_id=name.topic_id,
            partitions=[group_pb2.PartitionOffset(partition=name.partition, committed_offset=committed_offset)],
        )
        for name in names
    ]


def partitions(names: Names) -> list[common_pb2.TopicPartitions]:
    return [
        common_pb2.TopicPartitions(topic=each.topic, topic_id=each.topic_id, partitions=[each.partition])
        for each in names
    ]


def offset_commit(names: Names, **fields: Any) -> group_pb2.OffsetCommitRequest:
    return group_pb2.OffsetCommitRequest(group_id="g", topics=offsets(names), **fields)


def txn_offset_commit(names: Names, **fields: Any) -> group_pb2.TxnOffsetCommitRequest:
    values = {"transactional_id": "t", "producer_id": 1, **fields}
    return group_pb2.TxnOffsetCommitRequest(group_id="g", topics=offsets(names), **values)


def offset_delete(names: Names) -> group_pb2.OffsetDeleteRequest:
    return group_pb2.OffsetDeleteRequest(group_id="g", topics=partitions(names))


def offset_fetch(names: Names) -> group_pb2.OffsetFetchRequest:
    wanted = group_pb2.PartitionSet(topics=partitions(names))
    return group_pb2.OffsetFetchRequest(groups=[group_pb2.OffsetFetchGroup(group_id="g", topics=wanted)])


def owning(names: Names) -> group_pb2.ConsumerGroupHeartbeatRequest:
    return group_pb2.ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="m",
        member_epoch=1,
        topic_partitions=group_pb2.PartitionSet(topics=partitions(names)),
    )


WITH_RESULTS = (offset_commit, txn_offset_commit, offset_delete)
OF_PARTITIONS = (*WITH_RESULTS, offset_fetch, owning)

MALFORMED = [
    *[([PartitionName(name, b"", 0)], ErrorCode.INVALID_TOPIC_EXCEPTION) for name in IMPOSSIBLE],
    ([foo(), PartitionName("a\0b", TOPIC_ID, 0)], ErrorCode.INVALID_TOPIC_EXCEPTION),
    ([PartitionName("", b"", 0)], ErrorCode.INVALID_REQUEST),
    ([PartitionName("foo", b"short", 0)], ErrorCode.INVALID_REQUEST),
    ([foo(-1)], ErrorCode.INVALID_REQUEST),
    ([foo(), foo(1), foo()], ErrorCode.INVALID_REQUEST),
]


def refused(world: World, request: Any) -> Any:
    """The answer to a request that changed nothing."""
    version = world.shelf.store.version()
    response = world.ask(request)
    assert not world.flush(), "something was staged"
    assert world.shelf.store.version() == version
    return response.groups[0] if isinstance(request, group_pb2.OffsetFetchRequest) else response


@pytest.mark.parametrize(("names", "code"), MALFORMED)
@pytest.mark.parametrize("request_of", OF_PARTITIONS)
def test_a_partition_that_cannot_be_is_refused(
    request_of: Callable[[Names], Any], names: list[PartitionName], code: ErrorCode
) -> None:
    response = refused(group_world(), request_of(names))
    assert (response.error_code, response.error_class) == (code, ErrorClass.REJECTED)


@pytest.mark.parametrize(
    ("request_of", "names", "fields"),
    [
        *[(request_of, names, {}) for request_of in WITH_RESULTS for names, _code in MALFORMED],
        (offset_commit, [foo()], {"retention_time_ms": -1}),
        (txn_offset_commit, [foo()], {"producer_id": -1}),
        (txn_offset_commit, [foo()], {"producer_epoch": 2**15}),
    ],
)
def test_every_partition_of_a_refused_request_says_so(
    request_of: Callable[..., Any], names: list[PartitionName], fields: dict[str, int]
) -> None:
    """A client that reads results alone learns that none of them was done."""
    response = refused(group_world(), request_of(names, **fields))
    assert [PartitionName(each.topic, each.topic_id, each.partition) for each in response.results] == names
    assert {(each.error_code, each.error_class) for each in response.results} == {
        (response.error_code, ErrorClass.REJECTED)
    }


def test_a_negative_offset_is_refused_with_all_others() -> None:
    topics = [*offsets([foo()]), *offsets([foo(1)], committed_offset=-1)]
    response = refused(group_world(), group_pb2.OffsetCommitRequest(group_id="g", topics=topics))
    assert [each.error_code for each in response.results] == [ErrorCode.INVALID_REQUEST] * 2


@pytest.mark.parametrize(("names", "code"), MALFORMED)
def test_a_transact_that_names_what_cannot_be_is_refused(names: list[PartitionName], code: ErrorCode) -> None:
    world = group_world()
    groups = TransactedGroups(world.inside.groups.router, world.inside.catalog, AllowAll())
    brought = GroupOffsets("g", Committer(), tuple(NamedOffset(name, 5, None, "") for name in names))
    with pytest.raises(Refused) as refusal:
        groups.place([brought], Membership("t", 1, 0), CallContext())
    assert refusal.value.code is code


@pytest.mark.parametrize("name", ["", *IMPOSSIBLE])
def test_no_member_subscribes_to_a_topic_that_cannot_be(name: str) -> None:
    world = group_world()
    joining = group_pb2.ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_epoch=0,
        rebalance_timeout_ms=1_000,
        subscribed_topic_names=group_pb2.TopicNames(names=["foo", name]),
        topic_partitions=group_pb2.PartitionSet(),
    )
    response = refused(world, joining)
    assert (response.error_code, response.error_class) == (ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorClass.REJECTED)
    assert not world.ask(group_pb2.ListGroupsRequest()).groups


def test_a_member_that_names_such_a_topic_later_keeps_what_it_has() -> None:
    world = group_world()
    (member,) = world.consumers.stable(world.consumers.member(), topics=("foo",))
    changing = member.request(subscribed_topic_names=group_pb2.TopicNames(names=["a\0b"]))
    assert refused(world, changing).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert world.consumers.described(member.member_id).subscribed_topic_names == ["foo"]


def test_a_topic_that_may_come_can_be_subscribed_to() -> None:
    world = group_world()
    assert world.consumers.member().joins("not-yet", "__reserved").error_code == ErrorCode.NONE
