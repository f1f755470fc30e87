"""New producers of a crowd begin one after the other, so that calls of others do not wait behind all of them.

A rate bounds what it counts. Who may bring so many bytes in a second may still ask for any number of producer ids at
once, and sends a transaction with each as soon as it is there. So InitProducerId waits where its principal has rates
that do not count it, and as many calls under way as those save up. Such calls begin in the order in which they came,
evenly, and all within a second; at once where nobody else calls. Who has no rate, or a large one, never waits.

Other calls are not held: a producer needs its id once, but those for each transaction. A rate of requests bounds them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final

from coordinator_protocol.methods import Method
from coordinator_runtime.clock import Clock
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import Level
from coordinator_server.traffic.call import Call
from coordinator_server.traffic.quotas.bucket import BURST_US
from coordinator_server.traffic.quotas.budgets import Buckets, Budget
from coordinator_server.traffic.quotas.rules import Rate

STEP_MS: Final = 15
"""The time between two steps, in each of which some of what waits begins."""
STEPS: Final = 66
"""Steps in which all begins that waits: of sixty calls, one in each. Where all began within 60 ms, others waited as
long as without this (decision 49)."""
WAIT_MS_MAX: Final = STEP_MS * STEPS
COMPANY_MS: Final = 100
"""A principal is alone when nobody else has called for so long."""
UNDER_WAY_MIN: Final = 4
"""Calls that anybody may have under way, however small its rates are."""
CALL_BYTES: Final = 2_500
"""What a call is taken for that no rate of bytes counts: it costs the loop about as much as one that brings so many."""
LINE_MAX: Final = 1_024
"""Calls of a principal that wait; more begin at once."""
WAITING_BYTES_MAX: Final = 16_384
"""A larger request does not wait, because of the memory that it would take meanwhile."""


def calls_at_once(buckets: Buckets) -> int:
    """How many calls a principal with these rates may have under way before new producers of it wait."""
    saved_bytes = min(bucket.rate for bucket in buckets.values()) * BURST_US // 1_000_000
    return max(UNDER_WAY_MIN, saved_bytes // CALL_BYTES)


def may_be_held(method: Method, buckets: Buckets) -> bool:
    """Whether a call may wait, of a principal with these rates: where they count it, that bounds it already."""
    return method is Method.INIT_PRODUCER_ID and bool(buckets) and Rate.REQUESTS not in buckets


@dataclass(slots=True)
class _Line:
    waiting: dict[int, tuple[Call[Any], Pending[Any]]] = field(default_factory=dict)
    longest: int = 0
    """The most that waited since the line began."""


class Crowds:
    """Decides which calls of their own (not those of sessions) begin when. On the loop only."""

    def __init__(
        self,
        clock: Clock,
        later: Callable[[int, Callable[[], None]], None],
        begin: Callable[[Call[Any]], Pending[Any]],
    ) -> None:
        """`later` calls a function after so many milliseconds; one call waits at most. `begin` begins a call."""
        self._clock = clock
        self._later = later
        self._begin = begin
        self._lines: dict[str, _Line] = {}
        """By principal. One that is empty goes with the next step."""
        self._is_step_due = False
        self._numbers = count()
        self._newest = "", 0
        """Who called last, and when."""
        self._other = "", -COMPANY_MS
        """Who called last of all others, and when."""

    def called(self, principal: str) -> None:
        """Take note that this principal calls."""
        if self._newest[0] != principal:
            self._other = self._newest
        self._newest = principal, self._clock.monotonic_ms()

    def held(self, budget: Budget, called: Call[Any]) -> Pending[Any] | None:
        """The reply to a call that begins later; None: it may begin now."""
        if not may_be_held(called.rule.method, budget.buckets):
            return None
        principal, line = budget.principal, self._lines.get(budget.principal)
        if line is None:
            if budget.held[Level.CALLS] < calls_at_once(budget.buckets):
                return None
        elif len(line.waiting) >= LINE_MAX:
            return None
        if not self._has_time(called) or not self._has_company(principal):
            return None
        if line is None:
            line = self._lines[principal] = _Line()
        return self._wait(line, called)

    def begin_all(self) -> None:
        """Begin all that waits, in a server that stops: it is refused, which costs little."""
        lines, self._lines = self._lines, {}
        for line in lines.values():
            self._begin_some(line, len(line.waiting))

    def _has_time(self, called: Call[Any]) -> bool:
        deadline_ms = called.context.deadline_ms
        if deadline_ms is not None and deadline_ms - self._clock.monotonic_ms() < 2 * WAIT_MS_MAX:
            return False
        return called.size_bytes <= WAITING_BYTES_MAX

    def _has_company(self, principal: str) -> bool:
        """Whether another principal has called lately."""
        name, at_ms = self._newest if self._newest[0] != principal else self._other
        return bool(name) and self._clock.monotonic_ms() - at_ms < COMPANY_MS

    def _wait(self, line: _Line, called: Call[Any]) -> Pending[Any]:
        number = next(self._numbers)
        reply: Pending[Any] = Pending()

        def leave() -> None:
            del line.waiting[number]
            reply.give_up()

        reply.on_cancel = leave
        line.waiting[number] = called, reply
        line.longest = max(line.longest, len(line.waiting))
        self._step_later()
        return reply

    def _step_later(self) -> None:
        if not self._is_step_due:
            self._is_step_due = True
            self._later(STEP_MS, self._step)

    def _step(self) -> None:
        self._is_step_due = False
        for principal, line in list(self._lines.items()):
            is_alone = not self._has_company(principal)
            self._begin_some(line, LINE_MAX if is_alone else -(-line.longest // STEPS))
            if not line.waiting:
                del self._lines[principal]
        if self._lines:
            self._step_later()

    def _begin_some(self, line: _Line, number: int) -> None:
        for each in list(line.waiting)[:number]:
            # One that begins may have others leave.
            if each in line.waiting:
                called, reply = line.waiting.pop(each)
                begun = self._begin(called)
                reply.on_cancel = begun.cancel
                begun.on_settled(reply.settle_as)
