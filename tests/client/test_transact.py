"""A whole transaction in one request: when it is one, and what the client says when it is refused or lost."""

# Under test is the exit of a `with`, so the block that raises has the length of a transaction.
# ruff: noqa: PT012

from __future__ import annotations

import pytest

from coordinator_api.v1 import transaction_pb2 as txn_api
from coordinator_client import Abortable, Fenced, Misconfigured, OutcomeUnknown, Producer, Recoverable, Rejected
from coordinator_client.producer.state import ProducerStatus
from coordinator_client.values import Identity
from coordinator_protocol.errors import ErrorCode
from coordinator_protocol.methods import Method
from tests.client.fake_server import refuse
from tests.client.producers import commit, ended, producer_in
from tests.client.test_transaction_offsets import TransactionCluster, copy
from tests.client.world import Fault, World


def whole(world: World, **options) -> Producer:
    options.setdefault("transact_bytes", 100_000)
    return producer_in(world, **options)


def refused(code: ErrorCode) -> txn_api.TransactResponse:
    return refuse(txn_api.TransactResponse(), Method.TRANSACT, code)


def changing(world: World) -> list[Method]:
    """Return the requests that can change something, after the producer was initialised."""
    quiet = (Method.INIT_PRODUCER_ID, Method.DESCRIBE_TOPICS)
    return [method for method in world.methods() if method not in quiet]


def test_a_transaction_that_fits_is_one_request(world: World) -> None:
    producer = whole(world)
    with producer.transaction() as txn:
        for partition in range(3):
            txn.send("t", b"%d" % partition, partition=partition)
    assert changing(world) == [Method.TRANSACT]
    assert (txn.csn, producer.identity) == (1, Identity(101, 1))
    assert world.server.visible() == [b"0", b"1", b"2"]
    commit(producer, b"next")
    assert changing(world) == [Method.TRANSACT] * 2


def test_one_that_is_too_large_goes_in_parts(world: World) -> None:
    producer = whole(world, transact_bytes=10_000)
    commit(producer, b"x" * 5_000, b"y" * 5_000)
    assert changing(world) == [Method.PRODUCE, Method.END_TXN]
    assert len(world.server.visible()) == 2


def test_the_rest_of_one_that_was_flushed_goes_with_its_commit(world: World) -> None:
    producer = whole(world)
    with producer.transaction() as txn:
        txn.send("t", b"early", partition=0)
        txn.flush()
        txn.send("t", b"late", partition=0)
    assert changing(world) == [Method.PRODUCE, Method.TRANSACT]
    with producer.transaction() as txn:
        txn.send("t", b"x", partition=0)
        txn.flush()
    assert changing(world)[2:] == [Method.PRODUCE, Method.END_TXN]
    assert world.server.visible() == [b"early", b"late", b"x"]


def test_the_rest_waits_for_what_is_on_its_way(world: World) -> None:
    producer = whole(world, batch_bytes=4_096)
    world.fault(Method.PRODUCE, Fault.LOST_REQUEST)
    values = [b"%d" % number * 1_500 for number in range(2)]
    commit(producer, *values)
    assert changing(world) == [Method.PRODUCE, Method.PRODUCE, Method.TRANSACT]
    assert world.server.visible() == values


def test_a_refused_rest_leaves_something_to_abort(world: World) -> None:
    producer = whole(world)
    world.answer(Method.TRANSACT, refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    with pytest.raises(Abortable), producer.transaction() as txn:
        txn.send("t", b"early", partition=0)
        txn.flush()
        txn.send("t", b"late", partition=1)
    assert ended(world) == [False]
    commit(producer, b"y")
    assert world.server.visible() == [b"y"]


def test_a_rest_that_comes_after_the_timeout_is_no_rival(world: World) -> None:
    producer = whole(world)
    with pytest.raises(Abortable, match="the server had aborted the transaction"), producer.transaction() as txn:
        txn.send("t", b"early", partition=0)
        txn.flush()
        txn.send("t", b"late", partition=1)
        world.server.time_out("p")
    commit(producer, b"y")
    assert world.server.visible() == [b"y"]


def test_one_that_is_left_by_an_exception_is_never_sent(world: World) -> None:
    producer = whole(world)
    with pytest.raises(ZeroDivisionError), producer.transaction() as txn:
        txn.send("t", b"x", partition=0)
        raise ZeroDivisionError
    assert changing(world) == []
    commit(producer, b"y")
    assert world.server.visible() == [b"y"]


@pytest.mark.parametrize("fault", [fault for fault in Fault if fault is not Fault.NONE])
def test_a_lost_attempt_is_made_again_under_the_same_name(world: World, fault: Fault) -> None:
    producer = whole(world)
    world.fault(Method.TRANSACT, fault)
    commit(producer, b"once")
    world.settle()
    assert world.server.visible() == [b"once"]
    assert len({request.header.request_id for request in world.requests(Method.TRANSACT)}) == 1


def test_an_outcome_that_stays_unknown_can_be_asked_for(world: World) -> None:
    producer = whole(world, delivery_timeout_ms=300)
    producer.init()
    world.fault(Method.TRANSACT, Fault.LOST_REPLY, *[Fault.LOST_REQUEST] * 50)
    with pytest.raises(OutcomeUnknown) as caught:
        commit(producer, b"x")
    assert caught.value.may_have_committed
    world.faults.clear()
    assert producer.resolve_outcome()
    assert producer.status is ProducerStatus.READY
    commit(producer, b"y")
    assert world.server.visible() == [b"x", b"y"]


def test_one_that_the_server_never_took_is_aborted_without_a_question(world: World) -> None:
    producer = whole(world, delivery_timeout_ms=300)
    producer.init()
    world.answer(Method.TRANSACT, *[refused(ErrorCode.THROTTLING_QUOTA_EXCEEDED)] * 50)
    with pytest.raises(Abortable, match="THROTTLING_QUOTA_EXCEEDED") as caught:
        commit(producer, b"x")
    assert not caught.value.may_have_committed
    assert ended(world) == []
    world.scripted.clear()
    commit(producer, b"y")
    assert world.server.visible() == [b"y"]


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, Abortable),
        (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, Abortable),
        (ErrorCode.MESSAGE_TOO_LARGE, Rejected),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, Recoverable),
    ],
)
def test_a_refusal_leaves_nothing_to_abort(world: World, code: ErrorCode, kind: type[Exception]) -> None:
    producer = whole(world)
    world.answer(Method.TRANSACT, refused(code))
    with pytest.raises(kind):
        commit(producer, b"x")
    assert ended(world) == []
    commit(producer, b"y")
    assert world.server.visible() == [b"y"]


