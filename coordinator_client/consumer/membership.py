"""The membership of a consumer, whichever protocol it speaks; and its stand-in where there is none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from coordinator_client.consumer.commits import no_group
from coordinator_client.consumer.handover import Then
from coordinator_client.consumer.positions import Reader
from coordinator_client.consumer.state import GroupMetadata
from coordinator_client.errors import TransactionError


@dataclass(slots=True)
class Subscription:
    """The topics that the application wants to read."""

    topics: frozenset[str] = frozenset()
    pattern: str | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing is subscribed to."""
        return not self.topics and self.pattern is None


class Membership(Protocol):
    """One member of one group. Nothing here waits: it goes on when it is told of the time, of answers and of polls."""

    @property
    def failure(self) -> TransactionError | None:
        """Why the group refuses this consumer for good; None while it does not."""
        ...

    @property
    def is_active(self) -> bool:
        """Whether it is in the group, or on its way into it or out of it."""
        ...

    def metadata(self) -> GroupMetadata:
        """Return the member that commits. Raises: CommitFailed, RebalanceInProgress where none can now."""
        ...

    def standing(self) -> GroupMetadata:
        """Return who this consumer is to the group, member or not."""
        ...

    def reader(self) -> Reader | None:
        """Return who asks for committed offsets; None: nobody can now."""
        ...

    def on_commit_refused(self, error: TransactionError, sent: GroupMetadata, now_ms: int) -> TransactionError | None:
        """See `commits.Standing`."""
        ...

    def subscribe(self, subscription: Subscription, now_ms: int) -> None:
        """Subscribe to this from now on."""
        ...

    def on_poll(self, now_ms: int) -> None:
        """Note that the application polls."""
        ...

    def on_poll_overdue(self, now_ms: int) -> None:
        """Leave the group, because the application has not polled for too long."""
        ...

    def leave(self, then: Then, now_ms: int) -> None:
        """Give all partitions up, leave the group, and call `then`."""
        ...

    def advance(self, now_ms: int) -> None:
        """Send what is due."""
        ...

    def wake_ms(self) -> int | None:
        """Return when something will be due; None: nothing."""
        ...


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

    def subscribe(self, subscription: Subscription, now_ms: int) -> None:
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
