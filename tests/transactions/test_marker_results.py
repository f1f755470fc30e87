"""A participant's answer to its marker decides the fate of the marker, never that of the transaction.

Source: spec transactions 4, the table of marker results: a test per row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pytest

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.marker import Marker, Outcome
from coordinator_runtime.decision import Decision, Operation, ShardKey, Turn
from coordinator_runtime.ports import OpenInPartition
from tests.conformance.transactions.case_world import CaseWorld, Refusing
from txn_coordinator.counters import COUNTERS
from txn_coordinator.shard import TransactionShard

LATER = [3, 6, 7, 13, 14, 15, 16, 19, 20, 56]
"""3 too: what is deleted is known from the catalog, which needs no marker (conformance, case 131)."""
NEEDLESS = [35, 43]
ENDED, ZOMBIE = 47, 52
IMPOSSIBLE = [-1, 2, 10, 18, 29, 42, 48, 51, 89, 90]
"""Codes that are in no other row, for example."""

A_SECOND = 1_000
AN_HOUR = 3_600_000


def refusal(code: int) -> Refused:
    return Refused(ErrorCode(code), "so it is")


def decided(code: int, participant: str = "t-1") -> tuple[CaseWorld, Refusing]:
    """A commit over two partitions and a group, of which one answers its marker with this code."""
    world = CaseWorld(split=True)
    refusing = world.answers_markers(refusal(code), participant)
    client = world.ongoing()
    client.write("t-1", "b")
    client.offset("copiers", 7)
    client.commit()
    world.settle()
    assert world.visible("t-0") == ["a"], "the others have their marker, whatever one of them says"
    return world, refusing


def owed_until_taken(world: CaseWorld, alarms: list[str]) -> None:
    """The marker is sent again for as long as it is refused, and then the transaction is complete."""
    assert world.state() == "PrepareCommit"
    assert world.inside.sender.waiting_markers == 1
    world.tick(A_SECOND)
    world.settle()
    assert world.inside.sender.failed_markers.total() > 1
    assert sorted(world.inside.sender.alarms) == alarms
    world.answers_markers(None)
    world.tick(A_SECOND)
    world.settle()
    complete(world)


def complete(world: CaseWorld) -> None:
    assert (world.state(), world.inside.sender.waiting_markers) == ("CompleteCommit", 0)
    assert world.inside.groups.committed("copiers") == 7
    world.tick(AN_HOUR)
    assert world.inside.sender.waiting_markers == 0


def test_a_marker_that_is_taken_is_done() -> None:
    world = CaseWorld(split=True)
    refusing = world.answers_markers(None)
    client = world.ongoing()
    client.offset("copiers", 7)
    client.commit()
    world.settle()
    complete(world)
    assert (refusing.tried, world.inside.sender.failed_markers.total()) == (2, 0)


@pytest.mark.parametrize("participant", ["t-1", "group:copiers"])
@pytest.mark.parametrize("code", LATER)
def test_who_cannot_now_is_asked_again_without_an_alarm(code: int, participant: str) -> None:
    world, _refusing = decided(code, participant)
    owed_until_taken(world, alarms=[])


@pytest.mark.parametrize("code", NEEDLESS)
def test_a_partition_that_can_hold_no_markers_is_done(code: int) -> None:
    world, refusing = decided(code)
    complete(world)
    assert (refusing.tried, world.inside.sender.alarms.total()) == (3, 0)


@pytest.mark.parametrize("code", [*NEEDLESS, ENDED])
def test_a_group_can_always_hold_one(code: int) -> None:
    world, _refusing = decided(code, "group:copiers")
    owed_until_taken(world, alarms=[ErrorCode(code).name])


@pytest.mark.parametrize("code", IMPOSSIBLE)
def test_an_impossible_answer_raises_the_alarm_and_is_not_believed(code: int) -> None:
    world, _refusing = decided(code)
    owed_until_taken(world, alarms=[ErrorCode(code).name])


# 47: the epoch is over there


def test_where_the_epoch_is_over_and_nothing_is_open_the_marker_is_there_already() -> None:
    world = CaseWorld(split=True)
    refusing = world.answers_markers(refusal(ENDED), "t-1")
    client = world.ongoing()
    client.add("t-1")
    client.offset("copiers", 7)
    client.commit()
    world.settle()
    complete(world)
    assert (refusing.tried, world.inside.sender.alarms.total()) == (3, 0)


def test_where_the_epoch_is_over_and_the_transaction_is_open_something_is_wrong() -> None:
    world, _refusing = decided(ENDED)
    owed_until_taken(world, alarms=["INVALID_PRODUCER_EPOCH"])


class AwayForOnce:
    """Partitions that cannot say what is open in them, the first time."""

    def __init__(self, world: CaseWorld) -> None:
        self.others = world.inside.open_transactions
        self.asked = 0

    def all_open(self) -> Iterator[OpenInPartition]:
        return self.others.all_open()

    def ask_open(self, ordinal: int, then: Callable[[Sequence[OpenInPartition]], Decision]) -> Operation:
        self.asked += 1
        if self.asked > 1:
            return self.others.ask_open(ordinal, then)

        def refuse(_shard: object, _turn: object) -> Decision:
            raise refusal(6)

        return Operation(COUNTERS, refuse)


def test_who_cannot_even_say_what_is_open_is_asked_again() -> None:
    world = CaseWorld(split=True)
    away = world.inside.open_transactions = AwayForOnce(world)  # type: ignore[assignment]  # the port is all it is used as
    refusing = world.answers_markers(refusal(ENDED), "t-1")
    client = world.ongoing()
    client.add("t-1")
    client.offset("copiers", 7)
    client.commit()
    world.settle()
    assert (world.state(), away.asked) == ("PrepareCommit", 1)
    world.tick(A_SECOND)
    world.settle()
    complete(world)
    assert (refusing.tried, away.asked, world.inside.sender.alarms.total()) == (4, 2, 0)


# 52: we are the zombie


def told_of_fences(world: CaseWorld) -> list[tuple[ShardKey, int]]:
    told: list[tuple[ShardKey, int]] = []
    world.inside.sender.on_fenced = lambda shard, coordinator_epoch: told.append((shard, coordinator_epoch))
    return told


def ids_beside(world: CaseWorld, *, is_same_shard: bool) -> str:
    """Another id, of the shard that "orders" has or of another."""
    key = world.inside.transactions.shard_key
    return next(name for name in map(str, range(9)) if (key(name) == key("orders")) is is_same_shard)


def test_a_fenced_coordinator_sends_nothing_more_for_its_shard() -> None:
    world = CaseWorld(split=True)
    refusing = world.answers_markers(refusal(ZOMBIE), "t-1")
    told = told_of_fences(world)
    client = world.ongoing()
    client.write("t-1", "b")
    client.commit()
    world.settle()
    world.answers_markers(None)
    tried, before = refusing.tried, world.version
    world.tick(AN_HOUR)
    assert (refusing.tried, world.version, world.inside.sender.waiting_markers) == (tried, before, 0)
    assert (world.state(), world.visible("t-1")) == ("PrepareCommit", [])
    assert told == [(world.inside.transactions.shard_key("orders"), 1)]
    assert world.inside.sender.alarms == {"TRANSACTION_COORDINATOR_FENCED": 1}

    later = ids_beside(world, is_same_shard=True)
    world.ongoing(later).commit()
    world.settle()
    assert (world.state(later), refusing.tried, len(told)) == ("PrepareCommit", tried, 1), "nor what it decides now"

    elsewhere = ids_beside(world, is_same_shard=False)
    world.ongoing(elsewhere).commit()
    world.settle()
    assert world.state(elsewhere) == "CompleteCommit", "another shard may well be its own"


def test_its_successor_finishes_what_it_left() -> None:
    world, _refusing = decided(ZOMBIE)
    assert world.client().init() == 51, "the outcome stands"
    world.crash()
    world.settle()
    assert (world.state(), world.visible("t-1")) == ("CompleteCommit", ["b"])
    assert [len(world.markers(name)) for name in ("t-0", "t-1")] == [1, 1]


def test_a_partition_that_a_later_coordinator_reached_says_so() -> None:
    """Not a double: the partition itself refuses, because of a marker with a higher coordinator epoch."""
    world = CaseWorld(split=True)
    told = told_of_fences(world)
    client = world.ongoing()
    client.add("t-1")
    producer_id, epoch = client.identity
    ended = Marker(
        producer_id=producer_id,
        txn_epoch=epoch,
        next_epoch=epoch,
        coordinator_shard=world.inside.transactions.shard_key("orders").number,
        coordinator_epoch=9,
        outcome=Outcome.ABORT,
        csn=1,
    )
    world.told(world.send_marker("t-1", ended))
    client.commit()
    world.settle()
    assert (world.state(), len(told)) == ("PrepareCommit", 1)


def test_what_was_under_way_when_it_stopped_changes_nothing() -> None:
    world = CaseWorld(split=True)
    world.ongoing().commit()
    key = world.inside.transactions.shard_key("orders")
    world.inside.sender.stop(key, 0)
    assert world.inside.sender.waiting_markers == 1, "an older coordinator was stopped, not this one"
    world.inside.sender.stop(key, 1)
    world.inside.sender.stop(key, 0)
    world.settle()
    assert (world.state(), len(world.markers())) == ("PrepareCommit", 1), "the marker was staged, COMPLETE is not ours"


# COMPLETE itself


def complete_answers(monkeypatch: pytest.MonkeyPatch, code: int) -> CaseWorld:
    """A commit whose COMPLETE is refused once."""
    original = TransactionShard.decide_complete
    refusals = [refusal(code)]

    def decide_complete(shard: TransactionShard, transactional_id: str, csn: int, turn: Turn) -> Decision:
        if refusals:
            raise refusals.pop()
        return original(shard, transactional_id, csn, turn)

    monkeypatch.setattr(TransactionShard, "decide_complete", decide_complete)
    world = CaseWorld(split=True)
    world.ongoing().commit()
    world.settle()
    assert (world.state(), refusals) == ("PrepareCommit", [])
    return world


@pytest.mark.parametrize(("code", "alarms"), [(15, []), (-1, ["UNKNOWN_SERVER_ERROR"])])
def test_complete_is_tried_again(monkeypatch: pytest.MonkeyPatch, code: int, alarms: list[str]) -> None:
    world = complete_answers(monkeypatch, code)
    assert sorted(world.inside.sender.alarms) == alarms
    world.tick(A_SECOND)
    world.settle()
    assert world.state() == "CompleteCommit"


@pytest.mark.parametrize("code", [14, 16])
def test_complete_of_a_shard_that_left_is_its_next_owners(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    world = complete_answers(monkeypatch, code)
    world.tick(AN_HOUR)
    world.settle()
    assert (world.state(), world.inside.sender.alarms.total()) == ("PrepareCommit", 0)
    assert world.inside.runtime.timers.by_kind().get("markers", 0) == 0
    world.crash()
    world.settle()
    assert world.state() == "CompleteCommit"
