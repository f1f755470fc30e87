"""TxnShareAcknowledge in a whole server: what it adds to the transaction, and what becomes of late ones.

The stories of commits, aborts, crashes and shards that are not served are scenarios (tests/scenarios/share_*.txt).

Source: spec groups 6.5, 4.4.
"""

from __future__ import annotations

from itertools import product

import pytest

from coordinator_api.v1 import group_pb2, share_pb2
from coordinator_protocol.errors import ErrorClass, ErrorCode
from coordinator_protocol.marker import Marker, Outcome
from coordinator_runtime.decision import Coordinator
from coordinator_runtime.participants import ShareKey
from coordinator_runtime.ports import OutcomeNumber, Permission, ResourceType
from group_coordinator.share_partitions.decisions import decide_acknowledge_in_transaction, decide_release
from group_coordinator.share_partitions.requests import TxnAcknowledge
from group_coordinator.share_partitions.rules import AckBatch
from group_coordinator.share_partitions.shard import ShareShard
from group_coordinator.share_partitions.state import AcknowledgingTransaction, SharePartition
from tests.groups.share_partitions.pictures import picture
from tests.groups.share_partitions.transactional_worker import (
    ACCEPT,
    ALL_HELD,
    GROUP,
    ID,
    OK,
    PENDING,
    REJECT,
    VERSION_1,
    Denying,
    Worker,
    code_of,
)
from tests.harness.calls import called, partition_name
from tests.harness.group_calls import ANYBODY
from tests.harness.group_world import group_world
from tests.harness.share_consumers import response_of, share_consumer
from txn_coordinator.administration import AbortHanging
from txn_coordinator.config import TwoPhase
from txn_coordinator.hanging import HangingReason
from txn_coordinator.requests import AddOffsets


@pytest.fixture(params=[*product(TwoPhase, (True, False))], ids=lambda each: f"{each[0].value}-{each[1]}")
def worker(request: pytest.FixtureRequest) -> Worker:
    two_phase, lane = request.param
    return Worker(group_world(topics={"t": 2, "results": 1}, two_phase=two_phase, lane=lane))


@pytest.fixture
def split() -> Worker:
    return Worker(group_world(topics={"t": 2}, two_phase=TwoPhase.SPLIT))


@pytest.mark.parametrize(
    ("outcome", "after"), [(Outcome.COMMIT, "2: w1 w1"), (Outcome.ABORT, "0: .1 .1 w1 w1")], ids=["commit", "abort"]
)
def test_results_and_acknowledgements_have_one_outcome(worker: Worker, outcome: Outcome, after: str) -> None:
    world = worker.world
    world.produce(ID, worker.identity, "results-0", ["r"], sequence=0)
    assert worker.acknowledge("t-0", "t-1") is OK
    assert worker.pictures == [PENDING, PENDING]
    worker.check()
    worker.end(outcome)
    assert worker.pictures == [after, after]
    assert [entry.value for entry in world.read("results-0").entries] == ["r"] * (outcome is Outcome.COMMIT)
    worker.check()
    world.restart()
    assert worker.pictures == [after.removesuffix(" w1 w1")] * 2
    worker.check()


def test_a_rejection_is_archived_with_the_commit(worker: Worker) -> None:
    assert worker.acknowledge("t-0", types=(ACCEPT, REJECT)) is OK
    worker.end()
    assert worker.pictures[0] == "2: w1 w1"


def test_records_of_an_abort_are_handed_out_once_it_is_durable(worker: Worker) -> None:
    """A crash takes the abort back, and the transaction may commit then. So no member may have the records before."""
    world, other = worker.world, share_consumer(worker.world, "o", "t", group_id=GROUP)
    assert other.fetch() == {}, "the session has both partitions, and all their records are held"
    assert worker.acknowledge("t-0") is OK
    world.end(ID, worker.identity, Outcome.ABORT)
    while worker.pictures[0] == PENDING:
        world.flush(1)
    assert worker.pictures[0] == ALL_HELD.replace("w1 w1", ".1 .1", 1)
    asked = other.fetching()
    assert worker.pictures[0] == "0: o2 o2 w1 w1"
    assert not asked.is_settled, "the abort is not on disk"
    world.settle()
    assert other.acquired(response_of(asked)) == {"t-0": [0, 1]}
    worker.check()


def test_a_crash_takes_back_an_abort_whose_records_nobody_has(worker: Worker) -> None:
    world, other = worker.world, share_consumer(worker.world, "o", "t", group_id=GROUP)
    assert other.fetch() == {}
    assert worker.acknowledge("t-0") is OK
    world.end(ID, worker.identity, Outcome.ABORT)
    while worker.pictures[0] == PENDING:
        world.flush(1)
    asked = other.fetching()
    world.crash()
    assert not asked.is_settled
    assert picture(restored_of(worker)) == "0: ?1 ?1"


