"""The gatekeeper serves a front that has no protobuf: the one of `tests.harness.second_front`, beside none other."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

from coordinator_protocol.errors import ErrorCode, Refused, UnknownOutcome
from coordinator_protocol.methods import Method
from coordinator_runtime.pending import Pending, settled
from coordinator_runtime.ports import CallContext
from coordinator_server.calls import CallStatus, Unanswered
from coordinator_server.traffic.admission import Admission, AdmissionLimits
from coordinator_server.traffic.answer_bytes import AnswerBytes, AnswerLimits
from coordinator_server.traffic.fair_messages import CALLS_MIN, FairMessages
from coordinator_server.traffic.gatekeeper import Gatekeeper
from coordinator_server.traffic.metering import Keeper, Metering
from coordinator_server.traffic.quotas.budgets import Budgets
from coordinator_server.traffic.quotas.rules import QuotaRow, QuotaRules
from tests.harness.gated import Watching
from tests.harness.manual_clock import ManualClock
from tests.harness.second_front import WrittenCall

NOISY = CallContext("User:noisy", connection="1")
OTHER = CallContext("User:other", connection="2")


class FastPath:
    """Takes what it is offered, and makes it durable when a test says so."""

    def __init__(self) -> None:
        self.taken: list[str] = []
        self.ends: list[Pending[None]] = []

    def take(self, line: str) -> bytes | None:
        if line.startswith("rare"):
            return None
        self.taken.append(line)
        return f"took {line}".encode()

    def end(self) -> Pending[None]:
        self.ends.append(Pending())
        return self.ends[-1]

    def take_back(self) -> None:
        self.taken.clear()


class House:
    """One gatekeeper on a manual clock, whose turns of the loop are taken by hand."""

    def __init__(
        self, *rows: QuotaRow, limits: AdmissionLimits | None = None, answers: AnswerLimits | None = None
    ) -> None:
        self.clock = ManualClock()
        self.due: list[Callable[[], None]] = []
        self.answers = AnswerBytes(answers or AnswerLimits())
        self.gatekeeper = Gatekeeper(
            Admission(limits or AdmissionLimits(), lambda: 0),
            self.clock,
            answer_limit=self.answers,
            messages=FairMessages(self.clock, self.due.append),
        )
        self.watching = Watching()
        self.gatekeeper.observer = self.watching
        rules = QuotaRules(rows)
        budgets = Budgets(self.clock, lambda: rules)
        self.keeper: Keeper = Metering(self.gatekeeper, budgets, self.clock, lambda _ms, act: self.due.append(act))
        self.fast_path = FastPath()
        self.served: list[str] = []
        self.work_ms = 0
        """Time that each use case takes of the loop."""

    def open(self) -> None:
        self.gatekeeper.open({Method.TRANSACT: self.fast_path})

    def serve(self, line: str, _context: CallContext) -> Pending[str]:
        self.clock.advance(self.work_ms)
        self.served.append(line)
        return settled(f"did {line}")

    def call(
        self,
        line: str,
        method: Method = Method.PRODUCE,
        by: CallContext = NOISY,
        *,
        serve: Callable[[str, CallContext], Pending[object]] | None = None,
        refuses_over_rate: bool = False,
    ) -> WrittenCall:
        return WrittenCall(
            method,
            line.encode(),
            by,
            serve or self.serve,
            take=self.fast_path.take,
            refuses_over_rate=refuses_over_rate,
        )

    def ask(self, line: str, method: Method = Method.PRODUCE, by: CallContext = NOISY) -> Pending[bytes]:
        return self.keeper.begin(self.call(line, method, by))

    def turn(self) -> None:
        due = self.due[:]
        self.due.clear()
        for act in due:
            act()


@pytest.fixture
def house() -> House:
    made = House()
    made.open()
    return made


def test_a_call_is_served(house: House) -> None:
    assert house.ask("one").result() == b"did one"
    assert house.watching.answered_methods == [Method.PRODUCE]


def test_a_call_is_refused_while_the_server_loads_and_nothing_of_it_is_decoded() -> None:
    house = House()
    call = house.call("one")
    assert house.keeper.begin(call).result().startswith(b"refused COORDINATOR_LOAD_IN_PROGRESS")
    assert (call.decoded, house.served) == (0, [])


def test_a_noisy_caller_is_served_and_told_to_pause_where_its_front_wants_that() -> None:
    house = House(QuotaRow.model_validate({"principal": "User:noisy", "produce_bytes_per_second": 100}))
    house.open()
    assert house.ask("x" * 210).result().endswith(b"(pause 2000 ms)")
    assert house.ask("y").result() == b"did y (pause 2010 ms)"
    assert house.ask("z", by=OTHER).result() == b"did z"


def test_a_noisy_caller_is_refused_like_one_of_grpc_where_its_front_wants_that() -> None:
    house = House(QuotaRow.model_validate({"principal": "User:noisy", "produce_bytes_per_second": 100}))
    house.open()
    assert house.ask("x" * 210).result().endswith(b"(pause 2000 ms)")
    call = house.call("y", refuses_over_rate=True)
    assert house.keeper.begin(call).result().startswith(b"refused THROTTLING_QUOTA_EXCEEDED")
    assert call.decoded == 0


def test_a_principal_holds_no_more_calls_than_it_may_whatever_its_front() -> None:
    house = House(QuotaRow.model_validate({"principal": "User:noisy", "calls": 2}))
    house.open()
    waiting = [Pending[object]() for _ in range(3)]
    replies = [
        house.keeper.begin(house.call("slow", serve=lambda _line, _context, at=at: waiting[at])) for at in range(2)
    ]
    assert house.ask("third").result().startswith(b"refused THROTTLING_QUOTA_EXCEEDED")
    waiting[0].succeed("done")
    assert replies[0].result() == b"done"
    assert house.ask("third").result() == b"did third"


def test_calls_beyond_the_limit_are_refused_and_room_comes_back() -> None:
    house = House(limits=AdmissionLimits(calls_in_work_max=1))
    house.open()
    waiting: Pending[object] = Pending()
    first = house.keeper.begin(house.call("slow", serve=lambda _line, _context: waiting))
    assert house.gatekeeper.calls_in_flight() == {Method.PRODUCE: 1}
    assert house.ask("two").result().startswith(b"refused THROTTLING_QUOTA_EXCEEDED")
    waiting.succeed("done")
    assert first.result() == b"done"
    assert house.ask("two").result() == b"did two"


def test_calls_of_one_long_message_wait_for_turns_to_come_and_others_go_before(house: House) -> None:
    house.work_ms = 1
    replies = house.keeper.begin_all([house.call(f"{number}") for number in range(4 * CALLS_MIN)])
    assert len(house.served) == CALLS_MIN
    later: list[str] = []
    assert house.keeper.is_behind("1", lambda: later.append("goes on"))
    assert house.ask("other", by=OTHER).result() == b"did other"
    assert house.served[-1] == "other"
    while house.due:
        house.turn()
    assert [reply.result() for reply in replies] == [f"did {number}".encode() for number in range(4 * CALLS_MIN)]
    assert later == ["goes on"]


def test_a_read_waits_for_room_for_its_answer() -> None:
    house = House(answers=AnswerLimits(bytes_max=1_000, connection_bytes_max=1_000))
    house.open()
    house.answers.hold("2", 1_000)
    call = house.call("list", Method.LIST_GROUPS)
    assert house.keeper.begin(call).result().startswith(b"refused THROTTLING_QUOTA_EXCEEDED")
    assert call.decoded == 0
    house.answers.release("2", 1_000)
    assert house.ask("list", Method.LIST_GROUPS).result() == b"did list"


def test_the_fast_path_takes_a_run_together_and_leaves_what_is_rare_in_its_place(house: House) -> None:
    names = ["a", "b", "rare c", "d"]
    replies = house.keeper.begin_all([house.call(name, Method.TRANSACT) for name in names])
    assert house.fast_path.taken == ["a", "b", "d"]
    assert house.served == ["rare c"]
    assert [reply.is_settled for reply in replies] == [False, False, True, False]
    for end in house.fast_path.ends:
        end.succeed(None)
    assert [reply.result() for reply in replies] == [b"took a", b"took b", b"did rare c", b"took d"]


def test_what_the_fast_path_could_not_make_durable_is_answered_so(house: House) -> None:
    reply = house.ask("a", Method.TRANSACT)
    house.fast_path.ends[0].fail(UnknownOutcome("the store failed"))
    assert reply.result() == b"refused REQUEST_TIMED_OUT: the store failed"


def test_a_call_is_decoded_once_though_the_fast_path_leaves_it(house: House) -> None:
    call = house.call("rare", Method.TRANSACT)
    assert house.keeper.begin(call).result() == b"did rare"
    assert call.decoded == 1


def test_who_is_gone_is_not_answered_and_the_work_is_told(house: House) -> None:
    waiting: Pending[object] = Pending()
    ended: list[CallStatus] = []
    house.watching.on_unanswered = lambda _method, _elapsed_us, status: ended.append(status)
    reply = house.keeper.begin(house.call("slow", serve=lambda _line, _context: waiting))
    reply.cancel()
    assert waiting.is_cancelled
    waiting.succeed("done")
    with pytest.raises(Unanswered, match="gave up"):
        reply.result()
    assert ended == [CallStatus.CANCELLED]


def test_a_server_that_drains_answers_what_waits_and_takes_nothing_new(house: House) -> None:
    waiting: Pending[object] = Pending()
    reply = house.keeper.begin(house.call("slow", Method.FETCH, serve=lambda _line, _context: waiting))
    house.gatekeeper.close()
    assert house.ask("late").result().startswith(b"refused COORDINATOR_NOT_AVAILABLE")
    house.keeper.answer_unanswered()
    assert reply.result().startswith(b"refused COORDINATOR_NOT_AVAILABLE")
    assert house.gatekeeper.unanswered_calls == 0


def test_a_defect_fails_the_call_that_met_it_and_tells_nothing_of_the_inside(house: House) -> None:
    def serve(_line: str, _context: CallContext) -> Pending[object]:
        raise KeyError("secret")

    defects: list[Exception] = []
    house.watching.on_defect = defects.append
    with pytest.raises(Unanswered) as failed:
        house.keeper.begin(house.call("one", serve=serve)).result()
    assert failed.value.status is CallStatus.INTERNAL
    assert "secret" not in failed.value.message
    assert len(defects) == 1
    assert house.ask("next").result() == b"did next"


def test_acts_of_administrators_are_audited_with_what_came_of_them(house: House) -> None:
    lines: list[tuple[str, object]] = []

    class Auditor:
        def acted(self, call: WrittenCall, outcome: object) -> None:
            lines.append((call.shown(), outcome))

    house.gatekeeper.auditor = Auditor()
    house.ask("orders", Method.CREATE_TOPICS)
    refusal = Refused(ErrorCode.TOPIC_ALREADY_EXISTS, "there")

    def refuse(_line: str, _context: CallContext) -> Pending[object]:
        raise refusal

    house.keeper.begin(house.call("orders again", Method.CREATE_TOPICS, serve=refuse))
    house.ask("looking", Method.DESCRIBE_TOPICS)
    assert lines == [("orders", ()), ("orders again", refusal)]


def test_an_answer_larger_than_its_front_can_send_is_refused(house: House) -> None:
    call = house.call("one")
    call.answer_bytes_max = 3
    with pytest.raises(Unanswered, match="at most 3 are allowed"):
        house.keeper.begin(call).result()


def test_traffic_loads_no_protobuf_and_no_grpc() -> None:
    probe = (
        "import sys, coordinator_server.traffic.gatekeeper, coordinator_server.traffic.metering\n"
        "import coordinator_server.security.audit\n"
        "wires = ('google', 'grpc', 'coordinator_api')\n"
        "print(sorted(name for name in sys.modules if name.partition('.')[0] in wires))"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
