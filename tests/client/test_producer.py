"""The blocking producer in a world without clock and network: what it sends, what it tells its caller, what it
survives."""

# Under test is the exit of a `with`, so the block that raises has the length of a transaction.
# ruff: noqa: PT012

from __future__ import annotations

import pytest

from coordinator_client import (
    Abortable,
    Fenced,
    Misconfigured,
    OutcomeUnknown,
    Recoverable,
    Rejected,
    Retriable,
)
from coordinator_client.errors import Loss
from coordinator_client.producer.state import ProducerStatus
from coordinator_client.values import Identity
from coordinator_protocol.errors import ErrorClass, ErrorCode
from coordinator_protocol.methods import Method
from tests.client.producers import commit, ended, produce_refused, producer_in, refused
from tests.client.world import WALL_MS, Fault, World

# The ordinary course.


def test_a_clean_exit_commits_and_the_answer_is_the_next_identity(world: World) -> None:
    producer = producer_in(world)
    assert commit(producer, b"a", b"b") == 1
    assert world.server.visible() == [b"a", b"b"]
    assert producer.identity == Identity(101, 1)
    assert commit(producer, b"c") == 2
    assert [request.producer_epoch for request in world.requests(Method.END_TXN)] == [0, 1]
    assert world.requests(Method.PRODUCE)[1].batches[0].batch.base_sequence == 0


def test_nothing_is_sent_before_the_first_use(world: World) -> None:
    producer = producer_in(world)
    assert world.sent == []
    producer.init()
    assert world.methods() == [Method.INIT_PRODUCER_ID]
    producer.init()
    assert world.methods() == [Method.INIT_PRODUCER_ID]


def test_a_transaction_without_records_ends_without_a_request(world: World) -> None:
    producer = producer_in(world)
    assert commit(producer) == 0
    with pytest.raises(KeyError), producer.transaction():
        raise KeyError("nothing sent either")
    assert world.methods() == [Method.INIT_PRODUCER_ID]


def test_end_txn_names_the_last_sequence_of_every_partition(world: World) -> None:
    producer = producer_in(world)
    with producer.transaction() as txn:
        for number in range(5):
            txn.send("t", b"%d" % number, partition=number % 2)
    (request,) = world.requests(Method.END_TXN)
    assert [(last.topic, last.partition, last.sequence) for last in request.last_sequences] == [
        ("t", 0, 2),
        ("t", 1, 1),
    ]


def test_every_mutating_request_has_an_id_of_its_own(world: World) -> None:
    producer = producer_in(world)
    commit(producer, b"a")
    commit(producer, b"b")
    ids = [request.header.request_id for method, request in world.sent if method is not Method.DESCRIBE_TOPICS]
    assert len(set(ids)) == len(ids) == 5
    assert {len(request_id) for request_id in ids} == {16}


def test_a_record_gets_the_time_of_its_send_unless_it_brings_one(world: World) -> None:
    producer = producer_in(world)
    commit(producer, b"a")
    commit(producer, b"b", timestamp_ms=7)
    first, second = (request.batches[0].batch for request in world.requests(Method.PRODUCE))
    assert first.base_timestamp_ms >= WALL_MS
    assert second.base_timestamp_ms == second.max_timestamp_ms == 7


def test_an_exception_of_the_body_aborts_and_goes_on(world: World) -> None:
    producer = producer_in(world)
    with pytest.raises(ZeroDivisionError) as caught, producer.transaction() as txn:
        txn.send("t", b"never seen", partition=0)
        txn.flush()
        raise ZeroDivisionError
    assert not hasattr(caught.value, "__notes__")
    assert ended(world) == [False]
    commit(producer, b"seen")
    assert world.server.visible() == [b"seen"]


def test_control_c_in_the_body_aborts(world: World) -> None:
    producer = producer_in(world)
    with pytest.raises(KeyboardInterrupt), producer.transaction() as txn:
        txn.send("t", b"never seen", partition=0)
        txn.flush()
        raise KeyboardInterrupt
    assert ended(world) == [False]


def test_an_abort_that_fails_is_noted_on_the_users_exception(world: World) -> None:
    producer = producer_in(world, delivery_timeout_ms=500)
    world.fault(Method.END_TXN, *[Fault.LOST_REQUEST] * 50)
    with pytest.raises(ZeroDivisionError) as caught, producer.transaction() as txn:
        txn.send("t", b"x", partition=0)
        txn.flush()
        raise ZeroDivisionError
    assert "the abort that followed failed: NETWORK_EXCEPTION" in caught.value.__notes__[0]
    world.faults.clear()
    commit(producer, b"next")
    assert world.server.visible() == [b"next"]


