"""Callers that take too much: the answer, its time, and the calls that are served nevertheless."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from coordinator_api.v1 import admin_pb2, group_pb2, log_pb2, transaction_pb2
from coordinator_protocol.errors import CoordinatorError, ErrorCode, Refused
from coordinator_protocol.methods import Method, methods_with
from coordinator_protocol.throttling import PAUSE_MS_MAX
from coordinator_runtime.pending import Pending, settled
from coordinator_runtime.ports import CallContext, Connection, Level
from coordinator_server.build import SERVICES
from coordinator_server.calls import Unanswered
from coordinator_server.grpc_front.dispatcher import endpoint_table
from coordinator_server.grpc_front.grpc_call import THROTTLE_FIELD, GrpcCall
from coordinator_server.security.audit import ALIKE_MAX, ALIKE_MS, AuditLog
from coordinator_server.traffic.call import Call
from coordinator_server.traffic.metering import LATE_AT_ONCE, LATE_LOOK_MS, LATE_MAX, Metering
from coordinator_server.traffic.quotas.bucket import BURST_US
from coordinator_server.traffic.quotas.budgets import (
    CALLS_PAUSE_MS,
    CLIENTS_MAX,
    PATIENCE_MS_MAX,
    PATIENCE_PER_SECOND,
    PRINCIPALS_MAX,
    Budgets,
)
from coordinator_server.traffic.quotas.rules import QuotaRow, QuotaRules
from tests.harness.manual_clock import ManualClock

NOISY = "User:noisy"
ENDPOINTS = endpoint_table(SERVICES, parts_max=1, answer_bytes_max=1 << 20)
NEVER_REFUSED = methods_with(lambda rule: not rule.may_be_refused)
TOLD_AT_ONCE = PATIENCE_PER_SECOND * BURST_US // 1_000_000
PRODUCE = "/coordinator_api.v1.LogService/Produce"
FETCH = "/coordinator_api.v1.LogService/Fetch"
END_TXN = "/coordinator_api.v1.TransactionService/EndTxn"
INIT = "/coordinator_api.v1.TransactionService/InitProducerId"
LIMITS = "/coordinator_api.v1.AdminService/DescribeLimits"


class Inside:
    """Answers begun calls, at once or on request."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.answer = b""
        self.waiting: list[Pending[bytes]] = []
        self.waits = False
        self.is_stopped = False

    def answer_unanswered(self, error: CoordinatorError | None = None) -> None:
        del error
        self.is_stopped = True

    def begin(self, call: Call[bytes]) -> Pending[bytes]:
        (reply,) = self.begin_all([call])
        return reply

    def is_behind(self, _connection: Connection, _then: Callable[[], None]) -> bool:
        """Every call begins at once."""
        return False

    def begin_all(self, calls: Sequence[Call[bytes]]) -> Sequence[Pending[bytes]]:
        self.begun += [call.rule.method.value for call in calls]
        if not self.waits:
            return [settled(self.answer) for _call in calls]
        made: list[Pending[bytes]] = [Pending() for _call in calls]
        self.waiting += made
        return made

    def refuse(self, call: Call[bytes], refusal: Refused) -> Pending[bytes]:
        del call
        response = log_pb2.ProduceResponse(error_code=int(refusal.code), error_message=refusal.message)
        response.throttle_ms = refusal.throttle_ms or 0
        return settled(response.SerializeToString())


def call_of(method: str, body: bytes, context: CallContext) -> GrpcCall:
    return GrpcCall(ENDPOINTS[method], body, context)


