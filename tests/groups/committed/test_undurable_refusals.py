"""Answers to readers of offsets rest on durable state: a refusal by a change that a crash would take back waits for
it."""

from __future__ import annotations

from coordinator_protocol.errors import ErrorCode
from coordinator_runtime.ports import CallContext
from partition_log.requests import DeleteTopics, TopicName
from tests.harness.committed_offsets import COMMIT, results
from tests.harness.consumers import Consumer
from tests.harness.group_world import group_world
from tests.harness.groups import OK, code
from tests.harness.world import World
from txn_coordinator.config import TwoPhase


def goes(world: World, topic: str) -> None:
    """The topic is being deleted, and that is not on disk yet."""
    world.inside.topics.delete_topics(DeleteTopics([TopicName(topic, b"")]), CallContext())
    world.inside.runtime.groups.seal()


def test_one_topic_that_is_going_makes_a_stable_read_of_several_wait() -> None:
    world = group_world()
    world.offsets.commits({"foo-0": 7})
    goes(world, "zar")
    reply = world.offsets.fetch("foo-0", "zar-0", stable=True)
    assert not reply.is_settled, "the deletion may be taken back by a crash"
    world.settle()
    (group,) = reply.result().groups
    assert [(code(each), each.committed_offset) for each in group.offsets] == [
        (OK, 7),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
    ]


def test_a_member_that_is_going_is_refused_once_it_is_gone() -> None:
    world = group_world()
    member = Consumer(world)
    assert code(member.joins("foo")) is OK
    epoch = member.epoch
    world.call(member.request(-1))
    world.inside.runtime.groups.seal()
    reply = world.offsets.fetch("foo-0", member_id=member.member_id, member_epoch=epoch)
    assert not reply.is_settled, "its leave may be taken back by a crash"
    world.settle()
    (group,) = reply.result().groups
    assert code(group) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_topic_that_goes_while_a_commit_waits_gets_no_offset_of_it() -> None:
    world = group_world(two_phase=TwoPhase.SPLIT)
    producer = world.offsets.producer()
    producer.commits({"foo-0": 1})
    ended = producer.end(COMMIT)
    world.flush()
    producer.identity = ended.result().next_identity
    waiting = world.call(producer.request({"zar-0": 9, "foo-0": 2}))
    assert producer.state() == "PrepareCommit"
    world.inside.topics.delete_topics(DeleteTopics([TopicName("zar", b"")]), CallContext())
    world.settle()
    assert results(waiting.result()) == {"zar-0": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "foo-0": OK}
    producer.ends(COMMIT)
    assert world.offsets.fetches() == {"foo-0": 2}
