"""The pauses that a server asked for in its answers, kept for everything that uses one connection.

An answer with `throttle_ms` says: "you were served; send no more for so long". Whoever comes earlier all the same is
refused, so the SDK waits. Records that come, records that go and calls at large are counted by the server for
themselves, and so one does not wait for the other. What frees others (`NEVER_REFUSED`) waits for nothing.

Source: `coordinator_protocol.throttling`; spec security 7.4.
"""

from __future__ import annotations

from typing import Final

from coordinator_client.log import LOGGER
from coordinator_protocol.errors import Method
from coordinator_protocol.throttling import FETCHING, NEVER_REFUSED, PAUSE_MS_MAX, PRODUCING

_PRODUCES: Final = "records"
_FETCHES: Final = "fetches"
_CALLS: Final = "calls"


class Throttle:
    """Until when calls to one server wait. Usable from any thread: where two answers come at once, the shorter pause
    may count, and the next answer says so."""

    __slots__ = ("_endpoint", "_until_ms", "ends_ms")

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint
        self._until_ms: dict[str, int] = {}
        self.ends_ms = 0
        """When the last pause ends; until then `until_ms` is worth asking."""

    def note(self, method: Method, pause_ms: int, now_ms: int, *, is_refused: bool) -> None:
        """Note that an answer asked for a pause.

        A refusal says that this call must wait, which it does by itself; that others must too is known only of calls
        that bring or fetch records. More than `PAUSE_MS_MAX` is not waited for: the server says it again.
        """
        kind = _kind(method)
        until_ms = now_ms + min(pause_ms, PAUSE_MS_MAX)
        if (is_refused and kind is _CALLS) or until_ms <= max(now_ms, self._until_ms.get(kind, 0)):
            return
        self._until_ms[kind] = until_ms
        self.ends_ms = max(self.ends_ms, until_ms)
        did = "refused" if is_refused else "served"
        LOGGER.debug(
            "the server at %s has %s %s and asks to send no more %s for %d ms",
            self._endpoint,
            did,
            method,
            kind,
            pause_ms,
        )

    def until_ms(self, method: Method) -> int:
        """Return when a call of this method may be made; a time that is over: now."""
        if method in NEVER_REFUSED:
            return 0
        return max(self._until_ms.get(_CALLS, 0), self._until_ms.get(_kind(method), 0))


def _kind(method: Method) -> str:
    return _PRODUCES if method in PRODUCING else _FETCHES if method in FETCHING else _CALLS