def restored_of(worker: Worker) -> SharePartition:
    """The share partition as the store has it, before anything else is done."""
    found = worker.shares().shard.durable(worker.shares().key)
    assert found is not None
    return found


def test_a_transaction_may_end_with_many_share_partitions() -> None:
    world = group_world(topics={"t": 30}, two_phase=TwoPhase.FUSED)
    worker = Worker(world, tuple(f"t-{number}" for number in range(30)))
    assert worker.acknowledge(*worker.partitions) is OK
    assert worker.world.describe(ID).participant_count == 30
    worker.end()
    assert set(worker.pictures) == {"2: w1 w1"}
    worker.check()


# Clients of version 1


def test_a_client_of_version_1_adds_the_group_first(worker: Worker) -> None:
    worker.initialise(VERSION_1)
    add = AddOffsets(transactional_id=ID, identity=worker.identity, group_id=GROUP)
    transactions = worker.world.inside.transactions
    for outcome, after in ((Outcome.ABORT, "0: .1 .1 w1 w1"), (Outcome.COMMIT, "2: w2 w2")):
        assert worker.acknowledge("t-0", context=VERSION_1) is ErrorCode.INVALID_TXN_STATE
        called(lambda: transactions.add_offsets(add, VERSION_1))
        worker.world.settle()
        assert worker.acknowledge("t-0", context=VERSION_1) is OK
        asked = worker.world.end(ID, worker.identity, outcome, VERSION_1)
        worker.world.settle()
        assert code_of(asked) is OK
        assert worker.pictures[0] == after
        # The epoch stays, so a late copy looks like one of the next transaction.
        assert worker.acknowledge("t-0", context=VERSION_1) is ErrorCode.INVALID_TXN_STATE
        shares = worker.shares()
        shares.ask(decide_release, member_id="w", holds=[(shares.key, shares.state.numbers_of("w"))])
        worker.shares().acquire("w")
    worker.check()


def test_a_late_copy_of_an_earlier_marker_settles_nothing_of_the_next_transaction(worker: Worker) -> None:
    worker.initialise(VERSION_1)
    add = AddOffsets(transactional_id=ID, identity=worker.identity, group_id=GROUP)
    world, share = worker.world, ShareKey(GROUP, worker.shares().key.ordinal)
    for csn, partition in ((1, "t-1"), (2, "t-0")):
        called(lambda: world.inside.transactions.add_offsets(add, VERSION_1))
        world.settle()
        assert worker.acknowledge(partition, context=VERSION_1) is OK
        if csn == 1:
            world.end(ID, worker.identity, Outcome.COMMIT, VERSION_1)
            world.settle()
    marker = Marker(
        producer_id=worker.identity.producer_id,
        txn_epoch=worker.identity.producer_epoch,
        next_epoch=worker.identity.producer_epoch,
        coordinator_shard=world.inside.transactions.shard_key(ID).number,
        coordinator_epoch=1,
        outcome=Outcome.COMMIT,
        csn=world.describe(ID).csn,
    )
    assert marker.csn > 0
    world.inside.runtime.write(world.inside.markers.share_marker(share, marker))
    world.settle()
    assert worker.pictures[0] == PENDING


# Acknowledgements without a transaction, which only a defect or damage leaves


def test_nothing_hangs_at_any_step(split: Worker) -> None:
    world, hanging = split.world, split.world.inside.core.admin.hanging
    assert split.acknowledge("t-0") is OK
    assert [each.group_id for each in world.inside.core.shares.all_pending()] == [GROUP]
    assert hanging.find().result() == []
    world.end(ID, split.identity, Outcome.COMMIT)
    while world.flush():
        assert hanging.find().result() == []
    assert world.inside.core.shares.all_pending() == []


