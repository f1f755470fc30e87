"""Membership of a consumer, independent of the protocol: its interface, the timing of its heartbeats, and the stand-in
for a consumer without one."""

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

    Kafka sends one per interval. If heartbeats may wait, one follows the other: each stays on the server until
    something changes, for an interval at most. So there are no more of them than with Kafka's timing.

    A server that does not hold them must not be asked in a tight loop. Each early answer without a change doubles the
    pause before the next heartbeat, up to the interval.
    """

    __slots__ = ("_early", "_interval_ms", "_sent_ms", "_wait_ms", "_wait_ms_max")

    def __init__(self, wait_ms_max: int, *, interval_ms: int) -> None:
        """Start with an interval. `wait_ms_max` is the time that a heartbeat may wait on the server; 0 = Kafka's
        timing."""
        self._wait_ms_max = wait_ms_max
        self._interval_ms = interval_ms
        self._sent_ms = 0
        self._wait_ms = 0
        self._early = 0

    def begin(self, now_ms: int, *, may_wait: bool) -> int:
        """Note that a heartbeat is sent; return the time that it may wait on the server."""
        self._sent_ms = now_ms
        self._wait_ms = min(self._wait_ms_max, self._interval_ms) if may_wait else 0
        return self._wait_ms

    def answered(self, now_ms: int, *, interval_ms: int = 0, is_news: bool, may_wait: bool = True) -> int:
        """Return the time of the next heartbeat. `interval_ms` is the interval requested by the server, if any. Without
        `may_wait` the next heartbeat will not wait, so it is not due before the interval."""
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
        """True if there is no subscription."""
        return not self.topics and self.pattern is None


class GroupMembership(CommittingMember, Protocol):
    """One member of one group. No method waits: a membership advances on the time, answers and polls passed to it."""

    @property
    def failure(self) -> TransactionError | None:
        """Reason why the group permanently refuses this consumer; None if it does not."""

    @property
    def is_active(self) -> bool:
        """True if the consumer is a member, joining or leaving."""

    def standing(self) -> GroupMetadata:
        """Return the identity of this consumer in the group, member or not."""

    def reader(self) -> Reader | None:
        """Return the identity for requests of committed offsets; None if there is none now."""

    def subscribe(self, subscription: WantedTopics, now_ms: int) -> None:
        """Subscribe to these topics from now on."""

    def on_poll(self, now_ms: int) -> None:
        """Note that the application polls."""

    def on_poll_overdue(self, now_ms: int) -> None:
        """Leave the group, because the application has not polled for too long."""

    def leave(self, then: Then, now_ms: int) -> None:
        """Give up all partitions, leave the group, and call `then`."""

    def advance(self, now_ms: int) -> None:
        """Send the requests that are due."""

    def wake_ms(self) -> int | None:
        """Return the time of the next request; None = none is planned."""


class NoMembership:
    """The stand-in for a consumer whose partitions were assigned by hand. It commits without a member id, which only
    groups without members accept, and never rebalances."""

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