def test_an_explicit_abort_ends_the_transaction_and_nothing_more_happens(world: World) -> None:
    producer = producer_in(world)
    with producer.transaction() as txn:
        txn.send("t", b"x", partition=0)
        txn.flush()
        txn.abort()
        with pytest.raises(Rejected, match="the transaction is over"):
            txn.send("t", b"y")
    assert ended(world) == [False]


def test_closing_with_an_open_transaction_aborts_it(world: World) -> None:
    producer = producer_in(world)
    txn = producer.transaction()
    txn.__enter__()
    txn.send("t", b"x", partition=0)
    txn.flush()
    producer.close()
    producer.close()
    assert ended(world) == [False]
    with pytest.raises(Rejected, match="the producer is closed"), producer.transaction():
        pass


# Lost answers.


@pytest.mark.parametrize("method", [Method.INIT_PRODUCER_ID, Method.PRODUCE, Method.END_TXN])
@pytest.mark.parametrize("fault", [fault for fault in Fault if fault is not Fault.NONE])
def test_one_fault_anywhere_changes_nothing_for_the_caller(world: World, method: Method, fault: Fault) -> None:
    world.fault(method, fault)
    producer = producer_in(world)
    commit(producer, b"a")
    commit(producer, b"b")
    world.settle()
    assert world.server.visible() == [b"a", b"b"]
    attempts = [request.SerializeToString() for request in world.requests(method)]
    if fault in (Fault.LOST_REQUEST, Fault.LOST_REPLY, Fault.LATE, Fault.SILENT, Fault.UNSURE):
        assert attempts[0] == attempts[1], "the same request, under the same request id"


def test_a_restart_of_the_server_is_waited_out_with_growing_pauses(world: World) -> None:
    producer = producer_in(world)
    producer.init()
    world.fault(Method.PRODUCE, *[Fault.LOST_REQUEST] * 20)
    started_ms = world.now_ms
    commit(producer, b"a")
    assert world.server.visible() == [b"a"]
    assert 12 * 500 < world.now_ms - started_ms < 20 * 1_000


def test_a_commit_without_an_answer_is_unknown_until_it_is_resolved(world: World) -> None:
    producer = producer_in(world, delivery_timeout_ms=1_000)
    world.fault(Method.END_TXN, *[Fault.LOST_REPLY] * 100)
    with pytest.raises(OutcomeUnknown, match="no definite answer within") as caught:
        commit(producer, b"a")
    assert caught.value.may_have_committed
    assert caught.value.lost_attempts > 5
    with pytest.raises(OutcomeUnknown, match="the outcome of the last commit is not known"):
        commit(producer, b"b")
    world.faults.clear()
    assert producer.resolve_outcome()
    commit(producer, b"b")
    assert world.server.visible() == [b"a", b"b"]
    with pytest.raises(Rejected, match="no commit whose outcome is unknown"):
        producer.resolve_outcome()


def test_a_commit_that_never_arrived_resolves_to_aborted_after_the_timeout(world: World) -> None:
    producer = producer_in(world, delivery_timeout_ms=1_000)
    world.fault(Method.END_TXN, *[Fault.LOST_REQUEST] * 100)
    with pytest.raises(OutcomeUnknown):
        commit(producer, b"a")
    world.faults.clear()
    world.server.time_out("p")
    assert not producer.resolve_outcome()
    commit(producer, b"b")
    assert world.server.visible() == [b"b"]


def test_a_commit_that_is_resolved_while_a_rival_took_over_stays_unknown(world: World) -> None:
    producer = producer_in(world, delivery_timeout_ms=1_000)
    world.fault(Method.END_TXN, *[Fault.LOST_REPLY] * 100)
    with pytest.raises(OutcomeUnknown):
        commit(producer, b"a")
    world.faults.clear()
    producer_in(world).init()
    with pytest.raises(Fenced) as caught:
        producer.resolve_outcome()
    assert caught.value.may_have_committed
    assert world.server.visible() == [b"a"]


