"""A producer whose transactions are decided outside: prepared, recovered, and ended as it was decided."""

from __future__ import annotations

import pytest

from coordinator_client import Abortable, Fenced, OutcomeUnknown, PreparedTransaction, Producer, Rejected
from coordinator_client.producer.state import ProducerStatus
from coordinator_protocol.errors import ErrorClass, ErrorCode
from coordinator_protocol.methods import Method
from tests.client.producers import commit, ended, producer_in, refused
from tests.client.world import Fault, World


def participant(world: World, **options: int) -> Producer:
    return producer_in(world, two_phase_commit=True, **options)


def prepare(producer: Producer, value: bytes) -> PreparedTransaction:
    with producer.transaction() as txn:
        txn.send("t", value, partition=0)
        return txn.prepare()


def test_what_is_prepared_becomes_visible_when_it_is_committed(world: World) -> None:
    producer = participant(world)
    prepared = prepare(producer, b"a")
    assert (producer.status, world.server.visible()) == (ProducerStatus.PREPARED, [])
    assert (prepared.identity, ended(world)) == (producer.identity, [])
    (init,) = world.requests(Method.INIT_PRODUCER_ID)
    assert (init.enable_2pc, init.keep_prepared) == (True, False)
    (asked,) = world.requests(Method.PREPARE_TRANSACTION)
    assert [last.sequence for last in asked.last_sequences] == [0]
    assert prepared.commit() == 1
    (end,) = world.requests(Method.END_TXN)
    assert (end.committed, list(end.last_sequences)) == (True, []), "what was promised is not checked again"
    assert world.server.visible() == [b"a"]
    commit(producer, b"b")
    assert world.server.visible() == [b"a", b"b"]


def test_what_is_prepared_can_be_aborted(world: World) -> None:
    producer = participant(world)
    prepare(producer, b"a").abort()
    commit(producer, b"b")
    assert world.server.visible() == [b"b"]


def test_a_caller_that_leaves_decides_nothing(world: World) -> None:
    def fail_after_preparing(producer: Producer) -> None:
        with producer, producer.transaction() as txn:
            txn.send("t", b"a", partition=0)
            txn.prepare()
            raise ZeroDivisionError

    producer = participant(world)
    with pytest.raises(ZeroDivisionError):
        fail_after_preparing(producer)
    assert (producer.status, ended(world)) == (ProducerStatus.CLOSED, [])


def test_what_is_prepared_takes_no_more_and_nothing_follows_before_its_end(world: World) -> None:
    producer = participant(world)
    with producer.transaction() as txn:
        txn.send("t", b"a", partition=0)
        prepared = txn.prepare()
        for call in (lambda: txn.send("t", b"b"), txn.prepare, txn.flush, txn.abort):
            with pytest.raises(Rejected, match="the transaction is over"):
                call()
    with pytest.raises(Rejected, match="a transaction is prepared; commit it or abort it first"):
        commit(producer, b"b")
    prepared.commit()
    with pytest.raises(Rejected, match="no transaction is open"):
        prepared.commit()
    assert world.server.visible() == [b"a"]


def test_a_transaction_without_records_has_nothing_to_decide(world: World) -> None:
    producer = participant(world)
    with producer.transaction() as txn, pytest.raises(Rejected, match="nothing was sent in the transaction"):
        txn.prepare()
    commit(producer, b"a")
    assert world.server.visible() == [b"a"]


def test_recovery_finds_what_was_noted_however_often_it_fails(world: World) -> None:
    noted = prepare(participant(world), b"a").identity
    for _attempt in range(3):
        kept = participant(world).recover()
        assert kept is not None
        assert kept.identity == noted
    assert all(request.keep_prepared for request in world.requests(Method.INIT_PRODUCER_ID)[1:])
    kept.commit()
    assert world.server.visible() == [b"a"]
    assert participant(world).recover() is None


def test_the_producer_that_recovered_goes_on(world: World) -> None:
    prepare(participant(world), b"a")
    producer = participant(world)
    kept = producer.recover()
    assert kept is not None
    assert producer.status is ProducerStatus.PREPARED
    kept.abort()
    commit(producer, b"b")
    assert world.server.visible() == [b"b"]


def test_a_producer_that_was_recovered_is_fenced(world: World) -> None:
    first = prepare(participant(world), b"a")
    second = participant(world).recover()
    assert second is not None
    with pytest.raises(Fenced):
        first.commit()
    assert world.server.visible() == []
    second.commit()
    assert world.server.visible() == [b"a"]


def test_recovery_comes_first(world: World) -> None:
    producer = participant(world)
    assert producer.recover() is None
    with pytest.raises(Rejected, match="recovery comes before everything else"):
        producer.recover()
    with pytest.raises(Rejected, match="for a producer with a transactional_id"):
        producer_in(world, None).recover()


def test_a_recovery_that_was_not_answered_is_repeated_as_it_was(world: World) -> None:
    prepare(participant(world), b"a")
    producer = participant(world, delivery_timeout_ms=100)
    world.fault(Method.INIT_PRODUCER_ID, *[Fault.LOST_REPLY] * 100)
    with pytest.raises(OutcomeUnknown):
        producer.recover()
    world.faults.clear()
    kept = producer.recover()
    assert kept is not None
    assert len({request.header.request_id for request in world.requests(Method.INIT_PRODUCER_ID)[1:]}) == 1
    kept.commit()


