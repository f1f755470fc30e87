"""B. AddPartitionsToTxn, verification, AddOffsetsToTxn."""

from __future__ import annotations

from coordinator_api.v1 import common_pb2, transaction_pb2
from coordinator_protocol.errors import ErrorClass, ErrorCode, error_class
from coordinator_protocol.methods import Method
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import CallContext
from tests.conformance.transactions.case_world import ABORT, COMMIT, NOW, SERVED_ELSEWHERE, CaseWorld, Client, Denies
from tests.conformance.transactions.cases import both_versions, case, not_drivable
from tests.harness.kafka_producer import KafkaProducer
from txn_coordinator.state import Identity


def add_over_the_wire(client: Client, *partitions: int, more: str = "", denies: Denies | None = None) -> list[int]:
    """Return the answer for each partition; `more` is another topic, of one partition."""
    request = transaction_pb2.AddPartitionsToTxnRequest(
        transactional_id=client.transactional_id,
        producer_id=client.identity.producer_id,
        producer_epoch=client.identity.producer_epoch,
        topics=[common_pb2.TopicPartitions(topic="t", partitions=partitions)],
    )
    if more:
        request.topics.add(topic=more, partitions=[0])
    answer = client.world.asked(lambda: client.world.servicer(denies).AddPartitionsToTxn(request, NOW))
    return [answer] if isinstance(answer, int) else [result.error_code for result in answer.results]


@case(49)
@both_versions
def test_an_unknown_id_has_no_producer(version: int) -> None:
    assert CaseWorld().client(version=version).add("t-0", shown=Identity(0, 0)) == 49


@case(50)
def test_an_empty_id_is_refused() -> None:
    """Null and empty are the same on our wire."""
    assert CaseWorld().client("").add("t-0", shown=Identity(0, 0)) == 42


@case(51)
def test_a_shard_that_is_not_ours_is_refused() -> None:
    world = CaseWorld()
    world.owns_few_shards()
    assert world.client(SERVED_ELSEWHERE).add("t-0", shown=Identity(0, 0)) == 16


@case(53)
@both_versions
def test_a_decided_commit_is_waited_for(version: int) -> None:
    world = CaseWorld(split=True)
    client = world.ongoing(version=version)
    client.commit()
    assert (world.state(), client.add("t-1")) == ("PrepareCommit", 51)


@case(54)
@both_versions
def test_a_decided_abort_is_waited_for(version: int) -> None:
    world = CaseWorld(split=True)
    client = world.ongoing(version=version)
    client.abort()
    assert (world.state(), client.add("t-1")) == ("PrepareAbort", 51)


@case(55)
@both_versions
def test_another_epoch_is_fenced(version: int) -> None:
    world = CaseWorld(split=True)
    client = world.ready(version=version, epoch=10)
    assert client.add("t-0", shown=client.before(10)) == 90
    assert client.add("t-0", shown=client.before(-1)) == 90
    client.add("t-0")
    client.commit()
    assert client.add("t-0", shown=client.before(5)) == 51, "a decided transaction comes first"


@case(57)
@both_versions
def test_the_first_add_opens_the_transaction(version: int) -> None:
    world = CaseWorld()
    client = world.ready(version=version)
    before = world.version
    assert client.add("t-0", "t-1")
    opened = world.described()
    assert world.version == before + 1
    assert (opened.state.api_name, world.names(opened)) == ("Ongoing", ["t-0", "t-1"])
    assert opened.start_ms == world.clock.wall_ms()


@case(58)
@both_versions
def test_adding_more_keeps_the_start(version: int) -> None:
    world = CaseWorld()
    client = world.ready(version=version)
    client.add()
    start_ms = world.described().start_ms
    assert (world.state(), world.names(world.described())) == ("Ongoing", [])
    world.tick(500)
    client.add("t-2")
    client.add("t-1")
    assert world.names(world.described()) == ["t-1", "t-2"]
    assert world.described().start_ms == start_ms


@case(59)
@both_versions
def test_the_next_transaction_opens_straight_from_a_completed_one(version: int) -> None:
    world = CaseWorld(split=False)
    client = world.ongoing(version=version)
    client.commit()
    assert world.state() == "CompleteCommit"
    client.add("t-1")
    assert (world.state(), world.names(world.described())) == ("Ongoing", ["t-1"])


@case(61)
@both_versions
def test_adding_what_is_there_writes_nothing(version: int) -> None:
    world = CaseWorld()
    client = world.ongoing(version=version)
    before = world.version
    assert client.add("t-0") is True
    assert world.version == before


@case(62)
def test_verifying_with_another_producer_id() -> None:
    world = CaseWorld()
    world.ready("other")
    client = world.ready()
    assert client.verify("t-0", "t-1", shown=Identity(0, 0)) == [49, 49]


@case(63)
def test_verifying_with_another_epoch() -> None:
    client = CaseWorld().ready()
    assert client.verify("t-0", shown=client.before(-1)) == [90]


@case(65)
def test_verifying_looks_at_membership_alone() -> None:
    """A change that is on its way to the disk does not stand in the way."""
    world = CaseWorld()
    client = world.ongoing()
    adding = world.add("orders", client.identity, ["t-1"], NOW)
    assert client.verify("t-2") == [120]
    assert adding.is_settled, "the answer waited for what it rests on"


