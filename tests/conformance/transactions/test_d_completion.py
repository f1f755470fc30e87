"""D. Completion: markers, retries, crash safety."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NoReturn

import pytest
from msgspec.structs import replace

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.marker import Marker, Outcome
from coordinator_runtime.decision import Coordinator, Decision, Operation, Turn
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import (
    ALLOW_ALL,
    Membership,
)
from partition_log.service import LogService
from partition_log.shard import PartitionTransactions
from tests.conformance.transactions.case_world import ABORT, COMMIT, NOW, CaseWorld, Client
from tests.conformance.transactions.cases import both_versions, case, not_drivable
from tests.conformance.transactions.markers import marker, send
from tests.harness.payloads import checks_here
from txn_coordinator.counters import COUNTERS
from txn_coordinator.hanging import HangingTransactions, ProducerOwners
from txn_coordinator.state import Identity

A_SECOND = 1_000
IDLE_MS = 60_000
"""Partitions that forget producers, where a test says so, do it after this time."""

NOT_NOW = Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, "not now; try again")


def away() -> Refused:
    return refused_with(ErrorCode.NETWORK_EXCEPTION)


def refused_with(code: ErrorCode) -> Refused:
    return Refused(code, "not now")


not_drivable(
    129, "there is one server: markers are operations, each transaction's by themselves, not requests to owners"
)


@case(130)
def test_an_idle_sender_sends_nothing() -> None:
    world = CaseWorld(split=True)
    world.ongoing().commit()
    world.settle()
    before = world.version
    world.tick(60 * A_SECOND)
    assert (world.inside.sender.waiting_markers, world.version) == (0, before)


@case(131)
def test_a_deleted_partition_needs_no_marker() -> None:
    world = CaseWorld(split=True)
    world.create_topic("gone", 1)
    world.answers_markers(refused_with(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), "gone-0")
    client = world.ongoing()
    client.write("gone-0", "b")
    client.commit()
    world.settle()
    assert world.state() == "PrepareCommit", "it is not known yet whether the partition is gone"
    world.delete_topic("gone")
    world.answers_markers(None)
    world.tick(A_SECOND)
    world.settle()
    assert (world.state(), world.visible()) == ("CompleteCommit", ["a"])


@case(133)
@both_versions
def test_all_markers_and_then_one_complete(version: int) -> None:
    world = CaseWorld(split=True)
    world.ongoing(version=version).commit()
    decided = world.inside.runtime.groups.durable_version
    world.settle()
    assert (world.state(), world.version - decided) == ("CompleteCommit", 2)


@case(135, differs="design 10: an append that fails ends the process; COMPLETE is owed and comes after the restart")
@both_versions
def test_a_complete_that_was_lost_comes_again(version: int) -> None:
    world = CaseWorld(split=True)
    world.ongoing(version=version).commit()
    world.flush()
    assert world.state() == "PrepareCommit", "every marker is durable, COMPLETE is not"
    world.crash()
    world.settle()
    assert (world.state(), len(world.markers())) == ("CompleteCommit", 1)


@case(137)
@both_versions
def test_markers_under_way_when_the_coordinator_starts_anew(version: int) -> None:
    world = CaseWorld(split=True)
    world.ongoing(version=version).commit()
    world.crash(kept_groups=1)
    assert world.state() == "PrepareCommit"
    world.settle()
    assert (world.state(), len(world.markers())) == ("CompleteCommit", 1)


@case(139)
def test_a_partition_that_is_away_gets_its_marker_later() -> None:
    world = CaseWorld(split=True)
    world.answers_markers(away(), "t-0")
    world.ongoing().commit()
    world.settle()
    assert world.inside.sender.waiting_markers == 1
    world.answers_markers(None)
    world.tick(A_SECOND)
    world.settle()
    assert (world.state(), world.visible()) == ("CompleteCommit", ["a"])


@case(141)
@both_versions
def test_partitions_with_their_marker_are_done(version: int) -> None:
    world = CaseWorld(split=True)
    client = world.ongoing(version=version)
    client.add("t-1")
    client.commit()
    assert world.names(world.described()) == ["t-0", "t-1"]
    world.settle()
    assert (world.names(world.described()), world.inside.sender.waiting_markers) == ([], 0)


@case(145)
@both_versions
def test_a_fenced_coordinator_stops(version: int) -> None:
    world = CaseWorld(split=True)
    world.answers_markers(refused_with(ErrorCode.TRANSACTION_COORDINATOR_FENCED), "t-0")
    world.ongoing(version=version).commit()
    world.settle()
    world.answers_markers(None)
    before = world.version
    world.tick(600 * A_SECOND)
    assert (world.state(), world.version, world.inside.sender.waiting_markers) == ("PrepareCommit", before, 0)
    world.crash()
    world.settle()
    assert (world.state(), world.visible()) == ("CompleteCommit", ["a"])


LATER = [
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.KAFKA_STORAGE_ERROR,
]
IMPOSSIBLE = [
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.RECORD_LIST_TOO_LARGE,
    ErrorCode.UNKNOWN_SERVER_ERROR,
]


def outcome_in_spite_of(refusal: Exception) -> CaseWorld:
    """A commit over two partitions, one of which refuses its marker for ten minutes."""
    world = CaseWorld(split=True)
    world.answers_markers(refusal, "t-1")
    client = world.ongoing()
    client.write("t-1", "b")
    client.commit()
    world.tick(600 * A_SECOND)
    world.settle()
    assert (world.state(), world.visible("t-0"), world.visible("t-1")) == ("PrepareCommit", ["a"], [])
    assert world.inside.sender.failed_markers.total() > 1
    world.answers_markers(None)
    world.tick(A_SECOND)
    world.settle()
    assert (world.state(), world.visible("t-1")) == ("CompleteCommit", ["b"])
    return world


@case(146)
@pytest.mark.parametrize("code", LATER, ids=lambda code: code.name)
def test_a_partition_that_cannot_now_is_asked_again(code: ErrorCode) -> None:
    world = outcome_in_spite_of(refused_with(code))
    assert [entry.marker.outcome for entry in world.markers("t-1") if entry.marker] == [COMMIT]


@case(147)
@pytest.mark.parametrize("code", IMPOSSIBLE, ids=lambda code: code.name)
def test_an_impossible_answer_raises_the_alarm_and_ends_no_transaction(code: ErrorCode) -> None:
    world = outcome_in_spite_of(refused_with(code))
    assert set(world.inside.sender.alarms) == {code.name}


def sent_after_restart(outcome: Outcome, version: int) -> None:
    world = CaseWorld(split=True)
    client = world.ongoing(version=version)
    client.end(outcome)
    epoch = coordinator_epoch(world)
    world.crash()
    world.settle()
    (found,) = world.markers()
    assert found.marker is not None
    assert (found.marker.outcome, found.marker.coordinator_epoch) == (outcome, coordinator_epoch(world))
    assert coordinator_epoch(world) > epoch


def coordinator_epoch(world: CaseWorld) -> int:
    shard = world.inside.runtime.shard(world.inside.transactions.shard_key("orders"))
    return int(shard.coordinator_epoch)


@case(149)
@both_versions
def test_a_decided_commit_is_finished_after_loading(version: int) -> None:
    sent_after_restart(COMMIT, version)


@case(150)
@both_versions
def test_a_decided_abort_is_finished_after_loading(version: int) -> None:
    sent_after_restart(ABORT, version)


@case(
    151,
    differs="offsets lie in no topic, so WriteTxnMarkers names partitions alone; what this server's coordinator sends "
    "reaches both kinds of participants",
)
def test_partitions_and_groups_get_their_markers_and_are_complete_together() -> None:
    world = CaseWorld(split=True)
    refusing = world.answers_markers(NOT_NOW, "group:copiers")
    client = world.ongoing()
    client.offset("copiers", 7)
    client.commit()
    world.settle()
    assert (world.visible(), world.inside.groups.committed("copiers")) == (["a"], -1)
    assert world.state() == "PrepareCommit"
    world.answers_markers(None)
    world.tick(1_000)
    world.settle()
    assert (world.inside.groups.committed("copiers"), world.state()) == (7, "CompleteCommit")
    assert refusing.tried > 2


@case(163)
@both_versions
def test_no_plain_batch_inside_an_open_transaction(version: int) -> None:
    assert CaseWorld().ongoing(version=version).write("t-0", "b", plain=True) == 48


@case(165)
@both_versions
def test_the_last_stable_offset_waits_for_the_oldest(version: int) -> None:
    world = CaseWorld(split=False)
    clients = [world.ready(name, version=version) for name in ("one", "two", "three")]
    for client in clients:
        client.add("t-0")
        client.write("t-0", client.transactional_id)
    stable = [world.read("t-0").last_stable_offset]
    for number in (0, 2, 1):
        clients[number].commit()
        stable.append(world.read("t-0").last_stable_offset)
    assert stable == [0, 1, 1, 6]


@case(166)
def test_an_open_transaction_and_a_fence_outlive_the_idle_producer() -> None:
    world = CaseWorld(producer_expiration_ms=IDLE_MS)
    client = world.client("open")
    client.init(timeout_ms=10 * IDLE_MS)
    client.write("t-0", "a")
    for producer_id in (78, 79):
        client.write("t-1", "b", shown=Identity(producer_id, 0), sequence=0, plain=True)
    world.tick(IDLE_MS - 1)
    world.told(world.send_marker("t-1", marker(1, producer_id=78)))
    world.tick(IDLE_MS - 1)
    world.settle()
    assert len(world.remembered("t-0")) == 1
    assert [(producer_id, entry.epoch) for producer_id, entry in world.remembered("t-1")] == [(78, 2)]
    assert client.write("t-1", "c", shown=Identity(78, 1), sequence=0, plain=True) == 47
    assert client.write("t-0", "d") == 0


class AdmitsAll:
    """A coordinator that lets every batch in and remembers none: what may never be."""

    def verify(self, membership: Membership, ordinal: int) -> Operation:
        return Operation(COUNTERS, lambda _shard, _turn: Decision())

    def add(self, membership: Membership, ordinals: frozenset[int]) -> Operation:
        return self.verify(membership, min(ordinals))

    def refuse_if_open(self, membership: Membership, ordinal: int, refusal: Refused) -> Operation:
        return self.verify(membership, ordinal)

    def check_plain(self, producer_id: int) -> Operation:
        return Operation(COUNTERS, lambda _shard, _turn: Decision())

    def abort_touching(self, ordinals: Sequence[int]) -> Sequence[Operation]:
        return []


def auditor(world: CaseWorld) -> HangingTransactions:
    runtime = world.inside.runtime
    opened = PartitionTransactions(partial(runtime.shards, Coordinator.LOG), world.inside.catalog)
    found = HangingTransactions(
        runtime,
        ProducerOwners(runtime),
        opened,
        world.inside.core.shares,
        world.inside.markers,
        world.inside.transactions.shard_key,
    )
    found.audit()
    return found


@case(
    167, differs="not by age: what no transactional id will end is found at once, and counted (txn_coordinator_hanging)"
)
def test_a_hanging_transaction_is_counted() -> None:
    world = CaseWorld()
    client = world.ready()
    world.inside.log = LogService(
        world.inside.runtime,
        world.shelf.store,
        world.inside.catalog,
        verifier=AdmitsAll(),
        authorizer=ALLOW_ALL,
        checks=checks_here(world.options.limits()),
    )
    client.write("t-0", "a")
    assert auditor(world).count == 1
    world.crash()
    found = auditor(world)
    assert found.count == 1
    ordinal = world.inside.catalog.resolve("t", b"", 0).ordinal
    assert len(world.told(found.abort(ordinal, None, NOW, dry_run=False))) == 1
    assert auditor(world).count == 0


@case(169)
def test_a_marker_repeated_after_a_restart_is_done_already() -> None:
    world = CaseWorld(split=True)
    world.ongoing().commit()
    world.settle()
    (first,) = world.markers()
    assert first.marker is not None
    again = Marker(
        producer_id=first.producer_id,
        txn_epoch=first.marker.txn_epoch,
        next_epoch=first.marker.next_epoch,
        coordinator_shard=first.marker.coordinator_shard,
        coordinator_epoch=first.marker.coordinator_epoch + 1,
        outcome=first.marker.outcome,
        csn=first.marker.csn,
    )
    world.crash()
    assert send(world, again) == 0
    assert len(world.markers()) == 1


@case(170, differs="design 6: a marker is known by its csn; a late one is success, and nothing is appended (not 47)")
def test_a_late_marker_does_not_close_the_next_transaction() -> None:
    world = CaseWorld(split=False)
    client = world.ongoing()
    client.commit()
    (first,) = world.markers()
    assert first.marker is not None
    client.write("t-0", "b")
    late = marker(
        0,
        producer_id=first.producer_id,
        coordinator_shard=first.marker.coordinator_shard,
        coordinator_epoch=first.marker.coordinator_epoch,
        csn=1,
    )
    for order in (replace(late, outcome=COMMIT), replace(late, outcome=COMMIT, csn=0)):
        assert send(world, order) == 0
    assert (len(world.markers()), world.visible()) == (1, ["a"])
    client.commit()
    assert world.visible() == ["a", "b"]


@case(171)
def test_the_next_transaction_waits_for_the_marker_of_the_last() -> None:
    world = CaseWorld(split=True)
    world.answers_markers(away(), "t-0")
    client = world.ongoing()
    client.commit()
    world.settle()
    assert client.write("t-0", "b") == 51
    world.answers_markers(None)
    world.tick(A_SECOND)
    world.settle()
    assert client.write("t-0", "b") == 0
    client.abort()
    world.settle()
    assert world.visible() == ["a"]


class Copier:
    """Copies the group's topic t-1 to t-0, a value per transaction; every third attempt aborts."""

    def __init__(self, world: CaseWorld) -> None:
        self.world = world
        self.attempts = 0
        self.client: Client | None = None

    def step(self, source: list[str]) -> Pending[object] | None:
        """One attempt, as far as it goes until the server is gone; None at the end of the source."""
        position = self.world.inside.groups.committed("copiers") + 1
        if position == len(source):
            return None
        if self.client is None:
            self.client = self.world.client()
            while isinstance(self.client.init(), int):
                self.world.settle()
        self.attempts += 1
        client = self.client
        assert client.write("t-0", source[position]) == 0
        assert client.offset("copiers", position) == position
        return client.sends_end(ABORT if self.attempts % 3 == 0 else COMMIT)


