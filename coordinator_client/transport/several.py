"""Several addresses of one service: requests go to one of them, and to the next after a loss.

Two servers with one store have one owner at a time. The other waits, and answers NOT_COORDINATOR. A request that was
lost or answered so is repeated by its caller, under the same request id, at the next address.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from coordinator_client.calls import ReplyT, RequestT, Rpc
from coordinator_client.clock import Clock
from coordinator_client.errors import Loss, ReplyFields
from coordinator_client.loops import Loop
from coordinator_client.transport.first_contact import Look
from coordinator_client.transport.transport import TARGET_SCHEMES, Attempt, Transport
from coordinator_protocol.errors import ErrorCode

_GONE: Final = frozenset({"UNAVAILABLE", "DEADLINE_EXCEEDED"})
"""Statuses after which another address is tried. A host that was lost answers nothing at all."""


def addresses_of(endpoint: str) -> list[str]:
    """Return the addresses that an endpoint names, HOST:PORT,HOST:PORT. gRPC's targets have commas of their own."""
    return [endpoint] if endpoint.startswith(TARGET_SCHEMES) else [each.strip() for each in endpoint.split(",")]


class Choice:
    """The address that is in use, for all users of one connection. On any thread."""

    def __init__(self, number: int) -> None:
        """`number`: how many there are. The first is tried first."""
        self._number = number
        self.place = 0

    def answered(self, place: int) -> None:
        """Note that a server answered there."""
        self.place = place

    def failed(self, place: int) -> None:
        """Go on to the next address. Of many requests that were lost at one address only the first does that."""
        if self.place == place:
            self.place = (place + 1) % self._number


class SeveralTransports:
    """Implements `Transport` over one transport for each address."""

    def __init__(self, transports: Sequence[Transport], choice: Choice) -> None:
        self._transports = transports
        self._choice = choice

    @property
    def is_direct(self) -> bool:
        return self._transports[self._choice.place].is_direct

    def start(
        self,
        rpc: Rpc[RequestT, ReplyT],
        request: RequestT,
        *,
        timeout_ms: int,
        on_done: Callable[[ReplyT | Loss], None],
    ) -> Attempt:
        place = self._choice.place

        def done(answer: ReplyT | Loss) -> None:
            self._note(place, answer)
            on_done(answer)

        return self._transports[place].start(rpc, request, timeout_ms=timeout_ms, on_done=done)

    def ask(self, rpc: Rpc[RequestT, ReplyT], request: RequestT, *, timeout_ms: int) -> ReplyT | Loss:
        place = self._choice.place
        answer = self._transports[place].ask(rpc, request, timeout_ms=timeout_ms)
        self._note(place, answer)
        return answer

    def close(self) -> None:
        for each in self._transports:
            each.close()

    def _note(self, place: int, answer: ReplyFields | Loss) -> None:
        if isinstance(answer, Loss):
            is_elsewhere = answer.status in _GONE
        else:
            is_elsewhere = answer.error_code == ErrorCode.NOT_COORDINATOR
        if is_elsewhere:
            self._choice.failed(place)


class SeveralLooks:
    """Implements `Look`: looks at one address after the other, until a server answers."""

    def __init__(self, looks: Sequence[Look], choice: Choice, clock: Clock) -> None:
        self._looks = looks
        self._choice = choice
        self._clock = clock

    def now(self, timeout_ms: int) -> str | None:
        ends_ms = self._clock.monotonic_ms() + timeout_ms
        problems = []
        for place, look in enumerate(self._looks):
            # A host that is gone must not take the time of the others.
            left_ms = ends_ms - self._clock.monotonic_ms()
            problem = look.now(max(1, left_ms // (len(self._looks) - place)))
            if problem is None:
                self._choice.answered(place)
                return None
            problems.append(problem)
        return "; ".join(dict.fromkeys(problems))

    def soon(self, loop: Loop, timeout_ms: int, on_done: Callable[[str | None], None]) -> None:
        ends_ms = self._clock.monotonic_ms() + timeout_ms
        problems: list[str] = []

        def look(place: int) -> None:
            left_ms = ends_ms - self._clock.monotonic_ms()
            share_ms = max(1, left_ms // (len(self._looks) - place))
            self._looks[place].soon(loop, share_ms, lambda problem: looked(place, problem))

        def looked(place: int, problem: str | None) -> None:
            if problem is None:
                self._choice.answered(place)
                on_done(None)
                return
            problems.append(problem)
            if place + 1 < len(self._looks):
                look(place + 1)
            else:
                on_done("; ".join(dict.fromkeys(problems)))

        look(0)
