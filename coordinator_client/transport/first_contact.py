"""First connection of a client, made before anything is sent. A wrong address is reported within two seconds and in
words, and it is certain that nothing was done.

A client that was connected once knows that there is a server, and tries until its deadline. A client that never was
cannot know: the address may be wrong, the server may not run, another program may listen there. So before its first
request it connects, greets as HTTP/2 does, and checks the answer. It gives up after `wait_ms`, by default `GIVE_UP_MS`.
The price is one more connection per client. gRPC itself reports neither the reason nor whether a request was sent
before the failure.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, Protocol

from coordinator_client.calls import ReplyT, RequestT, Rpc
from coordinator_client.clock import Clock
from coordinator_client.errors import Loss
from coordinator_client.log import Answers
from coordinator_client.loops import Loop
from coordinator_client.transport.transport import Attempt, Transport

GIVE_UP_MS: Final = 1_500
"""Default time for which a client tries to reach a server that it has never reached; a refused connection is retried
meanwhile (ms). Also the time that a program has to answer once it accepts the connection, even without retries."""

_PAUSE_MS_FIRST: Final = 50
_PAUSE_MS_MAX: Final = 500
_NEVER_MS: Final = 2**62

_SEARCH_GAP_MS_MAX: Final = 5_000
"""Longest pause between attempts that belong to one search for the server (ms). Longer than the pauses between the
attempts of a call."""


class Look(Protocol):
    """A single check that a server is there."""

    def now(self, timeout_ms: int) -> str | None:
        """Return a description of the problem, or None if a server answered. Takes at most `timeout_ms`."""

    def soon(self, loop: Loop, timeout_ms: int, on_done: Callable[[str | None], None]) -> None:
        """Check without blocking; `on_done` is called on the loop with the result that `now` would return."""


class FirstContact:
    """State of one client's search for its server: if it was ever reached, and the duration of the search."""

    def __init__(
        self,
        endpoint: str,
        look: Look,
        *,
        patience_ms: int | None,
        clock: Clock,
        answers: Answers,
        on_made: Callable[[], None],
    ) -> None:
        """Start without contact. `on_made` is called once, on any thread."""
        self.endpoint = endpoint
        self.look = look
        self.patience_ms = patience_ms
        self.clock = clock
        self.is_made = False
        self._search_began_ms: int | None = None
        self._searched_ms = 0
        self._answers = answers
        self._on_made = on_made

    def make(self) -> None:
        """Note that a server answered."""
        if not self.is_made:
            self.is_made = True
            self._answers.reached()
            self._on_made()

    def gives_up_ms(self, now_ms: int) -> int:
        """Return the time at which an attempt that begins now has to give up.

        Patience counts from the beginning of the search. An attempt may be only a part of it: calls make several, and
        consumers begin new ones in the background.
        """
        if self._search_began_ms is None or now_ms - self._searched_ms > _SEARCH_GAP_MS_MAX:
            self._search_began_ms = now_ms
        self._searched_ms = now_ms
        return _NEVER_MS if self.patience_ms is None else self._search_began_ms + self.patience_ms

    def seek(self, timeout_ms: int) -> str | None:
        """Try until a server answers. Return the problem if none does in time, or within the patience."""
        asked_ms = now_ms = self.clock.monotonic_ms()
        ends_ms, gives_up_ms = asked_ms + timeout_ms, self.gives_up_ms(asked_ms)
        look_until_ms = min(ends_ms, max(gives_up_ms, asked_ms + GIVE_UP_MS))
        pause_ms = _PAUSE_MS_FIRST
        while (problem := self.look.now(_look_ms(look_until_ms, now_ms))) is not None:
            self.note(problem)
            now_ms = self.clock.monotonic_ms()
            if now_ms + pause_ms >= min(ends_ms, gives_up_ms):
                return problem
            self.clock.pause(pause_ms)
            pause_ms = min(_PAUSE_MS_MAX, pause_ms * 2)
            now_ms = self.clock.monotonic_ms()
        self.make()
        return None

    def note(self, problem: str) -> None:
        """Note that a check failed. A client that waits for its server logs it; any other raises an error soon."""
        self._searched_ms = self.clock.monotonic_ms()
        if self.patience_ms is None or self.patience_ms > GIVE_UP_MS:
            self._answers.waits(self._said(problem))

    def lost(self, problem: str, *, is_final: bool) -> Loss:
        """Return the loss for a request that was not sent."""
        if is_final:
            self._search_began_ms = None
        return Loss(
            "UNAVAILABLE", self._said(problem), is_without_effect=True, is_never_connected=True, is_final=is_final
        )

    def _said(self, problem: str) -> str:
        return f"no server answers at {self.endpoint} ({problem})"