def test_acknowledgements_that_no_owner_will_end_are_found_and_ended_by_an_administrator(split: Worker) -> None:
    world, shares = split.world, split.shares()
    lost = AcknowledgingTransaction("lost", 4_711, 0, OutcomeNumber(1, 0))
    command = TxnAcknowledge("w", (AckBatch(1, 2, (ACCEPT,)),), lost)
    shares.ask(decide_acknowledge_in_transaction, key=shares.key, command=command)
    assert split.pictures[0] == "0: w1 ?1 ?1 w1"
    administration = world.inside.core.admin.transactions
    (found,) = administration.list_hanging(ANYBODY).result()
    opened = found.hanging.opened
    assert (found.ref.topic, found.ref.partition, found.age_ms) == ("t", 0, 0)
    assert (opened.group_id, opened.producer_id, opened.first_offset) == (GROUP, 4_711, 1)
    assert found.hanging.reason is HangingReason.UNKNOWN_PRODUCER
    for dry_run, after in ((True, "0: w1 ?1 ?1 w1"), (False, "0: w1 .1 .1 w1")):
        aborted = administration.abort_hanging(AbortHanging(partition=partition_name("t-0"), dry_run=dry_run), ANYBODY)
        world.settle()
        assert len(aborted.result()) == 1
        assert split.pictures[0] == after
    assert administration.list_hanging(ANYBODY).result() == []
    split.check()


def test_acknowledgements_that_the_transaction_does_not_list_hang(split: Worker) -> None:
    shares = split.shares()
    assert split.acknowledge("t-1") is OK
    unlisted = AcknowledgingTransaction(ID, *split.identity, OutcomeNumber(1, 0))
    command = TxnAcknowledge("w", (AckBatch(0, 0, (ACCEPT,)),), unlisted)
    shares.ask(decide_acknowledge_in_transaction, key=shares.key, command=command)
    (found,) = split.world.inside.core.admin.hanging.find().result()
    assert (found.opened.ordinal, found.reason) == (shares.key.ordinal, HangingReason.NOT_A_MEMBER)


# Late acknowledgements


def test_an_acknowledgement_that_comes_after_the_end_is_refused(worker: Worker) -> None:
    late = worker.identity
    assert worker.acknowledge("t-0") is OK
    worker.end()
    assert worker.acknowledge("t-1", identity=late) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert worker.pictures == ["2: w1 w1", ALL_HELD]
    worker.check()


def test_an_acknowledgement_while_the_outcome_is_carried_out_waits_and_is_refused(split: Worker) -> None:
    world, late = split.world, split.identity
    assert split.acknowledge("t-0") is OK
    world.end(ID, split.identity, Outcome.COMMIT)
    world.flush()
    asked = split.acknowledging("t-1", identity=late)
    assert not asked.is_settled
    world.settle()
    assert code_of(asked) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert split.pictures == ["2: w1 w1", ALL_HELD]
    split.check()


def test_a_topic_that_is_made_anew_while_an_acknowledgement_waits_gets_none(split: Worker) -> None:
    world = split.world
    assert split.acknowledge("t-0") is OK
    world.unload("share:t-0")
    ended = world.end(ID, split.identity, Outcome.COMMIT)
    world.settle()
    split.identity = ended.result().next_identity
    asked = split.acknowledging("t-1")
    world.settle()
    assert not asked.is_settled
    world.load("share:t-0")
    world.inside.driver.read_all()
    world.delete_topic("t")
    world.create_topic("t", 2)
    world.settle()
    world.pass_time(5_000)
    assert code_of(asked) is ErrorCode.UNKNOWN_TOPIC_ID
    assert not split.is_open
    split.check()


@pytest.mark.parametrize("kept", range(6))
@pytest.mark.parametrize("two_phase", list(TwoPhase))
def test_no_crash_leaves_records_without_their_transaction(two_phase: TwoPhase, kept: int) -> None:
    worker = Worker(group_world(topics={"t": 2}, two_phase=two_phase))
    world = worker.world
    worker.acknowledging("t-0")
    world.seal()
    worker.acknowledging("t-1")
    world.seal()
    world.end(ID, worker.identity, Outcome.COMMIT)
    for _step in range(kept):
        world.flush(1)
    world.crash()
    listed = world.describe(ID).shares
    for partition in worker.partitions:
        shares = worker.shares(partition)
        if shares.state.pending_count:
            assert ShareKey(GROUP, shares.key.ordinal) in listed
    world.settle()
    worker.check()
    # Whatever was decided is carried out; what was not times out.
    world.pass_time(60_001)
    assert all("?" not in each for each in worker.pictures)
    worker.check()


# What goes away meanwhile


def test_a_deleted_group_takes_its_pending_records_along(worker: Worker) -> None:
    world = worker.world
    assert worker.acknowledge("t-0", "t-1") is OK
    worker.member.leaves()
    world.settle()
    assert worker.pictures == ["0: ?1 ?1 .1 .1"] * 2
    response = world.ask(group_pb2.DeleteGroupsRequest(group_ids=[GROUP]))
    assert not response.groups[0].error_code
    shards: list[ShareShard] = world.inside.runtime.shards(Coordinator.SHARE_PARTITIONS)
    assert not any(shard.durable_state() for shard in shards)
    worker.end()
    assert not any(shard.durable_state() for shard in shards)
    worker.check()


