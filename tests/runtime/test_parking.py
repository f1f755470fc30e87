"""Calls that wait on the server: first in first out, nothing overtakes, no wait is endless."""

from __future__ import annotations

from functools import partial

import pytest

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_runtime.decision import Unpark
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import CallContext
from coordinator_runtime.runtime import RuntimeLimits
from tests.runtime.ledger import Ledger, look, put, put_unless, remove

KEY = "id"
PATIENT = CallContext()


@pytest.fixture
def ledger() -> Ledger:
    """Busy: calls under the key must wait."""
    ledger = Ledger()
    ledger.runtime.write(put("busy", 1))
    ledger.driver.flush()
    return ledger


def ask(ledger: Ledger, name: str, context: CallContext = PATIENT) -> Pending[int]:
    return ledger.runtime.write(put_unless(name, 1, busy="busy"), context, park_key=KEY)


def _note(order: list[str], name: str, _reply: object) -> None:
    order.append(name)


def free(ledger: Ledger) -> None:
    """End what is in the way, as a completed transaction does."""
    ledger.runtime.write(remove("busy", effects=(Unpark(KEY),)))
    ledger.driver.flush()


def refusal_of(reply: Pending[int]) -> ErrorCode:
    with pytest.raises(Refused) as refused:
        reply.result()
    return refused.value.code


def test_a_call_waits_and_goes_through_when_the_key_is_unparked(ledger: Ledger) -> None:
    waiting = ask(ledger, "a")
    ledger.driver.settle()
    assert not waiting.is_settled
    assert len(ledger.runtime.parking) == 1
    free(ledger)
    assert len(ledger.runtime.parking) == 0
    assert not waiting.is_settled
    ledger.driver.flush()
    assert waiting.result() == 1


def test_calls_go_through_in_the_order_in_which_they_came(ledger: Ledger) -> None:
    order: list[str] = []
    for name in ("a", "b", "c"):
        ask(ledger, name).on_settled(partial(_note, order, name))
    free(ledger)
    ledger.driver.settle()
    assert order == ["a", "b", "c"]
    assert list(ledger.first.live()) == ["a", "b", "c"]


def test_nothing_overtakes_a_call_that_waits_even_once_the_way_is_free(ledger: Ledger) -> None:
    first = ask(ledger, "first")
    ledger.runtime.write(remove("busy", effects=(Unpark(KEY),)))
    second = ask(ledger, "second")
    assert list(ledger.first.live()) == []
    ledger.driver.settle()
    assert list(ledger.first.live()) == ["first", "second"]
    assert (first.result(), second.result()) == (1, 1)


def test_a_call_that_gets_in_the_way_again_stops_those_behind_it(ledger: Ledger) -> None:
    blocker = ledger.runtime.write(put_unless("busy", 2, busy="busy"), PATIENT, park_key=KEY)
    behind = ask(ledger, "behind")
    free(ledger)
    ledger.driver.settle()
    assert blocker.result() == 2
    assert not behind.is_settled
    free(ledger)
    ledger.driver.settle()
    assert behind.result() == 1


def test_a_later_step_of_a_call_goes_before_those_that_came_after_its_first(ledger: Ledger) -> None:
    """InitProducerId has two steps, it aborts and then initialises: a call that came in between must not come first."""
    behind = ask(ledger, "behind")
    continued = ledger.runtime.write(
        put_unless("second step", 1, busy="busy"), PATIENT, park_key=KEY, is_continued=True
    )
    free(ledger)
    ledger.driver.settle()
    assert list(ledger.first.live()) == ["second step", "behind"]
    assert (continued.result(), behind.result()) == (1, 1)


def test_a_call_made_by_the_answer_of_a_parked_one_goes_to_the_end(ledger: Ledger) -> None:
    order: list[str] = []

    def call_again(_reply: Pending[object]) -> None:
        ask(ledger, "again").on_settled(lambda _again: order.append("again"))

    read = ledger.runtime.write(put_unless("first", 1, busy="busy"), PATIENT, park_key=KEY)
    read.on_settled(call_again)
    ask(ledger, "second").on_settled(lambda _reply: order.append("second"))
    free(ledger)
    ledger.driver.settle()
    assert order == ["second", "again"]
    assert len(ledger.runtime.parking) == 0


def test_other_keys_do_not_wait(ledger: Ledger) -> None:
    ask(ledger, "a")
    other = ledger.runtime.write(put("b", 2), PATIENT, park_key="another id")
    ledger.driver.flush()
    assert other.result() == 2


def test_the_callers_deadline_ends_the_wait_with_the_refusal_it_waited_out(ledger: Ledger) -> None:
    deadline_ms = ledger.clock.monotonic_ms() + 500
    waiting = ask(ledger, "a", CallContext(deadline_ms=deadline_ms))
    ledger.tick(499)
    assert not waiting.is_settled
    ledger.tick(1)
    assert refusal_of(waiting) is ErrorCode.CONCURRENT_TRANSACTIONS
    free(ledger)
    ledger.driver.settle()
    assert ledger.first.live() == {}


def test_without_a_deadline_the_wait_ends_after_the_limit(ledger: Ledger) -> None:
    waiting = ask(ledger, "a")
    ledger.tick(ledger.runtime.limits.parked_ms_max)
    assert refusal_of(waiting) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert len(ledger.runtime.parking) == 0


