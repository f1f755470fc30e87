"""Offsets in a transaction: consume, transform, produce, each record once."""

# Under test is the exit of a `with`, so the block that raises has the length of a transaction.

from __future__ import annotations

import pytest

from coordinator_api.v1 import group_pb2 as group
from coordinator_client import Abortable, Consumer, Fenced, Producer, Rejected
from coordinator_protocol.errors import ErrorClass, ErrorCode
from coordinator_protocol.methods import Method
from tests.client.consumers import T0, ClassicCluster, FakeCluster, values
from tests.client.fake_server import TOPIC_ID, refuse
from tests.client.producers import ended, producer_in
from tests.client.world import Fault


class TransactionCluster(FakeCluster):
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
def cluster() -> TransactionCluster:
    return TransactionCluster()


def copy(producer: Producer, consumer: Consumer, batch) -> None:
    with producer.transaction() as txn:
        for record in batch:
            txn.send("out", record.value)
        txn.commit_offsets(consumer, batch)


def refused_offsets(code: ErrorCode, what: ErrorClass | None = None) -> group.TxnOffsetCommitResponse:
    return refuse(group.TxnOffsetCommitResponse(), Method.TXN_OFFSET_COMMIT, code, what=what)


def test_records_and_offsets_go_into_one_transaction(cluster: TransactionCluster) -> None:
    consumer, producer = cluster.reading(group_instance_id="i"), producer_in(cluster.world)
    batch = consumer.poll()
    copy(producer, consumer, batch)
    (sent,) = cluster.sent()
    assert (sent.transactional_id, sent.producer_id, sent.producer_epoch) == ("p", 101, 0)
    assert (sent.group_id, sent.group_instance_id) == ("g", "i")
    assert (sent.member_id, sent.generation_id_or_member_epoch) == (cluster.group.member_id, cluster.group.member_epoch)
    (topic,) = sent.topics
    assert (topic.topic, topic.topic_id, topic.partitions[0].committed_offset) == ("t", TOPIC_ID, 2)
    assert ended(cluster.world) == [True]
    assert cluster.world.methods()[-1] is Method.END_TXN
    assert cluster.world.server.visible("out") == [b"a", b"b"]


def test_a_transaction_of_offsets_alone_is_one(cluster: TransactionCluster) -> None:
    consumer, producer = cluster.reading(), producer_in(cluster.world)
    with producer.transaction() as txn:
        txn.commit_offsets(consumer, consumer.poll())
    assert (len(cluster.sent()), ended(cluster.world)) == (1, [True])


def test_offsets_that_wait_for_the_commit_do_not_keep_a_full_buffer_from_being_sent(
    cluster: TransactionCluster,
) -> None:
    cluster.world.server.topics["wide"] = 50
    consumer, producer = cluster.reading(), producer_in(cluster.world, batch_bytes=8_192, buffer_bytes=16_384)
    batch = consumer.poll()
    with producer.transaction() as txn:
        txn.send("wide", b"so that the topic is known", partition=0)
    with producer.transaction() as txn:
        txn.commit_offsets(consumer, batch)
        for number in range(50):
            txn.send("wide", b"x" * 1_000, partition=number)
    assert len(cluster.world.server.visible("wide")) == 51


def test_offsets_may_be_chosen(cluster: TransactionCluster) -> None:
    consumer, producer = cluster.reading(), producer_in(cluster.world)
    consumer.poll()
    with producer.transaction() as txn:
        txn.commit_offsets(consumer, {("t", 0): 1})
    assert cluster.sent()[0].topics[0].partitions[0].committed_offset == 1
    with pytest.raises(Rejected, match="t-1 is not assigned"), producer.transaction() as txn:
        txn.commit_offsets(consumer, {("t", 1): 1})


