"""Calls that a fast path may take, in the dispatcher: their order, their answers, their number."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import structlog

from coordinator_api.v1 import transaction_pb2
from coordinator_protocol.errors import CoordinatorError, ErrorClass, ErrorCode, UnknownOutcome
from coordinator_protocol.methods import Method
from coordinator_runtime.clock import SystemClock
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import CallContext
from coordinator_server.calls import CallStatus, Unanswered
from coordinator_server.grpc_front.handler import NamedCall
from coordinator_server.grpc_front.wire.edge import error_response
from coordinator_server.traffic.admission import Admission, AdmissionLimits
from tests.harness.gated import GatedDispatcher
from tests.server.fake_servicer import FIND_COORDINATOR, SERVICE, FakeTransactionServicer

CALL = CallContext(host="10.0.0.1")
TRANSACT = f"/{SERVICE.full_name}/Transact"
INIT = f"/{SERVICE.full_name}/InitProducerId"


class Servicer(FakeTransactionServicer):
    """Notes the order in which Transacts come, and answers none."""

    def __init__(self, order: list[str]) -> None:
        super().__init__()
        self.order = order

    def Transact(
        self, request: transaction_pb2.TransactRequest, _context: CallContext
    ) -> Pending[transaction_pb2.TransactResponse]:
        self.order.append(f"general {request.transactional_id}")
        return Pending()


class FakeLane:
    """Takes the ids that begin with a small letter."""

    def __init__(self, order: list[str], method: Method = Method.TRANSACT) -> None:
        self.order = order
        self.method = method
        self.ends: list[Pending[None]] = []
        self.has_failing_end = False

    def take(self, request: transaction_pb2.TransactRequest, _context: CallContext) -> bytes | None:
        if request.transactional_id == "defect":
            raise KeyError("a defect")
        if not request.transactional_id.islower():
            return None
        self.order.append(f"lane {request.transactional_id}")
        return request.transactional_id.encode()

    def end(self) -> Pending[None]:
        if self.has_failing_end:
            raise KeyError("a defect")
        self.order.append("end")
        self.ends.append(Pending())
        return self.ends[-1]

    def take_back(self) -> None:
        self.order.append("taken back")

    def refused(
        self, _request: transaction_pb2.TransactRequest, _answer: bytes, error: Exception
    ) -> transaction_pb2.TransactResponse:
        assert isinstance(error, CoordinatorError)
        return error_response(Method.TRANSACT, transaction_pb2.TransactResponse, error)


class Desk:
    """A dispatcher with a fast path that takes some Transacts, and what came of its calls."""

    def __init__(self, calls_max: int = 100) -> None:
        self.order: list[str] = []
        self.lane = FakeLane(self.order)
        admission = Admission(AdmissionLimits(calls_in_work_max=calls_max), lambda: 0)
        self.dispatcher = GatedDispatcher([SERVICE], admission, SystemClock(), message_bytes_max=50_000)
        self.dispatcher.open([Servicer(self.order)], [self.lane])
        self.answered = self.dispatcher.watching.answered_methods

    def send(self, *ids: str) -> list[Pending[bytes]]:
        """One message; `find` is another call."""
        return list(self.dispatcher.message([self._call(name) for name in ids]))

    def _call(self, name: str) -> NamedCall:
        if name == "find":
            return FIND_COORDINATOR, b"", CALL
        return TRANSACT, transaction_pb2.TransactRequest(transactional_id=name).SerializeToString(), CALL


def test_calls_begin_in_their_order_wherever_they_go() -> None:
    desk = Desk()
    desk.send("a", "b", "C", "d", "find", "e", "F")
    assert desk.order == [
        *("lane a", "lane b", "end", "general C"),
        *("lane d", "end"),
        *("lane e", "end", "general F"),
    ]


def test_each_front_takes_the_calls_of_its_method_and_they_keep_their_order() -> None:
    desk = Desk()
    inits = FakeLane(desk.order, Method.INIT_PRODUCER_ID)
    desk.dispatcher.open([Servicer(desk.order)], [desk.lane, inits])
    body = transaction_pb2.TransactRequest(transactional_id="a").SerializeToString()
    init, transact = (INIT, body, CALL), (TRANSACT, body, CALL)
    desk.dispatcher.message([transact, transact, init, transact, init, init])
    assert desk.order == [*["lane a"] * 2, "end", "lane a", "end", "lane a", "end", *["lane a"] * 2, "end"]
    assert (len(desk.lane.ends), len(inits.ends)) == (2, 2)
    assert desk.dispatcher.calls_in_flight() == {Method.TRANSACT: 3, Method.INIT_PRODUCER_ID: 3}


def test_a_call_by_itself_is_a_message_of_one() -> None:
    desk = Desk()
    reply = desk.dispatcher(TRANSACT, transaction_pb2.TransactRequest(transactional_id="a").SerializeToString(), CALL)
    assert desk.order == ["lane a", "end"]
    assert not reply.is_settled
    desk.lane.ends[0].succeed(None)
    assert reply.result() == b"a"


def test_answers_come_together_once_all_is_durable_and_count_until_then() -> None:
    desk = Desk()
    replies = desk.send("a", "b", "C")
    assert not any(reply.is_settled for reply in replies)
    assert desk.dispatcher.unanswered_calls == 3
    assert desk.dispatcher.calls_in_flight() == {Method.TRANSACT: 3}
    desk.lane.ends[0].succeed(None)
    assert [replies[0].result(), replies[1].result()] == [b"a", b"b"]
    assert desk.dispatcher.unanswered_calls == 1
    assert desk.answered == [Method.TRANSACT] * 2


def test_a_failed_store_is_told_to_each_call() -> None:
    desk = Desk()
    replies = desk.send("a", "b")
    desk.lane.ends[0].fail(UnknownOutcome("the store failed"))
    for reply in replies:
        response = transaction_pb2.TransactResponse.FromString(reply.result())
        assert response.error_class == ErrorClass.UNKNOWN_OUTCOME
    assert desk.answered == [Method.TRANSACT] * 2, "each has an answer that says so"
    assert desk.dispatcher.unanswered_calls == 0


def test_an_answer_after_the_end_of_the_ownership_is_an_unknown_outcome() -> None:
    """The store has the transactions; but a newer owner may have been asked about them meanwhile."""
    desk = Desk()
    is_owner = True
    desk.dispatcher.gatekeeper.is_owner = lambda: is_owner
    (early,), (late,) = desk.send("a"), desk.send("b")
    desk.lane.ends[0].succeed(None)
    is_owner = False
    desk.lane.ends[1].succeed(None)
    assert early.result() == b"a"
    response = transaction_pb2.TransactResponse.FromString(late.result())
    assert response.error_class == ErrorClass.UNKNOWN_OUTCOME
    assert "is over: ask the new owner" in response.error_message


def test_who_gave_up_is_not_answered_and_the_others_are() -> None:
    desk = Desk()
    gone, waiting = desk.send("a", "b")
    unanswered: list[CallStatus] = []
    desk.dispatcher.watching.on_unanswered = lambda _method, _elapsed_us, status: unanswered.append(status)
    gone.cancel()
    desk.lane.ends[0].succeed(None)
    with pytest.raises(Unanswered, match="gave up"):
        gone.result()
    assert waiting.result() == b"b"
    assert unanswered == [CallStatus.CANCELLED]


def test_a_call_too_many_is_refused_as_without_a_fast_path() -> None:
    desk = Desk(calls_max=2)
    replies = desk.send("a", "b", "c")
    assert desk.order == ["lane a", "lane b", "end"]
    response = transaction_pb2.TransactResponse.FromString(replies[2].result())
    assert response.error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    desk.lane.ends[0].succeed(None)
    desk.send("c", "d")
    assert desk.order[-3:] == ["lane c", "lane d", "end"], "there is room for as many as before"


@pytest.mark.parametrize("damage", [lambda body: body + b"\xff", lambda _body: b"\x0a\x03\x12\x01x"])
def test_what_cannot_be_read_is_refused_by_itself(damage: Callable[[bytes], bytes]) -> None:
    """No message, or a header with a request id of one byte."""
    desk = Desk()
    body = transaction_pb2.TransactRequest(transactional_id="b").SerializeToString()
    calls: list[NamedCall] = [(TRANSACT, body, CALL), (TRANSACT, damage(body), CALL), (TRANSACT, body, CALL)]
    replies = desk.dispatcher.message(calls)
    assert desk.order == ["lane b", "end", "lane b", "end"]
    assert [reply.is_settled for reply in replies] == [False, True, False]


def test_a_defect_of_the_fast_path_costs_no_call_its_answer() -> None:
    desk = Desk()
    with structlog.testing.capture_logs() as lines:
        desk.send("a", "defect", "b")
    assert [line["event"] for line in lines] == ["defect", "defect"]
    assert desk.order == [
        *("lane a", "taken back", "general a"),
        *("taken back", "general defect"),
        *("lane b", "end"),
    ]


def test_calls_that_a_defect_took_back_are_not_offered_again() -> None:
    """Else the last call of a long message would be offered as often as the message has calls."""
    desk = Desk()
    desk.lane.has_failing_end = True
    with structlog.testing.capture_logs() as lines:
        replies = desk.send("a", "b", "c", "D", "e")
    assert [line["event"] for line in lines] == ["defect", "defect"]
    assert desk.order == [
        *("lane a", "lane b", "lane c", "taken back", "general a", "general b", "general c", "general D"),
        *("lane e", "taken back", "general e"),
    ]
    assert len(replies) == 5


def test_a_defect_in_the_middle_leaves_the_calls_behind_it_to_the_fast_path() -> None:
    desk = Desk()
    with structlog.testing.capture_logs():
        desk.send("a", "b", "defect", "c")
    assert desk.order == [
        *("lane a", "lane b", "taken back", "general a", "general b"),
        *("taken back", "general defect"),
        *("lane c", "end"),
    ]