def test_a_group_that_is_made_anew_is_not_settled_by_an_old_marker(worker: Worker) -> None:
    assert worker.acknowledge("t-0") is OK
    worker.member.leaves()
    worker.world.ask(group_pb2.DeleteGroupsRequest(group_ids=[GROUP]))
    worker.member.joins("t")
    worker.shares().resolve(0)
    worker.shares().acquire("w")
    worker.end()
    assert worker.pictures[0] == ALL_HELD
    worker.check()


def test_pending_records_outlive_their_shard(worker: Worker) -> None:
    world = worker.world
    assert worker.acknowledge("t-0") is OK
    for _time in range(2):
        world.unload("share:t-0")
        world.settle()
        world.load("share:t-0")
        world.inside.driver.read_all()
        world.settle()
        assert worker.pictures[0] == "0: ?1 ?1"
    worker.end()
    assert worker.pictures[0] == "2:"
    worker.check()


def test_records_that_are_deleted_from_the_log_are_archived_at_once(worker: Worker) -> None:
    assert worker.acknowledge("t-0") is OK
    worker.shares().trim(1)
    worker.shares().move_log_start()
    assert worker.pictures[0] == "1: ?1 w1 w1"
    worker.end(Outcome.ABORT)
    assert worker.pictures[0] == "1: .1 w1 w1"
    worker.check()


# Descriptions


@pytest.mark.parametrize("two_phase", list(TwoPhase))
def test_the_history_has_the_share_partitions_of_a_decision(two_phase: TwoPhase) -> None:
    worker = Worker(group_world(topics={"t": 2}, two_phase=two_phase))
    assert worker.acknowledge("t-1", "t-0") is OK
    worker.end()
    asked = worker.world.inside.core.transactions.reader.describe([ID], ANYBODY, history_limit=9)
    worker.world.settle()
    (described,) = asked.result()
    assert described.history is not None
    steps = [step.after for step in described.history.steps if step.after is not None]
    decided = [step.decided.shares for step in steps if step.decided is not None]
    expected = tuple(sorted(ShareKey(GROUP, worker.shares(each).key.ordinal) for each in worker.partitions))
    assert decided
    assert set(decided) == {expected}
    assert 2 in [step.participant_count for step in steps]


def test_the_answer_on_the_wire_has_the_class_that_helps(split: Worker) -> None:
    def request(types: share_pb2.AcknowledgeType.ValueType) -> share_pb2.TxnShareAcknowledgeRequest:
        batch = share_pb2.AcknowledgementBatch(first_offset=0, last_offset=1, types=[types])
        return share_pb2.TxnShareAcknowledgeRequest(
            transactional_id=ID,
            producer_id=split.identity.producer_id,
            producer_epoch=split.identity.producer_epoch,
            group_id=GROUP,
            member_id="w",
            member_epoch=split.member.epoch,
            partitions=[share_pb2.SharePartition(topic="t", acknowledgements=[batch])],
        )

    refused = split.world.ask(request(share_pb2.ACKNOWLEDGE_TYPE_RELEASE))
    assert (refused.error_code, refused.error_class) == (ErrorCode.INVALID_REQUEST, ErrorClass.REJECTED)
    assert not split.world.ask(request(share_pb2.ACKNOWLEDGE_TYPE_ACCEPT)).error_code
    assert split.pictures[0] == PENDING
    split.end()
    late = split.world.ask(request(share_pb2.ACKNOWLEDGE_TYPE_ACCEPT))
    assert (late.error_code, late.error_class) == (ErrorCode.INVALID_RECORD_STATE, ErrorClass.ABORT)


def test_a_transaction_is_described_with_its_share_partitions() -> None:
    worker = Worker(group_world(topics={"t": 2}))
    assert worker.acknowledge("t-1", "t-0") is OK
    reader = worker.world.inside.core.transactions.reader
    (described,) = reader.describe([ID], ANYBODY).result()
    assert [(group, ref.topic, ref.partition) for group, ref in described.shares] == [(GROUP, "t", 0), (GROUP, "t", 1)]


@pytest.mark.parametrize("resource", [ResourceType.GROUP, ResourceType.TOPIC])
def test_what_the_caller_may_not_see_is_left_out(resource: ResourceType) -> None:
    authorizer = Denying()
    worker = Worker(group_world(topics={"t": 2}, authorizer=authorizer))
    assert worker.acknowledge("t-0") is OK
    authorizer.missing = Permission.DESCRIBE, resource
    (described,) = worker.world.inside.core.transactions.reader.describe([ID], ANYBODY).result()
    assert described.shares == []
