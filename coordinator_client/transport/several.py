"""Several addresses of one service: requests go to one of them, and to the next after a loss.

Two servers with one store have one owner at a time. The other waits, and answers NOT_COORDINATOR. A request that was
lost or answered so is repeated by its caller, under the same request id, at the next address. `known_servers` has the
addresses, which also come from the servers themselves.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Final

from coordinator_api.v1 import transaction_pb2 as txn
from coordinator_api.v1.common_pb2 import RequestHeader
from coordinator_client.calls import FIND_COORDINATOR, ReplyT, RequestT, Rpc
from coordinator_client.clock import Clock
from coordinator_client.errors import Loss
from coordinator_client.loops import Loop
from coordinator_client.transport.first_contact import Look
from coordinator_client.transport.known_servers import KnownServers
from coordinator_client.transport.transport import Attempt, Transport

QUESTION_TIMEOUT_MS: Final = 1_000
"""Time that a server has to name all servers of its store (ms). A caller that blocks its thread waits for it."""


class SeveralTransports:
    """Implements `Transport` over one transport for each address."""

    def __init__(
        self, open_one: Callable[[str], Transport], servers: KnownServers, clock: Clock, client_id: str
    ) -> None:
        """`open_one` opens the transport to an address once a request goes there. `client_id`: that of questions for
        the servers."""
        self._open_one = open_one
        self._servers = servers
        self._clock = clock
        self._question = txn.FindCoordinatorRequest(header=RequestHeader(client_id=client_id))
        self._transports: dict[str, Transport] = {}
        # A signal handler may make a request in the middle of another that holds this.
        self._lock = threading.RLock()

    @property
    def is_direct(self) -> bool:
        return self._to(self._servers.current).is_direct

    def start(
        self,
        rpc: Rpc[RequestT, ReplyT],
        request: RequestT,
        *,
        timeout_ms: int,
        on_done: Callable[[ReplyT | Loss], None],
    ) -> Attempt:
        address = self._servers.current
        transport = self._to(address)

        def done(answer: ReplyT | Loss) -> None:
            if self._servers.note(address, answer, self._clock.monotonic_ms()):
                transport.start(
                    FIND_COORDINATOR, self._question, timeout_ms=QUESTION_TIMEOUT_MS, on_done=self._servers.learn
                )
            on_done(answer)

        return transport.start(rpc, request, timeout_ms=timeout_ms, on_done=done)

    def ask(self, rpc: Rpc[RequestT, ReplyT], request: RequestT, *, timeout_ms: int) -> ReplyT | Loss:
        address = self._servers.current
        transport = self._to(address)
        answer = transport.ask(rpc, request, timeout_ms=timeout_ms)
        if self._servers.note(address, answer, self._clock.monotonic_ms()):
            self._servers.learn(transport.ask(FIND_COORDINATOR, self._question, timeout_ms=QUESTION_TIMEOUT_MS))
        return answer

    def close(self) -> None:
        for each in self._transports.values():
            each.close()

    def _to(self, address: str) -> Transport:
        transport = self._transports.get(address)
        if transport is None:
            with self._lock:
                transport = self._transports.get(address)
                if transport is None:
                    transport = self._transports[address] = self._open_one(address)
        return transport


class SeveralLooks:
    """Implements `Look`: looks at one address after the other, until a server answers."""

    def __init__(self, look_at: Callable[[str], Look], servers: KnownServers, clock: Clock) -> None:
        """`look_at` returns the check of one address."""
        self._look_at = look_at
        self._servers = servers
        self._clock = clock

    def now(self, timeout_ms: int) -> str | None:
        ends_ms = self._clock.monotonic_ms() + timeout_ms
        problems = []
        addresses = self._servers.in_turn
        for place, address in enumerate(addresses):
            # A host that is gone must not take the time of the others.
            left_ms = ends_ms - self._clock.monotonic_ms()
            problem = self._look_at(address).now(max(1, left_ms // (len(addresses) - place)))
            if problem is None:
                self._servers.answered(address)
                return None
            problems.append(problem)
        return "; ".join(dict.fromkeys(problems))

    def soon(self, loop: Loop, timeout_ms: int, on_done: Callable[[str | None], None]) -> None:
        ends_ms = self._clock.monotonic_ms() + timeout_ms
        problems: list[str] = []
        addresses = self._servers.in_turn

        def look(place: int) -> None:
            left_ms = ends_ms - self._clock.monotonic_ms()
            share_ms = max(1, left_ms // (len(addresses) - place))
            self._look_at(addresses[place]).soon(loop, share_ms, partial(looked, place))

        def looked(place: int, problem: str | None) -> None:
            if problem is None:
                self._servers.answered(addresses[place])
                on_done(None)
                return
            problems.append(problem)
            if place + 1 < len(addresses):
                look(place + 1)
            else:
                on_done("; ".join(dict.fromkeys(problems)))

        look(0)