class MeteredGatekeeper:
    """A metered gatekeeper on a manual clock."""

    def __init__(self, *rows: QuotaRow, unbound: Sequence[str] = ()) -> None:
        self.clock = ManualClock()
        self.rules = QuotaRules(rows)
        self.inside = Inside()
        self.budgets = Budgets(self.clock, lambda: self.rules, unbound)
        self._later: list[tuple[int, Callable[[], None]]] = []
        self.metering = Metering(self.inside, self.budgets, self.clock, lambda ms, act: self._later.append((ms, act)))

    def call(self, method: str, size: int = 0, principal: str = NOISY, client_id: str = "") -> Pending[bytes]:
        return self.metering.begin(call_of(method, b"\0" * size, CallContext(principal, client_id)))

    def throttle_ms(self, method: str, size: int = 0, principal: str = NOISY, client_id: str = "") -> int:
        """The pause that the answer to a call asks for which is served."""
        response = log_pb2.ProduceResponse.FromString(self.call(method, size, principal, client_id).result())
        assert not response.error_code
        return response.throttle_ms

    def refusal_ms(self, method: str, size: int = 0, principal: str = NOISY) -> int:
        """The pause that the answer to a call asks for which is refused, and of which nothing is done."""
        begun = len(self.inside.begun)
        response = log_pb2.ProduceResponse.FromString(self.call(method, size, principal).result())
        assert response.error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED, response
        assert len(self.inside.begun) == begun
        return response.throttle_ms

    def pass_later(self, *, waits: bool = True) -> None:
        later, self._later = self._later, []
        for after_ms, act in later:
            self.clock.advance(after_ms if waits else 0)
            act()

    @property
    def later_ms(self) -> list[int]:
        return [after_ms for after_ms, _act in self._later]


def row(principal: str = NOISY, client_id: str | None = None, **quotas: int) -> QuotaRow:
    return QuotaRow.model_validate({"principal": principal, "client_id": client_id, **quotas})


# Rates


def test_who_takes_too_much_is_served_and_asked_to_pause() -> None:
    metered = MeteredGatekeeper(row(produce_bytes_per_second=1_000))
    assert metered.throttle_ms(PRODUCE, 90) == 0
    assert metered.throttle_ms(PRODUCE, 510) == 500
    assert metered.budgets.throttled == {"produce_bytes_per_second": 1}


def test_who_comes_back_before_the_pause_is_over_is_refused_and_afterwards_served() -> None:
    metered = MeteredGatekeeper(row(produce_bytes_per_second=1_000))
    assert metered.throttle_ms(PRODUCE, 2_100) == 2_000
    assert metered.refusal_ms(PRODUCE, 1) == 2_000
    metered.clock.advance(1_500)
    assert metered.refusal_ms(PRODUCE, 1) == 500
    metered.clock.advance(500)
    assert metered.throttle_ms(PRODUCE, 0) == 0
    assert metered.budgets.refused == {"produce_bytes_per_second": 2}


def test_what_a_caller_fetches_is_known_with_the_answer() -> None:
    metered = MeteredGatekeeper(row(fetch_bytes_per_second=100))
    metered.inside.answer = log_pb2.FetchResponse(error_message="x" * 308).SerializeToString()
    assert len(metered.inside.answer) == 311
    assert metered.call(FETCH).result().startswith(metered.inside.answer)
    assert metered.refusal_ms(FETCH) == 3_010
    metered.inside.answer = b""
    assert metered.throttle_ms(PRODUCE, 10_000) == 0, "another rate"


def test_requests_of_every_kind_count() -> None:
    metered = MeteredGatekeeper(row(requests_per_second=20))
    assert [metered.throttle_ms(method) for method in (LIMITS, FETCH, PRODUCE)] == [0, 0, 50]
    assert metered.refusal_ms(LIMITS) == 50