def test_a_refusal_after_a_lost_attempt_ends_the_epoch_that_would_let_it_in(world: World) -> None:
    producer = whole(world)
    producer.init()
    world.fault(Method.TRANSACT, Fault.LATE)
    world.answer(Method.TRANSACT, refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    with pytest.raises(Abortable):
        commit(producer, b"late")
    assert ended(world) == [False]
    world.settle()
    assert world.server.visible() == []
    commit(producer, b"y")
    assert world.server.visible() == [b"y"]


def test_that_question_stays_open_without_an_answer(world: World) -> None:
    producer = whole(world, delivery_timeout_ms=300)
    producer.init()
    world.fault(Method.TRANSACT, Fault.LOST_REQUEST)
    world.answer(Method.TRANSACT, refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    world.fault(Method.END_TXN, *[Fault.LOST_REQUEST] * 50)
    with pytest.raises(OutcomeUnknown, match="an earlier attempt of it can still succeed") as caught:
        commit(producer, b"x")
    assert caught.value.may_have_committed
    world.faults.clear()
    assert not producer.resolve_outcome()
    commit(producer, b"y")
    assert world.server.visible() == [b"y"]


def test_a_topic_of_a_refused_transaction_is_looked_up_again(world: World) -> None:
    producer = whole(world)
    world.answer(Method.TRANSACT, refused(ErrorCode.UNKNOWN_TOPIC_ID))
    with pytest.raises(Abortable):
        commit(producer, b"x")
    commit(producer, b"y")
    assert len(world.requests(Method.DESCRIBE_TOPICS)) == 2


def test_a_rival_is_told_from_a_server_that_aborted(world: World) -> None:
    producer = whole(world)
    with pytest.raises(Fenced), producer.transaction() as txn:
        txn.send("t", b"x", partition=0)
        whole(world).init()
    assert producer.status is ProducerStatus.CLOSED
    assert world.server.visible() == []


def test_a_server_that_does_not_know_it_is_no_riddle(world: World) -> None:
    world.answer(Method.TRANSACT, refused(ErrorCode.UNSUPPORTED_VERSION))
    with pytest.raises(Misconfigured, match="UNSUPPORTED_VERSION"):
        commit(whole(world), b"x")


def test_offsets_go_with_it() -> None:
    cluster = TransactionCluster()
    consumer, producer = cluster.reading(group_instance_id="i"), whole(cluster.world)
    copy(producer, consumer, consumer.poll())
    (request,) = cluster.world.requests(Method.TRANSACT)
    (offsets,) = request.groups
    assert (offsets.group_id, offsets.group_instance_id, offsets.member_id) == ("g", "i", cluster.group.member_id)
    assert offsets.topics[0].partitions[0].committed_offset == 2
    assert cluster.sent() == []
    assert cluster.world.server.visible("out") == [b"a", b"b"]


def test_offsets_alone_are_a_transaction() -> None:
    cluster = TransactionCluster()
    consumer, producer = cluster.reading(), whole(cluster.world)
    with producer.transaction() as txn:
        txn.commit_offsets(consumer, consumer.poll())
    (request,) = cluster.world.requests(Method.TRANSACT)
    assert (len(request.groups), len(request.batches)) == (1, 0)


def test_offsets_that_are_refused_refuse_everything() -> None:
    cluster = TransactionCluster()
    consumer, producer = cluster.reading(), whole(cluster.world)
    batch = consumer.poll()
    cluster.world.answer(Method.TRANSACT, refused(ErrorCode.ILLEGAL_GENERATION))
    with pytest.raises(Abortable, match="ILLEGAL_GENERATION"):
        copy(producer, consumer, batch)
    assert cluster.world.server.visible("out") == []
    consumer.rewind(batch)
    copy(producer, consumer, consumer.poll())
    assert cluster.world.server.visible("out") == [b"a", b"b"]


def test_a_group_that_is_named_twice_goes_in_parts() -> None:
    cluster = TransactionCluster()
    consumer, producer = cluster.reading(), whole(cluster.world)
    consumer.poll()
    with producer.transaction() as txn:
        txn.commit_offsets(consumer, {("t", 0): 1})
        txn.commit_offsets(consumer, {("t", 0): 2})
    assert changing(cluster.world)[-3:] == [Method.TXN_OFFSET_COMMIT, Method.TXN_OFFSET_COMMIT, Method.END_TXN]


@pytest.mark.parametrize("size", [-1, 1 << 20])
def test_a_size_that_no_message_has_is_refused(world: World, size: int) -> None:
    with pytest.raises(Misconfigured, match="transact_bytes"):
        producer_in(world, transact_bytes=size)
