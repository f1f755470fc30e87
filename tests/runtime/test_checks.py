"""Operations that wait for a check: nothing is written before it is settled, nor where it finds fault."""

from __future__ import annotations

import pytest

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_runtime.checked_writes import write_checked
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import CallContext
from tests.runtime.ledger import Ledger, put

BOTH = pytest.mark.parametrize("refuse_concurrent", [False, True])


def write(ledger: Ledger, check: Pending[None] | None, *, refuse_concurrent: bool = False) -> Pending[object]:
    context = CallContext(refuse_concurrent=refuse_concurrent)
    return write_checked(ledger.runtime, put("a", 1), context, check=check, park_key="id")


@BOTH
def test_it_is_performed_once_its_check_is_settled(refuse_concurrent: bool) -> None:
    ledger, check = Ledger(), Pending[None]()
    written = write(ledger, check, refuse_concurrent=refuse_concurrent)
    assert ledger.first.live() == {}
    check.succeed(None)
    assert ledger.first.live() == {"a": 1}
    ledger.driver.flush()
    assert written.result() == 1


@BOTH
@pytest.mark.parametrize("is_settled_before", [False, True])
def test_a_check_that_finds_fault_is_the_answer_and_nothing_is_written(
    is_settled_before: bool, refuse_concurrent: bool
) -> None:
    ledger, check = Ledger(), Pending[None]()
    fault = Refused(ErrorCode.INVALID_RECORD, "it is unreadable")
    if is_settled_before:
        check.fail(fault)
    written = write(ledger, check, refuse_concurrent=refuse_concurrent)
    check.fail(fault)
    ledger.driver.settle()
    with pytest.raises(Refused, match="it is unreadable"):
        written.result()
    assert ledger.first.live() == {}


def test_what_was_checked_before_is_performed_at_once() -> None:
    ledger = Ledger()
    write(ledger, None)
    assert ledger.first.live() == {"a": 1}


@BOTH
def test_who_may_not_do_it_any_more_once_it_was_checked_is_refused(refuse_concurrent: bool) -> None:
    ledger, check = Ledger(), Pending[None]()

    def ask_again() -> None:
        raise Refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "not any more")

    context = CallContext(refuse_concurrent=refuse_concurrent)
    written = write_checked(ledger.runtime, put("a", 1), context, check=check, park_key="id", ask_again=ask_again)
    check.succeed(None)
    assert not ledger.driver.flush(), "something was staged"
    with pytest.raises(Refused, match="not any more"):
        written.result()
    assert ledger.first.live() == {}
