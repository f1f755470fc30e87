"""The requests of one producer or consumer that are on their way or wait for their next attempt; it knows neither clock
nor socket.

A shell asks for the transmissions that are due, starts them, and brings the answers back. Every attempt has a number,
so an answer that comes after its attempt was given up is recognised and dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from msgspec import Struct

from coordinator_client.errors import Loss, TransactionError
from coordinator_client.exchange import Exchange
from coordinator_client.identity import Chance
from coordinator_client.methods import Reply, ReplyT, Request, RequestT, Rpc

ATTEMPT_GRACE_MS: Final = 1_000
"""A transport reports a timeout itself; one that does not, or whose report an interrupt swallowed, counts as lost after
this."""


class Transmission(Struct, frozen=True):
    """One attempt for the shell to start now."""

    flight: int
    attempt: int
    rpc: Rpc[Any, Any]
    request: Request
    timeout_ms: int


@dataclass(slots=True)
class _Flight:
    exchange: Exchange[Any, Any]
    on_end: Callable[[Any, int], None]


class Flights:
    """Running exchanges, by number."""

    def __init__(self, chance: Chance) -> None:
        self._chance = chance
        self._flights: dict[int, _Flight] = {}
        self._started = 0
        self._cancelled: list[int] = []

    def __len__(self) -> int:
        return len(self._flights)

    def __contains__(self, flight: int) -> bool:
        return flight in self._flights

    def start(
        self, exchange: Exchange[RequestT, ReplyT], on_end: Callable[[ReplyT | TransactionError, int], None]
    ) -> int:
        """Send it when it is due; `on_end` is called once with the final reply or failure, and the time."""
        self._started += 1
        self._flights[self._started] = _Flight(exchange, on_end)
        return self._started

    def transmissions(self, now_ms: int) -> list[Transmission]:
        """Return the attempts that start now."""
        for number, flight in list(self._flights.items()):
            if flight.exchange.is_overdue(now_ms, grace_ms=ATTEMPT_GRACE_MS):
                lost = Loss("DEADLINE_EXCEEDED", "the attempt was never reported back")
                self.on_answer(number, flight.exchange.attempts, lost, now_ms)
        due = []
        for number, flight in self._flights.items():
            exchange = flight.exchange
            if exchange.due_ms is not None and exchange.due_ms <= now_ms:
                timeout_ms = exchange.begin_attempt(now_ms)
                due.append(Transmission(number, exchange.attempts, exchange.rpc, exchange.request, timeout_ms))
        return due

    def on_answer(self, number: int, attempt: int, answer: Reply | Loss, now_ms: int) -> None:
        """Take what became of an attempt; an answer to an attempt that was given up is dropped."""
        flight = self._flights.get(number)
        if flight is None or flight.exchange.due_ms is not None or flight.exchange.attempts != attempt:
            return
        end = flight.exchange.on_answer(answer, now_ms=now_ms, jitter=self._chance.fraction())
        if end is not None:
            del self._flights[number]
            flight.on_end(end, now_ms)

    def cancel(self, number: int) -> None:
        """Give one up, if it is still on its way; the server may carry it out all the same."""
        if self._flights.pop(number, None) is not None:
            self._cancelled.append(number)

    def cancel_all(self) -> None:
        """Give up everything; the server may carry it out all the same."""
        self._cancelled += self._flights
        self._flights.clear()

    def take_cancelled(self) -> list[int]:
        """Return the flights that were given up since the last call, so that the shell stops waiting for them."""
        cancelled, self._cancelled = self._cancelled, []
        return cancelled

    def wake_ms(self) -> int | None:
        """When to ask for transmissions again at the latest; None while nothing is on its way."""
        return min(
            [flight.exchange.wake_ms(grace_ms=ATTEMPT_GRACE_MS) for flight in self._flights.values()], default=None
        )
