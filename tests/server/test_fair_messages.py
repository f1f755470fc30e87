"""Messages of sessions take turns: a huge one makes others wait for at most a turn, and loses nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator_api.v1 import session_pb2, session_pb2_grpc, transaction_pb2
from coordinator_protocol.errors import ErrorCode
from coordinator_runtime.pending import Pending, settled
from coordinator_runtime.ports import CallContext
from coordinator_server.grpc_front.dispatcher import Dispatcher
from coordinator_server.grpc_front.handler import Handler
from coordinator_server.grpc_front.session import Session, SessionLimits
from coordinator_server.traffic.admission import Admission, AdmissionLimits
from coordinator_server.traffic.fair_messages import BYTES_MIN, CALLS_MIN, TURN_US_MAX, FairMessages
from coordinator_server.traffic.metering import Metering
from coordinator_server.traffic.quotas.budgets import Budgets
from coordinator_server.traffic.quotas.rules import QuotaRow, QuotaRules
from tests.harness.gated import GatedDispatcher
from tests.harness.in_process import in_process_server
from tests.harness.manual_clock import ManualClock
from tests.harness.patience import DEADLINE_SECONDS
from tests.server.fake_servicer import SERVICE, FakeTransactionServicer
from tests.server.test_fast_path_calls import FakeLane

CALL_MS = 1
PER_TURN = CALLS_MIN
"""Calls that a turn begins: more than it has time for."""


class SlowServicer(FakeTransactionServicer):
    """Each call takes some of the loop's time. AddPartitionsToTxn is answered at once, EndTxn waits for the test."""

    def __init__(self, clock: ManualClock, order: list[str]) -> None:
        super().__init__()
        self._clock = clock
        self._order = order
        self.call_ms = CALL_MS

    def AddPartitionsToTxn(
        self, request: transaction_pb2.AddPartitionsToTxnRequest, _context: CallContext
    ) -> Pending[transaction_pb2.AddPartitionsToTxnResponse]:
        self._clock.advance(self.call_ms)
        self._order.append(request.transactional_id)
        return settled(transaction_pb2.AddPartitionsToTxnResponse())

    def EndTxn(
        self, request: transaction_pb2.EndTxnRequest, context: CallContext
    ) -> Pending[transaction_pb2.EndTxnResponse]:
        self._clock.advance(self.call_ms)
        self._order.append(request.transactional_id)
        return super().EndTxn(request, context)

    def ListTransactions(
        self, request: transaction_pb2.ListTransactionsRequest, _context: CallContext
    ) -> Pending[transaction_pb2.ListTransactionsResponse]:
        self._clock.advance(self.call_ms)
        self._order.append(f"list {request.limit}")
        return settled(transaction_pb2.ListTransactionsResponse())


class SlowLane(FakeLane):
    """A fast path in which each call takes some of the loop's time."""

    def __init__(self, clock: ManualClock, order: list[str]) -> None:
        super().__init__(order)
        self._clock = clock
        self.call_ms = CALL_MS

    def take(self, request: transaction_pb2.TransactRequest, context: CallContext) -> bytes | None:
        self._clock.advance(self.call_ms)
        return super().take(request, context)


class FairDispatcher:
    """A dispatcher on a manual clock, whose turns of the loop are taken by hand, and the sessions of some callers."""

    def __init__(self, *, has_lane: bool = False) -> None:
        self.clock = ManualClock()
        self.order: list[str] = []
        self._due: list[Callable[[], None]] = []
        self.dispatcher = GatedDispatcher(
            [SERVICE],
            Admission(AdmissionLimits(), lambda: 0),
            self.clock,
            message_bytes_max=1 << 20,
            messages=FairMessages(self.clock, self._due.append),
        )
        self.servicer = SlowServicer(self.clock, self.order)
        self.lane = SlowLane(self.clock, self.order)
        self.dispatcher.open([self.servicer], [self.lane] if has_lane else [])
        self.handler: Handler = self.dispatcher
        self.longest_ms = 0

    def begun(self) -> list[str]:
        """Return the calls that began since the last question."""
        begun, self.order[:] = self.order[:], []
        return begun

    def session(self, connection: str, limits: SessionLimits | None = None) -> Session:
        caller = CallContext("User:noisy", connection=connection)
        return Session(self.handler, self.clock, caller, limits or SessionLimits())

    def turn(self) -> list[str]:
        """Run a turn; return the calls that began since the last one."""
        begun_ms = self.clock.monotonic_ms()
        due = self._due[:]
        self._due.clear()
        for each in due:
            each()
        self.longest_ms = max(self.longest_ms, self.clock.monotonic_ms() - begun_ms)
        return self.begun()

    def rest(self) -> list[str]:
        """All that begins until nothing is left."""
        begun = self.begun()
        while self._due:
            begun += self.turn()
        return begun