def test_a_server_that_cannot_say_what_it_did_leaves_a_commit_unknown(world: World) -> None:
    producer = producer_in(world, delivery_timeout_ms=300)
    world.fault(Method.END_TXN, *[Fault.UNSURE] * 50)
    with pytest.raises(OutcomeUnknown, match="REQUEST_TIMED_OUT"):
        commit(producer, b"a")
    world.faults.clear()
    assert producer.resolve_outcome()


def test_a_commit_after_the_timeout_leaves_no_question_if_its_abort_is_lost(world: World) -> None:
    producer = producer_in(world, delivery_timeout_ms=300)
    with pytest.raises(Abortable, match="the server had aborted") as caught, producer.transaction() as txn:
        txn.send("t", b"a", partition=0)
        txn.flush()
        world.server.time_out("p")
        world.fault(Method.END_TXN, Fault.NONE, *[Fault.LOST_REQUEST] * 50)
    assert not caught.value.may_have_committed
    assert "the abort that followed was not confirmed" in caught.value.__notes__[0]
    world.faults.clear()
    commit(producer, b"b")
    assert world.server.visible() == [b"b"]


def test_batches_of_a_partition_wait_for_each_other(world: World) -> None:
    producer = producer_in(world, batch_bytes=4_096)
    producer.init()
    world.fault(Method.PRODUCE, Fault.LOST_REQUEST, Fault.LATE, Fault.TWICE, Fault.LOST_REPLY)
    values = [b"%d" % number * 1_000 for number in range(10)]
    commit(producer, *values)
    world.settle()
    assert world.server.visible() == values
    sequences = [request.batches[0].batch.base_sequence for request in world.requests(Method.PRODUCE)]
    assert sequences == sorted(sequences)
    assert len(set(sequences)) > 3


def test_control_c_in_a_commit_leaves_it_to_be_resolved(world: World) -> None:
    producer = producer_in(world)
    producer.init()
    world.interrupts[Method.END_TXN] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt) as caught:
        commit(producer, b"a")
    assert "resolve_outcome" in caught.value.__notes__[0]
    assert producer.resolve_outcome()
    assert world.server.visible() == [b"a"]


def test_control_c_while_a_commit_still_sends_its_records_aborts(world: World) -> None:
    producer = producer_in(world)
    producer.init()
    world.interrupts[Method.PRODUCE] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        commit(producer, b"a")
    assert ended(world) == [False]
    commit(producer, b"b")
    world.settle()
    assert world.server.visible() == [b"b"]


def test_a_send_given_up_at_the_deadline_is_abortable_because_the_abort_decides(world: World) -> None:
    producer = producer_in(world, delivery_timeout_ms=300)
    producer.init()
    world.fault(Method.PRODUCE, *[Fault.LOST_REPLY] * 50)
    with pytest.raises(Abortable, match="Produce: no definite answer"):
        commit(producer, b"a")
    assert ended(world) == [False]
    world.faults.clear()
    commit(producer, b"b")
    assert world.server.visible() == [b"b"]


def test_an_initialisation_without_an_answer_is_repeated_under_the_same_id(world: World) -> None:
    producer = producer_in(world, delivery_timeout_ms=200)
    world.fault(Method.INIT_PRODUCER_ID, *[Fault.LOST_REPLY] * 30)
    with pytest.raises(OutcomeUnknown, match="Try again: the same request is repeated"):
        producer.init()
    world.faults.clear()
    producer.init()
    assert producer.identity == Identity(101, 0)
    assert len({request.header.request_id for request in world.requests(Method.INIT_PRODUCER_ID)}) == 1


def test_a_busy_server_that_changes_nothing_is_retriable_at_the_deadline(world: World) -> None:
    producer = producer_in(world, delivery_timeout_ms=200)
    busy = refused(Method.INIT_PRODUCER_ID, ErrorCode.CONCURRENT_TRANSACTIONS)
    world.answer(Method.INIT_PRODUCER_ID, *[busy] * 30)
    with pytest.raises(Retriable, match="CONCURRENT_TRANSACTIONS"):
        producer.init()


def test_a_throttled_request_waits_as_long_as_the_server_asks(world: World) -> None:
    producer = producer_in(world)
    throttled = refused(Method.INIT_PRODUCER_ID, ErrorCode.THROTTLING_QUOTA_EXCEEDED)
    throttled.throttle_ms = 5_000
    world.answer(Method.INIT_PRODUCER_ID, throttled)
    producer.init()
    assert 5_000 <= world.now_ms < 5_100