@case(66)
def test_verifying_what_is_there_writes_nothing() -> None:
    world = CaseWorld()
    client = world.ongoing()
    client.add("t-1")
    before = world.version
    assert client.verify("t-0", "t-1") == [0, 0]
    assert world.version == before


@case(67)
def test_verifying_what_is_not_there() -> None:
    assert CaseWorld().ongoing().verify("t-0", "t-1") == [0, 120]


def batch_of(world: CaseWorld, *members: tuple[Client, int]) -> Pending[transaction_pb2.AddPartitionsToTxnResponse]:
    """One request that adds a partition to the transaction of each client."""
    request = transaction_pb2.AddPartitionsToTxnRequest(
        transactions=[
            transaction_pb2.AddPartitionsToTxnTransaction(
                transactional_id=client.transactional_id,
                producer_id=max(client.identity.producer_id, 0),
                producer_epoch=max(client.identity.producer_epoch, 0),
                topics=[common_pb2.TopicPartitions(topic="t", partitions=[partition])],
            )
            for client, partition in members
        ]
    )
    return world.servicer().AddPartitionsToTxn(request, CallContext())


@case(69)
def test_a_batch_of_one_that_works_and_one_that_does_not() -> None:
    world = CaseWorld()
    known, unknown = world.ready("known"), world.client("unknown")
    answer = world.told(batch_of(world, (known, 0), (unknown, 1)))
    assert [(each.transactional_id, each.error_code) for each in answer.transactions] == [("known", 0), ("unknown", 49)]
    assert (world.state("known"), world.state("unknown")) == ("Ongoing", "105")


@case(70)
def test_verifying_before_anything_was_added() -> None:
    assert CaseWorld().ready().verify("t-0") == [120]


@case(71)
def test_a_batch_is_answered_when_all_of_it_is() -> None:
    world = CaseWorld(split=True)
    busy, free = world.ongoing("busy"), world.ready("free")
    busy.commit()
    batch = batch_of(world, (free, 0), (busy, 1))
    world.flush()
    assert (world.state("free"), batch.is_settled) == ("Ongoing", False)
    world.settle()
    assert [each.error_code for each in batch.result().transactions] == [0, 0]


@case(73)
def test_beside_an_unknown_partition_nothing_is_attempted() -> None:
    world = CaseWorld()
    client = world.ready()
    world.create_topic("secret", 1)
    assert add_over_the_wire(client, 0, 9) == [55, 3]
    assert add_over_the_wire(client, 0, 9, more="secret", denies=Denies({"secret"})) == [55, 3, 29]
    assert world.state() == "Empty"


@case(74, differs="a negative number is no partition at all: 42, precise; one too high is answered 3")
def test_a_partition_number_that_cannot_be() -> None:
    world = CaseWorld()
    client = world.ready()
    assert add_over_the_wire(client, -1) == [42]
    assert add_over_the_wire(client, 4) == [3]
    assert world.state() == "Empty"


@case(75)
def test_a_kafka_client_that_does_not_know_the_code_for_fenced_gets_an_older_one() -> None:
    world = CaseWorld()
    old, new = KafkaProducer(world), KafkaProducer(world)
    assert old.initialises() == new.initialises() == 0
    for version, told in ((0, 47), (1, 47), (2, 90)):
        assert old.adds("t-0", version=version) == {"t-0": told}
        assert old.adds_group(version=version) == told


not_drivable(
    77, "the log asks the coordinator inside the append's operation; there is no queue of requests between them"
)
not_drivable(78, "the log asks the coordinator inside the append's operation; no owner is looked up")
not_drivable(79, "the log asks the coordinator inside the append's operation; there is no connection to drop")
not_drivable(81, "the log asks the coordinator inside the append's operation; no peer has to be authorized")


@case(82)
@both_versions
def test_a_clock_that_goes_back_changes_no_start(version: int) -> None:
    world = CaseWorld()
    client = world.ready(version=version)
    client.add("t-0")
    start_ms = world.described().start_ms
    world.clock.step_wall(-5_000)
    assert client.add("t-1")
    assert world.described().start_ms == start_ms
    assert world.described().last_update_ms == start_ms - 5_000


@case(83, differs="design 5: the call waits on the server until the last transaction is complete, no client backs off")
def test_the_first_add_of_the_next_transaction_waits_on_the_server() -> None:
    world = CaseWorld(split=True)
    client = world.ongoing()
    client.commit()
    adding = world.add("orders", client.identity, ["t-1"])
    assert not adding.is_settled
    world.settle()
    assert adding.result() is True


@case(85)
def test_invalid_state_is_fatal_and_so_is_never_an_answer_to_wait_by() -> None:
    for method in (Method.ADD_PARTITIONS_TO_TXN, Method.ADD_OFFSETS_TO_TXN, Method.END_TXN):
        assert error_class(method, ErrorCode.INVALID_TXN_STATE) is ErrorClass.REJECTED
        assert error_class(method, ErrorCode.CONCURRENT_TRANSACTIONS) is ErrorClass.RETRY
    for outcome in (COMMIT, ABORT):
        client = CaseWorld(split=True).ongoing()
        client.end(outcome)
        assert [client.add("t-1"), client.commit(), client.abort(), client.init()] == [51] * 4
