"""Administration: what a lost answer means for calls that are not idempotent by themselves."""

from __future__ import annotations

import pytest

from coordinator_api.v1 import admin_pb2
from coordinator_api.v1 import transaction_pb2 as txn
from coordinator_client import Admin, Identity, NextEvent, OutcomeUnknown, Rejected, Retriable, calls
from coordinator_client.repeating import REPEATING
from coordinator_protocol.methods import Method
from tests.client.interruptions import Interrupter, Interruption, one_of_each
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


def test_what_would_be_created_is_not_created(admin: Admin, world: World) -> None:
    assert admin.would_create_topic("new", 4)
    assert "new" not in world.server.topics
    assert not admin.would_create_topic("t", 3, is_existing_ok=True)
    with pytest.raises(Rejected, match="TOPIC_ALREADY_EXISTS"):
        admin.would_create_topic("t", 3)
    with pytest.raises(Rejected) as caught:
        admin.would_create_topic("t", 5, is_existing_ok=True)
    assert caught.value.__notes__ == ["it has 3 partitions, 5 were asked for"]


def test_a_lost_answer_to_a_question_makes_no_strangers_topic_the_own_one(admin: Admin, world: World) -> None:
    """A lost answer to a question created nothing: who finds the topic then finds somebody else's."""
    world.fault(Method.CREATE_TOPICS, Fault.LOST_REPLY)
    with pytest.raises(Rejected, match="TOPIC_ALREADY_EXISTS"):
        admin.would_create_topic("t", 3)


def test_partitions_are_added_even_if_the_answer_is_lost(admin: Admin, world: World) -> None:
    world.fault(Method.CREATE_PARTITIONS, Fault.LOST_REPLY)
    admin.add_partitions("t", 5)
    assert world.server.topics["t"] == 5
    with pytest.raises(Rejected, match="INVALID_PARTITIONS"):
        admin.add_partitions("t", 5)


def test_a_lost_answer_makes_no_other_number_of_partitions_the_own_one(admin: Admin, world: World) -> None:
    world.fault(Method.CREATE_PARTITIONS, Fault.LOST_REQUEST)
    with pytest.raises(Rejected, match="INVALID_PARTITIONS"):
        admin.add_partitions("t", 2)
    world.fault(Method.CREATE_PARTITIONS, Fault.LOST_REPLY)
    with pytest.raises(Rejected, match="INVALID_PARTITIONS"):
        admin.add_partitions("t", 3, validate_only=True)
    assert world.server.topics["t"] == 3


def test_transactions_are_listed_by_all_that_the_server_filters_by(admin: Admin, world: World) -> None:
    listed = txn.TransactionListing(transactional_id="a", producer_id=7, producer_epoch=2, state="Ongoing", start_ms=5)
    listed.age_ms = 0
    done = txn.TransactionListing(transactional_id="b", producer_id=8, state="CompleteCommit", start_ms=-1)
    world.answer(Method.LIST_TRANSACTIONS, txn.ListTransactionsResponse(transactions=[listed, done]))
    first, second = admin.list_transactions(
        states=["Ongoing"], producer_ids=[7, 8], older_than_ms=30_000, pattern="a|b"
    )
    (asked,) = world.requests(Method.LIST_TRANSACTIONS)
    assert (asked.state_filters, asked.producer_id_filters) == (["Ongoing"], [7, 8])
    assert (asked.duration_ms, asked.transactional_id_pattern) == (30_000, "a|b")
    assert (first.producer_epoch, first.age_ms, first.two_phase, first.prepared_ms) == (2, 0, False, None)
    assert second.age_ms is None
    world.answer(Method.LIST_TRANSACTIONS, txn.ListTransactionsResponse())
    assert admin.list_transactions() == []
    assert not world.requests(Method.LIST_TRANSACTIONS)[1].HasField("duration_ms")


def test_a_partition_is_explained_with_what_the_server_tells(admin: Admin, world: World) -> None:
    step = txn.TransactionStep(at_ms=6, state="Ongoing", cause="add", client_id="app", host="10.0.0.1", producer_id=7)
    step.fenced_producer_id, step.fenced_producer_epoch = 7, 1
    reply = admin_pb2.ExplainPartitionResponse(
        topic="t",
        topic_id=b"i" * 16,
        partition=2,
        log_start_offset=1,
        last_stable_offset=4,
        high_watermark=9,
        undecided_offsets=5,
        open_transactions=1,
        next_event=admin_pb2.NEXT_EVENT_CLIENT_OR_TIMEOUT,
        blocking=admin_pb2.BlockingTransaction(
            start_offset=4,
            start_ms=5,
            age_ms=100,
            producer_id=7,
            producer_epoch=2,
            time_left_ms=900,
            transaction=txn.TransactionDescription(transactional_id="a", state="Ongoing", history=[step]),
        ),
    )
    world.answer(Method.EXPLAIN_PARTITION, reply)
    explained = admin.explain_partition("t", 2, history_limit=3)
    (asked,) = world.requests(Method.EXPLAIN_PARTITION)
    assert (asked.topic, asked.partition, asked.history_limit) == ("t", 2, 3)
    assert (explained.topic, explained.partition, explained.topic_id) == ("t", 2, b"i" * 16)
    assert (explained.log_start_offset, explained.last_stable_offset, explained.high_watermark) == (1, 4, 9)
    assert (explained.undecided_offsets, explained.open_transactions) == (5, 1)
    assert explained.next_event is NextEvent.CLIENT_OR_TIMEOUT
    blocking = explained.blocking
    assert blocking is not None
    assert (blocking.identity, blocking.start_offset, blocking.time_left_ms) == (Identity(7, 2), 4, 900)
    assert blocking.transaction is not None
    assert blocking.transaction.transactional_id == "a"
    (told,) = blocking.transaction.history
    assert (told.cause, told.client_id, told.host, told.fenced) == ("add", "app", "10.0.0.1", Identity(7, 1))


