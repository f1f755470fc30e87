"""The membership of a consumer, whichever protocol it speaks: what the others ask of it, the timing of its heartbeats,
and its stand-in where there is none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

from coordinator_client.consumer.commits import CommittingMember, no_group
from coordinator_client.consumer.handover import Then
from coordinator_client.consumer.positions import Reader
from coordinator_client.errors import TransactionError
from coordinator_client.values import GroupMetadata

EARLY_PAUSE_MS_FIRST: Final = 100
_DOUBLINGS_MAX: Final = 10


class Pace:
    """The timing of heartbeats.

    Kafka sends one per interval. Where heartbeats may wait, one follows the other: each stays on the server until there
    is news, at most an interval long, so they are no more than with Kafka's timing.

    A server that does not hold them must not be asked in a tight circle: each answer that comes early and brings
    nothing doubles the pause before the next, up to the interval.
    """

    __slots__ = ("_early", "_interval_ms", "_sent_ms", "_wait_ms", "_wait_ms_max")

    def __init__(self, wait_ms_max: int, *, interval_ms: int) -> None:
        """`wait_ms_max` is how long a heartbeat may wait on the server; 0 = Kafka's timing."""
        self._wait_ms_max = wait_ms_max
        self._interval_ms = interval_ms
        self._sent_ms = 0
        self._wait_ms = 0
        self._early = 0

    def begin(self, now_ms: int, *, may_wait: bool) -> int:
        """Note that a heartbeat is sent; return how long it may wait on the server."""
        self._sent_ms = now_ms
        self._wait_ms = min(self._wait_ms_max, self._interval_ms) if may_wait else 0
        return self._wait_ms

    def answered(self, now_ms: int, *, interval_ms: int = 0, is_news: bool, may_wait: bool = True) -> int:
        """Return when the next heartbeat is due. `interval_ms` is what the server asks for, if it does. Without
        `may_wait` the next one will not wait, so it is not due before the interval."""
        self._interval_ms = interval_ms or self._interval_ms
        if self._wait_ms_max == 0 or not may_wait:
            return max(now_ms, self._sent_ms + self._interval_ms)
        if is_news or now_ms - self._sent_ms >= self._wait_ms // 2:
            self._early = 0
            return now_ms
        pause_ms = EARLY_PAUSE_MS_FIRST << min(self._early, _DOUBLINGS_MAX)
        self._early += 1
        return now_ms + min(self._interval_ms, pause_ms)


@dataclass(slots=True)
class WantedTopics:
    """The topics that the application wants to read."""

    topics: frozenset[str] = frozenset()
    pattern: str | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing is subscribed to."""
        return not self.topics and self.pattern is None


class GroupMembership(CommittingMember, Protocol):
    """One member of one group. Nothing here waits: it goes on when it is told of the time, of answers and of polls."""

    @property
    def failure(self) -> TransactionError | None:
        """Why the group refuses this consumer for good; None while it does not."""

    @property
    def is_active(self) -> bool:
        """Whether it is in the group, or on its way into it or out of it."""

    def standing(self) -> GroupMetadata:
        """Return who this consumer is to the group, member or not."""

    def reader(self) -> Reader | None:
        """Return who asks for committed offsets; None: nobody can now."""

    def subscribe(self, subscription: WantedTopics, now_ms: int) -> None:
        """Subscribe to this from now on."""

    def on_poll(self, now_ms: int) -> None:
        """Note that the application polls."""

    def on_poll_overdue(self, now_ms: int) -> None:
        """Leave the group, because the application has not polled for too long."""

    def leave(self, then: Then, now_ms: int) -> None:
        """Give all partitions up, leave the group, and call `then`."""

    def advance(self, now_ms: int) -> None:
        """Send what is due."""

    def wake_ms(self) -> int | None:
        """Return when something will be due; None: nothing."""


class NoMembership:
    """The stand-in for a consumer that was given its partitions by hand: it commits as nobody, which only groups
    without members accept, and never rebalances."""

    def __init__(self, group_id: str | None) -> None:
        self._group_id = group_id

    failure: TransactionError | None = None
    is_active: bool = False

    def metadata(self) -> GroupMetadata:
        if self._group_id is None:
            raise no_group()
        return GroupMetadata(group_id=self._group_id)

    def standing(self) -> GroupMetadata:
        return self.metadata()

    def reader(self) -> Reader | None:
        return None if self._group_id is None else Reader(self._group_id)

    def on_commit_refused(self, error: TransactionError, sent: GroupMetadata, now_ms: int) -> TransactionError | None:
        error.action = (
            "The group has members; commit as one of them (subscribe), or use a group_id that nobody subscribes with."
        )
        return error

    def subscribe(self, subscription: WantedTopics, now_ms: int) -> None:
        raise AssertionError("whoever subscribes has a membership")

    def on_poll(self, now_ms: int) -> None:
        pass

    def on_poll_overdue(self, now_ms: int) -> None:
        pass

    def leave(self, then: Then, now_ms: int) -> None:
        then(now_ms)

    def advance(self, now_ms: int) -> None:
        pass

    def wake_ms(self) -> int | None:
        return None