def test_a_recovery_that_was_given_up_does_not_make_a_later_init_keep_anything(world: World) -> None:
    prepare(participant(world), b"a")
    producer = participant(world, delivery_timeout_ms=100)
    world.fault(Method.INIT_PRODUCER_ID, *[Fault.LOST_REQUEST] * 100)
    with pytest.raises(OutcomeUnknown):
        producer.recover()
    world.faults.clear()
    commit(producer, b"b")
    assert world.server.visible() == [b"b"]


# Failures


@pytest.mark.parametrize("fault", [Fault.LOST_REQUEST, Fault.LOST_REPLY, Fault.TWICE, Fault.UNSURE])
def test_a_lost_answer_is_asked_for_again(world: World, fault: Fault) -> None:
    producer = participant(world)
    world.fault(Method.PREPARE_TRANSACTION, fault)
    prepared = prepare(producer, b"a")
    world.fault(Method.END_TXN, fault)
    prepared.commit()
    assert (world.server.visible(), set(ended(world))) == ([b"a"], {True})


@pytest.mark.parametrize(
    ("code", "what", "kind"),
    [
        (ErrorCode.TRANSACTION_ABORTABLE, None, Abortable),
        (ErrorCode.INVALID_TXN_STATE, None, Rejected),
        (ErrorCode.PRODUCER_FENCED, ErrorClass.RECOVER, Abortable),
    ],
)
def test_what_cannot_be_prepared_is_aborted_and_the_producer_goes_on(
    world: World, code: ErrorCode, what: ErrorClass | None, kind: type[Exception]
) -> None:
    producer = participant(world)
    world.answer(Method.PREPARE_TRANSACTION, refused(Method.PREPARE_TRANSACTION, code, what))
    with pytest.raises(kind):
        prepare(producer, b"a")
    assert ended(world) == [False]
    commit(producer, b"b")
    assert world.server.visible() == [b"b"]


def test_who_was_replaced_cannot_prepare_and_is_told_so(world: World) -> None:
    producer = participant(world)
    world.answer(Method.PREPARE_TRANSACTION, refused(Method.PREPARE_TRANSACTION, ErrorCode.PRODUCER_FENCED))
    with pytest.raises(Fenced):
        prepare(producer, b"a")
    assert (ended(world), producer.status) == ([], ProducerStatus.CLOSED)


def test_what_was_not_confirmed_was_not_noted_and_is_aborted(world: World) -> None:
    producer = participant(world, delivery_timeout_ms=100)
    world.fault(Method.PREPARE_TRANSACTION, *[Fault.LOST_REPLY] * 100)
    with pytest.raises(Abortable):
        prepare(producer, b"a")
    assert ended(world) == [False]
    commit(producer, b"b")
    assert world.server.visible() == [b"b"]


def test_an_interruption_aborts(world: World) -> None:
    producer = participant(world)
    world.interrupts[Method.PREPARE_TRANSACTION] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        prepare(producer, b"a")
    assert (ended(world)[-1], producer.status) == (False, ProducerStatus.READY)
    commit(producer, b"b")
    assert world.server.visible() == [b"b"]


def test_a_commit_without_an_answer_is_repeated_by_asking_again(world: World) -> None:
    producer = participant(world, delivery_timeout_ms=100)
    prepared = prepare(producer, b"a")
    world.fault(Method.END_TXN, *[Fault.LOST_REPLY] * 100)
    with pytest.raises(OutcomeUnknown):
        prepared.commit()
    world.faults.clear()
    assert prepared.commit() == 1
    assert (world.server.visible(), set(ended(world))) == ([b"a"], {True})


def test_a_commit_that_is_refused_is_never_turned_into_an_abort(world: World) -> None:
    producer = participant(world)
    prepared = prepare(producer, b"a")
    for code in (ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_PRODUCER_ID_MAPPING):
        world.answer(Method.END_TXN, refused(Method.END_TXN, code))
        with pytest.raises(Exception, match=code.name):
            prepared.commit()
        assert producer.status is ProducerStatus.PREPARED
    prepared.commit()
    assert (world.server.visible(), set(ended(world))) == ([b"a"], {True})


def test_a_commit_that_comes_after_an_administrator_says_so(world: World) -> None:
    producer = participant(world)
    prepared = prepare(producer, b"a")
    world.server.time_out("p")
    with pytest.raises(Abortable, match="the server had aborted the transaction"):
        prepared.commit()
    commit(producer, b"b")
    assert world.server.visible() == [b"b"]


def test_an_unconfirmed_abort_says_that_no_timeout_will_help(world: World) -> None:
    producer = participant(world, delivery_timeout_ms=100)
    prepared = prepare(producer, b"a")
    world.fault(Method.END_TXN, *[Fault.LOST_REQUEST] * 100)
    with pytest.raises(OutcomeUnknown, match="the next transaction of this transactional id ends it first"):
        prepared.abort()
    world.faults.clear()
    commit(producer, b"b")
    assert (world.server.visible(), ended(world)[-2:]) == ([b"b"], [False, True])