def test_a_message_is_admitted_as_a_whole_and_in_its_order() -> None:
    metered = MeteredGatekeeper(row(produce_bytes_per_second=10))
    call = CallContext(NOISY)
    names = ["Produce", "EndTxn", "Produce", "EndTxn"]
    served = metered.metering.begin_all([call_of(name, b"\0" * 100, call) for name in names])
    assert metered.inside.begun == names
    assert all(log_pb2.ProduceResponse.FromString(each.result()).error_code == 0 for each in served)
    mixed = metered.metering.begin_all([call_of(name, b"\0" * 100, call) for name in names])
    codes = [log_pb2.ProduceResponse.FromString(each.result()).error_code for each in mixed]
    assert codes == [ErrorCode.THROTTLING_QUOTA_EXCEEDED, 0, ErrorCode.THROTTLING_QUOTA_EXCEEDED, 0]
    assert metered.inside.begun == [*names, "EndTxn", "EndTxn"]


def test_a_message_without_calls_takes_nothing() -> None:
    metered = MeteredGatekeeper(row(requests_per_second=1))
    assert metered.metering.begin_all([]) == []
    assert metered.throttle_ms(LIMITS) == 0


def test_what_ends_a_transaction_is_never_refused_and_counts() -> None:
    metered = MeteredGatekeeper(row(requests_per_second=1))
    assert [metered.throttle_ms(END_TXN) for _ in range(4)] == [0, 1_000, 2_000, 3_000]
    assert metered.refusal_ms(PRODUCE) == 3_000


def test_no_caller_is_asked_to_pause_for_longer_than_half_a_minute() -> None:
    metered = MeteredGatekeeper(row(produce_bytes_per_second=1))
    assert metered.throttle_ms(PRODUCE, 1_000_000) == PAUSE_MS_MAX


def test_one_principal_does_not_take_from_another() -> None:
    metered = MeteredGatekeeper(row("User:*", requests_per_second=1))
    assert metered.throttle_ms(LIMITS) == 0
    assert metered.throttle_ms(LIMITS) == 1_000
    assert metered.throttle_ms(LIMITS, principal="User:quiet") == 0


def test_a_new_rate_holds_from_the_next_call_on() -> None:
    metered = MeteredGatekeeper(row(requests_per_second=1))
    assert [metered.throttle_ms(LIMITS) for _ in range(2)] == [0, 1_000]
    metered.rules = QuotaRules([row(requests_per_second=1_000)])
    assert metered.refusal_ms(LIMITS) == 1
    metered.clock.advance(2)
    assert metered.throttle_ms(LIMITS) == 0
    metered.rules = QuotaRules()
    assert [metered.throttle_ms(LIMITS) for _ in range(2_000)] == [0] * 2_000


# Clients


def test_a_client_has_a_share_of_what_its_principal_may_take() -> None:
    metered = MeteredGatekeeper(row(requests_per_second=30), row(client_id="a", requests_per_second=1))
    assert [metered.throttle_ms(LIMITS, client_id="a") for _ in range(2)] == [0, 1_000]
    assert [metered.throttle_ms(LIMITS, client_id="b") for _ in range(2)] == [0, 34], "the rest of the principal's"


def test_the_longer_of_two_pauses_counts_for_either_debtor() -> None:
    metered = MeteredGatekeeper(row(requests_per_second=10), row(client_id="a", requests_per_second=1))
    assert [metered.throttle_ms(LIMITS, client_id="a") for _ in range(2)] == [0, 1_000]
    for _ in range(48):
        metered.throttle_ms(END_TXN, client_id="b")
    assert metered.throttle_ms(END_TXN, client_id="b") == 5_000, "of its principal, for it has no table of its own"
    assert metered.throttle_ms(END_TXN, client_id="a") == 5_100
    for _ in range(9):
        metered.throttle_ms(END_TXN, client_id="a")
    assert metered.throttle_ms(END_TXN, client_id="a") == 12_000, "of the client itself"


def test_what_a_client_owes_stays_owed_when_the_file_changes() -> None:
    metered = MeteredGatekeeper(row(client_id="a", requests_per_second=1))
    assert [metered.throttle_ms(END_TXN, client_id="a") for _ in range(3)] == [0, 1_000, 2_000]
    metered.rules = QuotaRules([row(client_id="a", requests_per_second=2)])
    assert metered.throttle_ms(END_TXN, client_id="a") == 1_500


