"""Requests of one producer or consumer that are in flight or wait for their next attempt; without clock or socket.

A shell asks for the transmissions that are due, starts them, and passes the answers back. Every attempt has a number,
so a late answer to an attempt that was given up is recognised and dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from msgspec import Struct

from coordinator_client.calls import Reply, ReplyT, Request, RequestT, RetryingCall, Rpc
from coordinator_client.errors import Loss, ReplyFields, TransactionError
from coordinator_client.log import Answers
from coordinator_client.random_source import RandomSource
from coordinator_client.throttle import Throttle

ATTEMPT_GRACE_MS: Final = 1_000
"""Time after its timeout at which an attempt without a report counts as lost (ms). A transport reports a timeout
itself, but may fail to, or an interrupt may swallow the report."""


class Transmission(Struct, frozen=True):
    """One attempt, to be started by the shell now."""

    flight: int
    attempt: int
    rpc: Rpc[Any, Any]
    request: Request
    timeout_ms: int


_Flight: TypeAlias = tuple[RetryingCall[Any, Any], Callable[[Any, int], None]]
"""A call, and the function that is called with its end."""


class Flights:
    """The running calls by number."""

    def __init__(self, random_source: RandomSource, *, before: Flights | None = None) -> None:
        """Start empty. `before`: the calls that these replace. Numbering continues after theirs, so that a late answer
        to one of them is recognised."""
        self.throttle: Throttle = Throttle("") if before is None else before.throttle
        """Pauses that the server asked for; a shell sets that of its connection."""
        self._random_source = random_source
        self._flights: dict[int, _Flight] = {}
        self._started: int = 0 if before is None else before._started
        self.heard_ms = 0
        """Time of the last answer (ms); 0 = none yet."""
        self.answers: Answers | None = None if before is None else before.answers
        """Log of noteworthy answers; None = no logging."""
        self.cancelled: list[int] = []
        """Numbers of the calls that were given up since the shell last asked."""

    def __len__(self) -> int:
        return len(self._flights)

    def has_other_than(self, number: int | None) -> bool:
        """Return True if a call other than `number` is in flight; no caller waits for that one."""
        return len(self._flights) > (number in self._flights)

    def start(
        self, call: RetryingCall[RequestT, ReplyT], on_end: Callable[[ReplyT | TransactionError, int], None]
    ) -> int:
        """Start a call, and return its number. `on_end` is called once, with the final reply or failure, and the
        time."""
        self._started += 1
        self._flights[self._started] = (call, on_end)
        return self._started

    def lose_overdue(self, now_ms: int) -> None:
        """Count attempts as lost that should have been reported long ago. Call it before `transmissions`."""
        overdue = []
        for number, (call, _) in self._flights.items():
            if call.due_ms is None and now_ms >= call.attempt_ends_ms + ATTEMPT_GRACE_MS:
                overdue.append((number, call.attempts))
        for number, attempt in overdue:
            self.on_answer(number, attempt, Loss("DEADLINE_EXCEEDED", "the attempt was never reported back"), now_ms)

    def transmissions(self, now_ms: int) -> list[Transmission]:
        """Return the attempts that start now."""
        due = []
        throttle = self.throttle
        for number, (call, _) in self._flights.items():
            if call.due_ms is not None and call.due_ms <= now_ms < throttle.ends_ms:
                throttle.hold(call, now_ms)
            if call.due_ms is not None and call.due_ms <= now_ms:
                timeout_ms = call.begin_attempt(now_ms)
                due.append(Transmission(number, call.attempts, call.rpc, call.request, timeout_ms))
        return due

    def on_answer(self, number: int, attempt: int, answer: Reply | Loss, now_ms: int) -> None:
        """Process the answer to an attempt, or its loss. An answer to an attempt that was given up is dropped."""
        flight = self._flights.get(number)
        if flight is None:
            return
        call, on_end = flight
        if call.due_ms is not None or call.attempts != attempt:
            return
        end = call.on_answer(answer, now_ms=now_ms, jitter=self._random_source.fraction())
        if not isinstance(answer, Loss):
            self.heard_ms = now_ms
            self.throttle.note(call.rpc.method, answer.throttle_ms, now_ms, is_refused=end is not answer)
        answers = self.answers
        if answers is not None and (end is not answer or answers.is_troubled):
            answers.note(call.rpc.method, _verdict(call, answer), now_ms)
        if end is not None:
            del self._flights[number]
            on_end(end, now_ms)

    def cancel(self, number: int | None) -> None:
        """Give up a call, if it is in flight; the server may still carry it out. None does nothing."""
        if number is not None and self._flights.pop(number, None) is not None:
            self.cancelled.append(number)

    def cancel_all(self) -> None:
        """Give up all calls; the server may still carry them out."""
        self.cancelled += self._flights
        self._flights.clear()

    def take_cancelled(self) -> list[int]:
        """Return the numbers of the calls given up since the last time, so that the shell stops waiting for them."""
        cancelled, self.cancelled = self.cancelled, []
        return cancelled

    def wake_ms(self) -> int | None:
        """Return the latest time of the next `transmissions`; None if nothing is in flight."""
        earliest_ms: int | None = None
        for call, _ in self._flights.values():
            due_ms = call.due_ms
            if due_ms is None:
                due_ms = call.attempt_ends_ms + ATTEMPT_GRACE_MS
            if earliest_ms is None or due_ms < earliest_ms:
                earliest_ms = due_ms
        return earliest_ms


def _verdict(call: RetryingCall[Any, Any], answer: Reply | Loss) -> ReplyFields | Loss:
    return answer if isinstance(answer, Loss) else call.verdict_of(answer)
