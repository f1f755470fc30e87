"""Answers where the room for them is scarce: what each holder may still have (decision 19)."""

from __future__ import annotations

import pytest

from coordinator_api.v1 import transaction_pb2
from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.limits import MEBI
from coordinator_runtime.clock import SystemClock
from coordinator_runtime.ports import CallContext, KnownConnection
from coordinator_server.traffic.admission import Admission, AdmissionLimits
from coordinator_server.traffic.answer_bytes import AnswerBytes, AnswerLimits
from tests.harness.gated import GatedDispatcher
from tests.log.driven_log import Batch, DrivenLog
from tests.server.fake_servicer import LIST_TRANSACTIONS, SERVICE, FakeTransactionServicer


def test_what_is_held_already_counts_as_a_part_of_the_share() -> None:
    answers = AnswerBytes(AnswerLimits())
    for number in range(6):
        answers.hold(str(number), 38 * MEBI)
    share = answers.allowance_bytes("new")
    answers.hold("new", share // 2)
    answers.check("new")
    assert answers.allowance_bytes("new") <= share // 2


@pytest.mark.parametrize("is_known", [False, True], ids=["connection", "principal"])
def test_a_holder_of_little_is_served_however_much_the_others_hold(*, is_known: bool) -> None:
    def connection(name: str, number: int) -> KnownConnection | str:
        return KnownConnection(f"User:{name}", number) if is_known else name

    answers = AnswerBytes(AnswerLimits())
    for number in range(6):
        answers.hold(connection(str(number), number), 42 * MEBI)
    answers.hold(connection("little", 100), 5_000)
    answers.check(connection("little", 101))


def test_a_connection_holds_no_more_than_is_free_with_the_answer_that_it_asks_for() -> None:
    answers = AnswerBytes(AnswerLimits(bytes_max=100, connection_bytes_max=40))
    answers.hold("a", 30)
    with pytest.raises(Refused):
        answers.check("a")
    answers.release("a", 5)
    answers.check("a")


def test_an_answer_larger_than_the_room_is_refused_once_it_is_there() -> None:
    answers = AnswerBytes(AnswerLimits())
    answers.hold("other", AnswerLimits().bytes_max - 5_000)
    limits = AdmissionLimits(calls_in_work_max=2, reserved_calls=1, long_polls_max=1)
    admission = Admission(limits, lambda: 0)
    dispatcher = GatedDispatcher([SERVICE], admission, SystemClock(), message_bytes_max=16 * MEBI, answer_limit=answers)
    dispatcher.open([FakeTransactionServicer()])
    body = dispatcher(LIST_TRANSACTIONS, b"", CallContext(connection="new")).result()
    response = transaction_pb2.ListTransactionsResponse.FromString(body)
    assert len(body) < 5_000
    assert ErrorCode(response.error_code) is ErrorCode.THROTTLING_QUOTA_EXCEEDED


def test_what_a_waiting_fetch_holds_itself_does_not_stand_in_its_way() -> None:
    driven = DrivenLog()
    driven.create()
    answers = AnswerBytes(AnswerLimits(bytes_max=20_000, connection_bytes_max=20_000))
    driven.log.fetcher.answer_limit = answers
    driven.append(Batch(payload=b"x" * 6_000))
    waiting = driven.fetch(wait_ms_max=1_000, bytes_min=100_000)
    answers.hold("other", 10_000)
    assert not waiting.is_settled
    assert answers.held_bytes > 16_000
    driven.clock.advance(1_000)
    driven.runtime.run_due_timers()
    assert waiting.result()
