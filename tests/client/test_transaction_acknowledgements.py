"""Acknowledgements in a transaction: take records, write results, each counted once."""

# Under test is the exit of a `with`, so the block that raises has the length of a transaction.

from __future__ import annotations

import pytest

from coordinator_api.v1 import share_pb2 as share
from coordinator_client import Abortable, Fenced, Producer, Rejected, ShareConsumer, ShareRecords
from coordinator_protocol.errors import ErrorClass, ErrorCode
from coordinator_protocol.methods import Method
from tests.client.consumers import values
from tests.client.fake_server import TOPIC_ID, refuse
from tests.client.fake_share import ShareCluster
from tests.client.producers import ended, producer_in


class WorkerCluster(ShareCluster):
    """The group takes acknowledgements of transactions, and keeps them until these end."""

    def __init__(self) -> None:
        super().__init__()
        self.sent_alone_or_not: list[share.TxnShareAcknowledgeRequest] = []
        self.world.server.topics["out"] = 1
        self.world.server.handle(Method.TXN_SHARE_ACKNOWLEDGE, self.txn_acknowledge)
        self.group.append(0, b"a", b"b", b"c")

    def txn_acknowledge(self, request: share.TxnShareAcknowledgeRequest) -> share.TxnShareAcknowledgeResponse:
        self.sent_alone_or_not.append(request)
        reply = share.TxnShareAcknowledgeResponse()
        self.world.server.ids[request.transactional_id].state = "Ongoing"
        for asked in request.partitions:
            cells = self.group.partitions[asked.partition].cells
            offsets = [n for each in asked.acknowledgements for n in range(each.first_offset, each.last_offset + 1)]
            if any(cells[offset].state not in ("held", "pending") for offset in offsets):
                return refuse(
                    reply, Method.TXN_SHARE_ACKNOWLEDGE, ErrorCode.INVALID_RECORD_STATE, what=ErrorClass.ABORT
                )
            for offset in offsets:
                cells[offset].state = "pending"
        return reply

    def sent(self) -> list[share.TxnShareAcknowledgeRequest]:
        """The acknowledgements, in requests of their own or in those that commit."""
        return self.sent_alone_or_not


@pytest.fixture
def cluster() -> WorkerCluster:
    return WorkerCluster()


def work(producer: Producer, batch: ShareRecords) -> None:
    with producer.transaction() as txn:
        for record in batch:
            txn.send("out", record.value)
        txn.acknowledge(batch)


def test_results_and_acknowledgements_go_into_one_transaction(cluster: WorkerCluster) -> None:
    consumer, producer = cluster.member(explicit=True), producer_in(cluster.world)
    batch = consumer.poll()
    consumer.reject(batch[1])
    work(producer, batch)
    (sent,) = cluster.sent()
    assert (sent.transactional_id, sent.producer_id, sent.producer_epoch, sent.group_id) == ("p", 101, 0, "g")
    assert (sent.member_id, sent.member_epoch) == (cluster.group.member_id, cluster.group.member_epoch)
    (partition,) = sent.partitions
    assert (partition.topic, partition.topic_id, partition.partition) == ("t", TOPIC_ID, 0)
    (acks,) = partition.acknowledgements
    assert (acks.first_offset, acks.last_offset, list(acks.types)) == (0, 2, [1, 3, 1])
    assert ended(cluster.world) == [True]
    assert cluster.world.server.visible("out") == [b"a", b"b", b"c"]
    # They need no acknowledgement any more.
    assert not consumer.poll(timeout_ms=100)
    consumer.close()
    assert not cluster.group.acks


def test_released_records_are_left_out(cluster: WorkerCluster) -> None:
    consumer, producer = cluster.member(explicit=True), producer_in(cluster.world)
    batch = consumer.poll()
    consumer.release(batch[2])
    work(producer, batch)
    assert [each.last_offset for each in cluster.sent()[0].partitions[0].acknowledgements] == [1]
    assert values(consumer.poll()) == [b"c"]


def test_an_implicit_consumer_is_refused(cluster: WorkerCluster) -> None:
    consumer, producer = cluster.member(), producer_in(cluster.world)
    batch = consumer.poll()
    with pytest.raises(Rejected, match="explicit=True"):
        work(producer, batch)
    assert not cluster.sent()


def test_a_lost_lock_aborts_the_transaction_and_the_records_can_be_given_back(cluster: WorkerCluster) -> None:
    consumer, producer = cluster.member(explicit=True), producer_in(cluster.world)
    batch = consumer.poll()
    cluster.group.expire(offsets=[0])
    with pytest.raises(Abortable, match="INVALID_RECORD_STATE"):
        work(producer, batch)
    consumer.release(batch)
    with pytest.raises(Rejected, match="not held"):
        consumer.accept(batch)
    again = consumer.poll()
    assert (again[0].value, again[0].delivery_count) == (b"a", 2)
    cluster.group.expire(offsets=[1, 2])
    work(producer, again)
    assert ended(cluster.world) == [False, True]


def test_a_transaction_that_failed_before_gives_all_back(cluster: WorkerCluster) -> None:
    consumer, producer = cluster.member(explicit=True), producer_in(cluster.world)
    batch = consumer.poll()
    with pytest.raises(ZeroDivisionError), producer.transaction():
        raise ZeroDivisionError
    with pytest.raises(Rejected, match="not acknowledged"):
        consumer.poll()
    consumer.release(batch)
    assert [record.delivery_count for record in consumer.poll()] == [2, 2, 2]


def test_records_of_a_member_that_was_removed_abort_the_transaction(cluster: WorkerCluster) -> None:
    consumer, producer = cluster.member(explicit=True), producer_in(cluster.world)
    batch = consumer.poll()
    cluster.group.remove()
    cluster.world.pause(100)
    with pytest.raises(Abortable, match="not held by this consumer any more"):
        work(producer, batch)
    consumer.release(batch)
    assert not cluster.sent()


def test_acknowledging_twice_in_a_transaction_does_no_harm(cluster: WorkerCluster) -> None:
    consumer, producer = cluster.member(explicit=True), producer_in(cluster.world)
    batch = consumer.poll()
    with producer.transaction() as txn:
        txn.acknowledge(batch)
        txn.acknowledge(batch)
        txn.acknowledge(ShareRecords())
    assert [each.partitions for each in cluster.sent()] == [cluster.sent()[0].partitions] * 2
    assert ended(cluster.world) == [True]


def test_a_fenced_producer_acknowledges_nothing(cluster: WorkerCluster) -> None:
    consumer, old = cluster.member(explicit=True), producer_in(cluster.world)
    old.init()
    batch = consumer.poll()
    producer_in(cluster.world).init()
    refusal = refuse(share.TxnShareAcknowledgeResponse(), Method.TXN_SHARE_ACKNOWLEDGE, ErrorCode.PRODUCER_FENCED)
    cluster.world.answer(Method.TXN_SHARE_ACKNOWLEDGE, refusal)
    with pytest.raises(Fenced):
        work(old, batch)
    consumer.release(batch)
    assert isinstance(consumer, ShareConsumer)
    assert len(consumer.poll()) == 3
