"""Looks whether a server is there while a client closes: a silent one is asked for what it answers from memory.

A server that writes to a slow disk answers late, and is worth waiting for. One that is frozen, or cut off from the
network without a word, answers nothing at all. The attempts under way do not tell them apart for half a minute; a
question that needs no disk does so within a second.

Source: README ("within a second if the server does not answer any more"); KAFKA-4426.
"""

from __future__ import annotations

from typing import Final

from coordinator_api.v1 import admin_pb2 as admin
from coordinator_api.v1.common_pb2 import RequestHeader
from coordinator_client.calls import CUT_OFF_CLOSE_MS, DESCRIBE_LIMITS, Deadlines, RetryingCall
from coordinator_client.errors import TransactionError
from coordinator_client.flights import Flights

SILENCE_MS: Final = 250
"""Silence after which a server is asked."""

_ONCE: Final = Deadlines(total_ms=CUT_OFF_CLOSE_MS, attempt_ms=CUT_OFF_CLOSE_MS, attempts_max=1)


class Pulse:
    """The pulse of one client's server, taken from `begin` on."""

    def __init__(self, flights: Flights, client_id: str) -> None:
        self._flights = flights
        self._client_id = client_id
        self._since_ms: int | None = None
        self._flight: int | None = None

    def begin(self, now_ms: int) -> None:
        """Take it from now on."""
        if self._since_ms is None:
            self._since_ms = now_ms

    @property
    def heard_ms(self) -> int | None:
        """When the server answered last, or the looking began; None: it has not begun."""
        return None if self._since_ms is None else max(self._since_ms, self._flights.heard_ms)

    def due_ms(self) -> int | None:
        """Return when the server is asked next; None: not, or it was asked already."""
        heard_ms = self.heard_ms
        return None if heard_ms is None or self._flight is not None else heard_ms + SILENCE_MS

    def advance(self, now_ms: int) -> None:
        """Ask a server that is silent."""
        due_ms = self.due_ms()
        if due_ms is None or now_ms < due_ms:
            return
        request = admin.DescribeLimitsRequest(header=RequestHeader(client_id=self._client_id))
        call = RetryingCall(DESCRIBE_LIMITS, request, deadlines=_ONCE, now_ms=now_ms)
        self._flight = self._flights.start(call, self._ended)

    def _ended(self, _: admin.DescribeLimitsResponse | TransactionError, _now_ms: int) -> None:
        self._flight = None