def test_tables_of_everyone_are_not_of_the_clients_of_who_must_get_in() -> None:
    rows = row("User:*", client_id="*", requests_per_second=1), row("User:root", client_id="a", requests_per_second=20)
    metered = MeteredGatekeeper(*rows, unbound=["User:root"])
    assert [metered.throttle_ms(LIMITS, principal="User:root", client_id="b") for _ in range(5)] == [0] * 5
    of_a = [metered.throttle_ms(LIMITS, principal="User:root", client_id="a") for _ in range(3)]
    assert of_a == [0, 0, 50], "a table of its own counts"


def test_the_client_id_of_a_unary_call_is_in_its_header() -> None:
    metered = MeteredGatekeeper(row(client_id="a", requests_per_second=1))
    request = admin_pb2.DescribeLimitsRequest()
    request.header.client_id = "a"
    replies = [
        metered.metering.begin(call_of(LIMITS, request.SerializeToString(), CallContext(NOISY))) for _ in range(2)
    ]
    assert [log_pb2.ProduceResponse.FromString(each.result()).throttle_ms for each in replies] == [0, 1_000]
    assert metered.throttle_ms(LIMITS, client_id="b") == 0
    assert metered.throttle_ms(LIMITS, size=3) == 0, "what cannot be read the dispatcher refuses"


def test_client_ids_that_are_made_up_are_no_way_out() -> None:
    metered = MeteredGatekeeper(row(client_id="*", requests_per_second=1))
    for number in range(CLIENTS_MAX):
        assert metered.throttle_ms(LIMITS, client_id=f"c{number}") == 0
    further = [metered.throttle_ms(LIMITS, client_id=f"d{number}") for number in range(2)]
    assert further == [0, 1_000]
    assert len(metered.budgets.of(NOISY).clients) == CLIENTS_MAX + 1


def test_a_client_id_longer_than_any_may_be_is_not_kept() -> None:
    metered = MeteredGatekeeper(row(client_id="*", requests_per_second=1))
    for number in range(3):
        metered.call(END_TXN, client_id=f"{number}" * 1_001)
    assert list(metered.budgets.of(NOISY).clients) == [""]


def test_a_long_call_without_records_counts_as_several_requests() -> None:
    metered = MeteredGatekeeper(row(requests_per_second=10))
    assert metered.throttle_ms(PRODUCE, 100_000) == 0, "its bytes have a rate of their own"
    assert metered.throttle_ms(LIMITS, 9_999) == 1_000


# Callers that ignore pauses


def out_of_patience(*rows: QuotaRow) -> MeteredGatekeeper:
    """Return a gatekeeper whose noisy caller owes throughout the test, and has used up its immediate refusals."""
    metered = MeteredGatekeeper(*rows or (row(requests_per_second=1),))
    for _ in range(20):
        metered.throttle_ms(END_TXN)
    for _refusal in range(TOLD_AT_ONCE + 1):
        metered.refusal_ms(LIMITS)
    return metered


def test_who_does_not_stop_asking_hears_of_it_late_and_of_one_refusal_after_the_other() -> None:
    metered = out_of_patience()
    late = [metered.call(LIMITS) for _ in range(3)]
    assert not any(each.is_settled for each in late)
    for told in range(4):
        assert [each.is_settled for each in late] == [number < told for number in range(3)]
        metered.pass_later()
    codes = {log_pb2.ProduceResponse.FromString(each.result()).error_code for each in late}
    assert codes == {ErrorCode.THROTTLING_QUOTA_EXCEEDED}
    assert metered.later_ms == []
    metered.clock.advance(PATIENCE_MS_MAX)
    metered.refusal_ms(LIMITS)