# Refusals.


def test_a_failed_send_fails_the_commit_before_end_txn(world: World) -> None:
    """KAFKA-9279."""
    producer = producer_in(world)
    world.answer(Method.PRODUCE, produce_refused(ErrorCode.NONE, ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_RECORD))
    with pytest.raises(Rejected, match="MESSAGE_TOO_LARGE") as caught, producer.transaction() as txn:
        for partition in range(3):
            txn.send("t", b"x", partition=partition)
    assert caught.value.__notes__ == ["further sends that failed: 1"]
    assert ended(world) == [False]
    commit(producer, b"next")
    assert world.server.visible() == [b"next"]


def test_after_a_failed_send_the_next_one_says_so(world: World) -> None:
    producer = producer_in(world)
    world.answer(Method.PRODUCE, produce_refused(ErrorCode.INVALID_RECORD))
    with producer.transaction() as txn:
        txn.send("t", b"x", partition=0)
        with pytest.raises(Rejected, match="INVALID_RECORD"):
            txn.flush()
        with pytest.raises(Rejected, match="INVALID_RECORD"):
            txn.send("t", b"y", partition=0)
        txn.abort()
    assert ended(world) == [False]


def test_a_caller_who_ignores_a_failed_send_still_commits_nothing(world: World) -> None:
    producer = producer_in(world)
    world.answer(Method.PRODUCE, produce_refused(ErrorCode.INVALID_RECORD))
    with pytest.raises(Rejected, match="INVALID_RECORD"), producer.transaction() as txn:
        txn.send("t", b"x", partition=0)
        with pytest.raises(Rejected):
            txn.flush()
    assert ended(world) == [False]


def test_a_refused_commit_is_aborted_and_the_producer_goes_on(world: World) -> None:
    producer = producer_in(world)
    world.answer(Method.END_TXN, refused(Method.END_TXN, ErrorCode.TRANSACTION_ABORTABLE))
    with pytest.raises(Abortable, match="TRANSACTION_ABORTABLE") as caught:
        commit(producer, b"a")
    assert not caught.value.may_have_committed
    assert ended(world) == [True, False]
    commit(producer, b"b")
    assert world.server.visible() == [b"b"]


def test_only_what_must_be_is_sent_again(world: World) -> None:
    producer = producer_in(world)
    world.answer(Method.PRODUCE, produce_refused(ErrorCode.DUPLICATE_SEQUENCE_NUMBER, ErrorCode.NOT_ENOUGH_REPLICAS))
    with producer.transaction() as txn:
        txn.send("t", b"in the log already", partition=0)
        txn.send("t", b"not yet", partition=1)
        txn.flush()
        first, second = world.requests(Method.PRODUCE)
        assert [item.partition for item in second.batches] == [1]
        assert second.batches[0] == first.batches[1]
        assert second.header.request_id != first.header.request_id
        txn.abort()


def test_a_deleted_topic_is_looked_up_again_for_the_next_transaction(world: World) -> None:
    producer = producer_in(world)
    world.server.topics["gone"] = 1
    with pytest.raises(Abortable, match="UNKNOWN_TOPIC_OR_PARTITION"), producer.transaction() as txn:
        txn.send("gone", b"x")
        del world.server.topics["gone"]
    with pytest.raises(Rejected, match="UNKNOWN_TOPIC_OR_PARTITION"), producer.transaction() as txn:
        txn.send("gone", b"x")


# Timeouts and rivals.


def test_a_timed_out_transaction_is_noticed_by_a_send_and_survived(world: World) -> None:
    producer = producer_in(world)
    with pytest.raises(Abortable, match="INVALID_PRODUCER_EPOCH"), producer.transaction() as txn:
        txn.send("t", b"a", partition=0)
        txn.flush()
        world.server.time_out("p")
        txn.send("t", b"b", partition=0)
    assert ended(world) == [False]
    commit(producer, b"c")
    assert world.server.visible() == [b"c"]


def test_a_commit_after_the_timeout_is_abortable_and_not_fenced(world: World) -> None:
    producer = producer_in(world)
    with pytest.raises(Abortable, match="the server had aborted the transaction"), producer.transaction() as txn:
        txn.send("t", b"a", partition=0)
        txn.flush()
        world.server.time_out("p")
    assert ended(world) == [True, False]
    commit(producer, b"b")
    assert world.server.visible() == [b"b"]


