"""Limits on calls in work at once, and the refusal beyond them.

Beyond the limit a call is answered at once, in band, with THROTTLING_QUOTA_EXCEEDED and a pause. A client that reads
this answer waits and retries, while one that is cut off by the transport does not know what happened. EndTxn and
WriteTxnMarkers have a reserve, because ending a transaction ends the waits of others.

Calls that wait without work do not count as work. Long polls and members of groups have their own limits, and calls
parked behind a transaction one in the runtime (design 5). Only its group knows if a JoinGroup or SyncGroup waits, or
ends the wait of others. So these are admitted even if `coordinator_runtime.late_answers` lets no more of them wait.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.methods import METHODS, Method, Waits


@dataclass(frozen=True, slots=True)
class AdmissionLimits:
    """Limits of the calls that one server holds open."""

    calls_in_work_max: int = 4096
    reserved_calls: int = 1024
    """Additional calls in work, for EndTxn and WriteTxnMarkers alone. The same number is reserved for JoinGroup and
    SyncGroup, to end the wait of others."""
    long_polls_max: int = 10_000
    group_waits_max: int = 100_000
    """Calls of group members that wait for each other. The same number may wait for news."""


class CallLimit:
    """Count of the unanswered calls of one kind."""

    __slots__ = ("calls", "what")

    def __init__(self, what: str) -> None:
        self.calls = 0
        self.what = what
        """Activity of these calls, for error messages."""


class Admission:
    """Selects the limit for each unanswered call. Reads that are answered at once never count."""

    __slots__ = ("_long_polls", "_member_waits", "_news_waits", "_parked_calls", "_work", "places")

    def __init__(self, limits: AdmissionLimits, parked_calls: Callable[[], int]) -> None:
        self._parked_calls = parked_calls
        self._work = CallLimit("calls are in work")
        self._long_polls = CallLimit("readers wait for records")
        self._news_waits = CallLimit("members of groups wait for news")
        self._member_waits = CallLimit("members of groups wait for each other")
        in_work_max, reserved = limits.calls_in_work_max, limits.reserved_calls
        self.places: Final = {
            method: {
                Waits.NOTHING: (self._work, in_work_max + (reserved if rule.has_reserve else 0)),
                Waits.RECORDS: (self._long_polls, limits.long_polls_max),
                Waits.NEWS: (self._news_waits, limits.group_waits_max),
                Waits.MEMBERS: (self._member_waits, limits.group_waits_max + reserved),
            }[rule.waits]
            for method, rule in METHODS.items()
        }
        """For every method the count of its kind of calls, and the number from which a `check` is needed before one
        more."""

    @property
    def calls_in_work(self) -> int:
        """Calls that are staged, or wait for the disk."""
        return self._work.calls - self._parked_calls()

    def check(self, method: Method) -> None:
        """Return only if a call of this method may begin. The caller of this function counts it until it is answered.
        Raises Refused THROTTLING_QUOTA_EXCEEDED."""
        limit, calls_max = self.places[method]
        number = self.calls_in_work if limit is self._work else limit.calls
        if number >= calls_max:
            raise _refusal(number, limit.what)


def _refusal(number: int, what: str) -> Refused:
    return Refused(
        ErrorCode.THROTTLING_QUOTA_EXCEEDED, f"{number} {what}, which is all this server takes; try again shortly"
    )
