"""Membership in a streams group (KIP-1071): the server places tasks, the member takes them and gives them up.

Source: spec groups 6.7, 6.8, 3.7; KIP-1071.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from coordinator_api.v1 import group_pb2 as group
from coordinator_client.calls import STREAMS_GROUP_HEARTBEAT
from coordinator_client.consumer.state import MemberStatus, member_step
from coordinator_client.errors import PASSING, TransactionError
from coordinator_client.groups.heartbeats import JOIN_EPOCH, LEAVE_EPOCH, HeartbeatSender
from coordinator_client.streams.context import StreamsContext
from coordinator_client.streams.endpoints import StreamsEndpoint, endpoints_of
from coordinator_client.streams.handover import TaskHandover, Then
from coordinator_client.streams.tasks import NO_ROLES, Roles, Task, TaskRole, fill_tasks, roles_of
from coordinator_protocol.errors import ErrorClass, ErrorCode

_S = MemberStatus
_STATIC_LEAVE_EPOCH: Final = -2
_BEATING: Final = frozenset({_S.JOINING, _S.RECONCILING, _S.ACKNOWLEDGING, _S.STABLE, _S.PREPARE_LEAVING, _S.LEAVING})
_REPORT_INTERVAL_MS_FIRST: Final = 60_000
_STATUS_PREFIX: Final = "STREAMS_STATUS_CODE_"


class StreamsStatus(NamedTuple):
    """A status of the group, as of the last heartbeat."""

    code: str
    """STALE_TOPOLOGY, MISSING_SOURCE_TOPICS, INCORRECTLY_PARTITIONED_TOPICS, MISSING_INTERNAL_TOPICS,
    SHUTDOWN_APPLICATION, ASSIGNMENT_DELAYED, or that of a newer server."""
    detail: str


class StateOffset(NamedTuple):
    """Offsets of the changelogs of one task, all its partitions together."""

    offset: int
    """Offset that the state of this member has reached."""
    end_offset: int
    """End of the changelogs."""


class StreamsMembership:
    """One member of one streams group."""

    def __init__(self, context: StreamsContext, handover: TaskHandover, *, member_id: str) -> None:
        """Create a membership. `member_id` names the member for the lifetime of its process."""
        self.status = _S.UNSUBSCRIBED
        self.failure: TransactionError | None = None
        """Reason why the group permanently refuses this member; None if it does not."""
        self.epoch = JOIN_EPOCH
        self.member_id = member_id
        self.statuses: tuple[StreamsStatus, ...] = ()
        self.endpoints: tuple[StreamsEndpoint, ...] = ()
        self.acceptable_lag = 0
        """Lag at which a warm-up task counts as caught up; 0 before the first answer."""
        self._context = context
        self._handover = handover
        self._heartbeats = HeartbeatSender(context)
        self._target: Roles = NO_ROLES
        self._is_owned_due = False
        self._endpoint_epoch = 0
        """Epoch of the endpoints; 0 before the first answer."""
        self._offsets: Mapping[Task, StateOffset] = {}
        self._report_due_ms = 0
        self._report_interval_ms = _REPORT_INTERVAL_MS_FIRST
        self._is_shutdown_due = False
        self._left: Then | None = None
        self._is_leave_due = False
        """True if the member is STALE and the group does not know that it left."""

    @property
    def is_active(self) -> bool:
        """True if it is a member, joining or leaving."""
        return self.status not in (_S.UNSUBSCRIBED, _S.FATAL)

    def on_poll(self, now_ms: int) -> None:
        """Join, unless it is a member."""
        if self.status in (_S.UNSUBSCRIBED, _S.STALE):
            self._join(now_ms)

    def on_poll_overdue(self, now_ms: int) -> None:
        """Leave the group, because the application has not polled for too long."""
        if self.status not in (_S.JOINING, _S.RECONCILING, _S.ACKNOWLEDGING, _S.STABLE):
            return
        self._step(_S.STALE)
        self._heartbeats.cancel()
        self._is_leave_due = True
        self._heartbeats.due_ms = now_ms
        self._lose(lambda _now_ms: None, now_ms)

    def check(self, now_ms: int) -> None:
        """Send a heartbeat now, because an answer says that the group sees the member otherwise."""
        if self.status in _BEATING:
            self._heartbeats.speak(now_ms)

    def report(self, offsets: Mapping[Task, StateOffset], now_ms: int) -> None:
        """Report these offsets with the next heartbeat that is due for it; at once if a warm-up task has caught up."""
        has = self._handover.has
        known = self._offsets
        self._offsets = offsets
        warm = {task for task, role in has.items() if role is TaskRole.WARMUP}
        if any(self._is_caught_up(task, offsets) and not self._is_caught_up(task, known) for task in warm):
            self._report_due_ms = now_ms
            self.check(now_ms)

    def shut_down(self, now_ms: int) -> None:
        """Ask the group to stop the application."""
        self._is_shutdown_due = True
        self.check(now_ms)

    def leave(self, then: Then, now_ms: int) -> None:
        """Give up all tasks, leave the group, and call `then`."""
        if self.status in (_S.UNSUBSCRIBED, _S.FATAL):
            self.status, self.failure = _S.UNSUBSCRIBED, None
            then(now_ms)
            return
        self._left = then
        was_member = self.epoch > JOIN_EPOCH
        self._step(_S.PREPARE_LEAVING)
        if was_member:
            self._handover.revoke(self._handover.has, self._leave_now)
        else:
            self._lose(self._leave_now, now_ms)

    def advance(self, now_ms: int) -> None:
        """Send the heartbeat that is due."""
        wake_ms = self.wake_ms()
        if wake_ms is not None and now_ms >= wake_ms:
            self._beat(now_ms)

    def wake_ms(self) -> int | None:
        """Return the time of the next heartbeat; None = none is planned."""
        is_beating = self.status in _BEATING or (self.status is _S.STALE and self._is_leave_due)
        return self._heartbeats.due_ms if is_beating and self._heartbeats.is_idle else None

    def _step(self, to: MemberStatus) -> None:
        self.status = member_step(self.status, to)

    def _is_caught_up(self, task: Task, offsets: Mapping[Task, StateOffset]) -> bool:
        found = offsets.get(task)
        return found is not None and found.end_offset - found.offset <= self.acceptable_lag

    def _join(self, now_ms: int) -> None:
        self._step(_S.JOINING)
        self._heartbeats.cancel()
        self.epoch, self._target, self._endpoint_epoch = JOIN_EPOCH, NO_ROLES, 0
        self._heartbeats.is_full_due, self._is_leave_due = True, False
        self._heartbeats.due_ms = now_ms

    # Heartbeats

    def _beat(self, now_ms: int) -> None:
        status, is_leave = self.status, self.status in (_S.LEAVING, _S.STALE)
        request = self._leave_request() if is_leave else self._request(now_ms)
        is_news = is_leave or status is _S.JOINING or self._heartbeats.is_full_due or self._is_owned_due
        is_news = is_news or request.HasField("task_offsets") or self._is_shutdown_due
        wait_ms = request.max_wait_ms = self._heartbeats.begin(now_ms, may_wait=not is_news)
        self._is_owned_due = False

        def ended(end: group.StreamsGroupHeartbeatResponse | TransactionError, at_ms: int) -> None:
            if is_leave:
                self._gone(end, at_ms)
            elif isinstance(end, TransactionError):
                self._failed(end, at_ms)
            else:
                self._answered(end, request, at_ms)

        self._heartbeats.send(STREAMS_GROUP_HEARTBEAT, request, wait_ms, ended, now_ms)

    def _new_request(self, member_epoch: int) -> group.StreamsGroupHeartbeatRequest:
        return group.StreamsGroupHeartbeatRequest(
            header=self._context.header(),
            group_id=self._context.group_id,
            member_id=self.member_id,
            member_epoch=member_epoch,
            instance_id=self._context.config.group_instance_id,
            shutdown_application=self._is_shutdown_due,
            endpoint_information_epoch=self._endpoint_epoch,
        )

    def _leave_request(self) -> group.StreamsGroupHeartbeatRequest:
        is_static = self._context.config.group_instance_id is not None
        return self._new_request(_STATIC_LEAVE_EPOCH if is_static else LEAVE_EPOCH)

    def _request(self, now_ms: int) -> group.StreamsGroupHeartbeatRequest:
        config, is_join = self._context.config, self.epoch == JOIN_EPOCH
        is_full = self._heartbeats.is_full_due or is_join
        request = self._new_request(self.epoch)
        if is_join:
            request.topology.CopyFrom(config.topology.message())
            request.process_id = config.process_id or self.member_id
            self._introduce(request)
        if is_full:
            request.rebalance_timeout_ms = config.max_poll_interval_ms
        if is_full or self._is_owned_due:
            fill_tasks(request.owned_tasks, NO_ROLES if is_join else self._handover.has)
        if config.reports_offsets and (is_full or now_ms >= self._report_due_ms):
            self._fill_offsets(request.task_offsets)
            self._report_due_ms = now_ms + self._report_interval_ms
        return request

    def _introduce(self, request: group.StreamsGroupHeartbeatRequest) -> None:
        config = self._context.config
        if config.rack_id is not None:
            request.rack_id = config.rack_id
        if config.client_tags:
            request.client_tags.tags.update(config.client_tags)
        if config.user_endpoint is not None:
            request.user_endpoint.host, request.user_endpoint.port = config.user_endpoint

    def _fill_offsets(self, message: group.StreamsTaskOffsets) -> None:
        message.SetInParent()
        for task in sorted(self._offsets.keys() & self._handover.has.keys()):
            offset, end_offset = self._offsets[task]
            message.offsets.add(
                subtopology_id=task.subtopology_id, partition=task.partition, offset=offset, end_offset=end_offset
            )

    def _answered(
        self,
        end: group.StreamsGroupHeartbeatResponse,
        request: group.StreamsGroupHeartbeatRequest,
        now_ms: int,
    ) -> None:
        statuses = tuple(StreamsStatus(_code(each.code), each.detail) for each in end.statuses)
        is_news = end.HasField("assignment") or end.member_epoch != self.epoch or statuses != self.statuses
        is_news = is_news or end.endpoint_information_epoch != self._endpoint_epoch
        self.epoch, self.statuses = end.member_epoch, statuses
        self.acceptable_lag = end.acceptable_recovery_lag
        self._report_interval_ms = end.task_offset_interval_ms or self._report_interval_ms
        if request.shutdown_application:
            self._is_shutdown_due = False
        self._heartbeats.answered(now_ms, interval_ms=end.heartbeat_interval_ms, is_news=is_news)
        self._endpoint_epoch = end.endpoint_information_epoch
        if end.HasField("endpoint_information"):
            self.endpoints = endpoints_of(end.endpoint_information)
        if end.HasField("assignment"):
            self._target = roles_of(end.assignment)
        if self._is_owned_due or self._is_shutdown_due:
            self._heartbeats.due_ms = now_ms
        self._reconcile(now_ms)

    def _failed(self, error: TransactionError, now_ms: int) -> None:
        self._heartbeats.is_full_due = True
        if error.error_class in PASSING or self.status is _S.PREPARE_LEAVING:
            # A member that leaves anyway: its last heartbeat will find out that there is nothing to leave.
            self._heartbeats.repeat(now_ms)
        elif error.error_class is ErrorClass.REJOIN or (
            error.code == ErrorCode.GROUP_ID_NOT_FOUND and self.epoch != JOIN_EPOCH
        ):
            # The group may have been deleted, too: joining makes it again.
            self._step(_S.FENCED)
            self._lose(self._join_after_loss, now_ms)
        else:
            if error.error_class is ErrorClass.FENCED:
                error.action = "Stop this process: a newer one holds its group_instance_id."
            self._step(_S.FATAL)
            self.failure = error
            self._lose(lambda _now_ms: None, now_ms)

    def _lose(self, then: Then, now_ms: int) -> None:
        self.epoch, self._target, self.statuses = JOIN_EPOCH, NO_ROLES, ()
        self._is_owned_due = False
        self._handover.lose(then, now_ms)

    def _join_after_loss(self, now_ms: int) -> None:
        if self.status is _S.FENCED:
            self._join(now_ms)

    # Towards the target

    def _reconcile(self, now_ms: int) -> None:
        """Give up and take tasks until the member has its target, unless that is already under way."""
        if self.status not in (_S.JOINING, _S.ACKNOWLEDGING, _S.STABLE) or self._is_owned_due:
            return
        has, target = self._handover.has, self._target
        if has == target:
            if self.status is not _S.STABLE:
                self._step(_S.STABLE)
            return
        self._step(_S.RECONCILING)
        # An active task that is to be anything else here is given up first: its next owner waits for that.
        gone = [
            task
            for task, role in has.items()
            if task not in target or (role is TaskRole.ACTIVE and target[task] is not TaskRole.ACTIVE)
        ]
        if gone:
            self._handover.revoke(gone, self._take_over)
        else:
            self._take_over(now_ms)

    def _take_over(self, now_ms: int) -> None:
        """Take the tasks that the newest target adds, and tell the group which ones the member has now."""
        if self.status is not _S.RECONCILING:
            return
        self._step(_S.ACKNOWLEDGING)
        self._handover.assign(self._target)
        self._is_owned_due = True
        self._heartbeats.speak(now_ms)

    # Leaving

    def _leave_now(self, now_ms: int) -> None:
        if self.status is _S.PREPARE_LEAVING:
            self._step(_S.LEAVING)
            self._heartbeats.cancel()
            self.epoch = JOIN_EPOCH
            self._heartbeats.due_ms = now_ms

    def _gone(self, end: group.StreamsGroupHeartbeatResponse | TransactionError, now_ms: int) -> None:
        if isinstance(end, TransactionError) and end.error_class in PASSING:
            self._heartbeats.repeat(now_ms)
            return
        self._is_leave_due = False
        if self.status is _S.LEAVING:
            self._step(_S.UNSUBSCRIBED)
            self.epoch, self.statuses = JOIN_EPOCH, ()
            self._heartbeats.is_full_due = True
            then, self._left = self._left, None
            assert then is not None, "a member that leaves is waited for"
            then(now_ms)


def _code(number: int) -> str:
    """Return the name of a status; its number, if it is of a newer server."""
    known = group.StreamsStatusCode.DESCRIPTOR.values_by_number.get(number)
    return str(number) if known is None else known.name.removeprefix(_STATUS_PREFIX)
