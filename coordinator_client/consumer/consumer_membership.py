"""Membership in a group of the consumer protocol (KIP-848): the server decides, the member carries out.

Source: spec groups 3.2, 3.6, 3.7, 7.7; KIP-848.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from coordinator_api.v1 import group_pb2 as group
from coordinator_client.calls import CONSUMER_GROUP_HEARTBEAT
from coordinator_client.consumer.commits import not_a_member
from coordinator_client.consumer.context import ConsumerContext
from coordinator_client.consumer.handover import Handover, Then
from coordinator_client.consumer.state import MemberStatus, member_step
from coordinator_client.errors import PASSING, CommitFailed, TransactionError
from coordinator_client.groups.committed import Reader
from coordinator_client.groups.heartbeats import JOIN_EPOCH, LEAVE_EPOCH, HeartbeatSender
from coordinator_client.groups.subscription import WantedTopics, target_of
from coordinator_client.values import GroupMetadata, TopicPartition
from coordinator_protocol.errors import ErrorClass, ErrorCode

_S = MemberStatus

STATIC_LEAVE_EPOCH: Final = -2

_BEATING: Final = frozenset({_S.JOINING, _S.RECONCILING, _S.ACKNOWLEDGING, _S.STABLE, _S.PREPARE_LEAVING, _S.LEAVING})


class ConsumerMembership:
    """One member of one group of the consumer protocol."""

    def __init__(self, context: ConsumerContext, handover: Handover, *, member_id: str) -> None:
        """Create a membership. `member_id` names the member for the lifetime of its process."""
        self.status = _S.UNSUBSCRIBED
        self.failure: TransactionError | None = None
        self.epoch = 0
        self._group_id = context.group_id
        self._member_id = member_id
        self._context = context
        self._handover = handover
        self._heartbeats = HeartbeatSender(context)
        self._subscription = WantedTopics()
        self._said: tuple[frozenset[str], str | None] | None = None
        """Subscription that the server knows."""
        self._target: Mapping[TopicPartition, bytes] = {}
        self._is_owned_due = False
        self._left: Then | None = None
        self._is_leave_due = False
        """True if the member is STALE and the group does not know that it left."""

    @property
    def is_active(self) -> bool:
        return self.status not in (_S.UNSUBSCRIBED, _S.FATAL)

    def standing(self) -> GroupMetadata:
        return GroupMetadata(
            group_id=self._group_id,
            generation=self.epoch if self.epoch > 0 else -1,
            member_id=self._member_id,
            group_instance_id=self._context.config.group_instance_id,
        )

    def metadata(self) -> GroupMetadata:
        if self.epoch <= 0:
            raise not_a_member(self._group_id)
        return self.standing()

    def reader(self) -> Reader | None:
        return Reader(self._group_id, self._member_id, self.epoch) if self.epoch > 0 else None

    def on_commit_refused(self, error: TransactionError, sent: GroupMetadata, now_ms: int) -> TransactionError | None:
        if error.error_class is ErrorClass.FENCED:
            self._refuse(error, now_ms)
            return error
        # A heartbeat finds out the state of the membership; a commit alone decides nothing.
        if self.status in _BEATING:
            self._heartbeats.speak(now_ms)
        if error.code == ErrorCode.STALE_MEMBER_EPOCH and self.epoch > 0:
            return None
        return CommitFailed(error.code, error.error_class, error.reason)

    def subscribe(self, subscription: WantedTopics, now_ms: int) -> None:
        self._subscription = subscription
        if self.status in (_S.RECONCILING, _S.ACKNOWLEDGING, _S.STABLE):
            self._heartbeats.speak(now_ms)

    def on_poll(self, now_ms: int) -> None:
        is_out = self.status is _S.UNSUBSCRIBED and not self._subscription.is_empty
        if is_out or (self.status is _S.STALE and not self._handover.is_busy):
            self._join(now_ms)

    def on_poll_overdue(self, now_ms: int) -> None:
        if self.status not in (_S.RECONCILING, _S.ACKNOWLEDGING, _S.STABLE, _S.JOINING):
            return
        self._step(_S.STALE)
        self._heartbeats.cancel()
        self._is_leave_due = True
        self._heartbeats.due_ms = now_ms
        self._lose(lambda _: None, now_ms)

    def leave(self, then: Then, now_ms: int) -> None:
        self._subscription = WantedTopics()
        if self.status is _S.UNSUBSCRIBED:
            then(now_ms)
            return
        if self.status is _S.FATAL:
            self._step(_S.UNSUBSCRIBED)
            self.failure = None
            then(now_ms)
            return
        self._left = then
        was_member = self.epoch > 0
        self._step(_S.PREPARE_LEAVING)
        if was_member:
            self._handover.revoke_all(self._leave_now)
        else:
            self._lose(self._leave_now, now_ms)

    def advance(self, now_ms: int) -> None:
        wake_ms = self.wake_ms()
        if wake_ms is not None and now_ms >= wake_ms:
            self._beat(now_ms)

    def wake_ms(self) -> int | None:
        is_beating = self.status in _BEATING or (self.status is _S.STALE and self._is_leave_due)
        return self._heartbeats.due_ms if is_beating and self._heartbeats.is_idle else None

    def _step(self, to: MemberStatus) -> None:
        self.status = member_step(self.status, to)

    def _join(self, now_ms: int) -> None:
        self._step(_S.JOINING)
        self._heartbeats.cancel()
        self.epoch, self._target = JOIN_EPOCH, {}
        self._heartbeats.is_full_due, self._is_leave_due = True, False
        self._heartbeats.due_ms = now_ms

    def _beat(self, now_ms: int) -> None:
        request = self._request()
        says_nothing = not (
            self._heartbeats.is_full_due
            or self._is_owned_due
            or self._is_subscription_due
            or self.status in (_S.JOINING, _S.LEAVING, _S.STALE)
        )
        wait_ms = request.max_wait_ms = self._heartbeats.begin(now_ms, may_wait=says_nothing)
        self._is_owned_due = False
        said = (self._subscription.topics, self._subscription.pattern)
        status = self.status

        def ended(end: group.ConsumerGroupHeartbeatResponse | TransactionError, at_ms: int) -> None:
            if status in (_S.LEAVING, _S.STALE):
                self._gone(end, at_ms)
            else:
                self._answered(end, said, at_ms)

        self._heartbeats.send(CONSUMER_GROUP_HEARTBEAT, request, wait_ms, ended, now_ms)

    @property
    def _is_subscription_due(self) -> bool:
        return self._said != (self._subscription.topics, self._subscription.pattern) and self._left is None

    def _request(self) -> group.ConsumerGroupHeartbeatRequest:
        config = self._context.config
        request = group.ConsumerGroupHeartbeatRequest(
            header=self._context.header(),
            group_id=self._group_id,
            member_id=self._member_id,
            member_epoch=self.epoch,
            instance_id=config.group_instance_id,
        )
        if self.status in (_S.LEAVING, _S.STALE):
            is_static = config.group_instance_id is not None
            request.member_epoch = STATIC_LEAVE_EPOCH if is_static else LEAVE_EPOCH
            return request
        if self._heartbeats.is_full_due:
            request.rebalance_timeout_ms = config.max_poll_interval_ms
            if config.rack_id is not None:
                request.rack_id = config.rack_id
            if config.server_assignor is not None:
                request.server_assignor = config.server_assignor
        if (self._heartbeats.is_full_due or self._is_subscription_due) and self._left is None:
            request.subscribed_topic_names.names.extend(sorted(self._subscription.topics))
            request.subscribed_topic_names.SetInParent()
            # An empty pattern withdraws a former one; a member that never had a pattern leaves it out.
            if self._subscription.pattern is not None or (self._said is not None and self._said[1] is not None):
                request.subscribed_topic_regex = self._subscription.pattern or ""
        if self._heartbeats.is_full_due or self._is_owned_due:
            self._fill_owned(request.topic_partitions)
        return request

    def _fill_owned(self, owned: group.PartitionSet) -> None:
        owned.SetInParent()
        if self.epoch == JOIN_EPOCH:
            return
        for (topic, partition), topic_id in sorted(self._context.assignment.topic_ids().items()):
            if not owned.topics or owned.topics[-1].topic != topic:
                owned.topics.add(topic=topic, topic_id=topic_id)
            owned.topics[-1].partitions.append(partition)

    def _answered(
        self,
        end: group.ConsumerGroupHeartbeatResponse | TransactionError,
        said: tuple[frozenset[str], str | None],
        now_ms: int,
    ) -> None:
        if isinstance(end, TransactionError):
            self._failed(end, now_ms)
            return
        self._said = said
        is_new = end.HasField("assignment") or end.member_epoch != self.epoch
        self.epoch = end.member_epoch
        self._heartbeats.answered(now_ms, interval_ms=end.heartbeat_interval_ms, is_news=is_new)
        if end.HasField("assignment"):
            self._target = target_of(end.assignment)
        if self._is_owned_due or self._is_subscription_due:
            self._heartbeats.due_ms = now_ms
        self._reconcile(now_ms)

    def _failed(self, error: TransactionError, now_ms: int) -> None:
        self._heartbeats.is_full_due = True
        if error.error_class in PASSING:
            self._heartbeats.repeat(now_ms)
        elif self.status is _S.PREPARE_LEAVING:
            # The member leaves anyway; its last heartbeat will find out that there is nothing to leave.
            self._heartbeats.repeat(now_ms)
        elif error.error_class is ErrorClass.REJOIN:
            self._step(_S.FENCED)
            self._lose(self._join_after_loss, now_ms)
        else:
            self._refuse(error, now_ms)

    def _refuse(self, error: TransactionError, now_ms: int) -> None:
        if error.error_class is ErrorClass.FENCED:
            error.action = "Stop this process: a newer one holds its group_instance_id."
        self._heartbeats.cancel()
        self._step(_S.FATAL)
        self.failure = error
        self._lose(lambda _: None, now_ms)

    def _lose(self, then: Then, now_ms: int) -> None:
        self.epoch, self._target, self._said = JOIN_EPOCH, {}, None
        self._is_owned_due = False
        self._handover.lose(then, now_ms)

    def _join_after_loss(self, now_ms: int) -> None:
        if self.status is _S.FENCED:
            self._join(now_ms)

    def _reconcile(self, now_ms: int) -> None:
        """Give up and take partitions until the member owns its target, unless that is already under way."""
        if self.status not in (_S.JOINING, _S.ACKNOWLEDGING, _S.STABLE) or self._is_owned_due:
            return
        owned = self._context.assignment.topic_ids()
        gone = [name for name, topic_id in owned.items() if not _is_same(self._target.get(name), topic_id)]
        if not gone and len(self._target) == len(owned) and self.status is not _S.JOINING:
            if self.status is _S.ACKNOWLEDGING:
                self._step(_S.STABLE)
            return
        self._step(_S.RECONCILING)
        if gone:
            self._handover.revoke(gone, self._take_over)
        else:
            self._take_over(now_ms)

    def _take_over(self, now_ms: int) -> None:
        """Take the partitions that the newest target adds, and report to the group which ones the member owns now."""
        if self.status is not _S.RECONCILING:
            return
        self._step(_S.ACKNOWLEDGING)
        owned = self._context.assignment.topic_ids()
        self._handover.assign({name: topic_id for name, topic_id in self._target.items() if name not in owned})
        self._is_owned_due = True
        self._heartbeats.speak(now_ms)

    def _leave_now(self, now_ms: int) -> None:
        if self.status is _S.PREPARE_LEAVING:
            self._step(_S.LEAVING)
            self._heartbeats.cancel()
            self.epoch = JOIN_EPOCH
            self._heartbeats.due_ms = now_ms

    def _gone(self, end: group.ConsumerGroupHeartbeatResponse | TransactionError, now_ms: int) -> None:
        if isinstance(end, TransactionError) and end.error_class in PASSING:
            self._heartbeats.repeat(now_ms)
            return
        self._is_leave_due = False
        if self.status is _S.LEAVING:
            self._step(_S.UNSUBSCRIBED)
            self._said = None
            self._heartbeats.is_full_due = True
            then, self._left = self._left, None
            assert then is not None, "a member that leaves is waited for"
            then(now_ms)


def _is_same(target_id: bytes | None, topic_id: bytes) -> bool:
    """Return True if a partition may stay: it is in the target, and its topic was not recreated."""
    return target_id is not None and (target_id == topic_id or not (target_id and topic_id))
