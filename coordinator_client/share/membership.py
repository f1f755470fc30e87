"""Membership in a share group (KIP-932): the server assigns partitions, and the member takes them at once.

A member that the group does not know any more has lost its records: the server has released them. It joins again with
the same id.

Source: spec groups 6.1, 7.7; KIP-932.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from coordinator_api.v1 import group_pb2 as group
from coordinator_client.calls import SHARE_GROUP_HEARTBEAT
from coordinator_client.errors import PASSING, TransactionError, failure
from coordinator_client.groups.heartbeats import JOIN_EPOCH, LEAVE_EPOCH, HeartbeatSender
from coordinator_client.groups.subscription import WantedTopics, target_of
from coordinator_client.share.context import ShareContext
from coordinator_client.share.state import ShareStatus, share_step
from coordinator_client.values import TopicPartition
from coordinator_protocol.errors import ErrorClass, ErrorCode

_S = ShareStatus
_BEATING: Final = frozenset({_S.JOINING, _S.STABLE, _S.LEAVING})


class ShareGroupMembership:
    """One member of one share group."""

    def __init__(self, context: ShareContext, *, member_id: str, on_lost: Callable[[TransactionError], None]) -> None:
        """Create a membership. `member_id` names the member for the lifetime of its process. `on_lost` is called when
        the group has released all records of the member, with the reason."""
        self.status = _S.UNSUBSCRIBED
        self.failure: TransactionError | None = None
        """Reason why the group permanently refuses this consumer; None if it does not."""
        self.epoch = JOIN_EPOCH
        self.member_id = member_id
        self.assignment: Mapping[TopicPartition, bytes] = {}
        """Partitions that the member may fetch from, with their topic ids."""
        self.subscription = WantedTopics()
        self._context = context
        self._on_lost = on_lost
        self._heartbeats = HeartbeatSender(context)
        self._said: frozenset[str] | None = None
        """Topics that the server knows."""
        self._left: Callable[[int], None] | None = None
        self._is_leave_due = False
        """True if the member is STALE and the group does not know that it left."""

    @property
    def is_active(self) -> bool:
        """True if the consumer is a member, joining or leaving."""
        return self.status not in (_S.UNSUBSCRIBED, _S.FATAL)

    @property
    def is_member(self) -> bool:
        """True if the group knows the member, so that it may fetch and acknowledge."""
        return self.status is _S.STABLE

    def subscribe(self, subscription: WantedTopics, now_ms: int) -> None:
        """Subscribe to these topics from now on."""
        self.subscription = subscription
        if self.status is _S.STABLE:
            self._heartbeats.speak(now_ms)

    def on_poll(self, now_ms: int) -> None:
        """Note that the application polls."""
        if self.status in (_S.UNSUBSCRIBED, _S.STALE) and not self.subscription.is_empty:
            self._join(now_ms)

    def on_poll_overdue(self, now_ms: int) -> None:
        """Leave the group, because the application has not polled for too long."""
        if self.status not in (_S.JOINING, _S.STABLE):
            return
        self._step(_S.STALE)
        self._heartbeats.cancel()
        self._is_leave_due = True
        self._heartbeats.due_ms = now_ms
        limit_ms = self._context.config.max_poll_interval_ms
        self._lose(
            failure(
                ErrorCode.INVALID_RECORD_STATE,
                ErrorClass.REJECTED,
                f"poll was not called for {limit_ms} ms (max_poll_interval_ms), so the member left the group",
            )
        )

    def check(self, now_ms: int) -> None:
        """Send a heartbeat now, because an answer says that the group does not know the member."""
        if self.status is _S.STABLE:
            self._heartbeats.speak(now_ms)

    def leave(self, then: Callable[[int], None], now_ms: int) -> None:
        """Leave the group, and call `then`."""
        self.subscription = WantedTopics()
        if self.status in (_S.UNSUBSCRIBED, _S.FATAL):
            self.status, self.failure = _S.UNSUBSCRIBED, None
            then(now_ms)
            return
        self._left = then
        self._step(_S.LEAVING)
        self._heartbeats.cancel()
        self._heartbeats.due_ms = now_ms

    def advance(self, now_ms: int) -> None:
        """Send the heartbeat that is due."""
        wake_ms = self.wake_ms()
        if wake_ms is not None and now_ms >= wake_ms:
            self._beat(now_ms)

    def wake_ms(self) -> int | None:
        """Return the time of the next heartbeat; None = none is planned."""
        is_beating = self.status in _BEATING or (self.status is _S.STALE and self._is_leave_due)
        return self._heartbeats.due_ms if is_beating and self._heartbeats.is_idle else None

    def _step(self, to: ShareStatus) -> None:
        self.status = share_step(self.status, to)

    def _join(self, now_ms: int) -> None:
        self._step(_S.JOINING)
        self._heartbeats.cancel()
        self._heartbeats.is_full_due, self._is_leave_due = True, False
        self._heartbeats.due_ms = now_ms

    def _beat(self, now_ms: int) -> None:
        status, topics = self.status, self.subscription.topics
        is_leave = status in (_S.LEAVING, _S.STALE)
        is_news = self._heartbeats.is_full_due or self._said != topics or status is not _S.STABLE
        wait_ms = self._heartbeats.begin(now_ms, may_wait=not is_news)
        request = group.ShareGroupHeartbeatRequest(
            header=self._context.header(),
            group_id=self._context.group_id,
            member_id=self.member_id,
            member_epoch=LEAVE_EPOCH if is_leave else self.epoch,
            max_wait_ms=wait_ms,
        )
        if is_news and not is_leave:
            request.subscribed_topic_names.names.extend(sorted(topics))
            request.subscribed_topic_names.SetInParent()
            if self._context.config.rack_id is not None:
                request.rack_id = self._context.config.rack_id

        def ended(end: group.ShareGroupHeartbeatResponse | TransactionError, at_ms: int) -> None:
            if is_leave:
                self._gone(end, at_ms)
            elif isinstance(end, TransactionError):
                self._failed(end, at_ms)
            else:
                self._answered(end, topics, at_ms)

        self._heartbeats.send(SHARE_GROUP_HEARTBEAT, request, wait_ms, ended, now_ms)

    def _answered(self, end: group.ShareGroupHeartbeatResponse, topics: frozenset[str], now_ms: int) -> None:
        self._said = topics
        is_news = end.HasField("assignment") or end.member_epoch != self.epoch
        self.epoch = end.member_epoch
        self._heartbeats.answered(now_ms, interval_ms=end.heartbeat_interval_ms, is_news=is_news)
        if end.HasField("assignment"):
            self.assignment = target_of(end.assignment)
        if self._said != self.subscription.topics:
            self._heartbeats.due_ms = now_ms
        if self.status is _S.JOINING:
            self._step(_S.STABLE)

    def _failed(self, error: TransactionError, now_ms: int) -> None:
        self._heartbeats.is_full_due = True
        if error.error_class in PASSING:
            self._heartbeats.repeat(now_ms)
        elif error.error_class is ErrorClass.REJOIN or (
            error.code == ErrorCode.GROUP_ID_NOT_FOUND and self.epoch != JOIN_EPOCH
        ):
            # The group may have been deleted, too: joining makes it again.
            self._step(_S.FENCED)
            self._lose(error)
            self._join(now_ms)
        else:
            self._step(_S.FATAL)
            self.failure = error
            self._lose(error)

    def _lose(self, why: TransactionError) -> None:
        self.epoch, self.assignment, self._said = JOIN_EPOCH, {}, None
        self._on_lost(why)

    def _gone(self, end: group.ShareGroupHeartbeatResponse | TransactionError, now_ms: int) -> None:
        if isinstance(end, TransactionError) and end.error_class in PASSING:
            self._heartbeats.repeat(now_ms)
            return
        self._is_leave_due = False
        if self.status is _S.LEAVING:
            self._step(_S.UNSUBSCRIBED)
            self.epoch, self.assignment, self._said = JOIN_EPOCH, {}, None
            self._heartbeats.is_full_due = True
            then, self._left = self._left, None
            assert then is not None, "a member that leaves is waited for"
            then(now_ms)