def message(ids: Sequence[str], method: str = "AddPartitionsToTxn", cancels: Sequence[int] = ()) -> bytes:
    request = transaction_pb2.AddPartitionsToTxnRequest
    calls = [
        session_pb2.SessionCall(
            correlation_id=number, method=method, body=request(transactional_id=name).SerializeToString()
        )
        for number, name in enumerate(ids)
    ]
    return session_pb2.SessionRequest(calls=calls, cancels=cancels).SerializeToString()


def answered(session: Session) -> list[session_pb2.SessionAnswer]:
    found: list[session_pb2.SessionAnswer] = []
    while (body := session.take()) is not None:
        found += session_pb2.SessionResponse.FromString(body).answers
    return found


HUGE = [f"huge-{number}" for number in range(10 * PER_TURN)]


def test_a_huge_message_is_begun_in_many_turns_and_others_are_served_in_between() -> None:
    fair = FairDispatcher()
    noisy, quiet = fair.session("a"), fair.session("b")
    noisy.receive(message(HUGE))
    assert fair.begun() == HUGE[:PER_TURN]
    quiet.receive(message(["quiet"]))
    assert fair.begun() == [], "this turn has done its work"
    assert [fair.turn() for _ in range(4)] == [
        [],
        HUGE[PER_TURN : 2 * PER_TURN],
        [],
        ["quiet", *HUGE[2 * PER_TURN : 3 * PER_TURN]],
    ]
    assert len(answered(quiet)) == 1
    assert fair.rest() == HUGE[3 * PER_TURN :]
    assert [answer.correlation_id for answer in answered(noisy)] == [*range(len(HUGE))]
    assert fair.longest_ms == (1 + PER_TURN) * CALL_MS


