"""Core of a share consumer, without sockets, clocks or threads, under the blocking and the asyncio shell.

Two sides drive it, as they drive `consumer.core`. The engine starts the attempts of `transmissions`, passes the answers
to `on_answer`, and comes again at `wake_ms`. The shell passes on the application's calls. A poll is a series of
`poll_step`s; each returns a call to make in the application's thread, or acquisitions, or nothing yet.

Records go from the session to `_arrived`, and stay there until the application's next call confirms that it has them
(`accept`). Then they are taken, until each has an outcome: chosen by the application, or by implicit acceptance.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final

from coordinator_client.calls import Reply
from coordinator_client.errors import (
    AcknowledgementFailed,
    CorruptBatch,
    Loss,
    TransactionError,
    failure,
    rejected,
    unreachable,
)
from coordinator_client.flights import Flights, Transmission
from coordinator_client.groups.futures import Future
from coordinator_client.groups.subscription import WantedTopics
from coordinator_client.groups.topics import AbsentTopics
from coordinator_client.groups.user_calls import NAMES, MadeCalls, UserCall
from coordinator_client.pulse import Pulse
from coordinator_client.random_source import RandomSource, uuid_text
from coordinator_client.settings import SKIP, Skipped
from coordinator_client.share.acknowledgements import (
    AckGroup,
    Acknowledgements,
    AckOutcome,
    Results,
    ack_failure,
    by_partition,
)
from coordinator_client.share.acquired import GAP, AcknowledgeType, HeldRecords, ShareRecord, ShareRecords
from coordinator_client.share.config import ShareConsumerConfig
from coordinator_client.share.context import ShareContext
from coordinator_client.share.membership import ShareGroupMembership
from coordinator_client.share.session import MemberSession, OpenPoll
from coordinator_client.values import TopicPartition, TransactionAcknowledgements
from coordinator_protocol.errors import ErrorClass, ErrorCode

AcknowledgementCallback = Callable[
    [Mapping[TopicPartition, Sequence[int]], AcknowledgementFailed | None], Awaitable[None] | None
]


class ShareCore:
    """One share consumer. Not for two threads at once."""

    def __init__(self, config: ShareConsumerConfig, *, client_id: str, random_source: RandomSource) -> None:
        self.config = config
        self.is_closed = False
        self.is_cut_off = False
        """True if the server did not answer the last reported attempt."""
        self.context = ShareContext(config, config.client_id or client_id, random_source, Flights(random_source))
        self.membership = ShareGroupMembership(
            self.context, member_id=uuid_text(random_source.request_id()), on_lost=self._lost
        )
        self.callback: AcknowledgementCallback | None = None
        """Application's function for the ends of acknowledgements that were sent by a poll."""
        self.acquisitions: dict[int, HeldRecords] = {}
        """Acquisitions by number, from their arrival until all of their records have an outcome. The application's
        thread reads them, too."""
        self.skipped = Skipped()
        self.poll: OpenPoll | None = None
        self.pulse = Pulse(self.context.flights, self.context.client_id)
        """Tells a slow server from a dead one while the consumer leaves its group."""
        self._acks = Acknowledgements(self._acknowledged)
        self._session = MemberSession(self.context, self.membership, self._acks, self)
        self._absent = AbsentTopics(self.context)
        self._arrived: list[HeldRecords] = []
        """Acquisitions that the application does not have, or may have by an interrupted poll."""
        self._taken: dict[int, HeldRecords] = {}
        """Acquisitions that the application has."""
        self._calls: deque[UserCall] = deque()
        self._made = MadeCalls()
        self._leaving: Future[None] | None = None
        self._callback_failure: Exception | None = None
        self._unreported: list[AckOutcome] = []
        """Failed acknowledgements that the next poll raises."""
        self._problems: deque[TransactionError] = deque()
        """Errors that the next polls raise."""
        self._last_poll_ms = 0
        self._is_polling = False
        self._is_overdue = False
        self._unreachable: Loss | None = None
        """Reason why the consumer could not connect, until it is reported to the application."""

    # Calls of the engine.

    def transmissions(self, now_ms: int) -> list[Transmission]:
        """Return the attempts to start now."""
        if self.is_closed:
            return []
        self.context.flights.lose_overdue(now_ms)
        self._advance(now_ms)
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
            self._session.wake_ms(),
            self.pulse.due_ms(),
            None if self.is_cut_off else self._absent.wake_ms(),
            self._poll_deadline_ms(),
        )
        return min((wake_ms for wake_ms in wakes if wake_ms is not None), default=None)

    # Calls of the shell, for the application.

    def subscribe(self, subscription: WantedTopics, now_ms: int) -> None:
        """Subscribe to these topics, from the next poll on. Raises: Rejected."""
        self._check_open()
        if not self.membership.is_active:
            self._last_poll_ms = now_ms
        self.membership.subscribe(subscription, now_ms)

    def accept(self, handed: ShareRecords) -> None:
        """Note that the application has these records. A repetition does nothing."""
        for each in handed.acquisitions:
            if each in self._arrived:
                self._arrived.remove(each)
                self._take(each)
            elif each.lost_because is not None and each.number in self.acquisitions.keys() - self._taken.keys():
                # Lost between two calls: it stays until the next poll, so that it may still be released.
                self._taken[each.number] = each
                self._report_lost(each, each.lost_because)

    def poll_step(
        self, records_max: int, until_ms: int, now_ms: int, *, is_first: bool
    ) -> UserCall | list[HeldRecords] | Exception | None:
        """Return a call to make in the application's thread, or acquisitions, or an exception of a callback; None =
        wait. Raises: any other failure of the consumer."""
        self._check_open()
        if self.membership.subscription.is_empty:
            raise rejected(ErrorCode.INVALID_REQUEST, "there is nothing to poll: call subscribe() first")
        if is_first:
            self._calls += self._made.end_interrupted(now_ms)
            self._purge()
            self._check_acknowledged()
            self._collect()
        self._last_poll_ms, self._is_polling, self._is_overdue = now_ms, True, False
        self.membership.on_poll(now_ms)
        call = self.take_call()
        if call is not None:
            return call
        raised = self.take_failure()
        if raised is not None:
            return raised
        self._raise_failures()
        self._drop_expired(now_ms)
        if self._arrived:
            self._is_polling, self.poll = False, None
            return list(self._arrived)
        self.poll = OpenPoll(until_ms, records_max)
        return None

    def end_poll(self, now_ms: int) -> None:
        """Note that the application has left `poll`."""
        self._is_polling, self.poll = False, None
        self._last_poll_ms = now_ms

    def take_call(self, *, commits_only: bool = False) -> UserCall | None:
        """Return a call to make in the application's thread, or None. Its end must be reported to `end_call`."""
        call = self._calls.popleft() if self._calls else None
        if call is not None:
            self._made.add(call)
        return call

    def end_call(self, call: UserCall, error: Exception | None, now_ms: int) -> None:
        """Note that a call was made, and its exception. A repetition does nothing."""
        self._made.end(call, error, now_ms)

    def take_failure(self) -> Exception | None:
        """Return the first exception of a callback that was not raised yet, or the error of acknowledgements that no
        call returned."""
        raised, self._callback_failure = self._callback_failure, None
        if raised is None and self._unreported:
            outcomes, self._unreported = self._unreported, []
            raised = _summary(outcomes)
        return raised

    def acknowledge(self, records: Iterable[ShareRecord], chosen: AcknowledgeType) -> None:
        """Choose the outcome of these records, until the next poll or commit sends it. Called in the application's
        thread; each choice is stored in one step. Raises: Rejected if one of them is not held."""
        for record in records:
            found = self.acquisitions.get(record.acquisition)
            if found is None or not found.may_choose(record.offset, chosen):
                raise _not_held(record)
            found.choices[record.offset] = chosen

    def hand_to_transaction(self, batch: ShareRecords) -> TransactionAcknowledgements:
        """Let a transaction acknowledge these records: as the application chose, or accepted. A repetition returns the
        same. Released and renewed records stay here. Raises: Rejected in implicit mode, Abortable if a record is not
        held any more."""
        self._check_open()
        if not self.config.explicit:
            raise rejected(
                ErrorCode.INVALID_CONFIG,
                "this consumer accepts by itself what it returned, also where the transaction is aborted; make it with "
                "explicit=True",
            )
        types: dict[TopicPartition, dict[int, AcknowledgeType]] = {}
        for each in batch.acquisitions:
            if each.lost_because is not None or not self.membership.is_member:
                raise _lost_before_transaction(each)
            each.hand_over()
            if each.transacted:
                types[each.name] = each.transacted
        return TransactionAcknowledgements(
            self.context.group_id,
            self.membership.member_id,
            self.membership.epoch,
            types,
            {each.name: each.topic_id for each in batch.acquisitions},
        )

    def commit(self) -> Future[Results]:
        """Send the acknowledgements now. The future holds the outcome by partition."""
        self._check_open()
        self._purge()
        self._collect()
        return self._acks.job()

    def commit_async(self) -> None:
        """Send the acknowledgements now. The next poll tells how they ended."""
        self._check_open()
        self._purge()
        self._collect()

    @property
    def lock_duration_ms(self) -> int:
        """Time for which records are held, as the server said last (ms)."""
        return self._session.lock_duration_ms

    def leave(self, now_ms: int, *, commits: bool) -> Future[None]:
        """Send the acknowledgements, release all other records, and leave the group. Without `commits` records are not
        accepted implicitly."""
        if self._leaving is not None:
            # An earlier call began it and was interrupted, or gave up.
            return self._leaving
        self._calls += self._made.end_interrupted(now_ms)
        self.pulse.begin(now_ms)
        future = self._leaving = Future[None]()
        self.end_poll(now_ms)
        self._purge()
        self._collect(accepts=commits)

        def left(_: int) -> None:
            self._leaving = None
            self.pulse = Pulse(self.context.flights, self.context.client_id)
            self._drop_all()
            future.succeed(None)

        self._session.end(lambda at_ms: self.membership.leave(left, at_ms), now_ms)
        return future

    def close(self, now_ms: int) -> None:
        """Stop sending permanently."""
        self.is_closed = True
        self.context.flights.cancel_all()
        self._acks.put_back()
        self._acks.fail(_closed())
        self._drop_all()

    # The consumer as its session sees it (`session.Held`).

    @property
    def holds_records(self) -> bool:
        """True if the application may hold records."""
        return bool(self._arrived) or any(each.open for each in self._taken.values())

    def arrived(self, acquisitions: Iterable[HeldRecords]) -> None:
        """Take records that were acquired. If the application still holds an earlier delivery of one, that is lost."""
        for each in acquisitions:
            for earlier in [*self._taken.values(), *self._arrived]:
                if (earlier.name, earlier.topic_id) == (each.name, each.topic_id):
                    self._supersede(earlier, each)
            self.acquisitions[each.number] = each
            self._arrived.append(each)
            # The poll has what it waited for, and the next one sends its acknowledgements first.
            self.poll = None

    def problem(self, error: TransactionError) -> None:
        """Let the next poll raise this error."""
        if not any(str(error) == str(other) for other in self._problems):
            self._problems.append(error)

    # Internals.

    def _advance(self, now_ms: int) -> None:
        deadline_ms = self._poll_deadline_ms()
        if deadline_ms is not None and now_ms >= deadline_ms:
            self._is_overdue = True
            self.membership.on_poll_overdue(now_ms)
        self.membership.advance(now_ms)
        self._session.advance(now_ms)
        self.pulse.advance(now_ms)
        # From the first poll on, as long as the consumer is a member.
        topics = self.membership.subscription.topics if self.membership.is_active else frozenset()
        self._absent.subscribe(topics, now_ms)
        if not self.is_cut_off:
            self._absent.advance(now_ms)

    def _poll_deadline_ms(self) -> int | None:
        if self._is_overdue or self._is_polling or self._leaving is not None or not self.membership.is_active:
            return None
        return self._last_poll_ms + self.config.max_poll_interval_ms

    def _raise_failures(self) -> None:
        if self.membership.failure is not None:
            raise self.membership.failure
        if self._unreachable is not None:
            # The next poll continues trying, and raises again after the same time.
            loss, self._unreachable = self._unreachable, None
            raise unreachable(loss)
        if self._problems:
            raise self._problems.popleft()

    def _take(self, acquisition: HeldRecords) -> None:
        """Let the application have these records. Offsets without one get their outcome at once."""
        self._taken[acquisition.number] = acquisition
        own = dict.fromkeys(acquisition.gaps, GAP)
        skips = self.config.on_corrupt_batch == SKIP
        own |= dict.fromkeys(acquisition.unreadable, AcknowledgeType.REJECT if skips else AcknowledgeType.RELEASE)
        if own:
            self._acks.add(AckGroup(acquisition, own, is_own=True))
        for error in acquisition.corrupt:
            if skips:
                self.skipped.add(error)
            else:
                self._problems.append(_released(error))
        self._forget_if_done(acquisition)

    def _collect(self, *, accepts: bool = True) -> None:
        """Send what the application chose. With `accepts`, in implicit mode, all other records are accepted."""
        is_implicit = accepts and not self.config.explicit
        for each in list(self._taken.values()):
            chosen = {offset: how for offset, how in each.choices.items() if offset in each.open}
            given_back = [offset for offset in each.choices if offset in each.transacted]
            each.choices, each.transacted = {}, {}
            if is_implicit:
                chosen |= dict.fromkeys(each.open - chosen.keys() - each.renewed, AcknowledgeType.ACCEPT)
            final = {offset: how for offset, how in chosen.items() if how is not AcknowledgeType.RENEW}
            if given_back:
                # If the transaction has acknowledged them, or aborted, this is refused, and changes nothing.
                self._acks.add(AckGroup(each, dict.fromkeys(given_back, AcknowledgeType.RELEASE), is_own=True))
            # Records that were renewed before may have lost their lock apart from the others.
            for group in _groups(each, final, chosen):
                self._acks.add(group)
            each.open.difference_update(final)
            each.renewed = (each.renewed | chosen.keys()) - final.keys()
            self._forget_if_done(each)

    def _check_acknowledged(self) -> None:
        if not self.config.explicit:
            return
        left = [(each.name, offset) for each in self._taken.values() for offset in each.open - each.choices.keys()]
        if left:
            (topic, number), offset = min(left)
            raise rejected(
                ErrorCode.INVALID_RECORD_STATE,
                f"{len(left)} records of earlier polls are not acknowledged, the first is {topic}-{number} offset "
                f"{offset}; accept, release, reject or renew each record before the next poll, or make the consumer "
                "with explicit=False",
            )

    def _forget_if_done(self, acquisition: HeldRecords) -> None:
        if not acquisition.open:
            self._taken.pop(acquisition.number, None)
            self.acquisitions.pop(acquisition.number, None)

    def _purge(self) -> None:
        """Forget acquisitions that were lost. Their error was stored when that happened."""
        self._taken = {number: each for number, each in self._taken.items() if each.lost_because is None}
        self.acquisitions = {number: each for number, each in self.acquisitions.items() if each.lost_because is None}

    def _drop_expired(self, now_ms: int) -> None:
        """Forget records that waited too long for a poll: others may have them."""
        for each in [each for each in self._arrived if now_ms >= each.expires_ms]:
            self._arrived.remove(each)
            del self.acquisitions[each.number]

    def _supersede(self, earlier: HeldRecords, later: HeldRecords) -> None:
        lost = {offset: GAP for offset in earlier.open if later.covers(offset)}
        if lost:
            earlier.open.difference_update(lost)
            self._acks.end([AckOutcome(AckGroup(earlier, lost), _expired())])
            self._forget_if_done(earlier)

    def _lost(self, why: TransactionError) -> None:
        """Process that the group has released all records of this member."""
        self._session.reset()
        self._acks.fail(why)
        arrived, self._arrived = self._arrived, []
        for each in arrived:
            each.lost_because = why
        for each in self._taken.values():
            if each.lost_because is None:
                each.lost_because = why
                self._report_lost(each, why)

    def _report_lost(self, acquisition: HeldRecords, why: TransactionError) -> None:
        if acquisition.open:
            self._acks.end([AckOutcome(AckGroup(acquisition, dict.fromkeys(acquisition.open, GAP)), why)])

    def _acknowledged(self, outcomes: list[AckOutcome]) -> None:
        """Tell the application how acknowledgements ended that no commit waits for."""
        if self.callback is None:
            self._unreported += [each for each in outcomes if each.error is not None]
            return
        for code in dict.fromkeys(_code(each) for each in outcomes):
            self._tell(self.callback, [each for each in outcomes if _code(each) == code])

    def _tell(self, callback: AcknowledgementCallback, outcomes: list[AckOutcome]) -> None:
        offsets = by_partition(outcomes)
        error = _summary(outcomes) if outcomes[0].error is not None else None
        self._calls.append(UserCall(lambda entered: callback(entered.setdefault(NAMES, offsets), error), self._called))

    def _called(self, error: Exception | None, _: int) -> None:
        self._callback_failure = self._callback_failure or error

    def _drop_all(self) -> None:
        for each in [*self._arrived, *self._taken.values()]:
            each.lost_because = _closed()
        self._arrived, self._taken = [], {}
        self.acquisitions.clear()

    def _check_open(self) -> None:
        if self.is_closed:
            raise _closed()