def test_a_zombie_is_fenced_at_its_commit_and_sends_nothing_more(world: World) -> None:
    zombie, owner = producer_in(world), producer_in(world)
    with pytest.raises(Fenced) as caught, zombie.transaction() as txn:
        txn.send("t", b"zombie", partition=0)
        txn.flush()
        owner.init()
    assert not caught.value.may_have_committed
    commit(owner, b"owner")
    before = len(world.sent)
    for _ in range(2):
        with pytest.raises(Fenced), zombie.transaction():
            pass
    zombie.close()
    assert len(world.sent) == before
    assert world.server.visible() == [b"owner"]
    assert zombie.status is ProducerStatus.CLOSED


def test_a_zombie_whose_send_fails_is_told_that_it_is_fenced(world: World) -> None:
    zombie, owner = producer_in(world), producer_in(world)
    with pytest.raises(Fenced) as caught, zombie.transaction() as txn:
        txn.send("t", b"a", partition=0)
        txn.flush()
        owner.init()
        txn.send("t", b"b", partition=0)
        txn.flush()
    assert isinstance(caught.value.__cause__, Abortable)
    assert ended(world) == [False]


def test_the_users_exception_stays_in_front_of_a_fenced_abort(world: World) -> None:
    zombie, owner = producer_in(world), producer_in(world)
    with pytest.raises(ZeroDivisionError) as caught, zombie.transaction() as txn:
        txn.send("t", b"a", partition=0)
        txn.flush()
        owner.init()
        raise ZeroDivisionError
    assert "PRODUCER_FENCED" in caught.value.__notes__[0]


def test_no_abort_is_sent_once_the_producer_is_fenced(world: World) -> None:
    producer = producer_in(world)
    reply = produce_refused(ErrorCode.PRODUCER_FENCED)
    assert reply.results[0].error_class == ErrorClass.FENCED
    world.answer(Method.PRODUCE, reply)
    with pytest.raises(Fenced):
        commit(producer, b"a")
    assert ended(world) == []


def test_an_expired_id_is_initialised_again_with_the_identity_it_had(world: World) -> None:
    producer = producer_in(world)
    commit(producer, b"a")
    world.server.expire("p")
    with pytest.raises(Recoverable, match="INVALID_PRODUCER_ID_MAPPING"):
        commit(producer, b"lost")
    commit(producer, b"b")
    again = world.requests(Method.INIT_PRODUCER_ID)[-1]
    assert (again.expected_producer_id, again.expected_producer_epoch) == (101, 1)
    assert ended(world) == [True, True]
    assert world.server.visible() == [b"a", b"b"]


def test_an_expired_id_that_another_producer_took_is_fenced(world: World) -> None:
    producer = producer_in(world)
    commit(producer, b"a")
    world.server.expire("p")
    producer_in(world).init()
    with pytest.raises(Recoverable):
        commit(producer, b"lost")
    with pytest.raises(Fenced):
        commit(producer, b"b")


def test_misconfiguration_closes_the_producer(world: World) -> None:
    producer = producer_in(world)
    world.answer(Method.INIT_PRODUCER_ID, Loss("UNAUTHENTICATED", "who are you"))
    with pytest.raises(Misconfigured, match="who are you"):
        producer.init()
    with pytest.raises(Misconfigured):
        producer.init()
    assert len(world.sent) == 1


def test_a_client_that_was_given_no_name_says_what_it_is(world: World) -> None:
    with producer_in(world, "billing-" + "é" * 400) as producer:
        producer.init()
    (init,) = world.requests(Method.INIT_PRODUCER_ID)
    assert init.header.client_id == ("producer-billing-" + "é" * 500)[: len("producer-") + 64]
    with producer_in(world, "p", client_id="app") as producer:
        producer.init()
    assert world.requests(Method.INIT_PRODUCER_ID)[-1].header.client_id == "app"


def test_a_server_that_says_when_to_come_again_is_not_asked_before(world: World) -> None:
    full = produce_refused(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
    full.throttle_ms = 700
    world.answer(Method.PRODUCE, full, full)
    producer = producer_in(world)
    commit(producer, b"a")
    assert world.server.visible() == [b"a"]
    assert 1_400 <= world.now_ms < 2_000
