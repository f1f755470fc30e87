"""J. Own cases, where Kafka is wrong or silent."""

from __future__ import annotations

from pathlib import Path

import pytest

from coordinator_api.v1 import transaction_pb2
from coordinator_protocol.errors import UnknownOutcome
from coordinator_runtime.ports import CallContext
from coordinator_runtime.rocks import open_store
from coordinator_runtime.store import StoreFailed, StoreRefused
from tests.conformance.transactions.case_world import COMMIT, EXHAUSTED, NOW, TIMEOUT_MS, CaseWorld
from tests.conformance.transactions.cases import both_versions, case
from tests.conformance.transactions.test_d_completion import away, marker, send
from txn_coordinator.requests import TransactionFilter
from txn_coordinator.state import Identity

TEN_MINUTES_MS = 600_000


@case(278)
@both_versions
def test_a_zombie_that_initialises_harms_no_other(version: int) -> None:
    world = CaseWorld(split=False)
    owner = world.ongoing(version=version, epoch=4)
    assert world.client(version=version).init(expected=owner.before(2)) == 90
    assert isinstance(owner.commit(), Identity)
    assert world.visible() == ["a"]


@case(279)
@both_versions
def test_a_retry_that_ends_at_the_last_epoch_is_a_retry(version: int) -> None:
    world = CaseWorld(near_the_end=True)
    client = world.ready(version=version, epoch=EXHAUSTED - 1)
    shown = client.identity
    assert client.init(expected=shown) == Identity(shown.producer_id, EXHAUSTED)
    assert client.init(expected=shown) == Identity(shown.producer_id, EXHAUSTED)


@case(281)
def test_initialising_on_ones_own_open_transaction() -> None:
    world = CaseWorld(split=True)
    client = world.ongoing(epoch=4)
    shown = client.identity
    assert client.init(expected=shown) == 51
    world.settle()
    assert client.init(expected=shown) == Identity(shown.producer_id, 5)


@case(282)
def test_a_client_that_was_timed_out_aborts_and_goes_on() -> None:
    world = CaseWorld()
    client = world.ongoing(epoch=4)
    world.tick(TIMEOUT_MS + 1)
    world.settle()
    assert client.abort() == Identity(0, 5)
    assert client.add("t-0") is True
    assert client.commit() == Identity(0, 6)


@case(283)
def test_an_old_client_that_was_timed_out_must_initialise() -> None:
    world = CaseWorld()
    client = world.ongoing(version=1, epoch=4)
    world.tick(TIMEOUT_MS + 1)
    world.settle()
    assert client.abort() == 90
    assert isinstance(client.init(), Identity)
    assert client.add("t-0") is True


@case(285)
@both_versions
@pytest.mark.parametrize("split", [False, True], ids=["fused", "split"])
def test_killed_before_the_decision_was_durable(version: int, split: bool) -> None:
    world = CaseWorld(split=split)
    client = world.ongoing(version=version)
    client.sends_end(COMMIT)
    world.crash()
    world.tick(TIMEOUT_MS)
    world.settle()
    assert world.state() == "Ongoing"
    assert isinstance(client.commit(), Identity)
    world.settle()
    assert world.visible() == ["a"]


@case(286)
@both_versions
def test_killed_between_the_last_marker_and_complete(version: int) -> None:
    world = CaseWorld(split=True)
    world.ongoing(version=version).commit()
    world.flush()
    world.crash()
    world.settle()
    reading = world.read("t-0")
    assert (reading.values, reading.last_stable_offset, reading.high_watermark) == (["a"], 2, 2)


@case(287)
@both_versions
def test_a_partition_that_is_away_for_ten_minutes(version: int) -> None:
    world = CaseWorld(split=True)
    world.answers_markers(away(), "t-0")
    client = world.ongoing(version=version)
    client.commit()
    decided = world.described()
    world.tick(TEN_MINUTES_MS)
    world.settle()
    assert world.described() == decided, "nothing else happened to it meanwhile"
    world.answers_markers(None)
    world.tick(1_000)
    world.settle()
    assert (world.state(), world.visible()) == ("CompleteCommit", ["a"])


@case(289)
def test_the_key_with_the_smallest_hash_has_a_shard() -> None:
    world = CaseWorld()
    request = transaction_pb2.FindCoordinatorRequest(
        key_type=transaction_pb2.COORDINATOR_KEY_TYPE_TRANSACTION, keys=["polygenelubricants"]
    )
    (found,) = world.asked(lambda: world.servicer().FindCoordinator(request, NOW)).coordinators
    assert (found.error_code, found.coordinator_shard) == (0, 0)


@case(290)
def test_another_number_of_shards_is_refused(tmp_path: Path) -> None:
    open_store(tmp_path, shard_count=2).close()
    with pytest.raises(StoreRefused, match="made with 2 shards and cannot be opened with 3"):
        open_store(tmp_path, shard_count=3)


@case(291, differs="design 10: a full disk ends the process, and who waits is told that the outcome is unknown (7)")
@pytest.mark.parametrize("kept_groups", [0, 1])
def test_a_disk_that_is_full_at_the_decision(kept_groups: int) -> None:
    world = CaseWorld(split=False)
    client = world.ongoing()
    commit = client.sends_end(COMMIT)
    world.inside.driver.write_unsynced(kept_groups)
    world.inside.runtime.fail(StoreFailed("no space left"))
    with pytest.raises(UnknownOutcome):
        commit.result()
    assert client.commit() == 15
    world.crash()
    world.settle()
    assert isinstance(client.commit(), Identity)
    assert (len(world.markers()), world.visible()) == (1, ["a"])


@case(293)
def test_an_idle_id_is_not_listed_as_old() -> None:
    world = CaseWorld()
    world.ready()
    world.tick(2 * 3_600_000)
    wanted = TransactionFilter(open_longer_than_ms=3_600_000)
    assert not world.inside.reader.list(wanted, CallContext()).transactions


@case(294)
def test_a_second_server_on_the_same_directory(tmp_path: Path) -> None:
    first = open_store(tmp_path, shard_count=2)
    try:
        with pytest.raises(StoreRefused, match="stop it first"):
            open_store(tmp_path, shard_count=2)
    finally:
        first.close()
    world = CaseWorld()
    old, new = 1, 2
    assert send(world, marker(0, csn=1, coordinator_epoch=new)) == 0
    assert send(world, marker(1, csn=2, coordinator_epoch=old)) == 52
