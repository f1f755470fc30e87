"""Which calls of a principal with a rate wait for others, how long, and who never does."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.methods import Method
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import CallContext
from coordinator_server.traffic.crowds import (
    COMPANY_MS,
    LINE_MAX,
    STEP_MS,
    STEPS,
    UNDER_WAY_MIN,
    WAIT_MS_MAX,
    WAITING_BYTES_MAX,
    Crowds,
    calls_at_once,
    may_be_held,
)
from coordinator_server.traffic.quotas.bucket import full
from coordinator_server.traffic.quotas.budgets import Buckets, Budgets
from coordinator_server.traffic.quotas.costs import level_of
from coordinator_server.traffic.quotas.rules import QuotaRow, QuotaRules, Rate
from tests.harness.manual_clock import ManualClock
from tests.harness.second_front import WrittenCall

GREEDY, POLITE = "User:greedy", "User:polite"
INIT = Method.INIT_PRODUCER_ID
AT_ONCE = 4
"""Calls that a rate of 100 kB/s lets begin together."""


class Room:
    """Crowds on a manual clock, of calls that are answered when a test says so."""

    def __init__(self, principal: str = GREEDY, **quotas: int) -> None:
        quotas = quotas or {"produce_bytes_per_second": 100_000}
        rules = QuotaRules([QuotaRow.model_validate({"principal": principal, **quotas})])
        self.clock = ManualClock()
        self.budgets = Budgets(self.clock, lambda: rules)
        self.begun: list[tuple[str, Pending[bytes]]] = []
        self.later: list[tuple[int, Callable[[], None]]] = []
        self.crowds = Crowds(self.clock, lambda ms, act: self.later.append((ms, act)), self._begin)

    def _begin(self, called: WrittenCall) -> Pending[bytes]:
        context = called.context
        budget, level = self.budgets.of(context.principal), level_of(called.rule)
        reply: Pending[bytes] = Pending()
        budget.held[level] += 1
        reply.on_settled(lambda _reply: budget.give_back(level))
        self.begun.append((context.principal, reply))
        return reply

    def call(
        self, principal: str = GREEDY, method: Method = INIT, size: int = 0, deadline_ms: int | None = None
    ) -> Pending[bytes]:
        called = WrittenCall(method, bytes(size), CallContext(principal, deadline_ms=deadline_ms))
        self.crowds.called(principal)
        held = self.crowds.held(self.budgets.of(principal), called)
        return self._begin(called) if held is None else held

    def number(self, principal: str = GREEDY) -> int:
        """How many calls of a principal have begun."""
        return sum(whose == principal for whose, _reply in self.begun)

    def step(self) -> None:
        """Let the time pass until some of what waits begins."""
        ((after_ms, act),) = self.later
        self.later.clear()
        self.clock.advance(after_ms)
        act()

    def crowd(self, calls: int) -> list[Pending[bytes]]:
        """Replies to so many calls of the greedy one, while another one calls."""
        self.call(POLITE)
        return [self.call() for _ in range(calls)]


def test_a_crowd_of_a_principal_with_a_rate_begins_evenly_within_a_bound() -> None:
    room = Room()
    room.crowd(AT_ONCE + 2 * STEPS)
    assert room.number() == AT_ONCE
    for steps in range(1, STEPS + 1):
        room.call(POLITE)
        room.step()
        assert room.number() == AT_ONCE + 2 * steps
    assert room.later == [], "no timer is left behind"
    assert STEPS * STEP_MS == WAIT_MS_MAX


def test_calls_of_others_begin_at_once_meanwhile() -> None:
    room = Room()
    room.crowd(64)
    for _ in range(64):
        room.call(POLITE)
    assert room.number(POLITE) == 65


def test_who_is_alone_never_waits() -> None:
    room = Room()
    for _ in range(64):
        room.call()
    assert room.number() == 64
    room.call(POLITE)
    room.clock.advance(COMPANY_MS)
    room.call()
    assert room.number() == 65


def test_what_waits_begins_together_once_nobody_else_calls() -> None:
    room = Room()
    room.crowd(64)
    room.clock.advance(COMPANY_MS)
    room.step()
    assert room.number() == 64


def test_who_has_no_rate_never_waits() -> None:
    room = Room("User:somebody")
    room.crowd(64)
    assert room.number() == 64


def test_who_has_only_a_level_never_waits() -> None:
    room = Room(open_transactions=5)
    room.crowd(64)
    assert room.number() == 64


def test_as_many_calls_as_the_rate_saves_up_begin_at_once() -> None:
    room = Room("User:*", produce_bytes_per_second=20_000_000)
    room.crowd(800)
    assert room.number() == 800
    room.call()
    assert room.number() == 800


def test_one_call_after_the_other_never_waits() -> None:
    room = Room(produce_bytes_per_second=1)
    for _ in range(64):
        room.call(POLITE)
        room.call()
        room.begun[-1][1].succeed(b"")
    assert room.number() == 64


def test_calls_for_each_transaction_never_wait() -> None:
    room = Room()
    room.crowd(64)
    for method in (Method.PRODUCE, Method.TRANSACT, Method.END_TXN, Method.FETCH):
        begun = room.number()
        room.call(method=method)
        assert room.number() == begun + 1, method


@pytest.mark.parametrize(
    ("rates", "is_held"),
    [
        ({Rate.PRODUCE_BYTES}, True),
        ({Rate.FETCH_BYTES}, True),
        ({Rate.REQUESTS}, False),
        ({Rate.PRODUCE_BYTES, Rate.REQUESTS}, False),
        (set(), False),
    ],
)
def test_a_new_producer_waits_only_where_no_rate_counts_it(rates: set[Rate], is_held: bool) -> None:
    assert may_be_held(INIT, {rate: full(1, 0) for rate in rates}) == is_held


@pytest.mark.parametrize(("rate", "calls"), [(1, UNDER_WAY_MIN), (1_000_000, 40), (20_000_000, 800)])
def test_how_many_begin_at_once_comes_from_the_smallest_rate(rate: int, calls: int) -> None:
    buckets: Buckets = {Rate.PRODUCE_BYTES: full(rate, 0), Rate.FETCH_BYTES: full(10**9, 0)}
    assert calls_at_once(buckets) == calls


def test_a_call_waits_behind_those_of_its_principal_that_wait() -> None:
    room = Room()
    replies = room.crowd(AT_ONCE + 3)
    for _whose, reply in room.begun[1:]:
        reply.succeed(b"")
    replies.append(room.call())
    assert room.number() == AT_ONCE
    room.step()
    room.begun[-1][1].succeed(b"the first that waited")
    assert replies[AT_ONCE].result() == b"the first that waited"


def test_a_caller_that_leaves_is_taken_out_of_the_line() -> None:
    room = Room()
    replies = room.crowd(AT_ONCE + 1)
    replies[-1].cancel()
    assert isinstance(replies[-1].error, Refused)
    assert replies[-1].error.code is ErrorCode.REQUEST_TIMED_OUT
    room.step()
    assert room.number() == AT_ONCE
    assert room.later == []


def test_a_caller_that_leaves_once_its_call_has_begun_is_told_to_the_call() -> None:
    room = Room()
    (*_others, waited) = room.crowd(AT_ONCE + 1)
    room.step()
    waited.cancel()
    assert room.begun[-1][1].is_cancelled


def test_what_would_end_soon_or_is_large_does_not_wait() -> None:
    room = Room()
    room.crowd(64)
    soon_ms = room.clock.monotonic_ms() + WAIT_MS_MAX
    room.call(deadline_ms=soon_ms)
    room.call(size=WAITING_BYTES_MAX + 1)
    assert room.number() == AT_ONCE + 2
    room.call(deadline_ms=soon_ms + 2 * WAIT_MS_MAX, size=WAITING_BYTES_MAX)
    assert room.number() == AT_ONCE + 2


def test_a_line_has_an_end() -> None:
    room = Room()
    room.crowd(AT_ONCE + LINE_MAX + 3)
    assert room.number() == AT_ONCE + 3


def test_all_begins_in_a_server_that_stops() -> None:
    room = Room()
    room.crowd(64)
    room.crowds.begin_all()
    assert room.number() == 64
    room.step()
    assert room.number() == 64
    assert room.later == []
