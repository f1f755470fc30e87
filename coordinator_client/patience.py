"""How long a call of the application waits, and how much less once the server does not answer."""

from __future__ import annotations

from typing import Final

from coordinator_client.errors import TransactionError, failure
from coordinator_protocol.errors import ErrorClass, ErrorCode

CUT_OFF_CLOSE_MS: Final = 1_000
"""How long a client that closes tries to tell the server once that does not answer: the server notices the silence
anyway."""


class Patience:
    """A deadline that comes closer when the server stops answering."""

    __slots__ = ("_cut_off_ms", "ends_ms", "limit_ms")

    def __init__(self, ends_ms: int, limit_ms: int, cut_off_ms: int | None = None) -> None:
        """`limit_ms` is the whole time, for messages. `cut_off_ms` is how long to wait at most once the server does not
        answer; None = as long as otherwise."""
        self.ends_ms = ends_ms
        self.limit_ms = limit_ms
        self._cut_off_ms = cut_off_ms

    def until_ms(self, now_ms: int, *, is_cut_off: bool) -> int:
        """Return when to give up, as things stand."""
        if self._cut_off_ms is not None and is_cut_off:
            self.ends_ms = min(self.ends_ms, now_ms + self._cut_off_ms)
            self.limit_ms = min(self.limit_ms, self._cut_off_ms)
            self._cut_off_ms = None
        return self.ends_ms


def timed_out(what: str, timeout_ms: int) -> TransactionError:
    """Return the failure of a call that the server did not answer in time."""
    error = failure(
        ErrorCode.REQUEST_TIMED_OUT, ErrorClass.RETRY, f"{what} did not come to an end within {timeout_ms} ms"
    )
    error.action = "Try again, or with a longer timeout_ms."
    return error
