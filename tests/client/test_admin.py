"""Administration: what a lost answer means for calls that are not idempotent by themselves."""

from __future__ import annotations

from collections.abc import Callable
from inspect import getmembers, isfunction, signature
from typing import Any

import pytest

from coordinator_api.v1 import admin_pb2
from coordinator_api.v1 import transaction_pb2 as txn
from coordinator_client import (
    Admin,
    AsyncAdmin,
    Identity,
    NextEvent,
    OutcomeUnknown,
    Rejected,
    Retriable,
    TopicPartition,
    calls,
)
from coordinator_client.repeating import REPEATING
from coordinator_protocol.errors import ErrorCode
from coordinator_protocol.methods import Method
from tests.client.interruptions import Interrupter, Interruption, one_of_each
from tests.client.world import Fault, World


class AdminView:
    """`AsyncAdmin` with the face of `Admin`: each call is run to its end."""

    def __init__(self, admin: AsyncAdmin, world: World) -> None:
        self._admin = admin
        self._world = world

    def __getattr__(self, name: str) -> Callable[..., object]:
        call = getattr(self._admin, name)
        return lambda *args, **kwargs: self._world.run(call(*args, **kwargs))


@pytest.fixture(params=[Admin, AsyncAdmin])
def admin(request: pytest.FixtureRequest, world: World) -> Any:
    made = request.param(world.connection(), deadline_ms=1_000)
    return made if isinstance(made, Admin) else AdminView(made, world)


def test_both_shells_have_the_same_calls() -> None:
    def calls_of(shell: type) -> dict[str, str]:
        return {name: str(signature(call)) for name, call in getmembers(shell, isfunction) if name[0] != "_"}

    assert calls_of(Admin) == calls_of(AsyncAdmin)
    assert len(calls_of(Admin)) > 40


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
    """A lost answer to a question created nothing: a topic found then is another caller's."""
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
        Method.TXN_SHARE_ACKNOWLEDGE,
    }
    of_members = {Method.LEAVE_GROUP, Method.SHARE_FETCH, Method.SHARE_ACKNOWLEDGE}
    mutating = {rpc.method for rpc in vars(calls).values() if isinstance(rpc, calls.Rpc) and rpc.is_mutating}
    assert mutating - of_producers - of_members <= set(REPEATING)


def test_an_interrupted_call_says_whether_it_is_safe_to_repeat(world: World) -> None:
    admin = Admin(world.connection())
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


# Ending transactions, and the server itself.


def test_transactions_are_aborted_in_as_many_requests_as_needed(admin: Admin, world: World) -> None:
    done = admin_pb2.TransactionActResult(
        transactional_id="a", state="Ongoing", fenced_producer_id=7, fenced_producer_epoch=2, partition_count=3
    )
    done.age_ms = 50
    refused = admin_pb2.TransactionActResult(
        error_code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, error_class=6, error_message="no id b", transactional_id="b"
    )
    world.answer(Method.ABORT_TRANSACTIONS, admin_pb2.AbortTransactionsResponse(results=[done], remaining=1))
    world.answer(Method.ABORT_TRANSACTIONS, admin_pb2.AbortTransactionsResponse(results=[refused]))
    first, second = admin.abort_transactions(prefix="a", older_than_ms=30)
    assert (first.fenced, first.age_ms, first.partition_count, first.refusal) == (Identity(7, 2), 50, 3, None)
    assert (second.fenced, second.transactional_id) == (None, "b")
    assert isinstance(second.refusal, Rejected)
    asked, again = world.requests(Method.ABORT_TRANSACTIONS)
    assert (asked.selector.transactional_id_prefix, asked.selector.older_than_ms) == ("a", 30)
    assert asked.header.request_id != again.header.request_id


