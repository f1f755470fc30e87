"""Core of a consumer, without sockets, clocks or threads, under the blocking and the asyncio shell.

Two sides drive it. An engine starts the attempts of `transmissions`, passes the answers to `on_answer`, and comes again
at `wake_ms`. So heartbeats, fetches and commits continue regardless of the application. The shell passes on the
application's calls. A poll is a series of `poll_step`s; each returns a call to make in the application's thread, or
records, or nothing yet. Calls that ask the server return a `Future`, for which each shell waits in its own way.

Each part does one thing: `membership` (in two protocols), `handover` (of partitions), `commits`, `positions` and
`fetching`, over the partitions in `owned`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import TypeVar

from coordinator_client.calls import Reply, ReplyT, RequestT, RetryingCall
from coordinator_client.consumer.classic_membership import ClassicMembership
from coordinator_client.consumer.commits import CommitJob, CommitQueue, no_group
from coordinator_client.consumer.config import ConsumerConfig
from coordinator_client.consumer.consumer_membership import ConsumerMembership
from coordinator_client.consumer.context import ConsumerContext
from coordinator_client.consumer.fetching import ConsumerFetches
from coordinator_client.consumer.handover import AnyListener, Handover
from coordinator_client.consumer.joining import chosen_assignors
from coordinator_client.consumer.membership import GroupMembership, NoMembership
from coordinator_client.consumer.owned import OwnedPartition, OwnedPartitions, Slice
from coordinator_client.consumer.polled import Handed
from coordinator_client.consumer.positions import ConsumerPositions
from coordinator_client.errors import Loss, TransactionError, rejected, unreachable
from coordinator_client.flights import Flights, Transmission
from coordinator_client.groups.backoff import BACKOFF_MS_FIRST
from coordinator_client.groups.committed import Reader
from coordinator_client.groups.futures import Future
from coordinator_client.groups.subscription import WantedTopics
from coordinator_client.groups.topics import AbsentTopics
from coordinator_client.groups.user_calls import NAMES, MadeCalls, UserCall
from coordinator_client.pulse import Pulse
from coordinator_client.random_source import RandomSource, uuid_text
from coordinator_client.values import GroupMetadata, OffsetAndMetadata, TopicPartition
from coordinator_protocol.errors import ErrorCode

T = TypeVar("T")

CommitCallback = Callable[[Mapping[TopicPartition, OffsetAndMetadata], TransactionError | None], Awaitable[None] | None]


class ConsumerCore:
    """One consumer. Not for two threads at once."""

    def __init__(self, config: ConsumerConfig, *, client_id: str, random_source: RandomSource) -> None:
        self.config = config
        self.assignment = OwnedPartitions()
        self.subscription = WantedTopics()
        self.is_closed = False
        self.is_cut_off = False
        """True if the server did not answer the last reported attempt."""
        self.context = ConsumerContext(
            config, config.client_id or client_id, random_source, Flights(random_source), self.assignment
        )
        is_classic = config.group_protocol == "classic"
        self._assignors = chosen_assignors(config.partition_assignors) if is_classic else None
        self._member_id = uuid_text(random_source.request_id())
        self._no_membership = NoMembership(config.group_id)
        self._membership: GroupMembership = self._no_membership
        self._commits = CommitQueue(self.context, self)
        self._handover = Handover(self.context, self._commits)
        self._positions = ConsumerPositions(self.context, self._reader)
        self._fetcher = ConsumerFetches(self.context)
        self._absent = AbsentTopics(self.context)
        self._commit_calls: deque[UserCall] = deque()
        self._made = MadeCalls()
        self._leaving: Future[None] | None = None
        self.pulse = Pulse(self.context.flights, self.context.client_id)
        """Tells a slow server from a dead one while the consumer leaves its group."""
        self._counted: Handed | None = None
        """Last records whose skipped batches were counted."""
        self._callback_failure: Exception | None = None
        self._wanted_positions: list[tuple[OwnedPartition, Future[int]]] = []
        self._last_poll_ms = 0
        self._is_overdue = False
        self._auto_commit_ms: int | None = None
        self._is_auto_committing = False
        self._unreachable: Loss | None = None
        """Reason why the consumer could not connect, until it is reported to the application."""

    # Calls of the engine.

    def transmissions(self, now_ms: int) -> list[Transmission]:
        """Return the attempts to start now."""
        if self.is_closed:
            return []
        self.context.flights.lose_overdue(now_ms)
        self._advance(now_ms)
        due = self.context.flights.transmissions(now_ms)
        self._settle_positions()
        return due

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
            self._membership.wake_ms(),
            self._commits.wake_ms(),
            self._positions.wake_ms(),
            self._fetcher.wake_ms(),
            self.pulse.due_ms(),
            None if self.is_cut_off else self._absent.wake_ms(),
            self._poll_deadline_ms(),
        )
        return min((wake_ms for wake_ms in wakes if wake_ms is not None), default=None)

    # Calls of the shell, for the application.

    @property
    def membership(self) -> GroupMembership:
        """Current membership; without a subscription a `NoMembership`."""
        return self._membership

    def subscribe(self, subscription: WantedTopics, listener: AnyListener | None, now_ms: int) -> None:
        """Subscribe to these topics, from the next poll on. Raises: Rejected."""
        self._check_open()
        if self.config.group_id is None:
            raise rejected(
                ErrorCode.INVALID_GROUP_ID, "subscribe needs a group_id; without one, name partitions with assign()"
            )
        if self.assignment.is_manual:
            raise rejected(
                ErrorCode.INVALID_REQUEST, "partitions were given with assign(); call unsubscribe() before subscribe()"
            )
        membership = self._new_membership() if self._membership is self._no_membership else self._membership
        membership.subscribe(subscription, now_ms)
        if self._membership is self._no_membership:
            self._last_poll_ms = now_ms
        self._membership, self.subscription = membership, subscription
        self._handover.listener = listener
        self._handover.commits_on_revocation = self.config.enable_auto_commit

    def assign(self, partitions: Collection[TopicPartition], now_ms: int) -> None:
        """Read exactly these partitions, without a group. If a topic is gone, read the one that has its name now.
        Raises: Rejected."""
        self._check_open()
        if not self.subscription.is_empty:
            raise rejected(ErrorCode.INVALID_REQUEST, "topics were subscribed to; call unsubscribe() before assign()")
        if self.config.enable_auto_commit and self.config.group_id is not None:
            self._auto_commit(now_ms)
        wanted = set(partitions)
        known = self.assignment.names()
        self.assignment.is_manual = bool(wanted)
        self.assignment.drop(known - wanted)
        self.assignment.renew(known & wanted)
        self.assignment.add(dict.fromkeys(sorted(wanted - known), b""), is_announced=True)

    def accept(self, handed: Handed) -> None:
        """Note that the application has these records. A repetition does nothing."""
        self.assignment.accept(handed.taken)
        if handed.skipped and handed is not self._counted:
            self._counted = handed
            for error in handed.skipped:
                self.context.skipped.add(error)

    def poll_step(
        self, records_max: int, now_ms: int, *, is_first: bool, until: Mapping[TopicPartition, int] | None = None
    ) -> UserCall | list[Slice] | Exception | None:
        """Return a call to make in the application's thread, or records, or an exception of the listener; None = wait.
        Records stay in the buffer until `accept` confirms that the application has them.

        `until`: only records before these offsets; an empty list once they are reached.

        Partitions may be taken away between the first step of a poll and its end: `end_poll`, or the step that returned
        records.

        Raises: any other failure of the consumer.
        """
        self._check_open()
        if self.subscription.is_empty and not self.assignment.is_manual:
            raise rejected(ErrorCode.INVALID_REQUEST, "there is nothing to poll: call subscribe() or assign() first")
        if is_first:
            self._commit_calls += self._made.end_interrupted(now_ms)
            self._commit_if_due(now_ms)
        self._last_poll_ms = now_ms
        self._is_overdue = False
        self.assignment.until = until
        self._handover.is_user_here = True
        self._membership.on_poll(now_ms)
        self._handover.advance(now_ms)
        call = self.take_call()
        if call is not None:
            return call
        raised = self.take_failure()
        if raised is not None:
            return raised
        self._raise_failures(now_ms)
        slices = self.assignment.peek(records_max, until)
        if slices:
            self._handover.is_user_here = False
        return slices if slices or (until and self.assignment.has_reached(until)) else None

    def end_poll(self, now_ms: int) -> None:
        """Note that the application has left `poll`."""
        self._handover.is_user_here = False
        self._last_poll_ms = now_ms

    def take_call(self, *, commits_only: bool = False) -> UserCall | None:
        """Return a call to make in the application's thread, or None. Its end must be reported to `end_call`."""
        if self._commit_calls:
            call: UserCall | None = self._commit_calls.popleft()
        else:
            call = None if commits_only else self._handover.take_call()
        if call is not None:
            self._made.add(call)
        return call

    def end_call(self, call: UserCall, error: Exception | None, now_ms: int) -> None:
        """Note that a call was made, and its exception. A repetition does nothing."""
        self._made.end(call, error, now_ms)

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata] | None, until_ms: int) -> Future[None]:
        """Commit these offsets, or the positions of all partitions, after every earlier commit. The future fails with
        CommitFailed, RebalanceInProgress, Retriable, OutcomeUnknown, Rejected, Misconfigured or Fenced."""
        future: Future[None] = Future()
        self._add_commit(offsets, lambda error, _: _settle(future, error), until_ms)
        return future

    def commit_async(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata] | None, callback: CommitCallback | None
    ) -> None:
        """Commit these offsets, or the positions of all partitions. `callback` is called with the result in a later
        call of poll or commit."""
        wanted = self.assignment.positions() if offsets is None else dict(offsets)

        def ended(error: TransactionError | None, _: int) -> None:
            if callback is not None:
                self._commit_calls.append(
                    UserCall(lambda entered: callback(entered.setdefault(NAMES, wanted), error), self._called_back)
                )

        self._add_commit(wanted, ended, None)

    def leave(self, now_ms: int, *, until_ms: int, commits: bool) -> Future[None]:
        """Give up all partitions and leave the group, if there is one. With `commits` the positions are committed
        first, if commits are automatic."""
        if self._leaving is not None:
            # An earlier call began it and was interrupted, or gave up.
            return self._leaving
        self._commit_calls += self._made.end_interrupted(now_ms)
        self.pulse.begin(now_ms)
        future = self._leaving = Future[None]()
        self._handover.is_user_here = True

        def left(_: int) -> None:
            self._leaving = None
            self.pulse = Pulse(self.context.flights, self.context.client_id)
            self._handover.is_user_here = False
            self.assignment.drop(self.assignment.names())
            self.assignment.is_manual = False
            self.subscription = WantedTopics()
            self._membership = self._no_membership
            future.succeed(None)

        is_auto = commits and self.config.enable_auto_commit and self.config.group_id is not None
        offsets = self.assignment.positions() if is_auto else {}
        # Half of the time is for the commits, so that some is left to leave the group.
        patient_ms = now_ms + (until_ms - now_ms) // 2
        # Everything is committed beforehand; the revocations that follow have nothing to add.
        self._handover.commits_on_revocation = False

        def committed(_: TransactionError | None, at_ms: int) -> None:
            self._membership.leave(left, at_ms)

        self._commits.add(CommitJob(offsets, committed, patient_ms))
        return future

    def take_failure(self) -> Exception | None:
        """Return the first exception of the listener or of a callback that was not raised yet."""
        failure, self._callback_failure = self._callback_failure, None
        return failure or self._handover.take_failure()

    def close(self, now_ms: int) -> None:
        """Stop sending permanently."""
        self.is_closed = True
        self._commits.give_up(_closed(), now_ms)
        self.context.flights.cancel_all()
        self.assignment.drop(self.assignment.names())

    def position(self, name: TopicPartition) -> Future[int]:
        """Return the offset of the next record that poll will return of a partition."""
        self._check_open()
        partition = self.assignment.get(name)
        future: Future[int] = Future()
        self._wanted_positions.append((partition, future))
        self._settle_positions()
        return future

    def ask(self, call: RetryingCall[RequestT, ReplyT], convert: Callable[[ReplyT], T]) -> Future[T]:
        """Send a request to the server; the future holds the reply, converted by `convert`."""
        self._check_open()
        future: Future[T] = Future()

        def ended(end: ReplyT | TransactionError, _: int) -> None:
            if isinstance(end, TransactionError):
                future.fail(end)
            else:
                future.succeed(convert(end))

        self.context.flights.start(call, ended)
        return future

    def reader(self) -> Reader:
        """Return the identity for requests of committed offsets. Raises: Rejected without a group."""
        if self.config.group_id is None:
            raise no_group()
        return self._membership.reader() or Reader(self.config.group_id)

    # The membership as commits see it (`commits.Standing`).

    def metadata(self) -> GroupMetadata:
        return self._membership.metadata()

    def on_commit_refused(self, error: TransactionError, sent: GroupMetadata, now_ms: int) -> TransactionError | None:
        return self._membership.on_commit_refused(error, sent, now_ms)

    # Internals.

    def _reader(self) -> Reader | None:
        return self._membership.reader()

    def _called_back(self, error: Exception | None, _: int) -> None:
        self._callback_failure = self._callback_failure or error

    def _new_membership(self) -> GroupMembership:
        if self._assignors is not None:
            return ClassicMembership(self.context, self._handover, self._assignors)
        return ConsumerMembership(self.context, self._handover, member_id=self._member_id)

    def _advance(self, now_ms: int) -> None:
        deadline_ms = self._poll_deadline_ms()
        if deadline_ms is not None and now_ms >= deadline_ms:
            self._is_overdue = True
            self._membership.on_poll_overdue(now_ms)
        self._handover.advance(now_ms)
        self._commits.advance(now_ms)
        # A commit that had nothing to send is over at once.
        self._handover.advance(now_ms)
        self._membership.advance(now_ms)
        self._positions.advance(now_ms)
        self._fetcher.advance(now_ms)
        self.pulse.advance(now_ms)
        # From the first poll on, as long as the consumer is a member.
        self._absent.subscribe(self.subscription.topics if self._membership.is_active else frozenset(), now_ms)
        if not self.is_cut_off:
            self._absent.advance(now_ms)

    def _poll_deadline_ms(self) -> int | None:
        if self._is_overdue or self._handover.is_user_here or not self._membership.is_active:
            return None
        return self._last_poll_ms + self.config.max_poll_interval_ms

    def _raise_failures(self, now_ms: int) -> None:
        if self._membership.failure is not None:
            raise self._membership.failure
        if self._unreachable is not None:
            # The next poll continues trying, and raises again after the same time.
            loss, self._unreachable = self._unreachable, None
            raise unreachable(loss)
        for partition in self.assignment:
            is_due = not (partition.is_leaving or partition.buffer or self.assignment.is_past(partition))
            if partition.problem is not None and is_due:
                problem, partition.problem = partition.problem, None
                partition.retry_at_ms = now_ms + BACKOFF_MS_FIRST
                raise problem

    def _commit_if_due(self, now_ms: int) -> None:
        if not self.config.enable_auto_commit or self.config.group_id is None or self._is_auto_committing:
            return
        if self._auto_commit_ms is None:
            self._auto_commit_ms = now_ms + self.config.auto_commit_interval_ms
        elif now_ms >= self._auto_commit_ms:
            self._auto_commit_ms = now_ms + self.config.auto_commit_interval_ms
            self._auto_commit(now_ms)

    def _auto_commit(self, now_ms: int) -> None:
        offsets = self.assignment.positions()
        if not offsets:
            return
        self._is_auto_committing = True

        def ended(error: TransactionError | None, at_ms: int) -> None:
            self._is_auto_committing = False
            if error is not None:
                self._auto_commit_ms = at_ms + BACKOFF_MS_FIRST

        self._commits.add(CommitJob(offsets, ended))

    def _add_commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata] | None,
        on_end: Callable[[TransactionError | None, int], None],
        until_ms: int | None,
    ) -> None:
        self._check_open()
        if self.config.group_id is None:
            raise no_group()
        self._commits.add(CommitJob(self.assignment.positions() if offsets is None else offsets, on_end, until_ms))

    def _settle_positions(self) -> None:
        for partition, future in self._wanted_positions:
            if not partition.is_held:
                topic, number = partition.name
                future.fail(
                    rejected(
                        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                        f"{topic}-{number} is not assigned to this consumer any more",
                    )
                )
            elif partition.position is not None:
                future.succeed(partition.position)
            elif partition.problem is not None:
                future.fail(partition.problem)
        self._wanted_positions = [wanted for wanted in self._wanted_positions if not wanted[1].is_settled]

    def _check_open(self) -> None:
        if self.is_closed:
            raise _closed()


def _settle(future: Future[None], error: TransactionError | None) -> None:
    if error is None:
        future.succeed(None)
    else:
        future.fail(error)


def _closed() -> TransactionError:
    return rejected(ErrorCode.INVALID_REQUEST, "the consumer is closed; open a new one")