class _Waiting:
    """A request that waits for the first contact. It is also the `Attempt` that its caller holds."""

    def __init__(
        self,
        start: Callable[[int], Attempt],
        on_done: Callable[[Any], None],
        *,
        asked_ms: int,
        timeout_ms: int,
        gives_up_ms: int,
    ) -> None:
        self._start = start
        self._on_done: Callable[[Any], None] | None = on_done
        self._call: Attempt | None = None
        self.ends_ms = asked_ms + timeout_ms
        self.gives_up_ms = gives_up_ms
        self.look_until_ms = min(self.ends_ms, max(self.gives_up_ms, asked_ms + GIVE_UP_MS))

    @property
    def is_open(self) -> bool:
        """True if the request was neither sent nor reported as lost."""
        return self._on_done is not None

    def start(self, now_ms: int) -> None:
        """Send the request now."""
        if self._on_done is not None:
            self._on_done = None
            self._call = self._start(max(1, self.ends_ms - now_ms))

    def lose(self, loss: Loss) -> None:
        """Report that the request was not sent."""
        on_done, self._on_done = self._on_done, None
        if on_done is not None:
            on_done(loss)

    def cancel(self) -> None:
        if self._call is not None:
            self._call.cancel()
        else:
            self.lose(Loss("CANCELLED", "cancelled by the client", is_without_effect=True))


class ContactFirst:
    """A transport that makes the first contact before it sends anything. Afterwards the connection uses the inner
    transport directly."""

    def __init__(self, transport: Transport, contact: FirstContact, open_loop: Callable[[], Loop]) -> None:
        self.transport = transport
        self._contact = contact
        self._open_loop = open_loop
        self._loop: Loop | None = None
        self._waiting: list[_Waiting] = []
        self._is_looking = False
        self._pause_ms = _PAUSE_MS_FIRST

    @property
    def is_direct(self) -> bool:
        return self.transport.is_direct

    def start(
        self,
        rpc: Rpc[RequestT, ReplyT],
        request: RequestT,
        *,
        timeout_ms: int,
        on_done: Callable[[ReplyT | Loss], None],
    ) -> Attempt:
        if self._contact.is_made:
            return self.transport.start(rpc, request, timeout_ms=timeout_ms, on_done=on_done)
        if self._loop is None or self._loop.is_over:
            self._loop = self._open_loop()
        asked_ms = self._contact.clock.monotonic_ms()
        waiting = _Waiting(
            lambda left_ms: self.transport.start(rpc, request, timeout_ms=left_ms, on_done=on_done),
            on_done,
            asked_ms=asked_ms,
            timeout_ms=timeout_ms,
            gives_up_ms=self._contact.gives_up_ms(asked_ms),
        )
        self._loop.call_soon(partial(self._add, waiting))
        return waiting

    def ask(self, rpc: Rpc[RequestT, ReplyT], request: RequestT, *, timeout_ms: int) -> ReplyT | Loss:
        contact = self._contact
        asked_ms = contact.clock.monotonic_ms()
        gives_up_ms = contact.gives_up_ms(asked_ms)
        problem = None if contact.is_made else contact.seek(timeout_ms)
        if problem is not None:
            return contact.lost(problem, is_final=gives_up_ms <= asked_ms + timeout_ms)
        left_ms = asked_ms + timeout_ms - contact.clock.monotonic_ms()
        return self.transport.ask(rpc, request, timeout_ms=max(1, left_ms))

    def close(self) -> None:
        if self._loop is not None:
            self._loop.call_soon(self._drop)
        self.release()
        self.transport.close()

    def release(self) -> None:
        """Release the loop but not the transport. Called at the very end, because a request may still be on its way to
        the loop."""
        loop, self._loop = self._loop, None
        if loop is not None:
            loop.release()

    # Calls on the loop.

    def _add(self, waiting: _Waiting) -> None:
        if self._contact.is_made:
            waiting.start(self._contact.clock.monotonic_ms())
            return
        self._waiting.append(waiting)
        if not self._is_looking:
            self._pause_ms = _PAUSE_MS_FIRST
            self._look()

    def _look(self) -> None:
        self._waiting = [waiting for waiting in self._waiting if waiting.is_open]
        loop = self._loop
        self._is_looking = bool(self._waiting) and loop is not None
        if self._is_looking and loop is not None:
            until_ms = min(waiting.look_until_ms for waiting in self._waiting)
            timeout_ms = _look_ms(until_ms, self._contact.clock.monotonic_ms())
            self._contact.look.soon(loop, timeout_ms, self._looked)

    def _looked(self, problem: str | None) -> None:
        now_ms = self._contact.clock.monotonic_ms()
        if problem is None or self._contact.is_made:
            self._is_looking = False
            self._contact.make()
            waiting, self._waiting = self._waiting, []
            for each in waiting:
                each.start(now_ms)
            return
        self._contact.note(problem)
        # Requests that would have to give up during the pause are reported now.
        next_ms = now_ms + self._pause_ms
        for each in self._waiting:
            if next_ms >= each.gives_up_ms:
                each.lose(self._contact.lost(problem, is_final=True))
            elif next_ms >= each.ends_ms:
                each.lose(self._contact.lost(problem, is_final=False))
        self._waiting = [each for each in self._waiting if each.is_open]
        self._is_looking = bool(self._waiting) and self._loop is not None
        if self._is_looking and self._loop is not None:
            self._loop.call_after(self._pause_ms, self._look)
            self._pause_ms = min(_PAUSE_MS_MAX, self._pause_ms * 2)

    def _drop(self) -> None:
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            each.lose(Loss("CANCELLED", "the connection was closed", is_without_effect=True))


def _look_ms(until_ms: int, now_ms: int) -> int:
    return max(1, min(GIVE_UP_MS, until_ms - now_ms))