def _groups(
    acquisition: HeldRecords, final: Mapping[int, AcknowledgeType], chosen: Mapping[int, AcknowledgeType]
) -> list[AckGroup]:
    """Return the groups that are refused apart from each other: renewals, records that were renewed before, others."""
    renewed = acquisition.renewed
    parts: Final = (
        {offset: how for offset, how in final.items() if offset not in renewed},
        {offset: how for offset, how in final.items() if offset in renewed},
        {offset: how for offset, how in chosen.items() if offset not in final},
    )
    return [AckGroup(acquisition, part) for part in parts if part]


def _code(outcome: AckOutcome) -> tuple[int, int]:
    error = outcome.error
    return (0, 0) if error is None else (error.code, error.error_class)


def _summary(outcomes: Sequence[AckOutcome]) -> AcknowledgementFailed:
    """Return one error for all these failures."""
    first = outcomes[0].error
    assert first is not None, "only failures have an error"
    cause = first.__cause__ if isinstance(first.__cause__, TransactionError) else first
    failed = ack_failure(cause, by_partition(outcomes))
    failed.error_class, failed.action = first.error_class, first.action
    return failed


def _lost_before_transaction(acquisition: HeldRecords) -> TransactionError:
    topic, number = acquisition.name
    error = failure(
        ErrorCode.INVALID_RECORD_STATE,
        ErrorClass.ABORT,
        f"records of {topic}-{number} are not held by this consumer any more ({acquisition.lost_because or 'it left'})",
    )
    error.action = "The transaction is aborted: go on with poll(), the records come again, here or elsewhere."
    return error


def _not_held(record: ShareRecord) -> TransactionError:
    return rejected(
        ErrorCode.INVALID_RECORD_STATE,
        f"{record.topic}-{record.partition} offset {record.offset} is not held by this consumer: it was acknowledged "
        "before, its lock ended, or another consumer polled it",
    )


def _expired() -> TransactionError:
    return failure(
        ErrorCode.INVALID_RECORD_STATE, ErrorClass.REJECTED, "the lock ended, and the records were delivered again"
    )


def _released(error: CorruptBatch) -> CorruptBatch:
    error.action = (
        "Its records were released, and are archived at the group's delivery limit. Make the consumer with "
        "on_corrupt_batch='skip' to reject such records."
    )
    return error


def _closed() -> TransactionError:
    return rejected(ErrorCode.INVALID_REQUEST, "the consumer is closed; open a new one")