def test_a_far_deadline_does_not_extend_the_limit(ledger: Ledger) -> None:
    waiting = ask(ledger, "a", CallContext(deadline_ms=ledger.clock.monotonic_ms() + 10_000_000))
    ledger.tick(ledger.runtime.limits.parked_ms_max)
    assert refusal_of(waiting) is ErrorCode.CONCURRENT_TRANSACTIONS


def test_a_parked_call_whose_caller_gave_up_changes_nothing(ledger: Ledger) -> None:
    gone = ask(ledger, "gone")
    behind = ask(ledger, "behind")
    gone.cancel()
    assert len(ledger.runtime.parking) == 1
    free(ledger)
    ledger.driver.settle()
    assert list(ledger.first.live()) == ["behind"]
    assert behind.result() == 1


@pytest.mark.parametrize("leaves", ["expires", "is cancelled"])
def test_calls_behind_one_that_gave_up_are_tried_although_nothing_was_unparked(ledger: Ledger, leaves: str) -> None:
    first = ask(ledger, "first", CallContext(deadline_ms=ledger.clock.monotonic_ms() + 20))
    second = ledger.runtime.write(put("second", 2), park_key=KEY)
    third = ask(ledger, "third")
    ledger.driver.settle()
    assert not second.is_settled, "nothing overtakes a call that waits"
    if leaves == "is cancelled":
        first.cancel()
        assert list(ledger.first.live()) == ["busy"], "its caller may leave with the others, too"
    for elapsed_ms in (20, 0):
        ledger.tick(elapsed_ms)
    ledger.driver.settle()
    assert second.result() == 2
    assert not third.is_settled
    free(ledger)
    ledger.driver.settle()
    assert third.result() == 1
    assert ledger.runtime.timers.next_deadline_ms() is None


def test_a_caller_that_leaves_with_all_of_its_calls_has_none_of_them_performed(ledger: Ledger) -> None:
    first = ask(ledger, "first")
    others = [ledger.runtime.write(put(name, 1), park_key=KEY) for name in ("second", "third")]
    for each in (first, *others):
        each.cancel()
    ledger.tick(1)
    ledger.driver.settle()
    assert list(ledger.first.live()) == ["busy"]


def test_a_call_that_was_staged_goes_on_when_its_caller_gives_up(ledger: Ledger) -> None:
    waiting = ask(ledger, "a")
    free(ledger)
    waiting.cancel()
    assert not waiting.is_settled, "it was staged, so it must not be refused"
    ledger.driver.flush()
    assert waiting.result() == 1


def test_a_caller_that_gave_up_between_two_steps_starts_no_second_one(ledger: Ledger) -> None:
    """InitProducerId has two steps, it aborts and then initialises: a caller that left in between fences none."""
    both = ledger.runtime.write(put("step", 1)).then(lambda _one: ask(ledger, "second step"))
    both.cancel()
    ledger.driver.settle()
    free(ledger)
    ledger.driver.settle()
    assert ledger.first.live() == {"step": 1}
    assert both.is_settled


def test_a_caller_that_asks_for_kafkas_answer_gets_it_at_once(ledger: Ledger) -> None:
    impatient = ask(ledger, "a", CallContext(refuse_concurrent=True))
    assert refusal_of(impatient) is ErrorCode.CONCURRENT_TRANSACTIONS


def test_who_does_not_wait_does_not_overtake_who_does(ledger: Ledger) -> None:
    """The way is free, but not yet durably, so those who wait have not been tried again. A call that went past them
    now could open the next transaction before a parked EndTxn of version 1 is tried, which would end it."""
    waiting = ask(ledger, "waiting")
    ledger.runtime.write(remove("busy", effects=(Unpark(KEY),)))
    impatient = ask(ledger, "impatient", CallContext(refuse_concurrent=True))
    assert refusal_of(impatient) is ErrorCode.CONCURRENT_TRANSACTIONS
    ledger.driver.settle()
    assert waiting.result() == 1
    assert list(ledger.first.live()) == ["waiting"]


def test_beyond_the_limit_the_answer_comes_at_once_and_still_nothing_overtakes() -> None:
    ledger = Ledger(limits=RuntimeLimits(parked_calls_max=1))
    ledger.runtime.write(put("busy", 1))
    ledger.driver.flush()
    waiting = ask(ledger, "waiting")
    assert refusal_of(ask(ledger, "too many")) is ErrorCode.CONCURRENT_TRANSACTIONS
    ledger.runtime.write(remove("busy", effects=(Unpark(KEY),)))
    assert refusal_of(ask(ledger, "overtaking")) is ErrorCode.CONCURRENT_TRANSACTIONS
    ledger.driver.settle()
    assert waiting.result() == 1


def test_a_failing_store_answers_who_waits(ledger: Ledger) -> None:
    waiting = [ask(ledger, "a"), ask(ledger, "b")]
    ledger.runtime.fail(RuntimeError("the disk"))
    assert [refusal_of(reply) for reply in waiting] == [ErrorCode.CONCURRENT_TRANSACTIONS] * 2
    assert len(ledger.runtime.parking) == 0


def test_the_answer_of_a_parked_call_waits_for_durability_too(ledger: Ledger) -> None:
    parked_behind = ask(ledger, "a")
    read = ledger.runtime.write(look("a"), PATIENT, park_key=KEY)
    free(ledger)
    assert not read.is_settled
    ledger.driver.flush()
    assert (parked_behind.result(), read.result()) == (1, 1)


def test_no_timer_is_left_behind(ledger: Ledger) -> None:
    ask(ledger, "a")
    ask(ledger, "b").cancel()
    free(ledger)
    ledger.driver.settle()
    assert ledger.runtime.timers.next_deadline_ms() is None
