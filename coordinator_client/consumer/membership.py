"""Membership of a consumer, independent of the protocol: its interface, and the stand-in for a consumer without one."""

from __future__ import annotations

from typing import Protocol

from coordinator_client.consumer.commits import CommittingMember, no_group
from coordinator_client.consumer.handover import Then
from coordinator_client.errors import TransactionError
from coordinator_client.groups.committed import Reader
from coordinator_client.groups.subscription import WantedTopics
from coordinator_client.values import GroupMetadata


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
            "The group has members; commit as one of them (subscribe), or use a group_id without subscribers."
        )
        return error

    def subscribe(self, subscription: WantedTopics, now_ms: int) -> None:
        raise AssertionError("a subscription has a membership")

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