def test_a_server_that_stops_tells_the_refusals_that_wait() -> None:
    metered = out_of_patience()
    late = [metered.call(LIMITS) for _ in range(3)]
    late[0].cancel()
    metered.metering.answer_unanswered()
    assert [each.is_settled for each in late] == [True] * 3
    assert metered.inside.is_stopped
    metered.pass_later()
    assert metered.later_ms == []


def test_no_refusal_waits_longer_than_a_second() -> None:
    metered = out_of_patience()
    late = [metered.call(LIMITS) for _ in range(2 * PATIENCE_PER_SECOND)]
    metered.clock.advance(PATIENCE_MS_MAX - 1)
    told = [each.is_settled for each in late]
    while metered.later_ms != [LATE_LOOK_MS]:
        metered.pass_later(waits=False)
        told = [each.is_settled for each in late]
    assert told == [True] * told.index(False) + [False] * told.count(False)
    assert told.count(False) >= PATIENCE_PER_SECOND, "those that would wait longer wait until then"
    metered.pass_later()
    while metered.later_ms:
        assert metered.later_ms == [0]
        metered.pass_later()
    assert all(each.is_settled for each in late)


def test_late_refusals_that_are_due_together_are_told_some_in_a_turn() -> None:
    metered = out_of_patience()
    late = [metered.call(LIMITS) for _ in range(LATE_AT_ONCE + 1)]
    late[0].cancel()
    metered.clock.advance(PATIENCE_MS_MAX)
    assert metered.later_ms == [LATE_LOOK_MS]
    metered.pass_later(waits=False)
    assert [each.is_settled for each in late] == [True] * LATE_AT_ONCE + [False]
    with pytest.raises(Unanswered, match="gave up"):
        late[0].result()
    assert metered.later_ms == [0]
    metered.pass_later()
    assert late[-1].is_settled
    assert metered.later_ms == []


def test_who_took_no_notice_does_not_hold_up_what_others_are_told() -> None:
    metered = out_of_patience(row("User:*", requests_per_second=1))
    late = [metered.call(LIMITS) for _ in range(PATIENCE_PER_SECOND)]
    for _ in range(20):
        metered.throttle_ms(END_TXN, principal="User:other")
    for _refusal in range(TOLD_AT_ONCE + 1):
        metered.refusal_ms(LIMITS, principal="User:other")
    of_other = metered.call(LIMITS, principal="User:other")
    metered.pass_later()
    assert of_other.is_settled
    assert [each.is_settled for each in late] == [True] + [False] * (PATIENCE_PER_SECOND - 1)


def test_so_many_refusals_wait_and_no_more() -> None:
    metered = out_of_patience()
    late = [metered.call(LIMITS) for _ in range(LATE_MAX)]
    assert not any(each.is_settled for each in late)
    metered.refusal_ms(LIMITS)
    assert not any(each.is_settled for each in late), "those before it wait on"


def test_a_flood_of_refusals_is_some_lines_of_the_audit_log_and_counted() -> None:
    metered = MeteredGatekeeper(row(requests_per_second=1))
    lines: list[tuple[str, object, object, object]] = []
    audit = AuditLog(
        metered.clock,
        lambda kind, **told: lines.append((kind, told["principal"], told["quota"], told["unwritten_before"])),
    )
    metered.budgets.on_refused = audit.over_quota
    for _call in range(50):
        metered.call(LIMITS)
    assert lines == [("quota", NOISY, "requests_per_second", 0)] * ALIKE_MAX
    metered.clock.advance(ALIKE_MS)
    metered.rules = QuotaRules([row(calls=0)])
    metered.call(LIMITS)
    assert lines[ALIKE_MAX:] == [("quota", NOISY, "calls", 0)]
    assert audit.counts()["quota", "no"] == 48 - ALIKE_MAX


# Levels


