"""Offsets of groups over Kafka's protocol: commits, reads and deletions in every version."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator_protocol.errors import ErrorCode
from coordinator_runtime.ports import CallContext, Permission, ResourceType
from coordinator_server.kafka_front.apis import ApiKey
from coordinator_server.kafka_front.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from coordinator_server.kafka_front.messages.offset_delete_request import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from coordinator_server.kafka_front.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from coordinator_server.kafka_front.uuids import ZERO_UUID
from group_coordinator.config import GroupConfig
from tests.harness.calls import partition_name
from tests.harness.group_world import group_world
from tests.harness.kafka_caller import KafkaCaller
from tests.harness.world import World

BY_ID = 10
"""First version of OffsetCommit and OffsetFetch with topic ids."""
SEVERAL = 8
"""First OffsetFetch for several groups."""
OK, UNKNOWN = ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

Told = dict[str, tuple[int, int]]
"""Offset and code of each partition."""


@pytest.fixture
def world() -> World:
    return group_world()


def id_of(world: World, topic: str) -> bytes:
    shape = world.inside.catalog.shape(topic)
    return b"no topic has it." if shape is None else shape.topic_id


def name_of(world: World, version: int, topic: Any) -> str:
    """Return the name of a topic in an answer, which has it or the id."""
    if version < BY_ID:
        return str(topic.name)
    shape = world.inside.catalog.shape_of_id(topic.topic_id)
    return "?" if shape is None else shape.topic


def named(world: World, version: int, topic: str) -> dict[str, Any]:
    return {"topic_id": id_of(world, topic)} if version >= BY_ID else {"name": topic, "topic_id": ZERO_UUID}


def commit(world: World, version: int, offsets: dict[str, int], **fields: Any) -> dict[str, int]:
    """Return the code of each partition."""
    of_partition = {
        name: fields.pop(name) for name in ("committed_leader_epoch", "committed_metadata") if name in fields
    }
    topics = []
    for partition, offset in offsets.items():
        topic, _id, number = partition_name(partition)
        given = OffsetCommitRequestPartition(partition_index=number, committed_offset=offset, **of_partition)
        topics.append(OffsetCommitRequestTopic(**named(world, version, topic), partitions=(given,)))
    request = OffsetCommitRequest(**{"group_id": "g", **fields}, topics=tuple(topics))
    response = KafkaCaller(world).call(ApiKey.OFFSET_COMMIT, version, request)
    return {
        f"{name_of(world, version, topic)}-{each.partition_index}": each.error_code
        for topic in response.topics
        for each in topic.partitions
    }


def fetch(
    world: World, version: int, *partitions: str, group_id: str = "g", is_all: bool = False, **fields: Any
) -> Any:
    """Return the response about one group."""
    names = [partition_name(each) for each in partitions]
    if version < SEVERAL:
        older = [OffsetFetchRequestTopic(name=name.topic, partition_indexes=(name.partition,)) for name in names]
        request = OffsetFetchRequest(group_id=group_id, topics=None if is_all else tuple(older), **fields)
    else:
        of_group = {each: fields.pop(each) for each in ("member_id", "member_epoch") if each in fields}
        topics = [
            OffsetFetchRequestTopics(**named(world, version, name.topic), partition_indexes=(name.partition,))
            for name in names
        ]
        group = OffsetFetchRequestGroup(group_id=group_id, topics=None if is_all else tuple(topics), **of_group)
        request = OffsetFetchRequest(groups=(group,), **fields)
    return KafkaCaller(world).call(ApiKey.OFFSET_FETCH, version, request)


def told(world: World, version: int, response: Any) -> Told:
    """Return offset and code of each partition in an answer about one group."""
    (group,) = [response] if version < SEVERAL else response.groups
    return {
        f"{name_of(world, version, topic) if version >= BY_ID else topic.name}-{each.partition_index}": (
            each.committed_offset,
            each.error_code,
        )
        for topic in group.topics
        for each in topic.partitions
    }


def fetched(world: World, version: int, *partitions: str, **fields: Any) -> Told:
    return told(world, version, fetch(world, version, *partitions, **fields))


def fetch_code(version: int, response: Any) -> int:
    """Return the code of the whole answer about one group."""
    (group,) = [response] if version < SEVERAL else response.groups
    return int(group.error_code)


@pytest.mark.parametrize("version", range(2, 11))
def test_offsets_are_committed_in_every_version(world: World, version: int) -> None:
    assert commit(world, version, {"foo-0": 3, "foo-1": 4, "bar-0": 5}) == {"foo-0": 0, "foo-1": 0, "bar-0": 0}
    assert world.offsets.fetches("foo-0", "foo-1", "bar-0") == {"foo-0": 3, "foo-1": 4, "bar-0": 5}


@pytest.mark.parametrize("version", [2, 9])
def test_an_unknown_partition_is_refused_alone(world: World, version: int) -> None:
    assert commit(world, version, {"foo-0": 3, "foo-6": 3, "none-0": 3}) == {"foo-0": 0, "foo-6": 3, "none-0": 3}
    assert world.offsets.fetches("foo-0") == {"foo-0": 3}


def test_an_unknown_topic_id_is_refused_alone(world: World) -> None:
    answered = commit(world, 10, {"foo-0": 3, "foo-6": 3, "none-0": 3})
    assert answered == {"foo-0": 0, "foo-6": UNKNOWN, "?-0": ErrorCode.UNKNOWN_TOPIC_ID}


@pytest.mark.parametrize(("version", "none"), [(9, "none-0"), (10, "?-0")])
def test_what_no_group_is_asked_for_is_the_first_of_an_answer_to_a_commit(
    world: World, version: int, none: str
) -> None:
    answered = commit(world, version, {"foo-0": 3, "bar-6": 3, "bar-0": 3, "foo-6": 3, "none-0": 3})
    assert [*answered] == ["bar-6", "bar-0", "foo-6", "foo-0", none]


@pytest.mark.parametrize(
    ("version", "code"), [(2, ErrorCode.ILLEGAL_GENERATION), (8, ErrorCode.ILLEGAL_GENERATION), (9, 69), (10, 69)]
)
def test_a_group_without_a_name_has_no_members(world: World, version: int, code: int) -> None:
    answered = commit(world, version, {"foo-0": 3}, group_id="", member_id="m", generation_id_or_member_epoch=0)
    assert answered == {"foo-0": code}


@pytest.mark.parametrize("version", [2, 10])
def test_offsets_of_a_group_without_a_name_are_not_kept(world: World, version: int) -> None:
    assert commit(world, version, {"foo-0": 3}, group_id="") == {"foo-0": ErrorCode.INVALID_GROUP_ID}


def test_metadata_and_leader_epoch_come_back(world: World) -> None:
    commit(world, 6, {"foo-0": 3}, committed_leader_epoch=0, committed_metadata="note")
    commit(world, 6, {"foo-1": 3}, committed_metadata=None)
    for version in (5, 8):
        response = fetch(world, version, "foo-0", "foo-1")
        (group,) = [response] if version < SEVERAL else response.groups
        (topic,) = group.topics
        assert [(each.committed_leader_epoch, each.metadata) for each in topic.partitions] == [(0, "note"), (-1, "")]


def test_an_older_version_may_say_how_long_offsets_are_kept() -> None:
    world = group_world(group_config=GroupConfig())
    commit(world, 4, {"foo-0": 3}, retention_time_ms=1_000)
    commit(world, 4, {"foo-1": 3}, retention_time_ms=-1)
    world.pass_time(2 * 600_000)
    assert world.offsets.fetches("foo-0", "foo-1") == {"foo-0": -1, "foo-1": 3}


@pytest.mark.parametrize(
    ("version", "code"), [(2, ErrorCode.ILLEGAL_GENERATION), (8, ErrorCode.ILLEGAL_GENERATION), (9, 69), (10, 69)]
)
def test_a_generation_of_no_group_is_refused(world: World, version: int, code: int) -> None:
    answered = commit(world, version, {"foo-0": 3}, member_id="m", generation_id_or_member_epoch=4)
    assert answered == {"foo-0": code}


@pytest.mark.parametrize(("version", "code"), [(8, ErrorCode.UNSUPPORTED_VERSION), (9, ErrorCode.STALE_MEMBER_EPOCH)])
def test_a_member_of_a_consumer_group_shows_its_epoch(world: World, version: int, code: int) -> None:
    (member,) = world.consumers.stable(world.consumers.member())
    said = {"member_id": member.member_id}
    assert commit(world, 9, {"foo-0": 3}, **said, generation_id_or_member_epoch=member.epoch) == {"foo-0": 0}
    answered = commit(world, version, {"foo-0": 4}, **said, generation_id_or_member_epoch=member.epoch + 1)
    assert answered == {"foo-0": code}


@pytest.mark.parametrize("version", range(1, 11))
def test_offsets_are_read_in_every_version(world: World, version: int) -> None:
    commit(world, 2, {"foo-0": 3, "bar-2": 4})
    assert fetched(world, version, "foo-0", "bar-2", "bar-1") == {"foo-0": (3, 0), "bar-2": (4, 0), "bar-1": (-1, 0)}


@pytest.mark.parametrize("version", range(1, 10))
def test_what_does_not_exist_has_no_offset_and_no_error(world: World, version: int) -> None:
    commit(world, 2, {"foo-0": 3})
    answered = fetched(world, version, "none-0", "foo-0", "foo-77", "no topic-1", "foo-0")
    assert answered == {"none-0": (-1, 0), "foo-0": (3, 0), "foo-77": (-1, 0), "no topic-1": (-1, 0)}
    assert fetched(world, version, "foo-0", group_id="unknown") == {"foo-0": (-1, 0)}


def test_only_an_unknown_topic_id_is_an_error(world: World) -> None:
    commit(world, 2, {"foo-0": 3})
    answered = fetched(world, 10, "none-0", "foo-0", "foo-77")
    assert answered == {"?-0": (-1, ErrorCode.UNKNOWN_TOPIC_ID), "foo-0": (3, 0), "foo-77": (-1, 0)}
    assert [*answered] == ["foo-0", "foo-77", "?-0"], "topics of which no group is asked are the last"


@pytest.mark.parametrize("version", range(2, 11))
def test_all_offsets_of_a_group_are_read(world: World, version: int) -> None:
    commit(world, 2, {"foo-0": 3, "bar-2": 4})
    assert fetched(world, version, is_all=True) == {"foo-0": (3, 0), "bar-2": (4, 0)}
    assert fetched(world, version) == {}


def test_several_groups_are_read_at_once(world: World) -> None:
    commit(world, 2, {"foo-0": 3}, group_id="one")
    commit(world, 2, {"foo-0": 4}, group_id="two")
    topics = (OffsetFetchRequestTopics(name="foo", partition_indexes=(0,)),)
    groups = tuple(OffsetFetchRequestGroup(group_id=each, topics=topics) for each in ("two", "", "one"))
    response = KafkaCaller(world).call(ApiKey.OFFSET_FETCH, 8, OffsetFetchRequest(groups=groups))
    assert [(each.group_id, each.error_code) for each in response.groups] == [
        ("two", 0),
        ("", 0),
        ("one", 0),
    ]
    assert [each.topics[0].partitions[0].committed_offset for each in response.groups] == [4, -1, 3]


@pytest.mark.parametrize("version", range(1, 11))
def test_a_group_without_a_name_has_no_offsets(world: World, version: int) -> None:
    assert fetched(world, version, "foo-0", "foo-77", group_id="") == {"foo-0": (-1, 0), "foo-77": (-1, 0)}


@pytest.mark.parametrize("version", [7, 8, 10])
def test_an_offset_of_an_open_transaction_is_unstable_on_request(world: World, version: int) -> None:
    commit(world, 2, {"foo-0": 3})
    world.offsets.producer().commits({"foo-0": 9})
    assert fetched(world, version, "foo-0") == {"foo-0": (3, 0)}
    unstable = fetched(world, version, "foo-0", require_stable=True)
    assert unstable == {"foo-0": (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)}


def test_a_member_reads_with_its_epoch_from_version_9_on(world: World) -> None:
    (member,) = world.consumers.stable(world.consumers.member())
    said: dict[str, Any] = {"member_id": member.member_id}
    assert fetch_code(9, fetch(world, 9, "foo-0", **said, member_epoch=member.epoch)) == OK
    stale = fetch(world, 9, "foo-0", **said, member_epoch=member.epoch + 1)
    assert fetch_code(9, stale) == ErrorCode.STALE_MEMBER_EPOCH
    assert fetch_code(9, fetch(world, 9, "foo-0", member_id=None)) == OK


class WithoutGroups:
    """A caller without rights on groups."""

    def is_allowed(self, _context: CallContext, _permission: Permission, resource: ResourceType, _name: str) -> bool:
        return resource is not ResourceType.GROUP

    def on_refused(self, context: CallContext, permission: Permission, resource: ResourceType, name: str) -> None:
        """Nothing is counted."""


def test_a_refused_group_is_told_where_the_version_has_a_place() -> None:
    world, denied = group_world(authorizer=WithoutGroups()), ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert fetched(world, 1, "foo-0", "bar-0") == {"foo-0": (-1, denied), "bar-0": (-1, denied)}
    for version in (2, 7, 8, 10):
        response = fetch(world, version, "foo-0")
        assert fetch_code(version, response) == denied
        assert told(world, version, response) == {}
    assert commit(world, 2, {"foo-0": 1, "bar-0": 1}) == {"foo-0": denied, "bar-0": denied}
    assert delete(world, "foo-0").error_code == denied


class WithoutTopics(WithoutGroups):
    """A caller without rights on topics."""

    def is_allowed(self, _context: CallContext, _permission: Permission, resource: ResourceType, _name: str) -> bool:
        return resource is not ResourceType.TOPIC


def test_a_topic_that_may_not_be_read_is_refused_alone() -> None:
    world, denied = group_world(authorizer=WithoutTopics()), ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert fetched(world, 9, "foo-0", "none-0") == {"foo-0": (-1, denied), "none-0": (-1, denied)}
    assert commit(world, 9, {"foo-0": 1}) == {"foo-0": denied}


def delete(world: World, *partitions: str) -> Any:
    topics = []
    for partition in partitions:
        topic, _id, number = partition_name(partition)
        topics.append(OffsetDeleteRequestTopic(name=topic, partitions=(OffsetDeleteRequestPartition(number),)))
    request = OffsetDeleteRequest(group_id="g", topics=tuple(topics))
    return KafkaCaller(world).call(ApiKey.OFFSET_DELETE, 0, request)


def test_offsets_are_deleted(world: World) -> None:
    commit(world, 2, {"foo-0": 3, "foo-1": 4})
    response = delete(world, "foo-0", "none-0", "foo-0")
    assert response.error_code == OK
    codes = {
        f"{each.name}-{part.partition_index}": part.error_code for each in response.topics for part in each.partitions
    }
    assert codes == {"foo-0": OK, "none-0": UNKNOWN}
    assert [*codes] == ["none-0", "foo-0"], "topics of which no group is asked are the first"
    assert world.offsets.fetches("foo-0", "foo-1") == {"foo-0": -1, "foo-1": 4}


def test_offsets_of_an_unknown_group_cannot_be_deleted(world: World) -> None:
    response = delete(world, "foo-0")
    assert (response.error_code, response.topics) == (ErrorCode.GROUP_ID_NOT_FOUND, ())
