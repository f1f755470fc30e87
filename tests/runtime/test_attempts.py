"""Attempts: parts of one operation of which each is done or refused by itself, all in one batch."""

from __future__ import annotations

import pytest

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_runtime.decision import ArmTimer, Decision, Operation
from coordinator_runtime.ports import CallContext
from coordinator_runtime.shard_table import ShardState
from tests.runtime.ledger import FIRST, SECOND, Ledger, fail_with, look, put, put_unless, refuse, remove

KEY = "id"


@pytest.fixture
def ledger() -> Ledger:
    return Ledger()


def attempting(*attempts: Operation, joins: tuple[Operation, ...] = ()) -> Operation:
    decision = Decision(joins=joins, attempts=attempts, combine=list)
    return Operation(FIRST, lambda _shard, _turn: decision)


def test_a_refused_attempt_is_taken_back_alone(ledger: Ledger) -> None:
    timer = ArmTimer("timer", 10, put("late", 1))
    half_done = put("b", 2, shard=SECOND, effects=(timer,), joins=(put("a", 9), refuse()))
    reply = ledger.runtime.write(attempting(put("a", 1), half_done, put("c", 3, shard=SECOND)))
    assert (ledger.first.live(), ledger.second.live()) == ({"a": 1}, {"c": 3})
    ledger.driver.flush()
    first, refused, last = reply.result()
    assert (first, last) == (1, 3)
    assert isinstance(refused, Refused)
    assert ledger.runtime.timers.next_deadline_ms() is None
    after = Ledger(ledger.store.crash())
    assert (after.first.live(), after.second.live()) == ({"a": 1}, {"c": 3})


def test_attempts_see_what_joins_and_earlier_attempts_did(ledger: Ledger) -> None:
    reply = ledger.runtime.write(attempting(look("a"), put("a", 2), look("a"), joins=(put("a", 1),)))
    ledger.driver.flush()
    assert reply.result() == [1, 1, 2, 2]


def test_they_are_one_batch(ledger: Ledger) -> None:
    ledger.runtime.write(attempting(put("a", 1), put("b", 2, shard=SECOND)))
    ledger.runtime.groups.seal()
    assert len(ledger.driver.handed_over) == 1


def test_refusals_alone_wait_for_what_they_rest_on(ledger: Ledger) -> None:
    ledger.runtime.write(put("fence", 1, shard=SECOND))
    reply = ledger.runtime.write(attempting(refuse(shard=SECOND)))
    assert not reply.is_settled
    ledger.driver.flush()
    assert [refused.code for refused in reply.result()] == [ErrorCode.INVALID_REQUEST]


def test_a_defect_in_one_is_a_defect_of_all(ledger: Ledger) -> None:
    broken = ledger.runtime.write(
        attempting(put("a", 1), fail_with(lambda: ZeroDivisionError("our bug"))), CallContext()
    )
    with pytest.raises(ZeroDivisionError):
        broken.result()
    assert ledger.first.live() == {}


def test_all_of_them_wait_when_one_is_held_up(ledger: Ledger) -> None:
    ledger.runtime.write(put("busy", 1))
    waiting = ledger.runtime.write(
        attempting(put("a", 1), put_unless("b", 2, busy="busy")), CallContext(), park_key=KEY
    )
    ledger.driver.flush()
    assert not waiting.is_settled
    assert "a" not in ledger.first.live()
    ledger.runtime.write(remove("busy"))
    assert len(ledger.runtime.parking) == 1


def test_who_cannot_wait_is_told_so_by_that_attempt_alone(ledger: Ledger) -> None:
    ledger.runtime.write(put("busy", 1))
    reply = ledger.runtime.write(attempting(put("a", 1), put_unless("b", 2, busy="busy")))
    ledger.driver.flush()
    done, refused = reply.result()
    assert (done, refused.code) == (1, ErrorCode.CONCURRENT_TRANSACTIONS)


def test_an_attempt_on_a_shard_that_is_away_is_refused_alone(ledger: Ledger) -> None:
    ledger.runtime.remove_shard(SECOND, ShardState.UNLOADED)
    reply = ledger.runtime.write(attempting(put("a", 1, shard=SECOND), put("b", 2)))
    ledger.driver.flush()
    refused, done = reply.result()
    assert (refused.code, done) == (ErrorCode.NOT_COORDINATOR, 2)
