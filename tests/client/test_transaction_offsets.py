"""Offsets in a transaction: consume, transform, produce, each record once."""

# What is under test is the exit of a `with`, so the block that raises has the length of a transaction.

from __future__ import annotations

import pytest

from coordinator_api.v1 import group_pb2 as group
from coordinator_client import Abortable, Consumer, Fenced, Producer, Rejected
from coordinator_protocol.errors import ErrorClass, ErrorCode
from coordinator_protocol.methods import Method
from tests.client.consumers import T0, ClassicRoom, Room, values
from tests.client.fake_server import TOPIC_ID, refuse
from tests.client.producers import ended, producer_in
from tests.client.world import Fault


class TransactionRoom(Room):
    """The group takes offsets of transactions too, and keeps them until they end."""

    def __init__(self) -> None:
        super().__init__()
        self.world.server.topics["out"] = 1
        self.world.server.handle(Method.TXN_OFFSET_COMMIT, self.txn_commit)
        self.topic.append(0, b"a", b"b")
        self.group.give(0)

    def txn_commit(self, request: group.TxnOffsetCommitRequest) -> group.TxnOffsetCommitResponse:
        reply = group.TxnOffsetCommitResponse()
        mapping = self.world.server.ids[request.transactional_id]
        mapping.state = "Ongoing"
        for topic in request.topics:
            for item in topic.partitions:
                result = reply.results.add(topic=topic.topic, partition=item.partition)
                if request.generation_id_or_member_epoch != self.group.member_epoch:
                    refuse(result, Method.TXN_OFFSET_COMMIT, ErrorCode.ILLEGAL_GENERATION)
        return reply

    def reading(self, **options) -> Consumer:
        return self.member(**({"enable_auto_commit": False} | options))

    def sent(self) -> list[group.TxnOffsetCommitRequest]:
        return self.world.requests(Method.TXN_OFFSET_COMMIT)


@pytest.fixture
def room() -> TransactionRoom:
    return TransactionRoom()


def copy(producer: Producer, consumer: Consumer, batch) -> None:
    with producer.transaction() as txn:
        for record in batch:
            txn.send("out", record.value)
        txn.commit_offsets(consumer, batch)


def refused_offsets(code: ErrorCode, what: ErrorClass | None = None) -> group.TxnOffsetCommitResponse:
    return refuse(group.TxnOffsetCommitResponse(), Method.TXN_OFFSET_COMMIT, code, what=what)


def test_records_and_offsets_go_into_one_transaction(room: TransactionRoom) -> None:
    consumer, producer = room.reading(group_instance_id="i"), producer_in(room.world)
    batch = consumer.poll()
    copy(producer, consumer, batch)
    (sent,) = room.sent()
    assert (sent.transactional_id, sent.producer_id, sent.producer_epoch) == ("p", 101, 0)
    assert (sent.group_id, sent.group_instance_id) == ("g", "i")
    assert (sent.member_id, sent.generation_id_or_member_epoch) == (room.group.member_id, room.group.member_epoch)
    (topic,) = sent.topics
    assert (topic.topic, topic.topic_id, topic.partitions[0].committed_offset) == ("t", TOPIC_ID, 2)
    assert ended(room.world) == [True]
    assert room.world.methods()[-1] is Method.END_TXN
    assert room.world.server.visible("out") == [b"a", b"b"]


def test_a_transaction_of_offsets_alone_is_one(room: TransactionRoom) -> None:
    consumer, producer = room.reading(), producer_in(room.world)
    with producer.transaction() as txn:
        txn.commit_offsets(consumer, consumer.poll())
    assert (len(room.sent()), ended(room.world)) == (1, [True])


def test_offsets_that_wait_for_the_commit_do_not_keep_a_full_buffer_from_being_sent(room: TransactionRoom) -> None:
    room.world.server.topics["wide"] = 50
    consumer, producer = room.reading(), producer_in(room.world, batch_bytes=8_192, buffer_bytes=16_384)
    batch = consumer.poll()
    with producer.transaction() as txn:
        txn.send("wide", b"so that the topic is known", partition=0)
    with producer.transaction() as txn:
        txn.commit_offsets(consumer, batch)
        for number in range(50):
            txn.send("wide", b"x" * 1_000, partition=number)
    assert len(room.world.server.visible("wide")) == 51


def test_offsets_may_be_chosen(room: TransactionRoom) -> None:
    consumer, producer = room.reading(), producer_in(room.world)
    consumer.poll()
    with producer.transaction() as txn:
        txn.commit_offsets(consumer, {("t", 0): 1})
    assert room.sent()[0].topics[0].partitions[0].committed_offset == 1
    with pytest.raises(Rejected, match="t-1 is not assigned"), producer.transaction() as txn:
        txn.commit_offsets(consumer, {("t", 1): 1})


