"""Administration: what a lost answer means for calls that are not idempotent by themselves."""

from __future__ import annotations

import pytest

from coordinator_client import Admin, Rejected, Retriable
from coordinator_protocol.errors import Method
from tests.client.world import Fault, World


@pytest.fixture
def admin(world: World) -> Admin:
    return Admin(world.connection(), deadline_ms=1_000)


def test_a_topic_is_created_and_described(admin: Admin, world: World) -> None:
    topic = admin.create_topic("new", 4)
    assert (topic.name, [partition.partition for partition in topic.partitions]) == ("new", [0, 1, 2, 3])
    assert world.server.topics["new"] == 4


def test_a_topic_that_exists_is_refused_unless_that_is_fine(admin: Admin) -> None:
    with pytest.raises(Rejected, match="TOPIC_ALREADY_EXISTS"):
        admin.create_topic("t", 3)
    assert len(admin.create_topic("t", 3, is_existing_ok=True).partitions) == 3
    with pytest.raises(Rejected) as caught:
        admin.create_topic("t", 5, is_existing_ok=True)
    assert caught.value.__notes__ == ["it has 3 partitions, 5 were asked for"]


@pytest.mark.parametrize("fault", [Fault.LOST_REQUEST, Fault.LOST_REPLY, Fault.UNSURE])
def test_a_lost_answer_does_not_make_a_stranger_of_the_own_topic(admin: Admin, world: World, fault: Fault) -> None:
    world.fault(Method.CREATE_TOPICS, fault)
    assert admin.create_topic("new", 2).name == "new"
    world.fault(Method.DELETE_TOPICS, fault)
    admin.delete_topic("new")
    assert "new" not in world.server.topics


def test_an_unknown_topic_is_refused(admin: Admin) -> None:
    with pytest.raises(Rejected, match="UNKNOWN_TOPIC_OR_PARTITION"):
        admin.delete_topic("new")
    with pytest.raises(Rejected, match="UNKNOWN_TOPIC_OR_PARTITION"):
        admin.describe_topic("new")


def test_names_are_checked_here(admin: Admin, world: World) -> None:
    for call in (admin.create_topic, admin.delete_topic, admin.describe_topic):
        with pytest.raises(Rejected, match="is no topic name"):
            call("no topic!")
    with pytest.raises(Rejected, match="transactional id is empty"):
        admin.describe_transaction("")
    assert world.sent == []


def test_a_server_out_of_reach_is_retriable_for_a_question(admin: Admin, world: World) -> None:
    world.fault(Method.DESCRIBE_TOPICS, *[Fault.LOST_REQUEST] * 100)
    with pytest.raises(Retriable, match="DescribeTopics: no definite answer within"):
        admin.describe_topics()
