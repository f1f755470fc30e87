"""Hanging transactions: there are none, the auditor would find them, and only orphans get a marker of their own."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.limits import EPOCH_MAX
from coordinator_runtime.ports import AllowAll, CallContext, OpenInPartition, OutcomeNumber, Permission, ResourceType
from tests.harness.world import partition_name
from tests.transactions.administered import ADMIN, CLIENT, COMMIT, Administered
from tests.transactions.world_of_one import PRODUCER_ID, transaction
from txn_coordinator.administration import AbortHanging
from txn_coordinator.config import TwoPhase
from txn_coordinator.hanging import AUDIT_PAUSE_MS, Hanging, HangingReason, ProducerOwners, judge, marker_for
from txn_coordinator.state import DECIDED, IDLE, Identity, TransactionState

OPENED = OpenInPartition(1, PRODUCER_ID, 5, 3, 6, 40, 1_000)


@pytest.mark.parametrize("state", list(TransactionState))
def test_every_state_of_an_owner_is_judged(state: TransactionState) -> None:
    owner = transaction(state)
    written = replace(OPENED, producer_epoch=owner.txn_epoch if state in DECIDED else owner.producer_epoch)
    judged = judge(written, owner)
    if state in IDLE:
        assert judged is not None
        assert judged.reason is HangingReason.NOT_OPEN
        return
    assert judged is None
    for opened, reason in (
        (replace(written, ordinal=9), HangingReason.NOT_A_MEMBER),
        (replace(written, producer_epoch=written.producer_epoch - 1), HangingReason.OTHER_EPOCH),
        (replace(written, producer_epoch=written.producer_epoch + 1), HangingReason.OTHER_EPOCH),
    ):
        judged = judge(opened, owner)
        assert judged is not None
        assert judged.reason is reason


@pytest.mark.parametrize(
    ("owner_epoch", "opened_epoch", "next_epoch"), [(None, 5, 6), (6, 5, 6), (5, 5, 5), (4, 5, 5), (None, EPOCH_MAX, 0)]
)
def test_the_marker_takes_its_epoch_from_the_log_and_fences_no_owner(
    owner_epoch: int | None, opened_epoch: int, next_epoch: int
) -> None:
    owner = None if owner_epoch is None else transaction(TransactionState.EMPTY, epoch=owner_epoch)
    opened = replace(OPENED, producer_epoch=opened_epoch, coordinator_epoch=-1)
    marker = marker_for(Hanging(opened, HangingReason.NOT_OPEN, owner), OutcomeNumber(6, 8))
    assert (marker.producer_id, marker.txn_epoch, marker.csn) == (PRODUCER_ID, opened_epoch, 8)
    assert marker.next_epoch == (next_epoch or EPOCH_MAX)
    assert (marker.coordinator_shard, marker.coordinator_epoch) == (6, 0)


@pytest.mark.parametrize("two_phase", list(TwoPhase))
def test_nothing_hangs_at_any_step_of_a_transaction(two_phase: TwoPhase) -> None:
    world = Administered(two_phase)
    identity = world.ready("a")
    steps = (
        lambda: world.produce("a", identity, "t-0", ["x"], sequence=0, context=CLIENT),
        lambda: world.end("a", identity, COMMIT, CLIENT),
    )
    for step in steps:
        step()
        assert world.hanging.find().result() == []
        while world.flush():
            assert world.hanging.find().result() == []


@pytest.mark.parametrize("kept_groups", [0, 1, 2, 3])
def test_nothing_hangs_after_a_crash_at_any_step(kept_groups: int) -> None:
    world = Administered(TwoPhase.SPLIT)
    identity = world.opened("a", "t-0", "t-1")
    world.end("a", identity, COMMIT, CLIENT)
    for _ in range(kept_groups):
        world.flush()
    world.crash()
    assert world.hanging.find().result() == []
    world.settle()
    assert world.hanging.find().result() == []
    assert world.read("t-0").values == (["x"] if kept_groups else [])


def hanging_world() -> tuple[Administered, Identity]:
    """`a` has a transaction open in t-0, and a producer that no id has hangs there behind it, and in t-1."""
    world = Administered()
    world.opened("a")
    orphan = world.init_plain(CLIENT)
    world.settle()
    identity = orphan.result()
    for partition in ("t-0", "t-1"):
        world.leave_hanging(partition, identity)
    return world, identity


def test_the_auditor_finds_it_at_start_and_every_ten_seconds_and_tells_once() -> None:
    world, identity = hanging_world()
    world.hanging.audit()
    assert {(each.opened.ordinal, each.opened.producer_id, each.reason.value) for each in world.found} == {
        (world.ordinal("t-0"), identity.producer_id, "unknown_producer"),
        (world.ordinal("t-1"), identity.producer_id, "unknown_producer"),
    }
    assert world.hanging.count == 2
    idle = world.ready("b")
    world.leave_hanging("t-1", idle)
    world.tick(AUDIT_PAUSE_MS - 1)
    assert len(world.found) == 2
    world.tick(1)
    assert [(each.opened.producer_id, each.reason.value) for each in world.found[2:]] == [
        (idle.producer_id, "not_open")
    ]
    assert world.hanging.count == 3
    world.tick(AUDIT_PAUSE_MS)
    assert len(world.found) == 3


def test_many_open_transactions_are_compared_in_turns_and_one_that_ends_meanwhile_is_not_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("txn_coordinator.hanging.JUDGED_PER_STEP", 1)
    world = Administered()
    opened = {name: world.opened(name) for name in ("a", "b", "c")}
    looking = world.hanging.find()
    assert not looking.is_settled
    for name, identity in opened.items():
        world.end(name, identity, COMMIT)
    world.settle()
    for _turn in opened:
        world.tick(0)
    assert looking.result() == []


def test_a_hanging_transaction_is_found_in_whichever_turn_it_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("txn_coordinator.hanging.JUDGED_PER_STEP", 1)
    world, identity = hanging_world()
    looking = world.hanging.find()
    for _turn in range(3):
        world.tick(0)
    assert {each.opened.producer_id for each in looking.result()} == {identity.producer_id}
    assert len(looking.result()) == 2


def test_only_the_orphan_gets_a_marker_and_readers_go_on() -> None:
    world, identity = hanging_world()
    assert world.read("t-1").last_stable_offset == 0
    would = world.hanging.abort(world.ordinal("t-1"), None, ADMIN, dry_run=True)
    world.settle()
    assert world.read("t-1").last_stable_offset == 0
    done = world.hanging.abort(world.ordinal("t-1"), None, ADMIN, dry_run=False)
    world.settle()
    assert done.result() == would.result()
    reading = world.read("t-1")
    assert (reading.values, reading.last_stable_offset, reading.high_watermark) == ([], 2, 2)
    late = world.produce(None, identity, "t-1", ["late"], sequence=1, context=CLIENT)
    world.settle()
    error = late.result().error
    assert error is not None
    assert error.code is ErrorCode.INVALID_PRODUCER_EPOCH
    world.hanging.audit()
    assert world.hanging.count == 1
    world.crash()
    world.settle()
    world.check_replay()
    assert world.read("t-1").last_stable_offset == 2


def test_a_transaction_that_an_id_owns_is_left_to_its_coordinator() -> None:
    world, identity = hanging_world()
    place = world.ordinal("t-0")
    owned = world.describe("a").producer_id
    refused = world.hanging.abort(place, owned, ADMIN, dry_run=False)
    world.settle()
    with pytest.raises(Refused, match=r"belongs to 'a'.*use AbortTransactions") as refusal:
        refused.result()
    assert refusal.value.code is ErrorCode.INVALID_TXN_STATE
    done = world.hanging.abort(place, None, ADMIN, dry_run=False)
    world.settle()
    assert [each.opened.producer_id for each in done.result()] == [identity.producer_id]
    reading = world.read("t-0")
    assert reading.last_stable_offset == 0, "the transaction of `a` is open still"
    assert world.describe("a").state is TransactionState.ONGOING
    again = world.hanging.abort(place, identity.producer_id, ADMIN, dry_run=False)
    world.settle()
    with pytest.raises(Refused, match="no such transaction is open"):
        again.result()


def test_a_deleted_topic_leaves_nothing_hanging() -> None:
    world, _identity = hanging_world()
    place = world.ordinal("t-1")
    world.delete_topic("t")
    assert world.hanging.find().result() == []
    refused = world.hanging.abort(place, None, ADMIN, dry_run=False)
    world.settle()
    with pytest.raises(Refused, match="no such transaction is open"):
        refused.result()


def test_that_the_topic_is_gone_is_told_once_it_is_durable() -> None:
    world = Administered()
    world.delete_topic("t")
    refused = world.administration.abort_hanging(AbortHanging(partition=partition_name("t-0")), ADMIN)
    assert not refused.is_settled
    world.settle()
    with pytest.raises(Refused, match="there is no topic"):
        refused.result()


class OnlyLooks(AllowAll):
    def is_allowed(self, context: CallContext, permission: Permission, resource: ResourceType, name: str) -> bool:
        return permission is not Permission.ALTER


def test_who_may_look_may_not_abort() -> None:
    world = Administered(authorizer=OnlyLooks())
    assert world.administration.list_hanging(ADMIN).result() == []
    for dry_run in (True, False):
        with pytest.raises(Refused) as refusal:
            world.administration.abort_hanging(AbortHanging(partition=partition_name("t-0"), dry_run=dry_run), ADMIN)
        assert refusal.value.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_a_producer_id_has_its_owner_through_rotation_and_crash() -> None:
    world = Administered()
    identity = world.ready("a")
    owner = ProducerOwners(world.inside.runtime).owner_of(identity.producer_id)
    assert owner is not None
    assert owner.transactional_id == "a"
    world.crash()
    world.settle()
    owner = ProducerOwners(world.inside.runtime).owner_of(identity.producer_id)
    assert owner is not None
    assert owner.transactional_id == "a"
    assert ProducerOwners(world.inside.runtime).owner_of(identity.producer_id + 1) is None