def test_calls_without_an_answer_have_a_bound_and_make_room_when_they_are_answered() -> None:
    metered = MeteredGatekeeper(row(calls=2))
    metered.inside.waits = True
    first = metered.call(LIMITS)
    metered.call(PRODUCE)
    assert metered.refusal_ms(LIMITS) == CALLS_PAUSE_MS
    assert not metered.call(FETCH).is_settled, "readers that wait have a bound of their own"
    assert not metered.call(END_TXN).is_settled, "never refused"
    metered.inside.waiting[0].succeed(b"")
    assert first.is_settled
    assert metered.budgets.of(NOISY).held[Level.CALLS] == 2
    metered.inside.waiting[-1].fail(CoordinatorError(ErrorCode.INVALID_REQUEST, "as it may be"))
    assert not metered.call(LIMITS).is_settled


def test_a_caller_that_gives_up_makes_room_when_its_call_has_ended() -> None:
    metered = MeteredGatekeeper(row(calls=1, requests_per_second=100))
    metered.inside.waits = True
    given_up = metered.call(LIMITS)
    given_up.cancel()
    assert metered.inside.waiting[0].is_cancelled
    metered.inside.waiting[0].fail(CoordinatorError(ErrorCode.INVALID_REQUEST, "gave up"))
    assert not metered.call(LIMITS).is_settled


def test_who_must_get_in_has_no_bounds_that_are_built_in() -> None:
    metered = MeteredGatekeeper(row("User:*", calls=0, requests_per_second=1), unbound=["User:root"])
    assert [metered.throttle_ms(LIMITS, principal="User:root") for _ in range(5)] == [0] * 5
    assert metered.refusal_ms(LIMITS) == CALLS_PAUSE_MS


def test_principals_that_hold_nothing_are_forgotten_some_time() -> None:
    metered = MeteredGatekeeper()
    metered.budgets.add(Level.SESSIONS, NOISY)
    for number in range(PRINCIPALS_MAX + 5):
        metered.budgets.of(f"User:{number}")
    assert metered.budgets.of(NOISY).held[Level.SESSIONS] == 1
    assert len(metered.budgets._budgets) < PRINCIPALS_MAX


# The tables


def test_every_response_has_room_for_a_pause_and_every_request_the_same_header() -> None:
    for endpoint in ENDPOINTS.values():
        field = endpoint.response_type.DESCRIPTOR.fields_by_name["throttle_ms"]
        assert (field.number, field.type) == (THROTTLE_FIELD, field.TYPE_INT32), endpoint.rule.method
        header = endpoint.request_type.DESCRIPTOR.fields_by_name["header"]
        assert header.number == admin_pb2.DescribeLimitsRequest.DESCRIPTOR.fields_by_name["header"].number


@pytest.mark.parametrize("method", sorted(set(Method) - NEVER_REFUSED - {Method.SESSION}))
def test_what_begins_or_asks_something_is_refused(method: Method) -> None:
    metered = MeteredGatekeeper(row(requests_per_second=1))
    metered.throttle_ms(END_TXN)
    metered.throttle_ms(END_TXN)
    assert metered.refusal_ms(method) == 1_000


@pytest.mark.parametrize("method", sorted(NEVER_REFUSED))
def test_what_ends_or_settles_something_is_not(method: Method) -> None:
    metered = MeteredGatekeeper(row(requests_per_second=1, calls=0, group_waits=0, long_polls=0))
    assert [metered.throttle_ms(method) for _ in range(3)] == [0, 1_000, 2_000]


def test_a_pause_is_added_to_whatever_was_answered() -> None:
    metered = MeteredGatekeeper(row(requests_per_second=1))
    metered.throttle_ms(END_TXN)
    for answer in (
        transaction_pb2.EndTxnResponse(producer_id=7, producer_epoch=3),
        group_pb2.HeartbeatResponse(error_code=27),
    ):
        metered.inside.answer = answer.SerializeToString()
        body = metered.call(END_TXN).result()
        found = type(answer).FromString(body)
        assert found.throttle_ms > 0
        found.ClearField("throttle_ms")
        assert found == answer