def test_what_a_newer_server_tells_of_a_partition_is_not_guessed(admin: Admin, world: World) -> None:
    reply = admin_pb2.ExplainPartitionResponse(
        topic="t",
        next_event=77,  # type: ignore[arg-type]
        blocking=admin_pb2.BlockingTransaction(start_offset=4, owner_hidden=True),
    )
    world.answer(Method.EXPLAIN_PARTITION, reply)
    explained = admin.explain_partition("t", 0)
    assert explained.next_event is NextEvent.UNSPECIFIED
    assert explained.blocking is not None
    assert (explained.blocking.identity, explained.blocking.transaction) == (None, None)
    assert explained.blocking.is_owner_hidden


def test_a_state_that_does_not_exist_is_no_empty_list(admin: Admin, world: World) -> None:
    world.answer(Method.LIST_TRANSACTIONS, txn.ListTransactionsResponse(unknown_state_filters=["Open"]))
    with pytest.raises(Rejected, match=r"there is no state Open: the states are Empty, Ongoing, .*CompleteAbort"):
        admin.list_transactions(states=["Open"])


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
    with pytest.raises(Rejected, match="is no topic name"):
        admin.explain_partition("no topic!", 0)
    with pytest.raises(Rejected, match="transactional id is empty"):
        admin.describe_transaction("")
    assert world.sent == []


def test_a_server_out_of_reach_is_retriable_for_a_question(admin: Admin, world: World) -> None:
    world.fault(Method.DESCRIBE_TOPICS, *[Fault.LOST_REQUEST] * 100)
    with pytest.raises(Retriable, match="DescribeTopics: no definite answer within"):
        admin.describe_topics()


# Callers that are interrupted.


def test_each_call_that_changes_something_says_whether_it_is_safe_to_repeat() -> None:
    of_producers = {
        Method.INIT_PRODUCER_ID,
        Method.PREPARE_TRANSACTION,
        Method.END_TXN,
        Method.TRANSACT,
        Method.TXN_OFFSET_COMMIT,
    }
    of_members = {Method.LEAVE_GROUP}
    mutating = {rpc.method for rpc in vars(calls).values() if isinstance(rpc, calls.Rpc) and rpc.is_mutating}
    assert mutating - of_producers - of_members <= set(REPEATING)


def test_an_interrupted_call_says_whether_it_is_safe_to_repeat(admin: Admin, world: World) -> None:
    world.interrupts[Method.CREATE_TOPICS] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt) as caught:
        admin.create_topic("new", 1)
    assert "refused with TOPIC_ALREADY_EXISTS" in caught.value.__notes__[0]
    world.interrupts[Method.DESCRIBE_TOPICS] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt) as caught:
        admin.describe_topics()
    assert not hasattr(caught.value, "__notes__"), "nothing was to be changed"


def test_a_call_without_an_answer_says_whether_it_is_safe_to_repeat(world: World) -> None:
    admin = Admin(world.connection(), deadline_ms=1_000)
    world.fault(Method.DELETE_TOPICS, *[Fault.LOST_REPLY] * 100)
    with pytest.raises(OutcomeUnknown, match="unless the topic may have been created anew meanwhile"):
        admin.delete_topic("t")


def test_an_exception_at_each_line_of_a_call_leaves_the_next_ones_as_they_are() -> None:
    def run(at: tuple[int, ...] = ()) -> Interrupter:
        world = World()
        admin = Admin(world.connection())
        interrupter = Interrupter(at)
        with interrupter:
            for name in ("one", "two"):
                try:
                    admin.create_topic(name, 1, is_existing_ok=True)
                except Interruption:
                    admin.create_topic(name, 1, is_existing_ok=True)
        assert {"one", "two"} <= {topic.name for topic in admin.describe_topics()}, interrupter.raised
        admin.close()
        return interrupter

    for at in one_of_each(run().places):
        run((at,))