def test_a_lost_answer_is_asked_for_again(cluster: TransactionCluster) -> None:
    consumer, producer = cluster.reading(), producer_in(cluster.world)
    cluster.world.fault(Method.TXN_OFFSET_COMMIT, Fault.LOST_REQUEST, Fault.LOST_REPLY)
    copy(producer, consumer, consumer.poll())
    assert (len(cluster.sent()), ended(cluster.world)) == (3, [True])


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.INVALID_GROUP_ID,
    ],
)
def test_offsets_that_are_refused_abort_the_transaction(cluster: TransactionCluster, code: ErrorCode) -> None:
    consumer, producer = cluster.reading(), producer_in(cluster.world)
    batch = consumer.poll()
    cluster.world.answer(Method.TXN_OFFSET_COMMIT, refused_offsets(code))
    with pytest.raises((Abortable, Rejected), match=code.name):
        copy(producer, consumer, batch)
    assert (ended(cluster.world), cluster.world.server.visible("out")) == ([False], [])
    consumer.rewind(batch)
    again = consumer.poll()
    assert values(again) == [b"a", b"b"]
    copy(producer, consumer, again)
    assert cluster.world.server.visible("out") == [b"a", b"b"]


def test_a_transaction_that_timed_out_is_told_from_a_rival(cluster: TransactionCluster) -> None:
    consumer, producer = cluster.reading(), producer_in(cluster.world)
    batch = consumer.poll()
    outdated = refused_offsets(ErrorCode.INVALID_PRODUCER_EPOCH, ErrorClass.RECOVER)
    cluster.world.answer(Method.TXN_OFFSET_COMMIT, outdated)
    with pytest.raises(Abortable):
        copy(producer, consumer, batch)
    cluster.world.answer(Method.TXN_OFFSET_COMMIT, refused_offsets(ErrorCode.INVALID_PRODUCER_EPOCH))
    producer_in(cluster.world).init()
    with pytest.raises(Fenced):
        copy(producer, consumer, batch)


def test_a_batch_of_partitions_that_moved_on_is_not_committed(cluster: TransactionCluster) -> None:
    consumer, producer = cluster.reading(), producer_in(cluster.world)
    batch = consumer.poll()
    cluster.group.give()
    cluster.world.pause(100)
    copy(producer, consumer, batch)
    consumer.poll(timeout_ms=100)
    cluster.group.give(0)
    consumer.poll(timeout_ms=100)
    with pytest.raises(Abortable, match="t-0 was taken from this consumer since the batch was polled"):
        copy(producer, consumer, batch)
    assert ended(cluster.world)[0]
    assert len(cluster.sent()) == 1


def test_a_listener_may_commit_the_transaction_when_partitions_go(cluster: TransactionCluster) -> None:
    from coordinator_client import RebalanceListener

    producer = producer_in(cluster.world)

    class Listener(RebalanceListener):
        def on_partitions_revoked(self, partitions) -> None:
            copy(producer, consumer, batch)

    consumer = cluster.reading()
    consumer.subscribe(["t"], listener=Listener())
    batch = consumer.poll()
    cluster.group.give()
    cluster.world.pause(100)
    consumer.poll(timeout_ms=100)
    assert ended(cluster.world) == [True]


def test_a_consumer_that_commits_by_itself_is_refused(cluster: TransactionCluster) -> None:
    consumer, producer = cluster.reading(enable_auto_commit=True), producer_in(cluster.world)
    with pytest.raises(Rejected, match="make it with enable_auto_commit=False"):
        copy(producer, consumer, consumer.poll())
    with pytest.raises(Rejected, match="the transaction is over"):
        producer.transaction().commit_offsets(consumer, consumer.poll(timeout_ms=1))


def test_a_classic_member_names_its_generation() -> None:
    cluster = ClassicCluster()
    cluster.topic.append(0, b"a")
    consumer = cluster.member(enable_auto_commit=False)
    offsets = consumer.transaction_offsets(consumer.poll())
    assert (offsets.metadata.generation, offsets.metadata.member_id, offsets.offsets) == (1, "m-1", {T0: (1, "", None)})
    assert consumer.group_metadata() == offsets.metadata


def test_a_rebalance_under_way_does_not_abort_what_is_still_held() -> None:
    cluster = ClassicCluster()
    consumer = cluster.cooperative(enable_auto_commit=False)
    consumer.poll(timeout_ms=100)
    cluster.world.fault(Method.JOIN_GROUP, Fault.SILENT)
    cluster.group.rebalance()
    cluster.world.pause(10)
    consumer.poll(timeout_ms=10)
    cluster.topic.append(0, b"a")
    offsets = consumer.transaction_offsets(consumer.poll(timeout_ms=1_000))
    assert cluster.world.requests(Method.JOIN_GROUP)[-1].member_id == "m-1"
    assert (offsets.metadata.generation, offsets.offsets) == (1, {T0: (1, "", None)})
