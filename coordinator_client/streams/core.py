"""Core of a member of a streams group, without sockets, clocks or threads, under the blocking and the asyncio shell.

Two sides drive it, as they drive `share.core`. The engine starts the attempts of `transmissions`, passes the answers to
`on_answer`, and comes again at `wake_ms`. The shell passes on the application's calls. A poll is a series of
`poll_step`s; each returns a call to make in the application's thread, or the tasks, or nothing yet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from coordinator_api.v1 import group_pb2 as group
from coordinator_client.calls import OFFSET_FETCH, Reply, RetryingCall
from coordinator_client.errors import PASSING, Loss, TransactionError, failure, rejected, unreachable
from coordinator_client.flights import Flights, Transmission
from coordinator_client.groups.backoff import BACKOFF_MS_FIRST
from coordinator_client.groups.committed import (
    Committed,
    Reader,
    committed_of,
    committed_verdicts,
    offset_fetch_request,
)
from coordinator_client.groups.futures import Future
from coordinator_client.groups.heartbeats import JOIN_EPOCH
from coordinator_client.groups.user_calls import MadeCalls, UserCall
from coordinator_client.pulse import Pulse
from coordinator_client.random_source import RandomSource, uuid_text
from coordinator_client.streams.config import StreamsClientConfig
from coordinator_client.streams.context import StreamsContext
from coordinator_client.streams.handover import TaskHandover
from coordinator_client.streams.membership import StreamsMembership
from coordinator_client.streams.tasks import TaskRole, Tasks, tasks_of
from coordinator_client.values import (
    GroupMetadata,
    OffsetAndMetadata,
    TopicPartition,
    TransactionOffsets,
)
from coordinator_protocol.errors import ErrorClass, ErrorCode


@dataclass(slots=True, eq=False)
class _Lookup:
    """Committed offsets that the application waits for."""

    partitions: Sequence[TopicPartition]
    ends_ms: int
    due_ms: int
    future: Future[Committed]
    is_asking: bool = False


class StreamsCore:
    """One member of a streams group. Not for two threads at once."""

    def __init__(self, config: StreamsClientConfig, *, client_id: str, random_source: RandomSource) -> None:
        self.config = config
        self.is_closed = False
        self.is_cut_off = False
        """True if the server did not answer the last reported attempt."""
        self.context = StreamsContext(config, config.client_id or client_id, random_source, Flights(random_source))
        self.handover = TaskHandover()
        self.membership = StreamsMembership(
            self.context, self.handover, member_id=uuid_text(random_source.request_id())
        )
        self.pulse = Pulse(self.context.flights, self.context.client_id)
        """Tells a slow server from a dead one while the member leaves its group."""
        self._made = MadeCalls()
        self._lookups: list[_Lookup] = []
        self._leaving: Future[None] | None = None
        self._seen: object = (0, ())
        """Tasks and statuses as the last poll returned them."""
        self._last_poll_ms: int | None = None
        """Time of the last poll; None before the first."""
        self._is_polling = False
        self._is_overdue = False
        self._unreachable: Loss | None = None
        """Reason why the member could not connect, until it is reported to the application."""

    # Calls of the engine.

    def transmissions(self, now_ms: int) -> list[Transmission]:
        """Return the attempts to start now."""
        if self.is_closed:
            return []
        self.context.flights.lose_overdue(now_ms)
        deadline_ms = self._poll_deadline_ms()
        if deadline_ms is not None and now_ms >= deadline_ms:
            self._is_overdue = True
            self.membership.on_poll_overdue(now_ms)
        self.membership.advance(now_ms)
        self._look_up(now_ms)
        self.pulse.advance(now_ms)
        return self.context.flights.transmissions(now_ms)

    def on_answer(self, flight: int, attempt: int, answer: Reply | Loss, now_ms: int) -> None:
        """Process the answer to an attempt, or its loss."""
        if not isinstance(answer, Loss):
            self.is_cut_off, self._unreachable = False, None
        else:
            self.is_cut_off = self.is_cut_off or answer.status != "CANCELLED"
            self._unreachable = answer if answer.is_final else self._unreachable
        self.context.flights.on_answer(flight, attempt, answer, now_ms)

    def take_cancelled(self) -> list[int]:
        """Return the numbers of the calls that were given up."""
        return self.context.flights.take_cancelled()

    def wake_ms(self) -> int | None:
        """Return the latest time of the next `transmissions`."""
        if self.is_closed:
            return None
        wakes = (
            self.context.flights.wake_ms(),
            self.membership.wake_ms(),
            self.pulse.due_ms(),
            self._poll_deadline_ms(),
            *(each.due_ms for each in self._lookups if not each.is_asking),
        )
        return min((wake_ms for wake_ms in wakes if wake_ms is not None), default=None)

    # Calls of the shell, for the application.

    def accept(self, handed: object) -> None:
        """Do nothing: a poll hands out no records."""

    def poll_step(self, now_ms: int, *, is_first: bool) -> UserCall | Tasks | Exception | None:
        """Return a call to make in the application's thread, or an exception of the listener. Return the tasks if they,
        or the statuses, have changed since the last poll. None = wait. Raises: any other failure of the member."""
        self._check_open()
        if is_first:
            self.handover.make_again(self._made.end_interrupted(now_ms))
        self._last_poll_ms, self._is_polling, self._is_overdue = now_ms, True, False
        self.membership.on_poll(now_ms)
        call = self.take_call()
        if call is not None:
            return call
        raised = self.take_failure()
        if raised is not None:
            return raised
        if self.membership.failure is not None:
            raise self.membership.failure
        if self._unreachable is not None:
            # The next poll continues trying, and raises again after the same time.
            loss, self._unreachable = self._unreachable, None
            raise unreachable(loss)
        now_seen = self.handover.changes, self.membership.statuses
        if now_seen != self._seen:
            self._seen, self._is_polling = now_seen, False
            return self.tasks()
        return None

    def tasks(self) -> Tasks:
        """Return the tasks that the member has now."""
        return tasks_of(self.handover.has)

    def end_poll(self, now_ms: int) -> None:
        """Note that the application has left `poll`."""
        self._is_polling = False
        self._last_poll_ms = now_ms

    def take_call(self, *, commits_only: bool = False) -> UserCall | None:
        """Return a call to make in the application's thread, or None. Its end must be reported to `end_call`."""
        call = None if commits_only else self.handover.take_call()
        if call is not None:
            self._made.add(call)
        return call

    def end_call(self, call: UserCall, error: Exception | None, now_ms: int) -> None:
        """Note that a call was made, and its exception. A repetition does nothing."""
        self._made.end(call, error, now_ms)

    def take_failure(self) -> Exception | None:
        """Return the first exception of the listener that was not raised yet."""
        return self.handover.take_failure()

    def committed(self, partitions: Sequence[TopicPartition], *, now_ms: int, ends_ms: int) -> Future[Committed]:
        """Look up committed offsets with the epoch of the member, until one is accepted."""
        self._check_open()
        lookup = _Lookup(sorted(partitions), ends_ms, now_ms, Future())
        self._lookups.append(lookup)
        return lookup.future

    def transaction_offsets(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> TransactionOffsets:
        """Return the offsets for a transaction. Raises: Abortable unless a task that is active here reads each of
        these partitions."""
        self._check_open()
        has, topology = self.handover.has, self.config.topology
        for name in offsets:
            if not any(has.get(task) is TaskRole.ACTIVE for task in topology.tasks_reading(name)):
                raise _not_active(name)
        metadata = GroupMetadata(
            group_id=self.context.group_id,
            generation=self.membership.epoch,
            member_id=self.membership.member_id,
            group_instance_id=self.config.group_instance_id,
        )
        return TransactionOffsets(metadata, offsets, {})

    def leave(self, now_ms: int) -> Future[None]:
        """Give up all tasks, and leave the group."""
        if self._leaving is not None:
            # An earlier call began it and was interrupted, or gave up.
            return self._leaving
        self.handover.make_again(self._made.end_interrupted(now_ms))
        self.pulse.begin(now_ms)
        future = self._leaving = Future[None]()
        self.end_poll(now_ms)

        def left(_: int) -> None:
            self._leaving = None
            self.pulse = Pulse(self.context.flights, self.context.client_id)
            future.succeed(None)

        self.membership.leave(left, now_ms)
        return future

    def close(self, now_ms: int) -> None:
        """Stop sending permanently."""
        self.is_closed = True
        self.context.flights.cancel_all()
        lookups, self._lookups = self._lookups, []
        for lookup in lookups:
            lookup.future.fail(_closed())

    # Internals.

    def _poll_deadline_ms(self) -> int | None:
        is_away = self._is_overdue or self._is_polling or self._leaving is not None or not self.membership.is_active
        return None if is_away or self._last_poll_ms is None else self._last_poll_ms + self.config.max_poll_interval_ms

    def _look_up(self, now_ms: int) -> None:
        self._lookups = [each for each in self._lookups if each.is_asking or now_ms < each.ends_ms]
        for lookup in self._lookups:
            if lookup.is_asking or now_ms < lookup.due_ms:
                continue
            if self.membership.epoch == JOIN_EPOCH:
                lookup.due_ms = now_ms + BACKOFF_MS_FIRST
            else:
                self._ask(lookup, now_ms)

    def _ask(self, lookup: _Lookup, now_ms: int) -> None:
        reader = Reader(self.context.group_id, self.membership.member_id, self.membership.epoch)
        request = offset_fetch_request(self.context, reader, ((name, b"") for name in lookup.partitions))
        call = RetryingCall(
            OFFSET_FETCH, request, deadlines=self.context.once(), now_ms=now_ms, items=committed_verdicts
        )
        lookup.is_asking = True

        def ended(end: group.OffsetFetchResponse | TransactionError, at_ms: int) -> None:
            lookup.is_asking = False
            if not isinstance(end, TransactionError):
                lookup.future.succeed(committed_of(lookup.partitions, end))
            elif end.error_class in PASSING or end.error_class is ErrorClass.REJOIN:
                # A transaction is still open, or a heartbeat brings the epoch that the group knows.
                lookup.due_ms = at_ms + BACKOFF_MS_FIRST
                if end.error_class is ErrorClass.REJOIN:
                    self.membership.check(at_ms)
                return
            else:
                lookup.future.fail(end)
            self._lookups.remove(lookup)

        self.context.flights.start(call, ended)

    def _check_open(self) -> None:
        if self.is_closed:
            raise _closed()


def _not_active(name: TopicPartition) -> TransactionError:
    error = failure(
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorClass.ABORT,
        f"no task that reads {name.topic}-{name.partition} is active at this member: another one may have it",
    )
    error.action = "The transaction is aborted: go on with poll(), which says what tasks there are."
    return error


def _closed() -> TransactionError:
    return rejected(ErrorCode.INVALID_REQUEST, "the member is closed; open a new one")