def test_a_lost_answer_is_asked_for_again(room: TransactionRoom) -> None:
    consumer, producer = room.reading(), producer_in(room.world)
    room.world.fault(Method.TXN_OFFSET_COMMIT, Fault.LOST_REQUEST, Fault.LOST_REPLY)
    copy(producer, consumer, consumer.poll())
    assert (len(room.sent()), ended(room.world)) == (3, [True])


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.INVALID_GROUP_ID,
    ],
)
def test_offsets_that_are_refused_abort_the_transaction(room: TransactionRoom, code: ErrorCode) -> None:
    consumer, producer = room.reading(), producer_in(room.world)
    batch = consumer.poll()
    room.world.answer(Method.TXN_OFFSET_COMMIT, refused_offsets(code))
    with pytest.raises((Abortable, Rejected), match=code.name):
        copy(producer, consumer, batch)
    assert (ended(room.world), room.world.server.visible("out")) == ([False], [])
    consumer.rewind(batch)
    again = consumer.poll()
    assert values(again) == [b"a", b"b"]
    copy(producer, consumer, again)
    assert room.world.server.visible("out") == [b"a", b"b"]


def test_a_transaction_that_timed_out_is_told_from_a_rival(room: TransactionRoom) -> None:
    consumer, producer = room.reading(), producer_in(room.world)
    batch = consumer.poll()
    outdated = refused_offsets(ErrorCode.INVALID_PRODUCER_EPOCH, ErrorClass.RECOVER)
    room.world.answer(Method.TXN_OFFSET_COMMIT, outdated)
    with pytest.raises(Abortable):
        copy(producer, consumer, batch)
    room.world.answer(Method.TXN_OFFSET_COMMIT, refused_offsets(ErrorCode.INVALID_PRODUCER_EPOCH))
    producer_in(room.world).init()
    with pytest.raises(Fenced):
        copy(producer, consumer, batch)


def test_a_batch_of_partitions_that_moved_on_is_not_committed(room: TransactionRoom) -> None:
    consumer, producer = room.reading(), producer_in(room.world)
    batch = consumer.poll()
    room.group.give()
    room.world.pause(100)
    copy(producer, consumer, batch)
    consumer.poll(timeout_ms=100)
    room.group.give(0)
    consumer.poll(timeout_ms=100)
    with pytest.raises(Abortable, match="t-0 was taken from this consumer since the batch was polled"):
        copy(producer, consumer, batch)
    assert ended(room.world)[0]
    assert len(room.sent()) == 1


def test_a_listener_may_commit_the_transaction_when_partitions_go(room: TransactionRoom) -> None:
    from coordinator_client import RebalanceListener

    producer = producer_in(room.world)

    class Listener(RebalanceListener):
        def on_partitions_revoked(self, partitions) -> None:
            copy(producer, consumer, batch)

    consumer = room.reading()
    consumer.subscribe(["t"], listener=Listener())
    batch = consumer.poll()
    room.group.give()
    room.world.pause(100)
    consumer.poll(timeout_ms=100)
    assert ended(room.world) == [True]


def test_a_consumer_that_commits_by_itself_is_refused(room: TransactionRoom) -> None:
    consumer, producer = room.reading(enable_auto_commit=True), producer_in(room.world)
    with pytest.raises(Rejected, match="make it with enable_auto_commit=False"):
        copy(producer, consumer, consumer.poll())
    with pytest.raises(Rejected, match="the transaction is over"):
        producer.transaction().commit_offsets(consumer, consumer.poll(timeout_ms=1))


def test_a_classic_member_names_its_generation() -> None:
    room = ClassicRoom()
    room.topic.append(0, b"a")
    consumer = room.member(enable_auto_commit=False)
    offsets = consumer.transaction_offsets(consumer.poll())
    assert (offsets.metadata.generation, offsets.metadata.member_id, offsets.offsets) == (1, "m-1", {T0: (1, "", None)})
    assert consumer.group_metadata() == offsets.metadata


def test_a_rebalance_under_way_does_not_abort_what_is_still_held() -> None:
    room = ClassicRoom()
    consumer = room.cooperative(enable_auto_commit=False)
    consumer.poll(timeout_ms=100)
    room.world.fault(Method.JOIN_GROUP, Fault.SILENT)
    room.group.rebalance()
    room.world.pause(10)
    consumer.poll(timeout_ms=10)
    room.topic.append(0, b"a")
    offsets = consumer.transaction_offsets(consumer.poll(timeout_ms=1_000))
    assert room.world.requests(Method.JOIN_GROUP)[-1].member_id == "m-1"
    assert (offsets.metadata.generation, offsets.offsets) == (1, {T0: (1, "", None)})
