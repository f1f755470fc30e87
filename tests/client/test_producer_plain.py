"""A producer without transactions: idempotent sends, and what a failed one costs."""

# Under test is the exit of a `with`, so the block that raises has the length of a transaction.
# ruff: noqa: PT012

from __future__ import annotations

import pytest

from coordinator_client import OutcomeUnknown, Recoverable, Rejected
from coordinator_client.errors import rejected
from coordinator_client.producer.rules import AfterSend, after_send
from coordinator_client.values import Identity
from coordinator_protocol.errors import ErrorCode
from coordinator_protocol.methods import Method
from tests.client.producers import produce_refused, producer_in
from tests.client.world import Fault, World


def test_a_plain_producer_sends_at_flush_and_at_close(world: World) -> None:
    with producer_in(world, None) as producer:
        producer.send("t", b"a", partition=0)
        producer.send("t", b"b", partition=0)
        assert world.server.visible() == []
        producer.flush()
        assert world.server.visible() == [b"a", b"b"]
        producer.send("t", b"c", partition=0)
    assert world.server.visible() == [b"a", b"b", b"c"]
    first, second = (request.batches[0].batch for request in world.requests(Method.PRODUCE))
    assert (first.base_sequence, second.base_sequence) == (0, 2)
    assert not first.is_transactional
    assert not world.requests(Method.INIT_PRODUCER_ID)[0].HasField("transactional_id")


def test_a_refused_batch_of_a_plain_producer_leaves_no_gap(world: World) -> None:
    producer = producer_in(world, None)
    producer.send("t", b"bad", partition=0)
    world.answer(Method.PRODUCE, produce_refused(ErrorCode.INVALID_RECORD))
    with pytest.raises(Rejected, match="INVALID_RECORD"):
        producer.flush()
    producer.send("t", b"good", partition=0)
    producer.flush()
    assert world.server.visible() == [b"good"]
    assert [item.batches[0].batch.base_sequence for item in world.requests(Method.PRODUCE)] == [0, 0]


def test_a_plain_batch_whose_fate_is_unknown_costs_the_identity(world: World) -> None:
    producer = producer_in(world, None, delivery_timeout_ms=200)
    producer.send("t", b"a", partition=0)
    world.fault(Method.PRODUCE, *[Fault.LOST_REPLY] * 30)
    with pytest.raises(OutcomeUnknown):
        producer.flush()
    world.faults.clear()
    producer.send("t", b"b", partition=0)
    producer.flush()
    assert world.server.visible() == [b"a", b"b"]
    last = world.requests(Method.PRODUCE)[-1].batches[0].batch
    assert (last.producer_id, last.base_sequence) == (102, 0)


def test_a_forgotten_plain_producer_gets_a_new_identity(world: World) -> None:
    producer = producer_in(world, None)
    producer.send("t", b"a", partition=0)
    world.answer(Method.PRODUCE, produce_refused(ErrorCode.UNKNOWN_PRODUCER_ID))
    with pytest.raises(Recoverable):
        producer.flush()
    producer.send("t", b"b", partition=0)
    producer.flush()
    assert producer.identity == Identity(102, 0)


def test_a_plain_producer_that_is_left_by_an_exception_still_flushes(world: World) -> None:
    with pytest.raises(ZeroDivisionError), producer_in(world, None) as producer:
        producer.send("t", b"a", partition=0)
        raise ZeroDivisionError
    assert world.server.visible() == [b"a"]
    with pytest.raises(KeyboardInterrupt), producer_in(world, None) as producer:
        producer.send("t", b"b", partition=0)
        raise KeyboardInterrupt
    assert world.server.visible() == [b"a"]


def test_a_plain_producer_without_a_server_says_so_at_flush(world: World) -> None:
    producer = producer_in(world, None, delivery_timeout_ms=100)
    producer.send("t", b"a", partition=0)
    world.fault(Method.INIT_PRODUCER_ID, *[Fault.LOST_REQUEST] * 30)
    with pytest.raises(OutcomeUnknown, match="InitProducerId"):
        producer.flush()


@pytest.mark.parametrize(("lost_attempts", "then"), [(0, AfterSend.GO_ON), (1, AfterSend.RENEW)])
def test_the_sequence_of_a_batch_that_may_be_in_the_log_is_not_used_again(lost_attempts: int, then: AfterSend) -> None:
    """It was refused at last, but what became of an attempt that was lost before is not known."""
    error = rejected(ErrorCode.MESSAGE_TOO_LARGE, "too large")
    error.lost_attempts = lost_attempts
    assert after_send(error, is_transactional=False) is then