@case(173)
@pytest.mark.parametrize("split", [False, True], ids=["fused", "split"])
def test_a_copy_over_many_restarts_has_every_value_once(split: bool) -> None:
    world = CaseWorld(split=split)
    source = [f"v{number}" for number in range(80)]
    copier = Copier(world)
    while (ending := copier.step(source)) is not None:
        if copier.attempts % 5 == 0:
            world.crash(kept_groups=copier.attempts // 5 % 3)
            world.settle()
            copier.client = None
        else:
            world.settle()
            assert copier.client is not None
            copier.client.identity = ending.result().next_identity  # type: ignore[attr-defined]
            copier.client.sequences = {}
    visible: list[str] = []
    offset = 0
    while (reading := world.read("t-0", fetch_offset=offset)).next_offset > offset:
        visible += reading.values
        offset = reading.next_offset
    assert visible == source
    assert world.lives > 20


@case(174)
def test_offsets_that_were_settled_for_nothing_wait_as_before() -> None:
    """The shard of the group settles, and something later in the same operation is refused."""
    world = CaseWorld()
    client = world.ready()
    client.offset("copiers", 7)
    before = world.inside.groups.view("copiers")
    producer_id, epoch = client.identity
    shard = world.inside.transactions.shard_key("orders").number
    order = replace(marker(epoch, producer_id=producer_id, coordinator_shard=shard), outcome=COMMIT)
    settled = world.inside.markers.group_marker("copiers", order)
    both = Decision(joins=(settled, Operation(COUNTERS, refuse)))
    assert world.told(world.inside.runtime.write(Operation(COUNTERS, lambda _shard, _turn: both))) == 6
    world.settle()
    assert world.inside.groups.view("copiers") == before
    assert world.inside.groups.fetch("copiers", require_stable=True).is_settled
    client.commit()
    world.settle()
    assert world.inside.groups.committed("copiers") == 7


def refuse(_shard: object, _turn: Turn) -> NoReturn:
    raise NOT_NOW
