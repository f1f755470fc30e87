"""What a reader of offsets is told rests on what is durable: a refusal by a change that a crash would take back waits
for it."""

from __future__ import annotations

from coordinator_protocol.errors import ErrorCode
from coordinator_runtime.ports import CallContext
from partition_log.requests import DeleteTopics, TopicName
from tests.groups.committed.room import COMMIT, OK, OffsetRoom, code, results
from tests.groups.consumer.members import Consumer
from tests.groups.room import RoomOptions
from txn_coordinator.config import TwoPhase


def goes(room: OffsetRoom, topic: str) -> None:
    """The topic is being deleted, and that is not on disk yet."""
    room.inside.topics.delete_topics(DeleteTopics([TopicName(topic, b"")]), CallContext())
    room.inside.runtime.groups.seal()


def test_one_topic_that_is_going_makes_a_stable_read_of_several_wait() -> None:
    room = OffsetRoom()
    room.commits({"foo-0": 7})
    goes(room, "zar")
    reply = room.fetch("foo-0", "zar-0", stable=True)
    assert not reply.is_settled, "the deletion may be taken back by a crash"
    room.settle()
    (group,) = reply.result().groups
    assert [(code(each), each.committed_offset) for each in group.offsets] == [
        (OK, 7),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
    ]


def test_a_member_that_is_going_is_refused_once_it_is_gone() -> None:
    room = OffsetRoom()
    member = Consumer(room)
    assert code(member.joins("foo")) is OK
    epoch = member.epoch
    room.call(member.request(-1))
    room.inside.runtime.groups.seal()
    reply = room.fetch("foo-0", member_id=member.member_id, member_epoch=epoch)
    assert not reply.is_settled, "its leave may be taken back by a crash"
    room.settle()
    (group,) = reply.result().groups
    assert code(group) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_topic_that_goes_while_a_commit_waits_gets_no_offset_of_it() -> None:
    room = OffsetRoom(RoomOptions(two_phase=TwoPhase.SPLIT))
    producer = room.producer()
    producer.commits({"foo-0": 1})
    ended = producer.end(COMMIT)
    room.flush()
    producer.identity = ended.result().next_identity
    waiting = room.call(producer.request({"zar-0": 9, "foo-0": 2}))
    assert producer.state() == "PrepareCommit"
    room.inside.topics.delete_topics(DeleteTopics([TopicName("zar", b"")]), CallContext())
    room.settle()
    assert results(waiting.result()) == {"zar-0": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "foo-0": OK}
    producer.ends(COMMIT)
    assert room.fetches() == {"foo-0": 2}