def test_small_calls_are_as_many_as_there_is_time_for_and_large_ones_few() -> None:
    fair = FairDispatcher()
    fair.servicer.call_ms = 0
    session = fair.session("a")
    session.receive(message(HUGE))
    assert fair.begun() == HUGE
    fair.rest()
    fair.servicer.call_ms = TURN_US_MAX // 100
    session.receive(message([letter * (BYTES_MIN // 3) for letter in "abcde"]))
    assert [each[0] for each in fair.begun()] == ["a", "b"]
    assert [[each[0] for each in fair.turn()] for _ in range(6)] == [[], ["c", "d"], [], ["e"], [], []]


def test_who_has_nothing_waiting_begins_at_once_in_every_other_turn() -> None:
    fair = FairDispatcher()
    fair.session("a").receive(message(HUGE))
    fair.turn()
    fair.session("b").receive(message(["quiet"]))
    assert fair.begun() == ["quiet"]


def test_connections_take_turns_however_many_sessions_they_have() -> None:
    fair = FairDispatcher()
    for _ in range(3):
        fair.session("a").receive(message(HUGE))
    fair.session("b").receive(message([f"other-{number}" for number in range(2 * PER_TURN)]))
    fair.begun()
    begun = [begun[0].partition("-")[0] for _ in range(8) if (begun := fair.turn())]
    assert begun == ["huge", "other", "huge", "other"]


def test_what_a_call_brings_about_does_not_overtake_the_calls_that_wait() -> None:
    fair = FairDispatcher()
    first, second = fair.session("a"), fair.session("a")
    first.receive(message(HUGE))
    assert fair.begun() == HUGE[:PER_TURN]
    news = iter([message(["next"])])

    def send_once() -> None:
        for body in news:
            second.receive(body)

    first.on_outgoing = send_once
    assert fair.rest() == [*HUGE[PER_TURN:], "next"]


def test_one_call_begins_in_a_turn_however_large_it_is() -> None:
    fair = FairDispatcher()
    fair.servicer.call_ms = TURN_US_MAX // 100
    fair.session("a").receive(message([letter * BYTES_MIN for letter in "abc"]))
    assert [each[0] for each in fair.begun()] == ["a"]
    assert [[each[0] for each in fair.turn()] for _ in range(6)] == [[], ["b"], [], ["c"], [], []]


def test_lists_of_one_message_begin_in_turns_of_their_own() -> None:
    fair = FairDispatcher()
    lists = [
        session_pb2.SessionCall(
            correlation_id=number,
            method="ListTransactions",
            body=transaction_pb2.ListTransactionsRequest(limit=number).SerializeToString(),
        )
        for number in range(1, 4)
    ]
    session = fair.session("a")
    session.receive(session_pb2.SessionRequest(calls=lists).SerializeToString())
    assert fair.begun() == ["list 1"]
    fair.session("a").receive(message(["behind it"]))
    fair.session("b").receive(message(["of another connection"]))
    assert fair.begun() == ["of another connection"]
    assert [fair.turn() for _ in range(7)] == [[], ["list 2"], [], ["list 3"], [], ["behind it"], []]
    assert len(answered(session)) == 3


def test_a_session_is_read_again_once_all_of_its_calls_have_begun() -> None:
    fair = FairDispatcher()
    session, told = fair.session("a"), list[str]()
    session.on_capacity = lambda: told.append("room")
    session.receive(message(HUGE))
    answered(session)
    begun, has_room = fair.begun(), [session.has_capacity]
    while len(begun) < len(HUGE):
        has_room.append(session.has_capacity)
        begun += fair.turn()
        answered(session)
    assert begun == HUGE
    assert not any(has_room)
    fair.rest()
    assert session.has_capacity
    assert told == ["room"]


def test_a_session_with_as_many_calls_under_way_as_allowed_is_not_read_again_when_all_have_begun() -> None:
    fair = FairDispatcher()
    limits = SessionLimits(calls_in_flight_max=2 * PER_TURN)
    session, told = fair.session("a", limits), list[str]()
    session.on_capacity = lambda: told.append("room")
    session.receive(message(HUGE[: 2 * PER_TURN], "EndTxn"))
    fair.rest()
    assert (session.has_capacity, told) == (False, [])
    fair.servicer.waiting[0].succeed(transaction_pb2.EndTxnResponse())
    answered(session)
    assert (session.has_capacity, told) == (True, ["room"])


def test_a_session_that_is_gone_is_not_read_again_when_what_it_sent_had_its_turn() -> None:
    fair = FairDispatcher()
    session, told = fair.session("a"), list[str]()
    session.on_capacity = lambda: told.append("room")
    session.receive(message(HUGE))
    session.close()
    fair.rest()
    assert told == []


def test_the_fast_path_gives_way_too_and_what_it_took_in_a_turn_is_durable_together() -> None:
    fair = FairDispatcher(has_lane=True)
    session = fair.session("a")
    session.receive(message(["a"] * 3 * PER_TURN, "Transact"))
    fair.rest()
    assert len(fair.lane.ends) == 3
    assert answered(session) == []
    for end in fair.lane.ends:
        end.succeed(None)
    assert [answer.correlation_id for answer in answered(session)] == [*range(3 * PER_TURN)]


def test_the_fast_path_takes_all_of_a_message_together_while_there_is_time() -> None:
    fair = FairDispatcher(has_lane=True)
    fair.lane.call_ms = 0
    fair.session("a").receive(message(["a"] * 3 * PER_TURN, "Transact"))
    assert len(fair.lane.ends) == 1


@pytest.mark.parametrize("has_lane", [False, True], ids=["general", "lane"])
def test_a_client_that_leaves_has_no_more_of_its_calls_begun(*, has_lane: bool) -> None:
    fair = FairDispatcher(has_lane=has_lane)
    session = fair.session("a")
    session.receive(message(["a"] * 3 * PER_TURN, "Transact" if has_lane else "EndTxn"))
    assert [each for each in fair.begun() if each != "end"] == ["lane a" if has_lane else "a"] * PER_TURN
    session.close()
    assert fair.rest() == []
    for waiting in fair.servicer.waiting:
        waiting.give_up()
    for end in fair.lane.ends:
        end.succeed(None)
    assert fair.dispatcher.unanswered_calls == 0


def test_a_call_that_is_cancelled_before_its_turn_is_not_begun() -> None:
    fair = FairDispatcher()
    session = fair.session("a")
    session.receive(message(HUGE, cancels=[PER_TURN, PER_TURN + 1]))
    assert [*fair.begun(), *fair.rest()] == [*HUGE[:PER_TURN], *HUGE[PER_TURN + 2 :]]
    statuses = {answer.correlation_id: answer.status for answer in answered(session)}
    assert [number for number in statuses if statuses[number]] == [PER_TURN, PER_TURN + 1]
    assert len(statuses) == len(HUGE)


def test_what_waits_when_the_server_stops_is_refused_in_words_and_the_session_ends_well() -> None:
    fair = FairDispatcher()
    session = fair.session("a")
    session.receive(message(HUGE))
    session.announce_stop()
    fair.dispatcher.close()
    fair.dispatcher.answer_unanswered()
    assert fair.begun() == HUGE[:PER_TURN]
    answers = answered(session)
    assert [answer.correlation_id for answer in answers] == [*range(len(HUGE))]
    codes = [transaction_pb2.AddPartitionsToTxnResponse.FromString(answer.body).error_code for answer in answers]
    assert codes == [0] * PER_TURN + [ErrorCode.COORDINATOR_NOT_AVAILABLE] * (len(HUGE) - PER_TURN)
    session.stop_lingering()
    assert session.is_finished
    assert fair.rest() == []


def test_a_client_that_sends_no_more_is_answered_all_it_asked_for() -> None:
    fair = FairDispatcher()
    session = fair.session("a")
    session.receive(message(HUGE))
    session.half_close()
    assert len(answered(session)) == PER_TURN
    assert not session.is_finished
    fair.rest()
    assert len(answered(session)) == len(HUGE) - PER_TURN
    assert session.is_finished


def test_a_quota_admits_a_message_as_a_whole_in_however_many_turns_it_begins() -> None:
    fair = FairDispatcher()
    rules = QuotaRules([QuotaRow.model_validate({"principal": "User:noisy", "requests_per_second": 1})])
    keeper = Metering(fair.dispatcher.gatekeeper, Budgets(fair.clock, lambda: rules), fair.clock, lambda *_: None)
    fair.handler = metered = Dispatcher([SERVICE], keeper, message_bytes_max=1 << 20)
    metered.serve([fair.servicer])
    session = fair.session("a")
    session.receive(message(HUGE))
    assert not session.has_capacity, "with a quota, too, no more is read while calls wait for their turn"
    assert [*fair.begun(), *fair.rest()] == HUGE
    answered(session)
    assert session.has_capacity
    session.receive(message(["next"]))
    assert [*fair.begun(), *fair.rest()] == []


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 2 * PER_TURN), st.integers(0, 4)), max_size=6))
def test_every_call_begins_once_in_the_order_of_its_connection(sent: list[tuple[str, int, int]]) -> None:
    fair, wanted, begun = FairDispatcher(), list[str](), list[str]()
    for place, (connection, number, turns) in enumerate(sent):
        ids = [f"{connection}-{place}-{each}" for each in range(number)]
        wanted += ids
        fair.session(connection).receive(message(ids))
        for _ in range(turns):
            begun += fair.turn()
    begun += [*fair.begun(), *fair.rest()]
    assert fair.longest_ms <= TURN_US_MAX // 1_000 + PER_TURN * CALL_MS
    for connection in "abc":
        assert [each for each in begun if each[0] == connection] == [each for each in wanted if each[0] == connection]


@pytest.mark.usefixtures("transport")
async def test_a_message_with_as_many_calls_as_there_may_be_is_answered_over_a_network() -> None:
    number = SessionLimits().calls_in_flight_max
    async with in_process_server() as server:
        stream = session_pb2_grpc.SessionServiceStub(server.channel).Session(timeout=DEADLINE_SECONDS)
        await stream.write(session_pb2.SessionRequest.FromString(message(["x"] * number)))
        await stream.done_writing()
        answers: list[int] = []
        while isinstance(response := await stream.read(), session_pb2.SessionResponse):
            answers += [answer.correlation_id for answer in response.answers]
        assert answers == [*range(number)]
        assert await stream.code() is grpc.StatusCode.OK
