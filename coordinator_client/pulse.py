"""Check that the server is alive while a client closes: a silent server gets a request that it answers from memory.

A server that writes to a slow disk answers late, and is worth waiting for. A frozen server, or one cut off from the
network without a word, does not answer at all. The attempts under way cannot tell the two apart for half a minute; a
request that needs no disk can within a second.

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
"""Silence after which the server is asked (ms)."""

_ONCE: Final = Deadlines(total_ms=CUT_OFF_CLOSE_MS, attempt_ms=CUT_OFF_CLOSE_MS, attempts_max=1)


class Pulse:
    """Liveness check of one client's server, active from `begin` on."""

    def __init__(self, flights: Flights, client_id: str) -> None:
        self._flights = flights
        self._client_id = client_id
        self._since_ms: int | None = None
        self._flight: int | None = None

    def begin(self, now_ms: int) -> None:
        """Start the check now."""
        if self._since_ms is None:
            self._since_ms = now_ms

    @property
    def heard_ms(self) -> int | None:
        """Time of the server's last answer, or of the start of the check; None if it has not started."""
        return None if self._since_ms is None else max(self._since_ms, self._flights.heard_ms)

    def due_ms(self) -> int | None:
        """Return the time of the next request; None if the check has not started or the request is in flight."""
        heard_ms = self.heard_ms
        return None if heard_ms is None or self._flight is not None else heard_ms + SILENCE_MS

    def advance(self, now_ms: int) -> None:
        """Ask the server if it has been silent."""
        due_ms = self.due_ms()
        if due_ms is None or now_ms < due_ms:
            return
        request = admin.DescribeLimitsRequest(header=RequestHeader(client_id=self._client_id))
        call = RetryingCall(DESCRIBE_LIMITS, request, deadlines=_ONCE, now_ms=now_ms)
        self._flight = self._flights.start(call, self._ended)

    def _ended(self, _: admin.DescribeLimitsResponse | TransactionError, _now_ms: int) -> None:
        self._flight = None
