"""I. Two-phase commit with outside participants (KIP-939)."""

from __future__ import annotations

from coordinator_api.v1 import transaction_pb2
from coordinator_runtime.ports import CallContext
from coordinator_server.metrics.transactions import TransactionNumbers
from tests.conformance.transactions.case_world import EXHAUSTED, NOW, TIMEOUT_MS, CaseWorld, Client
from tests.conformance.transactions.cases import both_versions, case
from txn_coordinator.requests import TransactionFilter
from txn_coordinator.state import Identity

A_YEAR_MS = 365 * 24 * 3_600_000
AN_HOUR_MS = 3_600_000


def participant(world: CaseWorld, *, epoch: int = 0, version: int = 2) -> Client:
    """A participant with a transaction open, and the record `a` in it."""
    client = world.client(version=version)
    while client.init(enable_2pc=True).producer_epoch != epoch:
        pass
    assert client.add("t-0") is True
    assert client.write("t-0", "a") == 0
    return client


@case(259)
def test_switched_off_it_is_not_allowed() -> None:
    world = CaseWorld()
    request = transaction_pb2.InitProducerIdRequest(transactional_id="orders", enable_2pc=True)
    assert world.asked(lambda: world.servicer().InitProducerId(request, NOW)) == 53


@case(261)
def test_a_participant_never_times_out() -> None:
    world = CaseWorld()
    client = participant(world)
    for _ in range(2):
        world.tick(A_YEAR_MS // 12)
        world.settle()
        assert world.state() == "Ongoing"
        world.crash(down_ms=A_YEAR_MS)
        world.settle()
    world.tick(1)
    world.settle()
    assert world.state() == "Ongoing"
    assert isinstance(client.commit(), Identity)


@case(262)
@both_versions
def test_a_crashed_participant_comes_back_and_commits(version: int) -> None:
    world = CaseWorld(split=False)
    token = participant(world, version=version).identity
    world.crash()
    again = world.client(version=version)
    assert again.keep() == token
    again.commit()
    assert world.visible() == ["a"]
    assert again.add("t-1") is True
    assert again.write("t-1", "b") == 0
    again.commit()
    assert world.visible("t-1") == ["b"]


@case(263)
@both_versions
def test_a_crashed_participant_comes_back_and_aborts(version: int) -> None:
    world = CaseWorld(split=False)
    token = participant(world, version=version).identity
    world.crash()
    again = world.client(version=version)
    assert again.keep() == token
    again.abort()
    again.add("t-0")
    assert again.write("t-0", "b") == 0
    again.commit()
    assert world.visible() == ["b"]


@case(265)
def test_keeping_at_the_last_epoch_rotates_the_client_alone() -> None:
    world = CaseWorld(near_the_end=True)
    token = participant(world, epoch=EXHAUSTED).identity
    again = world.client()
    assert again.keep() == token
    assert again.identity == Identity(token.producer_id + 1, 0)
    assert world.described().identity == token
    assert again.commit() == Identity(token.producer_id + 1, 1)


@case(266)
def test_committing_what_was_kept_up_to_the_last_epoch_rotates() -> None:
    world = CaseWorld(near_the_end=True)
    token = participant(world, epoch=EXHAUSTED - 1).identity
    again = world.client()
    again.keep()
    assert again.identity == Identity(token.producer_id, EXHAUSTED)
    assert again.commit() == Identity(token.producer_id + 1, 0)


@case(267)
def test_one_transaction_over_three_producer_ids() -> None:
    world = CaseWorld(split=True, near_the_end=True)
    first = participant(world, epoch=EXHAUSTED).identity
    again = world.client()
    while again.identity != Identity(first.producer_id + 1, EXHAUSTED):
        assert again.keep() == first
    third = again.commit()
    prepared = world.described()
    assert (prepared.producer_id, prepared.prev_producer_id, prepared.next_producer_id) == (0, 1, 2)
    world.settle()
    assert world.described().identity == third == Identity(2, 0)
    assert [entry.producer_id for entry in world.markers()] == [first.producer_id]


@case(269)
def test_a_commit_of_what_was_kept_repeated_across_a_rotation() -> None:
    world = CaseWorld(split=False, near_the_end=True)
    participant(world, epoch=EXHAUSTED - 1)
    again = world.client()
    again.keep()
    shown = again.identity
    assert again.commit() == again.commit(shown) == Identity(shown.producer_id + 1, 0)


@case(270)
def test_a_delayed_commit_does_not_end_the_next_transaction() -> None:
    world = CaseWorld(split=False)
    participant(world, epoch=1)
    again = world.client()
    again.keep()
    delayed = again.identity
    again.commit()
    again.write("t-0", "b")
    assert again.commit(delayed) == 90
    assert (world.state(), world.visible()) == ("Ongoing", ["a"])


@case(271)
def test_a_commit_whose_reply_was_lost_leaves_nothing_to_keep() -> None:
    world = CaseWorld(split=False)
    participant(world).commit()
    again = world.client()
    assert again.keep() is None
    assert again.write("t-0", "b") == 0
    again.commit()
    assert world.visible() == ["a", "b"]


@case(273)
def test_an_ordinary_transaction_can_be_kept_and_still_times_out() -> None:
    world = CaseWorld()
    token = world.ongoing().identity
    again = world.client()
    assert again.keep(enable_2pc=False) == token
    world.tick(TIMEOUT_MS + 1)
    world.settle()
    assert (world.state(), world.described().cause) == ("CompleteAbort", "timeout")


@case(274)
@both_versions
def test_what_was_kept_takes_no_more(version: int) -> None:
    world = CaseWorld()
    token = participant(world, version=version).identity
    again = world.client(version=version)
    again.keep()
    assert [again.add("t-1"), again.add("t-1", shown=token)] == [48, 90]


@case(275)
@both_versions
def test_what_was_kept_survives_a_restart_at_each_step(version: int) -> None:
    world = CaseWorld(split=True)
    token = participant(world, version=version).identity
    world.crash()
    again = world.client(version=version)
    for _ in range(2):
        assert again.keep() == token
        world.crash()
    shown = again.identity
    again.commit()
    world.crash()
    assert world.state() == "PrepareCommit"
    world.settle()
    assert isinstance(again.commit(shown), Identity)
    assert (world.state(), world.visible(), len(world.markers())) == ("CompleteCommit", ["a"], 1)


@case(277)
def test_a_forgotten_participant_is_seen() -> None:
    world = CaseWorld()
    participant(world)
    gauge = TransactionNumbers()
    shard = world.inside.runtime.shard(world.inside.transactions.shard_key("orders"))
    gauge.load(shard.table.durable_transactions())
    ages = []
    for _ in range(2):
        world.tick(AN_HOUR_MS + 1)
        now_ms = world.clock.wall_ms()
        found = world.inside.reader.list(TransactionFilter(open_longer_than_ms=AN_HOUR_MS), CallContext()).transactions
        ages.append([now_ms - transaction.start_ms for transaction in found])
        assert gauge.readings(now_ms)["txn_coordinator_oldest_open_age_seconds"] == {(): ages[-1][0] / 1_000}
    assert ages == [[AN_HOUR_MS + 1], [2 * AN_HOUR_MS + 2]]
