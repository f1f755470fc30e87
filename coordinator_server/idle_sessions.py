"""Timeout of idle sessions. Each session costs memory, and counts towards the quota of its principal. A client loses
nothing by the timeout: it opens another session with its next request.

Source: Kafka's `connections.max.idle.ms`.
"""

from __future__ import annotations

from typing import Final, Protocol

from coordinator_runtime.clock import Clock

SESSION_IDLE_MS_MAX: Final = 600_000
"""Time for which Kafka's brokers keep an idle connection open."""
_LOOKS: Final = 10
"""Number of times that all sessions are checked per timeout. A check of thousands takes some milliseconds."""


class IdleSession(Protocol):
    """A session that may be idle."""

    @property
    def idle_since_ms(self) -> int | None:
        """Time of the client's last message; None while some call waits for an answer."""

    def announce_stop(self) -> None:
        """Answer the calls that have begun, take no more, and tell the client to open another session."""


class IdleSessions:
    """The open sessions of a server, which end when they have been idle for too long."""

    def __init__(self, clock: Clock, idle_ms_max: int = SESSION_IDLE_MS_MAX) -> None:
        self._clock = clock
        self._idle_ms_max = idle_ms_max
        self._sessions: dict[IdleSession, None] = {}
        """An ordered set: the sessions in the order in which they were opened."""
        self._next_look_ms = 0

    def watch(self, session: IdleSession) -> None:
        self._sessions[session] = None

    def forget(self, session: IdleSession) -> None:
        """Remove a session that has ended. Idempotent."""
        self._sessions.pop(session, None)

    def look(self) -> None:
        """End the sessions that exceed the timeout. Call it every few seconds. A session ends late by up to a tenth of
        the timeout, or by one interval of these calls."""
        now_ms = self._clock.monotonic_ms()
        if now_ms < self._next_look_ms:
            return
        self._next_look_ms = now_ms + self._idle_ms_max // _LOOKS
        for session in list(self._sessions):
            since_ms = session.idle_since_ms
            if since_ms is not None and now_ms - since_ms >= self._idle_ms_max:
                self.forget(session)
                session.announce_stop()
