"""How many calls may be in work at once, and who is told to wait.

Beyond the bound a call is answered at once, in band, with THROTTLING_QUOTA_EXCEEDED and a pause: a client that reads an
answer waits and comes again, while one that is cut off by the transport does not know what happened. Ending a
transaction frees room, so EndTxn and WriteTxnMarkers find some where others are refused. Calls that wait and do no work
(parked behind a transaction, long polls, members of groups) do not count as work; long polls and members have bounds of
their own, and parked calls one in the runtime (design 5). Whether a JoinGroup or SyncGroup waits, or ends the wait of
others, only its group knows: so they find room here where `coordinator_runtime.late_answers` lets no more of them wait.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from coordinator_protocol.errors import ErrorCode, Method, Refused

RESERVED = frozenset({Method.END_TXN, Method.WRITE_TXN_MARKERS})
"""Methods that may use the reserved room."""

LONG_POLLS = frozenset({Method.FETCH})
"""Methods whose calls may wait for records."""

NEWS_WAITS = frozenset({Method.HEARTBEAT, Method.CONSUMER_GROUP_HEARTBEAT})
"""Methods whose calls may wait for news of their group."""

MEMBER_WAITS = frozenset({Method.JOIN_GROUP, Method.SYNC_GROUP})
"""Methods whose calls may wait for other members of their group."""


@dataclass(frozen=True, slots=True)
class AdmissionLimits:
    """Bounds of what one server holds open."""

    calls_in_work_max: int = 4096
    reserved_calls: int = 1024
    """More calls in work, for EndTxn and WriteTxnMarkers alone; and as many again of JoinGroup and SyncGroup, to end
    the wait of others."""
    long_polls_max: int = 10_000
    group_waits_max: int = 100_000
    """Calls of group members that wait for each other; and as many again that wait for news."""


class Admission:
    """Counts calls that have no answer yet. Reads that are answered at once never count."""

    __slots__ = ("_in_work", "_limits", "_long_polls", "_member_waits", "_news_waits", "_parked_calls")

    def __init__(self, limits: AdmissionLimits, parked_calls: Callable[[], int]) -> None:
        self._limits = limits
        self._parked_calls = parked_calls
        self._in_work = 0
        self._long_polls = 0
        self._news_waits = 0
        self._member_waits = 0

    @property
    def calls_in_work(self) -> int:
        """Calls that are staged, or wait for the disk."""
        return self._in_work - self._parked_calls()

    @property
    def long_polls(self) -> int:
        return self._long_polls

    @property
    def group_waits(self) -> int:
        """Calls of group members that have no answer yet."""
        return self._news_waits + self._member_waits

    def check(self, method: Method) -> None:
        """Return only if a call of this method may begin. Raises Refused THROTTLING_QUOTA_EXCEEDED."""
        limits = self._limits
        if method in LONG_POLLS:
            if self._long_polls >= limits.long_polls_max:
                raise _refusal(self._long_polls, "readers wait for records")
            return
        if method in NEWS_WAITS:
            if self._news_waits >= limits.group_waits_max:
                raise _refusal(self._news_waits, "members of groups wait for news")
            return
        if method in MEMBER_WAITS:
            if self._member_waits >= limits.group_waits_max + limits.reserved_calls:
                raise _refusal(self._member_waits, "members of groups wait for each other")
            return
        room = limits.calls_in_work_max + (limits.reserved_calls if method in RESERVED else 0)
        if self._in_work >= room and self.calls_in_work >= room:
            raise _refusal(self.calls_in_work, "calls are in work")

    def enter(self, method: Method) -> None:
        """A call began and has no answer yet; `leave` must follow."""
        self._count(method, 1)

    def leave(self, method: Method) -> None:
        """The call was answered."""
        self._count(method, -1)

    def _count(self, method: Method, change: int) -> None:
        if method in LONG_POLLS:
            self._long_polls += change
        elif method in NEWS_WAITS:
            self._news_waits += change
        elif method in MEMBER_WAITS:
            self._member_waits += change
        else:
            self._in_work += change


def _refusal(number: int, what: str) -> Refused:
    return Refused(
        ErrorCode.THROTTLING_QUOTA_EXCEEDED, f"{number} {what}, which is all this server takes; try again shortly"
    )
