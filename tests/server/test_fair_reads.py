"""Reads take turns: which one begins in which turn of the loop."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator_api.v1 import transaction_pb2
from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_runtime.clock import SystemClock
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import CallContext
from coordinator_server.calls import CallStatus, Unanswered
from coordinator_server.traffic.admission import Admission, AdmissionLimits
from coordinator_server.traffic.fair_reads import CALL_WORK_BYTES, FairReads, ReadLimits
from tests.harness.gated import GatedDispatcher
from tests.server.fake_servicer import FIND_COORDINATOR, LIST_TRANSACTIONS, SERVICE, FakeTransactionServicer

LARGE = 10 * CALL_WORK_BYTES
LIMITS = ReadLimits(turn_bytes_max=LARGE, rest_turns=2, waiting_max=40, waiting_bytes_max=400)


class Loop:
    """Turns by hand, and the reads that began in each."""

    def __init__(self, limits: ReadLimits = LIMITS) -> None:
        self._due: list[Callable[[], None]] = []
        self.reads = FairReads(self._due.append, limits)
        self.begun: list[str] = []

    def ask(self, name: str, work_bytes: int = LARGE, request_bytes: int = 1) -> None:
        """A read of the connection that its name begins with."""
        self.reads.begin(name[0], request_bytes, partial(self._read, name, work_bytes))

    def _read(self, name: str, work_bytes: int) -> None:
        self.begun.append(name)
        self.reads.spent(work_bytes)

    def turn(self) -> list[str]:
        """Run a turn; return the reads that began since the last one."""
        due = self._due[:]
        self._due.clear()
        for each in due:
            each()
        begun, self.begun = self.begun, []
        return begun

    @property
    def is_idle(self) -> bool:
        return not self._due


def test_without_others_waiting_a_read_begins_at_once() -> None:
    loop = Loop()
    loop.ask("a1")
    assert loop.begun == ["a1"]
    loop.turn()
    loop.ask("a2")
    assert loop.begun == ["a2"]
    loop.turn()
    assert loop.is_idle


def test_a_turn_begins_no_more_once_its_work_is_done_and_the_next_ones_rest() -> None:
    loop = Loop()
    for name in ("a1", "a2", "a3"):
        loop.ask(name)
    assert [loop.turn() for _ in range(6)] == [["a1", "a2"], [], [], ["a3"], [], []]
    assert loop.is_idle


def test_small_reads_share_a_turn_and_each_costs_something() -> None:
    loop = Loop()
    for number in range(30):
        loop.ask(f"{'ab'[number // 20]}{number}", work_bytes=0)
    assert [len(loop.turn()) for _ in range(4)] == [20, 0, 0, 10]


def test_connections_are_served_one_read_each_and_each_in_its_order() -> None:
    loop = Loop(ReadLimits(turn_bytes_max=1, rest_turns=0))
    loop.ask("x0")
    for name in ("a1", "a2", "a3", "b1", "c1", "b2"):
        loop.ask(name)
    assert [loop.turn() for _ in range(6)] == [["x0", "a1"], ["b1"], ["c1"], ["a2"], ["b2"], ["a3"]]


def test_reads_of_others_that_were_woken_count_too() -> None:
    loop = Loop()
    loop.ask("a1", work_bytes=0)
    loop.reads.spent(LARGE)
    loop.ask("b1")
    assert loop.begun == ["a1"]


def refused(ask: Callable[[], None]) -> str:
    with pytest.raises(Refused) as refusal:
        ask()
    assert refusal.value.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    return refusal.value.message


def test_a_connection_has_a_part_of_the_room_and_all_together_no_more_than_there_is() -> None:
    loop = Loop()
    loop.ask("x0")
    for name in "abcd":
        for number in range(10):
            loop.ask(f"{name}{number}")
        if name != "d":
            assert "10 reads of this connection" in refused(lambda name=name: loop.ask(f"{name}x"))  # type: ignore[misc]
    assert "40 reads of all connections" in refused(lambda: loop.ask("e0"))
    loop.turn()
    loop.ask("e0")


def test_bytes_of_requests_are_bounded_and_one_may_wait_whatever_its_size() -> None:
    loop = Loop()
    loop.ask("x0")
    loop.ask("a1", request_bytes=390)
    assert "of this connection" in refused(lambda: loop.ask("a2", request_bytes=10))
    assert "of all connections" in refused(lambda: loop.ask("b1", request_bytes=11))
    loop.ask("b1", request_bytes=10)
    loop.reads.begin_all()
    assert loop.begun == ["x0", "a1", "b1"]
    assert loop.reads.waiting == 0


steps = st.lists(st.one_of(st.sampled_from("abcd"), st.none()), max_size=200)


@given(steps, st.lists(st.integers(0, 2 * LARGE), min_size=200, max_size=200))
def test_every_read_begins_once_in_the_order_of_its_connection(asked: list[str | None], work: list[int]) -> None:
    loop = Loop(ReadLimits(turn_bytes_max=LARGE, rest_turns=1))
    names, begun = list[str](), list[str]()
    for number, who in enumerate(asked):
        if who is None:
            begun += loop.turn()
        else:
            names.append(f"{who}{number}")
            loop.ask(names[-1], work[number])
    while not loop.is_idle:
        begun += loop.turn()
    assert sorted(begun) == sorted(names)
    for who in "abcd":
        assert [name for name in begun if name[0] == who] == [name for name in names if name[0] == who]
    assert loop.reads.waiting == 0


def dispatcher(reads: FairReads) -> GatedDispatcher:
    admission = Admission(AdmissionLimits(), lambda: 0)
    serving = GatedDispatcher([SERVICE], admission, SystemClock(), message_bytes_max=1 << 20, reads=reads)
    serving.open([FakeTransactionServicer()])
    return serving


def ask(serving: GatedDispatcher, method: str) -> Pending[bytes]:
    return serving(method, b"", CallContext(host="10.0.0.1", connection="a"))


def test_calls_that_are_no_reads_do_not_wait_behind_reads() -> None:
    loop = Loop(ReadLimits(turn_bytes_max=1, rest_turns=0))
    serving = dispatcher(loop.reads)
    first, second = ask(serving, LIST_TRANSACTIONS), ask(serving, LIST_TRANSACTIONS)
    assert first.is_settled
    assert not second.is_settled
    assert ask(serving, FIND_COORDINATOR).is_settled
    loop.turn()
    assert second.is_settled


def test_a_caller_that_leaves_while_its_read_waits_costs_no_reading() -> None:
    loop = Loop(ReadLimits(turn_bytes_max=1, rest_turns=0))
    serving = dispatcher(loop.reads)
    ask(serving, LIST_TRANSACTIONS)
    gone = ask(serving, LIST_TRANSACTIONS)
    gone.cancel()
    loop.turn()
    with pytest.raises(Unanswered) as error:
        gone.result()
    assert error.value.status is CallStatus.CANCELLED


def test_reads_that_wait_when_the_server_stops_are_told_so() -> None:
    loop = Loop(ReadLimits(turn_bytes_max=1, rest_turns=0))
    serving = dispatcher(loop.reads)
    ask(serving, LIST_TRANSACTIONS)
    waiting = ask(serving, LIST_TRANSACTIONS)
    serving.close()
    serving.answer_unanswered()
    response = transaction_pb2.ListTransactionsResponse.FromString(waiting.result())
    assert int(response.error_code) == ErrorCode.COORDINATOR_NOT_AVAILABLE
