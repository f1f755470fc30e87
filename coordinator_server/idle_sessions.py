"""Sessions on which nothing happens end after a while: each costs memory, and counts among those that a principal may
have. A client opens another one with its next request, so it loses nothing.

Source: Kafka's `connections.max.idle.ms`.
"""

from __future__ import annotations

from typing import Final, Protocol

from coordinator_runtime.clock import Clock

SESSION_IDLE_MS_MAX: Final = 600_000
"""The time for which Kafka's brokers leave a connection open on which nothing happens."""
_LOOKS: Final = 10
"""All sessions are looked at so many times in the longest time: thousands of them take some milliseconds."""


class IdleSession(Protocol):
    """A session that may have nothing to do."""

    @property
    def idle_since_ms(self) -> int | None:
        """When the client sent something last; None: something waits for an answer now."""

    def announce_stop(self) -> None:
        """Answer what was asked, take no more, and tell the client to open another session."""


class IdleSessions:
    """The open sessions of a server that end when they have been idle for too long."""

    def __init__(self, clock: Clock, idle_ms_max: int = SESSION_IDLE_MS_MAX) -> None:
        self._clock = clock
        self._idle_ms_max = idle_ms_max
        self._sessions: dict[IdleSession, None] = {}
        """A set, in the order in which they were opened."""
        self._next_look_ms = 0

    def watch(self, session: IdleSession) -> None:
        self._sessions[session] = None

    def forget(self, session: IdleSession) -> None:
        """The session has ended. Idempotent."""
        self._sessions.pop(session, None)

    def look(self) -> None:
        """End those that are idle for longer than they may be. Call it every few seconds: a session ends up to a tenth
        of the longest time, or one call, later than it could."""
        now_ms = self._clock.monotonic_ms()
        if now_ms < self._next_look_ms:
            return
        self._next_look_ms = now_ms + self._idle_ms_max // _LOOKS
        for session in list(self._sessions):
            since_ms = session.idle_since_ms
            if since_ms is not None and now_ms - since_ms >= self._idle_ms_max:
                self.forget(session)
                session.announce_stop()
