"""What a participant answers to its marker decides what becomes of the marker, never what becomes of the transaction.

Source: spec transactions 4, the table of marker results: a test per row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.marker import Marker, Outcome
from coordinator_runtime.decision import Decision, Operation, ShardKey, Turn
from coordinator_runtime.ports import OpenInPartition
from tests.conformance.transactions.room import Refusing, Room
from txn_coordinator.counters import COUNTERS
from txn_coordinator.shard import TransactionShard

LATER = [3, 6, 7, 13, 14, 15, 16, 19, 20, 56]
"""3 too: what is deleted is known from the catalog, which needs no marker (conformance, case 131)."""
NEEDLESS = [35, 43]
ENDED, ZOMBIE = 47, 52
IMPOSSIBLE = [-1, 2, 10, 18, 29, 42, 48, 51, 89, 90]
"""Whatever is in no other row, for example."""

A_SECOND = 1_000
AN_HOUR = 3_600_000


def refusal(code: int) -> Refused:
    return Refused(ErrorCode(code), "so it is")


def decided(code: int, participant: str = "t-1") -> tuple[Room, Refusing]:
    """A commit over two partitions and a group, of which one answers its marker with this code."""
    room = Room(split=True)
    refusing = room.answers_markers(refusal(code), participant)
    client = room.ongoing()
    client.write("t-1", "b")
    client.offset("copiers", 7)
    client.commit()
    room.settle()
    assert room.visible("t-0") == ["a"], "the others have their marker, whatever one of them says"
    return room, refusing


def owed_until_taken(room: Room, alarms: list[str]) -> None:
    """The marker is sent again for as long as it is refused, and then the transaction is complete."""
    assert room.state() == "PrepareCommit"
    assert room.inside.sender.waiting_markers == 1
    room.tick(A_SECOND)
    room.settle()
    assert room.inside.sender.failed_markers.total() > 1
    assert sorted(room.inside.sender.alarms) == alarms
    room.answers_markers(None)
    room.tick(A_SECOND)
    room.settle()
    complete(room)


def complete(room: Room) -> None:
    assert (room.state(), room.inside.sender.waiting_markers) == ("CompleteCommit", 0)
    assert room.inside.groups.committed("copiers") == 7
    room.tick(AN_HOUR)
    assert room.inside.sender.waiting_markers == 0


def test_a_marker_that_is_taken_is_done() -> None:
    room = Room(split=True)
    refusing = room.answers_markers(None)
    client = room.ongoing()
    client.offset("copiers", 7)
    client.commit()
    room.settle()
    complete(room)
    assert (refusing.tried, room.inside.sender.failed_markers.total()) == (2, 0)


@pytest.mark.parametrize("participant", ["t-1", "group:copiers"])
@pytest.mark.parametrize("code", LATER)
def test_who_cannot_now_is_asked_again_without_an_alarm(code: int, participant: str) -> None:
    room, _refusing = decided(code, participant)
    owed_until_taken(room, alarms=[])


@pytest.mark.parametrize("code", NEEDLESS)
def test_a_partition_that_can_hold_no_markers_is_done(code: int) -> None:
    room, refusing = decided(code)
    complete(room)
    assert (refusing.tried, room.inside.sender.alarms.total()) == (3, 0)


@pytest.mark.parametrize("code", [*NEEDLESS, ENDED])
def test_a_group_can_always_hold_one(code: int) -> None:
    room, _refusing = decided(code, "group:copiers")
    owed_until_taken(room, alarms=[ErrorCode(code).name])


@pytest.mark.parametrize("code", IMPOSSIBLE)
def test_an_impossible_answer_raises_the_alarm_and_is_not_believed(code: int) -> None:
    room, _refusing = decided(code)
    owed_until_taken(room, alarms=[ErrorCode(code).name])


# 47: the epoch is over there


def test_where_the_epoch_is_over_and_nothing_is_open_the_marker_is_there_already() -> None:
    room = Room(split=True)
    refusing = room.answers_markers(refusal(ENDED), "t-1")
    client = room.ongoing()
    client.add("t-1")
    client.offset("copiers", 7)
    client.commit()
    room.settle()
    complete(room)
    assert (refusing.tried, room.inside.sender.alarms.total()) == (3, 0)


def test_where_the_epoch_is_over_and_the_transaction_is_open_something_is_wrong() -> None:
    room, _refusing = decided(ENDED)
    owed_until_taken(room, alarms=["INVALID_PRODUCER_EPOCH"])


class AwayForOnce:
    """Partitions that cannot say what is open in them, the first time."""

    def __init__(self, room: Room) -> None:
        self.others = room.inside.open_transactions
        self.asked = 0

    def all_open(self) -> Sequence[OpenInPartition]:
        return self.others.all_open()

    def ask_open(self, ordinal: int, then: Callable[[Sequence[OpenInPartition]], Decision]) -> Operation:
        self.asked += 1
        if self.asked > 1:
            return self.others.ask_open(ordinal, then)

        def refuse(_shard: object, _turn: object) -> Decision:
            raise refusal(6)

        return Operation(COUNTERS, refuse)


def test_who_cannot_even_say_what_is_open_is_asked_again() -> None:
    room = Room(split=True)
    away = room.inside.open_transactions = AwayForOnce(room)  # type: ignore[assignment]  # the port is all it is used as
    refusing = room.answers_markers(refusal(ENDED), "t-1")
    client = room.ongoing()
    client.add("t-1")
    client.offset("copiers", 7)
    client.commit()
    room.settle()
    assert (room.state(), away.asked) == ("PrepareCommit", 1)
    room.tick(A_SECOND)
    room.settle()
    complete(room)
    assert (refusing.tried, away.asked, room.inside.sender.alarms.total()) == (4, 2, 0)


# 52: we are the zombie


def told_of_fences(room: Room) -> list[tuple[ShardKey, int]]:
    told: list[tuple[ShardKey, int]] = []
    room.inside.sender.on_fenced = lambda shard, coordinator_epoch: told.append((shard, coordinator_epoch))
    return told


def ids_beside(room: Room, *, is_same_shard: bool) -> str:
    """Another id, of the shard that "orders" has or of another."""
    key = room.inside.transactions.shard_key
    return next(name for name in map(str, range(9)) if (key(name) == key("orders")) is is_same_shard)


def test_a_fenced_coordinator_sends_nothing_more_for_its_shard() -> None:
    room = Room(split=True)
    refusing = room.answers_markers(refusal(ZOMBIE), "t-1")
    told = told_of_fences(room)
    client = room.ongoing()
    client.write("t-1", "b")
    client.commit()
    room.settle()
    room.answers_markers(None)
    tried, before = refusing.tried, room.version
    room.tick(AN_HOUR)
    assert (refusing.tried, room.version, room.inside.sender.waiting_markers) == (tried, before, 0)
    assert (room.state(), room.visible("t-1")) == ("PrepareCommit", [])
    assert told == [(room.inside.transactions.shard_key("orders"), 1)]
    assert room.inside.sender.alarms == {"TRANSACTION_COORDINATOR_FENCED": 1}

    later = ids_beside(room, is_same_shard=True)
    room.ongoing(later).commit()
    room.settle()
    assert (room.state(later), refusing.tried, len(told)) == ("PrepareCommit", tried, 1), "nor what it decides now"

    elsewhere = ids_beside(room, is_same_shard=False)
    room.ongoing(elsewhere).commit()
    room.settle()
    assert room.state(elsewhere) == "CompleteCommit", "another shard may well be its own"


def test_its_successor_finishes_what_it_left() -> None:
    room, _refusing = decided(ZOMBIE)
    assert room.client().init() == 51, "the outcome stands"
    room.crash()
    room.settle()
    assert (room.state(), room.visible("t-1")) == ("CompleteCommit", ["b"])
    assert [len(room.markers(name)) for name in ("t-0", "t-1")] == [1, 1]


def test_a_partition_that_a_later_coordinator_reached_says_so() -> None:
    """Not a double: the partition itself refuses, because of a marker with a higher coordinator epoch."""
    room = Room(split=True)
    told = told_of_fences(room)
    client = room.ongoing()
    client.add("t-1")
    producer_id, epoch = client.identity
    ended = Marker(
        producer_id=producer_id,
        txn_epoch=epoch,
        next_epoch=epoch,
        coordinator_shard=room.inside.transactions.shard_key("orders").number,
        coordinator_epoch=9,
        outcome=Outcome.ABORT,
        csn=1,
    )
    room.told(room.send_marker("t-1", ended))
    client.commit()
    room.settle()
    assert (room.state(), len(told)) == ("PrepareCommit", 1)


def test_what_was_under_way_when_it_stopped_changes_nothing() -> None:
    room = Room(split=True)
    room.ongoing().commit()
    key = room.inside.transactions.shard_key("orders")
    room.inside.sender.stop(key, 0)
    assert room.inside.sender.waiting_markers == 1, "an older coordinator was stopped, not this one"
    room.inside.sender.stop(key, 1)
    room.inside.sender.stop(key, 0)
    room.settle()
    assert (room.state(), len(room.markers())) == ("PrepareCommit", 1), "the marker was staged, COMPLETE is not ours"


# COMPLETE itself


def complete_answers(monkeypatch: pytest.MonkeyPatch, code: int) -> Room:
    """A commit whose COMPLETE is refused once."""
    original = TransactionShard.decide_complete
    refusals = [refusal(code)]

    def decide_complete(shard: TransactionShard, transactional_id: str, csn: int, turn: Turn) -> Decision:
        if refusals:
            raise refusals.pop()
        return original(shard, transactional_id, csn, turn)

    monkeypatch.setattr(TransactionShard, "decide_complete", decide_complete)
    room = Room(split=True)
    room.ongoing().commit()
    room.settle()
    assert (room.state(), refusals) == ("PrepareCommit", [])
    return room


@pytest.mark.parametrize(("code", "alarms"), [(15, []), (-1, ["UNKNOWN_SERVER_ERROR"])])
def test_complete_is_tried_again(monkeypatch: pytest.MonkeyPatch, code: int, alarms: list[str]) -> None:
    room = complete_answers(monkeypatch, code)
    assert sorted(room.inside.sender.alarms) == alarms
    room.tick(A_SECOND)
    room.settle()
    assert room.state() == "CompleteCommit"


@pytest.mark.parametrize("code", [14, 16])
def test_complete_of_a_shard_that_left_is_its_next_owners(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    room = complete_answers(monkeypatch, code)
    room.tick(AN_HOUR)
    room.settle()
    assert (room.state(), room.inside.sender.alarms.total()) == ("PrepareCommit", 0)
    assert room.inside.runtime.timers.by_kind().get("markers", 0) == 0
    room.crash()
    room.settle()
    assert room.state() == "CompleteCommit"
