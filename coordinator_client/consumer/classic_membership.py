"""Membership in a classic group: the member joins, the leader of the members assigns, and each gets its partitions.

A rebalance begins only in `poll`, where the application can give up partitions; the rest continues by itself. Between
rebalances, heartbeats tell the group that the member is alive, and tell the member when to rejoin. An answer is used
only if the generation of its request is still the member's.

Source: spec groups 2, 7.2, 7.3, 7.5; KIP-62, 345, 394, 429, 800.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from coordinator_api.v1 import group_pb2 as group
from coordinator_client.calls import HEARTBEAT, LEAVE_GROUP, RetryingCall
from coordinator_client.consumer.commits import not_a_member, rebalancing
from coordinator_client.consumer.context import ConsumerContext
from coordinator_client.consumer.handover import Handover, Then
from coordinator_client.consumer.joining import Assignors, Joining, JoiningMember, as_names, as_share
from coordinator_client.consumer.state import ClassicStatus, classic_step
from coordinator_client.consumer.topics import TopicWatch, compiled
from coordinator_client.errors import PASSING, CommitFailed, RebalanceInProgress, TransactionError
from coordinator_client.groups.backoff import Backoff
from coordinator_client.groups.committed import Reader
from coordinator_client.groups.heartbeats import Pace
from coordinator_client.groups.subscription import WantedTopics
from coordinator_client.values import NO_GENERATION, GroupMetadata, TopicPartition, TopicPartitionCount
from coordinator_protocol.assignors.values import Share
from coordinator_protocol.errors import ErrorClass, ErrorCode

_S = ClassicStatus

_BEATING: Final = frozenset({_S.COMPLETING_REBALANCE, _S.STABLE})


class ClassicMembership:
    """One member of one classic group."""

    def __init__(self, context: ConsumerContext, handover: Handover, assignors: Assignors) -> None:
        self.status = _S.UNJOINED
        self.failure: TransactionError | None = None
        self.member_id = ""
        self.generation = NO_GENERATION
        self._group_id = context.group_id
        self._context = context
        self._handover = handover
        self._assignors = assignors
        self._subscription = WantedTopics()
        self._pattern: re.Pattern[str] | None = None
        self._watch = TopicWatch(context, self._want_rejoin)
        self._joining = Joining(context, assignors, self)
        self._backoff = Backoff(context.random_source)
        self._pace = Pace(context.config.heartbeat_wait_ms, interval_ms=context.config.heartbeat_interval_ms)
        self._beat_flight: int | None = None
        self._beat_ms = 0
        self._last_share: Share[str] = {}
        """Last assignment, even if it was given up since."""
        self._rejoin_reason: str | None = None
        self._is_preparing = False
        """True while the member gives up partitions before it joins."""

    @property
    def is_active(self) -> bool:
        return not self._subscription.is_empty and self.failure is None

    @property
    def is_static(self) -> bool:
        """True if the group keeps this member's place while it is away."""
        return self._context.config.group_instance_id is not None

    def standing(self) -> GroupMetadata:
        return GroupMetadata(
            group_id=self._group_id,
            generation=self.generation,
            member_id=self.member_id,
            group_instance_id=self._context.config.group_instance_id,
        )

    def metadata(self) -> GroupMetadata:
        if self.status is _S.UNJOINED:
            raise not_a_member(self._group_id)
        if self.status is not _S.STABLE:
            raise rebalancing(self._group_id)
        return self.standing()

    def reader(self) -> Reader | None:
        return Reader(self._group_id)

    def on_commit_refused(self, error: TransactionError, sent: GroupMetadata, now_ms: int) -> TransactionError | None:
        is_current = self._is_current(sent) and self.status is _S.STABLE
        if error.code == ErrorCode.REBALANCE_IN_PROGRESS:
            self._want_rejoin("a commit was told of a rebalance")
            return RebalanceInProgress(error.code, error.error_class, error.reason)
        if not is_current and self.status is not _S.UNJOINED:
            return RebalanceInProgress(error.code, error.error_class, error.reason)
        if is_current and error.error_class is ErrorClass.FENCED:
            self.refuse(error, now_ms)
            return error
        if is_current:
            self.reset(keeps_id=error.code == ErrorCode.ILLEGAL_GENERATION, now_ms=now_ms)
        return CommitFailed(error.code, error.error_class, error.reason)

    def subscribe(self, subscription: WantedTopics, now_ms: int) -> None:
        self._pattern = None if subscription.pattern is None else compiled(subscription.pattern)
        is_changed = subscription != self._subscription
        self._subscription = subscription
        self._watch.subscribe(subscription.topics, self._pattern, now_ms)
        if is_changed:
            self._want_rejoin("the subscription changed")

    def on_poll(self, now_ms: int) -> None:
        is_wanted = self.status is _S.UNJOINED or (self.status is _S.STABLE and self._rejoin_reason is not None)
        if not is_wanted or self._is_preparing or self._handover.is_busy or not self.is_active:
            return
        if self._watch.is_resolved:
            self._prepare(now_ms)

    def on_poll_overdue(self, now_ms: int) -> None:
        if self.status is _S.UNJOINED:
            return
        if not self.is_static:
            self._send_leave("poll was not called for max_poll_interval_ms", now_ms)
        self.reset(keeps_id=False, now_ms=now_ms)

    def leave(self, then: Then, now_ms: int) -> None:
        self._watch.stop()
        self._subscription = WantedTopics()
        was_stable = self.status is _S.STABLE and self.failure is None

        def left(at_ms: int) -> None:
            if self.member_id and not self.is_static:
                self._send_leave("the consumer leaves", at_ms, then)
            else:
                then(at_ms)
            self._stop_beating()
            self._joining.cancel()
            self.status, self.member_id, self.generation = _S.UNJOINED, "", NO_GENERATION
            self.failure = None

        if was_stable:
            self._handover.revoke_all(left)
        else:
            self._handover.lose(left, now_ms)

    def advance(self, now_ms: int) -> None:
        self._joining.advance(now_ms)
        self._watch.advance(now_ms)
        if self.status in _BEATING and self._beat_flight is None and now_ms >= self._beat_ms:
            self._beat(now_ms)

    def wake_ms(self) -> int | None:
        beat_ms = self._beat_ms if self.status in _BEATING and self._beat_flight is None else None
        wakes = (beat_ms, self._joining.wake_ms(), self._watch.wake_ms())
        return min((wake_ms for wake_ms in wakes if wake_ms is not None), default=None)

    # Calls of `Joining` (`joining.Joiner`).

    def joining_member(self) -> JoiningMember:
        owned = as_share(self._context.assignment.names()) if self._assignors.is_cooperative else {}
        return JoiningMember(
            topics=self._watch.subscribed,
            owned=owned,
            last_share=self._last_share,
            generation=self.generation,
            rack_id=self._context.config.rack_id,
        )

    def on_join_sent(self) -> None:
        self._stop_beating()
        self._watch.follow()
        if self.status is not _S.PREPARING_REBALANCE:
            self._step(_S.PREPARING_REBALANCE)
        self._rejoin_reason = None

    def on_joined(self, reply: group.JoinGroupResponse, now_ms: int) -> None:
        self._step(_S.COMPLETING_REBALANCE)
        self.member_id, self.generation = reply.member_id, reply.generation_id
        self._pace.begin(now_ms, may_wait=False)
        self._beat_ms = now_ms + self._context.config.heartbeat_interval_ms

    def on_synced(self, share: Share[str], now_ms: int) -> None:
        self._step(_S.STABLE)
        self._beat_ms = now_ms if self._context.config.heartbeat_wait_ms else self._beat_ms
        if not share.keys() <= self._watch.subscribed:
            self._want_rejoin("the assignment is for an older subscription")
            return
        self._last_share = share
        assigned = as_names(share)
        gone = self._context.assignment.names() - assigned
        if gone:
            self._handover.revoke(gone, lambda _: self._take_over(assigned, gave_up=True))
        else:
            self._take_over(assigned, gave_up=False)

    def watch(self, known: Mapping[str, TopicPartitionCount] | None, topics: frozenset[str], now_ms: int) -> None:
        self._watch.lead(topics, known, now_ms)

    def reset(self, *, keeps_id: bool, now_ms: int) -> None:
        """Reset the membership: the member owns nothing any more, and joins again with the next poll."""
        self._stop_beating()
        self._joining.cancel()
        self._watch.follow()
        self.generation = NO_GENERATION
        self._is_preparing = False
        if not keeps_id:
            self.member_id = ""
        if self.status is not _S.UNJOINED:
            self._step(_S.UNJOINED)
        self._handover.lose(lambda _: None, now_ms)

    def refuse(self, error: TransactionError, now_ms: int) -> None:
        if error.error_class is ErrorClass.FENCED:
            error.action = "Stop this process: a newer one holds its group_instance_id."
        self.reset(keeps_id=True, now_ms=now_ms)
        self.failure = error

    # Internals.

    def _step(self, to: ClassicStatus) -> None:
        self.status = classic_step(self.status, to)

    def _is_current(self, sent: GroupMetadata) -> bool:
        return (sent.generation, sent.member_id) == (self.generation, self.member_id)

    def _want_rejoin(self, reason: str) -> None:
        self._rejoin_reason = self._rejoin_reason or reason

    def _prepare(self, now_ms: int) -> None:
        """Give up the partitions that must be given up before the member joins."""
        self._is_preparing = True
        reason = self._rejoin_reason or "it joins"

        def join(at_ms: int) -> None:
            self._is_preparing = False
            if self.is_active and self.status in (_S.UNJOINED, _S.STABLE):
                self._joining.begin(reason, at_ms)

        names = self._context.assignment.names()
        if self.generation == NO_GENERATION:
            self._handover.lose(join, now_ms)
        elif self._assignors.is_cooperative:
            self._handover.revoke(self._outdated(), join)
        else:
            self._handover.revoke(names, join, is_told_if_none=True)

    def _outdated(self) -> list[TopicPartition]:
        """Return the partitions that even a cooperative member gives up before it joins."""
        return [
            partition.name
            for partition in self._context.assignment
            if partition.is_remade or partition.name.topic not in self._watch.subscribed
        ]

    def _take_over(self, assigned: frozenset[TopicPartition], *, gave_up: bool) -> None:
        owned = self._context.assignment.names()
        self._handover.assign(dict.fromkeys(sorted(assigned - owned), b""))
        if gave_up:
            self._want_rejoin("it gave up what others are waiting for")

    def _beat(self, now_ms: int) -> None:
        sent = self.standing()
        may_wait = self.status is _S.STABLE and self._rejoin_reason is None
        wait_ms = self._pace.begin(now_ms, may_wait=may_wait)
        request = group.HeartbeatRequest(
            header=self._context.header(),
            group_id=self._group_id,
            generation_id=sent.generation,
            member_id=sent.member_id,
            group_instance_id=sent.group_instance_id,
            max_wait_ms=wait_ms,
        )
        call = RetryingCall(HEARTBEAT, request, deadlines=self._context.once(wait_ms=wait_ms), now_ms=now_ms)

        def ended(end: group.HeartbeatResponse | TransactionError, at_ms: int) -> None:
            self._beat_flight = None
            error = end if isinstance(end, TransactionError) else None
            if not self._is_current(sent) or self.status not in _BEATING:
                return
            if error is not None and error.code != ErrorCode.REBALANCE_IN_PROGRESS:
                self._beat_failed(error, at_ms)
                return
            self._backoff.reset()
            if error is not None and self.status is _S.STABLE:
                self._want_rejoin("a heartbeat was told of a rebalance")
            goes_on = self.status is _S.STABLE and self._rejoin_reason is None
            self._beat_ms = self._pace.answered(at_ms, is_news=False, may_wait=goes_on)

        self._beat_flight = self._context.flights.start(call, ended)

    def _beat_failed(self, error: TransactionError, now_ms: int) -> None:
        if error.error_class in PASSING:
            self._beat_ms = now_ms + self._backoff.next_ms()
        elif error.error_class is ErrorClass.REJOIN:
            self.reset(keeps_id=error.code == ErrorCode.ILLEGAL_GENERATION, now_ms=now_ms)
        else:
            self.refuse(error, now_ms)

    def _stop_beating(self) -> None:
        self._context.flights.cancel(self._beat_flight)
        self._beat_flight = None

    def _send_leave(self, reason: str, now_ms: int, then: Then | None = None) -> None:
        request = group.LeaveGroupRequest(header=self._context.header(), group_id=self._group_id)
        request.members.add(member_id=self.member_id, reason=reason)

        def send(at_ms: int) -> None:
            call = RetryingCall(LEAVE_GROUP, request, deadlines=self._context.once(), now_ms=at_ms)
            self._context.flights.start(call, ended)

        def ended(end: group.LeaveGroupResponse | TransactionError, at_ms: int) -> None:
            if then is None:
                return
            if isinstance(end, TransactionError) and end.error_class in PASSING:
                send(at_ms)
            else:
                then(at_ms)

        send(now_ms)