def test_a_dry_run_asks_once(admin: Admin, world: World) -> None:
    result = admin_pb2.TransactionActResult(transactional_id="a", state="Ongoing")
    world.answer(Method.ABORT_TRANSACTIONS, admin_pb2.AbortTransactionsResponse(results=[result], remaining=9))
    assert len(admin.abort_transactions(prefix="a", dry_run=True)) == 1


def test_producers_are_fenced_by_their_ids(admin: Admin, world: World) -> None:
    result = admin_pb2.TransactionActResult(transactional_id="a", state="Empty", fenced_producer_id=7)
    world.answer(Method.FENCE_PRODUCERS, admin_pb2.FenceProducersResponse(results=[result]))
    (fenced,) = admin.fence_producers(["a"])
    assert (fenced.fenced, fenced.age_ms) == (Identity(7, 0), None)
    with pytest.raises(TypeError, match=r"as in \['a'\]"):
        admin.fence_producers("a")


def test_hanging_transactions_are_listed_and_aborted(admin: Admin, world: World) -> None:
    found = admin_pb2.HangingTransaction(topic="t", partition=1, producer_id=7, start_offset=4, reason="not_open")
    world.answer(Method.LIST_HANGING_TRANSACTIONS, admin_pb2.ListHangingTransactionsResponse(transactions=[found]))
    (hanging,) = admin.list_hanging_transactions()
    assert (hanging.partition, hanging.identity, hanging.reason) == (TopicPartition("t", 1), Identity(7, 0), "not_open")
    world.answer(Method.ABORT_HANGING_TRANSACTIONS, admin_pb2.AbortHangingTransactionsResponse(aborted=[found]))
    assert admin.abort_hanging_transactions("t", 1, producer_id=7) == [hanging]
    found.group_id = "packers"
    world.answer(Method.LIST_HANGING_TRANSACTIONS, admin_pb2.ListHangingTransactionsResponse(transactions=[found]))
    assert [(each.group_id, each.start_offset) for each in admin.list_hanging_transactions()] == [("packers", 4)]


def test_shards_and_backups_are_described(admin: Admin, world: World) -> None:
    shard = admin_pb2.ShardDescription(coordinator="groups", shard=3, state="failed", reason="broken")
    disk = admin_pb2.DiskDescription(free_bytes=5, free_bytes_min=4)
    for _ in range(2):
        world.answer(Method.LIST_SHARDS, admin_pb2.ListShardsResponse(shards=[shard], disk=disk))
    (found,) = admin.list_shards()
    assert (found.shard, found.coordinator_epoch, found.reason) == (3, None, "broken")
    assert admin.describe_disk().free_bytes == 5
    world.answer(Method.LOAD_SHARD, admin_pb2.LoadShardResponse(shard=shard))
    assert admin.load_shard("groups", 3) == found
    world.answer(Method.UNLOAD_SHARD, admin_pb2.UnloadShardResponse(shard=shard))
    assert admin.unload_shard("groups", 3) == found
    backup = admin_pb2.BackupDescription(name="b", state="copying", size_bytes=9)
    world.answer(Method.CREATE_BACKUP, admin_pb2.CreateBackupResponse(backup=backup))
    assert admin.create_backup(is_independent=True).size_bytes == 9
    world.answer(Method.LIST_BACKUPS, admin_pb2.ListBackupsResponse(backups=[backup]))
    assert [each.name for each in admin.list_backups()] == ["b"]
    assert world.requests(Method.CREATE_BACKUP)[0].independent


def test_sinks_are_described_and_their_members_given_up(admin: Admin, world: World) -> None:
    sink = txn.SinkDescription(sink="s", members=[txn.SinkMemberDescription(producer_id=7, state="open")])
    world.answer(Method.DESCRIBE_SINKS, txn.DescribeSinksResponse(sinks=[sink]))
    (found,) = admin.describe_sinks(["s"])
    assert (found.name, found.members[0].identity) == ("s", Identity(7, 0))
    world.answer(Method.ABORT_BATCH, txn.AbortBatchResponse(member_count=1))
    assert admin.abort_sink("s") == 1


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
